r"""A two-layer network f(x) = s Σ_i v_i σ(w_i·x + b_i) and its teacher on the first r axes, in their order parameters.

State y = [v (m) | b (m) | M (m, r) | Q (m, m)]: second layer, biases, M = WΘᵀ on the teacher's axes and Q = WWᵀ. With
the means Ψ, Ψ¹, A and B of `docs/networks.md`, rates ε and decay κ the flow is exact at every d: v' = −ε_v sΨ − κ_v v
and b' = −ε_b s v∘Ψ¹. The mean gradient of the first layer is N times the vectors (w_1 … w_m, teacher's axes),
N = [ε_w A + κ_w − diag(turn) | −ε_w B]; the turn keeps the length of each neuron on the sphere, and is 0 else. With the
Gram matrix C = [Q M; Mᵀ 1] of these vectors and [F_m | F_r] = F = N C, M' = −F_r and Q' = −F_m − F_mᵀ; steps of descent
add η F Nᵀ to Q'.

sizes = [`NetworkLayout` | whole numbers of the teacher], parameters = [`Rates` | |w_i(0)|² (m) | those of the teacher |
those of the links], and `work` holds `Tables`, one after another, then scratch: D_j, j < degree + `FURTHER`, and Nᵀ.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numba import types
from numpy.typing import NDArray

from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.losses import NetworkDegrees, without_rounding
from dynamics.equations.mean_step import write_descent
from dynamics.equations.network import normal_kernels as normal
from dynamics.equations.network import series
from dynamics.equations.network.families import (
    ERF,
    POLYNOMIAL,
    RELU,
    TABLE,
    check_no_ties,
    network_teacher,
    normalised_overlaps,
)
from dynamics.equations.overlaps import write_gram
from dynamics.equations.vectors import NOTHING
from dynamics.kernels.jit import callback, entry, inlined_kernel, kernel, matrix, pasted_kernel, vector
from dynamics.kernels.products import multiply, multiply_transposed
from dynamics.kernels.units import choice, make_choices, unit
from hermite.arrays import Integers, Matrix, Vector
from hermite.text.messages import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations.network.families import NetworkTeacher
    from dynamics.problem import Problem, Student
    from hermite.arrays import Array


class NetworkLayout(NamedTuple):
    """First entries of `sizes`: numbers of a network, and places in `parameters` and `work`."""

    #: m, r, and 1 for neurons on the sphere.
    width: int
    axes: int
    sphere: int
    #: `FLOW`, `DESCENT` or `MEANS`.
    theory: int
    #: Units of the teacher, or components and their largest degree.
    units: int
    components: int
    degree: int
    #: Numbers in a row of tables.
    row_size: int
    #: Places in `parameters` of the numbers of the teacher and of the links.
    teacher_at: int
    numbers_at: int
    #: How the means of all pairs of neurons, and those with the teacher, are found.
    pairing: int
    means_of: int
    #: Places of the tables in `work`.
    rows_at: int
    means_at: int
    pulls_at: int
    slopes_at: int
    forces_at: int
    products_at: int
    scratch_at: int


class Rates(NamedTuple):
    """First entries of `parameters`.

    They are the rates ε of first layer w, second layer v and biases b, the decay κ of w and v, the scale s of the
    output, the step η, and the level of emergence.
    """

    rate_w: float
    rate_v: float
    rate_b: float
    decay_w: float
    decay_v: float
    scale: float
    step: float
    level: float


class Tables(NamedTuple):
    """Layout of `work`."""

    #: C (m + r, m + r).
    gram: Matrix
    #: One row of tables per neuron, then per unit of the teacher.
    rows: Matrix
    #: Per neuron E σ_i f*, E σ'_i f*, E σ''_i f* and t_i = E[σ'_i ∇f*] (r), with the teacher f*.
    means: Matrix
    #: Means E[e σ_i], E[e σ'_i] and E[e σ''_i] with the error e = f − f*, Ψ, Ψ1 and Ψ2 in the pages, (3, m).
    pulls: Matrix
    #: Coefficients A₀ (m, m) of neurons in mean gradients, then the mean gradients N and their products F (m, m + r).
    slopes: Matrix
    forces: Matrix
    products: Matrix


class Units(NamedTuple):
    """A teacher of units, f* = Σ_p a_p σ_p(θ_p·x + β_p): a, β, θ (P, r), and the number of each unit's link."""

    weight: Vector
    bias: Vector
    theta: Matrix
    link: Integers


class Terms(NamedTuple):
    """A teacher that is a polynomial, f* = Σ_α f*_α h_α: f*_α/√α!, 1/(√α! f*_α), and α (terms, r) per term."""

    weight: Vector
    inverse: Vector
    powers: NDArray[np.int64]


# Of `theory`; with the last `rhs` ends when the means are in `work`, and events are shares, without level ½.
FLOW, DESCENT, MEANS = 0, 1, 2
# Of `pairing`, how the means of all pairs of neurons are found: one by one for a link κ f + βz + γ, several at
# once for relu and erf, without biases and with them, and as sums over lists for any other link.
ONE_BY_ONE, CENTRAL_RELU, CENTRAL_ERF, BIASED_RELU, BIASED_ERF, LISTS = range(6)
# Of `means_of`, the teacher: units of relu, sign and erf, as the neurons are, without biases and with them;
# units of any links; a polynomial.
CENTRAL_UNITS, THRESHOLD_UNITS, OTHER_UNITS, TEACHER_POLYNOMIAL = range(4)
# Mean derivatives beyond the teacher's degree.
FURTHER = 3
# Place in `sizes` of the whole numbers of the teacher.
TEACHER_SIZES_AT = len(NetworkLayout._fields)
# Place in `parameters` of |w_i(0)|².
SQUARES_AT = len(Rates._fields)


@kernel
def layout_of(sizes: Integers) -> NetworkLayout:
    """Return the numbers and places of a network."""
    return NetworkLayout(
        sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[7], sizes[8], sizes[9], sizes[10],
        sizes[11], sizes[12], sizes[13], sizes[14], sizes[15], sizes[16], sizes[17], sizes[18],
    )  # fmt: skip


@kernel
def rates_of(parameters: Vector) -> Rates:
    """Return the rates ε, decays κ, output scale s, step and level, the first entries of `parameters`, by name."""
    return Rates(
        parameters[0], parameters[1], parameters[2], parameters[3], parameters[4], parameters[5], parameters[6],
        parameters[7],
    )  # fmt: skip


@kernel
def initial_squares(parameters: Vector, sizes: Integers) -> Vector:
    """Return the squared lengths of the neurons at the start, |w_i(0)|² (m,), a view."""
    return vector(parameters, SQUARES_AT, layout_of(sizes).width)


@pasted_kernel
def numbers_of_links(parameters: Vector, sizes: Integers) -> Vector:
    """Return the numbers of all links, a view: the argument `numbers` of the kernels below."""
    at = layout_of(sizes).numbers_at
    return vector(parameters, at, parameters.size - at)


@kernel
def units_of(parameters: Vector, sizes: Integers) -> Units:
    """Return the units of a teacher of units, by name, as views."""
    layout = layout_of(sizes)
    at, P, r = layout.teacher_at, layout.units, layout.axes
    theta, links = matrix(parameters, at + 2 * P, P, r), vector(sizes, TEACHER_SIZES_AT, P)
    return Units(vector(parameters, at, P), vector(parameters, at + P, P), theta, links)


@kernel
def terms_of(parameters: Vector, sizes: Integers) -> Terms:
    """Return the terms of a teacher that is a polynomial: the constant, then its components, as views."""
    layout = layout_of(sizes)
    at, terms = layout.teacher_at, layout.components + 1
    powers = matrix(sizes, TEACHER_SIZES_AT, terms, layout.axes)
    return Terms(vector(parameters, at, terms), vector(parameters, at + terms, terms), powers)


@pasted_kernel
def views(sizes: Integers, work: Vector) -> Tables:
    """Return the tables of `work` by name, as views."""
    layout = layout_of(sizes)
    m, n, r = layout.width, layout.width + layout.axes, layout.axes
    C, rows = matrix(work, 0, n, n), matrix(work, layout.rows_at, m + layout.units, layout.row_size)
    means, pulls = matrix(work, layout.means_at, m, r + 3), matrix(work, layout.pulls_at, 3, m)
    A, N = matrix(work, layout.slopes_at, m, m), matrix(work, layout.forces_at, m, n)
    return Tables(C, rows, means, pulls, A, N, matrix(work, layout.products_at, m, n))


@kernel
def derivatives_of(sizes: Integers, work: Vector) -> Vector:
    """Return the scratch for the mean derivatives D_j = E σ^(j) of one neuron, (degree + `FURTHER`,)."""
    layout = layout_of(sizes)
    return vector(work, layout.scratch_at, layout.degree + FURTHER)


@kernel
def turned_forces(sizes: Integers, work: Vector) -> Matrix:
    """Return the scratch for the transpose of the mean gradients N, shape (m + r, m)."""
    layout = layout_of(sizes)
    return matrix(work, layout.scratch_at + layout.degree + FURTHER, layout.width + layout.axes, layout.width)


@kernel
def square_scratch(sizes: Integers, work: Vector) -> Matrix:
    """Return the scratch of the products F as a matrix (m, m)."""
    layout = layout_of(sizes)
    return matrix(work, layout.products_at, layout.width, layout.width)


# Means of two units of any links. `numbers` and `head`, the place of a link in them, are those of
# `dynamics.equations.network.series`. Of units i and j, whose inputs have the covariance c, K = E σ_i σ_j,
# K1_ij = E σ'_i σ_j, K12 = E σ'_i σ'_j and K2_ij = E σ''_i σ_j. The row of a unit holds the numbers of it alone that
# these means need; `write_row` writes it.


@inlined_kernel
def write_row(head: int, q: float, b: float, numbers: Vector, row: Vector) -> None:
    """Write the row of one unit: all numbers that means over pairs need and that depend on this unit alone.

    The input of the unit, w·x + b, has variance q = |w|² and mean b. `numbers` describes all links, and that of the
    unit is described from place `head` on. `row` begins with q and b; the rest depends on the family of the link.
    """
    family = int(numbers[head])
    row[0], row[1] = q, b
    if family == TABLE:
        start = int(numbers[head + 1])
        series.read_table(q, b, start, start, numbers, vector(row, 2, 4))
    elif family <= ERF and numbers[series.STUDENT] <= ERF:
        normal.write_threshold_row(family, q, b, row)
    if numbers[series.TERMS] > 0.0:
        series.write_list_row(head, q, b, numbers, row)


@inlined_kernel
def write_threshold_head(head: int, q: float, b: float, numbers: Vector, row: Vector) -> None:
    """Do what `write_row` does for a unit whose link is relu, sign or erf."""
    normal.write_threshold_row(int(numbers[head]), q, b, row)


@inlined_kernel
def threshold_values(
    head: int, c: float, a: Vector, b: Vector, numbers: Vector
) -> tuple[float, float, float, float, float, float]:
    """Return the means of a neuron and a unit with links κ f + β z + γ, f being relu, sign or erf, at covariance c.

    With their rows a and b these are E σ_a σ_b, E σ'_a σ_b, E σ_a σ'_b, E σ'_a σ'_b, E σ''_a σ_b and E σ_a σ''_b.
    """
    student, family, centred = int(numbers[series.STUDENT]), int(numbers[head]), numbers[series.CENTRED] > 0.0
    means = normal.threshold_pair(student, family, centred, c, a, b)
    return series.lined_pair(head, c, a, b, numbers, means) if numbers[series.LINED] > 0.0 else means


@choice()
def lined_values(head: int, c: float, a: Vector, b: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """Return E σ_a σ_b, E σ'_a σ_b, E σ'_a σ'_b and E σ''_a σ_b of links κ f + β z + γ at covariance c.

    Rows a and b are those of a neuron and of a unit; f is relu, sign or erf.
    """
    value, slope, _, slopes, bend, _ = threshold_values(head, c, a, b, numbers)
    return value, slope, slopes, bend


@inlined_kernel
def pair_values(head: int, c: float, a: Vector, b: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """Return the four means that `lined_values` returns, of a neuron a and a unit b of any links at covariance c."""
    if numbers[series.STUDENT] > ERF or numbers[head] > ERF:
        return series.list_pair(c, a, b, numbers)
    return lined_values(head, c, a, b, numbers)


@inlined_kernel
def central_values(head: int, c: float, a: Vector, b: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """Return the four means that `lined_values` returns, of units of relu, sign or erf without biases."""
    means = normal.central_pair(int(numbers[series.STUDENT]), int(numbers[head]), c, a, b)
    value, slope, _, slopes, bend, _ = means
    return value, slope, slopes, bend


@inlined_kernel
def biased_values(head: int, c: float, a: Vector, b: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """Return the four means that `lined_values` returns, of units of relu, sign or erf with biases."""
    means = normal.threshold_pair(int(numbers[series.STUDENT]), int(numbers[head]), False, c, a, b)
    value, slope, _, slopes, bend, _ = means
    return value, slope, slopes, bend


@choice()
def own_threshold_values(row: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """Return E σ², E σ'σ, E σ'² and E σ''σ of one neuron, whose `row` is that of `write_row`.

    The link is κ f + β z + γ with f relu, sign or erf, and `numbers` describes it.
    """
    head = int(numbers[series.HEADS])
    if numbers[series.STUDENT] != RELU:
        value, slope, _, slopes, bend, _ = threshold_values(head, row[0], row, row, numbers)
        return value, slope, slopes, bend
    means = row[1] * row[6] + row[0] * row[7], row[6], row[6], row[7], 0.0, 0.0
    if numbers[series.LINED] > 0.0:
        means = series.lined_pair(head, row[0], row, row, numbers, means)
    return means[0], means[1], means[3], means[4]


@kernel
def own_list_values(row: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """Return E σ², E σ'σ, E σ'² and E σ''σ of one neuron of a table or a polynomial, from its row."""
    if numbers[series.STUDENT] == TABLE:
        return row[2], row[3], row[4], row[5]
    return series.list_pair(row[0], row, row, numbers)


@inlined_kernel
def own_values(row: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """Return E σ², E σ'σ, E σ'² and E σ''σ of one neuron of any link, from its row."""
    if numbers[series.STUDENT] > ERF:
        return own_list_values(row, numbers)
    return own_threshold_values(row, numbers)


@pasted_kernel
def mean_square(pairing: int, row: Vector, numbers: Vector) -> float:
    """Return E σ² of one neuron, from its row.

    It is b E σ + q P(input > 0) of relu, and (2/π) asin(q/(1 + q)) of erf without biases, q the variance of its input.
    """
    if pairing in (CENTRAL_RELU, BIASED_RELU):
        return float(row[1] * row[6] + row[0] * row[7])
    if pairing == CENTRAL_ERF:
        return 2.0 / math.pi * math.asin(row[0] / row[2])
    return own_values(row, numbers)[0]


# Means of all pairs of neurons. With K, K1, K12 and K2 as above and weights s v, the functions add Σ_j s v_j K_ij,
# Σ_j s v_j K1_ij and Σ_j s v_j K2_ij to the three rows of `pulls` (3, m), which are Ψ, Ψ1 and Ψ2 of docs/networks.md,
# and write A_ij = s² v_i v_j K12_ij (m, m). C is the Gram matrix of neurons and axes, and `rows` has the rows of units.
#
# Loops over neurons without calls and branches compute several pairs at once, in a tenth of the time of pairs one by
# one. `weight` is s v.


@choice()
def add_one_by_one(weight: Vector, C: Matrix, rows: Matrix, numbers: Vector, pulls: Matrix, A: Matrix) -> None:
    """Add the means of all pairs of neurons of a link κ f + β z + γ to `pulls`, and write those of slopes to A.

    `weight` (m,) is s v_i, C the Gram matrix of neurons and axes, and `rows` hold the numbers of each neuron alone.
    Rows of `pulls` (3, m) gain Σ_j weight_j E[σ_j σ_i^(k)], k = 0, 1, 2, and A_ij is weight_i weight_j E[σ'_i σ'_j],
    (m, m). Pairs are taken one by one.
    """
    for i in range(weight.size):
        value, first, slopes, second = own_threshold_values(rows[i], numbers)
        pulls[0, i] += weight[i] * value
        pulls[1, i] += weight[i] * first
        pulls[2, i] += weight[i] * second
        A[i, i] = weight[i] * weight[i] * slopes
        for j in range(i):
            means = threshold_values(int(numbers[series.HEADS]), C[i, j], rows[i], rows[j], numbers)
            value, first, mirrored, slopes, second, bent = means
            pulls[0, i] += weight[j] * value
            pulls[0, j] += weight[i] * value
            pulls[1, i] += weight[j] * first
            pulls[1, j] += weight[i] * mirrored
            pulls[2, i] += weight[j] * second
            pulls[2, j] += weight[i] * bent
            A[i, j] = A[j, i] = weight[i] * weight[j] * slopes


@kernel
def arc_sine(x: float, lack: float) -> float:
    """Return asin(x), where `lack` is 1 − x² without cancellation, without branches: fdlibm's rational approximation.

    Beyond |x| = ½ it is π/2 − 2 asin √((1 − |x|)/2).
    """
    size = abs(x)
    far = size > 0.5
    z = 0.5 * lack / (1.0 + size) if far else x * x
    s = math.sqrt(z) if far else size
    p = 7.91534994289814532176e-04 + z * 3.47933107596021167570e-05
    p = -3.25565818622400915405e-01 + z * (2.01212532134862925881e-01 + z * (-4.00555345006794114027e-02 + z * p))
    p = z * (1.66666666666666657415e-01 + z * p)
    q = 2.02094576023350569471e00 + z * (-6.88283971605453293030e-01 + z * 7.70381505559019352791e-02)
    q = 1.0 + z * (-2.40339491173441421878e00 + z * q)
    near = s + s * p / q
    return math.copysign(0.5 * math.pi - 2.0 * near if far else near, x)


@choice()
def add_central_relu(weights: Vector, C: Matrix, pulls: Matrix, A: Matrix) -> None:
    """Add to `pulls` and write to A the means of all pairs of neurons of relu without biases.

    These are E σ'_i σ'_j = ¼ + asin(ρ)/2π, E σ_i σ_j = √Δ/2π + c E σ'_i σ'_j and E σ''_i σ_j = √Δ/(2π Q_ii), with
    Δ = Q_ii Q_jj − c² and ρ = c/√(Q_ii Q_jj) (arc cosines of Cho & Saul). The second row of `pulls` moves biases alone.
    """
    m = weights.size
    square, inverse = np.empty(m), np.empty(m)
    for j in range(m):
        square[j] = C[j, j]
        inverse[j] = 1.0 / math.sqrt(square[j])
    for i in range(m):
        gram, row = C[i], A[i]
        q, inverse_i, weight = square[i], inverse[i], weights[i]
        value = bend = 0.0
        for j in range(m):
            c, inverse_root = gram[j], inverse_i * inverse[j]
            delta = max(normal.difference_of_products(q, square[j], c, c), 0.0)
            slope = 0.25 + arc_sine(c * inverse_root, delta * inverse_root * inverse_root) / (2.0 * math.pi)
            root = math.sqrt(delta) / (2.0 * math.pi)
            value += weights[j] * (root + c * slope)
            bend += weights[j] * root
            row[j] = weight * weights[j] * slope
        pulls[0, i] += value
        pulls[2, i] += bend / q


@choice()
def add_central_erf(values: bool, weights: Vector, C: Matrix, pulls: Matrix, A: Matrix) -> None:
    """Add to `pulls` and write to A the means of all pairs of neurons of erf(z/√2) without biases.

    These are E σ_i σ_j = (2/π) asin(c/√(T_i T_j)), which is computed if `values` is true, E σ'_i σ'_j = (2/π)/√Δ and
    E σ''_i σ_j = −c E σ'_i σ'_j/T_i, with T_i = 1 + Q_ii and Δ = T_i T_j − c².
    """
    m = weights.size
    wide, inverse = np.empty(m), np.empty(m)
    for j in range(m):
        wide[j] = 1.0 + C[j, j]
        inverse[j] = 1.0 / math.sqrt(wide[j])
    for i in range(m):
        gram, row = C[i], A[i]
        T, inverse_i, weight = wide[i], inverse[i], 2.0 / math.pi * weights[i]
        value = bend = 0.0
        for j in range(m):
            c, inverse_root = gram[j], inverse_i * inverse[j]
            lack = normal.difference_of_products(T, wide[j], c, c) * inverse_root * inverse_root
            slope = weights[j] * inverse_root / math.sqrt(lack)
            if values:
                value += weights[j] * arc_sine(c * inverse_root, lack)
            bend += c * slope
            row[j] = weight * slope
        pulls[0, i] += 2.0 / math.pi * value
        pulls[2, i] -= 2.0 / math.pi * bend / T


@choice()
def add_biased_relu(weight: Vector, C: Matrix, rows: Matrix, pulls: Matrix, A: Matrix) -> None:
    """Add to `pulls` and write to A the means of all pairs of neurons of relu with biases b.

    With u = (b_j q_i − c b_i)/√(q_i Δ), Δ = q_i q_j − c², p_i the density of the input of neuron i at 0 and
    P_ij = p_i Φ(u): E σ'_i σ'_j is the probability K12 that both are on, E σ'_i σ_j = b_j K12 + c P_ij + q_j P_ji,
    E σ''_i σ_j = p_i √(Δ/q_i) (u Φ(u) + φ(u)) and E σ_i σ_j = b_i E σ'_i σ_j + q_i E σ''_i σ_j + c K12. So one Φ(u) is
    computed per ordered pair; `ordered_pair` computes the means of a single pair.
    """
    m = weight.size
    bias, q, inverse, h, share = np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    slope, inner, mirrored_slope = np.empty(m), np.empty(m), np.zeros(m)
    for j in range(m):
        bias[j], q[j], inverse[j], h[j], share[j] = rows[j, 1], rows[j, 2], rows[j, 3], rows[j, 4], rows[j, 7]
    normal.write_excesses(q, inverse, h, C, A)
    for i in range(m):
        gram, row, b, inverse_i, p = C[i], A[i], bias[i], inverse[i], rows[i, 5]
        row[i] = share[i] - share[i] * share[i]
        back, along, above, bell_sum = weight[i] * q[i] * p, 0.0, 0.0, 0.0
        for j in range(m):
            c = gram[j]
            root = normal.root_determinant(c, q[i], q[j])
            shift = normal.difference_of_products(bias[j], q[i], c, b) * inverse_i
            bell, odd = normal.bell_and_odd(normal.standard_score(shift, 1.0, root))
            cdf = 0.5 + 0.5 * odd
            along += weight[j] * c * cdf
            above += weight[j] * shift * cdf
            bell_sum += weight[j] * root * bell
            mirrored_slope[j] += back * cdf
        from_both = covariance_sum = 0.0
        for j in range(m):
            weighted_slopes = weight[j] * (share[i] * share[j] + row[j])
            from_both += bias[j] * weighted_slopes
            covariance_sum += gram[j] * weighted_slopes
            row[j] = weight[i] * weighted_slopes
        bend = p * inverse_i * (above + normal.INVERSE_ROOT * bell_sum)
        slope[i], inner[i] = from_both + p * along, covariance_sum + q[i] * bend
        pulls[2, i] += bend
    for i in range(m):
        pulls[0, i] += bias[i] * (slope[i] + mirrored_slope[i]) + inner[i]
        pulls[1, i] += slope[i] + mirrored_slope[i]


@choice()
def add_biased_erf(values: bool, weight: Vector, C: Matrix, rows: Matrix, pulls: Matrix, A: Matrix) -> None:
    """Add to `pulls` and write to A the means of all pairs of neurons of erf(z/√2) with biases b.

    With T_i = 1 + Q_ii, Δ = T_i T_j − c², u = (b_j T_i − c b_i)/√(T_i Δ) and p_i the normal density of variance T_i at
    b_i: E σ'_i σ_j = 2 p_i erf(u/√2), E σ'_i σ'_j = 4 p_i φ(u) √(T_i/Δ) and E σ''_i σ_j = −(b_i E σ'_i σ_j +
    c E σ'_i σ'_j)/T_i. E σ_i σ_j is computed if `values` is true; `ordered_pair` computes the means of a single pair.
    """
    m = weight.size
    bias, T, inverse, h, mean = np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    for j in range(m):
        bias[j], T[j], inverse[j], h[j], mean[j] = rows[j, 1], rows[j, 2], rows[j, 3], rows[j, 4], rows[j, 6]
    if values:
        normal.write_excesses(T, inverse, h, C, A)
        for i in range(m):
            root = normal.root_determinant(C[i, i], T[i], T[i])
            A[i, i] = normal.excess(C[i, i], root, inverse[i] * inverse[i], h[i], h[i])
    for i in range(m):
        gram, row, b, inverse_i, p = C[i], A[i], bias[i], inverse[i], 2.0 * rows[i, 5]
        value = first = bend = 0.0
        if values:
            for j in range(m):
                value += weight[j] * (mean[i] * mean[j] + 4.0 * row[j])
        for j in range(m):
            c = gram[j]
            root = 1.0 / math.sqrt(normal.difference_of_products(T[i], T[j], c, c))
            bell, odd = normal.bell_and_odd(normal.difference_of_products(bias[j], T[i], c, b) * inverse_i * root)
            slopes = weight[j] * bell * root
            first += weight[j] * odd
            bend += c * slopes
            row[j] = slopes
        bell_factor = 2.0 * p * normal.INVERSE_ROOT / inverse_i
        for j in range(m):
            row[j] *= weight[i] * bell_factor
        pulls[0, i] += value
        pulls[1, i] += p * first
        pulls[2, i] -= (b * p * first + bell_factor * bend) / T[i]


@choice()
def add_lists(values: bool, weight: Vector, C: Matrix, rows: Matrix, numbers: Vector, pulls: Matrix, A: Matrix) -> None:
    """Add to `pulls` and write to A the means of all pairs of neurons of a series or a table, as sums over lists.

    `series.list_pair` computes those of a single pair. E σ_i σ_j and E σ'_i σ_j are computed if `values` is true.
    """
    m, count, is_series = weight.size, int(numbers[series.TERMS]), numbers[series.SERIES]
    first, second = series.LIST + count + 2, series.LIST + 2 * count + 2
    means, slopes = np.empty((count, m)), np.empty((count, m))
    inverse, x, sums = np.empty(m), np.empty(m), np.zeros((3, m))
    for j in range(m):
        inverse[j] = rows[j, series.LIST - 1]
        for k in range(count):
            means[k, j], slopes[k, j] = rows[j, series.LIST + k], rows[j, first + k]
    for i in range(m):
        gram, row, slope_row = C[i], rows[i], A[i]
        for j in range(m):
            x[j] = gram[j] * inverse[i] * inverse[j]
        # The neuron itself is no sum: a series does not converge there.
        x[i] = 0.0
        terms = series.term_count(normal.largest_size(x, m), count, is_series)
        # K, K1, K2 and K12: the lists of σ, σ' and σ'' with those of σ, and that of σ' with itself.
        for k in range(0 if values else 2, 4):
            place = series.LIST if k == 0 else second if k == 2 else first
            factors = vector(row, place, row.size - place)
            normal.write_power_sums(factors, slopes if k == 3 else means, x, terms, m, slope_row if k == 3 else sums[k])
        sums[0, i], sums[1, i], slope_row[i], sums[2, i] = own_list_values(row, numbers)
        for k in range(0 if values else 2, 3):
            total, row_sums = 0.0, sums[k]
            for j in range(m):
                total += weight[j] * row_sums[j]
            pulls[k, i] += total
        for j in range(m):
            slope_row[j] *= weight[i] * weight[j]


# Means of a neuron with its teacher, made of units or a polynomial.
#
# For a polynomial, f* = Σ_α f*_α h_α, h_α = Π_a h_(α_a)(x_a), with D_j = E σ^(j)(λ_i) and g_α = f*_α/√α!,
#
# E[σ_i f*] = Σ_α g_α D_|α| M_i^α,  E[σ'_i f*] and E[σ''_i f*]: D_(|α|+1), D_(|α|+2),  t_ia = Σ_α g_α D_|α| ∂_a M_i^α,
#
# and f_α = s Σ_i v_i D_|α| M_i^α/√α!.


@inlined_kernel
def unit_at(i: int, m: int, y: Vector, head: int, units: Units, C: Matrix) -> tuple[int, float, float]:
    """Return the place of the link, the variance and the bias of vector i: a neuron if i < m, else a teacher's unit.

    `head` is the place of the neurons' link in the numbers of all links; units of the teacher have variance 1.
    """
    if i < m:
        return head, C[i, i], y[m + i]
    return head + series.HEADER * units.link[i - m], 1.0, units.bias[i - m]


@pasted_kernel
def write_unit_means(
    write_head: Callable[..., None], pair: Callable[..., tuple[float, float, float, float]],
    y: Vector, parameters: Vector, sizes: Integers, work: Vector,
) -> None:  # fmt: skip
    """Write the rows of all units to `work`, and the means of each neuron with the teacher, (m, r + 3).

    The teacher is f* = Σ_p a_p σ_p(θ_p·x + β_p) with P units. Row i of the means is E σ_i f*, E σ'_i f*, E σ''_i f* and
    the r entries of t_i = E[σ'_i ∇f*], and a row of tables holds the numbers of one vector alone, for neurons and then
    units. `write_head(head, q, b, numbers, row)` writes such a row from the variance q and the bias b of the vector's
    input, and `pair(head, overlap, row, row, numbers)` returns E σ_i σ_p, E σ'_i σ_p, E σ'_i σ'_p and E σ''_i σ_p.
    """
    units, numbers = units_of(parameters, sizes), numbers_of_links(parameters, sizes)
    C, rows, means, _, _, _, _ = views(sizes, work)
    m, (P, r), theta, first_head = means.shape[0], units.theta.shape, units.theta, int(numbers[series.HEADS])
    # Units of the teacher, then neurons.
    for i in range(m + P - 1, -1, -1):
        unit_head, q, b = unit_at(i, m, y, first_head, units, C)
        write_head(unit_head, q, b, numbers, rows[i])
        out = means[min(i, m - 1)]
        for k in range(r + 3):
            out[k] = 0.0
        for p in range(P if i < m else 0):
            overlap = 0.0
            for a in range(r):
                overlap += C[i, m + a] * theta[p, a]
            head, weight = unit_at(m + p, m, y, first_head, units, C)[0], units.weight[p]
            value, first, slopes, second = pair(head, overlap, rows[i], rows[m + p], numbers)
            out[0] += weight * value
            out[1] += weight * first
            out[2] += weight * second
            for a in range(r):
                out[3 + a] += weight * slopes * theta[p, a]


@choice()
def write_means_of_central_units(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write what `write_unit_means` does, for neurons and units of relu, sign or erf without biases."""
    write_unit_means(write_threshold_head, central_values, y, parameters, sizes, work)


@choice()
def write_means_of_threshold_units(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write what `write_unit_means` does, for neurons and units of relu, sign or erf with biases."""
    write_unit_means(write_threshold_head, biased_values, y, parameters, sizes, work)


@choice()
def write_means_of_other_units(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write what `write_unit_means` does, for neurons and units of any links."""
    write_unit_means(write_row, pair_values, y, parameters, sizes, work)


@kernel
def monomial(term: int, M: Vector, at: int, axis: int, powers: NDArray[np.int64]) -> float:
    """Return the derivative of the monomial M^α = Π_a M_a^(α_a) by M_axis; the monomial itself if `axis` is r.

    M_a are the r numbers from `at` on, and α the row `term` of `powers`.
    """
    product = 1.0
    for a in range(powers.shape[1]):
        power = powers[term, a]
        if a == axis:
            product *= power
            power -= 1
        for _ in range(power):
            product *= M[at + a]
    return product


@kernel
def degree_of(term: int, powers: NDArray[np.int64]) -> int:
    """Return the degree |α| = Σ_a α_a of row `term` of `powers`."""
    total = 0
    for a in range(powers.shape[1]):
        total += powers[term, a]
    return total


@choice()
def write_means_of_polynomial(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rows of all neurons to `work`, and the means of each with a teacher that is a polynomial, (m, r + 3).

    The means are E σ_i f*, E σ'_i f*, E σ''_i f* and the r entries of E[σ'_i ∇f*], of the teacher f* = Σ_α f*_α h_α.
    """
    terms, numbers, D = terms_of(parameters, sizes), numbers_of_links(parameters, sizes), derivatives_of(sizes, work)
    C, rows, means, _, _, _, _ = views(sizes, work)
    m, (count, r), powers = means.shape[0], terms.powers.shape, terms.powers
    for i in range(m - 1, -1, -1):
        gram, out = C[i], means[i]
        write_row(int(numbers[series.HEADS]), gram[i], y[m + i], numbers, rows[i])
        series.write_derivatives(gram[i], y[m + i], numbers, D)
        for k in range(r + 3):
            out[k] = 0.0
        for term in range(count):
            n, weight = degree_of(term, powers), terms.weight[term]
            power = weight * monomial(term, gram, m, r, powers)
            for k in range(3):
                out[k] += power * D[n + k]
            for a in range(r):
                if powers[term, a] > 0:
                    out[3 + a] += weight * D[n] * monomial(term, gram, m, a, powers)


@choice()
def write_shares(y: Vector, out: Vector, first: int, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the share f_α/f*_α that the network has of each component α of a polynomial teacher, to `out` from `first`.

    f_α and f*_α are the Hermite coefficients of network and teacher; the first term of the teacher, a constant, has
    none.
    """
    terms, numbers, D = terms_of(parameters, sizes), numbers_of_links(parameters, sizes), derivatives_of(sizes, work)
    m, (count, r), powers, scale = layout_of(sizes).width, terms.powers.shape, terms.powers, rates_of(parameters).scale
    for term in range(1, count):
        out[first + term - 1] = 0.0
    for i in range(m if count > 1 else 0):
        series.write_derivatives(y[2 * m + m * r + i * m + i], y[m + i], numbers, D)
        for term in range(1, count):
            weight = scale * y[i] * terms.inverse[term]
            share = weight * D[degree_of(term, powers)] * monomial(term, y, 2 * m + i * r, r, powers)
            out[first + term - 1] += share


# The equations.


@pasted_kernel
def write_gradient(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the mean gradient of the first layer, N (m, m + r), and F = N C (m, m + r) to `work`.

    Row i of N holds the gradient of neuron i, times its rate and with decay, as coefficients of the m neurons and the r
    axes of the teacher, C is the Gram matrix of these vectors, and F holds the products of the gradients with them.
    Means and C must be in `work`. On the sphere the part along each neuron is taken away, so that F_ii = 0.
    """
    layout, rates = layout_of(sizes), rates_of(parameters)
    m, r, rate = layout.width, layout.axes, rates.rate_w
    C, _, means, pulls, A, N, F = views(sizes, work)
    for i in range(m):
        weight, row, slopes = rate * rates.scale * y[i], N[i], A[i]
        for j in range(m):
            row[j] = rate * slopes[j]
        for a in range(r):
            N[i, m + a] = -weight * means[i, 3 + a]
        if layout.sphere == 0:
            N[i, i] += weight * pulls[2, i] + rates.decay_w
    multiply(N, C, F)
    if layout.sphere == 1:
        for i in range(m):
            turn = F[i, i] / C[i, i]
            N[i, i] -= turn
            for j in range(m + r):
                F[i, j] -= turn * C[i, j]
            F[i, i] = 0.0


@choice()
def add_squared_gradient(out: Matrix, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add η ∇∇ᵀ = η F Nᵀ to Q', with which one Euler step of length η is one step of population gradient descent."""
    (_, _, _, _, squares, N, F), turned = views(sizes, work), turned_forces(sizes, work)
    (n, m), step = turned.shape, rates_of(parameters).step
    for i in range(m):
        for a in range(n):
            turned[a, i] = N[i, a]
    multiply(F, turned, squares)
    for i in range(m):
        for j in range(i + 1):
            out[i, j] += step * 0.5 * (squares[i, j] + squares[j, i])
    normal.mirror(out)


@pasted_kernel
def write_rates(y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the time derivative of the state y = [v (m) | b (m) | M (m, r) | Q (m, m)] to `out`, in the same layout.

    For m neurons v are the weights of the second layer, b the biases, M the products of neurons with the r axes of the
    teacher, and Q those of neurons with one another. With the error e = f − f*, the scale s of the output, the rates
    ε_v and ε_b and the decay κ_v,

        v_i' = −ε_v s E[e σ_i] − κ_v v_i,    b_i' = −ε_b s v_i E[e σ'_i],    M' = −F_r,    Q' = −F_m − F_mᵀ.

    `write_gradient` computes the means, rows 0 and 1 of `pulls`, and F = (F_m, F_r), the products of mean gradients
    with neurons and axes. For steps of descent, of length η, the products of two mean gradients add η F Nᵀ to Q'.
    `parameters` begins with `Rates`, `sizes` with `NetworkLayout`, and `work` is scratch.
    """
    layout, rates, (_, _, _, pulls, _, _, F) = layout_of(sizes), rates_of(parameters), views(sizes, work)
    m, r, scale = layout.width, layout.axes, rates.scale
    dQ = matrix(out, 2 * m + m * r, m, m)
    write_gradient(y, parameters, sizes, work)
    for i in range(m):
        out[i] = -rates.rate_v * scale * pulls[0, i] - rates.decay_v * y[i]
        out[m + i] = -rates.rate_b * scale * y[i] * pulls[1, i]
    write_descent(F, matrix(out, 2 * m, m, r), dQ)
    if layout.theory == DESCENT:
        add_squared_gradient(dQ, parameters, sizes, work)


@pasted_kernel
def write_means_of_teacher(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write rows of all vectors, and the means of each neuron with the teacher, to `work`, by the kind of teacher.

    The kinds are units without biases, units with biases, both of relu, sign or erf, units of any links, and
    polynomials.
    """
    means_of = layout_of(sizes).means_of
    if means_of == CENTRAL_UNITS:
        write_means_of_central_units(y, parameters, sizes, work)
    elif means_of == THRESHOLD_UNITS:
        write_means_of_threshold_units(y, parameters, sizes, work)
    elif means_of == OTHER_UNITS:
        write_means_of_other_units(y, parameters, sizes, work)
    else:
        write_means_of_polynomial(y, parameters, sizes, work)


@unit()
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of the state [v (m) | b (m) | M (m, r) | Q (m, m)] to `out`.

    First the means are written to `work`: with error e = f − f*, rows k = 0, 1, 2 of `pulls` become E[e σ_i^(k)], the
    means Ψ, Ψ1 and Ψ2, and A (m, m) the coefficients of the neurons in the mean gradients. `pairing` of the layout says
    how means of pairs of neurons are found. Then `write_rates` follows; for the theory `MEANS` the means alone are
    written.
    """
    layout, rates, numbers = layout_of(sizes), rates_of(parameters), numbers_of_links(parameters, sizes)
    m, pairing = layout.width, layout.pairing
    C, rows, means, pulls, A, _, _ = views(sizes, work)
    write_gram(vector(y, 2 * m, y.size - 2 * m), m, matrix(y, 0, 0, 0), C)
    write_means_of_teacher(y, parameters, sizes, work)
    weight = np.empty(m)
    for i in range(m):
        weight[i] = rates.scale * y[i]
        for k in range(3):
            pulls[k, i] = -means[i, k]
    # Ψ and Ψ1 move the second layer and the biases alone, and give the loss.
    values = rates.rate_v != 0.0 or rates.rate_b != 0.0 or layout.theory == MEANS
    if pairing == CENTRAL_RELU:
        add_central_relu(weight, C, pulls, A)
    elif pairing == CENTRAL_ERF:
        add_central_erf(values, weight, C, pulls, A)
    elif pairing == BIASED_RELU:
        add_biased_relu(weight, C, rows, pulls, A)
    elif pairing == BIASED_ERF:
        add_biased_erf(values, weight, C, rows, pulls, A)
    elif pairing == LISTS:
        add_lists(values, weight, C, rows, numbers, pulls, A)
    else:
        add_one_by_one(weight, C, rows, numbers, pulls, A)
    if layout.theory != MEANS:
        write_rates(y, out, parameters, sizes, work)


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write an approximate diagonal of the Jacobian to `out`, in the layout of the state [v | b | M | Q].

    Mean gradients are held: entries are −ε_v s² E σ_i² − κ_v for v_i, −ε_b A₀_ii for b_i, −N_ii for row i of M and
    −N_ii − N_jj for Q_ij, with rates ε, decay κ and the scale s of the output. `work` holds the means of the last
    `rhs`.
    """
    layout, rates, numbers = layout_of(sizes), rates_of(parameters), numbers_of_links(parameters, sizes)
    m, r, scale, (_, rows, _, _, A, N, _) = layout.width, layout.axes, rates.scale, views(sizes, work)
    for i in range(m):
        square = mean_square(layout.pairing, rows[i], numbers) if rates.rate_v != 0.0 else 0.0
        out[i] = -rates.rate_v * scale * scale * square - rates.decay_v
        out[m + i] = -rates.rate_b * A[i, i]
        for a in range(r):
            out[2 * m + i * r + a] = -N[i, i]
        for j in range(m):
            out[2 * m + m * r + i * m + j] = -N[i, i] - N[j, j]


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of the events, which happen where one rises through 0, to `out` (r + components,).

    Per axis a of the teacher it is max_i M_ia²/Q_ii minus the level of emergence; per component α of a polynomial
    teacher the share f_α/f*_α of it that the network has, minus ½.
    """
    layout, level = layout_of(sizes), rates_of(parameters).level
    m, r = layout.width, layout.axes
    M, Q = matrix(y, 2 * m, m, r), matrix(y, 2 * m + m * r, m, m)
    for a in range(r):
        out[a] = -level
        for i in range(m):
            if Q[i, i] > 0.0:
                out[a] = max(out[a], M[i, a] ** 2 / Q[i, i] - level)
    if layout.components > 0:
        write_shares(y, out, r, parameters, sizes, work)
    for c in range(0 if layout.theory == MEANS else layout.components):
        out[r + c] -= 0.5


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Make the state keep its constraints: Q symmetric, and on the sphere |w_i| as at the start.

    One half of Q is copied over the other; on the sphere row i of M and row and column i of Q are scaled.
    """
    layout, squares = layout_of(sizes), initial_squares(parameters, sizes)
    m, r = layout.width, layout.axes
    M, Q = matrix(y, 2 * m, m, r), matrix(y, 2 * m + m * r, m, m)
    normal.mirror(Q)
    for i in range(m if layout.sphere == 1 else 0):
        start = squares[i]
        factor = np.sqrt(start / Q[i, i])
        for a in range(r):
            M[i, a] *= factor
        for j in range(m):
            Q[i, j] *= factor
            Q[j, i] *= factor
        Q[i, i] = start


@entry
def evaluate_means(
    rates: Callable[..., None], events: Callable[..., None], y: Vector, out: Vector, shares: Vector,
    numbers: tuple[Vector, Integers, Vector],
) -> None:  # fmt: skip
    """Call the right-hand side and the events of a network whose theory is `MEANS` from Python."""
    rates(0.0, y, out, numbers[0], numbers[1], numbers[2])
    events(0.0, y, shares, numbers[0], numbers[1], numbers[2])


#: Signature of a right-hand side and of events.
_EVALUATION = types.void(types.float64, *[types.float64[::1]] * 3, types.int64[::1], types.float64[::1])
#: Neurons are looked at so much beyond where they are, for the end of a table.
BEYOND = 1.0 + 1e-6
#: Nodes of the mean squares in `stiffness`.
NODES = 200


#: The unit of each `pairing`.
PAIRINGS: dict[int, Callable[..., None]] = {
    ONE_BY_ONE: add_one_by_one,
    CENTRAL_RELU: add_central_relu,
    CENTRAL_ERF: add_central_erf,
    BIASED_RELU: add_biased_relu,
    BIASED_ERF: add_biased_erf,
    LISTS: add_lists,
}


def means_of_teacher(pairs: series.PairSource, teacher: NetworkTeacher) -> tuple[int, list[Callable[..., object]]]:
    """Return the place `means_of` of the layout for a teacher, and the compiled units that its means take."""
    numbers, families = pairs.numbers, {link.family for link in pairs.links}
    has_lists, has_lines = numbers[series.TERMS] > 0.0, numbers[series.LINED] > 0.0
    of_links: dict[Callable[..., object], bool] = {
        series.write_list_row: has_lists,
        series.read_table: TABLE in families,
        series.polynomial_list: POLYNOMIAL in families,
    }
    functions = [function for function, is_taken in of_links.items() if is_taken]
    if not teacher.units:
        shares = [write_shares] if teacher.components.size else []
        return TEACHER_POLYNOMIAL, [*functions, *shares, write_means_of_polynomial]
    if max(families) <= ERF and not (has_lists or has_lines):
        if numbers[series.CENTRED] > 0.0:
            return CENTRAL_UNITS, [write_means_of_central_units]
        return THRESHOLD_UNITS, [write_means_of_threshold_units]
    lined = [lined_values] if numbers[series.STUDENT] <= ERF else []
    return OTHER_UNITS, [*functions, *lined, write_means_of_other_units]


class NetworkSystem(FlowSystem):
    """State layout, kernels and observables of a two-layer network; `more` are numbers that stand before the links'.

    With a step η > 0 one Euler step of length η is one of population gradient descent. ValueError is raised if two
    neurons start alike, or the means of the links are not known.
    """

    name = "network"
    functions = Functions(rhs, event_values, normalise, jacobian_diagonal)
    #: The right-hand side that stops at the means for `MEANS`.
    of_means: Callable[..., None] = staticmethod(rhs)

    def __init__(self, problem: Problem, step: float | None = None, more: Array = NOTHING) -> None:
        """Choose the kernels for the links of a problem, and lay out state, numbers and scratch.

        `step` is η for population gradient descent, None for the flow, and `more` (numbers,) stands before the numbers
        of the links in `parameters`. The layout of `initial_state`, `sizes`, `parameters` and `work` is that of the
        module's head. `pairing` says how the means of all pairs of neurons are found: closed for relu and erf with or
        without biases, by sums over lists for other links, or one by one for links that are another one plus a line.
        The units that kernels call are the `choices`.
        """
        m, r, start = problem.width, problem.teacher.span, problem.network_start()
        self.student = student = cast("Student", problem.student)
        M, Q = start.weights[:, :r], start.weights @ start.weights.T
        axes = problem.input_axes()
        apart = M if axes is None else np.hstack([M, axes.squares(start.weights)])
        check_no_ties(start.second_layer, start.bias, apart, Q)
        self.problem = problem
        self.teacher = teacher = network_teacher(problem)
        fixed = None if student.biases == "trained" else start.bias.tolist()
        links = teacher.sizes[: teacher.units]
        of_teacher = [teacher.biases[links == 1 + n].tolist() for n in range(len(teacher.links))]
        self.pairs = pairs = series.pair_source(
            problem.activation, teacher.links, biases=fixed, teacher_biases=of_teacher
        )
        student_link, pairing = pairs.links[0], LISTS
        if student_link.has_line:
            pairing = ONE_BY_ONE
        elif student_link.family in (RELU, ERF):
            by_family = {RELU: (CENTRAL_RELU, BIASED_RELU), ERF: (CENTRAL_ERF, BIASED_ERF)}
            pairing = by_family[student_link.family][student.has_biases]
        self.initial_state = self.pack(start.second_layer, start.bias, M, Q)
        rates = Rates(
            *student.learning_rates, *student.decay, student.output_scale, step or 0.0, problem.emergence_level
        )
        n, means, at = m + r, m * (r + 3), len(rates) + m
        means_of, functions = means_of_teacher(pairs, teacher)
        # Gram matrix, rows, means with the teacher, pulls, slopes, forces and products.
        parts = np.cumsum([n * n, (m + teacher.units) * pairs.row_size, means, 3 * m, m * m, m * n, m * n])
        self.layout = NetworkLayout(
            m, r, int(student.first_layer == "sphere"), FLOW if step is None else DESCENT, teacher.units,
            teacher.components.size, teacher.degree, pairs.row_size, at, at + teacher.parameters.size + more.size,
            pairing, means_of, *parts.tolist(),
        )  # fmt: skip
        self.parameters: Array = np.concatenate([rates, np.diag(Q), teacher.parameters, more, pairs.numbers])
        self.sizes: Integers = np.array([*self.layout, *teacher.sizes], dtype=np.int64)
        self.work_size = int(parts[-1]) + teacher.degree + FURTHER + n * m
        self.num_events = r + teacher.components.size
        choices: list[Callable[..., object]] = [PAIRINGS[pairing], *functions]
        choices += [] if step is None else [add_squared_gradient]
        # Of other neurons `mean_square` is short.
        is_biased = pairing == BIASED_ERF and student.learning_rates[1] != 0.0
        choices += [own_threshold_values] if is_biased or pairing == ONE_BY_ONE else []
        self.functions = replace(self.functions, choices=tuple(choices))
        self._degrees = NetworkDegrees(problem, teacher)
        self.teacher_by_degree = self._degrees.teacher

    # --- states ---------------------------------------------------------------------------------------------

    def pack(self, v: Array, b: Array, M: Array, Q: Array) -> Array:
        """Return the state of v (m,), b (m,), M (m, r) and Q (m, m)."""
        return np.concatenate([v, b, M.ravel(), Q.ravel()])

    def unpack(self, state: Array) -> tuple[Array, Array, Array, Array]:
        """Return views (v, b, M, Q) of a state."""
        m, r = self.problem.width, self.problem.teacher.span
        v, b, M, Q = np.split(state, [m, 2 * m, 2 * m + m * r])
        return v, b, M.reshape(m, r), Q.reshape(m, m)

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` for v and b, which are not small where d is large, and in units of 1/√d for M and Q."""
        tolerance = super().absolute_tolerance(atol)
        tolerance[: 2 * self.problem.width] = atol
        return tolerance

    def stiffness(self) -> float:
        r"""Return a bound on the rates of the flow at the start: the trace of the Gauss–Newton matrix, and the decay.

        .. math:: 2 s^2 \sum_i \big(\varepsilon_v E\sigma_i^2 + \varepsilon_b v_i^2 E\sigma_i'^2
           + \varepsilon_w v_i^2 E[\sigma_i'^2 (1 + z^2)]\big) + \max \kappa
        """
        student = self.student
        v, b, _, Q = self.unpack(self.initial_state)
        nodes, measure = np.polynomial.hermite_e.hermegauss(NODES)
        measure = measure / measure.sum()
        projections = np.sqrt(np.diag(Q))[:, None] * nodes + b[:, None]
        link, (rate_w, rate_v, rate_b) = self.problem.activation, student.learning_rates
        value, slope = link.value(projections) ** 2 @ measure, link.derivative(projections) ** 2
        steep = rate_b * slope @ measure + rate_w * slope @ (measure * (1.0 + nodes**2))
        return float(2.0 * student.output_scale**2 * np.sum(rate_v * value + v**2 * steep) + max(student.decay))

    @property
    def falls(self) -> bool:
        """Whether the loss may not rise: it is a gradient flow, without decay or steps."""
        return self.layout.theory == FLOW and not any(self.student.decay)

    # --- observables ----------------------------------------------------------------------------------------

    def observer(self, keep: str) -> Callable[[Array], dict[str, object]]:
        """Return the observer of a state, with the loss by degree if the teacher has one."""
        observe = super().observer(keep)

        def observed(state: Array) -> dict[str, object]:
            """Return the observables of a state, with the loss by degree."""
            record, (v, b, M, Q) = observe(state), self.unpack(state)
            weights = self.student.output_scale * v
            return {**record, "degree_loss": self._degrees(weights, b, normalised_overlaps(M, Q), record)}

        return observe if self.teacher_by_degree is None else observed

    def observe(self, state: Array) -> dict[str, object]:
        """Return the observables of `summarise` except largest overlaps, and C = M_ia/√Q_ii, G = Q_ij/√(Q_ii Q_jj)."""
        _, _, M, Q = self.unpack(state)
        C, G, _ = normalised_overlaps(M, Q)
        record = self.summarise(state)
        del record["max_overlap"]
        return {"teacher_overlap": C, "student_overlap": G, **record}

    def summarise(self, state: Array) -> dict[str, object]:
        """Return observables of a state by name.

        They are v, b, n = Q_ii, max_i |C_ia|, the loss, f_α, the eigenvalues of E ∂_a f ∂_b f, and the least eigenvalue
        of G − C Cᵀ, at least 0 where neurons with these overlaps exist.
        """
        v, b, M, Q = self.unpack(state)
        C, G, n = normalised_overlaps(M, Q)
        loss, H, shares = self._means(state)
        record = {
            "second_layer": v.copy(),
            "bias": b.copy(),
            "squared_norm": n,
            "max_overlap": np.abs(C).max(axis=0),
            "loss": loss,
            "sensitivity": _eigenvalues(H),
            "gram_margin": float(np.linalg.eigvalsh(G - C @ C.T)[0]),
        }
        record |= {"component": shares * self.teacher.components} if shares.size else {}
        return record | ({"series_error": self.series_error(state)} if self.pairs.is_series else {})

    def teacher_sensitivity(self) -> Array:
        """Return the eigenvalues of E ∂_a f* ∂_b f*, largest first; NaN where a unit jumps."""
        H = self.teacher.sensitivity
        return _eigenvalues(H) if np.isfinite(H).all() else np.full(len(H), np.nan)

    def loss(self, state: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        return self._means(state)[0]

    def series_error(self, state: Array) -> float:
        """Return a bound on the error of the means of pairs that are series; ∞ at the end of a table."""
        _, b, M, Q = self.unpack(state)
        units, theta = self.teacher.sizes[: self.teacher.units], self.teacher.theta
        overlaps = M @ theta.T
        return self.pairs.series_error(
            np.concatenate([np.zeros(len(b), dtype=np.int64), units]),
            np.concatenate([BEYOND * np.diag(Q), np.ones(len(units))]),
            np.concatenate([BEYOND * b if self.student.biases == "trained" else b, self.teacher.biases]),
            np.block([[Q, overlaps], [overlaps.T, theta @ theta.T]]),
        )

    def _means(self, state: Array) -> tuple[float, Array, Array]:
        """Return the loss of a state, H = E ∂_a f ∂_b f (r, r), and the learned shares f_α/f*_α of the components.

        The kernels write the means that all three need, as for rates; a and b are axes of the teacher.
        """
        m, r = self.problem.width, self.problem.teacher.span
        events, work = np.empty(self.num_events), np.empty(self.work_size)
        sizes = np.array([*self.layout._replace(theory=MEANS), *self.teacher.sizes], dtype=np.int64)
        y = np.ascontiguousarray(state)
        of_events = self.functions.event_values
        assert of_events is not None
        make_choices(self.functions.choices or ())
        functions = callback(self.of_means, _EVALUATION), callback(of_events, _EVALUATION)
        evaluate_means(*functions, y, np.empty_like(y), events, (self.parameters, sizes, work))
        v, _, M, _ = self.unpack(y)
        means, pulls, A, _ = np.split(work[self.layout.means_at :], np.cumsum([m * (r + 3), 3 * m, m * m]))
        mean = means.reshape(m, r + 3)[:, 0]
        weights, square = self.student.output_scale * v, self.teacher.square
        terms = np.abs(weights) @ (np.abs(pulls[:m]) + np.abs(mean)) + square
        loss = without_rounding(weights @ (pulls[:m] - mean) + square, terms)
        return float(loss), M.T @ A.reshape(m, m) @ M, events[r:]


def _eigenvalues(H: Array) -> Array:
    """Return the eigenvalues of a symmetric matrix, largest first."""
    return np.array(np.linalg.eigvalsh(H)[::-1], dtype=np.float64)


# On inputs of covariance Σ the motion is Σ times the gradient of isotropic inputs, exact at every d.
#
# With ŵ = Σ^½ w the loss is that of isotropic inputs in M = ŴΘ̂ᵀ, Q = ŴŴᵀ, v and b, on the axes of `Problem.input_axes`
# (`docs/inputs.md`).
#
# State y = [v (m) | b (m) | Ŵ (m, D)]. Parameters have s (D) before the numbers of the links; `work` ends with a state
# [v | b | M | Q] and its rates.


@kernel
def whitened_weights(y: Vector, sizes: Integers) -> Matrix:
    """Return the whitened weights Ŵ (m, D) of a state [v (m) | b (m) | Ŵ], or their rates, as a view."""
    m = layout_of(sizes).width
    return matrix(y, 2 * m, m, (y.size - 2 * m) // m)


@kernel
def eigenvalues_of(columns: int, parameters: Vector, sizes: Integers) -> Vector:
    """Return the eigenvalues s (D,) of the covariance of the inputs, one per column of Ŵ, D = `columns`."""
    return vector(parameters, layout_of(sizes).numbers_at - columns, columns)


@kernel
def overlap_parts(sizes: Integers, work: Vector) -> tuple[Vector, Vector]:
    """Return two pieces of scratch, each of m (2 + r + m) numbers, at the end of `work`.

    The first has place for a state [v (m) | b (m) | M (m, r) | Q (m, m)] of overlaps, and the second for its rates.
    """
    layout = layout_of(sizes)
    size = layout.width * (2 + layout.axes + layout.width)
    return vector(work, work.size - 2 * size, size), vector(work, work.size - size, size)


@kernel
def overlap_state(y: Vector, sizes: Integers, work: Vector) -> Vector:
    """Write the overlap state [v (m) | b (m) | M (m, r) | Q (m, m)] of a state with whitened weights, and return it.

    y is [v | b | Ŵ (m, D)]: M is the first r columns of Ŵ and Q = ŴŴᵀ. The result is a view of `work`.
    """
    layout, W, (state, _) = layout_of(sizes), whitened_weights(y, sizes), overlap_parts(sizes, work)
    m, r = layout.width, layout.axes
    for i in range(2 * m):
        state[i] = y[i]
    for i in range(m):
        for a in range(r):
            state[2 * m + i * r + a] = W[i, a]
    multiply_transposed(W, W, matrix(state, 2 * m + m * r, m, m))
    return state


@kernel
def class_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of the state [v (m) | b (m) | Ŵ (m, axes)] of a network on inputs of a spectrum to `out`.

    Ŵ are whitened weights and s the eigenvalues of the axes: Ŵ' = −(N Ŵ) diag(s) − κ_w Ŵ diag(1 − s), in which N Ŵ are
    the mean gradients, with the decay κ_w. For the theory `MEANS` the means in `work` alone are written.
    """
    layout, state, (_, rates) = layout_of(sizes), overlap_state(y, sizes, work), overlap_parts(sizes, work)
    m, r = layout.width, layout.axes
    rhs(t, state, rates, parameters, sizes, work)
    if layout.theory == MEANS:
        return
    W, weight_rates = whitened_weights(y, sizes), whitened_weights(out, sizes)
    (_, _, _, _, _, N, _), student_forces = views(sizes, work), square_scratch(sizes, work)
    s, decay = eigenvalues_of(W.shape[1], parameters, sizes), rates_of(parameters).decay_w
    for i in range(m):
        out[i], out[m + i] = rates[i], rates[m + i]
        for j in range(m):
            student_forces[i, j] = N[i, j]
    multiply(student_forces, W, weight_rates)
    for i in range(m):
        for a in range(r):
            weight_rates[i, a] += N[i, m + a]
        for k in range(s.size):
            weight_rates[i, k] = -s[k] * weight_rates[i, k] - decay * (1.0 - s[k]) * W[i, k]


@kernel
def class_event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of the events of the overlaps."""
    event_values(t, overlap_state(y, sizes, work), out, parameters, sizes, work)


@kernel
def class_jacobian_diagonal(
    t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """Write an approximate diagonal of the Jacobian to `out`, in the layout of the state [v | b | Ŵ].

    Mean gradients are held: entries of v and b are those of isotropic inputs, that of the weight ŵ_il on an axis of
    eigenvalue s_l is −s_l N_ii − κ_w (1 − s_l).
    """
    layout, weight_diagonal, (state, rates) = layout_of(sizes), whitened_weights(out, sizes), overlap_parts(sizes, work)
    m, r = layout.width, layout.axes
    jacobian_diagonal(t, state, rates, parameters, sizes, work)
    s, decay = eigenvalues_of(weight_diagonal.shape[1], parameters, sizes), rates_of(parameters).decay_w
    for i in range(m):
        out[i], out[m + i] = rates[i], rates[m + i]
        for k in range(s.size):
            weight_diagonal[i, k] = s[k] * rates[2 * m + i * r] - decay * (1.0 - s[k])


class NetworkClassSystem(NetworkSystem):
    """State layout and motion of a network whose problem has `inputs`; observables are those of its overlaps."""

    name = "network-classes"
    functions = Functions(class_rhs, class_event_values, None, class_jacobian_diagonal)
    of_means = staticmethod(class_rhs)

    def __init__(self, problem: Problem) -> None:
        """Lay out the state [v (m) | b (m) | weights (m, axes)] of a network on inputs of a spectrum.

        ValueError is raised for a problem without `inputs`.
        """
        axes = problem.input_axes()
        if axes is None:
            refuse("Argument `problem` must have `inputs`, but has none.")
        super().__init__(problem, more=axes.eigenvalues)
        self.fastest = float(axes.eigenvalue.max())
        self.work_size += 2 * self.initial_state.size
        v, b, weights = problem.network_start()
        self.initial_state = np.concatenate([v, b, weights.ravel()])

    def unpack(self, state: Array) -> tuple[Array, Array, Array, Array]:
        """Return v, b, M (m, r) and Q (m, m) of a state."""
        m = self.problem.width
        v, b, W = np.split(state, [m, 2 * m])
        W = W.reshape(m, -1)
        return v, b, W[:, : self.problem.teacher.span], W @ W.T

    def stiffness(self) -> float:
        """Return a bound on the rates of the flow at the start: that of isotropic inputs, times max s_l if over 1."""
        return max(self.fastest, 1.0) * super().stiffness()
