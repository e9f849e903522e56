"""Means of all pairs of neurons that are sums over lists; executed after `list_student` and `power_sum_kernels`."""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Vector
from dynamics.compiler.compilation import counting_kernel

if TYPE_CHECKING:
    from dynamics.equations.network.layout_kernels import *
    from dynamics.equations.network.list_kernels import *
    from dynamics.equations.network.list_student_kernels import *
    from dynamics.equations.network.power_sum_kernels import *
    from dynamics.equations.pairs.array_kernels import *


@counting_kernel
def add_neuron_means(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add s Σ_j v_j (K, K1, K2)_ij to Ψ, Ψ1, Ψ2 and write A₀, the sums of `list_pair` for one neuron with all others.

    K and K1 are left out where they move nothing.
    """
    values = needs_values(parameters, sizes)
    m, n, scale = sizes[WIDTH], sizes[WIDTH] + sizes[AXES], parameters[SCALE]
    numbers = parameters[sizes[NUMBERS_AT] :]
    count, is_series = int(numbers[0]), numbers[2]
    first, second = LIST + count + 4, LIST + 2 * count + 4
    C, A = matrix(work, 0, n, n), matrix(work, slopes_at(sizes), m, m)
    rows = matrix(work, rows_at(sizes), m + sizes[UNITS], sizes[ROW_SIZE])
    pulls = matrix(work, pulls_at(sizes), 3, m)
    means, slopes = np.empty((count, m)), np.empty((count, m))
    weight, inverse, x, sums = np.empty(m), np.empty(m), np.empty(m), np.zeros((3, m))
    for j in range(m):
        weight[j], inverse[j] = scale * y[j], rows[j, LIST - 1]
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
        if values:
            write_power_sums(row[LIST:], means, x, terms, m, sums[0])
            write_power_sums(row[first:], means, x, terms, m, sums[1])
        write_power_sums(row[second:], means, x, terms, m, sums[2])
        write_power_sums(row[first:], slopes, x, terms, m, both)
        sums[0, i], sums[1, i], both[i], sums[2, i] = own_values(row, numbers)
        for k in range(0 if values else 2, 3):
            total, found = 0.0, sums[k]
            for j in range(m):
                total += weight[j] * found[j]
            pulls[k, i] += total
        for j in range(m):
            both[j] *= weight[i] * weight[j]
