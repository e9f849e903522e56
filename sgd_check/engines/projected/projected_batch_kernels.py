"""Compiled minibatch steps of the projected engine; executed after `projected_kernels` and `turning_kernels`."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from sgd_check.engines.projected.projected_kernels import give_up, weigh_batch
    from sgd_check.engines.projected.turning_kernels import turn_batch

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@entry("i8(f8[:,::1], f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1])")
def take_batch_steps(
    W: Matrix,
    rates: Vector,
    a: Vector,
    directions: Matrix,
    samples: Matrix,
    gammas: Matrix,
    noise: Matrix,
    work: Matrix,
    H: Matrix,
    stack: Matrix,
) -> int:
    """Take one step per learning rate, on B samples each; return how many were taken before W was not finite.

    `rates` are η/B. A row of `samples` holds B samples of r + m numbers, then the entries of the Bartlett factor below
    its diagonal; `gammas` (steps, s') half the squares of that diagonal, `noise` (steps, B) the label noise. `H` is
    (B, m), `stack` (m + s', m).
    """
    axes, m = W.shape
    batch = noise.shape[1]
    g = work[4]
    for t in range(rates.size):
        if not weigh_batch(W, rates[t], a, directions, samples[t], noise[t], H, work):
            give_up(W)
            return t
        for c in range(axes):
            for i in range(m):
                W[c, i] *= g[i]
            for b in range(batch):
                coordinate = samples[t, b * axes + c]
                for i in range(m):
                    W[c, i] -= coordinate * H[b, i]
        turn_batch(W, H, gammas[t], samples[t, batch * axes :], stack, work[6])
    return rates.size
