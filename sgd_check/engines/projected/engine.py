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

from dynamics.problem import is_frame, is_network
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
    take_frame_steps,
    take_lone_steps,
    take_network_steps,
    take_steps,
)
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.seeded_runs import BLOCK_NUMBERS, SeededRuns

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers


class Motion(NamedTuple):
    """The steps of one kind of student.

    `take` moves the arrays of `start`, in their order, of one run; after them and the rates it is given `constants`,
    the axes, the draws and the buffers, of which links take `scratch` numbers. `teacher` makes the labels, or is absent
    where the steps do. Overlaps are those with `directions`, or with the axes if there are none.
    """

    start: dict[str, Array]
    take: Callable[..., int]
    constants: Any
    teacher: Teacher | None
    scratch: int
    directions: Array
    link_name: str


def make_motion(problem: Problem, drawn: DrawnAxes) -> Motion:
    """Return the steps of a problem's student."""
    make = network_motion if is_network(problem) else frame_motion if is_frame(problem) else homogeneous_motion
    return make(problem, drawn)


def homogeneous_motion(problem: Problem, drawn: DrawnAxes) -> Motion:
    """Return the steps of f = Σ_i |w_i|² σ(w_i·x/|w_i|)."""
    link, link_name = sampled_link(problem.activation)
    teacher = homogeneous_teacher(problem)
    weights = drawn.start(problem.reduced_weights())
    is_lone = drawn.batch == 1 and weights.shape == (2, 1) and problem.inputs is None and teacher[2].size == 0
    scratch = max(scratch_size(link, problem.width), label_scratch(teacher, drawn.batch))
    take = take_lone_steps if is_lone else take_steps
    return Motion({"weights": weights}, take, link, teacher, scratch, teacher[2], link_name)


def network_motion(problem: Problem, drawn: DrawnAxes) -> Motion:
    """Return the steps of f = s Σ_i v_i σ(w_i·x + b_i), for any batch."""
    network, teacher = network_of(problem), network_teacher(problem)
    link, link_name = sampled_link_anywhere(problem.activation)
    start = {"weights": drawn.start(network.weights), "layers": np.array([network.second_layer, network.bias])}
    motion = np.array([network.scale, *network.rates, *network.decay])
    radii = np.empty(0) if network.lengths is None else network.lengths
    scratch = max(scratch_size(link, problem.width), label_scratch(teacher, drawn.batch))
    none = np.empty((0, problem.teacher.span))
    return Motion(start, take_network_steps, (link, motion, radii), teacher, scratch, none, link_name)


def frame_motion(problem: Problem, drawn: DrawnAxes) -> Motion:
    """Return the steps of a frame of orthogonal neurons, on one sample each."""
    start = {"weights": drawn.start(problem.reduced_weights())}
    constants = (np.array(problem.teacher.coefficients), np.sqrt(problem.start().squared_norm[:1]))
    none = np.empty((0, problem.teacher.span))
    return Motion(start, take_frame_steps, constants, None, 0, none, problem.activation.name)


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


class DrawnAxes:
    """The axes on which a step draws samples, how many numbers it draws, and in what blocks.

    For every triangular factor there are `left` axes beyond those of the weights, of which a step takes `new` ones.
    """

    def __init__(self, problem: Problem, batch: int) -> None:
        m, r, axes = problem.width, problem.teacher.span, problem.input_axes()
        self.batch, self._width, self._span = batch, m, r
        self._rows: Integers | None = None
        if axes is None:
            left, eigenvalues, first = np.array([problem.dimension - r - m]), np.ones(r + m), r
            if left[0] < 0:
                msg = (
                    f"Argument `engine` must be 'torch' for a dimension below width + teacher axes = {r + m}, "
                    f"but is 'projected' with dimension {problem.dimension}."
                )
                raise ValueError(msg)
        else:
            beyond = axes.sizes - np.bincount(axes.kind[:r], minlength=axes.sizes.size)
            large = np.flatnonzero(beyond > m)
            of_factor = np.isin(axes.kind, large)
            of_factor[:r] = False
            rows = [np.flatnonzero(~of_factor), *(axes.columns(int(kind), r) for kind in large)]
            self._rows = np.concatenate(rows)
            left, eigenvalues, first = beyond[large] - m, axes.eigenvalues[self._rows], rows[0].size
        samples = min(batch, m)
        new = np.minimum(samples, left).astype(np.int64)
        #: Eigenvalues of the rows, first rows of the factors, new axes of each.
        self.axes = (eigenvalues, first + m * np.arange(left.size, dtype=np.int64), new)
        self.size = eigenvalues.size
        # chi(s − b) is the root of twice a gamma variable of shape (s − b)/2. A lone number is drawn in half the time.
        shapes = [0.5 * (rest - np.arange(count, dtype=np.float64)) for rest, count in zip(left, new, strict=True)]
        self.shapes = np.concatenate([np.empty(0), *shapes])
        below = sum(min(b, int(count)) for count in new for b in range(samples))
        self.numbers = batch * self.size + (below if batch > 1 else 0)
        self.block = max(BLOCK_NUMBERS // self.numbers, 16)
        turning = 6 * m * m if batch == 1 else 2 * m * m * (m + samples)
        self.operations = (4 if axes is None else 8) * batch * m * self.size + turning * left.size

    def start(self, reduced: Array) -> Array:
        """Return weights at the start, (D, m), given those that a problem reduces to, (m, axes)."""
        if self._rows is None:
            return reduced_factor(reduced, self._span)
        return np.ascontiguousarray(reduced.T[self._rows])

    def bench(self, scratch: int) -> Bench:
        """Return the buffers of one thread."""
        block, m, most = self.block, self._width, int(self.axes[2].max(initial=0))
        return Bench(
            np.zeros((block, self.numbers)),
            np.zeros((block, self.shapes.size)),
            np.zeros((block, self.batch)),
            np.zeros((block, self.batch)),
            (np.zeros((7, m)), np.zeros(scratch), np.zeros((self.batch, m)), np.zeros((m + most, m))),
        )


class Bench(NamedTuple):
    """Buffers of one thread: normals, gamma variables, label noise and labels of a block, and memory of a step."""

    samples: Array
    gammas: Array
    noise: Array
    labels: Array
    buffers: Buffers


class ProjectedEngine(SeededRuns[Bench]):
    """A batch of SGD runs in the law of R^d at a cost that does not depend on d; see the module's docstring.

    Its state has "weights" (seeds, D, neurons), and of a network "layers" (seeds, 2, neurons), v and b, too.
    """

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        self._span, self._noise = problem.teacher.span, problem.label_noise
        self._drawn = DrawnAxes(problem, options.batch_size)
        self._motion = make_motion(problem, self._drawn)
        super().__init__(
            options.seeds,
            self._motion.start,
            self._drawn.block,
            self._drawn.operations,
            lambda: self._drawn.bench(self._motion.scratch),
        )
        shapes = self._drawn.shapes
        self._shapes = float(shapes[0]) if shapes.size == 1 else shapes
        self.attributes = self._attributes(self._motion.link_name)

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        weights, directions = self._state["weights"], self._motion.directions
        # The recorder finds runs that are not finite, such as those whose weights overflow here.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            squared_norm = np.sum(weights**2, axis=1)
            unit = weights / np.sqrt(squared_norm)[:, None, :]
            overlap = unit[:, : self._span].transpose(0, 2, 1)
            overlap = overlap @ directions.T if directions.size else np.ascontiguousarray(overlap)
            gram = unit.transpose(0, 2, 1) @ unit if student else None
        return Measurement(overlap, gram, squared_norm)

    def layers(self) -> Array:
        """Return v and b of a network."""
        return self._state["layers"].copy()

    def _take(self, seed: int, rates: Array, bench: Bench) -> int:
        samples, gammas, noise, labels = (array[: rates.size] for array in bench[:4])
        coordinates, lengths, errors = self._generators[seed]
        coordinates.standard_normal(out=samples)
        if gammas.size:
            lengths.standard_gamma(self._shapes, out=gammas)
        if self._noise > 0:
            errors.standard_normal(out=noise)
            noise *= self._noise
        motion, drawn = self._motion, self._drawn
        if motion.teacher is None:
            labels = noise
        else:
            write_labels(motion.teacher, drawn.size, samples, noise, labels, bench.buffers[1])
        own, scaled, draws = self._moved(seed), rates / drawn.batch, (samples, gammas, labels)
        return int(motion.take(*own, scaled, motion.constants, drawn.axes, draws, bench.buffers))
