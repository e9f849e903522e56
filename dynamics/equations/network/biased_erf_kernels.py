"""Means of all pairs of erf neurons with biases; executed after `many_normals` and `array_kernels`."""

import math
from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Vector
from dynamics.compiler.compilation import counting_kernel

if TYPE_CHECKING:
    from dynamics.equations.network.layout_kernels import *
    from dynamics.equations.network.many_normals_kernels import *
    from dynamics.equations.network.threshold_kernels import *
    from dynamics.equations.pairs.array_kernels import *


@counting_kernel
def add_neuron_means(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add s Σ_j v_j (K, K1, K2)_ij to Ψ, Ψ1, Ψ2 and write A₀, as `sign_sign_mutual` has them for a pair.

    With u = (b_j T_i - c b_i)/√(T_i Δ): K1 = 2 p_i erf(u/√2), K12 = 4 p_i φ(u) √(T_i/Δ), K2 = -(b_i K1 + c K12)/T_i,
    so that one exponential and one error function do for each i and j. K is left out where it moves nothing.
    """
    values = needs_values(parameters, sizes)
    m, n, scale = sizes[WIDTH], sizes[WIDTH] + sizes[AXES], parameters[SCALE]
    C, A = matrix(work, 0, n, n), matrix(work, slopes_at(sizes), m, m)
    rows = matrix(work, rows_at(sizes), m + sizes[UNITS], sizes[ROW_SIZE])
    pulls = matrix(work, pulls_at(sizes), 3, m)
    bias, T, inverse, h, mean, weight = np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    for j in range(m):
        bias[j], T[j], inverse[j], h[j], mean[j] = rows[j, 1], rows[j, 2], rows[j, 3], rows[j, 4], rows[j, 6]
        weight[j] = scale * y[j]
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
