r"""The loss by Hermite degree: what f lacks of the common parts of f*, and of what tells directions apart.

In Hermite polynomials of x ~ N(0, I) functions of different degree are orthogonal, so that

.. math:: E(f - f^*)^2 = \sum_{j=0}^{2} E\,(f_j - f^*_j)^2 + \text{rest},

with f_0 a number, f_1 linear and f_2 quadratic in x, and the degrees from 3 on in the rest. With A_ij the coefficient
of h_j(û_i·x) in what neuron i adds to f, and B_pj that of h_j(θ_p·x) in unit p of f*,

.. math:: E\,(f_j - f^*_j)^2 = \sum_{ik} A_{ij} A_{kj} (\hat u_i\cdot\hat u_k)^j
   - 2 \sum_{ip} A_{ij} B_{pj} (\hat u_i\cdot\theta_p)^j + \sum_{pq} B_{pj} B_{qj} (\theta_p\cdot\theta_q)^j.

Of f = Σ_i n_i σ(u_i·x) and f* = Σ_p a_p σ(θ_p·x), σ = Σ_j c_j h_j, they are n_i c_j and a_p c_j; of a network, whose
neurons have lengths ρ_i and biases b_i, A_ij = s v_i E σ(ρ_i z + b_i) h_j(z), and B_pj = a_p E σ_p(z + β_p) h_j(z).
Of a polynomial teacher the last two sums are those of f_α f*_α and f*_α² over its components of degree j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from dynamics.equations.network.families import hermite_coefficients
from dynamics.problem.emergence import LOWEST_DEGREE, NEGLIGIBLE
from hermite.polynomials import padded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from dynamics.equations.network.families import NetworkTeacher
    from dynamics.problem import Problem
    from dynamics.problem.teacher import Polynomial
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
    squares = padded(problem.activation.coefficients, LOWEST_DEGREE) ** 2
    return [DegreePart(degree, square) for degree, square in enumerate(squares.tolist())]


def teacher_parts(problem: Problem, whole: float) -> Array | None:
    """Return E f_j*² in the order of `DEGREES`, E f*² being `whole`; None where one is all of it, or with `inputs`."""
    if problem.inputs is not None:
        return None
    a, teacher = problem.teacher.coefficients, problem.teacher
    if teacher.is_orthonormal:
        sums = [float(a.sum()) ** 2, *[float(a @ a)] * 2]
    else:
        sums = [float(a @ teacher.gram() ** degree @ a) for degree in range(LOWEST_DEGREE)]
    return told_by_degree([part.square * total for part, total in zip(link_parts(problem), sums, strict=True)], whole)


def told_by_degree(parts: ArrayLike, whole: float) -> Array | None:
    """Return the parts of E f*² of degree 0, 1 and 2 and the rest, (4,); None if one of these is all of it."""
    found = by_degree(parts, whole)
    return None if found.max() >= (1.0 - NEGLIGIBLE) * whole else found


def by_degree(parts: ArrayLike, whole: ArrayLike) -> Array:
    """Return parts (3, …) of degree 0, 1 and 2 of a whole (…), and what is left of it, (…, 4)."""
    found = np.asarray(parts)
    rest = whole - found.sum(axis=0)
    return np.moveaxis(np.concatenate([found, rest[None]]), 0, -1)


class NetworkDegrees:
    """The loss of a network by degree; `teacher` is E f_j*², (4,), None where f* has one of these parts alone."""

    def __init__(self, problem: Problem, teacher: NetworkTeacher) -> None:
        self._link, self._theta = problem.activation, teacher.theta
        if problem.teacher.is_polynomial:
            orders = np.array([component.degree for component in problem.teacher.components])
            mean = cast("Polynomial", problem.teacher.target).mean
            #: Per degree the constant of f*, and its components, 0 where they are of another degree.
            self._mean = np.array([mean, 0.0, 0.0])
            self._values = np.stack([np.where(orders == degree, teacher.components, 0.0) for degree in range(3)])
            self._squares = self._mean**2 + np.sum(self._values**2, axis=1)
        else:
            units = problem.teacher.units(problem.teacher_link)
            found = [hermite_coefficients(unit.link, np.ones(1), np.array([unit.bias])) for unit in units]
            self._units = (np.concatenate(found) * np.array([[unit.coefficient] for unit in units])).T
            gram = self._theta @ self._theta.T
            self._squares = np.array([B @ gram**degree @ B for degree, B in enumerate(self._units)])
        self.teacher = told_by_degree(self._squares, teacher.square)

    def __call__(
        self, weights: Array, bias: Array, overlaps: tuple[Array, Array, Array], record: Mapping[str, Any]
    ) -> Array:
        """Return E of the squares of the parts of f − f*, (4,).

        `weights` are s v_i, `overlaps` C (m, r), G (m, m) and n (m,), and `record` has the loss and, of a polynomial
        teacher, the components f_α.
        """
        C, G, n = overlaps
        A = weights * hermite_coefficients(self._link, np.sqrt(n), bias).T
        own = np.array([a @ G**degree @ a for degree, a in enumerate(A)])
        if "component" in record:
            shared = self._mean * A.sum(axis=1) + self._values @ record["component"]
        else:
            towards = C @ self._theta.T
            shared = np.array([a @ towards**j @ b for j, (a, b) in enumerate(zip(A, self._units, strict=True))])
        return by_degree(own - 2.0 * shared + self._squares, record["loss"])
