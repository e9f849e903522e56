"""What the compiled steps of a student need: its start on the axes of the moment, the function, and its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgd_check.engines.network import network_of
from sgd_check.engines.projected.labels import Teacher, homogeneous_teacher, label_scratch, network_teacher
from sgd_check.engines.projected.links import sampled_link, sampled_link_anywhere, scratch_size
from sgd_check.engines.projected.network_kernels import take_network_steps
from sgd_check.engines.projected.projected_batch_kernels import take_batch_steps
from sgd_check.engines.projected.projected_single_kernels import take_lone_steps, take_single_steps
from sgd_check.engines.projected.stiefel_kernels import take_frame_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem
    from hermite.arrays import Array


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
