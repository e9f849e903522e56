"""Compiled kernels of the network's overlap equations, whatever its links and its teacher.

State y = [v (m) | b (m) | M (m, r) | Q (m, m)]. The equations are those of `dynamics.equations.network.system`: with
the vectors (w_1 … w_m, teacher's axes) and their Gram matrix C = [Q M; Mᵀ 1], the mean gradient of the neurons is
∇ = N · vectors, N = [ε_w A + κ_w − diag(turn) | −ε_w B], so that F = N C = [∇ Wᵀ | ∇ Θᵀ], M' = −F_r and
Q' = −F_m − F_mᵀ, to which steps of descent add η ∇∇ᵀ = η F Nᵀ.

`layout_kernels` says where parameters, sizes and tables lie.
"""

from collections.abc import Callable

import numpy as np

from dynamics.equations.network.layout_kernels import (
    AXES,
    BIASED_ERF,
    BIASED_RELU,
    CENTRAL_ERF,
    CENTRAL_RELU,
    COMPONENTS,
    DECAY_V,
    DECAY_W,
    DEGREE,
    DESCENT,
    FORCES_AT,
    FURTHER,
    LEVEL,
    LISTS,
    MEANS,
    MEANS_AT,
    MOMENTS,
    PAIRING,
    PRODUCTS_AT,
    PULLS_AT,
    RATE_B,
    RATE_V,
    RATE_W,
    ROW_SIZE,
    ROWS_AT,
    SCALE,
    SCRATCH_AT,
    SLOPES_AT,
    SPHERE,
    SQUARES_AT,
    STEP,
    TEACHER_AT,
    TEACHER_SIZES_AT,
    THEORY,
    UNITS,
    WIDTH,
    numbers_of_links,
)
from dynamics.equations.network.list_kernels import HEADER, HEADS
from dynamics.equations.network.neuron_kernels import (
    add_biased_erf,
    add_biased_relu,
    add_central_erf,
    add_central_relu,
    add_lists,
    add_one_by_one,
)
from dynamics.equations.network.pair_kernels import own_values, write_row
from dynamics.equations.network.teacher_kernels import write_polynomial_means, write_shares, write_unit_means
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.products import is_stopped, product_until
from dynamics.kernels.views import matrix, vector

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
    turned = matrix(work, sizes[SCRATCH_AT] + MOMENTS + sizes[DEGREE] + FURTHER, m + r, m)
    for i in range(m):
        for a in range(m + r):
            turned[a, i] = N[i, a]
    product_until(F, turned, squares, sizes)
    for i in range(m):
        for j in range(i + 1):
            change = parameters[STEP] * 0.5 * (squares[i, j] + squares[j, i])
            out[i * m + j] += change
            if j < i:
                out[j * m + i] += change


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


@entry
def evaluate_means(
    rates: Callable[..., None], events: Callable[..., None], y: Vector, out: Vector, shares: Vector,
    numbers: tuple[Vector, Integers, Vector],
) -> None:  # fmt: skip
    """Call the right-hand side and the events of a network whose `sizes[THEORY]` is `MEANS` from Python."""
    rates(0.0, y, out, numbers[0], numbers[1], numbers[2])
    events(0.0, y, shares, numbers[0], numbers[1], numbers[2])
