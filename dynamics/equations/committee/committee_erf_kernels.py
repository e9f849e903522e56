"""Gaussian means of the link σ(z) = erf(z/√2) in closed form; `committee_kernels` says the layout.

Two means are I2 and I3 of Saad & Solla 1995. For their I4, the factor σ'_i σ'_j ∝ exp(−(λ_i² + λ_j²)/2) is a change of
measure: under it x is Gaussian with covariance A = 1 − U (1 + UᵀU)⁻¹ Uᵀ, U = (w_i, w_j), and the mean of ē² is a sum
of I2 with the covariances v_a·A v_b.
"""

import math

from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel


@kernel
def erf_table_size(M: int) -> int:
    """Return the numbers of scratch for tables: v_a·A v_b, and the two columns of B = Vᵀ U (1 + UᵀU)⁻¹."""
    return M * (M + 2)


@kernel
def write_erf_row(i: int, parameters: Vector, sizes: Integers, work: Vector, N: Matrix) -> float:
    """Write N_ib = w_b E σ'_i σ'_b; return k_i = Σ_b w_b E σ''_i σ_b = −Σ_b N_ib C_ib/(1 + C_ii)."""
    m, M = sizes[0], sizes[0] + sizes[1]
    first, total = 1.0 + work[i * M + i], 0.0
    for b in range(M):
        c, second = work[i * M + b], 1.0 + work[b * M + b]
        slopes = 2.0 / math.pi / math.sqrt(first * second - c * c)
        N[i, b] = slopes if b < m else -parameters[b - m] * slopes
        total -= N[i, b] * c
    return float(total / first)


@kernel
def erf_learned_mean(i: int, b: int, sizes: Integers, work: Vector) -> float:
    """Return E σ_i σ_b of the degrees from sizes[5], 0 or 3, on."""
    M = sizes[0] + sizes[1]
    ratio = work[i * M + b] / math.sqrt((1.0 + work[i * M + i]) * (1.0 + work[b * M + b]))
    return 2.0 / math.pi * (math.asin(ratio) - (0.0 if sizes[5] == 0 else ratio))


@kernel
def erf_second(i: int, j: int, parameters: Vector, sizes: Integers, work: Vector) -> float:
    """Return E[(ē² + τ²) σ'_i σ'_j |x|²], of theory 1 its part of order d.

    Under the changed measure E[|x|² f] = tr A E f + Σ_ab (v_a·A² v_b) E ∂_a ∂_b f, and a mean of second derivatives is
    twice the derivative in the covariance. v_a·A² v_b = v_a·A v_b − B_a·B_b, and tr A = d − 2 + tr (1 + UᵀU)⁻¹.
    """
    m, P = sizes[0], sizes[1]
    M = m + P
    noise, d = parameters[P + P * P], parameters[P + P * P + 2]
    c, first, second = work[i * M + j], 1.0 + work[i * M + i], 1.0 + work[j * M + j]
    determinant = first * second - c * c
    tilted, left, right = M * M, 2 * M * M, 2 * M * M + M
    for a in range(M):
        x, y = work[a * M + i], work[a * M + j]
        work[left + a] = (second * x - c * y) / determinant
        work[right + a] = (first * y - c * x) / determinant
    for a in range(M):
        for b in range(M):
            overlap = work[left + a] * work[b * M + i] + work[right + a] * work[b * M + j]
            work[tilted + a * M + b] = work[a * M + b] - overlap
    square = change = 0.0
    for a in range(M):
        wide = 1.0 + work[tilted + a * M + a]
        growth = work[tilted + a * M + a] - work[left + a] ** 2 - work[right + a] ** 2
        for b in range(a + 1):
            weight = (1.0 if a < m else -parameters[a - m]) * (1.0 if b < m else -parameters[b - m])
            weight *= 1.0 if a == b else 2.0
            other = 1.0 + work[tilted + b * M + b]
            s = work[tilted + a * M + b]
            square += weight * math.asin(s / math.sqrt(wide * other))
            if sizes[4] == 2:
                ds = s - work[left + a] * work[left + b] - work[right + a] * work[right + b]
                db = work[tilted + b * M + b] - work[left + b] ** 2 - work[right + b] ** 2
                turn = ds - 0.5 * s * (growth / wide + db / other)
                change += weight * turn / math.sqrt(wide * other - s * s)
    mean = 2.0 / math.pi * square + noise
    scale = 2.0 / math.pi / math.sqrt(determinant)
    if sizes[4] == 2:
        return float(scale * ((d - 2.0 + (first + second) / determinant) * mean + 4.0 / math.pi * change))
    return float(scale * d * mean)
