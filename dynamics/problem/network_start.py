"""The start of a `Student`: second layer, biases and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.problem.checks import float_array, read_only
from dynamics.problem.start import check_rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from dynamics.problem.student import Student
    from hermite.arrays import Array

#: Tells the draw of biases from that of weights with the same seed.
BIASES = 1


class NetworkStart(NamedTuple):
    """Second layer v (m,), biases b (m,) and weights W (m, D), the teacher's axes first, D ≤ min(d, r + m)."""

    second_layer: Array
    bias: Array
    weights: Array


def network_start(student: Student, weights: Array, seed: int) -> NetworkStart:
    """Return the start of a student with the given weights; `seed` draws biases that are not given."""
    biases = student.start_of_biases(np.random.default_rng([seed, BIASES]))
    return NetworkStart(student.start_of_second_layer(), biases, weights)


def checked_network_weights(given: ArrayLike, student: Student, dimension: int, span: int) -> Array:
    """Return starting weights with finite rows of positive length as a read-only array (m, D), span ≤ D ≤ d."""
    rows = read_only(float_array(given, "initial_weights"))
    m = student.width
    if rows.ndim != 2 or rows.shape[0] != m or not span <= rows.shape[1] <= dimension:
        msg = (
            f"Argument `initial_weights` must have shape (width, dimension) = ({m}, {dimension}), or fewer columns, "
            f"those that are not zero, but at least the teacher's {span}, but has shape {rows.shape}."
        )
        raise ValueError(msg)
    check_rows("initial_weights", rows)
    if student.is_paired and not np.array_equal(rows[: m // 2], rows[m // 2 :]):
        msg = "Argument `initial_weights` must have equal halves where `initial_second_layer` is 'pairs', but has not."
        raise ValueError(msg)
    return rows
