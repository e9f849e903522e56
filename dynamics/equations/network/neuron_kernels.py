"""Means of all pairs of neurons: s Σ_j v_j (K, K1, K2)_ij, added to Ψ, Ψ1, Ψ2, and A₀_ij = s² v_i v_j K12_ij.

Loops over neurons without calls and branches compute several pairs at once, which takes a tenth of the time of pairs
one by one; there is one for relu and for erf, without biases and with them, and one for sums over lists. `weight` is
s v, `pulls` are Ψ, Ψ1, Ψ2, C is the Gram matrix and `rows` are the tables of all units.
"""

import math

import numpy as np

from dynamics.equations.network.list_kernels import LIST, SERIES, TERMS, term_count
from dynamics.equations.network.many_normals_kernels import bell_and_odd, write_excesses
from dynamics.equations.network.normal_kernels import INVERSE_ROOT, difference_of_products
from dynamics.equations.network.pair_kernels import mutual_values, own_values
from dynamics.equations.network.power_sum_kernels import largest_size, write_power_sums
from dynamics.equations.network.threshold_kernels import excess, root_determinant, standard_score
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.products import is_stopped
from dynamics.kernels.views import vector


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
            value, first, mirrored, slopes, second, bent = mutual_values(C[i, j], rows[i], rows[j], numbers)
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
    first, second = LIST + count + 4, LIST + 2 * count + 4
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
