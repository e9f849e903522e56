"""Compiled kernels of the network's overlap equations; executed after those of its links and of its teacher.

State y = [v (m) | b (m) | M (m, r) | Q (m, m)]. The equations are those of `dynamics.equations.network.system`: with
the vectors (w_1 … w_m, teacher's axes) and their Gram matrix C = [Q M; Mᵀ 1], the mean gradient of the neurons is
∇ = N · vectors, N = [ε_w A + κ_w − diag(turn) | −ε_w B], so that F = N C = [∇ Wᵀ | ∇ Θᵀ], M' = −F_r and
Q' = −F_m − F_mᵀ, to which steps of descent add η ∇∇ᵀ = η F Nᵀ.

`layout_kernels` says where parameters, sizes and tables lie.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.layout_kernels import *
    from dynamics.equations.network.list_student_kernels import *
    from dynamics.equations.network.neuron_kernels import *
    from dynamics.equations.network.polynomial_teacher_kernels import *
    from dynamics.equations.pairs.array_kernels import *

#: Rows and columns of a tile.
TILE = 16


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
def write_all_means(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Gram matrix, tables of all units, means with the teacher, Ψ, Ψ1, Ψ2, and A₀_ij = s² v_i v_j E σ'_i σ'_j."""
    m, r, numbers = sizes[WIDTH], sizes[AXES], parameters[sizes[NUMBERS_AT] :]
    C = matrix(work, 0, m + r, m + r)
    rows = matrix(work, rows_at(sizes), m + sizes[UNITS], sizes[ROW_SIZE])
    means, pulls = matrix(work, means_at(sizes), m, r + 3), matrix(work, pulls_at(sizes), 3, m)
    write_gram(y, sizes, C)
    write_teacher_rows(parameters, sizes, rows)
    for i in range(m):
        if is_stopped(sizes):
            return
        write_row(0, C[i, i], y[m + i], numbers, rows[i])
        write_teacher_means(i, y[m + i], C[i], rows, parameters, sizes, work, means[i])
        for k in range(3):
            pulls[k, i] = -means[i, k]
    add_neuron_means(y, parameters, sizes, work)


@kernel
def write_symmetric(F: Matrix, m: int, out: Vector) -> None:
    """Write −F − Fᵀ of the first m columns, tile by tile: columns of a large matrix are far apart in memory."""
    for first in range(0, m, TILE):
        for second in range(0, first + 1, TILE):
            for i in range(first, min(first + TILE, m)):
                for j in range(second, min(second + TILE, i + 1)):
                    change = -F[i, j] - F[j, i]
                    out[i * m + j] = change
                    out[j * m + i] = change


@kernel
def write_gradient(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """N and F = N C, after `write_all_means`; on the sphere without the part along each neuron, so that F_ii = 0."""
    m, r, rate = sizes[WIDTH], sizes[AXES], parameters[RATE_W]
    C = matrix(work, 0, m + r, m + r)
    means, pulls = matrix(work, means_at(sizes), m, r + 3), matrix(work, pulls_at(sizes), 3, m)
    A = matrix(work, slopes_at(sizes), m, m)
    N, F = matrix(work, forces_at(sizes), m, m + r), matrix(work, products_at(sizes), m, m + r)
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
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write v' = −ε_v s Ψ − κ_v v, b' = −ε_b s v Ψ1, M' = −F_r, Q' = −F_m − F_mᵀ + the term of the steps."""
    m, r, scale = sizes[WIDTH], sizes[AXES], parameters[SCALE]
    write_all_means(y, parameters, sizes, work)
    if sizes[THEORY] == MEANS:
        return
    write_gradient(y, parameters, sizes, work)
    pulls, F = matrix(work, pulls_at(sizes), 3, m), matrix(work, products_at(sizes), m, m + r)
    first = 2 * m + m * r
    for i in range(m):
        out[i] = -parameters[RATE_V] * scale * pulls[0, i] - parameters[DECAY_V] * y[i]
        out[m + i] = -parameters[RATE_B] * scale * y[i] * pulls[1, i]
        for a in range(r):
            out[2 * m + i * r + a] = -F[i, m + a]
    write_symmetric(F, m, out[first:])
    if sizes[THEORY] == DESCENT:
        add_squared_gradient(out[first:], parameters, sizes, work)


@kernel
def add_squared_gradient(out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add η ∇∇ᵀ = η F Nᵀ to Q', with which one Euler step of length η is one step of population gradient descent."""
    m, r = sizes[WIDTH], sizes[AXES]
    N, F = matrix(work, forces_at(sizes), m, m + r), matrix(work, products_at(sizes), m, m + r)
    squares = matrix(work, slopes_at(sizes), m, m)
    product_until(F, N.T, squares, sizes)
    for i in range(m):
        for j in range(i + 1):
            change = parameters[STEP] * 0.5 * (squares[i, j] + squares[j, i])
            out[i * m + j] += change
            if j < i:
                out[j * m + i] += change


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Diagonal with the forces held: −ε_v s² E σ_i² − κ_v, −ε_b A₀_ii, −N_ii for M, −N_ii − N_jj for Q."""
    m, r, scale = sizes[WIDTH], sizes[AXES], parameters[SCALE]
    write_all_means(y, parameters, sizes, work)
    write_gradient(y, parameters, sizes, work)
    numbers = parameters[sizes[NUMBERS_AT] :]
    rows = matrix(work, rows_at(sizes), m + sizes[UNITS], sizes[ROW_SIZE])
    A, N = matrix(work, slopes_at(sizes), m, m), matrix(work, forces_at(sizes), m, m + r)
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
    write_shares(y, out[r:], parameters, sizes, work)
    for c in range(0 if sizes[THEORY] == MEANS else sizes[COMPONENTS]):
        out[r + c] -= 0.5


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Q = Qᵀ: one half is copied over the other; on the sphere neurons get back the lengths they started with."""
    m, r = sizes[WIDTH], sizes[AXES]
    first = 2 * m + m * r
    for i in range(m):
        for j in range(i):
            y[first + j * m + i] = y[first + i * m + j]
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
