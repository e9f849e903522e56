r"""Online SGD of one spherical neuron on its correlation with one direction: exact in law, a chain in one number.

A step is w ← (w + η u)/|w + η u|, u the mean of y ψ x_⊥ over the batch, x_⊥ the part of the sample orthogonal to w.
With e the direction of θ orthogonal to w, C = w·θ and s = √(1 − C²), a sample enters through z = w·x ~ N(0, 1),
v = e·x ~ N(0, 1) and r² = v² + χ², χ² its squared length in the other d − 2 axes:

.. math:: y = a\, \sigma^*(C z + s v) + \text{noise}, \qquad b = \eta\, y\, \psi(z, r^2), \qquad
   C \leftarrow \frac{C + b s v}{\sqrt{1 + b^2 r^2}},

ψ = σ'(z), or that of the link smoothed by λ (`dynamics.equations.correlation`). Of a batch the squared length
of Σ b x_⊥ is needed, of which the other axes give the length of a sum of vectors of random directions: one more normal
g per sample, its component along the sum of those before, and χ² of d − 3 axes beside it,

.. math:: T \leftarrow (\sqrt{T} + b g)^2 + b^2 \chi^2_{d-3}.

In compiled steps all draws of a step stand in one row of `samples`, with
half the squared lengths in all other axes in `gammas` (steps, B) and label noise in `noise` (steps, B). `constants` are
the links of teacher and neuron and the table of a smoothed link, without rows where it is not smoothed; `buffers` are
the gradients (steps, B) of a block of steps and scratch of links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.equations import gradient_table
from dynamics.kernels.jit import entry, kernel, vector
from hermite.arrays import Matrix, Vector
from sgd_check.engines.problem_forms import check_no_jump
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.sampled_links import sampled_link_anywhere, scratch_size, value_at, write_both
from sgd_check.engines.seeded_runs import BLOCK_NUMBERS, SeededRuns

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array

Constants = tuple[Vector, Vector, Matrix]
Samples = tuple[Matrix, Matrix, Matrix]
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
def write_gradients(constants: Constants, draws: Samples, gradients: Matrix, scratch: Vector) -> None:
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
    state: Vector, rates: Vector, a: float, constants: Constants, draws: Samples, buffers: Buffers
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
    state: Vector, rates: Vector, a: float, constants: Constants, draws: Samples, buffers: Buffers
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


# Floating-point operations of a step of one sample, about.
OPERATIONS = 64


class Draws(NamedTuple):
    """Buffers of a thread: normals, gamma variables and label noise of a block of steps, gradients, and scratch."""

    samples: Array
    gammas: Array
    noise: Array
    gradients: Array
    scratch: Array


class ScalarEngine(SeededRuns[Draws]):
    """A batch of chains, one per seed, in the law of SGD in R^d at a cost that does not depend on d.

    Its state has "overlap" (seeds, 1).
    """

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        batch = options.batch_size
        numbers = 2 if batch == 1 else 3
        if problem.dimension < numbers:
            msg = (
                f"Argument `dimension` must be at least {numbers} for engine 'scalar'"
                f"{' with batches' if batch > 1 else ''}, but is {problem.dimension}."
            )
            raise ValueError(msg)
        self._constants, link_name = _links(problem)
        self._steps = take_single_steps if batch == 1 else take_batch_steps
        self._a, self._noise, self._batch = float(problem.teacher.coefficients[0]), problem.label_noise, batch
        # χ² is twice a gamma variable of half as many degrees of freedom.
        self._shape = 0.5 * (problem.dimension - numbers)
        block = max(BLOCK_NUMBERS // (numbers * batch), 16)
        size = max(CHUNK // batch, 1) * batch
        scratch = 3 * size + max(scratch_size(link, size) for link in self._constants[:2])
        shapes = (block, numbers * batch), (block, batch), (block, batch), (block, batch), (scratch,)
        super().__init__(
            options.seeds,
            {"overlap": problem.start().teacher_overlap[0]},
            block,
            OPERATIONS * batch,
            lambda: Draws(*(np.zeros(shape) for shape in shapes)),
        )
        self.attributes = self._attributes(link_name)

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64; the neuron's own are 1."""
        overlap = self._state["overlap"][:, :, None].copy()
        ones = np.where(np.isnan(overlap), np.nan, 1.0)
        return Measurement(overlap, ones if student else None, ones[:, :, 0].copy())

    def _take(self, seed: int, rates: Array, bench: Draws) -> int:
        samples, gammas, noise = (array[: rates.size] for array in bench[:3])
        axes, lengths, labels = self._generators[seed]
        axes.standard_normal(out=samples)
        lengths.standard_gamma(self._shape, out=gammas)
        if self._noise > 0:
            labels.standard_normal(out=noise)
            noise *= self._noise
        draws, buffers = (samples, gammas, noise), (bench.gradients, bench.scratch)
        state, scaled = self._state["overlap"][seed], rates / self._batch
        return int(self._steps(state, scaled, self._a, self._constants, draws, buffers))


def _links(problem: Problem) -> tuple[tuple[Array, Array, Array], str]:
    """Return links of teacher and neuron, the table of a smoothed link, and one phrase saying what is simulated."""
    teacher, _ = sampled_link_anywhere(problem.teacher_link, slope=False)
    if problem.smoothing > 0.0:
        series = "" if problem.activation.is_polynomial else f" (Hermite series to order {problem.activation.order})"
        name = f"{problem.activation.name}{series}, smoothed by {problem.smoothing:g}"
        return (teacher, np.zeros(teacher.size), np.ascontiguousarray(gradient_table(problem))), name
    check_no_jump(problem)
    own, name = sampled_link_anywhere(problem.activation)
    return (teacher, own, np.empty((0, 0))), name
