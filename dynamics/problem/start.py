"""Starts: the distribution of a random start, and the passage between weights and overlaps.

A start is drawn in reduced form, so that one and the same start serves every engine and every dimension up to 10^12:
the weights in R^d are [M | L | 0], M the coordinates on the teacher's axes and L a lower-triangular factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem.checks import check_memory, read_only, require
from hermite.arrays import Array, real_array
from hermite.text.messages import refuse, shown

if TYPE_CHECKING:
    from dynamics.problem.teacher import Teacher

    Overlaps = tuple[Array, Array, Array]

GRAM_TOLERANCE = 1e-10
#: Arrays of the size of the weights that are held while a start is drawn and its overlaps are computed.
ARRAYS_OF_START = 3


class OverlapStart(NamedTuple):
    """Overlaps of unit vectors with the teacher and with each other, and squared norms."""

    teacher_overlap: Array
    student_overlap: Array
    squared_norm: Array


def random_weights(rng: np.random.Generator, width: int, span: int, dimension: int, norm: float) -> Array:
    """Draw neurons uniformly on the sphere of radius `norm` in R^d, in reduced form, shape (m, min(d, m + r)).

    For d ≥ m + r a rotation of the complement of the teacher brings its Gaussian part to lower-triangular form, with
    chi(d − r − i) on the diagonal and N(0, 1) below (Bartlett), at a cost that does not depend on d.
    """
    check_memory("width", width, ARRAYS_OF_START * width * min(dimension, width + span))
    if dimension < width + span:
        weights = rng.standard_normal((width, dimension))
    else:
        weights = np.zeros((width, span + width))
        weights[:, :span] = rng.standard_normal((width, span))
        weights[:, span:][np.tri(width, k=-1, dtype=bool)] = rng.standard_normal(width * (width - 1) // 2)
        freedom = dimension - span - np.arange(width, dtype=np.float64)
        weights[np.arange(width), span + np.arange(width)] = np.sqrt(rng.chisquare(freedom))
    weights *= norm / np.sqrt(np.sum(weights**2, axis=1, keepdims=True))
    return weights


def orthogonal_rows(weights: Array, length: float) -> Array:
    """Return orthogonal rows of one length by Gram-Schmidt; rows of a lower-triangular matrix stay lower-triangular."""
    factor, triangle = np.linalg.qr(weights.T)
    return np.asarray(length * (factor * np.sign(np.diag(triangle))).T)


def overlaps_from_weights(weights: Array, teacher: Teacher) -> OverlapStart:
    """Return (C, G, n) of weight rows whose first axes are the teacher's."""
    width = len(weights)
    check_memory("width", width, ARRAYS_OF_START * width * (width + teacher.num_directions))
    squared_norm = np.sum(weights**2, axis=1)
    unit = weights / np.sqrt(squared_norm)[:, None]
    on_span = unit[:, : teacher.span]
    overlap = on_span if teacher.directions is None else on_span @ teacher.directions.T
    student_overlap = unit @ unit.T
    np.fill_diagonal(student_overlap, 1.0)
    return OverlapStart(np.ascontiguousarray(overlap), student_overlap, squared_norm)


def weights_from_overlaps(start: OverlapStart, teacher: Teacher) -> Array:
    """Return weights with the given overlaps, in as few columns as they need, shape (m, D).

    The part on the teacher is C T⁺ Θ; the rest has Gram matrix G − C T⁺ Cᵀ and goes to axes orthogonal to every θ_p,
    first to those within the teacher's r axes that the directions leave free.
    """
    overlap, student_overlap, squared_norm = start
    span, rows = teacher.span, _rows(teacher)
    on_teacher = overlap @ np.linalg.pinv(rows).T
    values, vectors = np.linalg.eigh(student_overlap - on_teacher @ on_teacher.T)
    kept = values > GRAM_TOLERANCE
    factor = vectors[:, kept] * np.sqrt(values[kept])
    _, singular, axes = np.linalg.svd(rows, full_matrices=True)
    free = axes[int(np.sum(singular > 1e-12 * singular[0])) :]
    inside = min(free.shape[0], factor.shape[1])
    unit = np.zeros((overlap.shape[0], span + factor.shape[1] - inside))
    unit[:, :span] = on_teacher + factor[:, :inside] @ free[:inside]
    unit[:, span:] = factor[:, inside:]
    unit /= np.sqrt(np.sum(unit**2, axis=1, keepdims=True))
    return unit * np.sqrt(squared_norm)[:, None]


def check_rows(name: str, rows: Array) -> None:
    """Raise ValueError about the argument `name` unless each of its rows is a vector of finite, positive length."""
    squared_lengths = np.sum(rows**2, axis=1)
    are_good = (np.isfinite(squared_lengths) & (squared_lengths > 0)).all()
    require(are_good, f"Argument `{name}` must have finite rows of positive length, but has a row without.")


def checked_overlaps(overlaps: Sequence[ArrayLike], teacher: Teacher, width: int, dimension: int) -> Overlaps:
    """Return (C, G, n) as read-only arrays; ValueError if no weights in R^d have these overlaps."""
    if not isinstance(overlaps, Sequence | np.ndarray):
        refuse(f"Argument `initial_overlaps` must be a tuple (C, G, n), but is {shown(overlaps)}.", TypeError)
    require(
        len(overlaps) == 3, f"Argument `initial_overlaps` must be a tuple (C, G, n), but has {len(overlaps)} entries."
    )
    C, G, n = (read_only(real_array(part, "initial_overlaps")) for part in overlaps)
    shapes = {"C": (C, (width, teacher.num_directions)), "G": (G, (width, width)), "n": (n, (width,))}
    for label, (array, shape) in shapes.items():
        require(
            array.shape == shape,
            f"Argument `initial_overlaps` must have {label} of shape {shape}, but it has shape {array.shape}.",
        )
        require(np.isfinite(array).all(), f"Argument `initial_overlaps` must be finite, but {label} is not.")
    require(
        (n > 0).all(), f"Argument `initial_overlaps` must have positive squared norms n, but the smallest is {n.min()}."
    )
    off = max(np.abs(G - G.T).max(), np.abs(np.diag(G) - 1).max())
    require(
        off <= GRAM_TOLERANCE,
        "Argument `initial_overlaps` must have a symmetric G with ones on the diagonal, but it has not.",
    )
    rows = _rows(teacher)
    on_teacher = C @ np.linalg.pinv(rows).T
    is_spanned = np.abs(on_teacher @ rows.T - C).max() <= GRAM_TOLERANCE
    require(
        is_spanned, "Argument `initial_overlaps` must have C in the range of the teacher's Gram matrix, but it is not."
    )
    values, slack = np.linalg.eigvalsh(G - on_teacher @ on_teacher.T), GRAM_TOLERANCE * max(1.0, width)
    require(
        values[0] >= -slack,
        "Argument `initial_overlaps` must leave G - C T^-1 C^T positive semidefinite, but its smallest eigenvalue is "
        f"{values[0]:.3g}.",
    )
    free = dimension - np.linalg.matrix_rank(rows)
    require(
        np.sum(values > slack) <= free,
        f"Argument `initial_overlaps` must fit in R^d, but G - C T^-1 C^T has more than the {free} dimensions that d "
        f"= {dimension} leaves.",
    )
    return C, G, n


def _rows(teacher: Teacher) -> Array:
    return np.eye(teacher.span) if teacher.directions is None else teacher.directions
