r"""Online SGD that never sees d: exact in law, in the projections of the samples alone.

On Gaussian data a step uses the projections of x on the teacher's axes and on the weights, and of the rest of x only
its length. So a neuron is w_i = (M_i, L_i): r coordinates on the teacher's axes and the row of an m×m lower-triangular
factor of the orthogonal complement. A step draws v ~ N(0, I_r), y ~ N(0, I_m) and χ ~ chi(d − r − m), takes the sample
(v, y, χ) in an orthonormal basis with one new axis, and turns the basis so that the new axis is empty again:
O(m² + m r) operations, and the law of SGD in R^d for every d ≥ m + r. A minibatch has the Bartlett factor of a Wishart
matrix on its new axes (see `sgd_check.engines.projected.turning_kernels`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgd_check.engines.projected.class_engine import ClassEngine
from sgd_check.engines.projected.labels import write_labels
from sgd_check.engines.projected.motion import make_motion
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.seeded_runs import BLOCK_NUMBERS, SeededRuns

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array
    from sgd_check.engines.registry import Engine


def make_engine(problem: Problem, options: EngineOptions) -> Engine:
    """Return the engine that simulates projections alone."""
    return ProjectedEngine(problem, options) if problem.inputs is None else ClassEngine(problem, options)


class ProjectedEngine(SeededRuns["Bench"]):
    """A batch of SGD runs in the law of R^d at a cost that does not depend on d; see the module's docstring.

    Its state has "weights" (seeds, r + m, neurons), and of a network "layers" (seeds, 2, neurons), v and b, too.
    """

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        self._span, self._batch = problem.teacher.span, options.batch_size
        beyond = problem.dimension - self._span - problem.width
        if beyond < 0:
            msg = (
                f"Argument `engine` must be 'torch' for a dimension below width + teacher axes = "
                f"{self._span + problem.width}, but is 'projected' with dimension {problem.dimension}."
            )
            raise ValueError(msg)
        self._noise = problem.label_noise
        self._motion = make_motion(problem, self._batch)
        self._sizes = SampleSizes(problem.width, self._span, beyond, self._batch)
        super().__init__(
            options.seeds,
            self._motion.start,
            self._sizes.block,
            self._sizes.operations,
            lambda: Bench(self._sizes, self._motion.scratch),
        )
        self._weights, self._directions = self._state["weights"], self._motion.directions
        self.attributes = self._attributes(self._motion.link_name)

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        directions = self._directions
        # Weights about to overflow are told apart by the recorder, which looks for what is not finite.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            squared_norm = np.sum(self._weights**2, axis=1)
            unit = self._weights / np.sqrt(squared_norm)[:, None, :]
            overlap = unit[:, : self._span].transpose(0, 2, 1)
            overlap = overlap @ directions.T if directions.size else np.ascontiguousarray(overlap)
            gram = unit.transpose(0, 2, 1) @ unit if student else None
        return Measurement(overlap, gram, squared_norm)

    def layers(self) -> Array:
        """Return v and b of a network."""
        return self._state["layers"].copy()

    def _take(self, seed: int, rates: Array, bench: Bench) -> int:
        count = rates.size
        samples, gammas, noise = bench.samples[:count], bench.gammas[:count], bench.noise[:count]
        axes, lengths, errors = self._generators[seed]
        axes.standard_normal(out=samples)
        if self._sizes.new_axes:
            lengths.standard_gamma(self._sizes.shapes, out=gammas)
        if self._noise > 0:
            errors.standard_normal(out=noise)
            noise *= self._noise
        motion, labels = self._motion, noise
        if motion.teacher is not None:
            labels = bench.labels[:count]
            write_labels(motion.teacher, self._sizes.axes, samples, noise, labels, bench.buffers[1])
        draws = (samples, gammas, labels)
        return int(motion.take(*self._moved(seed), rates / self._batch, motion.constants, draws, bench.buffers))


class SampleSizes:
    """How many numbers a step draws, and in what blocks, with s = d − r − m axes beyond those of the weights."""

    def __init__(self, width: int, span: int, beyond: int, batch: int) -> None:
        self.width, self.axes, self.batch = width, span + width, batch
        rows = min(batch, width)
        self.new_axes = min(rows, beyond)
        below = sum(min(b, self.new_axes) for b in range(rows))
        self.samples = batch * (span + width) + (below if batch > 1 else 0)
        # chi(s − b) is the root of twice a gamma variable of shape (s − b)/2. A lone number is drawn in half the time.
        shapes = 0.5 * (beyond - np.arange(self.new_axes, dtype=np.float64))
        self.shapes = float(shapes[0]) if shapes.size == 1 else shapes
        self.block = max(BLOCK_NUMBERS // self.samples, 16)
        turning = 6 * width * width if batch == 1 else 2 * width * width * (width + rows)
        self.operations = 4 * batch * width * (span + width) + turning


class Bench:
    """Buffers of one thread: the samples of a block, and what a step writes in between."""

    def __init__(self, sizes: SampleSizes, scratch: int) -> None:
        m = sizes.width
        self.samples = np.empty((sizes.block, sizes.samples))
        self.gammas = np.empty((sizes.block, sizes.new_axes))
        self.noise = np.zeros((sizes.block, sizes.batch))
        self.labels = np.empty((sizes.block, sizes.batch))
        self.buffers = (
            np.empty((7, m)),
            np.empty(scratch),
            np.empty((sizes.batch, m)),
            np.empty((m + sizes.new_axes, m)),
        )
