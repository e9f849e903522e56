"""Means of all pairs of relu neurons without biases; executed after `central_kernels` and `array_kernels`."""

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
    """Add s Σ_j v_j (K, K2)_ij to Ψ, Ψ2 and write A₀: K12 = ¼ + asin(ρ)/2π, K = √Δ/2π + c K12, K2 = √Δ/(2π Q_ii).

    Δ = Q_ii Q_jj − c² and ρ = c/√(Q_ii Q_jj), Cho & Saul's arc cosines; Ψ1 moves no bias.
    """
    m, n, scale = sizes[WIDTH], sizes[WIDTH] + sizes[AXES], parameters[SCALE]
    C, A = matrix(work, 0, n, n), matrix(work, slopes_at(sizes), m, m)
    pulls = matrix(work, pulls_at(sizes), 3, m)
    square, inverse, weights = np.empty(m), np.empty(m), np.empty(m)
    for j in range(m):
        square[j] = C[j, j]
        inverse[j] = 1.0 / math.sqrt(square[j])
        weights[j] = scale * y[j]
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
