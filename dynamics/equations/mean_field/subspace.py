r"""Particles of the mean field in r axes, in monomials.

.. math:: K(a, a') = \sum_{\kappa, q} c_j^2 \binom{j}{2q} \frac{|\kappa|!}{\kappa!} E z^{2q}\;
   a^\kappa u^q\; a'^\kappa u'^q, \qquad j = |\kappa| + 2q, \quad u = 1 - |a|^2,

with z one coordinate of the uniform law on the sphere of the other d − r axes: (r + J choose J) monomials for a link of
degree J.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions
from dynamics.equations.mean_field import mean_field_subspace_kernels
from dynamics.equations.mean_field.sphere_moments import coordinate_moments, multinomial
from dynamics.equations.mean_field.system import MeanFieldSystem, learned_powers, link_powers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.problem import Problem
    from hermite.arrays import Array

#: Largest number of monomials a^κ: beyond, a step of 10^4 particles takes a second.
LARGEST_MONOMIALS = 4000


class SubspaceSystem(MeanFieldSystem):
    """Particles in r axes, in monomials a^κ u^q; raises ValueError if there are too many of these."""

    particles = mean_field_subspace_kernels.PARTICLES
    functions = Functions(
        mean_field_subspace_kernels.rhs,
        mean_field_subspace_kernels.event_values,
        mean_field_subspace_kernels.normalise,
    )

    def __init__(self, problem: Problem, projections: Array, weights: Array, levels: Sequence[float]) -> None:
        self._enumerate(problem)
        super().__init__(problem, projections, weights, levels)

    def _enumerate(self, problem: Problem) -> None:
        axes = problem.teacher.span
        degree = link_powers(problem)[0].size - 1
        self._exponents: list[tuple[int, ...]] = [(0,) * axes]
        for total in range(1, degree + 1):
            chosen = itertools.combinations_with_replacement(range(axes), total)
            self._exponents += [tuple(word.count(axis) for axis in range(axes)) for word in chosen]
            if len(self._exponents) > LARGEST_MONOMIALS:
                msg = (
                    f"Argument `problem` must need at most {LARGEST_MONOMIALS} monomials for its mean field, but a "
                    f"link of degree {degree} in the {axes} axes of the teacher needs more."
                )
                raise ValueError(msg)
        self._powers_of_rest = 1 + degree // 2
        # A derivative of a^κ u^q is at most its degree.
        self.steepness = float(degree)
        place = {exponents: k for k, exponents in enumerate(self._exponents)}

        def lowered(exponents: tuple[int, ...], axis: int) -> int:
            less = tuple(e - (i == axis) for i, e in enumerate(exponents))
            return place.get(less, 0)

        self._axis = [next((i for i, e in enumerate(word) if e > 0), 0) for word in self._exponents]
        self._parent = [lowered(word, axis) for word, axis in zip(self._exponents, self._axis, strict=True)]
        self._lower = np.array([[lowered(word, axis) for axis in range(axes)] for word in self._exponents])
        self._exponent_table = np.array(self._exponents)

    def _moment_tables(self) -> tuple[Array, Array, float, Array]:
        student, teacher = link_powers(self.problem)
        target = self.problem.teacher
        axes, Q = target.span, self._powers_of_rest
        rest = coordinate_moments(self.problem.dimension - axes, Q)
        total = self._exponent_table.sum(axis=1)
        ways = np.array([multinomial(word) for word in self._exponents])
        c = np.zeros((total.size, Q))
        for q in range(Q):
            fits = total + 2 * q < student.size
            j = total[fits] + 2 * q
            choose = np.array([multinomial((int(n), 2 * q)) for n in total[fits]])
            c[fits, q] = ways[fits] * student[j] ** 2 * choose * rest[q]
        theta = np.eye(axes) if target.directions is None else target.directions
        values = np.prod(theta[:, None, :] ** self._exponent_table[None], axis=2)
        ratio = np.divide(teacher, student, out=np.zeros_like(teacher), where=student != 0.0)
        mu = np.zeros((total.size, Q))
        mu[:, 0] = ratio[total] * (target.coefficients @ values)
        missed = np.where(student == 0.0, teacher**2, 0.0)
        gram = target.gram()
        floor = float(
            sum(weight * target.coefficients @ gram**j @ target.coefficients for j, weight in enumerate(missed))
        )
        learned = np.zeros((target.num_directions, total.size, Q))
        learned[:, :, 0] = values * (ways * learned_powers(self.problem, student.size)[total] ** 2)
        return c.ravel(), mu.ravel(), floor, learned.reshape(target.num_directions, -1)

    def _layout(self) -> list[int]:
        count = len(self._exponents)
        return [count, self._powers_of_rest, *self._parent, *self._axis]

    def _scratch_size(self) -> int:
        count = 2 * len(self._exponents) + self._powers_of_rest + self.problem.teacher.span + 1
        return count * self.particles.lanes

    def _monomials(self, a: Array) -> Array:
        values = np.ones((len(self._exponents), a.shape[0]))
        for k in range(1, len(self._exponents)):
            values[k] = values[self._parent[k]] * a[:, self._axis[k]]
        return values

    def _rest_powers(self, a: Array) -> Array:
        u = np.maximum(1.0 - np.sum(a * a, axis=1), 0.0)
        powers: Array = u ** np.arange(self._powers_of_rest)[:, None]
        return powers

    def features(self, a: Array) -> Array:
        """Return F_k(a), shape (M, n), of projections (n, r)."""
        products = self._monomials(a)[:, None, :] * self._rest_powers(a)
        return products.reshape(-1, a.shape[0])

    def _derivatives(self, a: Array, forces: Array) -> tuple[Array, Array]:
        axes, Q = a.shape[1], self._powers_of_rest
        values, u = self._monomials(a), self._rest_powers(a)
        table = forces.reshape(-1, Q)
        # Coefficients of a^κ as polynomials in u, and their first two derivatives in u.
        q = np.arange(Q)
        of, of_u = table @ u, (table * q)[:, 1:] @ u[:-1]
        of_uu = (table * q * (q - 1))[:, 2:] @ u[: max(Q - 2, 0)]
        slope_u, slope_uu = np.sum(values * of_u, axis=0), np.sum(values * of_uu, axis=0)
        gradient, mixed = np.empty((2, *a.shape))
        second = np.empty((*a.shape, axes))
        for i in range(axes):
            times, below = self._exponent_table[:, i], self._lower[:, i]
            derivative = times[:, None] * values[below]
            gradient[:, i] = np.sum(derivative * of, axis=0) - 2.0 * a[:, i] * slope_u
            mixed[:, i] = np.sum(derivative * of_u, axis=0)
            for j in range(axes):
                twice = times * self._exponent_table[below, j]
                second[:, i, j] = np.sum(twice[:, None] * values[self._lower[below, j]] * of, axis=0)
        cross = a[:, :, None] * mixed[:, None, :]
        second += 4.0 * slope_uu[:, None, None] * a[:, :, None] * a[:, None, :] - 2.0 * (
            cross + cross.transpose(0, 2, 1)
        )
        second -= 2.0 * slope_u[:, None, None] * np.eye(axes)
        return gradient, second
