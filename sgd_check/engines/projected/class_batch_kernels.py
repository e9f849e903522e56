"""Compiled minibatch steps on inputs of covariance Σ; executed after `projected_kernels` and `turning_kernels`.

State and samples are those of `class_kernels`; the new axes of every triangular factor carry a Bartlett factor of their
own, as in `turning_kernels`.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.compilation import entry, kernel

if TYPE_CHECKING:
    from sgd_check.engines.projected.projected_kernels import give_up, weigh_batch
    from sgd_check.engines.projected.turning_kernels import turn_batch

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]


@kernel
def move_rows(W: Matrix, s: Vector, sample: Vector, H: Matrix, work: Matrix) -> None:
    """Take Σ times the step of isotropic inputs, on all axes but the new ones; g stands in row 4 of `work`."""
    axes, m = W.shape
    for c in range(axes):
        for i in range(m):
            W[c, i] *= 1.0 - s[c] * (1.0 - work[4, i])
        for b in range(H.shape[0]):
            coordinate = s[c] * sample[b * axes + c]
            for i in range(m):
                W[c, i] -= coordinate * H[b, i]


@entry(
    "i8(f8[:,::1], f8[::1], f8[::1], f8[:,::1], f8[::1], i8[::1], i8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], "
    "f8[:,::1], f8[:,::1], f8[:,::1])"
)
def take_class_batches(
    W: Matrix,
    rates: Vector,
    a: Vector,
    directions: Matrix,
    s: Vector,
    factors: Integers,
    new_axes: Integers,
    samples: Matrix,
    gammas: Matrix,
    noise: Matrix,
    work: Matrix,
    own: Matrix,
    H: Matrix,
    stack: Matrix,
) -> int:
    """Take one step per learning rate, on B samples each; return how many were taken before W was not finite.

    `rates` are η/B, `new_axes` the numbers of new axes of the factors. A row of `samples` holds B samples of D numbers,
    then for every factor the entries of its Bartlett factor below the diagonal; `gammas` half the squares of those on
    it. `own` and `H` are (B, m), `stack` (m + most new axes, m).
    """
    axes, m = W.shape
    batch = noise.shape[1]
    for t in range(rates.size):
        if not weigh_batch(W, rates[t], a, directions, samples[t], noise[t], H, work):
            give_up(W)
            return t
        move_rows(W, s, samples[t], H, work)
        at, below = 0, batch * axes
        for q in range(factors.size):
            first, count = factors[q], new_axes[q]
            for b in range(batch):
                for i in range(m):
                    own[b, i] = s[first] * H[b, i]
            new = gammas[t, at : at + count]
            turn_batch(W[first : first + m], own, new, samples[t, below:], stack[: m + count], work[6])
            at += count
            for b in range(min(batch, m)):
                below += min(b, count)
    return rates.size
