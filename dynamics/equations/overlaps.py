r"""The exact coupled overlap flow of the 2-homogeneous student, for any Hermite kernel and any teacher Gram matrix.

.. math::
   A_{ip} &= a_p\, g'(C_{ip}), \qquad B_{ij} = n_j\, g'(G_{ij}), \qquad X = A C^T - B G, \qquad r_i = X_{ii} \\
   C' &= A T - B C - \mathrm{diag}(r) C, \qquad G' = X + X^T - \mathrm{diag}(r) G - G\,\mathrm{diag}(r) \\
   (\ln n_i)' &= 4 \Big[ \sum_p a_p g(C_{ip}) - \sum_j n_j g(G_{ij}) \Big]

with C = u·θ, G = u·u, n = |w|², g(s) = Σ_j c_j² s^j and T = ΘΘᵀ, exact for every d ≥ P. ln n is integrated, since n
could cross zero within an absolute tolerance.

State y = [C (m, P) | G (m, m) | ln n (m)], parameters = [a (P) | T (P, P) unless orthonormal | data of the link],
sizes = `OverlapCounts`; `work` holds `OverlapWork`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dynamics.equations import losses
from dynamics.equations.interface import FlowSystem, Functions, OfStates
from dynamics.equations.link import g0, link_at, with_link, write_both, write_g2
from dynamics.equations.vectors import write_events, write_norms
from dynamics.kernels.jit import kernel, matrix, pasted_kernel, vector
from dynamics.kernels.products import multiply, multiply_transposed
from hermite.arrays import Integers, Matrix, Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem
    from hermite.arrays import Array


class OverlapCounts(NamedTuple):
    """First entries of `sizes`: m, P, 1 for orthonormal directions, 1 if the sign matters, and the link's place."""

    width: int
    directions: int
    orthonormal: int
    sign_matters: int
    link_at: int


class OverlapNumbers(NamedTuple):
    """Layout of `parameters`: a (P,), T (P, P), or (0, 0) for orthonormal directions, and the data of the link."""

    a: Vector
    gram: Matrix
    link: Vector


class OverlapState(NamedTuple):
    """C (m, P), G (m, m), and ln n (m,)."""

    C: Matrix
    G: Matrix
    log_n: Vector


class OverlapWork(NamedTuple):
    """Parts of `work`: A and B C (m, P), B, X and B G (m, m), n and r (m,), and values of g (scratch).

    The head of the module has their equations.
    """

    A: Matrix
    BC: Matrix
    B: Matrix
    X: Matrix
    BG: Matrix
    n: Vector
    r: Vector
    values: Vector


@kernel
def counts_of(sizes: Integers) -> OverlapCounts:
    """Return m, P, orthonormal and sign_matters (1 or 0 each), and the index of the link's data."""
    return OverlapCounts(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4])


@kernel
def numbers_of(parameters: Vector, sizes: Integers) -> OverlapNumbers:
    """Return the coefficients a (P,), the Gram matrix T of directions and the data of the link, all views."""
    counts = counts_of(sizes)
    P, size = counts.directions, counts.directions if counts.orthonormal == 0 else 0
    return OverlapNumbers(
        vector(parameters, 0, P), matrix(parameters, P, size, size), link_at(parameters, counts.link_at)
    )


@kernel
def split(y: Vector, sizes: Integers) -> OverlapState:
    """Return views of a state, or of its rates: overlaps C (m, P) and G (m, m), and ln n (m,)."""
    counts = counts_of(sizes)
    m, P = counts.width, counts.directions
    return OverlapState(matrix(y, 0, m, P), matrix(y, m * P, m, m), vector(y, m * P + m * m, m))


@kernel
def work_of(sizes: Integers, work: Vector) -> OverlapWork:
    """Return the parts of `work` by name."""
    counts = counts_of(sizes)
    m, P = counts.width, counts.directions
    mP, mm, at = m * P, m * m, 2 * m * P
    last = at + 3 * mm
    return OverlapWork(
        matrix(work, 0, m, P), matrix(work, mP, m, P), matrix(work, at, m, m), matrix(work, at + mm, m, m),
        matrix(work, at + 2 * mm, m, m), vector(work, last, m), vector(work, last + m, m),
        vector(work, last + 2 * m, max(mP, mm)),
    )  # fmt: skip


@pasted_kernel
def add_rows(
    sign: float, weights: Vector, overlaps: Matrix, values: Matrix, slopes: Matrix, force: Vector, r: Vector
) -> None:
    """Multiply slopes g' by the weights of their columns, in place, and sum over each row i.

    For `sign` > 0 force_i becomes Σ_j weight_j g_ij and r_i becomes Σ_j weight_j g'_ij overlap_ij; else these are
    subtracted.
    """
    for i in range(slopes.shape[0]):
        total = radial = 0.0
        for j in range(slopes.shape[1]):
            slope = weights[j] * slopes[i, j]
            slopes[i, j] = slope
            total += weights[j] * values[i, j]
            radial += slope * overlaps[i, j]
        force[i] = total if sign > 0.0 else force[i] - total
        r[i] = radial if sign > 0.0 else r[i] - radial


@pasted_kernel
def pair_forces(
    link: Vector, y: Vector, a: Vector, A: Vector, B: Vector, n: Vector, r: Vector, force: Vector, values: Vector
) -> None:
    """Write A = a g'(C), B = n g'(G), force_i = Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij), and r_i = (A Cᵀ − B G)_ii.

    C (m, P) and G (m, m) are the overlaps that y begins with, n (m,) squared norms, which are written too, and g is the
    kernel of the link. `values` is scratch.
    """
    m = n.size
    P = A.size // m
    write_norms(y, n)
    write_both(link, vector(y, 0, m * P), values, A)
    add_rows(1.0, a, matrix(y, 0, m, P), matrix(values, 0, m, P), matrix(A, 0, m, P), force, r)
    write_both(link, vector(y, m * P, m * m), values, B)
    add_rows(-1.0, n, matrix(y, m * P, m, m), matrix(values, 0, m, m), matrix(B, 0, m, m), force, r)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of overlaps C (m, P), G (m, m) and ln n (m,), see the head of the module.

    C' = A T − B C − diag(r) C, G' = X + Xᵀ − diag(r) G − G diag(r), (ln n_i)' = 4 [Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij)],
    with A, B and r of `pair_forces`, X = A Cᵀ − B G, and T the Gram matrix of the directions.
    """
    (C, G, _), (dC, dG, dl), (a, T, link) = split(y, sizes), split(out, sizes), numbers_of(parameters, sizes)
    A, BC, B, X, BG, n, r, values = work_of(sizes, work)
    m, P = C.shape
    pair_forces(link, y, a, vector(A, 0, A.size), vector(B, 0, B.size), n, r, dl, values)
    multiply_transposed(A, C, X)
    multiply(B, G, BG)
    multiply(B, C, BC)
    AT = A
    if T.size > 0:
        AT = dC
        multiply(A, T, dC)
    for i in range(m):
        dl[i] *= 4.0
        for p in range(P):
            dC[i, p] = AT[i, p] - BC[i, p] - r[i] * C[i, p]
        dG[i, i] = 0.0
        for j in range(i):
            dG[i, j] = dG[j, i] = X[i, j] + X[j, i] - BG[i, j] - BG[j, i] - (r[i] + r[j]) * G[i, j]


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the exact diagonal of the Jacobian to `out`, in the layout of the state [C (m, P) | G (m, m) | ln n (m)].

    An entry of the symmetric G counts as one variable with its mirror. `work` holds the forces of the last `rhs`.
    """
    (C, G, _), (dC, dG, dl), (a, _, link) = split(y, sizes), split(out, sizes), numbers_of(parameters, sizes)
    A, _, B, _, _, n, r, _ = work_of(sizes, work)
    m, P = C.shape
    write_g2(link, vector(C, 0, C.size), vector(dC, 0, C.size))
    write_g2(link, vector(G, 0, G.size), vector(dG, 0, G.size))
    own_value = g0(link, 1.0)
    for i in range(m):
        decay_rate = B[i, i] + r[i]
        for p in range(P):
            bend = a[p] * dC[i, p]
            dC[i, p] = bend - decay_rate - C[i, p] * (bend * C[i, p] + A[i, p])
        dG[i, i] = 0.0
        for j in range(i):
            s, bend = G[i, j], dG[i, j]
            mass = n[i] + n[j]
            # B_ij + B_ji = (n_i + n_j) g'(s).
            dG[i, j] = dG[j, i] = -decay_rate - B[j, j] - r[j] - mass * bend + s * (mass * bend * s + B[i, j] + B[j, i])
        dl[i] = -4.0 * n[i] * own_value


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write emergence and learned mass of each direction minus their levels, see `write_events`, to `out` (2 P,)."""
    (C, _, log_n), (a, _, link) = split(y, sizes), numbers_of(parameters, sizes)
    learned, n = vector(work, 0, C.size), vector(work, C.size, log_n.size)
    write_norms(y, n)
    write_events(vector(C, 0, C.size), n, a, link, counts_of(sizes).sign_matters, learned, out)


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """|u_i| = 1: rounding aside G_ii is conserved, so it is simply kept at 1."""
    counts = counts_of(sizes)
    G = matrix(y, counts.width * counts.directions, counts.width, counts.width)
    for i in range(counts.width):
        G[i, i] = 1.0


@kernel
def write_gram(y: Vector, m: int, T: Matrix, gram: Matrix) -> None:
    """Write [G C; Cᵀ T] to `gram` (m + P, m + P), for a state that begins with C (m, P) and G (m, m).

    T (P, P) is the Gram matrix of directions; an empty T stands for the unit matrix. Loops compile fast.
    """
    P = T.shape[0] if T.size > 0 else gram.shape[0] - m
    for i in range(m):
        row, C, G = gram[i], vector(y, i * P, P), vector(y, m * P + i * m, m)
        for j in range(m):
            row[j] = G[j]
        for p in range(P):
            gram[i, m + p] = gram[m + p, i] = C[p]
    for p in range(P):
        for q in range(P):
            gram[m + p, m + q] = T[p, q] if T.size > 0 else 1.0 if p == q else 0.0


#: Number of neurons up to which realisability is monitored.
MARGIN_ROWS = 256


class OverlapSystem(FlowSystem):
    """State layout, kernels and observables of the coupled flow for one problem."""

    name = "overlaps"
    has_unit_vectors = True
    against_clusters: str | None = None

    def __init__(self, problem: Problem) -> None:
        """Prepare the coupled flow from the start of the problem."""
        self.functions = Functions(rhs, event_values, normalise, jacobian_diagonal)
        self.problem, start, teacher = problem, problem.start(), problem.teacher
        m, P = problem.width, problem.num_directions
        parts = [start.teacher_overlap.ravel(), start.student_overlap.ravel(), np.log(start.squared_norm)]
        self.initial_state: Array = np.concatenate(parts)
        gram = np.empty(0) if teacher.is_orthonormal else teacher.gram()
        self.parameters, self.sizes = with_link(problem, [m, P, teacher.is_orthonormal], [teacher.coefficients, gram])
        self.work_size = 2 * m * P + 3 * m * m + 2 * m + m * max(m, P)
        self.num_events = 2 * P
        self._inverse_gram = None if teacher.is_orthonormal else np.linalg.pinv(gram)
        self.teacher_term = losses.teacher_term(problem)
        self.teacher_by_degree = losses.teacher_parts(problem, self.teacher_term)
        self._parts = losses.link_parts(problem)

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component: in units of 1/√d, the size of a random overlap, for C and G; plain for ln n."""
        m = self.problem.width
        return np.repeat([atol / np.sqrt(self.problem.dimension), atol], [self.initial_state.size - m, m])

    def stiffness(self) -> float:
        """Return the fastest relaxation rate of a learned direction, max_p a_p · max(2 g'(1), 4 g(1)), in 1/t."""
        link = self.problem.activation
        slope, value = float(link.kernel_derivative(1.0)), link.kernel_at_one
        return float(self.problem.teacher.coefficients.max()) * max(2.0 * slope, 4.0 * value)

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return views (C, G) of a state, or of a stack of states, and n."""
        m, P = self.problem.width, self.problem.num_directions
        C, G, log_norm = np.split(state, [m * P, m * P + m * m], axis=-1)
        stack = state.shape[:-1]
        return C.reshape(*stack, m, P), G.reshape(*stack, m, m), np.exp(log_norm)

    def observer(self, keep: str, monitored: Callable[[], bool] = lambda: True) -> OfStates:
        """Return the function that observes a state or a stack, with the realisability margin if it is `monitored`."""
        observe = self.observe if keep == "full" else self.summarise

        def observed(state: Array) -> dict[str, Array]:
            """Return the observables of a state, or of a stack, with the margin (NaN if not monitored)."""
            margin = self.gram_margin(state) if monitored() else np.full(state.shape[:-1], np.nan)
            return observe(state) | {"gram_margin": np.asarray(margin)}

        return OfStates(observed)

    def loss_of_states(self) -> OfStates:
        """Return the function that gives the loss of a state, or of each of a stack."""
        return OfStates(lambda state: self.loss(*self.unpack(state)))

    def observe(self, state: Array) -> dict[str, Array]:
        """Return the full observables of a state, or of a stack: overlaps, as views of it, squared norms, loss."""
        C, G, n = self.unpack(state)
        return {"teacher_overlap": C, "student_overlap": G} | self._losses(C, G, n)

    def summarise(self, state: Array) -> dict[str, Array]:
        """Return the observables of `keep="summary"`: per direction the largest overlap and the learned mass."""
        (C, G, n), part = self.unpack(state), self.problem.learned_part
        mass = losses.weighed_kernel(n, part, C) / part.kernel_at_one
        largest = losses.largest_overlaps(self.problem, C)
        return {"max_overlap": largest, "learned_mass": mass} | self._losses(C, G, n)

    def _losses(self, C: Array, G: Array, n: Array) -> dict[str, Array]:
        """Return squared norms and losses as a dict, of one state or of a stack of them with leading axes (…).

        Overlaps with the teacher C (…, m, P), among neurons G (…, m, m) and squared norms n (…, m) give `squared_norm`,
        which is n, and `loss` (…). If the teacher has parts of several degrees, `degree_loss` (…, 4) is the share of
        the loss from degrees 0, 1, 2 and all higher ones.
        """
        record = {"squared_norm": n, "loss": self.loss(C, G, n)}
        if self.teacher_by_degree is None:
            return record
        a, parts = self.problem.teacher.coefficients, zip(self._parts, self.teacher_by_degree[:-1], strict=True)
        part_losses = [losses.population_loss(part, constant, a, C, G, n) for part, constant in parts]
        return record | {"degree_loss": losses.by_degree(part_losses, record["loss"])}

    def loss(self, C: Array, G: Array, n: Array) -> Any:
        """Return E(f − f*)² at overlaps C (…, m, P), G (…, m, m) and squared norms n (…, m).

        It is a difference of O(1) terms, so that values below ~1e-12 are rounding.
        """
        a = self.problem.teacher.coefficients
        return losses.population_loss(self.problem.activation, self.teacher_term, a, C, G, n)

    def gram_margin(self, state: Array) -> Array:
        """Return the smallest eigenvalue of G − C T⁻¹ Cᵀ of a state or a stack; some vectors have these if it is ≥ 0.

        NaN for overlaps that are not finite, and above `MARGIN_ROWS` neurons, where it would cost more than the flow.
        """
        if self.problem.width > MARGIN_ROWS:
            return np.full(state.shape[:-1], np.nan)
        C, G, _ = self.unpack(state)
        transposed = np.swapaxes(C, -1, -2)
        complement = G - (C @ transposed if self._inverse_gram is None else C @ self._inverse_gram @ transposed)
        finite = np.asarray(np.isfinite(complement).all(axis=(-1, -2)))
        smallest = np.linalg.eigvalsh(np.where(finite[..., None, None], complement, 0.0))[..., 0]
        return np.where(finite, smallest, np.nan)
