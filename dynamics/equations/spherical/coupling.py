r"""Neurons that follow the mean field, and the linear equation of their distance from a network of finite width.

With w̄_i a neuron that follows the field from the start of neuron i, and Δ_i = w_i − w̄_i, to first order

.. math:: \Delta_i' = D_i \Delta_i - \frac1m\sum_j H_{ij} \Delta_j + \varepsilon_i, \qquad
   H_{ij} = P_i\, [\, g'(s_{ij}) I + g''(s_{ij})\, \bar w_j \bar w_i^T ]\, , \quad s_{ij} = \bar w_i\cdot\bar w_j,
   \quad P_i = I - \bar w_i \bar w_i^T,

D_i the derivative of the velocity −P∇Φ in a neuron's position, the law held fixed, and ε_i the velocity at w̄ in the
field of the m neurons w̄_j less that in the mean field. Σ_ij Δ_i·H_ij Δ_j ≥ 0 for tangent Δ, because it is m² times the
mean square of the change of f, so that the interaction only damps: with λ the largest local Hessian, the largest
eigenvalue of any D_i on the tangent space,

.. math:: \frac{d}{dt}\|\Delta\| \le \lambda \|\Delta\| + \|\varepsilon\|, \qquad
   \|\Delta\|^2 = \mathrm{mean}_i |\Delta_i|^2.

Dimensionless throughout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.mean_field.axis import AxisSystem
from dynamics.equations.mean_field.subspace import SubspaceSystem

if TYPE_CHECKING:
    from dynamics.equations.mean_field.system import MeanFieldSystem
    from dynamics.problem import Problem
    from hermite.arrays import Array


def make_particle_system(problem: Problem, projections: Array) -> MeanFieldSystem:
    """Return the mean field's system with particles of equal weight at projections (n, r), and no level of the loss."""
    make_system = AxisSystem if problem.teacher.span == 1 else SubspaceSystem
    return make_system(problem, projections, np.full(len(projections), 1.0 / len(projections)), ())


def followers_in_space(start: Array, projections: Array) -> Array:
    """Return the neurons (T, m, D) that follow the field from a start (m, D), from their projections (T, m, r).

    The field pulls along the teacher's axes alone, so that the rest of a neuron keeps its direction.
    """
    axes = projections.shape[2]
    rest = start[:, axes:] / np.linalg.norm(start[:, axes:], axis=1, keepdims=True)
    length = np.sqrt(np.maximum(1.0 - np.sum(projections**2, axis=2), 0.0))
    return np.concatenate([projections, length[:, :, None] * rest], axis=2)


class LinearisedCoupling:
    """The linear equation at one instant.

    `system` is that of the followers' projections, by `make_particle_system`, `followers` (m, D) are the neurons w̄
    that follow the field, and `moments` (M,) those of the mean field.
    """

    def __init__(self, system: MeanFieldSystem, followers: Array, moments: Array) -> None:
        self._w = followers
        problem = system.problem
        m, axes = len(followers), problem.teacher.span
        gram = followers @ followers.T
        self._slopes = problem.activation.kernel_derivative(gram, 1) / m
        self._bends = problem.activation.kernel_derivative(gram, 2) / m
        on_axes = np.ascontiguousarray(followers[:, :axes])
        self._gradient, self._second = system.potential_derivatives(on_axes, moments)
        self._radial = np.sum(on_axes * self._gradient, axis=1)[:, None]
        field, _ = system.potential_derivatives(on_axes, moments, student_alone=True)
        excess = -self._slopes @ followers
        excess[:, :axes] += field
        #: ε (m, D).
        self.noise: Array = self._tangent(excess)
        #: λ, the largest local Hessian of the followers.
        self.growth = float(system.motion(on_axes.ravel(), moments)[2].max())

    def rate(self, gap: Array) -> Array:
        """Return Δ' (m, D) at Δ (m, D)."""
        axes = self._gradient.shape[1]
        turn = self._w @ gap.T
        force = -self._slopes @ gap - (self._bends * turn) @ self._w
        force[:, :axes] -= np.einsum("nij,nj->ni", self._second, gap[:, :axes])
        along = np.sum(self._gradient * gap[:, :axes], axis=1)[:, None]
        rate: Array = self._tangent(force) + along * self._w + self._radial * gap + self.noise
        return rate

    def _tangent(self, vectors: Array) -> Array:
        tangent: Array = vectors - np.sum(vectors * self._w, axis=1)[:, None] * self._w
        return tangent
