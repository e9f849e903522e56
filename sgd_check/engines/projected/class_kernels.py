"""Compiled steps of the projected engine on inputs of covariance Σ; executed after `projected_kernels` and its turns.

State: W (D, m), column i the whitened coordinates of neuron i: the teacher's axes, those of classes that have at most m
more, then for every other class the m rows of its triangular factor. The step is Σ times that of isotropic inputs, with
the eigenvalue s of a row in front of g − 1 and h of `projected_kernels`; axes are turned within a class alone.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.compilation import entry, kernel

if TYPE_CHECKING:
    from sgd_check.engines.projected.projected_kernels import give_up, lengths, residual
    from sgd_check.engines.projected.turning_kernels import turn_back

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]


@kernel
def weigh_class(s: float, step: float, work: Matrix) -> None:
    """Write g and h of the rows of eigenvalue s."""
    for i in range(work.shape[1]):
        work[4, i] = 1.0 - s * step * (2.0 * work[2, i] - work[0, i] * work[3, i])
        work[5, i] = s * step * work[1, i] * work[3, i]


@entry(
    "i8(f8[:,::1], f8[::1], f8[::1], f8[:,::1], f8[::1], i8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], "
    "f8[:,::1])"
)
def take_class_steps(
    W: Matrix,
    rates: Vector,
    a: Vector,
    directions: Matrix,
    s: Vector,
    factors: Integers,
    samples: Matrix,
    gammas: Matrix,
    noise: Matrix,
    work: Matrix,
    own: Matrix,
) -> int:
    """Take one step per learning rate, on one sample each; return how many were taken before W was not finite.

    `s` (D,) are eigenvalues of the rows, `factors` the first row of each triangular factor, behind all other rows.
    `samples` (steps, D) holds N(0, 1), `gammas` (steps, factors) half the squared length in all other axes of a class;
    `own` (1, m) is a buffer.
    """
    m = W.shape[1]
    single = factors[0] if factors.size > 0 else W.shape[0]
    for t in range(rates.size):
        lengths(W, work)
        step = rates[t] * (residual(W, samples[t], a, directions, work) - noise[t, 0])
        if not abs(step) < np.inf:
            give_up(W)
            return t
        for c in range(single):
            if c == 0 or s[c] != s[c - 1]:
                weigh_class(s[c], step, work)
            for i in range(m):
                W[c, i] = work[4, i] * W[c, i] - work[5, i] * samples[t, c]
        for q in range(factors.size):
            first = factors[q]
            weigh_class(s[first], step, work)
            for i in range(m):
                own[0, i] = samples[t, first + i]
            turn_back(W[first : first + m], own, 0, np.sqrt(2.0 * gammas[t, q]), work)
    return rates.size
