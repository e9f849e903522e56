r"""The overlaps under online SGD of a finite learning rate on inputs of covariance Σ, closed class by class.

Whitened, a sample g ~ N(0, I) moves ŵ_i by −η e Σ ∇_i, ∇_i = ρ_i [α(z_i) u_i + σ'(z_i) g] as on isotropic inputs
(`dynamics.equations.finite_step`). With U the coordinates of unit neurons on the axes of the teacher, K_c
the share of class c in G, and X_c that of class c in the Gram matrix X of the m unit neurons and P directions,

.. math::
   U_{il}' = s_l Y_{il} - \tfrac12 \ell_i' U_{il}, \qquad
   K_c' = s_c (V_c + V_c^T) + s_c^2 H_c - \tfrac12 (\ell_i' + \ell_j') K_c, \qquad
   \ell_i' = (\ln n_i)' = \sum_c [2 s_c V_c + s_c^2 H_c]_{ii}

in the time η · step, with Y = F U + A Θ, V_c the products of Y and U within class c, F = diag(e) − B of
`dynamics.equations.classes`, and H_c = η [D_c + (second_c − D_c)/B] for batches of B samples, D_c =
Y_c Y_cᵀ. For class c of d_c axes Stein's lemma leaves the sum over the m + P vectors

.. math::
   \mathrm{second}_c = d_c\, E[(\bar e^2 + \tau^2)\, \sigma'_i \sigma'_j] + \sum_{ab} J^{(ij)}_{ab} X_{c,ab}

with J linear in means of four functions. In ē = Σ_a w_a σ_a, w = (n, −a), and A(z) = α + σ'' of mean derivatives
(2 − k) f̂_k, its entries are sums of

.. math::
   ab:&\; 2 w_a w_b E[\sigma'_a \sigma'_b \sigma'_i \sigma'_j], \quad
   aa: 2 w_a E[\bar e\, \sigma''_a \sigma'_i \sigma'_j], \quad
   ai: 2 w_a E[\bar e\, \sigma'_a (A + \sigma'')_i \sigma'_j], \\
   ii:&\; E[(\bar e^2 + \tau^2) (\sigma''' + \alpha')_i \sigma'_j], \quad
   ij: E[(\bar e^2 + \tau^2) (A_i A_j + \sigma''_i \sigma''_j)],

and of the same with i and j exchanged. "infinite-d" keeps d_c E[…]/B alone, the limit tr Σ → ∞ at fixed η tr Σ.
What is left out is the scatter of single runs about the mean. Dimensionless throughout.

State y = [U (m, r) | K (classes, m, m) | ln n (m)]; parameters = [a (P) | Θ (P, r) | s | d_c (classes) | τ, two weights
| f̂ (degree + 4) | data of the link], sizes = [m, P, r, classes, degree, sign_matters, whole, place of the link | class
of every axis of the teacher (r)]. The equations are those of `dynamics.equations.classes`; a diagram
(e, r, s) is one of `hermite.polynomials`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.classes import ClassSystem
from dynamics.equations.finite_step import MOST_DIAGRAMS, check_polynomial
from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.link import g0, g2, learned_kernel, link_at, link_data, write_both
from dynamics.kernels.jit import kernel, matrix, vector
from dynamics.kernels.products import product
from dynamics.problem.inputs import MOST_WEIGHTS
from hermite.arrays import Integers, Matrix, Vector
from hermite.polynomials import count_diagrams, mean_derivatives

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array

#: A squared norm beyond this multiple of Σ a counts as infinite, as in the equation of isotropic inputs.
LARGEST_NORM = 1e4
LINK, HEADER = 7, 8


@kernel
def clear(numbers: Vector) -> None:
    """Set all numbers to 0."""
    for x in range(numbers.size):
        numbers[x] = 0.0


@kernel
def write_forces(y: Vector, parameters: Vector, sizes: Integers, work: Vector, w: Vector, scratch: Vector) -> None:
    """Write w = (n, −a), and A = a g'(C), F = diag(e) − n g'(G) and the Gram matrix of all vectors, Q, to `work`.

    `scratch` has place for 2 m (m + P) numbers.
    """
    m, P, r, classes = sizes[0], sizes[1], sizes[2], sizes[3]
    M, at = m + P, m * P + m * m
    A, F, Q = matrix(work, 0, m, P), matrix(work, m * P, m, m), matrix(work, at, M, M)
    U, rows = matrix(y, 0, m, r), matrix(parameters, P, P, r)
    clear(vector(work, at, M * M))
    for c in range(classes):
        K = matrix(y, m * r + c * m * m, m, m)
        for i in range(m):
            for j in range(m):
                Q[i, j] += K[i, j]
    for p in range(P):
        w[m + p] = -parameters[p]
        for i in range(m):
            total = 0.0
            for k in range(r):
                total += U[i, k] * rows[p, k]
            Q[i, m + p] = Q[m + p, i] = total
        for q in range(P):
            total = 0.0
            for k in range(r):
                total += rows[p, k] * rows[q, k]
            Q[m + p, m + q] = total
        Q[m + p, m + p] = 1.0
    for i in range(m):
        Q[i, i] = 1.0
        w[i] = np.exp(y[m * r + classes * m * m + i])
    value, slope = matrix(scratch, 0, m, M), matrix(scratch, m * M, m, M)
    link = link_at(parameters, sizes[LINK])
    write_both(link, vector(work, at, m * M), vector(scratch, 0, m * M), vector(scratch, m * M, m * M))
    for i in range(m):
        total = 0.0
        for p in range(P):
            A[i, p] = parameters[p] * slope[i, m + p]
            total += 2.0 * parameters[p] * value[i, m + p] - A[i, p] * Q[i, m + p]
        for j in range(m):
            F[i, j] = -w[j] * slope[i, j]
            total -= F[i, j] * Q[i, j] + 2.0 * w[j] * value[i, j]
        F[i, i] += total


@kernel
def write_parts(y: Vector, parameters: Vector, sizes: Integers, parts: Matrix) -> None:
    """Write the share of every class in the Gram matrix of neurons and directions, one row of M² numbers each."""
    m, P, r, classes = sizes[0], sizes[1], sizes[2], sizes[3]
    M = m + P
    for c in range(classes):
        clear(parts[c])
    for c in range(classes):
        for i in range(m):
            for j in range(m):
                parts[c, i * M + j] = y[m * r + (c * m + i) * m + j]
    for k in range(r):
        row = parts[sizes[HEADER + k]]
        for p in range(P):
            theta = parameters[P + p * r + k]
            for i in range(m):
                row[i * M + m + p] += y[i * r + k] * theta
                row[(m + p) * M + i] += y[i * r + k] * theta
            for q in range(P):
                row[(m + p) * M + m + q] += theta * parameters[P + q * r + k]


@kernel
def write_pair_means(c: float, degree: int, hat: Vector, Z: Matrix) -> None:
    """Means of φ^(R)(z_i) ψ^(S)(z_j) at z_i·z_j = c, one row of (degree + 1)² numbers for each of six pairs (φ, ψ)."""
    size = degree + 1
    for q in range(6):
        clear(Z[q])
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
    rows = 0
    most = (degree + 1) * (degree + 2) // 2
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
    most, M = Y.shape
    count = degree - e + 1
    x = -1
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
    i: int, j: int, noise: float, degree: int, whole: bool, hat: Vector, w: Vector, Q: Matrix, work: Vector, J: Matrix
) -> float:
    """Return E[(ē² + τ²) σ'_i σ'_j], and write J, of which Σ_ab J_ab X_c,ab comes on top of d_c times that."""
    M, size = w.size, degree + 1
    most = size * (size + 1) // 2
    Z, H = matrix(work, 0, 6, size * size), matrix(work, 6 * size * size, 3 * most, M)
    o = 6 * size * size + 3 * most * M
    Y, P, power = matrix(work, o, most, M), matrix(work, o + most * M, most, M), matrix(work, o + 2 * most * M, M, M)
    ends = matrix(work, o + 2 * most * M + M * M, 5, M + 2)
    write_pair_means(Q[i, j], degree, hat, Z)
    for a in range(M):
        clear(J[a])
        for b in range(M):
            power[a, b] = 1.0
    clear(vector(work, o + 2 * most * M + M * M, 5 * (M + 2)))
    for e in range(size):
        rows = write_halves(e, i, j, degree, hat, w, Q, H)
        product(matrix(work, 6 * size * size, rows, M), power, matrix(work, o, rows, M))
        clear(vector(work, o + most * M, most * M))
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
def write_noise(y: Vector, parameters: Vector, sizes: Integers, work: Vector, second: Matrix) -> None:
    """Write E[e² ∇_i·∇_j]/(ρ_i ρ_j) of the axes of every class, (classes, m²); A, F, Q, w and parts stand in `work`."""
    m, P, r, classes, degree = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    M = m + P
    o = m * P + m * m
    Q, w, parts = matrix(work, o, M, M), vector(work, o + M * M, M), matrix(work, o + M * M + M, classes, M * M)
    o += M * M + M + classes * M * M + classes * m * m
    J, share, rest = matrix(work, o, M, M), matrix(work, o + M * M, classes, 1), work[o + M * M + classes :]
    counts = parameters[P + P * r + classes : P + P * r + 2 * classes]
    noise = parameters[P + P * r + 2 * classes] ** 2
    hat = parameters[P + P * r + 2 * classes + 3 :]
    for i in range(m):
        for j in range(i + 1):
            slope = write_share(i, j, noise, degree, sizes[6] == 1, hat, w, Q, rest, J)
            product(parts, matrix(work, o, M * M, 1), share)
            for c in range(classes):
                more = share[c, 0] if sizes[6] == 1 else 0.0
                second[c, i * m + j] = second[c, j * m + i] = counts[c] * slope + more


@kernel
def move_class(c: int, parameters: Vector, sizes: Integers, work: Vector, out: Vector) -> None:
    """Write s (V + Vᵀ) + s² H of a class, V its part of (F | A) X, of which D is the product with (F | A)ᵀ."""
    m, P, classes = sizes[0], sizes[1], sizes[3]
    M, mm = m + P, m * m
    A, F = matrix(work, 0, m, P), matrix(work, m * P, m, m)
    o = m * P + mm + M * M + M
    part, students = matrix(work, o + c * M * M, M, M), matrix(work, o + c * M * M, m, M)
    o += classes * M * M
    second, V = vector(work, o + c * mm, mm), matrix(work, o + classes * mm, m, M)
    of_class = P + P * sizes[2]
    s = parameters[of_class + c]
    of_drift, of_noise = parameters[of_class + 2 * classes + 1], parameters[of_class + 2 * classes + 2]
    product(F, students, V)
    for i in range(m):
        for p in range(P):
            for b in range(m + P):
                V[i, b] += A[i, p] * part[m + p, b]
    for i in range(m):
        for j in range(m):
            drift = 0.0
            if of_drift != 0.0:
                for b in range(m):
                    drift += V[i, b] * F[j, b]
                for p in range(P):
                    drift += V[i, m + p] * A[j, p]
            out[i * m + j] = s * (V[i, j] + V[j, i]) + s * s * (of_drift * drift + of_noise * second[i * m + j])


@kernel
def blown_up(y: Vector, parameters: Vector, m: int, P: int) -> bool:
    """Whether a squared norm is beyond `LARGEST_NORM` of the teacher's."""
    total = 0.0
    for p in range(P):
        total += parameters[p]
    bound = np.log(LARGEST_NORM * total)
    largest = y[y.size - m]
    for x in range(y.size - m, y.size):
        largest = max(largest, y[x])
    return bool(largest > bound)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Mean motion of U, K and ln n; not-a-number after a blow-up."""
    m, P, r, classes = sizes[0], sizes[1], sizes[2], sizes[3]
    M, mm, logs = m + P, m * m, m * r + classes * m * m
    if blown_up(y, parameters, m, P):
        for x in range(out.size):
            out[x] = np.nan
        return
    A, F = matrix(work, 0, m, P), matrix(work, m * P, m, m)
    o = m * P + mm
    w, parts = vector(work, o + M * M, M), matrix(work, o + M * M + M, classes, M * M)
    o += M * M + M + classes * M * M
    second = matrix(work, o, classes, mm)
    write_forces(y, parameters, sizes, work, w, vector(work, o + classes * mm, 2 * m * M))
    write_parts(y, parameters, sizes, parts)
    write_noise(y, parameters, sizes, work, second)
    growth = vector(out, logs, m)
    clear(growth)
    for c in range(classes):
        own = vector(out, m * r + c * mm, mm)
        move_class(c, parameters, sizes, work, own)
        for i in range(m):
            growth[i] += own[i * m + i]
    for x in range(classes * mm):
        i, j = x // m % m, x % m
        out[m * r + x] -= 0.5 * (growth[i] + growth[j]) * y[m * r + x]
    U, dU = matrix(y, 0, m, r), matrix(out, 0, m, r)
    product(F, U, dU)
    for i in range(m):
        for k in range(r):
            for p in range(P):
                dU[i, k] += A[i, p] * parameters[P + p * r + k]
            dU[i, k] = parameters[P + P * r + sizes[HEADER + k]] * dU[i, k] - 0.5 * growth[i] * U[i, k]


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """About the diagonal of the Jacobian of the flow: what multiplies U and K, and −4 n g(1) Σ s K_ii of ln n."""
    m, P, r, classes = sizes[0], sizes[1], sizes[2], sizes[3]
    logs, of_class = m * r + classes * m * m, P + P * r
    link = link_at(parameters, sizes[LINK])
    rhs(t, y, out, parameters, sizes, work)
    F = matrix(work, m * P, m, m)
    for i in range(m):
        for k in range(r):
            rate = F[i, i]
            for p in range(P):
                theta, C = parameters[P + p * r + k], 0.0
                for q in range(r):
                    C += parameters[P + p * r + q] * y[i * r + q]
                rate += parameters[p] * g2(link, C) * theta * theta
            out[i * r + k] = parameters[of_class + sizes[HEADER + k]] * rate - 0.5 * out[logs + i]
        for c in range(classes):
            for j in range(m):
                rate = parameters[of_class + c] * (F[i, i] + F[j, j])
                out[m * r + (c * m + i) * m + j] = rate - 0.5 * (out[logs + i] + out[logs + j])
    for i in range(m):
        stretch = 0.0
        for c in range(classes):
            stretch += parameters[of_class + c] * y[m * r + (c * m + i) * m + i]
        out[logs + i] = -4.0 * np.exp(y[logs + i]) * g0(link, 1.0) * stretch


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence max_i C_ip² − ½ (C > 0 only, if the sign matters), then Σ_i n_i g_3(C_ip)/g_3(1) − a_p/2."""
    m, P, r, logs = sizes[0], sizes[1], sizes[2], sizes[0] * sizes[2] + sizes[3] * sizes[0] * sizes[0]
    link = link_at(parameters, sizes[LINK])
    whole = learned_kernel(link, 1.0)
    for p in range(P):
        out[p] = -0.5
        out[P + p] = -0.5 * parameters[p]
    for i in range(m):
        share = np.exp(y[logs + i]) / whole
        for p in range(P):
            C = 0.0
            for k in range(r):
                C += parameters[P + p * r + k] * y[i * r + k]
            if C > 0.0 or sizes[5] == 0:
                out[p] = max(out[p], C * C - 0.5)
            out[P + p] += share * learned_kernel(link, C)


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Σ_c K_c,ii = 1."""
    m, r, classes = sizes[0], sizes[2], sizes[3]
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


STEP_FUNCTIONS = Functions(rhs, event_values, normalise, jacobian_diagonal)


class ClassStepSystem(ClassSystem):
    """State layout, kernels and observables of the mean steps of a problem that has `inputs`.

    State: U (m, r) on the teacher's axes, K (classes, m, m), and ln n (m,). Raises ValueError if the link is not a
    polynomial or of too many diagrams, or if the classes are too many.
    """

    name = "class-step"
    against_clusters = FlowSystem.against_clusters

    def __init__(self, problem: Problem, learning_rate: float, step_theory: str, batch_size: int = 1) -> None:
        check_polynomial(problem)
        super().__init__(problem)
        self.functions = STEP_FUNCTIONS
        axes, link, teacher = self.axes, problem.activation, problem.teacher
        m, P, r, classes = problem.width, problem.num_directions, teacher.span, axes.eigenvalue.size
        hat = mean_derivatives(np.trim_zeros(link.coefficients, "b"))
        _check_sizes(hat, m + P, classes)
        unit, log_norm = self.initial_state[:-m].reshape(self.shape), self.initial_state[-m:]
        shares = [unit[:, axes.kind == kind] @ unit[:, axes.kind == kind].T for kind in range(classes)]
        self.initial_state = np.concatenate([unit[:, :r].ravel(), np.ravel(shares), log_norm])
        self.shape = (classes, m, r)
        whole, share = step_theory == "finite-d", learning_rate / batch_size
        numbers = np.concatenate(
            [
                teacher.coefficients,
                self.teacher.ravel(),
                axes.eigenvalue,
                axes.sizes.astype(np.float64),
                [problem.label_noise, learning_rate - share if whole else 0.0, share],
                np.append(hat, np.zeros(4)),
            ]
        )
        self.parameters = np.concatenate([numbers, link_data(problem)])
        counts = [m, P, r, classes, hat.size - 1, problem.information_exponent % 2, whole, numbers.size]
        self.sizes = np.array([*counts, *axes.kind[:r]], dtype=np.int64)
        M, half = m + P, hat.size * (hat.size + 1) // 2
        of_moments = 2 * M * M + classes + 6 * hat.size**2 + 5 * half * M + 5 * (M + 2)
        self.work_size = m * M + M * M + M + classes * (M * M + m * m) + max(of_moments, 2 * m * M)

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component: in units of 1/√d, the size of a random overlap, for U and K; plain for ln n."""
        classes, m, r = self.shape
        return np.repeat([atol / np.sqrt(self.problem.dimension), atol], [m * r + classes * m * m, m])

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps C and G of a state, or of a stack, and n."""
        classes, m, r = self.shape
        stack = state.shape[:-1]
        G = state[..., m * r : -m].reshape(*stack, classes, m, m).sum(axis=-3)
        np.einsum("...ii->...i", G)[...] = 1.0
        return state[..., : m * r].reshape(*stack, m, r) @ self.teacher.T, G, np.exp(state[..., -m:])


def _check_sizes(hat: Array, vectors: int, classes: int) -> None:
    """Refuse links of too many diagrams, and classes of too many shares."""
    count = count_diagrams(hat, hat)
    if count > MOST_DIAGRAMS:
        msg = (
            "Argument `problem` must have a link of lower degree or of fewer terms for the equation of a finite "
            f"learning rate, but degree {hat.size - 1} gives up to {count} diagrams, more than {MOST_DIAGRAMS}."
        )
        raise ValueError(msg)
    if classes * vectors**2 > MOST_WEIGHTS:
        msg = (
            f"Argument `inputs` must have at most {MOST_WEIGHTS // vectors**2} distinct eigenvalues for the equation "
            f"of a finite learning rate with {vectors} neurons and directions together, but has {classes}."
        )
        raise ValueError(msg)
