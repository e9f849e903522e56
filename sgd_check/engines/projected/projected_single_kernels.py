"""Compiled steps of the projected engine on one sample each; executed after `projected_kernels` and `turning_kernels`.

A step costs O(m² + m r) operations. One neuron and one direction, of which studies take billions of steps, have a loop
of their own, a third as long.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.compilation import entry, kernel

if TYPE_CHECKING:
    from sgd_check.engines.projected.links import sigma, sigma_and_slope
    from sgd_check.engines.projected.projected_kernels import give_up, lengths, residual
    from sgd_check.engines.projected.turning_kernels import turn_back

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@kernel
def take_lone_steps(W: Matrix, rates: Vector, a: float, samples: Matrix, gammas: Matrix, noise: Matrix) -> int:
    """Take the steps of `take_single_steps` for one neuron, with the only direction as the first axis."""
    along, across = W[0, 0], W[1, 0]
    for t in range(rates.size):
        x, y = samples[t, 0], samples[t, 1]
        square = along * along + across * across
        rho = np.sqrt(square)
        z = (along * x + across * y) / rho
        value, slope = sigma_and_slope(z)
        step = rates[t] * (square * value - a * sigma(x) - noise[t, 0])
        if not abs(step) < np.inf:
            give_up(W)
            return t
        g, h = 1.0 - step * (2.0 * value - z * slope), step * rho * slope
        along = g * along - h * x
        turned = g * across - h * y
        across = np.sqrt(turned * turned + 2.0 * h * h * gammas[t, 0]) if gammas.shape[1] > 0 else abs(turned)
    W[0, 0], W[1, 0] = along, across
    return rates.size


@entry("i8(f8[:,::1], f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1])")
def take_single_steps(
    W: Matrix,
    rates: Vector,
    a: Vector,
    directions: Matrix,
    samples: Matrix,
    gammas: Matrix,
    noise: Matrix,
    work: Matrix,
) -> int:
    """Take one step per learning rate, on one sample each; return how many were taken before W was not finite.

    `samples` (steps, r + m) holds N(0, 1), `gammas` (steps, 1) half the squared length in all other axes, or has no
    column where there are none, `noise` (steps, 1) the label noise; `directions` has no row for an orthonormal teacher.
    """
    m = W.shape[1]
    r = W.shape[0] - m
    if m == 1 and r == 1 and directions.shape[0] == 0:
        return take_lone_steps(W, rates, a[0], samples, gammas, noise)
    for t in range(rates.size):
        x = samples[t]
        lengths(W, work)
        step = rates[t] * (residual(W, x, a, directions, work) - noise[t, 0])
        if not abs(step) < np.inf:
            give_up(W)
            return t
        z, rho, value, slope, g, h = work[0], work[1], work[2], work[3], work[4], work[5]
        for i in range(m):
            g[i] = 1.0 - step * (2.0 * value[i] - z[i] * slope[i])
            h[i] = step * rho[i] * slope[i]
        for c in range(r):
            coordinate = x[c]
            for i in range(m):
                W[c, i] = g[i] * W[c, i] - h[i] * coordinate
        turn_back(W, samples, t, np.sqrt(2.0 * gammas[t, 0]) if gammas.shape[1] > 0 else 0.0, work)
    return rates.size
