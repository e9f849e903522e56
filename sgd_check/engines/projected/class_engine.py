r"""Online SGD on inputs of covariance Σ at a cost that does not depend on d: exact in law, class by class.

With x = Σ^½ g the step of ŵ = Σ^½ w is Σ times that of isotropic inputs. In a class, the d_c axes of one eigenvalue, a
step uses the coordinates of g on the teacher's r_c axes and on those of the neurons, m at most, and of the rest its
length alone: one triangular factor and one χ of d_c − r_c − m axes for every class with more than m axes beside the
teacher's, the coordinates themselves for any other. A batch has a Bartlett factor in place of each χ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sgd_check.engines.projected.class_kernels import take_class_batches, take_class_steps
from sgd_check.engines.projected.labels import homogeneous_teacher, label_scratch, write_labels
from sgd_check.engines.projected.links import sampled_link, scratch_size
from sgd_check.engines.projected.projected_kernels import Buffers
from sgd_check.engines.registry import Measurement
from sgd_check.engines.seeded_runs import BLOCK_NUMBERS, SeededRuns

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array
    from sgd_check.engines.registry import EngineOptions


class ClassDraws(NamedTuple):
    """Buffers of a thread: normals, gamma variables and label noise of a block of steps, and what a step writes."""

    samples: Array
    gammas: Array
    noise: Array
    labels: Array
    buffers: Buffers
    own: Array


class ClassEngine(SeededRuns[ClassDraws]):
    """A batch of runs on inputs that are not isotropic; its state has "weights" (seeds, D, neurons)."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        axes, m, r = problem.input_axes(), problem.width, problem.teacher.span
        if axes is None:
            msg = "Argument `problem` must have `inputs`, but has none."
            raise ValueError(msg)
        batch = options.batch_size
        beyond = axes.sizes - np.bincount(axes.kind[:r], minlength=axes.sizes.size)
        large = np.flatnonzero(beyond > m)
        of_factor = np.isin(axes.kind, large)
        of_factor[:r] = False
        rows = np.concatenate([np.flatnonzero(~of_factor), *(axes.columns(int(kind), r) for kind in large)])
        self._span, self._noise, self._rows, self._batch = r, problem.label_noise, problem.teacher.directions, batch
        new_axes = np.minimum(min(batch, m), beyond[large] - m)
        chi = [0.5 * (left - np.arange(new)) for left, new in zip(beyond[large] - m, new_axes, strict=True)]
        self._shapes = np.concatenate([np.empty(0), *chi])
        below = sum(min(b, int(new)) for new in new_axes for b in range(min(batch, m)))
        link, link_name = sampled_link(problem.activation)
        self._teacher = homogeneous_teacher(problem)
        self._constants = (
            link,
            axes.eigenvalues[rows],
            int((~of_factor).sum()) + m * np.arange(large.size, dtype=np.int64),
            new_axes.astype(np.int64),
        )
        self._axes = rows.size
        drawn = batch * rows.size + (below if batch > 1 else 0)
        block = max(BLOCK_NUMBERS // drawn, 16)
        shapes = (block, drawn), (block, self._shapes.size), (block, batch)
        scratch = max(scratch_size(link, m), label_scratch(self._teacher, batch))
        work = (7, m), (scratch,), (batch, m), (m + int(new_axes.max(initial=0)), m)

        def bench() -> ClassDraws:
            samples, gammas, noise = (np.zeros(shape) for shape in shapes)
            steps, space, H, stack = (np.zeros(shape) for shape in work)
            return ClassDraws(samples, gammas, noise, noise.copy(), (steps, space, H, stack), np.zeros((batch, m)))

        start = {"weights": np.ascontiguousarray(problem.reduced_weights().T[rows])}
        turning = 6 * m * m if batch == 1 else 2 * m * m * (m + min(batch, m))
        operations = 8 * batch * m * rows.size + turning * large.size
        super().__init__(options.seeds, start, block, operations, bench)
        self.attributes = self._attributes(link_name)

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        weights = self._state["weights"]
        # Weights about to overflow are told apart by the recorder, which looks for what is not finite.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            squared_norm = np.sum(weights**2, axis=1)
            unit = weights / np.sqrt(squared_norm)[:, None, :]
            overlap = unit[:, : self._span].transpose(0, 2, 1)
            overlap = np.ascontiguousarray(overlap) if self._rows is None else overlap @ self._rows.T
            gram = unit.transpose(0, 2, 1) @ unit if student else None
        return Measurement(overlap, gram, squared_norm)

    def _take(self, seed: int, rates: Array, bench: ClassDraws) -> int:
        samples, gammas, noise = (array[: rates.size] for array in bench[:3])
        coordinates, lengths, errors = self._generators[seed]
        coordinates.standard_normal(out=samples)
        lengths.standard_gamma(self._shapes, out=gammas)
        if self._noise > 0:
            errors.standard_normal(out=noise)
            noise *= self._noise
        labels = bench.labels[: rates.size]
        write_labels(self._teacher, self._axes, samples, noise, labels, bench.buffers[1])
        draws, scaled, weights = (samples, gammas, labels), rates / self._batch, self._state["weights"][seed]
        if self._batch == 1:
            return int(take_class_steps(weights, scaled, self._constants, draws, bench.buffers))
        return int(take_class_batches(weights, scaled, self._constants, draws, bench.buffers, bench.own))
