r"""Online SGD of one spherical neuron on its correlation with one direction: exact in law, a chain in one number.

A step is w ← (w + η u)/|w + η u|, u the mean of y ψ x_⊥ over the batch, x_⊥ the part of the sample orthogonal to w.
With e the direction of θ orthogonal to w, C = w·θ and s = √(1 − C²), a sample enters through z = w·x ~ N(0, 1),
v = e·x ~ N(0, 1) and r² = v² + χ², χ² its squared length in the other d − 2 axes:

.. math:: y = a\, \sigma^*(C z + s v) + \text{noise}, \qquad b = \eta\, y\, \psi(z, r^2), \qquad
   C \leftarrow \frac{C + b s v}{\sqrt{1 + b^2 r^2}},

ψ = σ'(z), or that of the link smoothed by λ (`dynamics.equations.correlation.smoothing`). Of a batch the squared length
of Σ b x_⊥ is needed, of which the other axes give the length of a sum of vectors of random directions: one more normal
g per sample, its component along the sum of those before, and χ² of d − 3 axes beside it,

.. math:: T \leftarrow (\sqrt{T} + b g)^2 + b^2 \chi^2_{d-3}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.equations import gradient_table
from sgd_check.engines.network import check_no_jump
from sgd_check.engines.projected.links import sampled_link_anywhere, scratch_size
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.scalar.scalar_kernels import CHUNK, take_batch_steps, take_single_steps
from sgd_check.engines.seeded_runs import BLOCK_NUMBERS, SeededRuns

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array

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
