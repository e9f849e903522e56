r"""Exact means of one step of SGD on the correlation, as functions of the overlap C.

A step is w ← (w + η y ψ x_⊥)/|·|. With x_⊥ = v e + the rest, e the direction of θ orthogonal to w, s = √(1 − C²) and
y = a σ*(C a_0 + s v) + noise of variance τ², one step changes C to second order in η by η D − ½ η² C N, where

.. math:: D = E[y\, \psi\, s v] = a\, g_\lambda'(C) (1 - C^2), \qquad N = E[y^2 \psi^2 r^2], \qquad
   V = E[y^2 \psi^2 v^2],

and η² V (1 − C²) is the variance of the step. N and V are polynomials in C of twice the teacher's degree. The means are
sums over Gauss rules in a_0, v and χ² = r² − v², exact for polynomials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import chebyshev, polynomial

from dynamics.equations.correlation.smoothing import check_degree, gradient_table, signal_powers

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class StepMeans:
    """D, N and V of a problem; `drag` and `spread` are Chebyshev coefficients, `slope` powers of C, of a g_λ'."""

    slope: Array
    drag: Array
    spread: Array

    def drift(self, C: Array) -> Array:
        """Return D(C)."""
        found: Array = polynomial.polyval(C, self.slope) * (1.0 - C**2)
        return found

    def drag_at(self, C: Array) -> Array:
        """Return N(C)."""
        return np.asarray(chebyshev.chebval(C, self.drag), dtype=np.float64)

    def spread_at(self, C: Array) -> Array:
        """Return V(C)."""
        return np.asarray(chebyshev.chebval(C, self.spread), dtype=np.float64)


def signal_slope(problem: Problem) -> Array:
    """Return a g_λ' in powers of C."""
    found: Array = polynomial.polyder(signal_powers(problem)) * problem.teacher.coefficients[0]
    return found


def step_means(problem: Problem) -> StepMeans:
    """Return D, N and V of polynomial or truncated links; ValueError for others, and beyond degree 12."""
    for name, link in (("activation", problem.activation), ("teacher_activation", problem.teacher_link)):
        if not link.is_polynomial:
            msg = (
                f"Argument `{name}` must be a polynomial for exact means of a step, but is {link.name}; a truncated "
                "series is one as a dict of its coefficients."
            )
            raise ValueError(msg)
    check_degree("averaged exactly", problem)
    table, teacher = gradient_table(problem), problem.teacher_link
    degree = int(np.flatnonzero(teacher.coefficients).max(initial=0))
    # ψ² r² has degree 2(i + 2j) + 2 in all, y² has 2 degree.
    count = degree + sum(table.shape) + table.shape[1] + 2
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    weights = weights / weights.sum()
    squares, shares = chi_square_rule(problem.dimension - 2, 2 * table.shape[1])
    a, v = nodes[:, None], nodes[None, :]
    r2 = np.broadcast_to(v[..., None] ** 2 + squares, (count, count, squares.size))
    square = polynomial.polyval2d(np.broadcast_to(a[..., None], r2.shape), r2, table) ** 2
    both = np.outer(weights, weights)
    drag, spread = both * ((square * r2) @ shares), both * v**2 * (square @ shares)
    overlaps = chebyshev.chebpts1(2 * degree + 1)
    seen = overlaps[:, None, None] * a + np.sqrt(1.0 - overlaps**2)[:, None, None] * v
    labels = (problem.teacher.coefficients[0] * teacher.value(seen)) ** 2 + problem.label_noise**2
    into = np.linalg.inv(chebyshev.chebvander(overlaps, 2 * degree))
    found = [into @ np.sum(labels * part, axis=(1, 2)) for part in (drag, spread)]
    return StepMeans(signal_slope(problem), *found)


def chi_square_rule(freedom: int, count: int) -> tuple[Array, Array]:
    """Return nodes and weights of the Gauss rule of χ² with so many degrees of freedom, by its Jacobi matrix.

    Weights sum to 1; polynomials of degree 2 count − 1 are exact, for 10^12 degrees of freedom too.

    Examples
    --------
    >>> nodes, weights = chi_square_rule(5, 3)
    >>> round(float(nodes**2 @ weights), 12)  # n (n + 2)
    35.0
    """
    from scipy.linalg import eigh_tridiagonal

    if freedom == 0:
        return np.zeros(1), np.ones(1)
    n = np.arange(count, dtype=np.float64)
    shape = 0.5 * freedom
    nodes, vectors = eigh_tridiagonal(2.0 * n + shape, np.sqrt(n[1:] * (n[1:] + shape - 1.0)))
    return np.asarray(2.0 * nodes), np.asarray(vectors[0] ** 2)
