"""Compiled kernels of the network's overlap equations, whatever its links and its teacher.

State y = [v (m) | b (m) | M (m, r) | Q (m, m)]. The equations are those of `dynamics.equations.network.system`: with
the vectors (w_1 … w_m, teacher's axes) and their Gram matrix C = [Q M; Mᵀ 1], the mean gradient of the neurons is
∇ = N · vectors, N = [ε_w A + κ_w − diag(turn) | −ε_w B], so that F = N C = [∇ Wᵀ | ∇ Θᵀ], M' = −F_r and
Q' = −F_m − F_mᵀ, to which steps of descent add η ∇∇ᵀ = η F Nᵀ.

sizes = [the eighteen below | whole numbers of the teacher], parameters = [the eight below | |w_i(0)|² (m) | those of
the teacher | those of the links]. `work` holds, one after another: the Gram matrix C (m + r, m + r); one row of tables
per neuron and per unit of the teacher; per neuron E σ_i f*, E σ'_i f*, E σ''_i f* and t_i (r); Ψ, Ψ1, Ψ2 (3, m);
A₀ (m, m); N and F (m, m + r); scratch: D_j, j < degree + `FURTHER`, then Nᵀ.
"""

import math
from collections.abc import Callable

import numpy as np

from dynamics.equations.network.families import ERF, RELU, TABLE
from dynamics.equations.network.normal_kernels import (
    INVERSE_ROOT,
    TILE,
    bell_and_odd,
    difference_of_products,
    excess,
    largest_size,
    mirror,
    root_determinant,
    standard_score,
    threshold_pair,
    write_excesses,
    write_power_sums,
    write_threshold_row,
)
from dynamics.equations.network.series import (
    CENTRED,
    HEADER,
    HEADS,
    LINED,
    LIST,
    SERIES,
    STUDENT,
    TERMS,
    lined_pair,
    list_pair,
    read_table,
    term_count,
    write_derivatives,
    write_list_row,
)
from dynamics.kernels.jit import entry, inlined_kernel, kernel, matrix, vector
from dynamics.kernels.products import is_stopped, product_until
from hermite.arrays import Integers, Matrix, Vector

WIDTH, AXES, SPHERE, THEORY, UNITS, COMPONENTS, DEGREE, ROW_SIZE, TEACHER_AT, NUMBERS_AT, PAIRING = range(11)
# Places in `work`.
ROWS_AT, MEANS_AT, PULLS_AT, SLOPES_AT, FORCES_AT, PRODUCTS_AT, SCRATCH_AT = range(11, 18)
TEACHER_SIZES_AT = 18
RATE_W, RATE_V, RATE_B, DECAY_W, DECAY_V, SCALE, STEP, LEVEL = range(8)
SQUARES_AT = 8
# Of `sizes[THEORY]`; with the last `rhs` ends when the means are in `work`, and events are shares, without level ½.
FLOW, DESCENT, MEANS = 0, 1, 2
# Of `sizes[PAIRING]`, how the means of all pairs of neurons are found: one by one for a link κ f + βz + γ, several at
# once for relu and erf, without biases and with them, and as sums over lists for any other link.
ONE_BY_ONE, CENTRAL_RELU, CENTRAL_ERF, BIASED_RELU, BIASED_ERF, LISTS = range(6)
# Mean derivatives beyond the teacher's degree.
FURTHER = 3


@kernel
def numbers_of_links(parameters: Vector, sizes: Integers) -> Vector:
    """Return what the kernels of pairs take as `numbers`."""
    return vector(parameters, sizes[NUMBERS_AT], parameters.size - sizes[NUMBERS_AT])


# Means of two units of any links: a neuron with a unit of the teacher, with another neuron, and with itself.
#
# Two links with a threshold have a closed form, a link with a threshold and a polynomial a sum, any others a series.
# `numbers` and `head`, the place of a link in them, are those of `dynamics.equations.network.series`.


@inlined_kernel
def write_row(head: int, q: float, b: float, numbers: Vector, row: Vector) -> None:
    """Write the numbers of one unit of variance q = |w|² and bias b."""
    family = int(numbers[head])
    row[0], row[1] = q, b
    if family == TABLE:
        start = int(numbers[head + 1])
        read_table(q, b, start, start, numbers, vector(row, 2, 4))
    elif family <= ERF and numbers[STUDENT] <= ERF:
        write_threshold_row(family, q, b, row)
    if numbers[TERMS] > 0.0:
        write_list_row(head, q, b, numbers, row)


@inlined_kernel
def threshold_values(
    head: int, c: float, a: Vector, b: Vector, numbers: Vector
) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji of a neuron a and a unit b of links κ f + βz + γ at covariance c."""
    means = threshold_pair(int(numbers[STUDENT]), int(numbers[head]), numbers[CENTRED] > 0.0, c, a, b)
    return lined_pair(head, c, a, b, numbers, means) if numbers[LINED] > 0.0 else means


@inlined_kernel
def pair_values(head: int, c: float, a: Vector, b: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron a and a unit b of any link at covariance c."""
    if numbers[STUDENT] > ERF or numbers[head] > ERF:
        return list_pair(c, a, b, numbers)
    value, slope, _, both, bend, _ = threshold_values(head, c, a, b, numbers)
    return value, slope, both, bend


@kernel
def own_values(row: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron with itself."""
    head = int(numbers[HEADS])
    if numbers[STUDENT] == TABLE:
        return row[2], row[3], row[4], row[5]
    if numbers[STUDENT] != RELU:
        return pair_values(head, row[0], row, row, numbers)
    means = row[1] * row[6] + row[0] * row[7], row[6], row[6], row[7], 0.0, 0.0
    if numbers[LINED] > 0.0:
        means = lined_pair(head, row[0], row, row, numbers, means)
    return means[0], means[1], means[3], means[4]


# Means of all pairs of neurons: s Σ_j v_j (K, K1, K2)_ij, added to Ψ, Ψ1, Ψ2, and A₀_ij = s² v_i v_j K12_ij.
#
# Loops over neurons without calls and branches compute several pairs at once, which takes a tenth of the time of pairs
# one by one; there is one for relu and for erf, without biases and with them, and one for sums over lists. `weight` is
# s v, `pulls` are Ψ, Ψ1, Ψ2, C is the Gram matrix and `rows` are the tables of all units.


@kernel
def add_one_by_one(
    weight: Vector, C: Matrix, rows: Matrix, numbers: Vector, sizes: Integers, pulls: Matrix, A: Matrix
) -> None:
    """Add and write the means of a link κ f + βz + γ."""
    for i in range(weight.size):
        if is_stopped(sizes):
            return
        value, first, slopes, second = own_values(rows[i], numbers)
        pulls[0, i] += weight[i] * value
        pulls[1, i] += weight[i] * first
        pulls[2, i] += weight[i] * second
        A[i, i] = weight[i] * weight[i] * slopes
        for j in range(i):
            found = threshold_values(int(numbers[HEADS]), C[i, j], rows[i], rows[j], numbers)
            value, first, mirrored, slopes, second, bent = found
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


@kernel
def add_central_relu(weights: Vector, C: Matrix, pulls: Matrix, A: Matrix) -> None:
    """Add and write the means of relu without biases: K12 = ¼ + asin(ρ)/2π, K = √Δ/2π + c K12, K2 = √Δ/(2π Q_ii).

    Δ = Q_ii Q_jj − c² and ρ = c/√(Q_ii Q_jj), Cho & Saul's arc cosines; Ψ1 moves no bias.
    """
    m = weights.size
    square, inverse = np.empty(m), np.empty(m)
    for j in range(m):
        square[j] = C[j, j]
        inverse[j] = 1.0 / math.sqrt(square[j])
    for i in range(m):
        gram, row = C[i], A[i]
        q, own, weight = square[i], inverse[i], weights[i]
        value = bend = 0.0
        for j in range(m):
            c, shared = gram[j], own * inverse[j]
            delta = max(difference_of_products(q, square[j], c, c), 0.0)
            slope = 0.25 + arc_sine(c * shared, delta * shared * shared) / (2.0 * math.pi)
            root = math.sqrt(delta) / (2.0 * math.pi)
            value += weights[j] * (root + c * slope)
            bend += weights[j] * root
            row[j] = weight * weights[j] * slope
        pulls[0, i] += value
        pulls[2, i] += bend / q


@kernel
def add_central_erf(values: bool, weights: Vector, C: Matrix, pulls: Matrix, A: Matrix) -> None:
    """Add and write the means of erf without biases: K = (2/π) asin(c/√(T_i T_j)), K12 = (2/π)/√Δ, K2 = −c K12/T_i.

    T = 1 + Q_ii and Δ = T_i T_j − c²; Ψ1 moves no bias, and K is left out where it moves nothing.
    """
    m = weights.size
    wide, inverse = np.empty(m), np.empty(m)
    for j in range(m):
        wide[j] = 1.0 + C[j, j]
        inverse[j] = 1.0 / math.sqrt(wide[j])
    for i in range(m):
        gram, row = C[i], A[i]
        T, own, weight = wide[i], inverse[i], 2.0 / math.pi * weights[i]
        value = bend = 0.0
        for j in range(m):
            c, shared = gram[j], own * inverse[j]
            lack = difference_of_products(T, wide[j], c, c) * shared * shared
            slope = weights[j] * shared / math.sqrt(lack)
            if values:
                value += weights[j] * arc_sine(c * shared, lack)
            bend += c * slope
            row[j] = weight * slope
        pulls[0, i] += 2.0 / math.pi * value
        pulls[2, i] -= 2.0 / math.pi * bend / T


@kernel
def add_biased_relu(weight: Vector, C: Matrix, rows: Matrix, pulls: Matrix, A: Matrix) -> None:
    """Add and write the means of relu with biases, as `relu_relu` has it for a pair.

    With u = (b_j q_i - c b_i)/√(q_i Δ) and P_ij = p_i Φ(u): K12 = Φ_2, K1 = b_j K12 + c P_ij + q_j P_ji,
    K2 = p_i √(Δ/q_i) (u Φ(u) + φ(u)), K = b_i K1 + q_i K2 + c K12, so that one Φ(u) does for each i and j.
    """
    m = weight.size
    bias, q, inverse, h, share = np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    slope, inner, turned = np.empty(m), np.empty(m), np.zeros(m)
    for j in range(m):
        bias[j], q[j], inverse[j], h[j], share[j] = rows[j, 1], rows[j, 2], rows[j, 3], rows[j, 4], rows[j, 7]
    write_excesses(q, inverse, h, C, A)
    for i in range(m):
        gram, row, b, own, p = C[i], A[i], bias[i], inverse[i], rows[i, 5]
        row[i] = share[i] - share[i] * share[i]
        back, along, above, bell_sum = weight[i] * q[i] * p, 0.0, 0.0, 0.0
        for j in range(m):
            c = gram[j]
            root = root_determinant(c, q[i], q[j])
            shift = difference_of_products(bias[j], q[i], c, b) * own
            bell, odd = bell_and_odd(standard_score(shift, 1.0, root))
            cdf = 0.5 + 0.5 * odd
            along += weight[j] * c * cdf
            above += weight[j] * shift * cdf
            bell_sum += weight[j] * root * bell
            turned[j] += back * cdf
        from_both = inside = 0.0
        for j in range(m):
            both = weight[j] * (share[i] * share[j] + row[j])
            from_both += bias[j] * both
            inside += gram[j] * both
            row[j] = weight[i] * both
        slope[i], inner[i] = from_both + p * along, inside + q[i] * p * own * (above + INVERSE_ROOT * bell_sum)
        pulls[2, i] += p * own * (above + INVERSE_ROOT * bell_sum)
    for i in range(m):
        pulls[0, i] += bias[i] * (slope[i] + turned[i]) + inner[i]
        pulls[1, i] += slope[i] + turned[i]


@kernel
def add_biased_erf(values: bool, weight: Vector, C: Matrix, rows: Matrix, pulls: Matrix, A: Matrix) -> None:
    """Add and write the means of erf with biases, as `sign_sign` has it for a pair.

    With u = (b_j T_i - c b_i)/√(T_i Δ): K1 = 2 p_i erf(u/√2), K12 = 4 p_i φ(u) √(T_i/Δ), K2 = -(b_i K1 + c K12)/T_i,
    so that one exponential and one error function do for each i and j. K is left out where it moves nothing.
    """
    m = weight.size
    bias, T, inverse, h, mean = np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    for j in range(m):
        bias[j], T[j], inverse[j], h[j], mean[j] = rows[j, 1], rows[j, 2], rows[j, 3], rows[j, 4], rows[j, 6]
    if values:
        write_excesses(T, inverse, h, C, A)
        for i in range(m):
            root = root_determinant(C[i, i], T[i], T[i])
            A[i, i] = excess(C[i, i], root, inverse[i] * inverse[i], h[i], h[i])
    for i in range(m):
        gram, row, b, own, p = C[i], A[i], bias[i], inverse[i], 2.0 * rows[i, 5]
        value = first = bend = 0.0
        if values:
            for j in range(m):
                value += weight[j] * (mean[i] * mean[j] + 4.0 * row[j])
        for j in range(m):
            c = gram[j]
            root = 1.0 / math.sqrt(difference_of_products(T[i], T[j], c, c))
            bell, odd = bell_and_odd(difference_of_products(bias[j], T[i], c, b) * own * root)
            slopes = weight[j] * bell * root
            first += weight[j] * odd
            bend += c * slopes
            row[j] = slopes
        both = 2.0 * p * INVERSE_ROOT / own
        for j in range(m):
            row[j] *= weight[i] * both
        pulls[0, i] += value
        pulls[1, i] += p * first
        pulls[2, i] -= (b * p * first + both * bend) / T[i]


@kernel
def add_lists(
    values: bool, weight: Vector, C: Matrix, rows: Matrix, numbers: Vector, sizes: Integers, pulls: Matrix, A: Matrix
) -> None:
    """Add and write sums over lists, as `list_pair` has them; K and K1 are left out where they move nothing."""
    m, count, is_series = weight.size, int(numbers[TERMS]), numbers[SERIES]
    first, second = LIST + count + 2, LIST + 2 * count + 2
    means, slopes = np.empty((count, m)), np.empty((count, m))
    inverse, x, sums = np.empty(m), np.empty(m), np.zeros((3, m))
    for j in range(m):
        inverse[j] = rows[j, LIST - 1]
        for k in range(count):
            means[k, j], slopes[k, j] = rows[j, LIST + k], rows[j, first + k]
    for i in range(m):
        if is_stopped(sizes):
            return
        gram, row, both = C[i], rows[i], A[i]
        for j in range(m):
            x[j] = gram[j] * inverse[i] * inverse[j]
        # The neuron itself is no sum: a series does not converge there.
        x[i] = 0.0
        terms = term_count(largest_size(x, m), count, is_series)
        # K, K1, K2 and K12: the lists of σ, σ' and σ'' with those of σ, and that of σ' with itself.
        for k in range(0 if values else 2, 4):
            place = LIST if k == 0 else second if k == 2 else first
            factors = vector(row, place, row.size - place)
            write_power_sums(factors, slopes if k == 3 else means, x, terms, m, both if k == 3 else sums[k])
        sums[0, i], sums[1, i], both[i], sums[2, i] = own_values(row, numbers)
        for k in range(0 if values else 2, 3):
            total, found = 0.0, sums[k]
            for j in range(m):
                total += weight[j] * found[j]
            pulls[k, i] += total
        for j in range(m):
            both[j] *= weight[i] * weight[j]


# Means of a neuron with its teacher, made of units or a polynomial.
#
# Units, f* = Σ_p a_p σ_p(θ_p·x + β_p): the teacher's parameters are a (P), β (P) and θ (P, r), its sizes the number of
# each unit's link.
#
# A polynomial, f* = Σ_α f*_α h_α, h_α = Π_a h_(α_a)(x_a), has no units. With D_j = E σ^(j)(λ_i) and g_α = f*_α/√α!,
#
# E[σ_i f*] = Σ_α g_α D_|α| M_i^α,  E[σ'_i f*] and E[σ''_i f*]: D_(|α|+1), D_(|α|+2),  t_ia = Σ_α g_α D_|α| ∂_a M_i^α,
#
# and f_α = s Σ_i v_i D_|α| M_i^α/√α!. The terms are α = 0, then the components; parameters g_α, then 1/(√α! f*_α) per
# term; sizes α (terms, r).


@kernel
def write_unit_means(
    i: int, gram: Vector, rows: Matrix, parameters: Vector, sizes: Integers, out: Vector
) -> None:  # fmt: skip
    """Write E σ_i f*, E σ'_i f*, E σ''_i f* and t_i = E[σ'_i ∇f*] of the neuron whose row of C is `gram`."""
    m, r, P, at = sizes[WIDTH], sizes[AXES], sizes[UNITS], sizes[TEACHER_AT]
    theta, numbers = matrix(parameters, at + 2 * P, P, r), numbers_of_links(parameters, sizes)
    heads = int(numbers[HEADS])
    for k in range(r + 3):
        out[k] = 0.0
    for p in range(P):
        overlap = 0.0
        for a in range(r):
            overlap += gram[m + a] * theta[p, a]
        head, weight = heads + HEADER * sizes[TEACHER_SIZES_AT + p], parameters[at + p]
        value, first, slopes, second = pair_values(head, overlap, rows[i], rows[m + p], numbers)
        out[0] += weight * value
        out[1] += weight * first
        out[2] += weight * second
        for a in range(r):
            out[3 + a] += weight * slopes * theta[p, a]


@kernel
def monomial(term: int, M: Vector, at: int, axis: int, sizes: Integers) -> float:
    """Return ∂_axis M^α, M being r numbers from `at` on; an axis r stands for no derivative."""
    r = sizes[AXES]
    product = 1.0
    for a in range(r):
        power = sizes[TEACHER_SIZES_AT + term * r + a]
        if a == axis:
            product *= power
            power -= 1
        for _ in range(power):
            product *= M[at + a]
    return product


@kernel
def degree_of(term: int, sizes: Integers) -> int:
    """Return |α|."""
    r, total = sizes[AXES], 0
    for a in range(r):
        total += sizes[TEACHER_SIZES_AT + term * r + a]
    return total


@kernel
def write_polynomial_means(
    i: int, b: float, gram: Vector, parameters: Vector, sizes: Integers, work: Vector, out: Vector
) -> None:
    """Write the numbers of `write_unit_means`."""
    m, r = sizes[WIDTH], sizes[AXES]
    D = vector(work, sizes[SCRATCH_AT], sizes[DEGREE] + FURTHER)
    write_derivatives(gram[i], b, numbers_of_links(parameters, sizes), D)
    for k in range(r + 3):
        out[k] = 0.0
    for term in range(sizes[COMPONENTS] + 1):
        n, weight = degree_of(term, sizes), parameters[sizes[TEACHER_AT] + term]
        power = weight * monomial(term, gram, m, r, sizes)
        for k in range(3):
            out[k] += power * D[n + k]
        for a in range(r):
            if sizes[TEACHER_SIZES_AT + term * r + a] > 0:
                out[3 + a] += weight * D[n] * monomial(term, gram, m, a, sizes)


@kernel
def write_shares(y: Vector, out: Vector, first: int, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write f_α/f*_α per component of a polynomial from `first` on."""
    m, r, terms = sizes[WIDTH], sizes[AXES], sizes[COMPONENTS] + 1
    D, numbers = vector(work, sizes[SCRATCH_AT], sizes[DEGREE] + FURTHER), numbers_of_links(parameters, sizes)
    for term in range(1, terms):
        out[first + term - 1] = 0.0
    for i in range(m if terms > 1 else 0):
        write_derivatives(y[2 * m + m * r + i * m + i], y[m + i], numbers, D)
        for term in range(1, terms):
            weight = parameters[SCALE] * y[i] * parameters[sizes[TEACHER_AT] + terms + term]
            share = weight * D[degree_of(term, sizes)] * monomial(term, y, 2 * m + i * r, r, sizes)
            out[first + term - 1] += share


# The equations.


@kernel
def write_gram(y: Vector, sizes: Integers, C: Matrix) -> None:
    """C = [Q M; Mᵀ 1] of the neurons and the teacher's axes."""
    m, r = sizes[WIDTH], sizes[AXES]
    M, Q = matrix(y, 2 * m, m, r), matrix(y, 2 * m + m * r, m, m)
    for i in range(m):
        row, overlaps = C[i], Q[i]
        for j in range(m):
            row[j] = overlaps[j]
        for a in range(r):
            C[i, m + a] = C[m + a, i] = M[i, a]
    for a in range(r):
        for c in range(r):
            C[m + a, m + c] = 1.0 if a == c else 0.0


@kernel
def write_symmetric(F: Matrix, m: int, at: int, out: Vector) -> None:
    """Write −F − Fᵀ of the first m columns from `at` on.

    It does so tile by tile, since columns of a large matrix are far apart in memory.
    """
    for first in range(0, m, TILE):
        for second in range(0, first + 1, TILE):
            for i in range(first, min(first + TILE, m)):
                for j in range(second, min(second + TILE, i + 1)):
                    change = -F[i, j] - F[j, i]
                    out[at + i * m + j] = change
                    out[at + j * m + i] = change


@kernel
def write_gradient(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """N and F = N C, after the means; on the sphere without the part along each neuron, so that F_ii = 0."""
    m, r, rate = sizes[WIDTH], sizes[AXES], parameters[RATE_W]
    C = matrix(work, 0, m + r, m + r)
    means, pulls = matrix(work, sizes[MEANS_AT], m, r + 3), matrix(work, sizes[PULLS_AT], 3, m)
    A = matrix(work, sizes[SLOPES_AT], m, m)
    N, F = matrix(work, sizes[FORCES_AT], m, m + r), matrix(work, sizes[PRODUCTS_AT], m, m + r)
    for i in range(m):
        weight, row, slopes = rate * parameters[SCALE] * y[i], N[i], A[i]
        for j in range(m):
            row[j] = rate * slopes[j]
        for a in range(r):
            N[i, m + a] = -weight * means[i, 3 + a]
        if sizes[SPHERE] == 0:
            N[i, i] += weight * pulls[2, i] + parameters[DECAY_W]
    product_until(N, C, F, sizes)
    if sizes[SPHERE] == 1:
        for i in range(m):
            turn = F[i, i] / C[i, i]
            N[i, i] -= turn
            for j in range(m + r):
                F[i, j] -= turn * C[i, j]
            F[i, i] = 0.0


@kernel
def add_squared_gradient(out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add η ∇∇ᵀ = η F Nᵀ to Q', with which one Euler step of length η is one step of population gradient descent."""
    m, r = sizes[WIDTH], sizes[AXES]
    N, F = matrix(work, sizes[FORCES_AT], m, m + r), matrix(work, sizes[PRODUCTS_AT], m, m + r)
    squares = matrix(work, sizes[SLOPES_AT], m, m)
    turned = matrix(work, sizes[SCRATCH_AT] + sizes[DEGREE] + FURTHER, m + r, m)
    for i in range(m):
        for a in range(m + r):
            turned[a, i] = N[i, a]
    product_until(F, turned, squares, sizes)
    for i in range(m):
        for j in range(i + 1):
            out[i * m + j] += parameters[STEP] * 0.5 * (squares[i, j] + squares[j, i])
    mirror(matrix(out, 0, m, m))


@kernel
def write_means_of_units(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Tables of all units, and the means of each neuron with the teacher."""
    m, r, numbers = sizes[WIDTH], sizes[AXES], numbers_of_links(parameters, sizes)
    C, biases = matrix(work, 0, m + r, m + r), sizes[TEACHER_AT] + sizes[UNITS]
    rows, means = (
        matrix(work, sizes[ROWS_AT], m + sizes[UNITS], sizes[ROW_SIZE]),
        matrix(work, sizes[MEANS_AT], m, r + 3),
    )
    # Units of the teacher, which have variance 1, then neurons.
    for i in range(m + sizes[UNITS] - 1, -1, -1):
        if is_stopped(sizes):
            return
        head, q, b = int(numbers[HEADS]), 1.0, 0.0
        if i < m:
            q, b = C[i, i], y[m + i]
        else:
            head, b = head + HEADER * sizes[TEACHER_SIZES_AT + i - m], parameters[biases + i - m]
        write_row(head, q, b, numbers, rows[i])
        if i < m and sizes[UNITS] > 0:
            write_unit_means(i, C[i], rows, parameters, sizes, means[i])
        elif i < m:
            write_polynomial_means(i, b, C[i], parameters, sizes, work, means[i])


@kernel
def write_rates(y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write what `rhs` does, after all means."""
    m, r, scale = sizes[WIDTH], sizes[AXES], parameters[SCALE]
    write_gradient(y, parameters, sizes, work)
    pulls, F = matrix(work, sizes[PULLS_AT], 3, m), matrix(work, sizes[PRODUCTS_AT], m, m + r)
    first = 2 * m + m * r
    for i in range(m):
        out[i] = -parameters[RATE_V] * scale * pulls[0, i] - parameters[DECAY_V] * y[i]
        out[m + i] = -parameters[RATE_B] * scale * y[i] * pulls[1, i]
        for a in range(r):
            out[2 * m + i * r + a] = -F[i, m + a]
    write_symmetric(F, m, first, out)
    if sizes[THEORY] == DESCENT:
        add_squared_gradient(vector(out, first, m * m), parameters, sizes, work)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write v' = −ε_v s Ψ − κ_v v, b' = −ε_b s v Ψ1, M' = −F_r, Q' = −F_m − F_mᵀ + the term of the steps.

    In `work` are then the Gram matrix, tables of all units, means with the teacher, Ψ, Ψ1, Ψ2,
    A₀_ij = s² v_i v_j E σ'_i σ'_j, N and F, unless `sizes[THEORY]` is `MEANS`, with which it ends before the last two.
    """
    m, n, pairing = sizes[WIDTH], sizes[WIDTH] + sizes[AXES], sizes[PAIRING]
    numbers = numbers_of_links(parameters, sizes)
    C, A = matrix(work, 0, n, n), matrix(work, sizes[SLOPES_AT], m, m)
    rows = matrix(work, sizes[ROWS_AT], m + sizes[UNITS], sizes[ROW_SIZE])
    means, pulls = matrix(work, sizes[MEANS_AT], m, n - m + 3), matrix(work, sizes[PULLS_AT], 3, m)
    write_gram(y, sizes, C)
    write_means_of_units(y, parameters, sizes, work)
    weight = np.empty(m)
    for i in range(m):
        weight[i] = parameters[SCALE] * y[i]
        for k in range(3):
            pulls[k, i] = -means[i, k]
    # Ψ and Ψ1 move the second layer and the biases alone, and give the loss.
    values = parameters[RATE_V] != 0.0 or parameters[RATE_B] != 0.0 or sizes[THEORY] == MEANS
    if pairing == CENTRAL_RELU:
        add_central_relu(weight, C, pulls, A)
    elif pairing == CENTRAL_ERF:
        add_central_erf(values, weight, C, pulls, A)
    elif pairing == BIASED_RELU:
        add_biased_relu(weight, C, rows, pulls, A)
    elif pairing == BIASED_ERF:
        add_biased_erf(values, weight, C, rows, pulls, A)
    elif pairing == LISTS:
        add_lists(values, weight, C, rows, numbers, sizes, pulls, A)
    else:
        add_one_by_one(weight, C, rows, numbers, sizes, pulls, A)
    if sizes[THEORY] != MEANS:
        write_rates(y, out, parameters, sizes, work)


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Diagonal with the forces held: −ε_v s² E σ_i² − κ_v, −ε_b A₀_ii, −N_ii for M, −N_ii − N_jj for Q."""
    m, r, scale = sizes[WIDTH], sizes[AXES], parameters[SCALE]
    rhs(t, y, out, parameters, sizes, work)
    numbers = numbers_of_links(parameters, sizes)
    rows = matrix(work, sizes[ROWS_AT], m + sizes[UNITS], sizes[ROW_SIZE])
    A, N = matrix(work, sizes[SLOPES_AT], m, m), matrix(work, sizes[FORCES_AT], m, m + r)
    for i in range(m):
        out[i] = -parameters[RATE_V] * scale * scale * own_values(rows[i], numbers)[0] - parameters[DECAY_V]
        out[m + i] = -parameters[RATE_B] * A[i, i]
        for a in range(r):
            out[2 * m + i * r + a] = -N[i, i]
        for j in range(m):
            out[2 * m + m * r + i * m + j] = -N[i, i] - N[j, j]


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Per axis max_i M_ia²/Q_ii − level, then per component of the teacher f_α/f*_α − ½."""
    m, r = sizes[WIDTH], sizes[AXES]
    for a in range(r):
        largest = 0.0
        for i in range(m):
            square = y[2 * m + m * r + i * m + i]
            if square > 0.0:
                largest = max(largest, y[2 * m + i * r + a] ** 2 / square)
        out[a] = largest - parameters[LEVEL]
    write_shares(y, out, r, parameters, sizes, work)
    for c in range(0 if sizes[THEORY] == MEANS else sizes[COMPONENTS]):
        out[r + c] -= 0.5


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Q = Qᵀ: one half is copied over the other; on the sphere neurons get back the lengths they started with."""
    m, r = sizes[WIDTH], sizes[AXES]
    first = 2 * m + m * r
    mirror(matrix(y, first, m, m))
    if sizes[SPHERE] == 1:
        for i in range(m):
            start = parameters[SQUARES_AT + i]
            factor = np.sqrt(start / y[first + i * m + i])
            for a in range(r):
                y[2 * m + i * r + a] *= factor
            for j in range(m):
                y[first + i * m + j] *= factor
                y[first + j * m + i] *= factor
            y[first + i * m + i] = start


@entry
def evaluate_means(
    rates: Callable[..., None], events: Callable[..., None], y: Vector, out: Vector, shares: Vector,
    numbers: tuple[Vector, Integers, Vector],
) -> None:  # fmt: skip
    """Call the right-hand side and the events of a network whose `sizes[THEORY]` is `MEANS` from Python."""
    rates(0.0, y, out, numbers[0], numbers[1], numbers[2])
    events(0.0, y, shares, numbers[0], numbers[1], numbers[2])
