"""Compiled steps of the overlap of one neuron with one direction; executed after the link and `gradient`.

The equations are those of `sgd_check.engines.scalar.engine`. All draws of a step stand in one row.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.compilation import entry, kernel

if TYPE_CHECKING:
    from sgd_check.engines.projected.links import sigma as sigma_teacher
    from sgd_check.engines.scalar.smoothed_gradient_kernels import gradient

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@kernel
def moved(C: float, along: float, square: float) -> float:
    """C after a step of length √square, of which `along` is in the direction of growing C; rounding ends at ±1."""
    return float(min(max((C + along) / np.sqrt(1.0 + square), -1.0), 1.0))


@entry("i8(f8[::1], f8[::1], f8, f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1])")
def take_single_steps(
    state: Vector, rates: Vector, a: float, table: Matrix, samples: Matrix, gammas: Matrix, noise: Matrix
) -> int:
    """Take one step per learning rate, on one sample each; return how many were taken before one was not finite.

    `samples` (steps, 2) holds N(0, 1), `gammas` (steps, 1) half the squared length in the other d − 2 axes, `noise`
    (steps, 1) the label noise.
    """
    C = state[0]
    for t in range(rates.size):
        z, v = samples[t, 0], samples[t, 1]
        square = v * v + 2.0 * gammas[t, 0]
        s = np.sqrt((1.0 - C) * (1.0 + C))
        step = rates[t] * (a * sigma_teacher(C * z + s * v) + noise[t, 0]) * gradient(z, square, table)
        length = step * step * square
        if not length < np.inf:
            state[0] = np.nan
            return t
        C = moved(C, step * s * v, length)
    state[0] = C
    return rates.size


@entry("i8(f8[::1], f8[::1], f8, f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1])")
def take_batch_steps(
    state: Vector, rates: Vector, a: float, table: Matrix, samples: Matrix, gammas: Matrix, noise: Matrix
) -> int:
    """Take one step per learning rate, on B samples each; return how many were taken before one was not finite.

    `samples` (steps, 3 B) holds z, v and g of each sample, g its component along the sum of those before in the other
    d − 2 axes, `gammas` (steps, B) half the squared length beside g, `noise` (steps, B) the label noise; `rates` are
    η/B.
    """
    C, batch = state[0], noise.shape[1]
    for t in range(rates.size):
        s = np.sqrt((1.0 - C) * (1.0 + C))
        along, across = 0.0, 0.0
        for b in range(batch):
            z, v, g = samples[t, 3 * b], samples[t, 3 * b + 1], samples[t, 3 * b + 2]
            rest = 2.0 * gammas[t, b]
            step = a * sigma_teacher(C * z + s * v) + noise[t, b]
            step *= rates[t] * gradient(z, v * v + g * g + rest, table)
            along += step * v
            beside = np.sqrt(across) + step * g
            across = beside * beside + step * step * rest
        length = along * along + across
        if not length < np.inf:
            state[0] = np.nan
            return t
        C = moved(C, s * along, length)
    state[0] = C
    return rates.size
