r"""The spherical network of finite width in its unit vectors, f(x) = (1/m) Σ_i σ(w_i·x), |w_i| = 1.

The tangential gradient flow of ½ E(f − f*)², with velocities scaled by the width,

.. math:: w_i' = F_i - (F_i\cdot w_i)\, w_i, \qquad
   F_i = \sum_p a_p\, g^{*\prime}(w_i\cdot\theta_p)\, \theta_p - \frac1m \sum_{j \ne i} g'(w_i\cdot w_j)\, w_j,

g*(s) = Σ_j c_j c*_j s^j, in the D = min(d, r + m) coordinates that no gradient leaves: 4 m² D operations, where the
closed overlaps of `dynamics.equations.overlaps` at n_i = 1/m take 2 m³.

State y = W (m, D), rows of length 1; sizes = [m, P, D, rows of θ, sign_matters, place of the link, J, n], of which the
first six are those of `dynamics.equations.vectors`, for J coefficients of g* and n levels of the loss; parameters =
[a (P) | θ (rows, D) | c c* (J) | levels (n) | E f*² | link]. The Gram matrix is made in strips of `STRIP` rows, which
stay in the cache. Scratch: two strips (STRIP, m), or C and the learned masses (m, P) and n (m).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.equations import vectors
from dynamics.equations.interface import Functions, System
from dynamics.equations.link import link_at, with_link, write_g0, write_g1
from dynamics.equations.losses import largest_overlaps, link_powers, squared_error, teacher_term, without_rounding
from dynamics.equations.mean_field import AxisSystem, SubspaceSystem
from dynamics.equations.network.steps import step_source, step_units, write_erf_second, write_polynomial_second
from dynamics.equations.overlaps import normalise, write_gram
from dynamics.equations.vectors import LINK, teacher_rows, unit_vectors
from dynamics.kernels.jit import inlined_kernel, kernel, matrix, row_part, vector
from dynamics.kernels.products import is_stopped, product
from hermite.arrays import Integers, Vector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dynamics.equations.mean_field import MeanFieldSystem
    from dynamics.problem import Problem
    from hermite.arrays import Array

# Rows of the Gram matrix treated at a time.
STRIP = 32
TERMS, LEVELS = 6, 7


@kernel
def strips(y: Vector, first: int, sizes: Integers, work: Vector) -> tuple[Vector, Vector]:
    """Write and return w_i·w_j of up to STRIP neurons from `first` on with all, flat, and return as much scratch."""
    m, D = sizes[0], sizes[2]
    rows = min(STRIP, m - first)
    product(matrix(y, first * D, rows, D), matrix(y, 0, m, D).T, matrix(work, 0, rows, m))
    return vector(work, 0, rows * m), vector(work, STRIP * m, rows * m)


@kernel
def pull(s: float, parameters: Vector, sizes: Integers) -> tuple[float, float]:
    """Return g*(s) and g*'(s), by Horner's rule."""
    first = sizes[1] + sizes[3] * sizes[2]
    value = slope = 0.0
    for j in range(sizes[TERMS] - 1, -1, -1):
        slope = slope * s + value
        value = value * s + parameters[first + j]
    return value, slope


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write w' = F − (F·w) w, F_i = Σ_p a_p g*'(w_i·θ_p) θ_p − (1/m) Σ_{j≠i} g'(w_i·w_j) w_j."""
    m, P, D = sizes[0], sizes[1], sizes[2]
    W, F, A = matrix(y, 0, m, D), matrix(out, 0, m, D), matrix(work, 0, m, P)
    link = link_at(parameters, sizes[LINK])
    for first in range(0, m, STRIP):
        if is_stopped(sizes):
            return
        overlaps, slopes = strips(y, first, sizes, work)
        write_g1(link, overlaps, slopes)
        rows = slopes.size // m
        for i in range(rows):
            # The force of a neuron on itself is radial.
            slopes[i * m + first + i] = 0.0
        product(matrix(slopes, 0, rows, m), W, matrix(out, first * D, rows, D))
    for k in range(out.size):
        out[k] *= -1.0 / m
    vectors.write_overlaps(y, A, parameters, sizes)
    for i in range(m):
        for p in range(P):
            A[i, p] = parameters[p] * pull(A[i, p], parameters, sizes)[1]
    vectors.add_pull(A, matrix(parameters, P, sizes[3], D), F)
    vectors.make_tangent(W, F, vector(work, 0, m))


@kernel
def write_all_events(own: float, C: Vector, parameters: Vector, sizes: Integers, work: Vector, out: Vector) -> None:
    """Write level − loss per level, then the values of `write_events` for n = 1/m; `own` is the mean of g(w_i·w_j)."""
    m, P, levels = sizes[0], sizes[1], sizes[LEVELS]
    loss, first = own, P + sizes[3] * sizes[2] + sizes[TERMS]
    for i in range(m):
        for p in range(P):
            loss -= 2.0 / m * parameters[p] * pull(C[i * P + p], parameters, sizes)[0]
    for k in range(levels):
        out[k] = parameters[first + k] - loss - parameters[first + levels]
    n, link = vector(work, m * P, m), link_at(parameters, sizes[LINK])
    n.fill(1.0 / m)
    vectors.write_events(C, n, parameters, link, sizes[4], vector(work, 0, m * P), vector(out, levels, 2 * P))


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of `write_all_events`."""
    m, P, own = sizes[0], sizes[1], 0.0
    for first in range(0, m, STRIP):
        overlaps, values = strips(y, first, sizes, work)
        write_g0(link_at(parameters, sizes[LINK]), overlaps, values)
        own += np.sum(values)
    vectors.write_overlaps(y, matrix(work, 0, m, P), parameters, sizes)
    rest = vector(work, m * P, work.size - m * P)
    write_all_events(own / m / m, vector(work, 0, m * P), parameters, sizes, rest, out)


class SphericalObservables(System):
    """Observables of overlaps w·θ; `levels` are fractions of E f*² below which the loss is timed."""

    #: w_i·θ_p, shape (m, P), and E(f − f*)² of a state.
    overlaps: Callable[[Array], Array]
    loss: Callable[[Array], float]

    def __init__(self, problem: Problem, levels: Sequence[float]) -> None:
        student, other = link_powers(problem)
        self.problem = problem
        self.num_events = len(levels) + 2 * problem.num_directions
        self._kernel = student * other
        self._fixed: list[Array] = [self._kernel, np.array([*levels, 1.0]) * self.teacher_loss()]

    def teacher_loss(self) -> float:
        """Return E f*², the loss of f = 0."""
        return teacher_term(self.problem)

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return loss, and per direction the largest overlap and the learned mass."""
        C, part = self.overlaps(state), self.problem.learned_part
        mass = part.kernel(C).mean(axis=0) / part.kernel_at_one
        return {"loss": self.loss(state), "max_overlap": largest_overlaps(self.problem, C), "learned_mass": mass}


class SphericalSystem(SphericalObservables):
    """State and observables of the network of finite width."""

    name = "spherical"
    functions = Functions(rhs, event_values, vectors.normalise)

    def __init__(self, problem: Problem, levels: Sequence[float]) -> None:
        super().__init__(problem, levels)
        start, _ = unit_vectors(problem)
        self.initial_state: Array = start.ravel()
        (m, D), P, self._rows = start.shape, problem.num_directions, teacher_rows(problem, start.shape[1])
        numbers = [problem.teacher.coefficients, self._rows, *self._fixed]
        counts = [self._kernel.size, len(levels)]
        self.parameters, self.sizes = with_link(problem, [m, P, D, len(self._rows)], numbers, counts)
        self.work_size = max(2 * STRIP * m, 2 * m * P + m)

    def unpack(self, state: Array) -> Array:
        """Return the neurons (m, D) of a state."""
        return state.reshape(self.problem.width, -1)

    def overlaps(self, state: Array) -> Array:
        """Return w_i·θ_p, shape (m, P)."""
        W = self.unpack(state)
        return W @ self._rows.T if self._rows.size else W[:, : self.problem.num_directions]

    def loss(self, state: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        return squared_error(self.problem, self.unpack(state), self.overlaps(state))

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return what `summarise` does, the overlaps C and the neurons W."""
        W = self.unpack(state).copy()
        return self.summarise(state) | {"teacher_overlap": self.overlaps(state), "neuron_vector": W}


# Neurons that follow the mean field, and the linear equation of their distance from a network of finite width.
#
# With w̄_i a neuron that follows the field from the start of neuron i, and Δ_i = w_i − w̄_i, to first order,
# .. math:: \Delta_i' = D_i \Delta_i - \frac1m\sum_j H_{ij} \Delta_j + \varepsilon_i, \qquad
# H_{ij} = P_i\, [\, g'(s_{ij}) I + g''(s_{ij})\, \bar w_j \bar w_i^T ]\, , \quad s_{ij} = \bar w_i\cdot\bar w_j,
# \quad P_i = I - \bar w_i \bar w_i^T,
#
# D_i the derivative of the velocity −P∇Φ in a neuron's position, the law held fixed, and ε_i the velocity at w̄ in
# the field of the m neurons w̄_j less that in the mean field. Σ_ij Δ_i·H_ij Δ_j is not negative for tangent Δ. So with
# λ the largest local Hessian, d‖Δ‖/dt ≤ λ ‖Δ‖ + ‖ε‖, ‖Δ‖² = mean_i |Δ_i|².


def make_particle_system(problem: Problem, projections: Array) -> MeanFieldSystem:
    """Return the mean field's system with particles of equal weight at projections (n, r), and no level of the loss."""
    make_system = AxisSystem if problem.teacher.span == 1 else SubspaceSystem
    return make_system(problem, projections, np.full(len(projections), 1.0 / len(projections)), ())


def followers_in_space(start: Array, projections: Array) -> Array:
    """Return neurons (T, m, D) that follow the field from a start (m, D), from their projections (T, m, r)."""
    axes = projections.shape[2]
    rest = start[:, axes:] / np.linalg.norm(start[:, axes:], axis=1, keepdims=True)
    length = np.sqrt(np.maximum(1.0 - np.sum(projections**2, axis=2), 0.0))
    return np.concatenate([projections, length[:, :, None] * rest], axis=2)


class LinearisedCoupling:
    """The linear equation at one instant, of neurons w̄ (m, D) that follow the field and the field's moments (M,)."""

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
        return np.asarray(self._tangent(force) + along * self._w + self._radial * gap + self.noise)

    def _tangent(self, vectors: Array) -> Array:
        return np.asarray(vectors - np.sum(vectors * self._w, axis=1)[:, None] * self._w)


# The same network under SGD with steps of a finite size γ = η d, d → ∞.
#
# One step on B samples moves each neuron against the tangential gradient, scaled by the width, and back to the sphere,
# w ← (w − η u)/|w − η u|, with u_i the mean of e σ'(w_i·x) (x − (w_i·x) w_i). u_i is orthogonal to w_i, so that the
# length is √(1 + η²|u_i|²), and as d → ∞ u_i·u_j is d/B times the mean of e² σ'_i σ'_j over the batch. With C = WΘᵀ,
# G = WWᵀ, in the time η · step,
#
# .. math:: C_{ip}' = F_i\cdot\theta_p - (F_i\cdot w_i)\, C_{ip} - \frac{\gamma}{2B} V_{ii} C_{ip}, \qquad
#    V_{ij} = E[(\bar e^2 + \tau^2)\, \sigma'_i \sigma'_j],
#
#    G_{ij}' = F_i\cdot w_j + w_i\cdot F_j - (F_i\cdot w_i + F_j\cdot w_j)\, G_{ij}
#    + \frac{\gamma}{B} \Big[V_{ij} - \tfrac12 G_{ij} (V_{ii} + V_{jj})\Big].
#
# At finite d the mean step does not close: dividing by the length brings in means of all powers of η. V is known for
# polynomial links and for neurons of erf(z/√2): see `dynamics.equations.network.steps`.
#
# State y = [C (m, P) | G (m, m)], sizes = [m, P, P, P, sign_matters, place of the link, J, n, M, place of the numbers |
# layout], as those of the flow with T for the directions, parameters = [a (P) | T (P, P) | c c* (J) | levels of the
# loss (n) | E f*² | γ/B | τ² | biases (M), all 0 | weights (M) | numbers | link], for M vectors: neurons, directions,
# and what has no direction. `numbers` and `layout` are those of `dynamics.equations.network.steps`.
#
# Functions that take another one are inlined: Numba stores no function on disk that hands one over at run time.

VECTORS, NUMBERS, LAYOUT = 8, 9, 10


@inlined_kernel
def write_rates(
    write_step_second: Callable[..., None], y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """C' = X − diag(r) C − ½ γ/B diag(V) C and the same of G with γ/B V, X = N gram, r = X_ii."""
    m, P, M = sizes[0], sizes[1], sizes[VECTORS]
    gram, N, X = matrix(work, 0, M, M), matrix(work, M * M, m, M), matrix(work, M * M + m * M, m, M)
    V, at, link = matrix(work, M * M + 2 * m * M, m, m), sizes[NUMBERS], link_at(parameters, sizes[LINK])
    gram.fill(0.0)
    write_gram(y, m, matrix(parameters, P, P, P), gram)
    vectors = (gram, parameters[at - 2 * M : at - M], parameters[at - M : at])
    numbers, scratch = parameters[at : sizes[LINK]], work[M * M + 2 * m * M + m * m :]
    write_step_second(vectors, parameters[at - 2 * M - 1], 1.0, False, m, numbers, sizes[LAYOUT:], scratch, V)
    for i in range(m):
        write_g1(link, row_part(gram, i, 0, m), row_part(N, i, 0, m))
        for j in range(m):
            N[i, j] *= -1.0 / m
        # The force of a neuron on itself is radial.
        N[i, i] = 0.0
        for p in range(P):
            N[i, m + p] = parameters[p] * pull(gram[i, m + p], parameters, sizes)[1]
        for j in range(m + P, M):
            N[i, j] = 0.0
    product(N, gram, X)
    rate = parameters[at - 2 * M - 2]
    for i in range(m):
        lost = X[i, i] + 0.5 * rate * V[i, i]
        for p in range(P):
            out[i * P + p] = X[i, m + p] - lost * gram[i, m + p]
        out[m * P + i * m + i] = 0.0
        for j in range(i):
            both = lost + X[j, j] + 0.5 * rate * V[j, j]
            change = X[i, j] + X[j, i] + rate * V[i, j] - both * gram[i, j]
            out[m * P + i * m + j] = out[m * P + j * m + i] = change


@kernel
def rhs_of_erf(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates for neurons of erf."""
    write_rates(write_erf_second, y, out, parameters, sizes, work)


@kernel
def rhs_of_polynomials(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates for neurons of a polynomial."""
    write_rates(write_polynomial_second, y, out, parameters, sizes, work)


@kernel
def step_event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of `write_all_events`."""
    m, P = sizes[0], sizes[1]
    values = vector(work, 0, m * m)
    write_g0(link_at(parameters, sizes[LINK]), vector(y, m * P, m * m), values)
    write_all_events(np.sum(values) / m / m, vector(y, 0, m * P), parameters, sizes, work, out)


class SphericalStepSystem(SphericalObservables):
    """The network under mean steps of B samples; ValueError if the means of the links are not known exactly."""

    name = "spherical-step"

    def __init__(self, problem: Problem, levels: Sequence[float], learning_rate: float, batch_size: int = 1) -> None:
        super().__init__(problem, levels)
        start, (m, P), units = problem.start(), (problem.width, problem.num_directions), step_units(problem)
        M, gram, noise = m + len(units), problem.teacher.gram(), step_source(problem.activation, m, units, biased=False)
        velocity, second = rhs_of_erf, write_erf_second
        if noise.is_polynomial:
            velocity, second = rhs_of_polynomials, write_polynomial_second
        self.functions = Functions(velocity, step_event_values, normalise, choices=(second,))
        self.initial_state: Array = np.concatenate([start.teacher_overlap.ravel(), start.student_overlap.ravel()])
        self._inverse_gram = np.linalg.pinv(gram)
        weights = [1.0 / m] * m + [-unit.coefficient for unit in units]
        step = [learning_rate * problem.dimension / batch_size, problem.label_noise**2]
        given: list[Any] = [problem.teacher.coefficients, gram, *self._fixed, step, np.zeros(M), weights]
        counts = [self._kernel.size, len(levels), M, sum(np.size(part) for part in given)]
        counts += noise.layout.tolist()
        self.parameters, self.sizes = with_link(problem, [m, P, P, P], [*given, noise.numbers], counts)
        self.work_size = M * M + 2 * m * M + m * m + noise.work_size

    def unpack(self, state: Array) -> tuple[Array, Array]:
        """Return views (C, G) of a state."""
        m, P = self.problem.width, self.problem.num_directions
        return state[: m * P].reshape(m, P), state[m * P :].reshape(m, m)

    def overlaps(self, state: Array) -> Array:
        """Return w_i·θ_p, shape (m, P)."""
        return self.unpack(state)[0]

    def loss(self, state: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        C, G = self.unpack(state)
        attraction = np.polynomial.polynomial.polyval(C, self._kernel).mean(axis=0)
        own, constant = float(self.problem.activation.kernel(G).mean()), self._fixed[1][-1]
        loss = own - 2.0 * attraction @ self.problem.teacher.coefficients + constant
        return float(without_rounding(loss, own + constant))

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return loss, margin, and per direction the largest overlap and the learned mass."""
        C, G = self.unpack(state)
        margin = float(np.linalg.eigvalsh(G - C @ self._inverse_gram @ C.T)[0])
        return {**super().summarise(state), "gram_margin": margin}

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return what `summarise` does, and the overlaps C and G."""
        C, G = self.unpack(state)
        return {**self.summarise(state), "teacher_overlap": C.copy(), "student_overlap": G.copy()}
