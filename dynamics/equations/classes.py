r"""The coupled overlap flow on inputs of covariance Σ: Σ times the field of isotropic inputs, exact for any link.

In unit vectors u_i = ŵ_i/√n_i, ŵ = Σ^½ w, on the axes l with eigenvalues s_l (docs/inputs.md),

.. math::
   u_{il}' = s_l Y_{il} - \tfrac12 \ell_i'\, u_{il}, \qquad \ell_i' = (\ln n_i)' = 2 \sum_l s_l u_{il} Y_{il}, \qquad
   Y_i = F_i + (2 S_i - F_i \cdot u_i)\, u_i

with F the forces of `dynamics.equations.vectors` and S_i = Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij). State, sizes, parameters
and work are those of that module, with s (D) before the data of the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations import vectors
from dynamics.equations.finite_step import MOST_DIAGRAMS, check_polynomial, is_blown_up
from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.link import g0, g2, link_at, with_link, write_both
from dynamics.equations.overlaps import OverlapSystem
from dynamics.equations.vectors import LINK, VectorSystem, add_bend, directions_and_norms, forces, write_norms
from dynamics.kernels.jit import kernel, matrix, vector
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
    """Return the other factor of s u_i in s Y_i, 2 S − F·u, then ℓ'/2 and Σ s u²."""
    radial = turn = stretch = 0.0
    for k in range(s.size):
        radial += F[i, k] * U[i, k]
        turn += s[k] * F[i, k] * U[i, k]
        stretch += s[k] * U[i, k] * U[i, k]
    along = 2.0 * growth - radial
    return along, turn + along * stretch, stretch


@kernel
def views(y: Vector, out: Vector, parameters: Vector, sizes: Integers) -> tuple[Matrix, Matrix, Vector, Vector]:
    """Return U of a state, what stands there and for ln n in `out`, and s."""
    m, D = sizes[0], sizes[2]
    s = vector(parameters, sizes[LINK] - D, D)
    return matrix(y, 0, m, D), matrix(out, 0, m, D), vector(out, m * D, m), s


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """U' = Y diag(s) − diag(ℓ'/2) U, ℓ' = (ln n)' = 2 Σ_l s_l u_il Y_il, Y = F + diag(2 S − F·u) U."""
    U, F, growth, s = views(y, out, parameters, sizes)
    forces(y, F, growth, parameters, sizes, work)
    for i in range(growth.size):
        along, half, _ = class_rates(i, U, F, growth[i], s)
        for k in range(s.size):
            F[i, k] = s[k] * (F[i, k] + along * U[i, k]) - half * U[i, k]
        growth[i] = 2.0 * half


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """About the diagonal of the Jacobian: what multiplies U_il, the bend of its force, and −4 n g(1) Σ s U² of ln n."""
    m, P, D = sizes[0], sizes[1], sizes[2]
    U, bend, growth, s = views(y, out, parameters, sizes)
    pairs = m * P + m * m
    n, F = vector(work, pairs, m), matrix(work, pairs + m + 2 * m * max(m, P), m, D)
    forces(y, F, growth, parameters, sizes, work)
    bend.fill(0.0)
    add_bend(y, bend, parameters, sizes, work)
    own = g0(link_at(parameters, sizes[LINK]), 1.0)
    for i in range(m):
        along, half, stretch = class_rates(i, U, F, growth[i], s)
        for k in range(D):
            bend[i, k] = s[k] * (along + bend[i, k]) - half
        growth[i] = -4.0 * n[i] * own * stretch


# The flow in weights: state y = [Ŵ (m, D)]. Its Euler steps are gradient descent.


@kernel
def write_units(y: Vector, sizes: Integers, state: Vector) -> None:
    """Write unit vectors and ln n of weights."""
    m, D = sizes[0], sizes[2]
    W, U = matrix(y, 0, m, D), matrix(state, 0, m, D)
    for i in range(m):
        square = 0.0
        for k in range(D):
            square += W[i, k] * W[i, k]
        state[m * D + i] = np.log(square)
        for k in range(D):
            U[i, k] = W[i, k] / np.sqrt(square)


@kernel
def descent_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """ŵ' = ρ (u' + ½ (ln n)' u)."""
    m, D = sizes[0], sizes[2]
    size = m * D + m
    state, rate = vector(work, 0, size), vector(work, size, size)
    write_units(y, sizes, state)
    rhs(t, state, rate, parameters, sizes, vector(work, 2 * size, work.size - 2 * size))
    for i in range(m):
        rho = np.exp(0.5 * state[m * D + i])
        for k in range(i * D, i * D + D):
            out[k] = rho * (rate[k] + 0.5 * rate[m * D + i] * state[k])


@kernel
def descent_event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of the events of the flow."""
    size = sizes[0] * sizes[2] + sizes[0]
    state = vector(work, 0, size)
    write_units(y, sizes, state)
    vectors.event_values(t, state, out, parameters, sizes, vector(work, size, work.size - size))


class ClassSystem(OverlapSystem):
    """The coupled flow on inputs of covariance Σ: U (m, D) on the axes of `Problem.input_axes`, and ln n (m,)."""

    name = "classes"
    has_unit_vectors = False
    against_clusters: str | None = "its slowed clusters are derived for isotropic inputs"

    def __init__(self, problem: Problem) -> None:
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
        """Return the overlaps C and G of a state, and n."""
        return super().unpack(self._vectors.overlaps(state))

    def observer(self, keep: str, monitored: Callable[[], bool] = lambda: False) -> OfStates:
        """Return what observes a state; vectors are carried, so that no realisability margin is computed."""
        del monitored
        return super().observer(keep, lambda: False)


class ClassDescentSystem(ClassSystem):
    """The same flow in the weights Ŵ (m, D), of which one Euler step is one of population gradient descent in w."""

    name = "class-descent"
    against_clusters = FlowSystem.against_clusters

    def __init__(self, problem: Problem) -> None:
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
# State y = [U (m, r) | K (classes, m, m) | ln n (m)]; sizes = [m, P, r, P, sign_matters, place of the link, classes,
# degree, whole | class of every axis of the teacher (r)]; parameters = [a (P) | Θ (P, r) | s | d_c (classes) | τ, two
# weights | f̂ (degree + 4) | data of the link]. Diagrams (e, r, s) are those of `hermite.polynomials`.

CLASSES, DEGREE, WHOLE, KINDS = 6, 7, 8, 9


@kernel
def tables(sizes: Integers, work: Vector) -> tuple[Matrix, Matrix, Vector, Matrix, Matrix, Vector]:
    """Return N (m, M), Q (M, M), w (M), the parts of Q by class (classes, M²), `second` (classes, m²), and scratch."""
    m, M, classes = sizes[0], sizes[0] + sizes[1], sizes[CLASSES]
    of_parts = m * M + M * M + M
    of_second, end = of_parts + classes * M * M, of_parts + classes * (M * M + m * m)
    N, Q, w = matrix(work, 0, m, M), matrix(work, m * M, M, M), vector(work, of_parts - M, M)
    parts, second = matrix(work, of_parts, classes, M * M), matrix(work, of_second, classes, m * m)
    return N, Q, w, parts, second, vector(work, end, work.size - end)


@kernel
def write_parts(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the share of every class in the Gram matrix Q of neurons and directions, rows of M² numbers, and Q."""
    m, P, r, (_, Q, _, parts, _, _) = sizes[0], sizes[1], sizes[2], tables(sizes, work)
    M = m + P
    parts.fill(0.0)
    for c in range(sizes[CLASSES]):
        for i in range(m):
            for j in range(m):
                parts[c, i * M + j] = y[m * r + (c * m + i) * m + j]
    for k in range(r):
        row = parts[sizes[KINDS + k]]
        for p in range(P):
            theta = parameters[P + p * r + k]
            for i in range(m):
                row[i * M + m + p] += y[i * r + k] * theta
                row[(m + p) * M + i] += y[i * r + k] * theta
            for q in range(P):
                row[(m + p) * M + m + q] += theta * parameters[P + q * r + k]
    for a in range(M):
        for b in range(M):
            Q[a, b] = 0.0
            for c in range(sizes[CLASSES]):
                Q[a, b] += parts[c, a * M + b]
        Q[a, a] = 1.0


@kernel
def write_forces(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write w = (n, −a), and N = (F | A), F = diag(e) − n g'(G) and A = a g'(C), where Q is known."""
    m, P, (N, Q, w, _, _, scratch) = sizes[0], sizes[1], tables(sizes, work)
    M = m + P
    value, slope = matrix(scratch, 0, m, M), matrix(scratch, m * M, m, M)
    write_norms(y, vector(w, 0, m))
    for p in range(P):
        w[m + p] = -parameters[p]
    link = link_at(parameters, sizes[LINK])
    write_both(link, vector(work, m * M, m * M), vector(scratch, 0, m * M), vector(scratch, m * M, m * M))
    for i in range(m):
        total = 0.0
        for b in range(M):
            N[i, b] = -w[b] * slope[i, b]
            total -= N[i, b] * Q[i, b] + 2.0 * w[b] * value[i, b]
        N[i, i] += total


@kernel
def write_pair_means(c: float, degree: int, hat: Vector, Z: Matrix) -> None:
    """Means of φ^(R)(z_i) ψ^(S)(z_j) at z_i·z_j = c, one row of (degree + 1)² numbers for each of six pairs (φ, ψ)."""
    size = degree + 1
    for q in range(6):
        Z[q].fill(0.0)
    for R in range(size):
        for S in range(size):
            power = 1.0
            for t in range(size - max(R, S)):
                k, q, place = R + t, S + t, R * size + S
                slope, other = hat[k + 1], hat[q + 1]
                first, second = (2.0 - k) * hat[k], (2.0 - q) * hat[q]
                Z[0, place] += power * slope * other
                Z[1, place] += power * 2.0 * (first + hat[k + 2]) * other
                Z[2, place] += power * slope * 2.0 * (second + hat[q + 2])
                Z[3, place] += power * (1.0 - k) * slope * other
                Z[4, place] += power * slope * (1.0 - q) * other
                Z[5, place] += power * (first * second + hat[k + 2] * hat[q + 2])
                power *= c / (t + 1)


@kernel
def write_halves(e: int, i: int, j: int, degree: int, hat: Vector, w: Vector, Q: Matrix, H: Matrix) -> int:
    """Write w_a f̂_(e+r+s) Q_ai^r Q_aj^s/(r! s!) of σ, σ' and σ'', three blocks of rows; return how many (r, s) are."""
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
    """Add the diagrams of e edges a–b to the sums over b (`ends`, rows 0–2) and over both (row 3), and to P = Z H'."""
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
    """Return E[(ē² + τ²) σ'_i σ'_j], and write J, of which Σ_ab J_ab X_c,ab comes on top of d_c times that."""
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
    """Write E[e² ∇_i·∇_j]/(ρ_i ρ_j) of the axes of every class to `second`, where Q, w and parts are known."""
    m, P, r, classes, whole = sizes[0], sizes[1], sizes[2], sizes[CLASSES], sizes[WHOLE] == 1
    _, Q, w, parts, second, scratch = tables(sizes, work)
    M, size, of_class = w.size, w.size * w.size, P + P * r
    J, entries, share = matrix(scratch, 0, M, M), matrix(scratch, 0, size, 1), matrix(scratch, size, classes, 1)
    noise, hat = parameters[of_class + 2 * classes] ** 2, parameters[of_class + 2 * classes + 3 :]
    for i in range(m):
        for j in range(i + 1):
            slope = write_share(i, j, noise, sizes[DEGREE], whole, hat, w, Q, J)
            product(parts, entries, share)
            for c in range(classes):
                more = share[c, 0] if whole else 0.0
                second[c, i * m + j] = second[c, j * m + i] = parameters[of_class + classes + c] * slope + more


@kernel
def move_class(c: int, parameters: Vector, sizes: Integers, work: Vector, out: Vector) -> None:
    """Write s (V + Vᵀ) + s² H of a class, V its part of N X, of which D is the product with Nᵀ."""
    m, classes, of_class = sizes[0], sizes[CLASSES], sizes[1] + sizes[1] * sizes[2]
    N, _, w, parts, second, scratch = tables(sizes, work)
    V, s = matrix(scratch, 0, m, w.size), parameters[of_class + c]
    of_drift, of_noise = parameters[of_class + 2 * classes + 1], parameters[of_class + 2 * classes + 2]
    product(N, matrix(parts, c * w.size * w.size, w.size, w.size), V)
    for i in range(m):
        for j in range(m):
            drift = 0.0
            for b in range(w.size):
                drift += V[i, b] * N[j, b]
            out[i * m + j] = s * (V[i, j] + V[j, i]) + s * s * (of_drift * drift + of_noise * second[c, i * m + j])


@kernel
def step_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Mean motion of U, K and ln n; not-a-number after a blow-up."""
    m, P, r, classes = sizes[0], sizes[1], sizes[2], sizes[CLASSES]
    mm, logs = m * m, m * r + classes * m * m
    if is_blown_up(y, parameters, m, P):
        out.fill(np.nan)
        return
    write_parts(y, parameters, sizes, work)
    write_forces(y, parameters, sizes, work)
    write_noise(parameters, sizes, work)
    N, growth = matrix(work, 0, m, m + P), vector(out, logs, m)
    growth.fill(0.0)
    for c in range(classes):
        own = vector(out, m * r + c * mm, mm)
        move_class(c, parameters, sizes, work, own)
        for i in range(m):
            growth[i] += own[i * m + i]
    for x in range(classes * mm):
        i, j = x // m % m, x % m
        out[m * r + x] -= 0.5 * (growth[i] + growth[j]) * y[m * r + x]
    for i in range(m):
        for k in range(r):
            rate = 0.0
            for j in range(m):
                rate += N[i, j] * y[j * r + k]
            for p in range(P):
                rate += N[i, m + p] * parameters[P + p * r + k]
            s = parameters[P + P * r + sizes[KINDS + k]]
            out[i * r + k] = s * rate - 0.5 * growth[i] * y[i * r + k]


@kernel
def step_jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """About the diagonal of the Jacobian of the flow: what multiplies U and K, and −4 n g(1) Σ s K_ii of ln n."""
    m, P, r, classes = sizes[0], sizes[1], sizes[2], sizes[CLASSES]
    logs, of_class = m * r + classes * m * m, P + P * r
    link = link_at(parameters, sizes[LINK])
    N, Q = matrix(work, 0, m, m + P), matrix(work, m * (m + P), m, m + P)
    for i in range(m):
        for k in range(r):
            rate = N[i, i]
            for p in range(P):
                rate += parameters[p] * g2(link, Q[i, m + p]) * parameters[P + p * r + k] ** 2
            out[i * r + k] = parameters[of_class + sizes[KINDS + k]] * rate - 0.5 * out[logs + i]
        for c in range(classes):
            for j in range(m):
                rate = parameters[of_class + c] * (N[i, i] + N[j, j])
                out[m * r + (c * m + i) * m + j] = rate - 0.5 * (out[logs + i] + out[logs + j])
    for i in range(m):
        stretch = 0.0
        for c in range(classes):
            stretch += parameters[of_class + c] * y[m * r + (c * m + i) * m + i]
        out[logs + i] = -4.0 * np.exp(y[logs + i]) * g0(link, 1.0) * stretch


@kernel
def step_normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Σ_c K_c,ii = 1."""
    m, r, classes = sizes[0], sizes[2], sizes[CLASSES]
    for i in range(m):
        square = 0.0
        for c in range(classes):
            square += y[m * r + (c * m + i) * m + i]
        scale = 1.0 / np.sqrt(square)
        for k in range(r):
            y[i * r + k] *= scale
        for c in range(classes):
            for j in range(m):
                y[m * r + (c * m + i) * m + j] *= scale
                y[m * r + (c * m + j) * m + i] *= scale


class ClassStepSystem(ClassSystem):
    """The mean steps on `inputs`; ValueError for other links than polynomials, too many diagrams or classes."""

    name = "class-step"
    against_clusters = FlowSystem.against_clusters

    def __init__(self, problem: Problem, learning_rate: float, step_theory: str, batch_size: int = 1) -> None:
        check_polynomial(problem)
        super().__init__(problem)
        self.functions = Functions(step_rhs, vectors.event_values, step_normalise, step_jacobian_diagonal)
        (unit, log_norm), axes, teacher = self.start, self.axes, problem.teacher
        m, P, r, classes = problem.width, problem.num_directions, teacher.span, axes.eigenvalue.size
        hat, M = mean_derivatives(np.trim_zeros(problem.activation.coefficients, "b")), m + P
        count, most, here = count_diagrams(hat, hat), MOST_WEIGHTS // M**2, "for the equation of a finite learning rate"
        need = f"Argument `problem` must have a link of lower degree or of fewer terms {here}"
        but = f"but degree {hat.size - 1} gives up to {count} diagrams, more than {MOST_DIAGRAMS}."
        require(count <= MOST_DIAGRAMS, f"{need}, {but}")
        need = f"Argument `inputs` must have at most {most} distinct eigenvalues {here}"
        require(classes <= most, f"{need} with {M} neurons and directions together, but has {classes}.")
        shares = [unit[:, axes.kind == kind] @ unit[:, axes.kind == kind].T for kind in range(classes)]
        self.initial_state = np.concatenate([unit[:, :r].ravel(), np.ravel(shares), log_norm])
        self._shape = (classes, m, r)
        self._theta = np.eye(r) if teacher.directions is None else teacher.directions
        whole, share = step_theory == "finite-d", learning_rate / batch_size
        weights = [problem.label_noise, learning_rate - share if whole else 0.0, share]
        numbers = [teacher.coefficients, self._theta, axes.eigenvalue, axes.sizes, weights, hat, np.zeros(4)]
        more = [classes, hat.size - 1, whole, *axes.kind[:r]]
        self.parameters, self.sizes = with_link(problem, [m, P, r, P], numbers, more)
        self.work_size = m * M + M * M + M + classes * (M * M + m * m) + max(M * M + classes, 2 * m * M)

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps C and G of a state, or of a stack, and n."""
        classes, m, r = self._shape
        stack = state.shape[:-1]
        G = state[..., m * r : -m].reshape(*stack, classes, m, m).sum(axis=-3)
        np.einsum("...ii->...i", G)[...] = 1.0
        return state[..., : m * r].reshape(*stack, m, r) @ self._theta.T, G, np.exp(state[..., -m:])
