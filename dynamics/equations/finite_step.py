r"""The overlaps under online SGD of a finite learning rate, by the exact mean change of one step, closed to 1/d.

In the coordinates of the flow, C = R/ρ, G = S/(ρρᵀ) and ln n = ln S_ii, and in the time η · step,

the step of `dynamics.equations.mean_step` for vectors over their lengths: with H = η S divided by ρρᵀ, S¹ =
base + d slope of the moments below and d slope in the limit d → ∞ at fixed η d ("infinite-d", Saad & Solla 1995),
(ln n_i)' = H_ii − 2 F_ii. Above the limit of stability the solution blows up in finite time, (ln n)' ~ η d n².

State, events and constraint are those of `dynamics.equations.overlaps`, whose Jacobian diagonal serves as it is: it is
dominant where the equation is stiff. `sizes` begins with `OverlapCounts`, which the `layout` of `MomentTables` follows,
and `FiniteStepNumbers` says what `parameters` holds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.equations.interface import FlowSystem
from dynamics.equations.link import with_link
from dynamics.equations.mean_step import add_noise, keep_lengths, weights_of_batch, write_descent
from dynamics.equations.overlaps import OverlapCounts, OverlapSystem, counts_of, split, write_gram
from dynamics.equations.vectors import write_norms
from dynamics.kernels.jit import entry, kernel, matrix, pasted_kernel, vector
from dynamics.kernels.products import product
from dynamics.kernels.units import INTEGERS, MATRIX, VECTOR, tuple_of, unit
from dynamics.problem.checks import require
from hermite.arrays import Array, Integers, Matrix, Vector
from hermite.polynomials import contracted_pair, count_diagrams, diagrams, mean_derivatives, trimmed

if TYPE_CHECKING:
    from dynamics.problem import Problem

#: Place of `layout` in `sizes`.
LAYOUT = len(OverlapCounts._fields)
#: A squared norm beyond this multiple of Σ a counts as infinite: from there on (ln n)' ~ η d n² diverges within a time
#: that float64 hardly resolves, and "the state is not finite" says more than "the step is too small".
LARGEST_NORM = 1e4


class FiniteStepNumbers(NamedTuple):
    """Layout of `parameters`, which the data of the link end.

    Coefficients a (P,) and Gram matrix T (P, P) of the directions, the standard deviation τ of label noise, the weights
    of mean gradients, of base and of slope in η S (`weights_of_batch`), and `numbers` of `MomentTables`.
    """

    a: Vector
    gram: Matrix
    noise: float
    of_mean: float
    of_base: float
    of_slope: float
    tables: Vector


@kernel
def numbers_of(parameters: Vector, sizes: Integers) -> FiniteStepNumbers:
    """Return the parts of `parameters` by name, arrays as views; see `FiniteStepNumbers` for what they mean.

    `parameters` = [a (P) | T (P, P) | τ | weights in η S of mean gradients, of base and of slope | numbers of the
    tables], with the number P of directions from `sizes`.
    """
    P = counts_of(sizes).directions
    at = P + P * P
    return FiniteStepNumbers(
        vector(parameters, 0, P), matrix(parameters, P, P, P), parameters[at], parameters[at + 1], parameters[at + 2],
        parameters[at + 3], vector(parameters, at + 4, parameters.size - at - 4),
    )  # fmt: skip


@kernel
def is_blown_up(y: Vector, a: Vector, m: int, P: int) -> bool:
    """Return whether any of the m squared norms that end the state exceeds `LARGEST_NORM` times Σ_p a_p."""
    bound = np.log(LARGEST_NORM * np.sum(vector(a, 0, P)))
    return bool(np.max(vector(y, y.size - m, m)) > bound)


@pasted_kernel
def write_second(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return (Q, N + diag(κ), F, H), views of `work`, at a state y of m neurons and P directions; M = m + P.

    Q (M, M) is the Gram matrix of all unit vectors; F = (N + diag(κ)) Q (m, M) are the products of each neuron's mean
    gradient with all vectors, divided by the neuron's length; H (m, m) is η times the second-order part of one step,
    divided by the lengths of both neurons.
    """
    numbers, m = numbers_of(parameters, sizes), counts_of(sizes).width
    mm, layout = m * m, vector(sizes, LAYOUT, sizes.size - LAYOUT)
    H, base, slope = matrix(work, 0, m, m), matrix(work, mm, m, m), matrix(work, 2 * mm, m, m)
    scratch = vector(work, 3 * mm, work.size - 3 * mm)
    weights, _, Q, N, F = moment_work(layout, scratch)
    write_gram(y, m, numbers.gram, Q)
    write_norms(y, vector(weights, 0, m))
    for p in range(numbers.a.size):
        weights[m + p] = -numbers.a[p]
    step_moments(numbers.noise, (numbers.tables, layout, scratch), (H, base, slope))
    for i in range(m):
        for j in range(m):
            H[i, j] = numbers.of_mean * H[i, j] + numbers.of_base * base[i, j] + numbers.of_slope * slope[i, j]
    return Q, N, F, H


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the derivatives in time = η · step of C (m, P), G (m, m) and ln n (m,); all NaN once norms blew up.

    C and G are cosines of neurons with directions and with neurons, n squared norms. (ln n_i)' = H_ii − 2 F_ii, F and H
    as `write_second` returns them.
    """
    dC, dG, dl = split(out, sizes)
    if is_blown_up(y, parameters, dC.shape[0], dC.shape[1]):
        out.fill(np.nan)
        return
    Q, _, F, H = write_second(y, parameters, sizes, work)
    write_descent(F, dC, dG)
    add_noise(1.0, H, dG)
    for i in range(dl.size):
        dl[i] = dG[i, i]
    keep_lengths(1.0, F, H, Q, dC, dG)


# The exact moments of one step, which are derived below, divided by the lengths of the neurons.
#
# Vectors v_a are the m neurons and then the P directions, M = m + P in number, Q their Gram matrix, w = (n, −a) their
# weights in the error. A row of U, X or Y holds one number per vector a:
#
# U_r(i) = w Q_i^r,   X_rs(i, j) = w Q_i^r Q_j^s (r s > 0),   Y_e,r = Q^(∘e) U_r,   Y_e,rs = Q^(∘e) X_rs.
#
# All of them lie in `work`, after w; a term is the product of two rows, whose places are affine in i, j and m − i. X
# and the Y made of it hold the rows j = i … m − 1 of one i at a time. `moment_tables` says what `numbers` and `layout`
# hold.


class MomentPlaces(NamedTuple):
    """Header of `layout`: counts, and where lists of numbers, places and rows begin."""

    #: Neurons m, directions P, the largest power of Q, and the degree K of the link.
    width: int
    directions: int
    top: int
    degree: int
    #: Numbers of single rows, segments, mixed rows, groups and terms.
    singles: int
    segments: int
    mixed: int
    groups: int
    terms: int
    #: Starts in `work`: of the powers of Q, N and F, rows U, Y of single rows, X, and Y of mixed rows.
    powers_at: int
    drift_at: int
    U_at: int
    single_at: int
    X_at: int
    Y_at: int
    #: Starts in `layout`: of pairs (e, r), segments, pairs (r, s), groups, powers of G_ij, and places of terms.
    pairs_from: int
    segments_from: int
    mixed_from: int
    groups_from: int
    exponents_from: int
    terms_from: int
    #: Starts in `numbers`: of the coefficients of powers, and of the weights of terms.
    coefficients_from: int
    weights_from: int
    #: Start in `work` of the powers of G_ij.
    spans_at: int


HEADER = len(MomentPlaces._fields)


class MomentWork(NamedTuple):
    """Parts of `work` that every kernel of moments needs, M = m + P.

    Weights w (M,), the elementwise powers of Q, ((top + 1) M, M), Q (M, M), N + diag(κ) and F (m, M).
    """

    weights: Vector
    powers: Matrix
    Q: Matrix
    N: Matrix
    F: Matrix


#: a (P,), T (P, P) and τ; `numbers` and `layout` of the tables, and scratch.
Teacher = tuple[Vector, Matrix, float]
Tables = tuple[Vector, Integers, Vector]
#: D and second = base + d · slope.
Parts = tuple[Matrix, Matrix, Matrix]
TABLES, PARTS = tuple_of(VECTOR, INTEGERS, VECTOR), tuple_of(MATRIX, MATRIX, MATRIX)


@kernel
def places_of(layout: Integers) -> MomentPlaces:
    """Return the header of `layout` by name."""
    h = layout
    return MomentPlaces(
        h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8], h[9], h[10], h[11], h[12], h[13], h[14], h[15], h[16],
        h[17], h[18], h[19], h[20], h[21], h[22], h[23],
    )  # fmt: skip


@kernel
def moment_work(layout: Integers, work: Vector) -> MomentWork:
    """Return the parts of `work` that every kernel of moments needs."""
    at = places_of(layout)
    m, M = at.width, at.width + at.directions
    return MomentWork(
        vector(work, 0, M), matrix(work, at.powers_at, (at.top + 1) * M, M),
        matrix(work, at.powers_at + M * M, M, M), matrix(work, at.drift_at, m, M),
        matrix(work, at.drift_at + m * M, m, M),
    )  # fmt: skip


@unit(Tables=TABLES)
def write_drift(tables: Tables, drift_gram: Matrix) -> None:
    """Write N + diag(κ) and F = (N + diag(κ)) Q to the scratch, and D = F (N + diag(κ))ᵀ (m, m) to `drift_gram`.

    Q is the Gram matrix of all M vectors, w their weights, g(s) = Σ_j c_j² s^j: N_ib = w_b g'(Q_ib), κ_i = Σ_b (2 w_b
    g(Q_ib) − N_ib Q_ib).
    """
    numbers, layout, work = tables
    degree, (weights, _, Q, N, F) = places_of(layout).degree, moment_work(layout, work)
    for i in range(N.shape[0]):
        kappa = 0.0
        for b in range(weights.size):
            q, w = Q[i, b], weights[b]
            value = slope = 0.0
            for j in range(degree, -1, -1):
                slope = slope * q + value
                value = value * q + numbers[j]
            N[i, b] = w * slope
            kappa += 2.0 * w * value - w * slope * q
        N[i, i] += kappa
    product(N, Q, F)
    product(F, N.T, drift_gram)


@kernel
def contract(e: int, X: Matrix, Q: Matrix, Y: Matrix) -> None:
    """Write Y = X Q, where Q is already the elementwise power e of a Gram matrix; e = 0 writes row sums of X."""
    if e > 0:
        product(X, Q, Y)
        return
    for x in range(X.shape[0]):
        Y[x].fill(np.sum(X[x]))


@unit()
def write_singles(layout: Integers, work: Vector) -> None:
    """Write the rows U_r(i) = w Q_i^r of all powers r, and Y_e,r(i) = Q^(∘e) U_r(i) of the pairs (e, r) in use.

    Q_i is row i of the Gram matrix of all M vectors, w their weights, powers are elementwise; rows have M entries and
    lie in `work`, at the places that `layout` gives.
    """
    at, (weights, powers, _, _, _) = places_of(layout), moment_work(layout, work)
    m, M = at.width, weights.size
    U = matrix(work, at.U_at, (at.top + 1) * m, M)
    for r in range(at.top + 1):
        for i in range(m):
            row, source = U[r * m + i], powers[r * M + i]
            for b in range(M):
                row[b] = weights[b] * source[b]
    for x in range(at.singles):
        e, r = layout[at.pairs_from + 2 * x], layout[at.pairs_from + 2 * x + 1]
        rows, Q = matrix(work, at.U_at + r * m * M, m, M), matrix(work, at.powers_at + e * M * M, M, M)
        contract(e, rows, Q, matrix(work, at.single_at + x * m * M, m, M))


@unit()
def write_mixed(i: int, layout: Integers, work: Vector) -> None:
    """Write the rows X_rs(i, j) = w Q_i^r Q_j^s and Y_e,rs = Q^(∘e) X_rs of neuron i and all neurons j ≥ i.

    Q_i is row i of the Gram matrix of all M vectors, w their weights, powers are elementwise; rows have M entries and
    lie in `work`, at the places that `layout` gives.
    """
    at, (weights, powers, _, _, _) = places_of(layout), moment_work(layout, work)
    m, M, count = at.width, weights.size, at.width - i
    U, X = matrix(work, at.U_at, (at.top + 1) * m, M), matrix(work, at.X_at, at.mixed * count, M)
    for x in range(at.mixed):
        r, s = layout[at.mixed_from + 2 * x], layout[at.mixed_from + 2 * x + 1]
        first = U[r * m + i]
        for j in range(i, m):
            row, factor = X[x * count + j - i], powers[s * M + j]
            for b in range(M):
                row[b] = first[b] * factor[b]
    for x in range(at.segments):
        place = at.segments_from + 4 * x
        e, source, rows, target = layout[place], layout[place + 1], layout[place + 2] * count, layout[place + 3]
        mixed_rows = matrix(work, at.X_at + source * count * M, rows, M)
        Q = matrix(work, at.powers_at + e * M * M, M, M)
        contract(e, mixed_rows, Q, matrix(work, at.Y_at + target * count * M, rows, M))


@unit(Tables=TABLES)
def pair_moments(i: int, j: int, noise: float, tables: Tables, s: float) -> tuple[float, float]:
    """Return (base, slope) of neurons i and j: E[e² ∇_i·∇_j] = ρ_i ρ_j (base + d · slope) for one sample.

    e is the error with label noise of standard deviation `noise`, ∇_i the gradient of the network's output by the
    weights of neuron i, ρ_i its length and d the dimension; s is the cosine of the two neurons. `work` must hold rows
    U, X and Y, and 1 as the power 0 of s.
    """
    numbers, layout, work = tables
    at = places_of(layout)
    m, M, spans = at.width, at.width + at.directions, vector(work, at.spans_at, at.degree + 3)
    coefficients, weights = at.coefficients_from, at.weights_from
    for t in range(1, at.degree + 3):
        spans[t] = spans[t - 1] * s
    base = slope = 0.0
    for x in range(at.groups):
        group, hb, hs = at.groups_from + 2 * x, 0.0, 0.0
        for c in range(layout[group + 1], layout[group + 3]):
            power = spans[layout[at.exponents_from + c]]
            hb += numbers[coefficients + 2 * c] * power
            hs += numbers[coefficients + 2 * c + 1] * power
        alike = mixed = 0.0
        for y in range(layout[group], layout[group + 2]):
            t = at.terms_from + 8 * y
            place = layout[t] + (layout[t + 1] * i + layout[t + 2] * j + layout[t + 3] * (m - i)) * M
            other_place = layout[t + 4] + (layout[t + 5] * i + layout[t + 6] * j + layout[t + 7] * (m - i)) * M
            first, second, dot_product = vector(work, place, M), vector(work, other_place, M), 0.0
            for b in range(M):
                dot_product += first[b] * second[b]
            alike += numbers[weights + 2 * y] * dot_product
            mixed += numbers[weights + 2 * y + 1] * dot_product
        if x == 0:
            alike += noise * noise
        base += alike * hb + mixed * hs
        slope += alike * hs
    return base, slope


@unit(Tables=TABLES, Parts=PARTS)
def step_moments(noise: float, tables: Tables, parts: Parts) -> None:
    """Write the parts (D, base, slope), (m, m) each, of the moments of one step with one sample.

    D are products of mean gradients, and base + d · slope is the second-order part, in dimension d; all are divided by
    the lengths ρ_i ρ_j. `noise` is the standard deviation of label noise. `work` must hold the weights w of the M
    vectors at its start and their Gram matrix Q; F, from `write_drift`, stays in `work`.
    """
    (_, layout, work), (drift_gram, base, slope) = tables, parts
    at, Q = places_of(layout), moment_work(layout, work).Q
    # The elementwise powers 0, 2, 3 … of Q.
    powers = matrix(work, at.powers_at, at.top + 1, Q.size)
    powers[0].fill(1.0)
    for e in range(2, at.top + 1):
        for x in range(Q.size):
            powers[e, x] = powers[e - 1, x] * powers[1, x]
    write_drift(tables, drift_gram)
    write_singles(layout, work)
    vector(work, at.spans_at, 1).fill(1.0)
    for i in range(at.width):
        write_mixed(i, layout, work)
        for j in range(i, at.width):
            base[i, j], slope[i, j] = base[j, i], slope[j, i] = pair_moments(i, j, noise, tables, Q[i, j])


@entry
def write_step_moments(noise: float, tables: Tables, parts: Parts) -> None:
    """Write the moments of one state, called from Python; arguments as `step_moments`."""
    step_moments(noise, tables, parts)


class FiniteStepSystem(OverlapSystem):
    """The equation of a learning rate η; ValueError if the link is no polynomial or has too many diagrams."""

    name = "finite-step"
    has_unit_vectors = False
    against_clusters = FlowSystem.against_clusters

    def __init__(self, problem: Problem, learning_rate: float, step_theory: str, batch_size: int = 1) -> None:
        """Prepare the equation at rate η = `learning_rate` and `batch_size` samples a step.

        `step_theory` is "finite-d" or "infinite-d", the limit d → ∞ at fixed η d.
        """
        check_polynomial(problem)
        super().__init__(problem)
        self.functions = replace(self.functions, rhs=rhs)
        teacher, m, P, whole = problem.teacher, problem.width, problem.num_directions, step_theory == "finite-d"
        tables = moment_tables(problem.activation.coefficients, m, P, whole=whole)
        of_mean, share = weights_of_batch(learning_rate, batch_size, whole)
        weights = [of_mean, share if whole else 0.0, share * problem.dimension]
        numbers = [teacher.coefficients, teacher.gram(), problem.label_noise, weights, tables.numbers]
        self.parameters, self.sizes = with_link(problem, [m, P, teacher.is_orthonormal], numbers, tables.layout)
        self.work_size = max(self.work_size, 3 * m * m + tables.work_size)


def check_polynomial(problem: Problem) -> None:
    """Raise ValueError unless the link is a polynomial, as the moments of a step need."""
    link = problem.activation
    require(
        link.is_polynomial and link.truncation_error <= 0.0,
        "Argument `problem` must have a polynomial link for the equation of a finite learning rate, but has "
        f"{link.name}; `activation=problem.activation.truncated()` asks for that of its series.",
    )


# Exact moments of one step of online SGD, from the overlaps alone: docs/step_equations.md.
#
# First order: E[ē ∇_i] is ρ_i (κ_i u_i + Σ_b N_ib v_b), N_ib = w_b g'(Q_ib), κ_i = Σ_b [2 w_b g(Q_ib) − N_ib Q_ib], Q
# the Gram matrix of all v, and D_ij the product of two such vectors. Second order:
# E[e² ∇_i·∇_j] = base + d · slope. In mean derivatives ĉ_k = E σ^(k) = √k! c_k its factors are series with
#
# σ' : ĉ_(k+1)     α : (2−k) ĉ_k − ĉ_(k+2)     β : (1−k) ĉ_(k+1) + k (3−k) ĉ_(k−1)     zσ' : k ĉ_k + ĉ_(k+2).
#
# Diagrams are those of `hermite.polynomials`: (m+P)² operations per pair where both r and s are positive, an inner
# product elsewhere, and none for e = 0.


class MomentParts(NamedTuple):
    """Moments of one step with one sample; dimensionless."""

    #: Mean changes over η of the products of neurons and directions (m, P), and of first order among neurons (m, m).
    teacher_first: Array
    student_first: Array
    #: D_ij, products of the mean gradients, and the part of second order divided by η²: base + d · slope.
    drift_gram: Array
    base: Array
    slope: Array


def exact_moments(coefficients: Array, R: Array, S: Array, teacher: Teacher) -> MomentParts:
    """Return the moments of one step for a polynomial link, at the overlaps R = WΘᵀ (m, P) and S = WWᵀ (m, m).

    `coefficients` are the link's Hermite coefficients c_j; `teacher` is (a, T, τ): coefficients a (P,), the Gram matrix
    T (P, P) of its directions and the standard deviation τ of label noise.

    Arrays are C-contiguous float64, and S has a positive diagonal; neither is checked. Too many diagrams: ValueError.
    """
    (m, P), (a, T, noise), rho = R.shape, teacher, np.sqrt(np.diag(S))
    M, (numbers, layout, size), scale = m + P, moment_tables(coefficients, m, P), np.outer(rho, rho)
    work, parts, at = np.zeros(size), np.empty((3, m, m)), MomentPlaces(*layout[:HEADER].tolist())
    gram = np.block([[S / scale, R / rho[:, None]], [R.T / rho, T]])
    np.fill_diagonal(gram, 1.0)
    work[:M] = np.concatenate([rho**2, -a])
    work[at.powers_at + M * M :][: M * M] = gram.ravel()
    write_step_moments(noise, (numbers, layout, work), (parts[0], parts[1], parts[2]))
    F = rho[:, None] * work[at.drift_at + m * M :][: m * M].reshape(m, M)
    first = rho * F[:, :m]
    return MomentParts(-F[:, m:], -first - first.T, *(scale * parts))


# Tables of the one-step moments: from Hermite coefficients to the arrays that the kernels walk through.
#
# `numbers`: c_j² for j = 0 … K | per group the coefficients (of base, of slope) of each power of G_ij | per term its
# two weights. `layout`: `MomentPlaces` | singles (e, r) | segments (e, first mixed, count, first row) | mixed (r,
# s) | per group the first term and the first coefficient, with the end | powers of the coefficients | per term, for
# its Y row and its X or U row: start, and the multiples of i, j and m − i, in rows, that are added to it.

#: The list takes half a second there. All links up to degree 20 pass, and pure h_k up to k = 70.
MOST_DIAGRAMS = 260_000


class MomentTables(NamedTuple):
    """Weights and coefficients, sizes and places, and the size of the scratch, which `write_step_moments` takes."""

    numbers: Array
    layout: Integers
    work_size: int


class _Link(NamedTuple):
    """Diagrams of a link, which are the terms of its second moments; `edges` and `weights` are sorted by group."""

    edges: Integers
    weights: Array
    #: The first row of each group, with the end.
    first: Integers
    factors: list[Array]


class _Rows(NamedTuple):
    """Lists of the rows of numbers, one per vector, that the kernels compute, see the comment on U, X and Y above.

    `singles`: pairs (e, r) of Y made of U. `segments`: (e, first row of X, count, first row of Y), for Y made of X.
    `mixed`: pairs (r, s) of X.
    """

    singles: list[tuple[int, int]]
    segments: list[tuple[int, int, int, int]]
    mixed: list[tuple[int, int]]


def moment_tables(coefficients: Array, width: int, num_directions: int, *, whole: bool = True) -> MomentTables:
    """Return the tables for `width` neurons and `num_directions` directions, from Hermite coefficients c_j.

    `whole` keeps all of the second-order part; otherwise only what grows with the dimension d. ValueError if the link
    has more than `MOST_DIAGRAMS` diagrams.
    """
    trim = trimmed(coefficients)
    link, squares = _link(trim, whole), np.square(trim)
    rows, degree = _rows(link.edges), squares.size - 1
    # Every row is U, X or Y of at most max(1, K) legs.
    m, M, top = width, width + num_directions, max(1, degree)
    sizes = {
        "weights": M,
        "powers": (top + 1) * M * M,
        "drift": 2 * m * M,
        "U": (top + 1) * m * M,
        "single": len(rows.singles) * m * M,
        "X": len(rows.mixed) * m * M,
        "Y": sum(segment[2] for segment in rows.segments) * m * M,
        "s": degree + 4,
    }
    *starts, work_size = np.cumsum([0, *sizes.values()]).tolist()
    at = dict(zip(sizes, starts, strict=True))
    terms = _operands(link.edges, rows, at, m * M)

    occurring = [np.flatnonzero(factor.any(axis=0)) for factor in link.factors]
    factors = [factor[:, powers].T.ravel() for factor, powers in zip(link.factors, occurring, strict=True)]
    first_coefficient = np.cumsum([0, *map(len, occurring)])
    lists = (*rows, np.stack([link.first, first_coefficient], axis=1), np.concatenate(occurring), terms)
    parts = [np.array(part, dtype=np.int64).ravel() for part in lists]
    pairs, segments, mixed, groups, exponents, places = np.cumsum([HEADER, *map(len, parts[:-1])]).tolist()
    header = MomentPlaces(
        width=m, directions=num_directions, top=top, degree=degree, singles=len(rows.singles),
        segments=len(rows.segments), mixed=len(rows.mixed), groups=len(factors), terms=len(terms),
        powers_at=at["powers"], drift_at=at["drift"], U_at=at["U"], single_at=at["single"], X_at=at["X"], Y_at=at["Y"],
        pairs_from=pairs, segments_from=segments, mixed_from=mixed, groups_from=groups, exponents_from=exponents,
        terms_from=places, coefficients_from=degree + 1,
        weights_from=degree + 1 + 2 * int(first_coefficient[-1]), spans_at=at["s"],
    )  # fmt: skip
    layout = np.concatenate([np.array(header, dtype=np.int64), *parts])
    return MomentTables(np.concatenate([squares, *factors, link.weights.ravel()]), layout, work_size)


def _rows(edges: Integers) -> _Rows:
    """Return the rows of numbers that the diagrams use; X is sorted by r + s, so that rows of one sum are adjacent.

    A row of `edges` is the numbers of edges (e, r, s, r', s') of one diagram.
    """
    halves = [(r, s) for row in edges.tolist() for r, s in (row[1:3], row[3:5])]
    mixed = sorted({pair for pair in halves if min(pair) > 0}, key=lambda pair: (sum(pair), pair))
    first_halves = edges[:, :3].tolist()
    segments: list[tuple[int, int, int, int]] = []
    for e, legs in sorted({(e, r + s) for e, r, s in first_halves if r * s > 0}):
        members = [x for x, pair in enumerate(mixed) if sum(pair) == legs]
        segments.append((e, members[0], len(members), sum(segment[2] for segment in segments)))
    return _Rows(sorted({(e, r + s) for e, r, s in first_halves if r * s == 0}), segments, mixed)


def _operands(edges: Integers, rows: _Rows, at: dict[str, int], matrix_size: int) -> Integers:
    """Return the places of the two rows that each of D diagrams multiplies, shape (D, 8).

    Four numbers per row: a start in `work`, and the multiples of i, j and m − i that are added to it.
    """
    shift = {(e, sum(rows.mixed[x])): row - x for e, x, _, row in rows.segments}
    mixed = {pair: x for x, pair in enumerate(rows.mixed)}
    singles = {pair: x for x, pair in enumerate(rows.singles)}
    terms = np.empty((edges.shape[0], 8), dtype=np.int64)
    for term, (e, r, s, r2, s2) in zip(terms, edges.tolist(), strict=True):
        if r * s > 0:
            term[:4] = at["Y"], -1, 1, mixed[r, s] + shift[e, r + s]
        else:
            term[:4] = at["single"] + singles[e, r + s] * matrix_size, s == 0, s > 0, 0
        if r2 * s2 > 0:
            term[4:] = at["X"], -1, 1, mixed[r2, s2]
        else:
            term[4:] = at["U"] + (r2 + s2) * matrix_size, s2 == 0, s2 > 0, 0
    return terms


@lru_cache(maxsize=32)
def _link(coefficients: tuple[float, ...], whole: bool) -> _Link:
    """Return the diagrams of a link with Hermite coefficients c_j, grouped by (r + r', s + s').

    Each group has factors (2, powers): coefficients of base and of slope in powers of G_ij, the cosine of two neurons.
    """
    hat = mean_derivatives(coefficients)
    k, size = np.arange(hat.size + 1.0), hat.size + 1
    padded = np.concatenate([np.zeros(1), hat, np.zeros(4)])
    means_below, means, means_above, means_two_above = (padded[shift : shift + size] for shift in range(4))
    euler = k * means + means_two_above
    count = count_diagrams(hat, euler)
    require(
        count <= MOST_DIAGRAMS,
        "Argument `problem` must have a link of lower degree or of fewer terms for exact one-step moments, but degree "
        f"{hat.size - 1} with {np.count_nonzero(hat)} terms gives up to {count} diagrams, more than {MOST_DIAGRAMS}.",
    )
    slope = contracted_pair(means_above, means_above, size)
    base = np.zeros_like(slope)
    if whole:
        alpha = (2.0 - k) * means - means_two_above
        beta = (1.0 - k) * means_above + k * (3.0 - k) * means_below
        base[:, :, 1:] = contracted_pair(alpha, alpha, size)[:, :, :-1]
        base += contracted_pair(beta, means_above, size) + contracted_pair(means_above, beta, size)
    has_slope = np.any(slope, axis=2)
    table = diagrams(hat, euler, has_slope | np.any(base, axis=2))
    legs = table.edges[:, 1:3] + table.edges[:, 3:5]
    weights = table.weights * [1.0, 2.0 if whole else 0.0]
    weights[~has_slope[legs[:, 0], legs[:, 1]], 1] = 0.0
    used = weights.any(axis=1)
    code = (legs[:, 0] * size + legs[:, 1])[used]
    order = np.argsort(code, kind="stable")
    # Group 0 is [0, 0] whether or not a diagram is in it: it multiplies the variance of the label noise.
    codes = np.unique(np.append(code, 0))
    first = np.append(np.searchsorted(code[order], codes), code.size)
    factors = [np.stack([base[c // size, c % size], slope[c // size, c % size]]) for c in codes.tolist()]
    return _Link(table.edges[used][order], weights[used][order], first, factors)
