r"""The coupled overlap flow carried by unit vectors, for the implicit method.

.. math::
   u_i' &= F_i - (F_i \cdot u_i)\, u_i, \qquad
   F_i = \sum_p a_p g'(u_i \cdot \theta_p)\, \theta_p - \sum_{j \ne i} n_j g'(u_i \cdot u_j)\, u_j \\
   (\ln n_i)' &= 4 \Big[ \sum_p a_p g(u_i \cdot \theta_p) - \sum_j n_j g(u_i \cdot u_j) \Big]

in R^D, D = min(d, r + m), of which the state [C | G | ln n] of `dynamics.equations.overlaps` is a function. Integrated
by themselves (C, G) leave the set of overlaps that vectors have: rates of G are differences of terms of order 1, so
that rounding moves neurons at rest by 1e-16 per unit of time. With a horizon of 1e10 that decides where a slow neuron
goes. The rates of vectors are right relative to the components that move.

State y = [U (m, D) | ln n (m)], sizes = `VectorCounts`, parameters = [a (P) | θ (P, D) | θ² (P, D) | data of the link]
or, with no row of θ, [a (P) | data of the link]: the teacher's directions are the first P axes. `work` holds
`VectorWork`, and then what the Jacobian needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy

from dynamics.equations import link as links
from dynamics.equations.interface import EquationSystem, Functions
from dynamics.equations.link import g0, link_at, with_link, write_both, write_g0, write_g1, write_g2
from dynamics.kernels.jit import inlined_kernel, kernel, matrix, pasted_kernel, row_part, vector
from dynamics.kernels.products import multiply, multiply_transposed, write_gram_matrix
from dynamics.kernels.units import unit
from dynamics.problem.emergence import ALL_DEGREES, LEARNED_SHARE
from hermite.arrays import Integers, Matrix, Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem
    from hermite.arrays import Array

# Share c_1²/g'(1) of the linear part from which it couples neurons so much that the diagonal of the Jacobian does not
# help, and the `least_stiff` of such a flow: relu and gelu take a fifth fewer evaluations (m = P = 64).
COUPLED_SHARE, COUPLED_LEAST_STIFF = 0.25, 20
NOTHING = np.empty(0)


class VectorCounts(NamedTuple):
    """First entries of `sizes`: m, P, D, rows of θ, 1 if the sign matters, and the place of the link."""

    width: int
    directions: int
    axes: int
    rows: int
    sign_matters: int
    link_at: int


class VectorNumbers(NamedTuple):
    """First and last entries of `parameters`: a (P,), θ (rows, D), and the data of the link."""

    a: Vector
    teacher: Matrix
    link: Vector


class VectorWork(NamedTuple):
    """Parts of `work` that `forces` writes, for m neurons and P directions.

    A = a g'(C) (m, P) and B (m, m), −n_j g'(G_ij) without diagonal; squared norms n (m,); overlaps C (m, P) or G (m,
    m), in one place, with g of them, in one place too; and F·u (m,), the radial parts of the forces.
    """

    A: Matrix
    B: Matrix
    n: Vector
    C: Matrix
    G: Matrix
    values_of_C: Matrix
    values_of_G: Matrix
    radial: Vector


class ProductWork(NamedTuple):
    """Parts of `work` that the Jacobian writes, behind A, B, n, C and G of `VectorWork`.

    The diagonal writes `velocity` and `squares`, (m, D) each; the product writes the others.
    """

    velocity: Matrix
    squares: Matrix
    dC: Matrix
    dG: Matrix
    F: Matrix
    BdU: Matrix
    dB: Matrix
    dA: Matrix
    values: Matrix


@kernel
def counts_of(sizes: Integers) -> VectorCounts:
    """Return m, P, D, the number of rows of θ, whether the sign matters (1 or 0) and the index of the link's data."""
    return VectorCounts(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5])


@kernel
def numbers_of(parameters: Vector, sizes: Integers) -> VectorNumbers:
    """Return the coefficients a (P,), directions θ (rows, D) and the data of the link, views of `parameters`."""
    _, P, D, rows, _, place = counts_of(sizes)
    return VectorNumbers(vector(parameters, 0, P), matrix(parameters, P, rows, D), link_at(parameters, place))


@pasted_kernel
def squares_of_teacher(parameters: Vector, sizes: Integers) -> Matrix:
    """Return the squares of the entries of the directions θ, a view (rows, D) of `parameters`."""
    _, P, D, rows, _, _ = counts_of(sizes)
    return matrix(parameters, P + rows * D, rows, D)


@kernel
def rows_of(y: Vector, sizes: Integers) -> Matrix:
    """Return the m vectors that a state begins with, a view (m, D)."""
    counts = counts_of(sizes)
    return matrix(y, 0, counts.width, counts.axes)


@kernel
def split(y: Vector, sizes: Integers) -> tuple[Matrix, Vector]:
    """Return views of a state, or of its rates: vectors (m, D), and ln n (m,) of the squared norms n."""
    rows, counts = rows_of(y, sizes), counts_of(sizes)
    return rows, vector(y, rows.size, counts.width)


@kernel
def work_of(sizes: Integers, work: Vector) -> VectorWork:
    """Return the parts of `work` that `forces` writes by name."""
    m, P, _, _, _, _ = counts_of(sizes)
    at, size = m * P + m * m + m, m * max(m, P)
    A, B, n = matrix(work, 0, m, P), matrix(work, m * P, m, m), vector(work, at - m, m)
    C, G, last = matrix(work, at, m, P), matrix(work, at, m, m), at + size
    radial = vector(work, last + size, m)
    return VectorWork(A, B, n, C, G, matrix(work, last, m, P), matrix(work, last, m, m), radial)


@kernel
def product_work(sizes: Integers, work: Vector) -> ProductWork:
    """Return the parts of `work` that the Jacobian writes by name."""
    m, P, D, _, _, _ = counts_of(sizes)
    changes = m * P + m * m + m + m * max(m, P)
    at = changes + m * max(m, P)
    last = at + 2 * m * D
    velocity, squares = matrix(work, at + m, m, D), matrix(work, at + m + m * D, m, D)
    dC, dG = matrix(work, changes, m, P), matrix(work, changes, m, m)
    F, BdU = matrix(work, at, m, D), matrix(work, at + m * D, m, D)
    dB, dA = matrix(work, last, m, m), matrix(work, last + m * m, m, P)
    return ProductWork(velocity, squares, dC, dG, F, BdU, dB, dA, matrix(work, last + m * m + m * P, m, m))


@kernel
def flat(whole: Matrix) -> Vector:
    """Return a matrix as a vector."""
    return vector(whole, 0, whole.size)


@kernel
def write_norms(y: Vector, n: Vector) -> None:
    """Write the squared norms n (m,) of a state that ends with ln n."""
    for i in range(n.size):
        n[i] = np.exp(y[y.size - n.size + i])


@unit()
def write_events(
    C: Vector, n: Vector, a: Vector, link: Vector, sign_matters: int, learned: Vector, out: Vector
) -> None:
    """Write per direction max_i C_ip² − the emergence level, then learned mass − `LEARNED_SHARE` a_p, to `out` (2 P,).

    C (m P,) are overlaps, of which those below 0 do not count if `sign_matters` is 1; n (m,) are squared norms. The
    mass is Σ_i n_i g_3(C_ip)/g_3(1), where g_3 is the part of the link's kernel that counts as learned; `learned` (m
    P,) is scratch.
    """
    P = C.size // n.size
    of_learned = int(link[2])
    links.write_polynomial(link, of_learned, C, learned)
    learned_at_one = links.polynomial(link, of_learned, 1.0)
    for p in range(P):
        out[p] = -link[links.EMERGENCE]
        out[P + p] = -LEARNED_SHARE * a[p]
    for i in range(n.size):
        for p in range(P):
            c = C[i * P + p]
            if c > 0.0 or sign_matters == 0:
                out[p] = max(out[p], c * c - link[links.EMERGENCE])
            out[P + p] += n[i] / learned_at_one * learned[i * P + p]


@unit()
def project(U: Matrix, teacher: Matrix, C: Matrix) -> None:
    """Write C = U θᵀ (m, P) of vectors U (m, D) and directions θ; without rows of θ, the first P columns of U."""
    if teacher.shape[0] > 0:
        multiply_transposed(U, teacher, C)
    else:
        for i in range(U.shape[0]):
            for p in range(C.shape[1]):
                C[i, p] = U[i, p]


@unit()
def add_pull(A: Matrix, teacher: Matrix, F: Matrix) -> None:
    """Add A θ to F (m, D), for weights A (m, P) of directions θ; without rows of θ, A to the first P columns."""
    for i in range(F.shape[0]):
        if teacher.shape[0] == 0:
            for p in range(A.shape[1]):
                F[i, p] += A[i, p]
        for p in range(teacher.shape[0]):
            for k in range(F.shape[1]):
                F[i, k] += A[i, p] * teacher[p, k]


@kernel
def make_tangent(U: Matrix, F: Matrix, radial: Vector) -> None:
    """Replace each force F_i (of m rows) by F_i − (F_i·u_i) u_i; write F_i·u_i to `radial` (m,)."""
    for i in range(U.shape[0]):
        total = 0.0
        for k in range(U.shape[1]):
            total += F[i, k] * U[i, k]
        radial[i] = total
        for k in range(U.shape[1]):
            F[i, k] -= total * U[i, k]


@inlined_kernel
def weigh_row(sign: float, weights: Vector, values: Vector, slopes: Vector) -> float:
    """Multiply the slopes g' of a row by sign · weight, in place; return Σ_j weight_j g_j, of the `values` g."""
    total = 0.0
    for j in range(slopes.size):
        slopes[j] *= sign * weights[j]
        total += weights[j] * values[j]
    return total


@unit()
def write_overlaps(y: Vector, C: Matrix, parameters: Vector, sizes: Integers) -> None:
    """Write the overlaps C (m, P) of directions and the vectors that a state begins with."""
    project(rows_of(y, sizes), numbers_of(parameters, sizes).teacher, C)


@kernel
def forces(y: Vector, F: Matrix, growth: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the forces F (m, D) and growth Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij) (m,) of unit vectors U.

    F = A θ + B U, with A = a g'(C) and B_ij = −n_j g'(G_ij) without diagonal: C and G are overlaps with directions θ
    and among neurons, n squared norms, g the link's kernel. A, B and n stay in `work`.
    """
    U, (a, teacher, link) = rows_of(y, sizes), numbers_of(parameters, sizes)
    A, B, n, C, G, of_C, of_G, _ = work_of(sizes, work)
    m, P = A.shape
    write_norms(y, n)
    project(U, teacher, C)
    write_both(link, flat(C), flat(of_C), flat(A))
    for i in range(m):
        growth[i] = weigh_row(1.0, a, row_part(of_C, i, 0, P), row_part(A, i, 0, P))
    write_gram_matrix(U, G, flat(of_G))
    unit = g0(link, 1.0)
    write_both(link, flat(G), flat(of_G), flat(B))
    for i in range(m):
        # The force of a neuron on itself is radial, and its own part of the growth that of a unit vector.
        self_part = n[i] * (of_G[i, i] - unit)
        growth[i] += self_part - weigh_row(-1.0, n, row_part(of_G, i, 0, m), row_part(B, i, 0, m))
        B[i, i] = 0.0
    multiply(B, U, F)
    add_pull(A, teacher, F)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of unit vectors, u' = F − (F·u) u (m, D), and (ln n)' = 4 growth (m,).

    F and the growth are those of `forces`: n is the squared norm of a neuron. Time t does not enter.
    """
    U, (F, growth) = rows_of(y, sizes), split(out, sizes)
    forces(y, F, growth, parameters, sizes, work)
    make_tangent(U, F, work_of(sizes, work).radial)
    for i in range(growth.size):
        growth[i] *= 4.0


@kernel
def add_bend(y: Vector, bend: Matrix, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add Σ_p a_p g''(C_ip) θ_pk² to `bend` (m, D), for overlaps C with the directions θ; overwrites A and C."""
    (a, _, link), parts = numbers_of(parameters, sizes), work_of(sizes, work)
    A, C = parts.A, parts.C
    write_overlaps(y, C, parameters, sizes)
    write_g2(link, flat(C), flat(A))
    for i in range(A.shape[0]):
        for p in range(a.size):
            A[i, p] *= a[p]
    add_pull(A, squares_of_teacher(parameters, sizes), bend)


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write an approximate diagonal of the Jacobian: (1 − u_k²) H_kk − u_k F_k − F·u for entry k of vector u.

    F is the force on u and H = ∂F/∂u.

    H_kk = Σ_p a_p g''(C_p) θ_pk² − Σ_{j≠i} n_j g''(G_ij) u_jk². The terms left out matter where a neuron is in motion.
    """
    U, (bend, growth), link = rows_of(y, sizes), split(out, sizes), numbers_of(parameters, sizes).link
    (_, B, n, _, G, _, _, radial), parts = work_of(sizes, work), product_work(sizes, work)
    velocity, squares = parts.velocity, parts.squares
    m, D = U.shape
    # The overlaps of neurons are those that `forces` has written.
    write_g2(link, flat(G), flat(B))
    for i in range(m):
        for j in range(m):
            B[i, j] *= -n[j]
        B[i, i] = 0.0
        for k in range(D):
            squares[i, k] = U[i, k] * U[i, k]
            velocity[i, k] = bend[i, k]
    multiply(B, squares, bend)
    add_bend(y, bend, parameters, sizes, work)
    unit = g0(link, 1.0)
    for i in range(m):
        for k in range(D):
            force = velocity[i, k] + radial[i] * U[i, k]
            bend[i, k] = (1.0 - squares[i, k]) * bend[i, k] - U[i, k] * force - radial[i]
        growth[i] = -4.0 * n[i] * unit


@kernel
def jacobian_product(
    t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """Write the derivative of `rhs` along the direction v = [dU (m, D) | d ln n (m,)].

    It takes no differences of forces that are nearly equal.

    dF = dA θ + dB U + B dU with dA = a g''(C) dC, dB_ij = −n_j (g''(G) dG + g'(G) d ln n_j), dG = dU Uᵀ + U dUᵀ.
    """
    U, (V, turns), (dF, rate) = rows_of(y, sizes), split(v, sizes), split(out, sizes)
    (a, teacher, link), (A, B, n, C, G, _, _, _) = numbers_of(parameters, sizes), work_of(sizes, work)
    _, _, dC, dG, F, BdU, dB, dA, values = product_work(sizes, work)
    (m, P), D = A.shape, U.shape[1]
    project(U, teacher, C)
    project(V, teacher, dC)
    write_g1(link, flat(C), flat(A))
    write_g2(link, flat(C), flat(dA))
    for i in range(m):
        total = 0.0
        for p in range(P):
            A[i, p] *= a[p]
            dA[i, p] *= a[p] * dC[i, p]
            total += A[i, p] * dC[i, p]
        rate[i] = total
    multiply_transposed(U, U, G)
    multiply_transposed(V, U, dG)
    write_norms(y, n)
    for i in range(m):
        for j in range(i):
            dG[i, j] = dG[j, i] = dG[i, j] + dG[j, i]
        dG[i, i] = 0.0
    write_g0(link, flat(G), flat(values))
    write_g1(link, flat(G), flat(B))
    write_g2(link, flat(G), flat(dB))
    unit = g0(link, 1.0)
    for i in range(m):
        total = n[i] * (values[i, i] - unit) * turns[i]
        for j in range(m):
            slope, turn, mass = B[i, j], dG[i, j], turns[j]
            total -= n[j] * (slope * turn + values[i, j] * mass)
            B[i, j] = -n[j] * slope
            dB[i, j] = -n[j] * (dB[i, j] * turn + slope * mass)
        B[i, i] = dB[i, i] = 0.0
        rate[i] = 4.0 * (rate[i] + total)
    multiply(B, U, F)
    multiply(dB, U, dF)
    multiply(B, V, BdU)
    add_pull(A, teacher, F)
    add_pull(dA, teacher, dF)
    for i in range(m):
        radial = change = 0.0
        for k in range(D):
            dF[i, k] += BdU[i, k]
            radial += F[i, k] * U[i, k]
            change += dF[i, k] * U[i, k] + F[i, k] * V[i, k]
        for k in range(D):
            dF[i, k] -= change * U[i, k] + radial * V[i, k]


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write emergence and learned mass of each direction minus their levels, see `write_events`, to `out` (2 P,)."""
    (_, _, n, C, _, learned, _, _), (a, _, link) = work_of(sizes, work), numbers_of(parameters, sizes)
    write_norms(y, n)
    write_overlaps(y, C, parameters, sizes)
    write_events(flat(C), n, a, link, counts_of(sizes).sign_matters, flat(learned), out)


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Scale every u_i to length 1."""
    U = rows_of(y, sizes)
    m, D = U.shape
    for i in range(m):
        total = 0.0
        for k in range(D):
            total += U[i, k] * U[i, k]
        scale = 1.0 / np.sqrt(total)
        for k in range(D):
            U[i, k] *= scale


def unit_vectors(problem: Problem) -> tuple[Array, Array]:
    """Return the start as unit vectors (m, D), the teacher's axes first and at most m others, and ln n (m,)."""
    weights = problem.reduced_weights()
    span, m = problem.teacher.span, problem.width
    if weights.shape[1] > span + m:
        (factor,) = scipy.linalg.qr(weights[:, span:].T, mode="r")
        weights = np.hstack([weights[:, :span], factor[:m].T])
    return directions_and_norms(weights)


def directions_and_norms(weights: Array) -> tuple[Array, Array]:
    """Return unit vectors (…, m, D), and ln n (…, m) of squared norms n, of weights (…, m, D)."""
    squared_norm = np.sum(weights**2, axis=-1)
    return np.ascontiguousarray(weights / np.sqrt(squared_norm)[..., None]), np.log(squared_norm)


def teacher_rows(problem: Problem, columns: int) -> Array:
    """Return the directions θ_p as rows, shape (P, columns); no row if they are the first P axes themselves."""
    rows = problem.teacher.directions
    return np.empty((0, columns)) if rows is None else np.pad(rows, ((0, 0), (0, columns - rows.shape[1])))


def overlap_state(
    U: Array,
    log_norm: Array,
    teacher: Array,
    num_directions: int,
    out: Array | None = None,
    products: Callable[[Array, Array], object] = lambda U, G: np.matmul(U, np.swapaxes(U, -1, -2), out=G),
) -> Array:
    """Return [C | G | ln n], shape (m P + m² + m,), of unit vectors U (m, D), or of a stack of them.

    C are overlaps with the P directions, rows of `teacher` or the first axes, G those among neurons, and n squared
    norms. `products` writes G = U Uᵀ.
    """
    (*stack, m, _), P = U.shape, num_directions
    state = np.empty((*stack, m * P + m * m + m)) if out is None else out
    C, G = state[..., : m * P].reshape(*stack, m, P), state[..., m * P : -m].reshape(*stack, m, m)
    C[...] = U @ teacher.T if teacher.size else U[..., :P]
    products(U, G)
    np.einsum("...ii->...i", G)[...] = 1.0
    state[..., -m:] = log_norm
    return state


class VectorSystem(EquationSystem):
    """The flow on unit vectors from U and ln n, by default the problem's; `more` stands before the link's data."""

    name = "vectors"

    def __init__(self, problem: Problem, start: tuple[Array, Array] | None = None, more: Array = NOTHING) -> None:
        """Prepare the flow from `start`, U (m, D) and ln n (m,), by default that of the problem.

        `more` are numbers that stand before the data of the link in `parameters`.
        """
        U, log_norm = unit_vectors(problem) if start is None else start
        (m, D), P = U.shape, problem.num_directions
        self.problem, self.shape, self.num_events = problem, (m, D), 2 * P
        linear, slope = problem.activation.coefficients[1] ** 2, float(problem.activation.kernel_derivative(1.0))
        least_stiff = COUPLED_LEAST_STIFF if linear > COUPLED_SHARE * slope else 1
        self.functions = Functions(rhs, event_values, normalise, jacobian_diagonal, jacobian_product, least_stiff)
        self.teacher = teacher_rows(problem, D)
        self.initial_state: Array = self.pack(U, log_norm)
        numbers = [problem.teacher.coefficients, self.teacher, self.teacher**2, more]
        self.parameters, self.sizes = with_link(problem, [m, P, D, len(self.teacher)], numbers)
        self.work_size = 2 * m * P + 3 * m * m + 2 * m * D + 2 * m + 2 * m * max(m, P)

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component: in units of 1/√d, the size of a random overlap, for vectors; plain for ln n."""
        m, D = self.shape
        return np.repeat([atol / np.sqrt(self.problem.dimension), atol], [m * D, m])

    def pack(self, U: Array, log_norm: Array) -> Array:
        """Return the state with these unit vectors, shape (m, D), and ln n, shape (m,)."""
        return np.concatenate([U.ravel(), log_norm])

    def unpack(self, state: Array) -> tuple[Array, Array]:
        """Return views of the vectors, shape (m, D), and of ln n, shape (m,), of a state or of a stack of them."""
        m, D = self.shape
        return state[..., : m * D].reshape(*state.shape[:-1], m, D), state[..., m * D :]

    def overlaps(self, state: Array, out: Array | None = None) -> Array:
        """Return [C | G | ln n], the state of `OverlapSystem`, or a stack of them."""
        return overlap_state(*self.unpack(state), self.teacher, self.problem.num_directions, out)

    def overlap_rates(self, state: Array, rates: Array) -> Array:
        """Return the rates of [C | G | ln n] for given rates of the state: C' = U' θᵀ, G' = U' Uᵀ + U U'ᵀ."""
        (U, _), (dU, growth) = self.unpack(state), self.unpack(rates)
        dC = dU @ self.teacher.T if self.teacher.size else dU[:, : self.problem.num_directions]
        product = dU @ U.T
        return np.concatenate([dC.ravel(), (product + product.T).ravel(), growth])


# The flow of weights with forces linear in the overlaps, for information exponents 1 and 2.
#
# .. math::
#    w_i' = 2 c_0^2 \Big(\sum_p a_p - \sum_j n_j\Big) w_i + c_1^2 [(u_i\cdot v) w_i + |w_i| v] + 2 c_2^2 (A - S) w_i,
#    \qquad v = \sum_p a_p \theta_p - \sum_j |w_j| w_j
#
# with A = Σ_p a_p θ_p θ_pᵀ and S = Σ_j w_j w_jᵀ. It is the flow itself of a link that has c_0, c_1 and c_2 alone.
#
# State W (m, D), sizes as above, parameters = [a (P) | θ (P, D) | data of the link with c_0, c_1 and c_2 alone].


@kernel
def linear_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write W' = B W + A θ (m, D), the flow of weights with forces linear in the overlaps.

    B_ij = −2 c_2² w_i·w_j − c_1² |w_i| |w_j|, plus on the diagonal the growth along w_i; A (m, P) are the weights of
    the directions θ, and c_1, c_2 Hermite coefficients of the link.
    """
    W, weight_rates, (a, teacher, link) = rows_of(y, sizes), rows_of(out, sizes), numbers_of(parameters, sizes)
    (A, B, length, _, _, _, _, _), squares = work_of(sizes, work), vector(link, links.VALUE + links.HEAD, 3)
    m, P = A.shape
    multiply_transposed(W, W, B)
    project(W, teacher, A)
    weight_gap = 0.0
    for p in range(P):
        weight_gap += a[p]
    for i in range(m):
        weight_gap -= B[i, i]
        length[i] = np.sqrt(B[i, i])
    for i in range(m):
        along = 0.0
        for p in range(P):
            along += a[p] * A[i, p]
            A[i, p] = a[p] * (2.0 * squares[2] * A[i, p] + squares[1] * length[i])
        for j in range(m):
            along -= length[j] * B[i, j]
            B[i, j] = -2.0 * squares[2] * B[i, j] - squares[1] * length[i] * length[j]
        B[i, i] += 2.0 * squares[0] * weight_gap + squares[1] * along / length[i]
    multiply(B, W, weight_rates)
    add_pull(A, teacher, weight_rates)


@kernel
def linear_event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of `write_events`, then per direction its weight carried in degrees 0 to 2, minus a_p/2.

    That weight is Σ_i n_i g(C_ip)/g(1), for squared norms n, overlaps C and the kernel g of the link.
    """
    W, (_, _, n, C, _, learned, _, _) = rows_of(y, sizes), work_of(sizes, work)
    a, _, link = numbers_of(parameters, sizes)
    (m, P), D = C.shape, W.shape[1]
    write_overlaps(y, C, parameters, sizes)
    for p in range(P):
        out[2 * P + p] = -LEARNED_SHARE * a[p]
    for i in range(m):
        n[i] = 0.0
        for k in range(D):
            n[i] += W[i, k] * W[i, k]
        for p in range(P):
            C[i, p] /= np.sqrt(n[i])
            out[2 * P + p] += n[i] * g0(link, C[i, p]) / g0(link, 1.0)
    write_events(flat(C), n, a, link, counts_of(sizes).sign_matters, flat(learned), out)


class LinearisedSystem(EquationSystem):
    """The linearised flow; events: a direction emerges, is learned, its weight is half carried in degrees 0 to 2."""

    name = "linearised"
    functions = Functions(linear_rhs, linear_event_values)

    def __init__(self, problem: Problem) -> None:
        """Prepare the linearised flow of a problem, from its weights."""
        weights, P = problem.reduced_weights(), problem.num_directions
        (m, D), part, coefficients = weights.shape, problem.learned_part, problem.activation.coefficients[:3]
        teacher, counted = (
            teacher_rows(problem, D),
            coefficients if part.definition == ALL_DEGREES else part.coefficients,
        )
        link = links.data_of_series(tuple(coefficients.tolist()), tuple((counted**2).tolist())).copy()
        link[links.EMERGENCE] = problem.emergence_level
        self.problem = problem
        self.initial_state: Array = weights.ravel()
        self.parameters: Array = np.concatenate([problem.teacher.coefficients, teacher.ravel(), link])
        counts = VectorCounts(m, P, D, len(teacher), problem.information_exponent % 2, P + teacher.size)
        self.sizes: Integers = np.array(counts, dtype=np.int64)
        self.work_size = m * (P + m) + 2 * m + 2 * m * max(m, P)
        self.num_events = 3 * P

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component, in units of the root mean square of the weights at the start."""
        return np.full(self.initial_state.size, atol * np.sqrt(np.mean(self.initial_state**2)))
