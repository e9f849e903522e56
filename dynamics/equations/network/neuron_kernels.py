"""Means of all pairs of neurons of a link κ f + βz + γ, one by one; executed after the kernels of pairs."""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Integers, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.layout_kernels import *
    from dynamics.equations.network.threshold_student_kernels import *
    from dynamics.equations.pairs.array_kernels import *


@kernel
def add_neuron_means(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add s Σ_j v_j (K, K1, K2)_ij to Ψ, Ψ1, Ψ2 and write A₀_ij = s² v_i v_j K12_ij; rows and C are in place."""
    m, n, scale = sizes[WIDTH], sizes[WIDTH] + sizes[AXES], parameters[SCALE]
    numbers = parameters[sizes[NUMBERS_AT] :]
    C, A = matrix(work, 0, n, n), matrix(work, slopes_at(sizes), m, m)
    pulls = matrix(work, pulls_at(sizes), 3, m)
    rows = matrix(work, rows_at(sizes), m + sizes[UNITS], sizes[ROW_SIZE])
    for i in range(m):
        if is_stopped(sizes):
            return
        weight = scale * y[i]
        value, first, slopes, second = own_values(rows[i], numbers)
        pulls[0, i] += weight * value
        pulls[1, i] += weight * first
        pulls[2, i] += weight * second
        A[i, i] = weight * weight * slopes
        for j in range(i):
            other = scale * y[j]
            value, first, mirrored, slopes, second, bent = mutual_values(C[i, j], rows[i], rows[j], numbers)
            pulls[0, i] += other * value
            pulls[0, j] += weight * value
            pulls[1, i] += other * first
            pulls[1, j] += weight * mirrored
            pulls[2, i] += other * second
            pulls[2, j] += weight * bent
            A[i, j] = A[j, i] = weight * other * slopes
