"""Exact mean change of the overlaps in a step of online SGD, from weights or from overlaps: docs/step_equations.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dynamics.cores import blas_threads_for
from dynamics.equations.finite_step import exact_moments
from dynamics.problem import Problem, check_problem
from dynamics.problem.checks import checked_integer, require
from dynamics.problem.start import check_rows
from hermite.arrays import Array, real_array

SYMMETRY_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneStepMoments:
    r"""Mean change of R = WΘᵀ, (m, P), and S = WWᵀ, (m, m), in one step; dimensionless.

    .. math:: E[\Delta R] = \eta\, \mathrm{teacher\_first}, \qquad
       E[\Delta S] = \eta\, \mathrm{student\_first} + \eta^2\, \mathrm{student\_second}

    exactly, for every learning rate η. The last is for the dimension and the batch size asked for; its derivative in d
    is all that is left of it as d → ∞ with η = c/d, and is ρ_i ρ_j E[(ē² + τ²) σ'_i σ'_j]/B.

    Examples
    --------
    >>> from dynamics.problem import Problem, Teacher
    >>> problem = Problem(activation="he2", teacher=Teacher([1.0]), width=1, dimension=3)
    >>> moments, eta = one_step_moments(problem, [[0.5, 0.0, 0.0]]), 0.01
    >>> round(float((eta * moments.student_first + eta**2 * moments.student_second)[0, 0]), 6)  # E ΔS
    0.008625
    """

    teacher_first: Array
    student_first: Array
    student_second: Array
    student_second_per_dimension: Array


def one_step_moments(problem: Problem, weights: ArrayLike | None = None, *, batch_size: int = 1) -> OneStepMoments:
    r"""Return the exact mean change of the overlaps in one step of SGD from given weights.

    .. math:: w_i \leftarrow w_i - \frac{\eta}{B} \sum_{b=1}^B e_b \nabla_i(x_b), \qquad
       \nabla_i = |w_i| [(2\sigma_i - z_i\sigma'_i) u_i + \sigma'_i x], \quad z_i = u_i \cdot x

    with e = f − f* − noise. Nothing is sampled: expectations are sums over Wick diagrams (`docs/step_equations.md`).
    Rounding is relative to the largest diagram: at a perfect fit, where the exact value is 0, `student_second` is up to
    1e-13 d for h_3, 1e-12 d for h_4 and 1e-10 d for h_6.

    Parameters
    ----------
    problem : Problem
        Polynomial link; any teacher, dimension and label noise.
    weights : array_like, shape (m, D), optional
        Weights w_i, the teacher spanning the first axes; columns from D to d are zero. By default the problem's start.
    batch_size : int, default 1
        Number B ≥ 1 of samples per step.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind, if the weights do not fit the problem, or if the link is not a polynomial or
        has too many diagrams (every link up to degree 20 passes, h_k up to k = 70).

    Examples
    --------
    >>> from dynamics.problem import Problem, Teacher
    >>> problem = Problem(activation="he2", teacher=Teacher([1.0]), width=1, dimension=3)
    >>> moments = one_step_moments(problem, [[0.5, 0.0, 0.0]])
    >>> float(moments.teacher_first[0, 0]), round(float(moments.student_second[0, 0]), 12)
    (0.75, 11.25)
    """
    check_problem(problem)
    if weights is None:
        start = problem.start()
        rho = np.sqrt(start.squared_norm)
        R, S = start.teacher_overlap * rho[:, None], start.student_overlap * np.outer(rho, rho)
        return moments_of_overlaps(problem, R, S, batch_size=batch_size)
    rows, span, d = real_array(weights, "weights"), problem.teacher.span, problem.dimension
    fits = rows.ndim == 2 and rows.shape[0] == problem.width and span <= rows.shape[1] <= d
    require(
        fits,
        f"Argument `weights` must have shape (width, D) = ({problem.width}, D) with {span} ≤ D ≤ {d}, but has shape "
        f"{rows.shape}.",
    )
    check_rows("weights", rows)
    directions = np.eye(span) if problem.teacher.directions is None else problem.teacher.directions
    return moments_of_overlaps(problem, rows[:, :span] @ directions.T, rows @ rows.T, batch_size=batch_size)


def moments_of_overlaps(
    problem: Problem,
    teacher_products: ArrayLike,
    student_products: ArrayLike,
    *,
    dimension: int | None = None,
    batch_size: int = 1,
) -> OneStepMoments:
    """Return the exact mean change of the overlaps in one step of SGD, given the overlaps alone.

    Parameters
    ----------
    problem, batch_size
        As of `one_step_moments`, which also has the errors; the start is not looked at.
    teacher_products, student_products : array_like, shapes (m, P) and (m, m)
        R_ip = w_i·θ_p = |w_i| C_ip, and S_ij = w_i·w_j = |w_i| |w_j| G_ij, symmetric with a positive diagonal. That
        weights in R^d with these products exist is not checked.
    dimension : int, optional
        Dimension d, by default the problem's.

    Examples
    --------
    >>> from dynamics.problem import Problem, Teacher
    >>> problem = Problem(activation="he2", teacher=Teacher([1.0]), width=1, dimension=3)
    >>> moments = moments_of_overlaps(problem, [[0.5]], [[0.25]])
    >>> round(float(moments.teacher_first[0, 0]), 12), round(float(moments.student_second[0, 0]), 12)
    (0.75, 11.25)
    """
    check_problem(problem)
    B = checked_integer(batch_size, "batch_size", minimum=1)
    d = problem.dimension if dimension is None else checked_integer(dimension, "dimension", minimum=1)
    m = problem.width
    R = _checked_matrix(teacher_products, "teacher_products", "(width, num_directions)", (m, problem.num_directions))
    S = _checked_matrix(student_products, "student_products", "(width, width)", (m, m))
    is_even, least = np.abs(S - S.T).max() <= SYMMETRY_TOLERANCE * np.abs(S).max(), np.diag(S).min()
    require(is_even, "Argument `student_products` must be symmetric, but is not.")
    require(least > 0, f"Argument `student_products` must have a positive diagonal, but its smallest entry is {least}.")
    link = problem.activation
    require(
        link.is_polynomial and link.truncation_error == 0.0,
        f"Argument `problem` must have a polynomial link for exact one-step moments, but has {link.name}; "
        "`activation=problem.activation.truncated()` asks for those of its series.",
    )
    teacher = (np.array(problem.teacher.coefficients), problem.teacher.gram(), float(problem.label_noise))
    with blas_threads_for(m):
        parts = exact_moments(link.coefficients, R, S, teacher)
    second = parts.base + d * parts.slope
    return OneStepMoments(
        teacher_first=parts.teacher_first,
        student_first=parts.student_first,
        student_second=parts.drift_gram + (second - parts.drift_gram) / B,
        student_second_per_dimension=parts.slope / B,
    )


def _checked_matrix(values: ArrayLike, name: str, symbols: str, shape: tuple[int, int]) -> Array:
    """Return a contiguous matrix of finite numbers; ValueError unless it has the shape, which `symbols` describes."""
    matrix = np.ascontiguousarray(real_array(values, name))
    require(
        matrix.shape == shape, f"Argument `{name}` must have shape {symbols} = {shape}, but has shape {matrix.shape}."
    )
    require(np.isfinite(matrix).all(), f"Argument `{name}` must be finite, but is not.")
    return matrix
