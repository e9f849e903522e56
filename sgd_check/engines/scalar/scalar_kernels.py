"""Compiled steps of the overlap of one neuron with one direction.

The equations are those of `sgd_check.engines.scalar.engine`. All draws of a step stand in one row of `samples`, with
half the squared lengths in all other axes in `gammas` (steps, B) and label noise in `noise` (steps, B). `constants` are
the links of teacher and neuron and the table of a smoothed link, without rows where it is not smoothed; `buffers` are
the gradients (steps, B) of a block of steps and scratch of links.
"""

import numpy as np

from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.views import vector
from sgd_check.engines.projected.links import value_at, write_both

Constants = tuple[Vector, Vector, Matrix]
Draws = tuple[Matrix, Matrix, Matrix]
Buffers = tuple[Matrix, Vector]

# Samples whose gradients are found at a time.
CHUNK = 256


@kernel
def write_plain_gradients(link: Vector, samples: Matrix, gradients: Matrix, scratch: Vector) -> None:
    """Write ψ = σ'(z) of all samples."""
    batch = gradients.shape[1]
    columns = samples.shape[1] // batch
    rows = max(CHUNK // batch, 1)
    for first in range(0, gradients.shape[0], rows):
        last = min(first + rows, gradients.shape[0])
        size = (last - first) * batch
        z, value, slope = vector(scratch, 0, size), vector(scratch, size, size), vector(scratch, 2 * size, size)
        for t in range(first, last):
            for b in range(batch):
                z[(t - first) * batch + b] = samples[t, columns * b]
        write_both(link, z, value, slope, vector(scratch, 3 * size, scratch.size - 3 * size))
        for t in range(first, last):
            for b in range(batch):
                gradients[t, b] = slope[(t - first) * batch + b]


@kernel
def write_smoothed_gradients(table: Matrix, samples: Matrix, gammas: Matrix, gradients: Matrix) -> None:
    """Write ψ = Σ_ij table_ij z^i r^(2j), r² the squared length of all of a sample but z."""
    rows, powers = table.shape
    batch = gradients.shape[1]
    columns = samples.shape[1] // batch
    for t in range(gradients.shape[0]):
        for b in range(batch):
            square = 2.0 * gammas[t, b]
            for c in range(1, columns):
                square += samples[t, columns * b + c] ** 2
            total = 0.0
            for i in range(rows - 1, -1, -1):
                row = 0.0
                for j in range(powers - 1, -1, -1):
                    row = row * square + table[i, j]
                total = total * samples[t, columns * b] + row
            gradients[t, b] = total


@kernel
def write_gradients(constants: Constants, draws: Draws, gradients: Matrix, scratch: Vector) -> None:
    """Write ψ of all samples, which no step changes."""
    _, link, table = constants
    if table.shape[0] > 0:
        write_smoothed_gradients(table, draws[0], draws[1], gradients)
    else:
        write_plain_gradients(link, draws[0], gradients, scratch)


@kernel
def moved(C: float, along: float, square: float) -> float:
    """C after a step of length √square, of which `along` is in the direction of growing C; rounding ends at ±1."""
    return float(min(max((C + along) / np.sqrt(1.0 + square), -1.0), 1.0))


@entry
def take_single_steps(
    state: Vector, rates: Vector, a: float, constants: Constants, draws: Draws, buffers: Buffers
) -> int:
    """Take one step per learning rate, on one sample each; return how many were taken before one was not finite.

    `samples` (steps, 2) holds N(0, 1), and there are d − 2 other axes.
    """
    samples, gammas, noise = draws
    gradients, scratch = buffers[0][: rates.size], buffers[1]
    teacher = constants[0]
    write_gradients(constants, draws, gradients, scratch)
    C = state[0]
    for t in range(rates.size):
        z, v = samples[t, 0], samples[t, 1]
        square = v * v + 2.0 * gammas[t, 0]
        s = np.sqrt((1.0 - C) * (1.0 + C))
        step = rates[t] * (a * value_at(teacher, C * z + s * v, scratch) + noise[t, 0]) * gradients[t, 0]
        length = step * step * square
        if not length < np.inf:
            state[0] = np.nan
            return t
        C = moved(C, step * s * v, length)
    state[0] = C
    return rates.size


@entry
def take_batch_steps(
    state: Vector, rates: Vector, a: float, constants: Constants, draws: Draws, buffers: Buffers
) -> int:
    """Take one step per learning rate, on B samples each; return how many were taken before one was not finite.

    `samples` (steps, 3 B) holds z, v and g of each sample, g its component along the sum of those before in the other
    d − 2 axes, and the others are those beside g; `rates` are η/B.
    """
    samples, gammas, noise = draws
    gradients, scratch = buffers[0][: rates.size], buffers[1]
    teacher = constants[0]
    write_gradients(constants, draws, gradients, scratch)
    C, batch = state[0], noise.shape[1]
    for t in range(rates.size):
        s = np.sqrt((1.0 - C) * (1.0 + C))
        along, across = 0.0, 0.0
        for b in range(batch):
            z, v, g = samples[t, 3 * b], samples[t, 3 * b + 1], samples[t, 3 * b + 2]
            step = a * value_at(teacher, C * z + s * v, scratch) + noise[t, b]
            step *= rates[t] * gradients[t, b]
            along += step * v
            beside = np.sqrt(across) + step * g
            across = beside * beside + step * step * 2.0 * gammas[t, b]
        length = along * along + across
        if not length < np.inf:
            state[0] = np.nan
            return t
        C = moved(C, s * along, length)
    state[0] = C
    return rates.size
