"""Compiled steps of the projected engine on one sample each.

A step costs O(m² + m r) operations. One neuron and one direction, of which studies take billions of steps, have a loop
of their own, a third as long.
"""

import numpy as np

from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import entry
from dynamics.kernels.views import row_part
from sgd_check.engines.projected.links import both_at
from sgd_check.engines.projected.projected_kernels import Buffers, Draws, give_up, lengths, output
from sgd_check.engines.projected.turning_kernels import turn_back


@entry
def take_lone_steps(W: Matrix, rates: Vector, constants: tuple[Vector], draws: Draws, buffers: Buffers) -> int:
    """Take the steps of `take_single_steps` for one neuron and one axis of the teacher."""
    (link,) = constants
    samples, gammas, labels = draws
    scratch = buffers[1]
    along, across = W[0, 0], W[1, 0]
    for t in range(rates.size):
        x, y = samples[t, 0], samples[t, 1]
        square = along * along + across * across
        rho = np.sqrt(square)
        z = (along * x + across * y) / rho
        value, slope = both_at(link, z, scratch)
        step = rates[t] * (square * value - labels[t, 0])
        if not abs(step) < np.inf:
            give_up(W)
            return t
        g, h = 1.0 - step * (2.0 * value - z * slope), step * rho * slope
        along = g * along - h * x
        turned = g * across - h * y
        across = np.sqrt(turned * turned + 2.0 * h * h * gammas[t, 0]) if gammas.shape[1] > 0 else abs(turned)
    W[0, 0], W[1, 0] = along, across
    return rates.size


@entry
def take_single_steps(W: Matrix, rates: Vector, constants: tuple[Vector], draws: Draws, buffers: Buffers) -> int:
    """Take one step per learning rate, on one sample each; return how many were taken before W was not finite.

    `constants` hold the link. `draws` are samples (steps, r + m) of N(0, 1), gammas (steps, 1), half the squared length
    in all other axes, or without a column where there are none, and labels (steps, 1).
    """
    (link,) = constants
    samples, gammas, labels = draws
    work, scratch, _, _ = buffers
    m = W.shape[1]
    r = W.shape[0] - m
    z, rho, value = row_part(work, 0, 0, m), row_part(work, 1, 0, m), row_part(work, 2, 0, m)
    slope, g, h = row_part(work, 3, 0, m), row_part(work, 4, 0, m), row_part(work, 5, 0, m)
    for t in range(rates.size):
        lengths(W, work)
        step = rates[t] * (output(W, samples, t, 0, link, work, scratch) - labels[t, 0])
        if not abs(step) < np.inf:
            give_up(W)
            return t
        for i in range(m):
            g[i] = 1.0 - step * (2.0 * value[i] - z[i] * slope[i])
            h[i] = step * rho[i] * slope[i]
        for c in range(r):
            coordinate = samples[t, c]
            for i in range(m):
                W[c, i] = g[i] * W[c, i] - h[i] * coordinate
        turn_back(W, r, samples, t, np.sqrt(2.0 * gammas[t, 0]) if gammas.shape[1] > 0 else 0.0, work)
    return rates.size
