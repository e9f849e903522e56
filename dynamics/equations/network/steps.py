r"""A two-layer network under SGD of a finite learning rate η, in its order parameters.

The step is that of `dynamics.equations.mean_step`, exact for "finite-d", where the products of two gradients of a
sample are ε_w² s² v_i v_j E[(ē² + τ²) σ'_i σ'_j |x|²]; `docs/step_equations.md`, "Finite steps of networks", has
neurons on the sphere too. Under the measure of the factor σ'_i σ'_j of erf the mean of ē² is a
sum of means of pairs at other variances and biases: with U = (w_i, w_j), V the vectors, N = (1 + UᵀU)⁻¹ and B = VᵀUN
the covariances are VᵀV − BUᵀV.

`layout` = [J, 0, or 1 if all biases are 0, or 2 if all vectors are of erf too | kind, place, degree of every vector],
kinds as in `families`; a polynomial alone has `numbers` at its place: E p^(j)(z), z ~ N(0, 1). A row of tables: the
head of `normal_kernels`, of a polynomial q alone, then D_j = E σ^(j), j < J.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import hermite
from dynamics.equations.mean_step import add_noise, average_batch, keep_lengths
from dynamics.equations.network import normal_kernels as normal
from dynamics.equations.network import system as flow
from dynamics.equations.network.families import ERF, POLYNOMIAL, RELU, SIGN, TABLE
from dynamics.equations.network.series import write_series_means
from dynamics.kernels.jit import kernel, matrix, pasted_kernel, row_part, vector
from dynamics.kernels.products import product
from dynamics.kernels.stopping import is_stopped
from dynamics.kernels.units import choice, unit
from hermite.arrays import Integers, Matrix, Vector
from hermite.polynomials import mean_derivatives, trimmed
from hermite.text.messages import require, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers

STEP_HEAD = 9
# Place of the vectors in `layout`, and its second entry for erf without biases.
VECTORS, ERF_ALONE = 2, 2
# Of 1 - r², below which two thresholds lie on one axis.
ALIGNED = 1e-14


@kernel
def series_pair(degree: int, c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float, float]:
    """Return the six means of `step_pair` for two vectors of which one is a polynomial of this degree.

    Rows a and b hold their mean derivatives from place `STEP_HEAD` on, and c is the covariance.
    """
    value = slope_a = slope_b = slopes = bend_a = bend_b = 0.0
    for j in range(degree, -1, -1):
        x = STEP_HEAD + j
        share = c / (j + 1)
        value = a[x] * b[x] + share * value
        slope_a = a[x + 1] * b[x] + share * slope_a
        slope_b = a[x] * b[x + 1] + share * slope_b
        slopes = a[x + 1] * b[x + 1] + share * slopes
        bend_a = a[x + 2] * b[x] + share * bend_a
        bend_b = a[x] * b[x + 2] + share * bend_b
    return value, slope_a, slope_b, slopes, bend_a, bend_b


@kernel
def step_pair(
    centred: bool, kind_a: int, degree_a: int, kind_b: int, degree_b: int, c: float, a: Vector, b: Vector
) -> tuple[float, float, float, float, float, float]:
    """Return E of σ_a σ_b, σ'_a σ_b, σ_a σ'_b, σ'_a σ'_b, σ''_a σ_b and σ_a σ''_b for two vectors of covariance c.

    Rows a and b hold the numbers of each vector alone, `kind` is the family of its link and `degree` that of a
    polynomial; `centred` says that no vector has a bias.
    """
    if kind_a == POLYNOMIAL:
        return series_pair(min(degree_a, degree_b) if kind_b == POLYNOMIAL else degree_a, c, a, b)
    if kind_b == POLYNOMIAL:
        return series_pair(degree_b, c, a, b)
    separate = normal.difference_of_products(a[2], b[2], c, c) > ALIGNED * a[2] * b[2]
    if separate or RELU in (kind_a, kind_b):
        return normal.threshold_pair(kind_a, kind_b, centred, c, a, b)
    # Jumps on one axis never meet, or move together.
    sign = math.copysign(1.0, c)
    gap = a[4] - sign * b[4]
    side = 0.0 if gap == 0.0 else math.copysign(2.0, gap)
    value = sign * (1.0 - 2.0 * abs(normal.normal_cdf(a[4]) - normal.normal_cdf(sign * b[4])))
    slope_a, slope_b = -sign * side * a[5], side * b[5]
    return value, slope_a, slope_b, 0.0, -a[1] * slope_a / a[2], -b[1] * slope_b / b[2]


@kernel
def own_square(centred: bool, kind: int, degree: int, row: Vector) -> tuple[float, float, float]:
    """Return E σ² of one vector, from its row, and the derivatives of that by the variance q and by the bias b.

    `kind` is the family of its link σ, `degree` that of a polynomial, and `row` the numbers of this vector alone, as
    `normal_kernels` writes them; `centred` says that no vector has a bias.
    """
    if kind == RELU:
        return row[1] * row[6] + row[0] * row[7], row[7], 2.0 * row[6]
    if kind == SIGN:
        return 1.0, 0.0, 0.0
    value, slope, _, slopes, bend, _ = step_pair(centred, kind, degree, kind, degree, row[0], row, row)
    return value, slopes + bend, 2.0 * slope


@kernel
def tilt(i: int, j: int, C: Matrix, left: Vector, right: Vector, tilted: Matrix) -> tuple[float, float, float]:
    """Write the covariances of all vectors under the Gaussian weight σ'_i σ'_j of erf, the lower half of `tilted`.

    `left` and `right` (M,) become the coefficients by which vectors i and j lessen them. Returned are T_i = 1 + C_ii,
    T_j and T_i T_j − C_ij².
    """
    c, first, second = C[i, j], 1.0 + C[i, i], 1.0 + C[j, j]
    determinant = first * second - c * c
    for a in range(left.size):
        x, y = C[a, i], C[a, j]
        left[a], right[a] = (second * x - c * y) / determinant, (first * y - c * x) / determinant
    for a in range(left.size):
        for b in range(a + 1):
            tilted[a, b] = C[a, b] - left[a] * C[b, i] - right[a] * C[b, j]
    return first, second, determinant


@choice()
def write_central_erf_second(
    vectors: tuple[Matrix, Vector, Vector], noise: float, d: float, exact: bool, m: int,
    numbers: Vector, layout: Integers, work: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Write E[(ē² + τ²) σ'_i σ'_j |x|²] for vectors of erf without biases to `out` (m, m), both halves.

    Arguments are those of `write_erf_second`, which needs more operations: `vectors` holds covariances (M, M), biases,
    which are 0 here, and weights (M,) of m neurons and the teacher's units, and `noise` is τ². `numbers` is not read,
    and `work` has M (M + 2) numbers of scratch.
    """
    (C, _, weight), M = vectors, vectors[2].size
    tilted, left, right = matrix(work, 0, M, M), vector(work, M * M, M), vector(work, M * M + M, M)
    for i in range(m):
        if is_stopped(layout):
            return
        for j in range(i + 1):
            first, second, determinant = tilt(i, j, C, left, right, tilted)
            square = change = 0.0
            for a in range(M):
                wide = 1.0 + tilted[a, a]
                growth = tilted[a, a] - left[a] ** 2 - right[a] ** 2
                for b in range(a + 1):
                    together = weight[a] * weight[b] * (1.0 if a == b else 2.0)
                    wide_b, s = 1.0 + tilted[b, b], tilted[a, b]
                    square += together * math.asin(s / math.sqrt(wide * wide_b))
                    if exact:
                        ds = s - left[a] * left[b] - right[a] * right[b]
                        db = tilted[b, b] - left[b] ** 2 - right[b] ** 2
                        turn = ds - 0.5 * s * (growth / wide + db / wide_b)
                        change += together * turn / math.sqrt(wide * wide_b - s * s)
            mean = 2.0 / math.pi * square + noise
            dimensions = d - 2.0 + (first + second) / determinant if exact else d
            result = dimensions * mean + 4.0 / math.pi * change
            out[i, j] = out[j, i] = 2.0 / math.pi / math.sqrt(determinant) * result


@choice()
def write_erf_second(
    vectors: tuple[Matrix, Vector, Vector], noise: float, d: float, exact: bool, m: int,
    numbers: Vector, layout: Integers, work: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Write E[(ē² + τ²) σ'_i σ'_j |x|²] of neurons of erf, the means of a step, to `out` (m, m), both halves.

    `vectors` are the covariances C (M, M) of the projections λ_a = w_a·x of the m neurons and then the teacher's units,
    their biases (M,) and their weights (M,) in the error ē = Σ_a weight_a σ_a(λ_a + bias_a). `noise` is the variance τ²
    of label noise, and `d` the dimension; |x|² of a sample is exact if `exact`, else replaced by d.

    `layout` = [J | 1 if no vector has a bias, else 0 | kind, place, degree of every vector], J being 3 more than the
    largest degree of a polynomial; a polynomial has its mean derivatives E p^(j)(z), z ~ N(0, 1), at its place in
    `numbers`. `work` has M (`STEP_HEAD` + J + M + 3) numbers of scratch. Where the step is given up, `out` stays
    unfinished.
    """
    C, bias, weight = vectors
    M, J, centred = weight.size, layout[0], layout[1] > 0
    size = STEP_HEAD + J
    rows, tilted, at = matrix(work, 0, M, size), matrix(work, M * size, M, M), M * (size + M)
    left, right, turns = vector(work, at, M), vector(work, at + M, M), vector(work, at + 2 * M, M)
    kinds = layout[VECTORS:]
    for i in range(m):
        if is_stopped(layout):
            return
        for j in range(i + 1):
            first, second, determinant = tilt(i, j, C, left, right, tilted)
            n_i = (second * bias[i] - C[i, j] * bias[j]) / determinant
            n_j = (first * bias[j] - C[i, j] * bias[i]) / determinant
            for a in range(M):
                turns[a] = left[a] * n_i + right[a] * n_j
                q, shifted = tilted[a, a], bias[a] - left[a] * bias[i] - right[a] * bias[j]
                D = vector(work, a * size + STEP_HEAD, J)
                if kinds[3 * a] == POLYNOMIAL:
                    rows[a, 0] = q
                    means = vector(numbers, kinds[3 * a + 1], kinds[3 * a + 2] + 1)
                    write_series_means(q, shifted, means, D)
                else:
                    normal.write_threshold_row(kinds[3 * a], q, shifted, rows[a])
                    normal.write_threshold_derivatives(kinds[3 * a], rows[a], D)
            square = change = 0.0
            for a in range(M):
                kind, degree = kinds[3 * a], kinds[3 * a + 2]
                growth = tilted[a, a] - left[a] ** 2 - right[a] ** 2
                value, in_q, in_b = own_square(centred, kind, degree, rows[a])
                square += weight[a] ** 2 * value
                change += weight[a] ** 2 * (2.0 * in_q * growth - 2.0 * in_b * turns[a])
                for b in range(a):
                    together = 2.0 * weight[a] * weight[b]
                    value, slope_a, slope_b, slopes, bend_a, bend_b = step_pair(
                        centred, kind, degree, kinds[3 * b], kinds[3 * b + 2], tilted[a, b], rows[a], rows[b]
                    )
                    square += together * value
                    if exact:
                        growth_b = tilted[b, b] - left[b] ** 2 - right[b] ** 2
                        dc = tilted[a, b] - left[a] * left[b] - right[a] * right[b]
                        pair_change = 2.0 * slopes * dc + bend_a * growth + bend_b * growth_b
                        change += together * (pair_change - 2.0 * (slope_a * turns[a] + slope_b * turns[b]))
            along = bias[i] * n_i + bias[j] * n_j
            scale = 2.0 / math.pi / math.sqrt(determinant) * math.exp(-0.5 * along)
            result = d * (square + noise)
            if exact:
                result += ((first + second) / determinant - 2.0 + along - n_i**2 - n_j**2) * (square + noise) + change
            out[i, j] = out[j, i] = scale * result


# Gaussian means of a finite step for polynomial links, by Wick's theorem.
#
# Vectors a = 0 … M − 1 have covariances C, weights w_a in the error ē = Σ_a w_a σ_a, and mean derivatives F_ak of their
# functions at their variances and biases. Products of four series are sums over diagrams as in `hermite.polynomials`,
# covariances instead of cosines:
#
# Σ_ab w_a w_b E[σ_a f_b φ_i ψ_j] = Σ Σ_ab H_rs(a) C_ab^e/e! H'_r's'(b) Z[r+r', s+s'],
# H_rs(a) = w_a F_a,e+r+s C_ai^r C_aj^s / (r! s!),   Z[R, S] = Σ_t φ_i,R+t ψ_j,S+t C_ij^t / t!,
#
# with e, r, s, r', s' ≥ 0 legs between a and b, a and i, and so on; H' has the mean derivatives of f, and Y =
# H C^(∘e)/e!. F = 0 beyond K, and λ is without its mean.
#
# `layout` = [K, parity of the degrees that all links lack, or 2 | place, degree of every vector]; `numbers` at the
# place of a vector: E p^(j)(z), z ~ N(0, 1), j up to its degree.

#: Largest degree of a polynomial in the equations of the step: the number of diagrams grows as its fourth power.
LARGEST_STEP_DEGREE = 12


def diagram_size(vectors: int, degree: int) -> int:
    """Return how many numbers of scratch the diagrams of M vectors and links of degree up to K take, see `Diagrams`."""
    M, K = vectors, degree
    rows = (K + 1) * (K + 2) // 2
    return int(M * M + 2 * M * (K + 4) + 2 * K * K + 3 * rows * M + (K + 1) * M * M + M)


class Diagrams(NamedTuple):
    """Layout of `work` for the diagrams of M vectors and links of degree up to K, in the symbols of the comment above.

    C are covariances, F_ak = E σ_a^(k) mean derivatives and w_a weights in the error. A diagram joins the four links of
    a product by legs, each of which is a covariance: e legs between a and b, r between a and i, s between a and j.
    H_rs(a), the half of a diagram, belongs to the vector a, and Z to the pair of neurons i and j.
    """

    #: C (M, M), F and that of λσ'(λ) (M, K + 4), w (M,).
    C: Matrix
    means: Matrix
    turned: Matrix
    weight: Vector
    #: C^(∘e)/e!, one matrix of M rows for each e = 0 … K.
    powers: Matrix
    #: Z and Z' (K, K).
    plain: Matrix
    mixed: Matrix
    #: H, the same with mean derivatives of λσ'(λ), and Y, one row per (r, s).
    halves: Matrix
    turned_halves: Matrix
    joined: Matrix


@kernel
def diagrams_of(M: int, K: int, work: Vector) -> Diagrams:
    """Return the parts of `work` by name, as views."""
    at, rows = M * M + 2 * M * (K + 4), (K + 1) * (K + 2) // 2
    Z = at + M + (K + 1) * M * M
    H = Z + 2 * K * K
    C, means, turned = matrix(work, 0, M, M), matrix(work, M * M, M, K + 4), matrix(work, at - M * (K + 4), M, K + 4)
    powers, plain, mixed = matrix(work, at + M, (K + 1) * M, M), matrix(work, Z, K, K), matrix(work, Z + K * K, K, K)
    halves, turned_halves = matrix(work, H, rows, M), matrix(work, H + rows * M, rows, M)
    joined = matrix(work, H + 2 * rows * M, rows, M)
    return Diagrams(C, means, turned, vector(work, at, M), powers, plain, mixed, halves, turned_halves, joined)


@kernel
def write_contractions(i: int, j: int, K: int, parts: Diagrams) -> None:
    """Write Z of the pair σ'_i σ'_j and Z' of λσ''_i σ'_j + σ'_i λσ''_j, shape (K, K), to `plain` and `mixed`."""
    c, v, u = parts.C[i, j], parts.C[i, i], parts.C[j, j]
    F, G = row_part(parts.means, i, 0, K + 4), row_part(parts.means, j, 0, K + 4)
    for R in range(K):
        for S in range(K):
            plain = mixed = 0.0
            for t in range(K - 1 - max(R, S), -1, -1):
                x, y = R + t, S + t
                left, right = x * F[x + 1] + v * F[x + 3], y * G[y + 1] + u * G[y + 3]
                plain = F[x + 1] * G[y + 1] + plain * c / (t + 1)
                mixed = left * G[y + 1] + F[x + 1] * right + mixed * c / (t + 1)
            parts.plain[R, S] = plain
            parts.mixed[R, S] = mixed


@kernel
def write_half_diagrams(
    e: int, i: int, j: int, absent: int, K: int, parts: Diagrams, table: Matrix, target: Matrix
) -> int:
    """Write H_rs(a), a row per (r, s) with r + s ≤ K − e, to `target`; return how many rows do not vanish by parity.

    H_rs(a) = w_a C_ai^r C_aj^s/(r! s!) times entry e + r + s of row a of `table`, which holds mean derivatives.
    `absent` is the parity of degrees that no link has, or 2.
    """
    row = 0
    for a in range(parts.weight.size):
        toward_i, toward_j = parts.C[a, i], parts.C[a, j]
        row = 0
        power = parts.weight[a]
        for r in range(K - e + 1):
            term = power
            for s in range(K - e + 1 - r):
                if (e + r + s) % 2 != absent:
                    target[row, a] = term * table[a, e + r + s]
                    row += 1
                term *= toward_j / (s + 1)
            power *= toward_i / (r + 1)
    return row


@kernel
def row_product(left: Matrix, x: int, right: Matrix, y: int) -> float:
    """Return the inner product of row x of a matrix and row y of another."""
    total = 0.0
    for b in range(left.shape[1]):
        total += left[x, b] * right[y, b]
    return total


@kernel
def diagram_second(i: int, j: int, noise: float, d: float, exact: bool, absent: int, K: int, parts: Diagrams) -> float:
    """Return E[(ē² + τ²) σ'_i σ'_j |x|²] of neurons i and j with polynomial links; d times E[…] unless `exact`.

    ē is the error without label noise, `noise` the variance τ² of that noise, d the dimension of the sample x, K the
    largest degree and `absent` the parity, 0 or 1, that no link's degrees have, or 2. `parts` holds covariances, mean
    derivatives and powers, which `write_polynomial_second` has written; its other parts are scratch.

    The exact mean is E[F |x|²] = d E F + E[x·∂F] for F = (ē² + τ²) σ'_i σ'_j, with x·∂F = 2 ē ε σ'_i σ'_j + (ē² +
    τ²)(λσ''_i σ'_j + σ'_i λσ''_j) and ε = Σ_a w_a λ_a σ'_a. Both means are sums over diagrams: e legs join the two
    factors, the first of which is ē and the second ē or ε; r and s legs join the first to i and j, r2 and s2 the
    second.
    """
    write_contractions(i, j, K, parts)
    H, E, Y, M = parts.halves, parts.turned_halves, parts.joined, parts.weight.size
    slope = noise * parts.plain[0, 0]
    base = noise * parts.mixed[0, 0] if exact else 0.0
    for e in range(K + 1):
        legs = K - e + 1
        rows = write_half_diagrams(e, i, j, absent, K, parts, parts.means, H)
        product(matrix(H, 0, rows, M), matrix(parts.powers, e * M * M, M, M), matrix(Y, 0, rows, M))
        if exact:
            write_half_diagrams(e, i, j, absent, K, parts, parts.turned, E)
        x = -1
        for r in range(legs):
            for s in range(legs - r):
                if (e + r + s) % 2 == absent:
                    continue
                x += 1
                y = -1
                for r2 in range(legs):
                    for s2 in range(legs - r2):
                        if (e + r2 + s2) % 2 == absent:
                            continue
                        y += 1
                        if r + r2 < K and s + s2 < K:
                            plain = parts.plain[r + r2, s + s2]
                            alike = row_product(Y, x, H, y)
                            slope += alike * plain
                            if exact:
                                mixed = row_product(Y, x, E, y)
                                base += alike * parts.mixed[r + r2, s + s2] + 2.0 * mixed * plain
    return float(d * slope + base)


@choice()
def write_polynomial_second(
    vectors: tuple[Matrix, Vector, Vector], noise: float, d: float, exact: bool, m: int,
    numbers: Vector, layout: Integers, work: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Write E[(ē² + τ²) σ'_i σ'_j |x|²] of neurons with polynomial links, the means of a step, to `out` (m, m).

    `vectors` are the covariances C (M, M) of the projections λ_a = w_a·x of the m neurons and then the teacher's units,
    their biases (M,) and their weights (M,) in the error ē = Σ_a weight_a σ_a(λ_a + bias_a). `noise` is the variance τ²
    of label noise, and `d` the dimension; |x|² of a sample is exact if `exact`, else replaced by d.

    `layout` = [K | absent parity, see `diagram_second` | place, degree of every vector], K being the largest degree; a
    vector has its mean derivatives E p^(j)(z), z ~ N(0, 1), at its place in `numbers`. `work` has `diagram_size`
    numbers of scratch. Mean derivatives of λσ'(λ), which x·∂ brings in, follow from E[λ f] = v E f', v being the
    variance of λ. Both halves of `out` are written; where the step is given up, it stays unfinished.
    """
    C, bias, weight = vectors
    M, K, absent = weight.size, layout[0], layout[1]
    parts = diagrams_of(M, K, work)
    for a in range(M):
        parts.weight[a] = weight[a]
        for b in range(M):
            parts.C[a, b], power = C[a, b], 1.0
            for e in range(K + 1):
                parts.powers[e * M + a, b] = power
                power *= C[a, b] / (e + 1)
        D, turned = row_part(parts.means, a, 0, K + 4), row_part(parts.turned, a, 0, K + 4)
        place, degree = layout[2 + 2 * a], layout[3 + 2 * a]
        write_series_means(C[a, a], bias[a], vector(numbers, place, degree + 1), D)
        for k in range(K + 4):
            turned[k] = k * D[k] + C[a, a] * (D[k + 2] if k < K + 2 else 0.0)
    for i in range(m):
        if is_stopped(layout):
            return
        for j in range(i + 1):
            out[i, j] = out[j, i] = diagram_second(i, j, noise, d, exact, absent, K, parts)


# Mean steps. State, events, constraints and Jacobian diagonal are those of the flow. `parameters` of the flow are
# followed by `StepNumbers`, and its `sizes` by [layout | `StepCounts`], for U units of the teacher.


class StepCounts(NamedTuple):
    """Last entries of `sizes`, before the number that says whether the step is given up."""

    #: 1 where neurons are polynomials, and where the step is exact; U.
    of_polynomials: int
    exact: int
    units: int
    #: Places of the layout, of η in `parameters`, and of the step's scratch in `work`.
    layout_at: int
    step_at: int
    scratch_at: int


class StepNumbers(NamedTuple):
    """η, B, d, τ², then −a (U,), β (U,) and θ (U, r) of the units, and `numbers`."""

    rate: float
    batch: float
    dimension: float
    noise: float
    weight: Vector
    bias: Vector
    theta: Matrix
    numbers: Vector


class StepWork(NamedTuple):
    """Gram matrix (M, M), S (m, m), biases and weights of M vectors, and scratch."""

    gram: Matrix
    S: Matrix
    bias: Vector
    weight: Vector
    scratch: Vector


@kernel
def step_counts(sizes: Integers) -> StepCounts:
    """Return the counts and places of the step, among the last entries of `sizes`, by name."""
    last = vector(sizes, sizes.size - 7, 6)
    return StepCounts(last[0], last[1], last[2], last[3], last[4], last[5])


@kernel
def layout_of_step(sizes: Integers) -> Integers:
    """Return the layout of the vectors, a view of `sizes` to its end."""
    at = step_counts(sizes).layout_at
    return vector(sizes, at, sizes.size - at)


@kernel
def step_numbers(parameters: Vector, sizes: Integers) -> StepNumbers:
    """Return what `parameters` holds for the step by name: four numbers, the units, and the numbers of the links."""
    counts, r = step_counts(sizes), flow.layout_of(sizes).axes
    at, U, step = counts.step_at + 4, counts.units, vector(parameters, counts.step_at, 4)
    weight, bias, theta = vector(parameters, at, U), vector(parameters, at + U, U), matrix(parameters, at + 2 * U, U, r)
    at += U * (2 + r)
    numbers = vector(parameters, at, parameters.size - at)
    return StepNumbers(step[0], step[1], step[2], step[3], weight, bias, theta, numbers)


@kernel
def step_work(sizes: Integers, work: Vector) -> StepWork:
    """Return the part of `work` that the step needs beyond the flow, by name, as views."""
    counts, m = step_counts(sizes), flow.layout_of(sizes).width
    M, at = m + counts.units, counts.scratch_at
    gram, S = matrix(work, at, M, M), matrix(work, at + M * M, m, m)
    at += M * M + m * m
    bias, weight = vector(work, at, M), vector(work, at + M, M)
    return StepWork(gram, S, bias, weight, vector(work, at + 2 * M, work.size - at - 2 * M))


@pasted_kernel
def write_step_vectors(y: Vector, scale: float, step: StepNumbers, C: Matrix, bias: Vector, weight: Vector) -> None:
    """Write Gram matrix C (M, M), `bias` (M,) and `weight` (M,) of the m neurons and then the teacher's units.

    `weight` are those in the error f − f*: `scale` times the second layer, and minus the coefficients of the units.
    """
    theta = step.theta
    units, r = theta.shape
    m = weight.size - units
    M, Q = matrix(y, 2 * m, m, r), matrix(y, 2 * m + m * r, m, m)
    for i in range(m):
        bias[i], weight[i] = y[m + i], scale * y[i]
        for j in range(m):
            C[i, j] = Q[i, j]
    for p in range(units):
        weight[m + p], bias[m + p] = step.weight[p], step.bias[p]
        for i in range(m + units):
            total = 0.0
            for a in range(r):
                total += (M[i, a] if i < m else theta[i - m, a]) * theta[p, a]
            C[i, m + p] = C[m + p, i] = total


@unit()
def write_step_second(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> Matrix:
    """Write and return S (m, m), the mean products of gradients of a batch, on and below the diagonal.

    Call it after the right-hand side of the flow, whose mean gradients are in `work`.
    """
    counts, step, rates = step_counts(sizes), step_numbers(parameters, sizes), flow.rates_of(parameters)
    (C, S, bias, weight, scratch), layout = step_work(sizes, work), layout_of_step(sizes)
    write_step_vectors(y, rates.scale, step, C, bias, weight)
    vectors, exact, m = (C, bias, weight), counts.exact == 1, S.shape[0]
    if counts.of_polynomials == 1:
        write_polynomial_second(vectors, step.noise, step.dimension, exact, m, step.numbers, layout, scratch, S)
    elif layout[1] == ERF_ALONE:
        write_central_erf_second(vectors, step.noise, step.dimension, exact, m, step.numbers, layout, scratch, S)
    else:
        write_erf_second(vectors, step.noise, step.dimension, exact, m, step.numbers, layout, scratch, S)
    _, _, _, _, _, N, F = flow.views(sizes, work)
    average_batch(S, C, N, F, weight, step.batch, exact, rates.rate_w, rates.decay_w)
    return S


@pasted_kernel
def add_step_terms(y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add the terms of order η to the rates in `out`; call it after the right-hand side of the flow."""
    layout, rate = flow.layout_of(sizes), step_numbers(parameters, sizes).rate
    m, r = layout.width, layout.axes
    dQ, S = matrix(out, 2 * m + m * r, m, m), write_step_second(y, parameters, sizes, work)
    add_noise(rate, S, dQ)
    if layout.sphere == 1:
        C, _, _, _, _, _, F = flow.views(sizes, work)
        keep_lengths(rate, F, S, C, matrix(out, 2 * m, m, r), dQ)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of the state [v | b | M | Q] for steps of a finite learning rate η to `out`.

    They are the rates of the flow, to which the terms of order η in Q', and on the sphere in M', are added.
    """
    flow.rhs(t, y, out, parameters, sizes, work)
    add_step_terms(y, out, parameters, sizes, work)


class NetworkStepSystem(flow.NetworkSystem):
    """The equation of SGD with η and B samples per step; ValueError if the mean step is not known exactly."""

    name = "network-step"
    falls = False

    def __init__(self, problem: Problem, learning_rate: float, step_theory: str, batch_size: int = 1) -> None:
        """Append the numbers of the step to the arrays of the flow of `problem`.

        `step_theory` is "finite-d", which is exact, or "infinite-d", the limit d → ∞ at fixed η d. `parameters` gain
        `StepNumbers`, `sizes` the layout of the vectors and `StepCounts`, and `work` the parts of `StepWork`.
        """
        exact = step_theory == "finite-d"
        super().__init__(problem)
        require(
            not exact or self.student.first_layer != "sphere",
            "Argument `step_theory` must be 'infinite-d' for neurons on the sphere, whose mean step at finite d is no "
            f"finite sum because it divides by a length, but is {shown(step_theory)}.",
        )
        units, m = step_units(problem), problem.width
        source = step_source(problem.activation, m, units, biased=self.student.has_biases)
        self.functions = replace(self.functions, rhs=rhs, choices=(*(self.functions.choices or ()), source.second))
        step = StepNumbers(
            learning_rate, batch_size, problem.dimension, problem.label_noise**2,
            np.array([-unit.coefficient for unit in units]), np.array([unit.bias for unit in units]),
            np.array([unit.direction for unit in units]), source.numbers,
        )  # fmt: skip
        places = self.sizes.size, self.parameters.size, self.work_size
        counts = StepCounts(int(source.is_polynomial), int(exact), len(units), *places)
        self.parameters: Array = np.concatenate([self.parameters, *(np.ravel(part) for part in step)])
        self.sizes: Integers = np.concatenate([self.sizes, source.layout, counts])
        M = m + len(units)
        self.work_size += M * M + m * m + 2 * M + source.work_size


# Links that have an exact mean step of finite size, and the arguments of its kernels.

#: The family of a link whose mean step is not known.
UNKNOWN = TABLE
_KINDS = {"relu": RELU, "sign": SIGN, "erf": ERF}


class StepLink(NamedTuple):
    """A link of the step: its kind, and of a polynomial its mean derivatives."""

    name: str
    kind: int
    numbers: tuple[float, ...] = ()

    @property
    def degree(self) -> int:
        """The degree of a polynomial, 0 of other links."""
        return max(len(self.numbers) - 1, 0)


class StepUnit(NamedTuple):
    """A unit of the teacher, a σ(θ·x + β)."""

    coefficient: float
    link: StepLink
    direction: Array
    bias: float


class StepSource(NamedTuple):
    """Arguments of `write_polynomial_second` for neurons that are polynomials, and else of `write_erf_second`."""

    is_polynomial: bool
    numbers: Array
    layout: Integers
    work_size: int

    @property
    def second(self) -> Callable[..., None]:
        """The compiled unit that takes these numbers."""
        if self.is_polynomial:
            return write_polynomial_second
        return write_central_erf_second if self.layout[1] == ERF_ALONE else write_erf_second


def step_link(link: HermiteExpansion) -> StepLink:
    """Return the kind of a link and, of a polynomial, its mean derivatives, as mean steps use them."""
    if link.is_polynomial:
        means = mean_derivatives(trimmed(np.array(link.link_coefficients())))
        return StepLink(link.name, POLYNOMIAL, tuple(means.tolist()))
    is_known = link.name in _KINDS and link == hermite.expand(link.name, order=link.order)
    return StepLink(link.name, _KINDS[link.name] if is_known else UNKNOWN)


def step_units(problem: Problem) -> tuple[StepUnit, ...]:
    """Return the teacher's units; a polynomial becomes a sum of units, and a step becomes ½ + ½ sign."""
    target = problem.teacher.target
    if target is not None:
        return ridge_units(target.exponents.tolist(), target.powers.tolist())
    units, constant = [], 0.0
    for coefficient, link, direction, bias in problem.teacher.units(problem.teacher_link):
        if link.name == "step" and link == hermite.expand("step", order=link.order):
            constant += 0.5 * coefficient
            units.append(StepUnit(0.5 * coefficient, StepLink("sign", SIGN), direction, bias))
        else:
            units.append(StepUnit(coefficient, step_link(link), direction, bias))
    if constant != 0.0:
        units.append(StepUnit(constant, StepLink("constant", POLYNOMIAL, (1.0,)), np.zeros(problem.teacher.span), 0.0))
    return tuple(units)


def step_source(student: HermiteExpansion, width: int, units: Sequence[StepUnit], *, biased: bool) -> StepSource:
    """Return the arguments of the kernel of second moments for `width` neurons and the teacher's units.

    `biased` says that neurons have biases. ValueError is raised if the mean step is not known exactly for these links.
    """
    neuron_link, links = step_link(student), [unit.link for unit in units]
    alone = neuron_link.kind == POLYNOMIAL
    require(
        neuron_link.kind in (ERF, POLYNOMIAL),
        "Argument `problem` must have links whose mean step of a finite learning rate is known exactly, but has "
        f"neurons of {neuron_link.name}: it is known for 'erf' and polynomials; `sgd_check.simulate` takes such steps.",
    )
    kinds = "polynomials" if alone else "'erf', 'relu', 'step', 'sign' and polynomials"
    for link in links:
        require(
            link.kind == POLYNOMIAL if alone else link.kind != UNKNOWN,
            "Argument `problem` must have links whose mean step of a finite learning rate is known exactly, but has "
            f"neurons of {neuron_link.name} and a teacher of {link.name}: it is known for a teacher of {kinds}; "
            "`sgd_check.simulate` takes such steps.",
        )
    vectors = [neuron_link] * width + links
    numbers = [link.numbers for link in vectors]
    places = np.cumsum([0, *map(len, numbers[:-1])]).tolist()
    top, M = max(link.degree for link in vectors), len(vectors)
    biased = biased or any(unit.bias for unit in units)
    if alone:
        require(
            top <= LARGEST_STEP_DEGREE,
            "Argument `problem` must have links whose mean step of a finite learning rate is known exactly, but has "
            f"polynomials of degree {top}: it is known up to {LARGEST_STEP_DEGREE}; `sgd_check.simulate` takes such "
            "steps.",
        )
        layout = [max(top, 1), 2 if biased else lacking_parity(numbers)]
        of_vectors = [[at, link.degree] for at, link in zip(places, vectors, strict=True)]
        size = diagram_size(M, layout[0])
    else:
        erf_alone = not biased and all(link.kind == ERF for link in links)
        layout = [top + 3, ERF_ALONE if erf_alone else not biased]
        of_vectors = [[link.kind, at, link.degree] for at, link in zip(places, vectors, strict=True)]
        size = M * (STEP_HEAD + layout[0] + M + 3)
    return StepSource(alone, np.concatenate(numbers), np.array([*layout, *np.ravel(of_vectors)], dtype=np.int64), size)


def lacking_parity(links: Sequence[Sequence[float] | Array]) -> int:
    """Return the parity (0 or 1) of the degrees that no polynomial has, from mean derivatives; 2 if there is none."""
    return next((parity for parity in (0, 1) if not any(np.any(numbers[parity::2]) for numbers in links)), 2)


def ridge_units(exponents: Sequence[Sequence[int]], powers: Sequence[float]) -> tuple[StepUnit, ...]:
    r"""Return Σ_t powers_t Π_a x_a^exponents_ta as a sum of polynomials p(θ·x), by Kan's formula (2008).

    .. math:: \prod_a x_a^{e_a} = \frac1{n!} \sum_{0\le\nu\le e} (-1)^{|\nu|} \prod_a \binom{e_a}{\nu_a}
       \Big(\sum_a \big(\tfrac{e_a}2 - \nu_a\big) x_a\Big)^n, \qquad n = \sum_a e_a
    """
    # direction as whole numbers -> coefficients of (direction·x)^n
    top, constant = max(map(sum, exponents)), 0.0
    forms: defaultdict[tuple[int, ...], Array] = defaultdict(lambda: np.zeros(top + 1))
    for exponent, power in zip(exponents, powers, strict=True):
        n = sum(exponent)
        constant += float(power) if n == 0 else 0.0
        for form, share in _forms(tuple(int(e) for e in exponent)).items():
            forms[form][n] += float(share) * float(power)
    units = []
    for form, coefficients in forms.items():
        if not coefficients.any():
            continue  # the powers of this form cancel
        length = float(np.linalg.norm(form))
        coefficients[0], constant = constant, 0.0
        series = np.trim_zeros(coefficients * length ** np.arange(top + 1.0), "b")
        means = np.polynomial.hermite_e.poly2herme(series) * [math.factorial(k) for k in range(series.size)]
        link = StepLink("polynomial", POLYNOMIAL, tuple(means.tolist()))
        units.append(StepUnit(1.0, link, np.array(form) / length, 0.0))
    return tuple(units)


def _forms(exponent: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
    """Return the linear forms of which a monomial of degree n is the sum of n-th powers, with their factors."""
    forms: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    n = sum(exponent)
    for nu in itertools.product(*(range(e + 1) for e in exponent)):
        twice = [e - 2 * k for e, k in zip(exponent, nu, strict=True)]
        common = math.gcd(*twice)
        if common == 0:
            continue
        sign = 1 if next(x for x in twice if x) > 0 else -1
        form = tuple(sign * x // common for x in twice)
        factor = (-1) ** sum(nu) * math.prod(math.comb(e, k) for e, k in zip(exponent, nu, strict=True))
        forms[form] += Fraction(factor * (sign * common) ** n, math.factorial(n) * 2**n)
    return {form: factor for form, factor in forms.items() if factor}
