r"""Particles of the mean field along one axis, in zonal polynomials of R^d.

With γ the zonal coefficients of Σ_j c_j² s^j, and τ those of Σ_j c_j c*_j s^j,

.. math:: K(\alpha, \alpha') = \sum_l \gamma_l C_l(\alpha) C_l(\alpha'), \qquad
   \mu^*_l = \frac{\tau_l}{\gamma_l} \sum_p a_p C_l(\pm 1), \qquad
   \alpha' = -(1 - \alpha^2) \sum_l \gamma_l (\mu_l - \mu^*_l)\, C_l'(\alpha).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions
from dynamics.equations.mean_field import mean_field_axis_kernels
from dynamics.equations.mean_field.sphere_moments import zonal_coefficients, zonal_polynomials, zonal_powers
from dynamics.equations.mean_field.system import MeanFieldSystem, learned_powers, link_powers

if TYPE_CHECKING:
    from hermite.arrays import Array

#: Largest number of degrees at which the kernels sum powers of α: at degree 12 their coefficients reach 10^4 in the
#: plane, less in more dimensions, and so does the rounding. Beyond, they run the recurrence of the zonal polynomials.
MOST_POWERS = 13


class AxisSystem(MeanFieldSystem):
    """Particles along one axis, r = 1, in zonal polynomials; parameters as `MeanFieldSystem`."""

    particles = mean_field_axis_kernels.PARTICLES
    functions = Functions(
        mean_field_axis_kernels.rhs, mean_field_axis_kernels.event_values, mean_field_axis_kernels.normalise
    )

    def _moment_tables(self) -> tuple[Array, Array, float, Array]:
        student, teacher = link_powers(self.problem)
        own, shared, other = (
            zonal_coefficients(powers, self.problem.dimension) for powers in (student**2, student * teacher, teacher**2)
        )
        learned = zonal_coefficients(learned_powers(self.problem, student.size) ** 2, self.problem.dimension)
        rows = self.problem.teacher.directions
        signs = np.ones(self.problem.num_directions) if rows is None else rows[:, 0]
        signs = signs[:, None] ** np.arange(own.size)
        mixture = self.problem.teacher.coefficients @ signs
        ratio = np.divide(shared, own, out=np.zeros_like(own), where=own > 0.0)
        floor = float(np.sum(np.maximum(other - ratio * shared, 0.0) * mixture**2))
        if np.array_equal(student, teacher):
            floor = 0.0
        return own, ratio * mixture, floor, signs * learned

    def _layout(self) -> list[int]:
        count = self.coefficients.size
        if count > MOST_POWERS:
            return [0, 0]
        # Degrees of one parity are summed and evaluated in α².
        if not self.coefficients[1::2].any():
            return [2, 2]
        return [1 if self.coefficients[::2].any() else 2, 1]

    def _further_parameters(self) -> Array:
        count = self.coefficients.size
        if count > MOST_POWERS:
            return np.empty(0)
        return zonal_powers(self.problem.dimension, count).ravel()

    def _scratch_size(self) -> int:
        return 2 * self.particles.lanes

    def features(self, a: Array) -> Array:
        """Return F_k(a), shape (M, n), of projections (n, r)."""
        return np.stack(list(zonal_polynomials(a[:, 0], self.problem.dimension, self.coefficients.size)))

    def _derivatives(self, a: Array, forces: Array) -> tuple[Array, Array]:
        alpha, d = a[:, 0], float(self.problem.dimension)
        degree = np.arange(forces.size)
        slopes = (forces * degree * (degree + d - 2.0) / (d - 1.0))[1:]
        degree = degree[:-1]
        bends = (slopes * degree * (degree + d) / (d + 1.0))[1:]
        first, second = (
            sum((c * values for c, values in zip(of, zonal_polynomials(alpha, d + more, of.size), strict=True)), 0.0)
            + np.zeros_like(alpha)
            for of, more in ((slopes, 2.0), (bends, 4.0))
        )
        return first[:, None], second[:, None, None]
