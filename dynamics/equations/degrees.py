r"""The loss by Hermite degree: what f lacks of the common parts of f*, and of what tells directions apart.

In Hermite polynomials of x ~ N(0, I) functions of different degree are orthogonal, so that

.. math:: E(f - f^*)^2 = \sum_{j=0}^{2} E\,(f_j - f^*_j)^2 + \text{rest},

with f_0 a number, f_1 linear and f_2 quadratic in x, and the degrees from 3 on in the rest. For f = Σ_i n_i σ(u_i·x)
and f* = Σ_p a_p σ(θ_p·x) on unit vectors, σ = Σ_j c_j h_j,

.. math:: E\,(f_j - f^*_j)^2 = c_j^2 \Big[\sum_{ik} n_i n_k (u_i\cdot u_k)^j - 2 \sum_{ip} n_i a_p (u_i\cdot\theta_p)^j
   + \sum_{pq} a_p a_q (\theta_p\cdot\theta_q)^j\Big].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.problem.emergence import LOWEST_DEGREE, NEGLIGIBLE

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from dynamics.problem import Problem
    from hermite.arrays import Array

#: Values of the coordinate `degree`.
DEGREES = ("0", "1", "2", "rest")


class DegreePart(NamedTuple):
    """The part of one degree j of a link, c_j h_j."""

    degree: int
    #: c_j².
    square: float

    def kernel(self, s: Array) -> Array:
        """Return c_j² s^j, shape of `s`."""
        return np.asarray(self.square * s**self.degree)


def link_parts(problem: Problem) -> list[DegreePart]:
    """Return the parts of degree 0, 1 and 2 of the link of a problem."""
    squares = [*(problem.activation.coefficients[:LOWEST_DEGREE] ** 2).tolist(), 0.0, 0.0]
    return [DegreePart(degree, squares[degree]) for degree in range(LOWEST_DEGREE)]


def teacher_parts(problem: Problem, whole: float) -> Array | None:
    """Return E of the squares of the parts of f* = Σ_p a_p σ(θ_p·x) in the order of `DEGREES`; `whole` is E f*².

    None where f* has one of these parts alone, so that the loss by degree says no more than the loss, and for inputs
    that are not isotropic.
    """
    teacher, parts = problem.teacher, link_parts(problem)
    if problem.inputs is not None:
        return None
    a = teacher.coefficients
    if teacher.is_orthonormal:
        sums = [float(a.sum()) ** 2, *[float(a @ a)] * 2]
    else:
        sums = [float(a @ teacher.gram() ** part.degree @ a) for part in parts]
    return told_by_degree([part.square * total for part, total in zip(parts, sums, strict=True)], whole)


def told_by_degree(parts: ArrayLike, whole: float) -> Array | None:
    """Return the parts of E f*² of degree 0, 1 and 2 and the rest, (4,); None if one of these is all of it."""
    found = by_degree(parts, whole)
    return None if found.max() >= (1.0 - NEGLIGIBLE) * whole else found


def by_degree(parts: ArrayLike, whole: ArrayLike) -> Array:
    """Return parts (3, …) of degree 0, 1 and 2 of a whole (…), and what is left of it, (…, 4)."""
    found = np.asarray(parts)
    rest = whole - found.sum(axis=0)
    return np.moveaxis(np.concatenate([found, rest[None]]), 0, -1)
