"""Means of all pairs of relu neurons with biases; executed after `many_normals` and `array_kernels`."""

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
    """Add s Σ_j v_j (K, K1, K2)_ij to Ψ, Ψ1, Ψ2 and write A₀, as `relu_relu_mutual` has them for a pair.

    With u = (b_j q_i - c b_i)/√(q_i Δ) and P_ij = p_i Φ(u): K12 = Φ_2, K1 = b_j K12 + c P_ij + q_j P_ji,
    K2 = p_i √(Δ/q_i) (u Φ(u) + φ(u)), K = b_i K1 + q_i K2 + c K12, so that one Φ(u) does for each i and j.
    """
    m, n, scale = sizes[WIDTH], sizes[WIDTH] + sizes[AXES], parameters[SCALE]
    C, A = matrix(work, 0, n, n), matrix(work, slopes_at(sizes), m, m)
    rows = matrix(work, rows_at(sizes), m + sizes[UNITS], sizes[ROW_SIZE])
    pulls = matrix(work, pulls_at(sizes), 3, m)
    bias, q, inverse, h, share, weight = np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    slope, inner, turned = np.empty(m), np.empty(m), np.zeros(m)
    for j in range(m):
        bias[j], q[j], inverse[j], h[j], share[j] = rows[j, 1], rows[j, 2], rows[j, 3], rows[j, 4], rows[j, 7]
        weight[j] = scale * y[j]
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
