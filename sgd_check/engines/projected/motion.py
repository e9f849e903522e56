"""What the compiled steps of a student need: its start on the axes of the moment, the function, and its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dynamics.compiler import Piece, load, read_piece
from sgd_check.engines.network import network_of
from sgd_check.engines.projected.links import render
from sgd_check.engines.projected.network_source import network_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

HERE = Path(__file__).parent


class Motion(NamedTuple):
    """The steps of one kind of student.

    `take` moves the arrays of `start`, in their order, of one run; after them and the rates it is given `constants`,
    and if `batched` the buffers of a batch in the end. Overlaps are those with `directions`, or with the axes if there
    are none.
    """

    start: dict[str, Array]
    take: Callable[..., int]
    constants: tuple[Array | Integers, ...]
    batched: bool
    directions: Array
    link_name: str


def make_motion(problem: Problem, batch: int) -> Motion:
    """Return the steps of a problem's student."""
    makers = {"network": network_motion, "stiefel": frame_motion}
    return makers.get(problem.kind, homogeneous_motion)(problem, batch)


def homogeneous_motion(problem: Problem, batch: int) -> Motion:
    """Return the steps of f = Σ_i |w_i|² σ(w_i·x/|w_i|)."""
    teacher = problem.teacher
    piece, link_name = render(problem.activation)
    steps = "projected_single_kernels" if batch == 1 else "projected_batch_kernels"
    namespace = _loaded(piece, "projected_kernels", "turning_kernels", steps)
    directions = np.empty((0, teacher.span)) if teacher.directions is None else np.array(teacher.directions)
    start = {"weights": reduced_factor(problem.reduced_weights(), teacher.span)}
    take = namespace.take_single_steps if batch == 1 else namespace.take_batch_steps
    return Motion(start, take, (np.array(teacher.coefficients), directions), batch > 1, directions, link_name)


def network_motion(problem: Problem, batch: int) -> Motion:  # noqa: ARG001
    """Return the steps of f = s Σ_i v_i σ(w_i·x + b_i), for any batch."""
    network, source = network_of(problem), network_source(problem)
    namespace = _loaded(source.piece, "turning_kernels", "network_kernels")
    return Motion(
        {
            "weights": reduced_factor(network.weights, problem.teacher.span),
            "layers": np.array([network.second_layer, network.bias]),
        },
        namespace.take_network_steps,
        (
            np.array([network.scale, *network.rates, *network.decay]),
            np.empty(0) if network.lengths is None else network.lengths,
            source.teacher,
            source.ends,
        ),
        True,
        np.empty((0, problem.teacher.span)),
        source.link_name,
    )


def frame_motion(problem: Problem, batch: int) -> Motion:  # noqa: ARG001
    """Return the steps of a frame of orthogonal neurons, on one sample each."""
    namespace = load([read_piece(HERE / f"{name}.py") for name in ("turning_kernels", "stiefel_kernels")]).namespace
    span = problem.teacher.span
    start = {"weights": reduced_factor(problem.reduced_weights(), span)}
    constants = (np.array(problem.teacher.coefficients), np.sqrt(problem.start().squared_norm[:1]))
    return Motion(start, namespace.take_frame_steps, constants, False, np.empty((0, span)), problem.activation.name)


def _loaded(rendered: Piece, *modules: str) -> Any:
    return load([rendered, *(read_piece(HERE / f"{name}.py") for name in modules)]).namespace


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
