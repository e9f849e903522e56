r"""The spherical network of finite width in its unit vectors, f(x) = (1/m) Σ_i σ(w_i·x), |w_i| = 1.

The tangential gradient flow of ½ E(f − f*)², with velocities scaled by the width,

.. math:: w_i' = F_i - (F_i\cdot w_i)\, w_i, \qquad
   F_i = \sum_p a_p\, g^{*\prime}(w_i\cdot\theta_p)\, \theta_p - \frac1m \sum_{j \ne i} g'(w_i\cdot w_j)\, w_j,

g(s) = Σ_j c_j² s^j, g*(s) = Σ_j c_j c*_j s^j, in the D = min(d, r + m) coordinates that no gradient leaves. The
overlaps (C, G) close too, with the algebra of `equations.overlaps.system` at n_i = 1/m, but carry m² numbers at 2 m³
operations where these are m D at 4 m² D: wide networks in few dimensions, the case of interest here, want the vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions, System
from dynamics.equations.mean_field import AxisSystem, SubspaceSystem, link_powers, teacher_square
from dynamics.equations.pairs.unit_vectors import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dynamics.equations.mean_field import MeanFieldSystem
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers


#: Numbers of the Gram matrix treated at a time by numpy.
PAIRS = 1 << 20


class SphericalSystem(System):
    """State and observables of the network of finite width.

    `levels` are fractions of E f*² below which the loss is timed; the events are these, then per direction its
    emergence, then its learned mass.
    """

    name = "spherical"

    def __init__(self, problem: Problem, levels: Sequence[float]) -> None:
        # Imported here because the functions of this module need no Numba.
        from dynamics.equations.pairs.link import BLOCK, link_data
        from dynamics.equations.spherical_kernels import STRIP, event_values, normalise, rhs

        self.functions = Functions(rhs, event_values, normalise)
        start, _ = unit_vectors(problem)
        teacher = problem.teacher
        m, P = problem.width, problem.num_directions
        student, other = link_powers(problem)
        self.problem = problem
        self.shape = start.shape
        self.initial_state: Array = start.ravel()
        self._rows = np.eye(teacher.span) if teacher.directions is None else teacher.directions
        self._pull = student * other
        scale = self.teacher_loss()
        fixed = [teacher.coefficients, self._rows.ravel(), self._pull, np.array(levels) * scale, [scale]]
        link = link_data(problem)
        self.parameters: Array = np.concatenate([*fixed, link])
        counts = [m, P, self.shape[1], teacher.span, self._pull.size, len(levels), problem.information_exponent % 2]
        self.sizes: Integers = np.array([*counts, self.parameters.size - link.size], dtype=np.int64)
        self.work_size = STRIP * m + BLOCK
        self.num_events = len(levels) + 2 * P

    def unpack(self, state: Array) -> Array:
        """Return the neurons (m, D) of a state."""
        return state.reshape(self.shape)

    def overlaps(self, state: Array) -> Array:
        """Return w_i·θ_p, shape (m, P)."""
        return self.unpack(state)[:, : self._rows.shape[1]] @ self._rows.T

    def teacher_loss(self) -> float:
        """Return E f*², the loss of f = 0."""
        return teacher_square(self.problem)

    def loss(self, state: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        return squared_error(self.problem, self.unpack(state), self.overlaps(state))

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return loss, and per direction the largest overlap and the learned mass."""
        C, part = self.overlaps(state), self.problem.learned_part
        size = np.maximum(C, 0.0) if self.problem.information_exponent % 2 else np.abs(C)
        return {
            "loss": self.loss(state),
            "max_overlap": size.max(axis=0),
            "learned_mass": part.kernel(C).mean(axis=0) / part.kernel_at_one,
        }

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return what `summarise` does, the overlaps C and the neurons W."""
        return {
            **self.summarise(state),
            "teacher_overlap": self.overlaps(state),
            "neuron_vector": self.unpack(state).copy(),
        }


def squared_error(problem: Problem, vectors: Array, overlaps: Array) -> float:
    """Return E(f − f*)² of neurons w (m, D) with overlaps w·θ (m, P)."""
    student, other = link_powers(problem)
    attraction = np.polynomial.polynomial.polyval(overlaps, student * other).mean(axis=0)
    own = mean_of_pairs(vectors, problem.activation.kernel)
    return float(own - 2.0 * attraction @ problem.teacher.coefficients + teacher_square(problem))


def mean_of_pairs(vectors: Array, kernel: Callable[[Array], Array], others: Array | None = None) -> float:
    """Return (1/mn) Σ_ij g(w_i·v_j) for w (m, D) and v (n, D), w itself by default; strips keep memory that of w."""
    second = vectors if others is None else others
    strip = max(PAIRS // len(second), 1)
    total = 0.0
    for first in range(0, len(vectors), strip):
        total += float(kernel(vectors[first : first + strip] @ second.T).sum())
    return float(total / (len(vectors) * len(second)))


# Neurons that follow the mean field, and the linear equation of their distance from a network of finite width.
#
# With w̄_i a neuron that follows the field from the start of neuron i, and Δ_i = w_i − w̄_i, to first order
#
# .. math:: \Delta_i' = D_i \Delta_i - \frac1m\sum_j H_{ij} \Delta_j + \varepsilon_i, \qquad
# H_{ij} = P_i\, [\, g'(s_{ij}) I + g''(s_{ij})\, \bar w_j \bar w_i^T ]\, , \quad s_{ij} = \bar w_i\cdot\bar w_j,
# \quad P_i = I - \bar w_i \bar w_i^T,
#
# D_i the derivative of the velocity −P∇Φ in a neuron's position, the law held fixed, and ε_i the velocity at w̄ in
# the field of the m neurons w̄_j less that in the mean field. Σ_ij Δ_i·H_ij Δ_j ≥ 0 for tangent Δ, because it is m²
# times the mean square of the change of f, so that the interaction only damps: with λ the largest local Hessian, the
# largest eigenvalue of any D_i on the tangent space,
#
# .. math:: \frac{d}{dt}\|\Delta\| \le \lambda \|\Delta\| + \|\varepsilon\|, \qquad
# \|\Delta\|^2 = \mathrm{mean}_i |\Delta_i|^2.
#
# Dimensionless throughout.


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
