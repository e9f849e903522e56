"""Online SGD of one spherical neuron on its correlation with one direction: exact in law, a chain in one number.

`docs/engines.md` has the equations. `gammas` (steps, B) are half the squared lengths in all other axes, `constants` the
links of teacher and neuron and the table of a smoothed link, without rows where it is not smoothed. Of zeroth order the
numbers of directions follow those of the samples in a row of `samples`, three each; the last of `gammas` is χ²/2.
"""

from __future__ import annotations

import numpy as np

from dynamics.equations import gradient_table
from dynamics.kernels.jit import entry, kernel, vector
from dynamics.problem import Problem, ZerothOrder
from dynamics.problem.checks import check_memory, require
from hermite.arrays import Array, Matrix, Vector
from sgd_check.engines.problem_forms import check_no_jump
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.sampled_links import sampled_link, scratch_size, value_at, write_link
from sgd_check.engines.seeded_runs import StepDraws, SteppedRuns

Constants = tuple[Vector, Vector, Matrix]
Samples = tuple[Matrix, Matrix, Matrix]

# Samples whose gradients are found at a time.
CHUNK = 256


@kernel
def write_gradients(constants: Constants, draws: Samples, columns: int, gradients: Matrix) -> None:
    """Write the factor ψ of each sample in the gradient to `gradients` (steps, B), which depends on no step before.

    ψ is the slope σ'(z) of the link at z, the sample's component along the neuron; of a smoothed link it is
    Σ_ij table_ij z^i r^(2j), r the length of the sample's other components. A sample has `columns` numbers in a row.
    """
    _, link, table = constants
    samples, gammas, _ = draws
    batch = gradients.shape[1]
    if table.shape[0] > 0:
        for t in range(gradients.shape[0]):
            for b in range(batch):
                square = 2.0 * gammas[t, b]
                for c in range(1, columns):
                    square += samples[t, columns * b + c] ** 2
                total = 0.0
                for i in range(table.shape[0] - 1, -1, -1):
                    row = 0.0
                    for j in range(table.shape[1] - 1, -1, -1):
                        row = row * square + table[i, j]
                    total = total * samples[t, columns * b] + row
                gradients[t, b] = total
        return
    z, value, scratch = np.empty(CHUNK), np.empty(CHUNK), np.empty(scratch_size(link, CHUNK))
    slopes = gradients.reshape(-1)
    for first in range(0, slopes.size, CHUNK):
        size = min(CHUNK, slopes.size - first)
        for n in range(size):
            sample = first + n
            z[n] = samples[sample // batch, columns * (sample % batch)]
        write_link(link, vector(z, 0, size), value, vector(slopes, first, size), scratch)


@entry
def take_steps(state: Vector, rates: Vector, a: float, constants: Constants, draws: Samples) -> int:
    """Take one step of the overlap C per learning rate; return how many were taken before one was not finite.

    `state` (1,) holds C, the overlap of one neuron of length 1 with one direction of coefficient `a`, and is
    overwritten; `rates` (steps,) are η/B for B samples per step. Each sample has its component z along the neuron and v
    along the rest of the direction in `samples` (steps, 2 B), and the squared length in d − 2 other axes in `gammas`.
    For B > 1 it has g too, (steps, 3 B), its component along the sum of those before in the other d − 2 axes, and the
    gammas are of the axes beside g. Further numbers are those of random directions.
    """
    samples, gammas, noise = draws
    gradients, scratch = np.empty(noise.shape), np.empty(scratch_size(constants[0], 1))
    C, batch = state[0], noise.shape[1]
    columns = 2 if batch == 1 else 3
    directions = (samples.shape[1] - columns * batch) // 3
    write_gradients(constants, draws, columns, gradients)
    for t in range(rates.size):
        s = np.sqrt((1.0 - C) * (1.0 + C))
        along_neuron, along, across = 0.0, 0.0, 0.0
        for b in range(batch):
            z, v = samples[t, columns * b], samples[t, columns * b + 1]
            step = a * value_at(constants[0], C * z + s * v, scratch) + noise[t, b]
            step *= rates[t] * gradients[t, b]
            along_neuron += step * z
            along += step * v
            if columns > 2:
                along_sum = np.sqrt(across) + step * samples[t, columns * b + 2]
                across = along_sum * along_sum
            across += step * step * 2.0 * gammas[t, b]
        change, length = along, along * along + across
        if directions > 0:
            across = np.sqrt(across)
            change, length, square = 0.0, 0.0, 0.0
            for k in range(directions):
                first = columns * batch + 3 * k
                z1, z2, z3 = samples[t, first], samples[t, first + 1], samples[t, first + 2]
                q = (along_neuron * z1 + along * z2 + across * z3) / directions
                change += q * z2
                length += q * z3
                square += q * q
            length = change * change + length * length + square * 2.0 * gammas[t, batch]
        if not length < np.inf:
            return t
        # Rounding ends at ±1.
        C = min(max((C + s * change) / np.sqrt(1.0 + length), -1.0), 1.0)
    state[0] = C
    return rates.size


# Floating-point operations of a step of one sample, and of one direction, about.
OPERATIONS = 64


class ScalarEngine(SteppedRuns):
    """A batch of chains, one per seed, with the state "overlap" (seeds, 1)."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        """Check that the problem suits this engine, and put the overlap of every run at its start.

        ValueError is raised for zeroth-order steps with smoothing, of the optimizer or the problem, and for dimensions
        below 2, or below 3 with batches or zeroth-order steps. A sample has 2 normal numbers, or 3 in a batch, and a
        gamma number for the length of the rest; a direction has 3 normal numbers, and all directions of a step one
        gamma number.
        """
        batch, d, optimizer = options.batch_size, problem.dimension, options.optimizer
        numbers, count = 2 if batch == 1 else 3, 0
        if isinstance(optimizer, ZerothOrder):
            count = optimizer.directions
            require(
                optimizer.smoothing == 0.0,
                f"Argument `optimizer` must have `smoothing` 0 for engine 'scalar', but is {optimizer}.",
            )
            require(
                problem.smoothing == 0.0,
                "Argument `smoothing` must be 0 for steps of zeroth order on the correlation, but is "
                f"{problem.smoothing:g}.",
            )
            require(d >= 3, f"Argument `dimension` must be at least 3 for {optimizer} in engine 'scalar', but is {d}.")
        elif batch > 1:
            require(d >= 3, f"Argument `dimension` must be at least 3 for engine 'scalar' with batches, but is {d}.")
        else:
            require(d >= 2, f"Argument `dimension` must be at least 2 for engine 'scalar', but is {d}.")
        self._constants, link_name = _links(problem)
        self._a = float(problem.teacher.coefficients[0])
        # χ² is twice a gamma variable of half as many degrees of freedom; a lone shape is drawn faster.
        shapes: float | Array = 0.5 * (d - numbers)
        if count:
            # SteppedRuns draws at least 16 steps at a time.
            check_memory("directions", count, 16 * 3.0 * count)
            shapes = 0.5 * np.array([d - numbers] * batch + [d - 3], dtype=np.float64)
        gammas, operations = batch + (count > 0), OPERATIONS * (batch + count)
        drawn = StepDraws(batch, numbers * batch + 3 * count, shapes, gammas=gammas, operations=operations)
        start = {"overlap": problem.start().teacher_overlap[0]}
        super().__init__(options.seeds, start, drawn, problem.label_noise, link_name)

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64; the neuron's own are 1."""
        overlap = self._state["overlap"][:, :, None].copy()
        ones = np.where(np.isnan(overlap), np.nan, 1.0)
        return Measurement(overlap, ones if student else None, ones[:, :, 0].copy())

    def _take(self, state: list[Array], rates: Array, draws: Samples) -> int:
        """Take steps at rates η/B with the overlap of one run; return how many were taken."""
        return int(take_steps(state[0], rates, self._a, self._constants, draws))


def _links(problem: Problem) -> tuple[Constants, str]:
    """Return constants of kernels, and a phrase that names the simulated link.

    The constants are the data of the teacher's link, of the neuron's link, and the table of a smoothed link, empty if
    it is not smoothed.
    """
    teacher, _ = sampled_link(problem.teacher_link, anywhere=True, slope=False)
    if problem.smoothing > 0.0:
        series = "" if problem.activation.is_polynomial else f" (Hermite series to order {problem.activation.order})"
        name = f"{problem.activation.name}{series}, smoothed by {problem.smoothing:g}"
        return (teacher, np.zeros(teacher.size), np.ascontiguousarray(gradient_table(problem))), name
    check_no_jump(problem)
    student, name = sampled_link(problem.activation, anywhere=True)
    return (teacher, student, np.empty((0, 0))), name
