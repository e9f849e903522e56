"""Means of all pairs of erf neurons without biases; executed after `central_kernels` and `array_kernels`."""

import math
from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Vector
from dynamics.compiler.compilation import counting_kernel

if TYPE_CHECKING:
    from dynamics.equations.network.central_kernels import *
    from dynamics.equations.network.layout_kernels import *
    from dynamics.equations.network.normal_kernels import *
    from dynamics.equations.pairs.array_kernels import *


@counting_kernel
def add_neuron_means(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add s Σ_j v_j (K, K2)_ij to Ψ, Ψ2 and write A₀: K = (2/π) asin(c/√(T_i T_j)), K12 = (2/π)/√Δ, K2 = −c K12/T_i.

    T = 1 + Q_ii and Δ = T_i T_j − c²; Ψ1 moves no bias, and K is left out where it moves nothing.
    """
    values = needs_values(parameters, sizes)
    m, n, scale = sizes[WIDTH], sizes[WIDTH] + sizes[AXES], parameters[SCALE]
    C, A = matrix(work, 0, n, n), matrix(work, slopes_at(sizes), m, m)
    pulls = matrix(work, pulls_at(sizes), 3, m)
    wide, inverse, weights = np.empty(m), np.empty(m), np.empty(m)
    for j in range(m):
        wide[j] = 1.0 + C[j, j]
        inverse[j] = 1.0 / math.sqrt(wide[j])
        weights[j] = scale * y[j]
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
