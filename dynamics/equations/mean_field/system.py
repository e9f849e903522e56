r"""The infinite-width limit of the spherical network, closed in the projections of its neurons on the teacher.

Neurons w on the unit sphere of R^d with law ρ compute f(x) = ∫ σ(w·x) ρ(dw) and follow the tangential gradient of
½ E(f − f*)², with velocities scaled by the width,

.. math:: w' = -(I - w w^T) \nabla\Phi(w), \qquad
   \Phi(w) = \int K(w, w')\, \rho(dw') - \sum_p a_p\, g^*(w\cdot\theta_p), \qquad g^*(s) = \sum_j c_j c^*_j s^j.

A law that is isotropic at the start stays invariant under rotations that keep the teacher, so that Φ depends on the
projections a of w on the r axes of the teacher alone, at every dimension d > r:

.. math:: a' = -(I - a a^T)\, \nabla\Phi(a), \qquad K(a, a') = E_z\, g(a\cdot a' + s s' z), \quad s^2 = 1 - |a|^2,

z one coordinate of the uniform law on the sphere of the other d − r axes. For a polynomial g the kernel is a sum of
products, K = Σ_k c_k F_k(a) F_k(a'), c_k ≥ 0, so that the field needs only the moments μ_k = ∫ F_k dρ and one
evaluation costs O(N) for N particles, never N². For r = 1 the F_k are the zonal polynomials of R^d
(`equations.mean_field.axis`), for r > 1 the monomials a^κ u^q, u = 1 − |a|² (`equations.mean_field.subspace`). With
μ*_k the moments that a teacher of the student's own link has, scaled by c*_j/c_j, the loss is a sum of squares too,

.. math:: E(f - f^*)^2 = \mathrm{floor} + \sum_k c_k (\mu_k - \mu^*_k)^2,

where the floor is what the student's link cannot express. No difference of large terms: small losses are exact to
rounding.

The 2-homogeneous student f(x) = Σ_i n_i σ(u_i·x), n_i = |w_i|², is the same system with masses that grow: in the
measure ρ = Σ_i n_i δ_(u_i) its flow is u' = −(I − uuᵀ) ∇Φ(u) and (ln n)' = −4 Φ(u). The clock is the same.

Dimensionless throughout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import System
from dynamics.problem import is_homogeneous

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dynamics.equations.mean_field.mean_field_kernels import Particles
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

#: Particles treated at a time by numpy.
BLOCK = 16384
#: Speed below which a particle counts as resting.
RESTING_SPEED = 1e-12


class MeanFieldSystem(System):
    """State and observables of particles with projections (N, r) and positive masses (N,); its subclasses know moments.

    For the spherical student the masses sum to 1 and stay. `levels` are fractions of E f*² below which the loss is
    timed; the events are these, then the directions' learned masses.
    """

    name = "mean-field"
    #: The compiled kernels of the particles.
    particles: Particles
    #: Bound on a particle's speed where the slopes of the field, as the kernels have them, sum to 1 in size.
    steepness = 1.0

    def __init__(self, problem: Problem, projections: Array, weights: Array, levels: Sequence[float]) -> None:
        self.problem = problem
        self.weights = weights
        self.coefficients, self.targets, self.floor, learned = self._moment_tables()
        self._learned = learned / problem.learned_part.kernel_at_one
        self.grows = is_homogeneous(problem)
        growing = np.log(weights) if self.grows else np.empty(0)
        self.initial_state: Array = np.concatenate([np.ravel(projections), growing])
        scalars = [self.floor, float(problem.dimension)]
        self.parameters: Array = np.concatenate(
            [
                self.coefficients,
                self.targets,
                self._learned.ravel(),
                problem.teacher.coefficients,
                np.array(levels) * self.teacher_loss(),
                scalars,
                weights,
                self._further_parameters(),
            ]
        )
        counts = [weights.size, self.coefficients.size, problem.num_directions, len(levels)]
        self.sizes: Integers = np.array(
            [*counts, problem.teacher.span, int(self.grows), *self._layout()], dtype=np.int64
        )
        self.num_events = len(levels) + problem.num_directions
        self.work_size = 3 * self.coefficients.size + self.particles.lanes + self._scratch_size()
        self._levels = np.array(levels)

    def _moment_tables(self) -> tuple[Array, Array, float, Array]:
        """Return c (M,), μ* (M,), the floor, and per direction the table of ∫ g_3(w·θ_p) dρ (P, M)."""
        raise NotImplementedError

    def _layout(self) -> list[int]:
        """Return the integers that follow the common ones in `sizes`."""
        return []

    def _further_parameters(self) -> Array:
        """Return the numbers that follow the masses in `parameters`."""
        return np.empty(0)

    def _scratch_size(self) -> int:
        """Return the numbers of scratch that the kernels of the particles need for a block."""
        raise NotImplementedError

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component: for projections in units of 1/√d, the size of a random one."""
        tolerance = np.full(self.initial_state.size, atol)
        self.unpack(tolerance)[:] /= np.sqrt(self.problem.dimension)
        return tolerance

    def unpack(self, state: Array) -> Array:
        """Return the projections (N, r) of a state, a view."""
        count, axes = self.weights.size, self.problem.teacher.span
        return state[: count * axes].reshape(count, axes)

    def masses(self, state: Array) -> Array:
        """Return the masses (N,) of a state."""
        return np.exp(state[-self.weights.size :]) if self.grows else self.weights

    def teacher_loss(self) -> float:
        """Return E f*², the loss of f = 0."""
        return teacher_square(self.problem)

    def moments(self, state: Array) -> Array:
        """Return μ (M,)."""
        total, masses = np.zeros(self.coefficients.size), self.masses(state)
        for rows in self._blocks():
            total += self.features(self.unpack(state)[rows]) @ masses[rows]
        return total

    def loss(self, moments: Array) -> float:
        """Return E(f − f*)²."""
        return float(self.floor + self.coefficients @ (moments - self.targets) ** 2)

    def learned_mass(self, moments: Array) -> Array:
        """Return ∫ g_3(w·θ_p) dρ / g_3(1) per direction, shape (P,); g_3 is that of `dynamics.problem.emergence`."""
        return self._learned @ moments

    def event_values(self, moments: Array) -> Array:
        """Return what the kernel `event_values` writes."""
        masses = self.learned_mass(moments) - 0.5 * self.problem.teacher.coefficients
        return np.concatenate([self._levels * self.teacher_loss() - self.loss(moments), masses])

    def overlaps(self, state: Array) -> Array:
        """Return w·θ_p of every particle, shape (N, P)."""
        rows = self.problem.teacher.directions
        projections = self.unpack(state)
        return projections if rows is None else projections @ rows.T

    def motion(self, state: Array, moments: Array) -> tuple[Array, Array, Array]:
        r"""Return a' (N, r), and on the sphere the speed |w'| (N,) and the local Hessian (N,).

        The local Hessian is the largest eigenvalue of the derivative of a particle's velocity in its position, the
        law held fixed: on the tangent space −(I − wwᵀ) ∇²Φ + (w·∇Φ) I. Its r eigenvalues within the teacher's axes
        are those of (a·∇Φ) I − B ∇²Φ B, B² = I − aaᵀ; the other d − 1 − r are a·∇Φ.
        """
        parts = [self._block_motion(self.unpack(state)[rows], moments) for rows in self._blocks()]
        velocity, speed, hessian = (np.concatenate(column) for column in zip(*parts, strict=True))
        return velocity, speed, hessian

    def _block_motion(self, a: Array, moments: Array) -> tuple[Array, Array, Array]:
        gradient, second = self.potential_derivatives(a, moments)
        radial = np.sum(a * gradient, axis=1)
        velocity = radial[:, None] * a - gradient
        # |P∇Φ|² = |∇Φ|² − (a·∇Φ)², written as a sum of squares.
        rest = np.sqrt(np.maximum(1.0 - np.sum(a * a, axis=1), 0.0))
        root = np.eye(a.shape[1]) - a[:, :, None] * a[:, None, :] / (1.0 + rest)[:, None, None]
        speed = np.sqrt(np.sum(np.einsum("nij,nj->ni", root, gradient) ** 2, axis=1))
        bend = -np.linalg.eigvalsh(root @ second @ root)[:, 0]
        if self.problem.dimension > a.shape[1] + 1:
            bend = np.maximum(bend, 0.0)
        return velocity, speed, radial + bend

    def potential_derivatives(self, a: Array, moments: Array, *, student_alone: bool = False) -> tuple[Array, Array]:
        """Return ∇Φ (n, r) and ∇²Φ (n, r, r) at projections (n, r), without the teacher's part if asked to."""
        return self._derivatives(a, self.coefficients * (moments if student_alone else moments - self.targets))

    def features(self, a: Array) -> Array:
        """Return F_k(a), shape (M, n), of projections (n, r)."""
        raise NotImplementedError

    def _derivatives(self, a: Array, forces: Array) -> tuple[Array, Array]:
        """Return ∇Φ (n, r) and ∇²Φ (n, r, r)."""
        raise NotImplementedError

    def _blocks(self) -> Iterator[slice]:
        for first in range(0, self.weights.size, BLOCK):
            yield slice(first, first + BLOCK)

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return loss, learned mass and moments, and the total mass if it grows."""
        moments = self.moments(state)
        total = {"total_mass": float(self.masses(state).sum())} if self.grows else {}
        return {"loss": self.loss(moments), "learned_mass": self.learned_mass(moments), "law_moment": moments, **total}

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return loss, learned mass, moments, and of every particle position, speed and local Hessian."""
        velocity, speed, hessian = self.motion(state, self.moments(state))
        projections = self.unpack(state)
        size = np.sqrt(np.sum(projections**2, axis=1))
        # Where a particle rests, growth over speed says nothing.
        moving = speed > RESTING_SPEED
        ratio = np.where(moving, size * np.maximum(hessian, 0.0) / np.where(moving, speed, 1.0), 0.0)
        position = (
            {"alpha": projections[:, 0].copy(), "velocity": velocity[:, 0]}
            if projections.shape[1] == 1
            else {"projection": projections.copy()}
        )
        if self.grows:
            position["particle_mass"] = self.masses(state)
        return {
            **self.summarise(state),
            **position,
            "speed": speed,
            "local_hessian": hessian,
            "self_concordance": ratio,
            "self_concordance_supremum": float(
                np.max(ratio, where=size**2 * self.problem.dimension >= 1.0, initial=0.0)
            ),
        }


def link_powers(problem: Problem) -> tuple[Array, Array]:
    """Return c and c* of student and teacher at one length, without zeros at the end."""
    links = [problem.activation.coefficients, problem.teacher_link.coefficients]
    count = max(int(np.flatnonzero(c)[-1]) + 1 if c.any() else 1 for c in links)
    student, teacher = (np.pad(c[:count], (0, max(count - c.size, 0))) for c in links)
    return student, teacher


def learned_powers(problem: Problem, count: int) -> Array:
    """Return the first `count` coefficients of the student's link, 0 where they do not count in the learned mass."""
    c = problem.learned_part.coefficients[:count]
    return np.pad(c, (0, count - c.size))


def teacher_square(problem: Problem) -> float:
    """Return E f*², the loss of f = 0."""
    a = problem.teacher.coefficients
    return float(a @ problem.teacher_link.kernel(problem.teacher.gram()) @ a)
