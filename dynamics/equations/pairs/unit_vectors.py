"""Unit vectors u_i in R^D, D = min(d, r + m), and ln n_i as coordinates of the coupled flow.

They are half as many as the overlaps [C | G | ln n], and overlaps of vectors always exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem
    from hermite.arrays import Array


def unit_vectors(problem: Problem) -> tuple[Array, Array]:
    """Return the start as unit vectors, shape (m, D), and ln n, shape (m,).

    The first r columns are the teacher's axes.  More than m further columns are rotated into m of them, which changes
    no overlap.
    """
    weights = problem.reduced_weights()
    span, m = problem.teacher.span, problem.width
    if weights.shape[1] > span + m:
        (factor,) = scipy.linalg.qr(weights[:, span:].T, mode="r")
        weights = np.hstack([weights[:, :span], factor[:m].T])
    squared_norm = np.sum(weights**2, axis=1)
    return np.ascontiguousarray(weights / np.sqrt(squared_norm)[:, None]), np.log(squared_norm)


def teacher_rows(problem: Problem, columns: int) -> Array:
    """Return the directions θ_p as rows, shape (P, columns); no row if they are the first P axes themselves."""
    directions = problem.teacher.directions
    if directions is None:
        return np.empty((0, columns))
    rows = np.zeros((problem.num_directions, columns))
    rows[:, : directions.shape[1]] = directions
    return rows


def overlap_state(
    U: Array,
    log_norm: Array,
    teacher: Array,
    num_directions: int,
    out: Array | None = None,
    products: Callable[[Array, Array], object] = lambda U, G: np.matmul(U, np.swapaxes(U, -1, -2), out=G),
) -> Array:
    """Return [C | G | ln n] of unit vectors, shape (m P + m² + m,), or of a stack; `products` writes G = U Uᵀ."""
    (*stack, m, _), P = U.shape, num_directions
    state = np.empty((*stack, m * P + m * m + m)) if out is None else out
    C, G = state[..., : m * P].reshape(*stack, m, P), state[..., m * P : m * P + m * m].reshape(*stack, m, m)
    C[...] = U @ teacher.T if teacher.shape[0] > 0 else U[..., :P]
    products(U, G)
    np.einsum("...ii->...i", G)[...] = 1.0
    state[..., m * P + m * m :] = log_norm
    return state
