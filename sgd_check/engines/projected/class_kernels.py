"""Compiled steps of the projected engine on inputs of covariance Σ.

State: W (D, m), column i the whitened coordinates of neuron i: the teacher's axes, those of classes that have at most m
more, then for every other class the m rows of its triangular factor. The step is Σ times that of isotropic inputs, with
the eigenvalue s of a row in front of g − 1 and h of `projected_kernels`; axes are turned within a class alone. The new
axes of a batch carry a Bartlett factor of its own for every triangular factor, as in `turning_kernels`.
"""

import numpy as np

from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.views import row_part
from sgd_check.engines.projected.projected_kernels import Buffers, Draws, give_up, lengths, output, weigh_batch
from sgd_check.engines.projected.turning_kernels import turn_back, turn_batch

Constants = tuple[Vector, Vector, Integers, Integers]


@kernel
def weigh_class(s: float, step: float, work: Matrix) -> None:
    """Write g and h of the rows of eigenvalue s."""
    for i in range(work.shape[1]):
        work[4, i] = 1.0 - s * step * (2.0 * work[2, i] - work[0, i] * work[3, i])
        work[5, i] = s * step * work[1, i] * work[3, i]


@entry
def take_class_steps(W: Matrix, rates: Vector, constants: Constants, draws: Draws, buffers: Buffers) -> int:
    """Take one step per learning rate, on one sample each; return how many were taken before W was not finite.

    `constants` are the link, eigenvalues (D,) of the rows, the first row of each triangular factor, behind
    all other rows, and the numbers of new axes of the factors, here 1. Samples (steps, D) are of N(0, 1), gammas
    (steps, factors) half the squared lengths in all other axes of a class.
    """
    link, s, factors, _ = constants
    samples, gammas, labels = draws
    work, scratch, _, _ = buffers
    axes, m = W.shape
    single = factors[0] if factors.size > 0 else axes
    for t in range(rates.size):
        lengths(W, work)
        step = rates[t] * (output(W, samples, t, 0, link, work, scratch) - labels[t, 0])
        if not abs(step) < np.inf:
            give_up(W)
            return t
        for c in range(single):
            if c == 0 or s[c] != s[c - 1]:
                weigh_class(s[c], step, work)
            for i in range(m):
                W[c, i] = work[4, i] * W[c, i] - work[5, i] * samples[t, c]
        for q in range(factors.size):
            weigh_class(s[factors[q]], step, work)
            turn_back(W, factors[q], samples, t, np.sqrt(2.0 * gammas[t, q]), work)
    return rates.size


@kernel
def move_rows(W: Matrix, s: Vector, samples: Matrix, t: int, H: Matrix, work: Matrix) -> None:
    """Take Σ times the step of isotropic inputs, on all axes but the new ones; g stands in row 4 of `work`."""
    axes, m = W.shape
    for c in range(axes):
        for i in range(m):
            W[c, i] *= 1.0 - s[c] * (1.0 - work[4, i])
        for b in range(H.shape[0]):
            coordinate = s[c] * samples[t, b * axes + c]
            for i in range(m):
                W[c, i] -= coordinate * H[b, i]


@entry
def take_class_batches(
    W: Matrix, rates: Vector, constants: Constants, draws: Draws, buffers: Buffers, own: Matrix
) -> int:
    """Take one step per learning rate, on B samples each; return how many were taken before W was not finite.

    `rates` are η/B. A row of samples holds B samples of D numbers, then for every factor the entries of its Bartlett
    factor below the diagonal; gammas are half the squares of those on it. `own` (B, m) is a buffer.
    """
    link, s, factors, new_axes = constants
    samples, gammas, labels = draws
    work, scratch, H, stack = buffers
    axes, m = W.shape
    batch = labels.shape[1]
    products = row_part(work, 6, 0, m)
    for t in range(rates.size):
        if not weigh_batch(W, rates[t], samples, labels, t, link, H, work, scratch):
            give_up(W)
            return t
        move_rows(W, s, samples, t, H, work)
        at, below = 0, batch * axes
        for q in range(factors.size):
            first, count = factors[q], new_axes[q]
            for b in range(batch):
                for i in range(m):
                    own[b, i] = s[first] * H[b, i]
            drawn = row_part(samples, t, below, samples.shape[1] - below)
            turn_batch(W, first, own, row_part(gammas, t, at, count), drawn, stack, products)
            at += count
            for b in range(min(batch, m)):
                below += min(b, count)
    return rates.size
