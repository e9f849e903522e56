r"""The spherical network of finite width in its unit vectors, f(x) = (1/m) Σ_i σ(w_i·x), |w_i| = 1.

The tangential gradient flow of ½ E(f − f*)², with velocities scaled by the width,

.. math:: w_i' = F_i - (F_i\cdot w_i)\, w_i, \qquad
   F_i = \sum_p a_p\, g^{*\prime}(w_i\cdot\theta_p)\, \theta_p - \frac1m \sum_{j \ne i} g'(w_i\cdot w_j)\, w_j,

g*(s) = Σ_j c_j c*_j s^j, in the D = min(d, r + m) coordinates that no gradient leaves: 4 m² D operations, where the
closed overlaps of `dynamics.equations.overlaps` at n_i = 1/m take 2 m³.

State y = W (m, D), rows of length 1; sizes = [`VectorCounts`, as in `dynamics.equations.vectors` | J, n] for J
coefficients of g* and n levels of the loss; parameters = `SphericalNumbers`. The Gram matrix is made in strips of
`STRIP` rows, which stay in the cache. Scratch: two strips (STRIP, m), or C and the learned masses (m, P) and n (m).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dynamics.equations import vectors
from dynamics.equations.interface import EquationSystem, Functions
from dynamics.equations.link import with_link, write_g0, write_g1
from dynamics.equations.losses import largest_overlaps, link_powers, squared_error, teacher_term, without_rounding
from dynamics.equations.mean_field import AxisSystem, SubspaceSystem
from dynamics.equations.mean_step import add_noise, keep_lengths, write_descent
from dynamics.equations.network.steps import (
    step_source,
    step_units,
    write_central_erf_second,
    write_erf_second,
    write_polynomial_second,
)
from dynamics.equations.overlaps import normalise, write_gram
from dynamics.equations.vectors import VectorCounts, counts_of, rows_of, teacher_rows, unit_vectors
from dynamics.kernels.jit import inlined_kernel, kernel, matrix, row_part, vector
from dynamics.kernels.products import product
from hermite.arrays import Integers, Matrix, Vector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dynamics.equations.mean_field import MeanFieldSystem
    from dynamics.problem import Problem
    from hermite.arrays import Array

# Rows of the Gram matrix treated at a time.
STRIP = 32
#: Place in `sizes` of J, n, and the entries after them.
SERIES_AT = len(VectorCounts._fields)


class SphericalNumbers(NamedTuple):
    """Layout of `parameters`: a (P,), θ (rows, D), c c* (J,), levels of the loss (n,), E f*², and data of the link."""

    a: Vector
    teacher: Matrix
    series: Vector
    levels: Vector
    teacher_loss: float
    link: Vector


@kernel
def numbers_of(parameters: Vector, sizes: Integers) -> SphericalNumbers:
    """Return teacher, series of g*, levels of the loss, E f*² and the link's data, views of `parameters`."""
    (a, teacher, link), counts = vectors.numbers_of(parameters, sizes), vector(sizes, SERIES_AT, 2)
    at, J, n = a.size + teacher.size, counts[0], counts[1]
    levels = vector(parameters, at + J, n + 1)
    return SphericalNumbers(a, teacher, vector(parameters, at, J), vector(levels, 0, n), levels[n], link)


@kernel
def event_work(m: int, P: int, work: Vector) -> tuple[Vector, Vector]:
    """Return views of `work`: learned masses (m P,), and squared norms n (m,)."""
    return vector(work, 0, m * P), vector(work, m * P, m)


@kernel
def strips(y: Vector, first: int, sizes: Integers, work: Vector) -> tuple[Vector, Vector]:
    """Return two flat views of `work`, (rows · m,) each: the products w_i·w_j, which are written, and as much scratch.

    i runs over up to `STRIP` neurons from index `first` on, j over all m.
    """
    W = rows_of(y, sizes)
    m, D = W.shape
    rows = min(STRIP, m - first)
    product(matrix(y, first * D, rows, D), W.T, matrix(work, 0, rows, m))
    return vector(work, 0, rows * m), vector(work, STRIP * m, rows * m)


@kernel
def pull(s: float, series: Vector) -> tuple[float, float]:
    """Return Σ_j series_j s^j and its derivative, by Horner's rule: the kernel g* of student and teacher at s."""
    value = slope = 0.0
    for j in range(series.size - 1, -1, -1):
        slope = slope * s + value
        value = value * s + series[j]
    return value, slope


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of all neurons w (m, D), w' = F − (F·w) w.

    F_i = Σ_p a_p g*'(w_i·θ_p) θ_p − (1/m) Σ_{j≠i} g'(w_i·w_j) w_j, for directions θ_p with coefficients a_p, where g*
    and g are the kernels of student with teacher and student with student.
    """
    W, F, numbers = rows_of(y, sizes), rows_of(out, sizes), numbers_of(parameters, sizes)
    (m, D), P = W.shape, numbers.a.size
    A = matrix(work, 0, m, P)
    for first in range(0, m, STRIP):
        overlaps, slopes = strips(y, first, sizes, work)
        write_g1(numbers.link, overlaps, slopes)
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
            A[i, p] = numbers.a[p] * pull(A[i, p], numbers.series)[1]
    vectors.add_pull(A, numbers.teacher, F)
    vectors.make_tangent(W, F, vector(work, 0, m))


@kernel
def write_all_events(own: float, C: Vector, parameters: Vector, sizes: Integers, work: Vector, out: Vector) -> None:
    """Write level − loss per level, then emergence and learned mass of each direction minus their levels.

    `own` is the mean of g(w_i·w_j) over all pairs of neurons, and C (m P,) are overlaps with the directions.
    """
    a, _, series, levels, teacher_loss, link = numbers_of(parameters, sizes)
    counts, P, loss = counts_of(sizes), a.size, own
    m = counts.width
    for i in range(m):
        for p in range(P):
            loss -= 2.0 / m * a[p] * pull(C[i * P + p], series)[0]
    for k in range(levels.size):
        out[k] = levels[k] - loss - teacher_loss
    learned, n = event_work(m, P, work)
    n.fill(1.0 / m)
    vectors.write_events(C, n, a, link, counts.sign_matters, learned, vector(out, levels.size, 2 * P))


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of the events, which happen where one rises through 0, to `out`.

    They are level − loss for each level of the loss, then emergence of each direction, the largest squared overlap, and
    its learned mass, both minus their levels.
    """
    counts, link, pair_mean = counts_of(sizes), numbers_of(parameters, sizes).link, 0.0
    m, P = counts.width, counts.directions
    for first in range(0, m, STRIP):
        overlaps, values = strips(y, first, sizes, work)
        write_g0(link, overlaps, values)
        pair_mean += np.sum(values)
    vectors.write_overlaps(y, matrix(work, 0, m, P), parameters, sizes)
    event_scratch = vector(work, m * P, work.size - m * P)
    write_all_events(pair_mean / m / m, vector(work, 0, m * P), parameters, sizes, event_scratch, out)


class SphericalObservables(EquationSystem):
    """Observables of overlaps w·θ; `levels` are fractions of E f*² below which the loss is timed."""

    #: w_i·θ_p, shape (m, P), and E(f − f*)² of a state.
    overlaps: Callable[[Array], Array]
    loss: Callable[[Array], float]

    def __init__(self, problem: Problem, levels: Sequence[float]) -> None:
        """Prepare observables; `levels` are fractions of E f*², dimensionless."""
        student, teacher = link_powers(problem)
        self.problem = problem
        self.num_events = len(levels) + 2 * problem.num_directions
        self._kernel = student * teacher
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
        """Prepare the flow from the start of the problem; `levels` are fractions of E f*²."""
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
        """Return the observables of `summarise`, the overlaps C and the neurons W."""
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
    """Return neurons (T, m, D) that follow the field from a start (m, D), from their projections (T, m, r).

    Beyond the teacher's r axes a follower keeps its direction, and its length there is what is left to 1.
    """
    axes = projections.shape[2]
    orthogonal = start[:, axes:] / np.linalg.norm(start[:, axes:], axis=1, keepdims=True)
    length = np.sqrt(np.maximum(1.0 - np.sum(projections**2, axis=2), 0.0))
    return np.concatenate([projections, length[:, :, None] * orthogonal], axis=2)


class LinearisedCoupling:
    """The linear equation of distances Δ_i from the field's followers, at one instant."""

    def __init__(self, system: MeanFieldSystem, followers: Array, moments: Array) -> None:
        """Prepare it for `followers` w̄ (m, D), neurons that move by the field of the limit, at one instant.

        `moments` (M,) are those of the law of the mean field. `noise` becomes the distance of the finite sum over the
        followers from the field, on the tangent space, which drives Δ.
        """
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
        """Return Δ' (m, D) at the distances Δ = `gap` (m, D) of neurons from their followers."""
        axes = self._gradient.shape[1]
        turn = self._w @ gap.T
        force = -self._slopes @ gap - (self._bends * turn) @ self._w
        force[:, :axes] -= np.einsum("nij,nj->ni", self._second, gap[:, :axes])
        along = np.sum(self._gradient * gap[:, :axes], axis=1)[:, None]
        return np.asarray(self._tangent(force) + along * self._w + self._radial * gap + self.noise)

    def _tangent(self, vectors: Array) -> Array:
        """Return rows (m, D) without their parts along the followers."""
        return np.asarray(vectors - np.sum(vectors * self._w, axis=1)[:, None] * self._w)


# The same network under SGD with steps of a finite size γ = η d, d → ∞.
#
# One step on B samples moves each neuron against the tangential gradient, scaled by the width, and back to the sphere,
# w ← (w − η u)/|w − η u|, with u_i the mean of e σ'(w_i·x) (x − (w_i·x) w_i). u_i is orthogonal to w_i, so that the
# length is √(1 + η²|u_i|²), and as d → ∞ u_i·u_j is d/B times the mean of e² σ'_i σ'_j over the batch. So the step is
# that of `dynamics.equations.mean_step` for vectors of kept length, with η S_ij = (γ/B) E[(ē² + τ²) σ'_i σ'_j].
#
# At finite d the mean step does not close: dividing by the length brings in means of all powers of η. V is known for
# polynomial links and for neurons of erf(z/√2): see `dynamics.equations.network.steps`.
#
# State y = [C (m, P) | G (m, m)]; sizes and parameters are those of the flow, with P for D and T (P, P) for θ, with
# [M, place of the numbers | layout] behind sizes, and `SphericalStep` before the link, for M vectors: neurons,
# directions, and units without a direction.
#
# Functions that take another one are inlined: Numba stores no function on disk that hands one over at run time.


class SphericalStep(NamedTuple):
    """Numbers of the step, for M vectors: γ/B (`rate`), the variance τ² of label noise, biases and weights (M,).

    γ = η d is the scaled learning rate, B the samples of a batch; `numbers` are those of
    `dynamics.equations.network.steps`.
    """

    rate: float
    noise: float
    biases: Vector
    weights: Vector
    numbers: Vector


class SphericalStepWork(NamedTuple):
    """Parts of `work`, for m neurons among M vectors.

    The Gram matrix (M, M), mean gradients N and their products with vectors (m, M), V, the mean products of gradients
    of one sample over d (m, m), and scratch.
    """

    gram: Matrix
    N: Matrix
    X: Matrix
    V: Matrix
    scratch: Vector


@kernel
def step_of(parameters: Vector, sizes: Integers) -> SphericalStep:
    """Return rate γ/B, label noise τ², biases and weights (M,) and numbers of the links, from `parameters`."""
    counts = vector(sizes, SERIES_AT + 2, 2)
    M, at, end = counts[0], counts[1], counts_of(sizes).link_at
    step = vector(parameters, at - 2 * M - 2, 2)
    biases, weights = vector(parameters, at - 2 * M, M), vector(parameters, at - M, M)
    return SphericalStep(step[0], step[1], biases, weights, vector(parameters, at, end - at))


@kernel
def layout_of_step(sizes: Integers) -> Integers:
    """Return the layout of `dynamics.equations.network.steps`, with the slot that says whether the step is given up."""
    return vector(sizes, SERIES_AT + 4, sizes.size - SERIES_AT - 4)


@kernel
def step_work(m: int, M: int, work: Vector) -> SphericalStepWork:
    """Return views of `work`: Gram matrix (M, M), N and F (m, M), V (m, m) and scratch, see `SphericalStepWork`."""
    gram, N, X = matrix(work, 0, M, M), matrix(work, M * M, m, M), matrix(work, M * M + m * M, m, M)
    at = M * M + 2 * m * M
    return SphericalStepWork(gram, N, X, matrix(work, at, m, m), vector(work, at + m * m, work.size - at - m * m))


@inlined_kernel
def write_rates(
    write_step_second: Callable[..., None], y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """Write C' (m, P) and G' (m, m), the rates of overlaps with directions and among neurons, in time η · step.

    `write_step_second` writes V, the mean products of gradients of one sample over d, of which γ/B V is added to the
    drift.
    """
    (a, teacher, series, _, _, link), step = numbers_of(parameters, sizes), step_of(parameters, sizes)
    m, P, M = counts_of(sizes).width, a.size, step.weights.size
    gram, N, F, V, scratch = step_work(m, M, work)
    gram.fill(0.0)
    write_gram(y, m, teacher, gram)
    vectors = (gram, step.biases, step.weights)
    write_step_second(vectors, step.noise, 1.0, False, m, step.numbers, layout_of_step(sizes), scratch, V)
    for i in range(m):
        write_g1(link, row_part(gram, i, 0, m), row_part(N, i, 0, m))
        for j in range(m):
            N[i, j] /= m
        # The force of a neuron on itself is radial.
        N[i, i] = 0.0
        for p in range(P):
            N[i, m + p] = -a[p] * pull(gram[i, m + p], series)[1]
        for j in range(m + P, M):
            N[i, j] = 0.0
    product(N, gram, F)
    dC, dG = matrix(out, 0, m, P), matrix(out, m * P, m, m)
    write_descent(F, dC, dG)
    add_noise(step.rate, V, dG)
    keep_lengths(step.rate, F, V, gram, dC, dG)


@kernel
def rhs_of_erf(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates for neurons of erf."""
    write_rates(write_erf_second, y, out, parameters, sizes, work)


@kernel
def rhs_of_central_erf(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates for neurons and a teacher of erf."""
    write_rates(write_central_erf_second, y, out, parameters, sizes, work)


@kernel
def rhs_of_polynomials(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates for neurons of a polynomial."""
    write_rates(write_polynomial_second, y, out, parameters, sizes, work)


@kernel
def step_event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write level − loss per level, then emergence and learned mass of each direction minus their levels."""
    counts, values = counts_of(sizes), vector(work, 0, counts_of(sizes).width ** 2)
    m, P = counts.width, counts.directions
    write_g0(numbers_of(parameters, sizes).link, vector(y, m * P, m * m), values)
    write_all_events(np.sum(values) / m / m, vector(y, 0, m * P), parameters, sizes, work, out)


#: The unit of second order -> the right-hand side.
VELOCITIES: dict[Callable[..., None], Callable[..., None]] = {
    write_erf_second: rhs_of_erf,
    write_central_erf_second: rhs_of_central_erf,
    write_polynomial_second: rhs_of_polynomials,
}


class SphericalStepSystem(SphericalObservables):
    """The network under mean steps of B samples; ValueError if the means of the links are not known exactly."""

    name = "spherical-step"

    def __init__(self, problem: Problem, levels: Sequence[float], learning_rate: float, batch_size: int = 1) -> None:
        """Prepare mean steps at `learning_rate` η; `levels` are fractions of E f*²."""
        super().__init__(problem, levels)
        start, (m, P), units = problem.start(), (problem.width, problem.num_directions), step_units(problem)
        M, gram, noise = m + len(units), problem.teacher.gram(), step_source(problem.activation, m, units, biased=False)
        self.functions = Functions(VELOCITIES[noise.second], step_event_values, normalise, choices=(noise.second,))
        self.initial_state: Array = np.concatenate([start.teacher_overlap.ravel(), start.student_overlap.ravel()])
        self._inverse_gram = np.linalg.pinv(gram)
        weights = [1.0 / m] * m + [-unit.coefficient for unit in units]
        step = [learning_rate * problem.dimension / batch_size, problem.label_noise**2]
        numbers: list[Any] = [problem.teacher.coefficients, gram, *self._fixed, step, np.zeros(M), weights]
        counts = [self._kernel.size, len(levels), M, sum(np.size(part) for part in numbers)]
        counts += noise.layout.tolist()
        self.parameters, self.sizes = with_link(problem, [m, P, P, P], [*numbers, noise.numbers], counts)
        self.work_size = M * M + 2 * m * M + m * m + noise.work_size

    def unpack(self, state: Array) -> tuple[Array, Array]:
        """Return views of a state: overlaps C (m, P) with directions and G (m, m) among neurons."""
        m, P = self.problem.width, self.problem.num_directions
        return state[: m * P].reshape(m, P), state[m * P :].reshape(m, m)

    def overlaps(self, state: Array) -> Array:
        """Return w_i·θ_p, shape (m, P)."""
        return self.unpack(state)[0]

    def loss(self, state: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        C, G = self.unpack(state)
        attraction = np.polynomial.polynomial.polyval(C, self._kernel).mean(axis=0)
        student_square, constant = float(self.problem.activation.kernel(G).mean()), self._fixed[1][-1]
        loss = student_square - 2.0 * attraction @ self.problem.teacher.coefficients + constant
        return float(without_rounding(loss, student_square + constant))

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return a dict: loss, realisability margin, and per direction the largest overlap and the learned mass."""
        C, G = self.unpack(state)
        margin = float(np.linalg.eigvalsh(G - C @ self._inverse_gram @ C.T)[0])
        return {**super().summarise(state), "gram_margin": margin}

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return the observables of `summarise`, and the overlaps C and G."""
        C, G = self.unpack(state)
        return {**self.summarise(state), "teacher_overlap": C.copy(), "student_overlap": G.copy()}
