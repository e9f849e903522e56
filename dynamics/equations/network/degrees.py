r"""The loss of a two-layer network by Hermite degree.

A neuron of length ρ_i and bias b_i has in h_j(û_i·x) a coefficient of its own, F_ij = E σ(ρ_i z + b_i) h_j(z), and a
unit of the teacher F*_pj = E σ_p(z + β_p) h_j(z), so that with A_ij = s v_i F_ij and B_pj = a_p F*_pj

.. math:: E\,(f_j - f^*_j)^2 = \sum_{ik} A_{ij} A_{kj} (\hat u_i\cdot\hat u_k)^j
   - 2 \sum_{ip} A_{ij} B_{pj} (\hat u_i\cdot\theta_p)^j + \sum_{pq} B_{pj} B_{qj} (\theta_p\cdot\theta_q)^j.

Of a polynomial teacher the last two sums are those of f_α f*_α and f*_α² over its components of degree j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dynamics.equations.degrees import by_degree, told_by_degree
from dynamics.equations.network.families import hermite_coefficients

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dynamics.equations.network.families import NetworkTeacher
    from dynamics.problem import Problem
    from dynamics.problem.teacher import Polynomial
    from hermite.arrays import Array


class NetworkDegrees:
    """What gives the loss of a network by degree.

    `teacher` holds E of the squares of the parts of f*, (4,), in the order of `DEGREES`; it is None where f* has one of
    these parts alone.
    """

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
