"""Compiled error of one sample, in the projections alone.

State: W (r + m, m), column i the coordinates of neuron i: r on the teacher's axes, then row i of a lower-triangular
factor of the rest, so that W[r + j, i] = 0 for j > i. A step draws the sample in those r + m axes and in new ones,

    w_i ← g_i w_i − Σ_b h_ib x_b,   g_i = 1 − η/B Σ_b e_b (2σ_ib − z_ib σ'_ib),   h_ib = η/B e_b |w_i| σ'_ib,

and turns the axes so that the new ones are empty again: `projected_single_kernels` for B = 1, `projected_batch_kernels`
for more. Rows of `work`: z, |w|, σ, σ', g, h, and one to carry columns.

All steps take `draws`, the samples, gammas and labels of so many steps, and `buffers`: `work` (7, m), scratch of links,
H (B, m) and `stack`, see `turning_kernels`.
"""

import numpy as np

from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import row_part
from sgd_check.engines.projected.links import write_both

Draws = tuple[Matrix, Matrix, Matrix]
Buffers = tuple[Matrix, Vector, Matrix, Matrix]


@kernel
def lengths(W: Matrix, work: Matrix) -> None:
    """Write |w_i| to work[1]."""
    rho = row_part(work, 1, 0, W.shape[1])
    for i in range(W.shape[1]):
        rho[i] = 0.0
    for c in range(W.shape[0]):
        for i in range(W.shape[1]):
            rho[i] += W[c, i] * W[c, i]
    for i in range(W.shape[1]):
        rho[i] = np.sqrt(rho[i])


@kernel
def output(W: Matrix, samples: Matrix, t: int, first: int, link: Vector, work: Matrix, scratch: Vector) -> float:
    """Return f(x) of the sample in row t from column `first` on; write z, σ and σ' of neurons of known lengths."""
    m = W.shape[1]
    z, rho = row_part(work, 0, 0, m), row_part(work, 1, 0, m)
    value, slope = row_part(work, 2, 0, m), row_part(work, 3, 0, m)
    for i in range(m):
        z[i] = 0.0
    for c in range(W.shape[0]):
        coordinate = samples[t, first + c]
        for i in range(m):
            z[i] += W[c, i] * coordinate
    for i in range(m):
        z[i] /= rho[i]
    write_both(link, z, value, slope, scratch)
    total = 0.0
    for i in range(m):
        total += rho[i] * rho[i] * value[i]
    return total


@kernel
def weigh_batch(
    W: Matrix, rate: float, samples: Matrix, labels: Matrix, t: int, link: Vector, H: Matrix, work: Matrix,
    scratch: Vector
) -> bool:  # fmt: skip
    """Write H and g for batch t; return whether every error is finite."""
    axes, m = W.shape
    z, rho, value = row_part(work, 0, 0, m), row_part(work, 1, 0, m), row_part(work, 2, 0, m)
    slope, g = row_part(work, 3, 0, m), row_part(work, 4, 0, m)
    lengths(W, work)
    for i in range(m):
        g[i] = 1.0
    for b in range(labels.shape[1]):
        step = rate * (output(W, samples, t, b * axes, link, work, scratch) - labels[t, b])
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
