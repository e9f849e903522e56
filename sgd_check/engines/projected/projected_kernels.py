"""Compiled error of one sample, in the projections alone; executed after the rendered `sigma` and `sigma_and_slope`.

State: W (r + m, m), column i the coordinates of neuron i: r on the teacher's axes, then row i of a lower-triangular
factor of the rest, so that W[r + j, i] = 0 for j > i. A step draws the sample in those r + m axes and in new ones,

    w_i ← g_i w_i − Σ_b h_ib x_b,   g_i = 1 − η/B Σ_b e_b (2σ_ib − z_ib σ'_ib),   h_ib = η/B e_b |w_i| σ'_ib,

and turns the axes so that the new ones are empty again: `projected_single_kernels` for B = 1, `projected_batch_kernels`
for more. Rows of `work`: z, |w|, σ, σ', g, h, and one to carry columns.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from sgd_check.engines.projected.links import sigma, sigma_and_slope

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@kernel
def lengths(W: Matrix, work: Matrix) -> None:
    """Write |w_i| to work[1]."""
    rho = work[1]
    for i in range(W.shape[1]):
        rho[i] = 0.0
    for c in range(W.shape[0]):
        for i in range(W.shape[1]):
            rho[i] += W[c, i] * W[c, i]
    for i in range(W.shape[1]):
        rho[i] = np.sqrt(rho[i])


@kernel
def residual(W: Matrix, x: Vector, a: Vector, directions: Matrix, work: Matrix) -> float:
    """Return f(x) − f*(x) without noise; write z, σ and σ' of the neurons, whose lengths are known."""
    z, rho, value, slope = work[0], work[1], work[2], work[3]
    m = W.shape[1]
    for i in range(m):
        z[i] = 0.0
    for c in range(W.shape[0]):
        coordinate = x[c]
        for i in range(m):
            z[i] += W[c, i] * coordinate
    total = 0.0
    for i in range(m):
        z[i] /= rho[i]
        value[i], slope[i] = sigma_and_slope(z[i])
        total += rho[i] * rho[i] * value[i]
    if directions.shape[0] == 0:
        for p in range(a.size):
            total -= a[p] * sigma(x[p])
    else:
        for p in range(a.size):
            along = 0.0
            for c in range(directions.shape[1]):
                along += directions[p, c] * x[c]
            total -= a[p] * sigma(along)
    return total


@kernel
def weigh_batch(
    W: Matrix, rate: float, a: Vector, directions: Matrix, sample: Vector, noise: Vector, H: Matrix, work: Matrix
) -> bool:
    """Write H and g for one batch; return whether every error is finite."""
    axes, m = W.shape
    z, rho, value, slope, g = work[0], work[1], work[2], work[3], work[4]
    lengths(W, work)
    for i in range(m):
        g[i] = 1.0
    for b in range(noise.size):
        step = rate * (residual(W, sample[b * axes : (b + 1) * axes], a, directions, work) - noise[b])
        if not abs(step) < np.inf:
            return False
        for i in range(m):
            g[i] -= step * (2.0 * value[i] - z[i] * slope[i])
            H[b, i] = step * rho[i] * slope[i]
    return True


@kernel
def give_up(W: Matrix) -> None:
    """Turn the weights to NaN."""
    for c in range(W.shape[0]):
        for i in range(W.shape[1]):
            W[c, i] = np.nan
