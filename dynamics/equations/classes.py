r"""The coupled overlap flow on inputs of covariance Σ: Σ times the field of isotropic inputs, exact for any link.

In unit vectors u_i = ŵ_i/√n_i, ŵ = Σ^½ w, on the axes l with eigenvalues s_l (docs/inputs.md),

.. math::
   u_{il}' = s_l Y_{il} - \tfrac12 \ell_i'\, u_{il}, \qquad \ell_i' = (\ln n_i)' = 2 \sum_l s_l u_{il} Y_{il}, \qquad
   Y_i = F_i + (2 S_i - F_i \cdot u_i)\, u_i

with F the forces of `dynamics.equations.vectors` and S_i = Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij). State, sizes, parameters
and work are those of that module, with s (D) before the data of the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.equations import vectors
from dynamics.equations.finite_step import MOST_DIAGRAMS, check_polynomial, is_blown_up
from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.link import g0, g2, with_link, write_both
from dynamics.equations.mean_step import weights_of_batch
from dynamics.equations.overlaps import OverlapSystem
from dynamics.equations.vectors import (
    VectorCounts,
    VectorSystem,
    add_bend,
    counts_of,
    directions_and_norms,
    flat,
    forces,
    numbers_of,
    product_work,
    rows_of,
    split,
    work_of,
    write_norms,
)
from dynamics.kernels.jit import kernel, matrix, row_part, vector
from dynamics.kernels.products import product
from dynamics.problem.checks import require
from dynamics.problem.inputs import MOST_WEIGHTS
from hermite.arrays import Integers, Matrix, Vector
from hermite.polynomials import count_diagrams, mean_derivatives
from hermite.text.messages import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations.interface import OfStates
    from dynamics.problem import Problem
    from hermite.arrays import Array


@kernel
def class_rates(i: int, U: Matrix, F: Matrix, growth: float, s: Vector) -> tuple[float, float, float]:
    """Return (2 S − F·u, ℓ'/2, Σ_l s_l u_l²) of neuron i, three numbers.

    u is its unit vector, F the force on it, S = `growth` its growth, s (D,) the eigenvalues of the inputs' covariance,
    and ℓ' the rate of ln n, n its squared norm.
    """
    radial = turn = stretch = 0.0
    for k in range(s.size):
        radial += F[i, k] * U[i, k]
        turn += s[k] * F[i, k] * U[i, k]
        stretch += s[k] * U[i, k] * U[i, k]
    along = 2.0 * growth - radial
    return along, turn + along * stretch, stretch


@kernel
def eigenvalues_of(parameters: Vector, sizes: Integers) -> Vector:
    """Return the eigenvalues s of the inputs' covariance, one per axis, a view (D,) of `parameters`."""
    counts = counts_of(sizes)
    return vector(parameters, counts.link_at - counts.axes, counts.axes)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of unit vectors U (m, D) and of ln n (m,): u_il' = s_l Y_il − ½ (ln n_i)' u_il.

    Y_i = F_i + (2 S_i − F_i·u_i) u_i and (ln n_i)' = 2 Σ_l s_l u_il Y_il, for forces F, growth S, eigenvalues s of the
    inputs' covariance and squared norms n.
    """
    U, (F, growth), s = rows_of(y, sizes), split(out, sizes), eigenvalues_of(parameters, sizes)
    forces(y, F, growth, parameters, sizes, work)
    for i in range(growth.size):
        along, half, _ = class_rates(i, U, F, growth[i], s)
        for k in range(s.size):
            F[i, k] = s[k] * (F[i, k] + along * U[i, k]) - half * U[i, k]
        growth[i] = 2.0 * half


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write an approximate diagonal of the Jacobian, for U (m, D) and ln n (m,).

    It is the factor of U_il in its rate with the bend of its force, and −4 n g(1) Σ_l s_l U_il² of ln n.
    """
    U, (bend, growth), s = rows_of(y, sizes), split(out, sizes), eigenvalues_of(parameters, sizes)
    n, F = work_of(sizes, work).n, product_work(sizes, work).F
    m, D = U.shape
    forces(y, F, growth, parameters, sizes, work)
    bend.fill(0.0)
    add_bend(y, bend, parameters, sizes, work)
    kernel_at_one = g0(numbers_of(parameters, sizes).link, 1.0)
    for i in range(m):
        along, half, stretch = class_rates(i, U, F, growth[i], s)
        for k in range(D):
            bend[i, k] = s[k] * (along + bend[i, k]) - half
        growth[i] = -4.0 * n[i] * kernel_at_one * stretch


# The flow in weights: state y = [Ŵ (m, D)]. Its Euler steps are gradient descent.


@kernel
def write_units(y: Vector, sizes: Integers, state: Vector) -> None:
    """Write unit vectors (m, D) and ln n (m,) of the weights (m, D) in y to `state`; n are squared norms."""
    W, (U, log_n) = rows_of(y, sizes), split(state, sizes)
    m, D = W.shape
    for i in range(m):
        square = 0.0
        for k in range(D):
            square += W[i, k] * W[i, k]
        log_n[i] = np.log(square)
        for k in range(D):
            U[i, k] = W[i, k] / np.sqrt(square)


@kernel
def descent_work(sizes: Integers, work: Vector) -> tuple[Vector, Vector, Vector]:
    """Return three views of `work`: a state of the flow, its rates, and the scratch of the flow."""
    counts = counts_of(sizes)
    size = counts.width * (counts.axes + 1)
    return vector(work, 0, size), vector(work, size, size), vector(work, 2 * size, work.size - 2 * size)


@kernel
def descent_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of weights, ŵ' = ρ (u' + ½ (ln n)' u) (m, D), of unit vector u, length ρ and n = ρ²."""
    state, rate, flow_work = descent_work(sizes, work)
    write_units(y, sizes, state)
    rhs(t, state, rate, parameters, sizes, flow_work)
    weight_rates, (U, log_n), (dU, growth) = rows_of(out, sizes), split(state, sizes), split(rate, sizes)
    for i in range(U.shape[0]):
        rho = np.exp(0.5 * log_n[i])
        for k in range(U.shape[1]):
            weight_rates[i, k] = rho * (dU[i, k] + 0.5 * growth[i] * U[i, k])


@kernel
def descent_event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write emergence and learned mass of each direction minus their levels, at the weights, to `out` (2 P,)."""
    state, _, flow_work = descent_work(sizes, work)
    write_units(y, sizes, state)
    vectors.event_values(t, state, out, parameters, sizes, flow_work)


class ClassSystem(OverlapSystem):
    """The coupled flow on inputs of covariance Σ: U (m, D) on the axes of `Problem.input_axes`, and ln n (m,)."""

    name = "classes"
    has_unit_vectors = False
    against_clusters: str | None = "its slowed clusters are derived for isotropic inputs"

    def __init__(self, problem: Problem) -> None:
        """Prepare the flow of a problem with `inputs`; ValueError without them."""
        super().__init__(problem)
        axes = problem.input_axes()
        if axes is None:
            refuse("Argument `problem` must have `inputs`, but has none.")
        self.axes = axes
        self.start = directions_and_norms(problem.reduced_weights())
        self.functions = Functions(rhs, vectors.event_values, vectors.normalise, jacobian_diagonal)
        self._vectors = VectorSystem(problem, self.start, axes.eigenvalues)
        self.initial_state, self.parameters = self._vectors.initial_state, self._vectors.parameters
        self.sizes, self.work_size = self._vectors.sizes, self._vectors.work_size

    def stiffness(self) -> float:
        """Return a bound on the rates of a learned direction, the largest eigenvalue times that of isotropic inputs."""
        return float(self.axes.eigenvalue.max()) * super().stiffness()

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return overlaps C (…, m, P) with directions and G (…, m, m) among neurons, and squared norms n (…, m)."""
        return super().unpack(self._vectors.overlaps(state))

    def observer(self, keep: str, monitored: Callable[[], bool] = lambda: False) -> OfStates:
        """Return the function that observes a state, without the realisability margin, as vectors are carried."""
        del monitored
        return super().observer(keep, lambda: False)


class ClassDescentSystem(ClassSystem):
    """The same flow in the weights Ŵ (m, D), of which one Euler step is one of population gradient descent in w."""

    name = "class-descent"
    against_clusters = FlowSystem.against_clusters

    def __init__(self, problem: Problem) -> None:
        """Prepare the flow in weights from those of the problem."""
        super().__init__(problem)
        self.functions = Functions(descent_rhs, descent_event_values)
        self.work_size += 2 * self.initial_state.size
        self.initial_state = problem.reduced_weights().ravel()

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps C and G of a state, or of a stack, and n."""
        m, D = self._vectors.shape
        unit, log_norm = directions_and_norms(state.reshape(*state.shape[:-1], m, D))
        return super().unpack(np.concatenate([unit.reshape(state.shape), log_norm], axis=-1))


# The overlaps under online SGD of a finite learning rate, closed class by class of equal eigenvalues: docs/inputs.md.
# Means of A(z) = α + σ'', α = 2σ − zσ', are those of mean derivatives (2 − k) f̂_k.
#
# State y = `ClassState`; sizes = [`VectorCounts`, with r for D and P rows of Θ | `ClassCounts`]; parameters =
# `ClassNumbers`. Diagrams (e, r, s) are those of `hermite.polynomials`.


class ClassState(NamedTuple):
    """Parts of a state: projections U (m, r) of unit vectors, K (classes, m²) and ln n (m,).

    Row c of K holds the products of the neurons' parts on the axes of class c; n are squared norms.
    """

    U: Matrix
    K: Matrix
    log_n: Vector


class ClassCounts(NamedTuple):
    """Classes, the degree of the link, whether d is finite, and the class of every axis of the teacher (r,)."""

    classes: int
    degree: int
    whole: bool
    kinds: Integers


class ClassNumbers(NamedTuple):
    """Numbers of the step."""

    #: Coefficients a (P,) and directions Θ (P, r) of the teacher.
    a: Vector
    teacher: Matrix
    #: Eigenvalues s of the inputs' covariance and numbers d_c of axes, (classes,) each.
    eigenvalues: Vector
    dimensions: Vector
    #: Standard deviation τ of label noise, and the weights of D and of one sample in a batch.
    noise: float
    of_drift: float
    of_noise: float
    #: Mean derivatives f̂_k = E σ^(k) of the link, with zeros behind, and the data of the link.
    hat: Vector
    link: Vector


class ClassTables(NamedTuple):
    """Parts of `work`, for m neurons and M vectors, neurons first, then directions.

    Negative mean gradients N (m, M); the Gram matrix Q (M, M); weights w (M,), n of neurons and −a of directions; the
    shares of classes in Q (classes, M²); second-order parts (classes, m²); scratch.
    """

    N: Matrix
    Q: Matrix
    w: Vector
    parts: Matrix
    second: Matrix
    scratch: Vector


#: Place in `sizes` of the entries of `ClassCounts`.
CLASSES_AT = len(VectorCounts._fields)


@kernel
def class_counts(sizes: Integers) -> ClassCounts:
    """Return the number of classes, the link's degree, whether d is finite, and the class of each axis (r,)."""
    counts = vector(sizes, CLASSES_AT, 3)
    return ClassCounts(counts[0], counts[1], counts[2] == 1, vector(sizes, CLASSES_AT + 3, counts_of(sizes).axes))


@kernel
def class_numbers(parameters: Vector, sizes: Integers) -> ClassNumbers:
    """Return teacher, eigenvalues and sizes of classes, label noise, batch weights, and link, from `parameters`."""
    (a, teacher, link), (classes, degree, _, _) = numbers_of(parameters, sizes), class_counts(sizes)
    at = a.size + teacher.size
    s, dimensions = vector(parameters, at, classes), vector(parameters, at + classes, classes)
    weights, hat = vector(parameters, at + 2 * classes, 3), vector(parameters, at + 2 * classes + 3, degree + 5)
    return ClassNumbers(a, teacher, s, dimensions, weights[0], weights[1], weights[2], hat, link)


@kernel
def split_classes(y: Vector, sizes: Integers) -> ClassState:
    """Return views of a state, or of its rates: U (m, r), K (classes, m²) and ln n (m,)."""
    m, r, classes = counts_of(sizes).width, counts_of(sizes).axes, class_counts(sizes).classes
    logs = m * r + classes * m * m
    return ClassState(matrix(y, 0, m, r), matrix(y, m * r, classes, m * m), vector(y, logs, m))


@kernel
def tables(sizes: Integers, work: Vector) -> ClassTables:
    """Return views of `work`: N, Q, w, shares and second-order parts of classes, and scratch, see `ClassTables`."""
    counts, classes = counts_of(sizes), class_counts(sizes).classes
    m, M = counts.width, counts.width + counts.directions
    of_parts = m * M + M * M + M
    of_second, end = of_parts + classes * M * M, of_parts + classes * (M * M + m * m)
    N, Q, w = matrix(work, 0, m, M), matrix(work, m * M, M, M), vector(work, of_parts - M, M)
    parts, second = matrix(work, of_parts, classes, M * M), matrix(work, of_second, classes, m * m)
    return ClassTables(N, Q, w, parts, second, vector(work, end, work.size - end))


@kernel
def write_parts(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the share of each class of axes in the Gram matrix of neurons and directions, and their sum Q (M, M).

    Shares are rows of M² numbers; a class has the axes of one eigenvalue.
    """
    (_, Q, _, parts, _, _), (U, K, _), kinds = tables(sizes, work), split_classes(y, sizes), class_counts(sizes).kinds
    teacher, m, M = class_numbers(parameters, sizes).teacher, U.shape[0], Q.shape[0]
    parts.fill(0.0)
    for c in range(parts.shape[0]):
        for i in range(m):
            for j in range(m):
                parts[c, i * M + j] = K[c, i * m + j]
    for k in range(kinds.size):
        row = parts[kinds[k]]
        for p in range(M - m):
            theta = teacher[p, k]
            for i in range(m):
                row[i * M + m + p] += U[i, k] * theta
                row[(m + p) * M + i] += U[i, k] * theta
            for q in range(M - m):
                row[(m + p) * M + m + q] += theta * teacher[q, k]
    for a in range(M):
        for b in range(M):
            Q[a, b] = 0.0
            for c in range(parts.shape[0]):
                Q[a, b] += parts[c, a * M + b]
        Q[a, a] = 1.0


@kernel
def write_forces(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the weights w = (n, −a) (M,) of neurons and directions, and negative mean gradients N (m, M).

    N_ib = −w_b g'(Q_ib), with Q the Gram matrix of all vectors, g the kernel of the link, and N_ii has Σ_b (w_b
    g'(Q_ib) Q_ib − 2 w_b g(Q_ib)) added.
    """
    (N, Q, w, _, _, scratch), (a, _, link) = tables(sizes, work), numbers_of(parameters, sizes)
    m, M = N.shape
    value, slope = matrix(scratch, 0, m, M), matrix(scratch, m * M, m, M)
    write_norms(y, vector(w, 0, m))
    for p in range(a.size):
        w[m + p] = -a[p]
    write_both(link, vector(Q, 0, m * M), flat(value), flat(slope))
    for i in range(m):
        total = 0.0
        for b in range(M):
            N[i, b] = -w[b] * slope[i, b]
            total -= N[i, b] * Q[i, b] + 2.0 * w[b] * value[i, b]
        N[i, i] += total


@kernel
def write_pair_means(c: float, degree: int, hat: Vector, Z: Matrix) -> None:
    """Write means of φ^(R)(z_i) ψ^(S)(z_j) at E z_i z_j = c to Z (6, (degree + 1)²), at place R (degree + 1) + S.

    A row is for one of six pairs (φ, ψ) of functions of the link; `hat` are its mean derivatives E σ^(k), k = 0 … .
    """
    size = degree + 1
    for q in range(6):
        Z[q].fill(0.0)
    for R in range(size):
        for S in range(size):
            power = 1.0
            for t in range(size - max(R, S)):
                k, q, place = R + t, S + t, R * size + S
                slope_i, slope_j = hat[k + 1], hat[q + 1]
                first, second = (2.0 - k) * hat[k], (2.0 - q) * hat[q]
                Z[0, place] += power * slope_i * slope_j
                Z[1, place] += power * 2.0 * (first + hat[k + 2]) * slope_j
                Z[2, place] += power * slope_i * 2.0 * (second + hat[q + 2])
                Z[3, place] += power * (1.0 - k) * slope_i * slope_j
                Z[4, place] += power * slope_i * (1.0 - q) * slope_j
                Z[5, place] += power * (first * second + hat[k + 2] * hat[q + 2])
                power *= c / (t + 1)


@kernel
def write_halves(e: int, i: int, j: int, degree: int, hat: Vector, w: Vector, Q: Matrix, H: Matrix) -> int:
    """Write w_a f̂_(e+r+s+o) Q_ai^r Q_aj^s/(r! s!) to H, one row per (r, s); return their number.

    H has a block of rows for each o = 0, 1, 2.

    f̂ = `hat` are mean derivatives of the link, w weights and Q the Gram matrix of all vectors a; r + s ≤ degree − e.
    """
    rows, most = 0, (degree + 1) * (degree + 2) // 2
    for r in range(degree - e + 1):
        for s in range(degree - e + 1 - r):
            for a in range(w.size):
                power = w[a]
                for x in range(r):
                    power *= Q[a, i] / (x + 1)
                for x in range(s):
                    power *= Q[a, j] / (x + 1)
                for order in range(3):
                    H[order * most + rows, a] = power * hat[e + r + s + order]
            rows += 1
    return rows


@kernel
def join_halves(
    e: int, degree: int, whole: bool, hat: Vector, Z: Matrix, H: Matrix, Y: Matrix, P: Matrix, ends: Matrix
) -> None:
    """Add the diagrams with e edges between vectors a and b to `ends` and to P (rows, M).

    Rows 0–2 of `ends` are sums over b, rows 3–4 over both. Z are pair means, H the halves of one vector, and Y those
    summed over the other; `whole` tells whether P is used, at finite d.
    """
    (most, M), count, x = Y.shape, degree - e + 1, -1
    for r in range(count):
        for s in range(count - r):
            x += 1
            y = -1
            for r2 in range(count):
                for s2 in range(count - r2):
                    y += 1
                    if max(r + r2, s + s2) > degree:
                        continue
                    place = (r + r2) * (degree + 1) + s + s2
                    if hat[e + r2 + s2] != 0.0:
                        alike = 0.0
                        for a in range(M):
                            alike += H[x, a] * Y[y, a]
                            ends[0, a] += Z[1, place] * H[most + x, a] * Y[y, a]
                            ends[1, a] += Z[2, place] * H[most + x, a] * Y[y, a]
                            ends[2, a] += Z[0, place] * H[2 * most + x, a] * Y[y, a]
                        ends[3, 0] += alike * Z[0, place]
                        for q in range(3):
                            ends[4, q] += alike * Z[3 + q, place]
                    if whole and hat[e + r + s + 1] != 0.0:
                        for b in range(M):
                            P[x, b] += Z[0, place] * H[most + y, b]


@kernel
def write_share(
    i: int, j: int, noise: float, degree: int, whole: bool, hat: Vector, w: Vector, Q: Matrix, J: Matrix
) -> float:
    """Return H = E[(ē² + τ²) σ'_i σ'_j], and write J (M, M), for neurons i and j.

    The second-order part of a class c with d_c axes is d_c H + Σ_ab J_ab X_c,ab, X_c its share in the Gram matrix Q.
    `noise` is τ², `hat` the mean derivatives of the link, w the weights of all vectors.
    """
    M, size, most = w.size, degree + 1, (degree + 1) * (degree + 2) // 2
    Z, H, Y, P = np.empty((6, size * size)), np.empty((3 * most, M)), np.empty((most, M)), np.empty((most, M))
    power, ends = np.ones((M, M)), np.zeros((5, max(M, 3)))
    J.fill(0.0)
    write_pair_means(Q[i, j], degree, hat, Z)
    for e in range(size):
        rows = write_halves(e, i, j, degree, hat, w, Q, H)
        product(H[:rows], power, Y[:rows])
        P.fill(0.0)
        join_halves(e, degree, whole, hat, Z, H, Y, P, ends)
        for a in range(M):
            for b in range(M):
                total = 0.0
                for x in range(rows):
                    total += H[most + x, a] * P[x, b]
                J[a, b] += 2.0 * power[a, b] * total
                power[a, b] *= Q[a, b] / (e + 1)
    for a in range(M):
        J[a, i] += ends[0, a]
        J[a, j] += ends[1, a]
        J[a, a] += 2.0 * ends[2, a]
    J[i, i] += ends[4, 0] + noise * Z[3, 0]
    J[j, j] += ends[4, 1] + noise * Z[4, 0]
    J[i, j] += ends[4, 2] + noise * Z[5, 0]
    return float(ends[3, 0] + noise * Z[0, 0])


@kernel
def write_noise(parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write E[e² ∇_i·∇_j]/(ρ_i ρ_j) on the axes of each class to `second` (classes, m²).

    e is the error with label noise, ∇_i the gradient by neuron i, ρ_i its length. Q, w and shares must be written
    before.
    """
    (classes, degree, is_exact, _), numbers = class_counts(sizes), class_numbers(parameters, sizes)
    N, Q, w, parts, second, scratch = tables(sizes, work)
    m, M, size = N.shape[0], w.size, w.size * w.size
    J, entries, share = matrix(scratch, 0, M, M), matrix(scratch, 0, size, 1), matrix(scratch, size, classes, 1)
    noise, hat = numbers.noise**2, numbers.hat
    for i in range(m):
        for j in range(i + 1):
            slope = write_share(i, j, noise, degree, is_exact, hat, w, Q, J)
            product(parts, entries, share)
            for c in range(classes):
                pair_share = share[c, 0] if is_exact else 0.0
                second[c, i * m + j] = second[c, j * m + i] = numbers.dimensions[c] * slope + pair_share


@kernel
def move_class(c: int, parameters: Vector, sizes: Integers, work: Vector, out: Vector) -> None:
    """Write the rates of K of class c, before lengths are divided out, to `out` (m²): s (V + Vᵀ) + s² H.

    s is the eigenvalue of the class, V the products of negative mean gradients and neurons on its axes, and H the part
    of second order in the step.
    """
    numbers, (N, _, w, parts, second, scratch) = class_numbers(parameters, sizes), tables(sizes, work)
    m, s, of_drift, of_noise = N.shape[0], numbers.eigenvalues[c], numbers.of_drift, numbers.of_noise
    V = matrix(scratch, 0, m, w.size)
    product(N, matrix(parts, c * w.size * w.size, w.size, w.size), V)
    for i in range(m):
        for j in range(m):
            drift = 0.0
            for b in range(w.size):
                drift += V[i, b] * N[j, b]
            out[i * m + j] = s * (V[i, j] + V[j, i]) + s * s * (of_drift * drift + of_noise * second[c, i * m + j])


@kernel
def step_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the mean rates of the state in time η · step to `out`; all NaN once norms blew up.

    State and rates are U (m, r), the unit vectors of the neurons on the teacher's axes, K (classes, m²), in which row c
    holds the products of their parts on the axes of eigenvalue c, and ln n (m,), logarithms of squared norms.
    """
    numbers, (U, K, _) = class_numbers(parameters, sizes), split_classes(y, sizes)
    dU, dK, growth = split_classes(out, sizes)
    (m, r), P = U.shape, numbers.a.size
    if is_blown_up(y, parameters, m, P):
        out.fill(np.nan)
        return
    write_parts(y, parameters, sizes, work)
    write_forces(y, parameters, sizes, work)
    write_noise(parameters, sizes, work)
    N, kinds = tables(sizes, work).N, class_counts(sizes).kinds
    growth.fill(0.0)
    for c in range(K.shape[0]):
        class_rate = row_part(dK, c, 0, m * m)
        move_class(c, parameters, sizes, work, class_rate)
        for i in range(m):
            growth[i] += class_rate[i * m + i]
    for c in range(K.shape[0]):
        for x in range(m * m):
            dK[c, x] -= 0.5 * (growth[x // m] + growth[x % m]) * K[c, x]
    for i in range(m):
        for k in range(r):
            rate = 0.0
            for j in range(m):
                rate += N[i, j] * U[j, k]
            for p in range(P):
                rate += N[i, m + p] * numbers.teacher[p, k]
            dU[i, k] = numbers.eigenvalues[kinds[k]] * rate - 0.5 * growth[i] * U[i, k]


@kernel
def step_jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write an approximate diagonal of the flow's Jacobian, for U (m, r), K (classes, m²) and ln n (m,).

    It is the factors of U and K in their rates, and −4 n g(1) Σ_c s_c K_c,ii of ln n.
    """
    numbers, (_, K, log_n) = class_numbers(parameters, sizes), split_classes(y, sizes)
    dU, dK, growth = split_classes(out, sizes)
    (N, Q, _, _, _, _), kinds, s = tables(sizes, work), class_counts(sizes).kinds, numbers.eigenvalues
    a, teacher, link, (m, r) = numbers.a, numbers.teacher, numbers.link, dU.shape
    for i in range(m):
        for k in range(r):
            rate = N[i, i]
            for p in range(a.size):
                rate += a[p] * g2(link, Q[i, m + p]) * teacher[p, k] ** 2
            dU[i, k] = s[kinds[k]] * rate - 0.5 * growth[i]
        for c in range(s.size):
            for j in range(m):
                rate = s[c] * (N[i, i] + N[j, j])
                dK[c, i * m + j] = rate - 0.5 * (growth[i] + growth[j])
    for i in range(m):
        stretch = 0.0
        for c in range(s.size):
            stretch += s[c] * K[c, i * m + i]
        growth[i] = -4.0 * np.exp(log_n[i]) * g0(link, 1.0) * stretch


@kernel
def step_normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Scale U and K of each neuron i so that its unit vector has length 1, Σ_c K_c,ii = 1."""
    U, K, _ = split_classes(y, sizes)
    m, r = U.shape
    for i in range(m):
        square = 0.0
        for c in range(K.shape[0]):
            square += K[c, i * m + i]
        scale = 1.0 / np.sqrt(square)
        for k in range(r):
            U[i, k] *= scale
        for c in range(K.shape[0]):
            for j in range(m):
                K[c, i * m + j] *= scale
                K[c, j * m + i] *= scale


class ClassStepSystem(ClassSystem):
    """The mean steps on `inputs`; ValueError for other links than polynomials, too many diagrams or classes."""

    name = "class-step"
    against_clusters = FlowSystem.against_clusters

    def __init__(self, problem: Problem, learning_rate: float, step_theory: str, batch_size: int = 1) -> None:
        """Prepare mean steps at `learning_rate` η; `step_theory` is "infinite-d" or "finite-d".

        The state is [U (m, r) | K (classes, m²) | ln n (m)]: unit vectors on the teacher's axes, the products of their
        parts on the axes of each eigenvalue, and logarithms of squared norms.
        """
        check_polynomial(problem)
        super().__init__(problem)
        self.functions = Functions(step_rhs, vectors.event_values, step_normalise, step_jacobian_diagonal)
        (unit, log_norm), axes, teacher = self.start, self.axes, problem.teacher
        m, P, r, classes = problem.width, problem.num_directions, teacher.span, axes.eigenvalue.size
        hat, M = mean_derivatives(np.trim_zeros(problem.activation.coefficients, "b")), m + P
        count, most = count_diagrams(hat, hat), MOST_WEIGHTS // M**2
        require(
            count <= MOST_DIAGRAMS,
            "Argument `problem` must have a link of lower degree or of fewer terms for the equation of a finite "
            f"learning rate, but degree {hat.size - 1} gives up to {count} diagrams, more than {MOST_DIAGRAMS}.",
        )
        require(
            classes <= most,
            f"Argument `inputs` must have at most {most} distinct eigenvalues for the equation of a finite learning "
            f"rate with {M} neurons and directions together, but has {classes}.",
        )
        shares = [unit[:, axes.kind == kind] @ unit[:, axes.kind == kind].T for kind in range(classes)]
        self.initial_state = np.concatenate([unit[:, :r].ravel(), np.ravel(shares), log_norm])
        self._shape = (classes, m, r)
        self._theta = np.eye(r) if teacher.directions is None else teacher.directions
        is_exact = step_theory == "finite-d"
        weights = [problem.label_noise, *weights_of_batch(learning_rate, batch_size, is_exact)]
        numbers = [teacher.coefficients, self._theta, axes.eigenvalue, axes.sizes, weights, hat, np.zeros(4)]
        counts = [classes, hat.size - 1, is_exact, *axes.kind[:r]]
        self.parameters, self.sizes = with_link(problem, [m, P, r, P], numbers, counts)
        self.work_size = m * M + M * M + M + classes * (M * M + m * m) + max(M * M + classes, 2 * m * M)

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return overlaps C (…, m, P) with directions and G (…, m, m) among neurons, and squared norms n (…, m)."""
        classes, m, r = self._shape
        stack = state.shape[:-1]
        G = state[..., m * r : -m].reshape(*stack, classes, m, m).sum(axis=-3)
        np.einsum("...ii->...i", G)[...] = 1.0
        return state[..., : m * r].reshape(*stack, m, r) @ self._theta.T, G, np.exp(state[..., -m:])
