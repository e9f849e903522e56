"""Compiled minibatch steps of the projected engine."""

from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import entry
from dynamics.kernels.views import row_part
from sgd_check.engines.projected.projected_kernels import Buffers, Draws, give_up, weigh_batch
from sgd_check.engines.projected.turning_kernels import turn_batch


@entry
def take_batch_steps(W: Matrix, rates: Vector, constants: tuple[Vector], draws: Draws, buffers: Buffers) -> int:
    """Take one step per learning rate, on B samples each; return how many were taken before W was not finite.

    `rates` are η/B, `constants` those of `take_single_steps`. A row of samples holds B samples of r + m numbers, then
    the entries of the Bartlett factor below its diagonal; gammas (steps, s') are half the squares of that diagonal.
    """
    (link,) = constants
    samples, gammas, labels = draws
    work, scratch, H, stack = buffers
    axes, m = W.shape
    batch, new = labels.shape[1], gammas.shape[1]
    g, products = row_part(work, 4, 0, m), row_part(work, 6, 0, m)
    for t in range(rates.size):
        if not weigh_batch(W, rates[t], samples, labels, t, link, H, work, scratch):
            give_up(W)
            return t
        for c in range(axes):
            for i in range(m):
                W[c, i] *= g[i]
            for b in range(batch):
                coordinate = samples[t, b * axes + c]
                for i in range(m):
                    W[c, i] -= coordinate * H[b, i]
        below = row_part(samples, t, batch * axes, samples.shape[1] - batch * axes)
        turn_batch(W, axes - m, H, row_part(gammas, t, 0, new), below, stack, products)
    return rates.size
