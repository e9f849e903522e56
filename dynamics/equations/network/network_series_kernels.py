"""Mean derivatives of a polynomial at any variance and bias."""

from dynamics.kernels.arrays import Vector
from dynamics.kernels.jit import kernel


@kernel
def write_series_means(q: float, b: float, means: Vector, D: Vector) -> None:
    """D_j = Σ_k F_(j+k) G_k, G_k = H_k/k! of the Hermite polynomials H_k(b) for the weight of variance 1 − q."""
    D[:] = 0.0
    older, newer = 0.0, 1.0
    for k in range(means.size):
        for j in range(min(D.size, means.size - k)):
            D[j] += means[j + k] * newer
        older, newer = newer, (b * newer + (q - 1.0) * older) / (k + 1)
