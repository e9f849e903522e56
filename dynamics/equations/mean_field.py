r"""The infinite-width limit of the spherical network, closed in the projections of its neurons on the teacher.

The field at the projections a of a neuron is Φ(a) = ∫ K(a, a') ρ(da') − Σ_p a_p g*(a·θ_p) (docs/mean_field.md). For a
polynomial g the kernel is a sum of products, K = Σ_k c_k F_k(a) F_k(a'), c_k ≥ 0, so that the field needs only the
moments μ_k = ∫ F_k dρ and one evaluation costs O(N) for N particles. With μ*_k the moments that a teacher of the
student's own link has, scaled by c*_j/c_j, the loss is exact to rounding where it is small:

.. math:: E(f - f^*)^2 = \mathrm{floor} + \sum_k c_k (\mu_k - \mu^*_k)^2,

the floor being what the student's link cannot express. The F_k of r axes are the monomials a^κ u^q, u = 1 − |a|²
(`SubspaceSystem`), of one the zonal polynomials C_l of R^d (Gegenbauer, C_l(1) = 1, `AxisSystem`). Masses of the
2-homogeneous student grow by (ln n)' = −4 Φ.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.equations.interface import EquationSystem, Functions
from dynamics.equations.losses import link_powers, teacher_term
from dynamics.problem import is_homogeneous, is_spherical
from dynamics.problem.checks import check_memory, checked_integer, is_at_most, require
from hermite.arrays import real_array
from hermite.polynomials import padded
from hermite.text.messages import shown, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers


def coordinate_moments(axes: int, count: int) -> Array:
    """Return the means E z^(2q), q = 0 … count − 1, shape (count,).

    z is one coordinate of a uniform point on the unit sphere in R^axes.
    """
    moments = np.ones(count)
    for q in range(1, count):
        moments[q] = moments[q - 1] * (2 * q - 1) / (axes + 2 * q - 2)
    return moments


def zonal_coefficients(powers: Array, dimension: int) -> Array:
    """Return γ of Σ_j p_j s^j = Σ_l γ_l C_l(s), shape (J + 1,), for `powers` p_0 … p_J and d = `dimension` ≥ 2.

    C_l is the zonal (Gegenbauer) polynomial of R^d with C_l(1) = 1.

    s C_l = [(l + d − 2) C_{l+1} + l C_{l−1}] / (2l + d − 2): every weight is positive, so that nothing cancels.
    """
    degrees = np.arange(powers.size, dtype=np.float64)
    total = 2.0 * degrees + dimension - 2.0
    # For l = 0 all weight goes up, also at d = 2 where the formula is 0/0.
    up, down = np.ones(powers.size), np.zeros(powers.size)
    up[1:], down[1:] = (degrees[1:] + dimension - 2.0) / total[1:], degrees[1:] / total[1:]
    term, coefficients = np.eye(1, powers.size)[0], np.zeros(powers.size)
    for power in powers:
        coefficients += power * term
        term = np.append(0.0, (up * term)[:-1]) + np.append((down * term)[1:], 0.0)
    return coefficients


def zonal_polynomials(s: Array, dimension: float, count: int) -> Iterator[Array]:
    """Yield C_0(s) … C_(count−1)(s) of R^d, each of the shape of s."""
    before, now = np.ones_like(s), np.array(s, dtype=np.float64)
    yield from (before, now)[:count]
    for degree in range(1, count - 1):
        high = degree + dimension - 2.0
        before, now = now, ((high + degree) * s * now - degree * before) / high
        yield now


def zonal_powers(dimension: int, count: int) -> Array:
    """Return the coefficients of C_0 … C_(count−1) in powers of s, one row each, shape (count, count)."""
    rows = np.eye(count)
    for degree in range(1, count - 1):
        high = degree + dimension - 2.0
        rows[degree + 1] = ((high + degree) * np.roll(rows[degree], 1) - degree * rows[degree - 1]) / high
    return rows


#: Particles treated at a time by numpy.
BLOCK = 16384
#: Speed below which a particle counts as resting.
RESTING_SPEED = 1e-12


class MeanFieldSystem(EquationSystem):
    """A law of neurons as N particles: projections (N, r) on the r axes of the teacher, and masses (N,).

    Masses have sum 1 unless they grow; subclasses know the moments of the law.

    `levels` are fractions of E f*² below which the loss is timed; the events are these, then learned masses.
    """

    name = "mean-field"
    #: Bound on a particle's speed where the slopes of the field, as the kernels have them, sum to 1 in size.
    steepness = 1.0
    #: F_k(a), shape (M, n), of projections (n, r).
    features: Callable[[Array], Array]
    #: ∇Φ (n, r) and ∇²Φ (n, r, r) of projections (n, r) and forces c_k (μ_k − μ*_k).
    _derivatives: Callable[[Array, Array], tuple[Array, Array]]
    #: c (M,), μ* (M,), the floor, and per direction the table of ∫ g_3(w·θ_p) dρ (P, M).
    _moment_tables: Callable[[], tuple[Array, Array, float, Array]]
    #: The last two of `ParticleCounts`, the arguments `chain` and `powers` of `packed`, and the rows of scratch.
    _of_kernels: Callable[[], tuple[tuple[int, int], list[Integers], Array, int]]

    def __init__(self, problem: Problem, projections: Array, weights: Array, levels: Sequence[float]) -> None:
        """Prepare particles at `projections` (N, r) with masses `weights` (N,), and pack the numbers of the kernels.

        `levels` are fractions of the teacher's loss whose times are wanted. The state is the projections, and where
        masses grow their logarithms (N,).
        """
        # The kernels import Numba, which the rest of this module does not need.
        from dynamics.equations import mean_field_kernels as kernels

        self.problem, teacher = problem, problem.teacher
        self.weights, self.grows = weights, is_homogeneous(problem)
        self.coefficients, self.targets, self.floor, learned = self._moment_tables()
        self._learned = learned / problem.learned_part.kernel_at_one
        growing = np.log(weights) if self.grows else np.empty(0)
        self.initial_state: Array = np.concatenate([np.ravel(projections), growing])
        self._levels = np.array(levels) * self.teacher_loss()
        (first, second), chain, powers, rows = self._of_kernels()
        self.functions = Functions(
            kernels.rhs,
            kernels.event_values,
            kernels.normalise,
            choices=kernels.choices_of(teacher.span, stride=first, grows=self.grows),
        )
        numbers = kernels.ParticleNumbers(
            self.coefficients, self.targets, self._learned, teacher.coefficients, self._levels, self.floor,
            float(problem.dimension), weights,
        )  # fmt: skip
        counts = kernels.ParticleCounts(
            weights.size, self.coefficients.size, problem.num_directions, len(levels), teacher.span, int(self.grows),
            first, second,
        )  # fmt: skip
        self.num_events = len(levels) + problem.num_directions
        self.parameters: Array
        self.sizes: Integers
        self.parameters, self.sizes, self.work_size = kernels.packed(counts, chain, numbers, powers, rows)

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
        return teacher_term(self.problem)

    def moments(self, state: Array) -> Array:
        """Return the moments μ_k = Σ_i mass_i F_k(a_i), shape (M,), of the particles a_i of a state."""
        total, masses, a = np.zeros(self.coefficients.size), self.masses(state), self.unpack(state)
        for first in range(0, masses.size, BLOCK):
            total += self.features(a[first : first + BLOCK]) @ masses[first : first + BLOCK]
        return total

    def loss(self, moments: Array) -> float:
        """Return the loss E(f − f*)² = floor + Σ_k c_k (μ_k − μ*_k)², from `moments` μ (M,)."""
        return float(self.floor + self.coefficients @ (moments - self.targets) ** 2)

    def learned_mass(self, moments: Array) -> Array:
        """Return the learned mass ∫ g_3(w·θ_p) dρ / g_3(1) of each direction θ_p, shape (P,).

        ρ is the law of neurons w with the given `moments` (M,), and g_3 the part of the link's kernel that counts as
        learned, see `dynamics.problem.emergence`.
        """
        return self._learned @ moments

    def event_values(self, moments: Array) -> Array:
        """Return level − loss of each level, then learned mass − a_p/2 of each direction, at `moments` (M,)."""
        masses = self.learned_mass(moments) - 0.5 * self.problem.teacher.coefficients
        return np.concatenate([self._levels - self.loss(moments), masses])

    def overlaps(self, state: Array) -> Array:
        """Return w·θ_p of every particle w and direction θ_p, shape (N, P)."""
        rows = self.problem.teacher.directions
        projections = self.unpack(state)
        return projections if rows is None else projections @ rows.T

    def motion(self, state: Array, moments: Array) -> tuple[Array, Array, Array]:
        """Return the velocities a' (N, r), speeds |w'| (N,) on the sphere and local Hessians (N,) of the particles.

        The last is the largest eigenvalue of the derivative of a particle's velocity in its position at a fixed law.
        The eigenvalues are the r of (a·∇Φ) I − B ∇²Φ B, B² = I − aaᵀ, and a·∇Φ, d − 1 − r times.
        """
        a = self.unpack(state)
        parts = [self._block_motion(a[first : first + BLOCK], moments) for first in range(0, len(a), BLOCK)]
        velocity, speed, hessian = (np.concatenate(column) for column in zip(*parts, strict=True))
        return velocity, speed, hessian

    def _block_motion(self, a: Array, moments: Array) -> tuple[Array, Array, Array]:
        """Return what `motion` returns, for a block of particles at projections a (n, r)."""
        gradient, second = self.potential_derivatives(a, moments)
        radial = np.sum(a * gradient, axis=1)
        velocity = radial[:, None] * a - gradient
        # |P∇Φ|² = |∇Φ|² − (a·∇Φ)², written as a sum of squares.
        orthogonal = np.sqrt(np.maximum(1.0 - np.sum(a * a, axis=1), 0.0))
        root = np.eye(a.shape[1]) - a[:, :, None] * a[:, None, :] / (1.0 + orthogonal)[:, None, None]
        speed = np.sqrt(np.sum(np.einsum("nij,nj->ni", root, gradient) ** 2, axis=1))
        bend = -np.linalg.eigvalsh(root @ second @ root)[:, 0]
        if self.problem.dimension > a.shape[1] + 1:
            bend = np.maximum(bend, 0.0)
        return velocity, speed, radial + bend

    def potential_derivatives(self, a: Array, moments: Array, *, student_alone: bool = False) -> tuple[Array, Array]:
        """Return the gradient (n, r) and Hessian (n, r, r) of the field Φ at projections a (n, r).

        `moments` (M,) are those of the law; with `student_alone` the teacher's part of Φ is left out.
        """
        return self._derivatives(a, self.coefficients * (moments if student_alone else moments - self.targets))

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return a dict: loss, learned mass (P,), moments of the law (M,), and the total mass if masses grow."""
        moments = self.moments(state)
        total = {"total_mass": float(self.masses(state).sum())} if self.grows else {}
        return {"loss": self.loss(moments), "learned_mass": self.learned_mass(moments), "law_moment": moments, **total}

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return what `summarise` does, and per particle its projection, speed, local Hessian and self-concordance.

        Self-concordance is |a| times the positive part of the local Hessian over the speed, 0 for a particle at rest;
        its supremum is over particles with |a|² ≥ 1/d.
        """
        velocity, speed, hessian = self.motion(state, self.moments(state))
        projections = self.unpack(state)
        size = np.sqrt(np.sum(projections**2, axis=1))
        # Where a particle rests, growth over speed says nothing.
        moving = speed > RESTING_SPEED
        ratio = np.where(moving, size * np.maximum(hessian, 0.0) / np.where(moving, speed, 1.0), 0.0)
        on_axis = {"alpha": projections[:, 0].copy(), "velocity": velocity[:, 0]}
        beyond = size**2 * self.problem.dimension >= 1.0
        return {
            **self.summarise(state),
            **(on_axis if projections.shape[1] == 1 else {"projection": projections.copy()}),
            **({"particle_mass": self.masses(state)} if self.grows else {}),
            "speed": speed,
            "local_hessian": hessian,
            "self_concordance": ratio,
            "self_concordance_supremum": float(np.max(ratio, where=beyond, initial=0.0)),
        }


# Particles that stand for the isotropic law of neurons at t = 0. One projection α of a uniform w on the sphere in R^d
# has α² ~ Beta(½, (d − 1)/2); in the angle φ, α = sin φ, its density is ∝ cos^(d−2) φ. "graded" is the trapezoidal rule
# in x, φ = Φ sinh(x)/sinh(x_max): its error falls exponentially in N once it resolves the map from α(0) to α(t), whose
# front moves to the equator and steepens. "quantiles" are midpoint quantiles, whose error falls as a power of N.

QUADRATURES = ("auto", "graded", "quantiles", "random", "neurons")
#: The rule "graded" ends where the density has fallen to exp(−LAST_SPREAD²/2) of that at the equator.
LAST_SPREAD = 8.5
#: x_max, for nodes 15 times as close at the equator as at an even spacing in φ.
GRADING = 5.0


def halves_are_alike(problem: Problem, count: int, quadrature: str) -> bool:
    """Return whether particles at α and −α move as mirror images: the link and the number of particles are even.

    `quadrature` must also be "graded" or "quantiles", whose points are symmetric.
    """
    is_even = not problem.activation.coefficients[1::2].any()
    return is_even and count % 2 == 0 and quadrature in ("graded", "quantiles")


def start_particles(problem: Problem, count: int, quadrature: str) -> tuple[Array, Array]:
    """Return the particles at t = 0: projections (N, r), in order along one axis, and masses (N,).

    `count` is N, and `quadrature` one of `QUADRATURES`. Masses have sum 1, or for the homogeneous student the sum of
    the squared norms of its neurons.
    """
    axes, dimension, grows = problem.teacher.span, problem.dimension, is_homogeneous(problem)
    if quadrature == "neurons":
        neurons = problem.reduced_weights()
        n = np.sum(neurons**2, axis=1)
        return neurons[:, :axes] / np.sqrt(n)[:, None], n if grows else np.full(problem.width, 1.0 / problem.width)
    total = problem.width * problem.initial_norm**2 if grows else 1.0
    if quadrature == "random":
        rng = np.random.default_rng(problem.seed)
        normal, other_squares = rng.standard_normal((count, axes)), rng.chisquare(dimension - axes, count)
        projections = normal / np.sqrt(np.sum(normal**2, axis=1) + other_squares)[:, None]
        return np.sort(projections, axis=0) if axes == 1 else projections, np.full(count, total / count)
    if quadrature == "quantiles":
        from scipy.special import betaincinv

        # |α| of the upper half, from the equator outwards; the lower half is its mirror image.
        upper = (np.arange(count // 2) + 0.5 * (1 + count % 2)) * (2.0 / count)
        size = np.sqrt(betaincinv(0.5, 0.5 * (dimension - 1.0), upper))
        return np.concatenate([-size[::-1], np.zeros(count % 2), size])[:, None], total * np.full(count, 1.0 / count)
    # Exactly antisymmetric, also in rounding.
    x = (np.arange(count) - 0.5 * (count - 1)) * (2.0 * GRADING / count)
    angle = min(0.5 * np.pi, LAST_SPREAD / np.sqrt(dimension)) * np.sinh(x) / np.sinh(GRADING)
    # Logarithms: the density spans more than the range of floats in large dimensions.
    log_density = 0.5 * (dimension - 2.0) * np.log1p(-(np.sin(angle) ** 2))
    weights = np.cosh(x) * np.exp(log_density - log_density.max())
    return np.sin(angle)[:, None], total * (weights / weights.sum())


# Along one axis, with γ the zonal coefficients of Σ_j c_j² s^j and τ those of Σ_j c_j c*_j s^j: K(α, α') =
# Σ_l γ_l C_l(α) C_l(α'), μ*_l = τ_l/γ_l Σ_p a_p C_l(±1), α' = −(1 − α²) Σ_l γ_l (μ_l − μ*_l) C_l'(α).

#: Largest number of degrees at which the kernels sum powers of α: at degree 12 their coefficients reach 10^4 in the
#: plane, less in more dimensions, and so does the rounding. Beyond, they run the recurrence of the zonal polynomials.
MOST_POWERS = 13


class AxisSystem(MeanFieldSystem):
    """Particles along one axis (r = 1); moments are means of the zonal polynomials C_l of the projection."""

    def _moment_tables(self) -> tuple[Array, Array, float, Array]:
        """Return c (M,), μ* (M,), the floor of the loss, and the table of learned masses (P, M)."""
        student, teacher = link_powers(self.problem)
        counted = padded(self.problem.learned_part.coefficients, student.size)
        powers = (student**2, student * teacher, teacher**2, counted**2)
        student_part, cross_part, teacher_part, learned = (
            zonal_coefficients(series, self.problem.dimension) for series in powers
        )
        rows = self.problem.teacher.directions
        signs = np.ones(self.problem.num_directions) if rows is None else rows[:, 0]
        signs = signs[:, None] ** np.arange(student_part.size)
        mixture = self.problem.teacher.coefficients @ signs
        ratio = np.divide(cross_part, student_part, out=np.zeros_like(student_part), where=student_part > 0.0)
        missed_square = 0.0 if np.array_equal(student, teacher) else np.maximum(teacher_part - ratio * cross_part, 0.0)
        floor = float(np.sum(missed_square * mixture**2))
        return student_part, ratio * mixture, floor, signs * learned

    def _of_kernels(self) -> tuple[tuple[int, int], list[Integers], Array, int]:
        """Return (stride, start) of the powers that are summed, no chain, their table, and 2 rows of scratch."""
        count = self.coefficients.size
        if count > MOST_POWERS:
            return (0, 0), [], np.empty(0), 2
        # Degrees of one parity are summed and evaluated in α².
        odd = self.coefficients[1::2].any()
        powers = (1 if self.coefficients[::2].any() else 2, 1) if odd else (2, 2)
        return powers, [], zonal_powers(self.problem.dimension, count), 2

    def features(self, a: Array) -> Array:
        """Return the zonal polynomials C_l(a), shape (M, n), at projections a (n, 1)."""
        return np.stack(list(zonal_polynomials(a[:, 0], self.problem.dimension, self.coefficients.size)))

    def _derivatives(self, a: Array, forces: Array) -> tuple[Array, Array]:
        """Return the slope Φ' (n, 1) and the second derivative Φ'' (n, 1, 1) of the field Φ at projections a (n, 1).

        Φ(a) = Σ_l f_l C_l(a) with the zonal polynomials C_l. The `forces` f_l = c_l (μ_l − μ*_l), shape (M,), are those
        of the moments μ_l of the law, with targets μ*_l and coefficients c_l. Derivatives of C_l are zonal polynomials
        of more dimensions.
        """
        alpha, d, degree = a[:, 0], float(self.problem.dimension), np.arange(forces.size)
        slopes = (forces * degree * (degree + d - 2.0) / (d - 1.0))[1:]
        bends = (slopes * degree[:-1] * (degree[:-1] + d) / (d + 1.0))[1:]

        def total(coefficients: Array, dimension: float) -> Array:
            """Return Σ_l coefficients_l C_l(α) with zonal polynomials of R^dimension."""
            polynomials = zonal_polynomials(alpha, dimension, coefficients.size)
            return sum((c * f for c, f in zip(coefficients, polynomials, strict=True)), np.zeros_like(alpha))

        return total(slopes, d + 2.0)[:, None], total(bends, d + 4.0)[:, None, None]


# In r axes, of monomials with j = |κ| + 2q: (r + J choose J) for a link of degree J, with z as `coordinate_moments`,
#
# .. math:: K(a, a') = \sum_{\kappa, q} c_j^2 \binom{j}{2q} \frac{|\kappa|!}{\kappa!} E z^{2q}\;
# a^\kappa u^q\; a'^\kappa u'^q.

#: Largest number of monomials a^κ: beyond, a step of 10^4 particles takes a second.
LARGEST_MONOMIALS = 4000


class SubspaceSystem(MeanFieldSystem):
    """Particles in r axes; moments are means of the monomials a^κ u^q, u = 1 − |a|².

    ValueError if there are more than `LARGEST_MONOMIALS` monomials a^κ.
    """

    def __init__(self, problem: Problem, projections: Array, weights: Array, levels: Sequence[float]) -> None:
        """Prepare particles at `projections` (N, r) with masses `weights` (N,), and list the monomials."""
        axes, degree = problem.teacher.span, link_powers(problem)[0].size - 1
        words: list[tuple[int, ...]] = []
        for total in range(degree + 1):
            chosen = itertools.combinations_with_replacement(range(axes), total)
            words += [tuple(word.count(axis) for axis in range(axes)) for word in chosen]
            require(
                len(words) <= LARGEST_MONOMIALS,
                f"Argument `problem` must need at most {LARGEST_MONOMIALS} monomials for its mean field, but a link of "
                f"degree {degree} in the {axes} axes of the teacher needs more.",
            )
        places, steps = {word: k for k, word in enumerate(words)}, np.eye(axes, dtype=np.int64)
        self._exponents = np.array(words)
        #: Places of the monomials with one factor less along each axis, 0 where they have none.
        lower = self._exponents[:, None] - steps
        self._lower = np.array([[places.get(tuple(word), 0) for word in row] for row in lower.tolist()])
        self._axis = np.argmax(self._exponents > 0, axis=1)
        self._parent = self._lower[np.arange(len(words)), self._axis]
        self._powers_of_rest = 1 + degree // 2
        # A derivative of a^κ u^q is at most its degree.
        self.steepness = float(degree)
        super().__init__(problem, projections, weights, levels)

    def _moment_tables(self) -> tuple[Array, Array, float, Array]:
        """Return c (M,), μ* (M,), the floor of the loss, and the table of learned masses (P, M)."""
        student, teacher = link_powers(self.problem)
        target = self.problem.teacher
        axes, Q = target.span, self._powers_of_rest
        total = self._exponents.sum(axis=1)
        words = self._exponents.tolist()
        ways = np.array([math.factorial(sum(word)) / math.prod(map(math.factorial, word)) for word in words])
        twice = 2 * np.arange(Q)
        j = total[:, None] + twice
        squares = np.append(student**2, 0.0)[np.minimum(j, student.size)]
        choose = np.array([[math.comb(n, k) for n, k in zip(row, twice.tolist(), strict=True)] for row in j.tolist()])
        c = ways[:, None] * squares * choose * coordinate_moments(self.problem.dimension - axes, Q)
        theta = np.eye(axes) if target.directions is None else target.directions
        values = np.prod(theta[:, None, :] ** self._exponents[None], axis=2)
        ratio = np.divide(teacher, student, out=np.zeros_like(teacher), where=student != 0.0)
        mu = np.zeros((total.size, Q))
        mu[:, 0] = ratio[total] * (target.coefficients @ values)
        missed = np.where(student == 0.0, teacher**2, 0.0)
        gram, a = target.gram(), target.coefficients
        floor = float(sum(weight * a @ gram**j @ a for j, weight in enumerate(missed)))
        learned = np.zeros((target.num_directions, total.size, Q))
        learned[:, :, 0] = values * (ways * padded(self.problem.learned_part.coefficients, student.size)[total] ** 2)
        return c.ravel(), mu.ravel(), floor, learned.reshape(target.num_directions, -1)

    def _of_kernels(self) -> tuple[tuple[int, int], list[Integers], Array, int]:
        """Return (K, Q), the parents and axes of the K monomials, no powers, and the rows of scratch."""
        count, Q = len(self._exponents), self._powers_of_rest
        return (count, Q), [self._parent, self._axis], np.empty(0), 2 * count + Q + self.problem.teacher.span + 1

    def _monomials(self, a: Array) -> Array:
        """Return the K monomials a^κ, shape (K, n), at projections a (n, r)."""
        values = np.ones((len(self._exponents), a.shape[0]))
        for k in range(1, len(self._exponents)):
            values[k] = values[self._parent[k]] * a[:, self._axis[k]]
        return values

    def _rest_powers(self, a: Array) -> Array:
        """Return the powers u^q, shape (Q, n), of u = 1 − |a|² at projections a (n, r)."""
        u: Array = np.maximum(1.0 - np.sum(a * a, axis=1), 0.0)
        return u ** np.arange(self._powers_of_rest)[:, None]

    def features(self, a: Array) -> Array:
        """Return the products a^κ u^q, u = 1 − |a|², shape (M, n), at projections a (n, r); M = K Q."""
        return (self._monomials(a)[:, None, :] * self._rest_powers(a)).reshape(-1, a.shape[0])

    def _derivatives(self, a: Array, forces: Array) -> tuple[Array, Array]:
        """Return the gradient ∇Φ (n, r) and the Hessian ∇²Φ (n, r, r) of the field Φ at projections a (n, r).

        Φ(a) = Σ_κq f_κq a^κ u^q with the monomials a^κ and u = 1 − |a|². The `forces` f = c (μ − μ*), shape (M,), are
        those of the moments μ of the law, with targets μ* and coefficients c; q runs fastest.
        """
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
            times, below = self._exponents[:, i], self._lower[:, i]
            derivative = times[:, None] * values[below]
            gradient[:, i] = np.sum(derivative * of, axis=0) - 2.0 * a[:, i] * slope_u
            mixed[:, i] = np.sum(derivative * of_u, axis=0)
            for j in range(axes):
                twice = times * self._exponents[below, j]
                second[:, i, j] = np.sum(twice[:, None] * values[self._lower[below, j]] * of, axis=0)
        cross = a[:, :, None] * mixed[:, None, :]
        second += 4.0 * slope_uu[:, None, None] * a[:, :, None] * a[:, None, :]
        second -= 2.0 * (cross + cross.transpose(0, 2, 1) + slope_u[:, None, None] * np.eye(axes))
        return gradient, second


# Checks of the arguments of the mean field.

DEFAULT_PARTICLES = 4096
MOST_AXES = 8
#: Arrays of the size of the projections that a method holds.
ARRAYS_OF_PARTICLES = 30
#: A sum a_p further from 1 than this is worth a warning.
MIXTURE_TOLERANCE = 1e-6


def check_axes(problem: Problem) -> None:
    """Raise ValueError for a teacher that spans more than `MOST_AXES` axes, or all d of them."""
    axes = problem.teacher.span
    require(
        axes <= MOST_AXES,
        f"Argument `problem` must have a teacher that spans at most {MOST_AXES} axes here, but it spans {axes}.",
    )
    require(
        problem.dimension > axes,
        f"Argument `problem` must have a dimension above {axes}, the number of axes that the teacher spans, for a mean "
        f"field, but it is {problem.dimension}.",
    )


def checked_quadrature(problem: Problem, quadrature: str) -> str:
    """Return the name of the rule for a problem, with "auto" replaced by the rule it stands for."""
    axes = problem.teacher.span
    require(
        axes == 1 or quadrature not in ("graded", "quantiles"),
        f"Argument `quadrature` must be 'random' or 'neurons' for {axes} axes, but is {shown(quadrature)}.",
    )
    require(
        problem.start_is_random or quadrature in ("auto", "neurons"),
        f"Argument `quadrature` must be 'neurons' for a problem with a given start, but is {shown(quadrature)}.",
    )
    if quadrature != "auto":
        return quadrature
    return "neurons" if not problem.start_is_random else "graded" if axes == 1 else "random"


def checked_particles(problem: Problem, particles: int | None, quadrature: str) -> int:
    """Return the number of particles: `particles`, or by default the width for "neurons" and 4096 for other rules."""
    if particles is None:
        return problem.width if quadrature == "neurons" else DEFAULT_PARTICLES
    count = checked_integer(particles, "particles", minimum=1)
    check_memory("particles", count, ARRAYS_OF_PARTICLES * count * problem.teacher.span)
    require(
        quadrature != "neurons" or count == problem.width,
        f"Argument `particles` must be the width {problem.width} for quadrature 'neurons', but is {count}.",
    )
    return count


def checked_tracers(problem: Problem, tracers: ArrayLike | None) -> Array:
    """Return the projections of tracers, particles without mass, shape (n, r); shape (0, r) for None."""
    axes = problem.teacher.span
    if tracers is None:
        return np.empty((0, axes))
    require(
        not is_homogeneous(problem),
        "Argument `tracers` must be absent for the homogeneous student, whose neurons have norms, but is given.",
    )
    positions = real_array(tracers, "tracers")
    require(
        positions.ndim == 2 and positions.shape[1] == axes,
        f"Argument `tracers` must have shape (n, {axes}), but has shape {positions.shape}.",
    )
    longest = np.sqrt(np.sum(positions**2, axis=1)).max(initial=0.0)
    require(
        is_at_most(longest, 1.0),
        f"Argument `tracers` must have rows of length at most 1, but the longest has length {longest:.6g}.",
    )
    return positions


def warn_of_mixture(problem: Problem) -> None:
    """Warn where Σ a_p is not 1, so that no law of neurons fits the teacher."""
    total = float(problem.teacher.coefficients.sum())
    if is_spherical(problem) and abs(total - 1.0) > MIXTURE_TOLERANCE:
        warn(
            f"The teacher's coefficients sum to {total:.6g}, not 1: they are mixture weights here, and no law of "
            f"neurons of mass 1 and link {problem.teacher_link.name} fits this teacher."
        )


# Observables of particles: those of their system, and the distribution of their overlaps with each direction.

#: Shares of the particles whose overlap lies below the recorded quantiles.
SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
OVERLAP_BINS = 100
#: Observables of single particles -> the factor of a mirror image, and that of the particle itself.
IMAGES = {"alpha": (-1.0, 1.0), "velocity": (-1.0, 1.0), "particle_mass": (0.5, 0.5)}
IMAGES |= dict.fromkeys(("speed", "local_hessian", "self_concordance"), (1.0, 1.0))


def overlap_edges() -> Array:
    """Return the edges of the bins of an overlap, from −1 to 1."""
    return np.linspace(-1.0, 1.0, OVERLAP_BINS + 1)


def make_observer(system: MeanFieldSystem, keep: str, *, mirrored: bool) -> Callable[[Array], dict[str, object]]:
    """Return the function from a state to a dict of its observables, with the laws of overlaps.

    `keep` is "full" or "summary". With `mirrored` the particles are half of all, and their mirror images are put before
    them. "overlap_quantile" has shape (P, 7), of the shares `SHARES`, and "overlap_density" (P, 100).
    """
    observe: Callable[[Array], dict[str, Any]] = system.observer(keep)
    edges = overlap_edges()

    def record(state: Array) -> dict[str, object]:
        """Return the observables of a state and the laws of its overlaps."""
        observables, overlaps, weights = observe(state), system.overlaps(state), system.masses(state)
        weights = weights / weights.sum()
        if mirrored:
            overlaps = np.concatenate([-overlaps[::-1], overlaps])
            weights = 0.5 * np.concatenate([weights[::-1], weights])
            for name in IMAGES.keys() & observables:
                image, sign = IMAGES[name]
                observables[name] = np.concatenate([image * observables[name][::-1], sign * observables[name]])
        laws = [_law(overlap, weights, edges) for overlap in overlaps.T]
        quantiles, densities = zip(*laws, strict=True)
        return {**observables, "overlap_quantile": np.array(quantiles), "overlap_density": np.array(densities)}

    return record


def _law(overlap: Array, weights: Array, edges: Array) -> tuple[Array, Array]:
    """Return the quantiles (7,) at `SHARES` and the density over bins (100,) of weighted overlaps (N,).

    Both interpolate linearly between particles; weights have sum 1.
    """
    if (np.diff(overlap) < 0.0).any():
        order = np.argsort(overlap, kind="stable")  # fast where few are out of order
        overlap, weights = overlap[order], weights[order]
    share = np.cumsum(weights) - 0.5 * weights
    knots, shares = np.concatenate([[-1.0], overlap, [1.0]]), np.concatenate([[0.0], share, [1.0]])
    at_edges = np.interp(edges, knots, shares)
    # The ends themselves may carry particles.
    at_edges[0], at_edges[-1] = 0.0, 1.0
    return np.interp(SHARES, share, overlap), np.diff(at_edges) / np.diff(edges)
