r"""Online SGD that never sees d: exact in law, in the projections of the samples alone.

On Gaussian data a step uses the projections of x on the teacher's axes and on the weights, and of the rest of x only
its length. So a neuron is w_i = (M_i, L_i): r coordinates on the teacher's axes and the row of an m×m lower-triangular
factor of the orthogonal complement. A step draws v ~ N(0, I_r), y ~ N(0, I_m) and χ ~ chi(d − r − m), takes the sample
(v, y, χ) in an orthonormal basis with one new axis, and turns the basis so that the new axis is empty again:
O(m² + m r) operations, and the law of SGD in R^d for every d ≥ m + r. A minibatch has the Bartlett factor of a Wishart
matrix on its new axes (see `sgd_check.engines.projected.step_kernels`).

*Inputs of covariance Σ.* With x = Σ^½ g the step of ŵ = Σ^½ w is Σ times that of isotropic inputs. In a class, the d_c
axes of one eigenvalue, a step uses the coordinates of g on the teacher's r_c axes and on those of the neurons, m at
most, and of the rest its length alone: one triangular factor and one χ of d_c − r_c − m axes for every class with more
than m axes beside the teacher's, the coordinates themselves for any other. A batch has a Bartlett factor in place of
each χ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgd_check.engines.problem_forms import network_of
from sgd_check.engines.projected.labels import (
    Teacher,
    homogeneous_teacher,
    label_scratch,
    network_teacher,
    write_labels,
)
from sgd_check.engines.projected.links import sampled_link, sampled_link_anywhere, scratch_size
from sgd_check.engines.projected.step_kernels import (
    Buffers,
    take_batch_steps,
    take_class_batches,
    take_class_steps,
    take_frame_steps,
    take_lone_steps,
    take_network_steps,
    take_single_steps,
)
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.seeded_runs import BLOCK_NUMBERS, SeededRuns

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem
    from hermite.arrays import Array
    from sgd_check.engines.registry import Engine


class Motion(NamedTuple):
    """The steps of one kind of student.

    `take` moves the arrays of `start`, in their order, of one run; after them and the rates it is given `constants`,
    the draws and the buffers, of which links take `scratch` numbers. `teacher` makes the labels, or is absent where the
    steps do. Overlaps are those with `directions`, or with the axes if there are none.
    """

    start: dict[str, Array]
    take: Callable[..., int]
    constants: tuple[Any, ...]
    teacher: Teacher | None
    scratch: int
    directions: Array
    link_name: str


def make_motion(problem: Problem, batch: int) -> Motion:
    """Return the steps of a problem's student."""
    makers = {"network": network_motion, "stiefel": frame_motion}
    return makers.get(problem.kind, homogeneous_motion)(problem, batch)


def homogeneous_motion(problem: Problem, batch: int) -> Motion:
    """Return the steps of f = Σ_i |w_i|² σ(w_i·x/|w_i|)."""
    link, link_name = sampled_link(problem.activation)
    teacher = homogeneous_teacher(problem)
    start = {"weights": reduced_factor(problem.reduced_weights(), problem.teacher.span)}
    take = take_single_steps if batch == 1 else take_batch_steps
    if batch == 1 and start["weights"].shape == (2, 1) and problem.teacher.directions is None:
        take = take_lone_steps
    scratch = max(scratch_size(link, problem.width), label_scratch(teacher, batch))
    return Motion(start, take, (link,), teacher, scratch, teacher[2], link_name)


def network_motion(problem: Problem, batch: int) -> Motion:
    """Return the steps of f = s Σ_i v_i σ(w_i·x + b_i), for any batch."""
    network, teacher = network_of(problem), network_teacher(problem)
    link, link_name = sampled_link_anywhere(problem.activation)
    start = {
        "weights": reduced_factor(network.weights, problem.teacher.span),
        "layers": np.array([network.second_layer, network.bias]),
    }
    motion = np.array([network.scale, *network.rates, *network.decay])
    radii = np.empty(0) if network.lengths is None else network.lengths
    scratch = max(scratch_size(link, problem.width), label_scratch(teacher, batch))
    none = np.empty((0, problem.teacher.span))
    return Motion(start, take_network_steps, (link, motion, radii), teacher, scratch, none, link_name)


def frame_motion(problem: Problem, batch: int) -> Motion:  # noqa: ARG001
    """Return the steps of a frame of orthogonal neurons, on one sample each."""
    span = problem.teacher.span
    start = {"weights": reduced_factor(problem.reduced_weights(), span)}
    constants = (np.array(problem.teacher.coefficients), np.sqrt(problem.start().squared_norm[:1]))
    return Motion(start, take_frame_steps, constants, None, 0, np.empty((0, span)), problem.activation.name)


def reduced_factor(weights: Array, span: int) -> Array:
    """Return weights (m, D) as columns (r + m, m), turned in the complement of the teacher's axes to triangular form.

    Examples
    --------
    >>> reduced_factor(np.array([[1.0, 3.0, 4.0]]), 1).round(12)
    array([[1.],
           [5.]])
    """
    m = weights.shape[0]
    found = np.zeros((span + m, m))
    found[:span] = weights[:, :span].T
    factor = np.linalg.qr(weights[:, span:].T).R
    # The sign of an axis is free; a positive diagonal makes the factor one and the same for every start.
    factor *= np.where(np.diagonal(factor) < 0.0, -1.0, 1.0)[:, None]
    found[span : span + factor.shape[0]] = factor
    return found


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
