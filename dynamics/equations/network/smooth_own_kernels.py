"""Derivatives of the means of one neuron with itself, for links without kinks; executed before the pairs' kernels."""

from dynamics.compiler.arrays import Matrix
from dynamics.compiler.compilation import kernel


@kernel
def slopes_from_moments(mean: Matrix, out: Matrix) -> None:
    """∂/∂q and ∂/∂b of K, K1, K12 and K2 from E σ^(p) σ^(q): a mean of F(x + b) has ∂_b E F = E F', ∂_q = ½ E F''."""
    out[0, 0], out[0, 1] = mean[2, 0] + mean[1, 1], 2.0 * mean[1, 0]
    out[1, 0], out[1, 1] = 0.5 * (mean[3, 0] + 3.0 * mean[2, 1]), mean[2, 0] + mean[1, 1]
    out[2, 0], out[2, 1] = mean[3, 1] + mean[2, 2], 2.0 * mean[2, 1]
    out[3, 0], out[3, 1] = 0.5 * (mean[4, 0] + 2.0 * mean[3, 1] + mean[2, 2]), mean[3, 0] + mean[2, 1]
