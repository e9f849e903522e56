"""Compiled functions of the committee's overlap equations.

State y = [R (m, P) | S (m, m)], sizes = [m, P, sign_matters, K, theory, lowest degree that counts in learned masses,
family of the link] with theory 1 for the step's limit d → ∞ and 2 for the step at finite d; parameters = [a (P) |
T (P, P) | τ² | η | d | B | numbers of the link]. Vectors v_b are the m neurons and then the P directions, M = m + P in
number, C their Gram matrix, w = (1, −a) their weights in the error. The first M² numbers of `work` hold C, the next the
link's tables. The equations are those of `dynamics.equations.committee.system`; a family of links has a right-hand side
of its own for steps, whose terms of second order take long to compile.
"""

import numpy as np

from dynamics.equations.committee.committee_erf_kernels import (
    erf_learned_mean,
    erf_second,
    erf_table_size,
    write_erf_row,
)
from dynamics.equations.committee.committee_polynomial_kernels import (
    polynomial_learned_mean,
    polynomial_second,
    polynomial_table_size,
    write_mean_derivatives,
    write_polynomial_row,
    write_step_tables,
)
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.products import is_stopped, product_until
from dynamics.kernels.views import matrix, vector

#: Families of links, and their place in `sizes`.
ERF, POLYNOMIAL = 0, 1
FAMILY = 6


@kernel
def table_size(sizes: Integers) -> int:
    """Return the numbers of scratch for the link's tables."""
    M = sizes[0] + sizes[1]
    return int(erf_table_size(M) if sizes[FAMILY] == ERF else polynomial_table_size(M, sizes[3]))


@kernel
def write_gram(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Gram matrix C = [S R; Rᵀ T] of all vectors, then the mean derivatives of a polynomial."""
    m, P = sizes[0], sizes[1]
    M = m + P
    for i in range(m):
        for j in range(m):
            work[i * M + j] = y[m * P + i * m + j]
        for p in range(P):
            work[i * M + m + p] = y[i * P + p]
            work[(m + p) * M + i] = y[i * P + p]
    for p in range(P):
        for q in range(P):
            work[(m + p) * M + m + q] = parameters[P + p * P + q]
    if sizes[FAMILY] == POLYNOMIAL:
        write_mean_derivatives(parameters, sizes, work)


@kernel
def write_forces(parameters: Vector, sizes: Integers, work: Vector, N: Matrix, k: Vector) -> None:
    """N_ib = w_b E σ'_i σ'_b and k_i = Σ_b w_b E σ''_i σ_b: the mean gradient of neuron i is Σ_b N_ib v_b + k_i w_i."""
    for i in range(sizes[0]):
        if is_stopped(sizes):
            return
        if sizes[FAMILY] == ERF:
            k[i] = write_erf_row(i, parameters, sizes, work, N)
        else:
            k[i] = write_polynomial_row(i, parameters, sizes, work, N)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """R' = −(F)_R and S' = −(F_S + F_Sᵀ) of the flow, F = N C + diag(k) C; N, F and k stay in `work`."""
    m, P = sizes[0], sizes[1]
    M = m + P
    write_gram(y, parameters, sizes, work)
    place = M * M + table_size(sizes)
    N, F, k = matrix(work, place, m, M), matrix(work, place + m * M, m, M), vector(work, place + 2 * m * M, m)
    write_forces(parameters, sizes, work, N, k)
    C = matrix(work, 0, M, M)
    product_until(N, C, F, sizes)
    for i in range(m):
        for b in range(M):
            F[i, b] += k[i] * C[i, b]
    for i in range(m):
        for p in range(P):
            out[i * P + p] = -F[i, m + p]
        for j in range(i + 1):
            change = -F[i, j] - F[j, i]
            out[m * P + i * m + j] = change
            out[m * P + j * m + i] = change


@kernel
def place_of_second(sizes: Integers) -> int:
    """Return where the terms of second order, (m, m), lie in `work`."""
    m, M = sizes[0], sizes[0] + sizes[1]
    return int(M * M + table_size(sizes) + 2 * m * M + m)


@kernel
def add_step(out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add η (second/B + (1 − 1/B) D) to S', D = F (N + diag(k))ᵀ; `work` holds second, and F, N and k of `rhs`."""
    m, P = sizes[0], sizes[1]
    M = m + P
    place = M * M + table_size(sizes)
    N, F, k = matrix(work, place, m, M), matrix(work, place + m * M, m, M), vector(work, place + 2 * m * M, m)
    second = matrix(work, place_of_second(sizes), m, m)
    rate, batch = parameters[P + P * P + 1], parameters[P + P * P + 3]
    # |x|² and the product of two samples differ by a factor of order d, so that the limit has no such product.
    mean_rate = rate - rate / batch if sizes[4] == 2 else 0.0
    for i in range(m):
        for j in range(i + 1):
            change = rate / batch * second[i, j]
            if mean_rate > 0.0:
                drift = F[i, j] * k[j]
                for b in range(M):
                    drift += F[i, b] * N[j, b]
                change += mean_rate * drift
            out[m * P + i * m + j] += change
            if j < i:
                out[m * P + j * m + i] += change


@kernel
def erf_step_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write R' and S' of steps of a finite learning rate for erf(z/√2)."""
    rhs(t, y, out, parameters, sizes, work)
    m = sizes[0]
    second = matrix(work, place_of_second(sizes), m, m)
    for i in range(m):
        if is_stopped(sizes):
            return
        for j in range(i + 1):
            second[i, j] = erf_second(i, j, parameters, sizes, work)
    add_step(out, parameters, sizes, work)


@kernel
def polynomial_step_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write R' and S' of steps of a finite learning rate for a polynomial."""
    rhs(t, y, out, parameters, sizes, work)
    write_step_tables(parameters, sizes, work)
    m = sizes[0]
    second = matrix(work, place_of_second(sizes), m, m)
    for i in range(m):
        if is_stopped(sizes):
            return
        for j in range(i + 1):
            second[i, j] = polynomial_second(i, j, parameters, sizes, work)
    add_step(out, parameters, sizes, work)


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Diagonal with the forces N and k held: −N_ii − k_i for R, the sum of two such for S."""
    m, P = sizes[0], sizes[1]
    M = m + P
    write_gram(y, parameters, sizes, work)
    place = M * M + table_size(sizes)
    N, k = matrix(work, place, m, M), vector(work, place + 2 * m * M, m)
    write_forces(parameters, sizes, work, N, k)
    for i in range(m):
        own = N[i, i] + k[i]
        for p in range(P):
            out[i * P + p] = -own
        for j in range(m):
            out[m * P + i * m + j] = -own - N[j, j] - k[j]


@kernel
def learned_mean(i: int, b: int, sizes: Integers, work: Vector) -> float:
    """Return E σ_i σ_b of the degrees that count."""
    if sizes[FAMILY] == ERF:
        return erf_learned_mean(i, b, sizes, work)
    return polynomial_learned_mean(i, b, sizes, work)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence max_i C_ip² − ½ (C > 0 only, if the sign matters), then learned mass − a_p/2.

    The mass is Σ_i E[σ_i σ_p]/E[σ_p²] of the degrees that count; NaN where the link has none of them.
    """
    m, P = sizes[0], sizes[1]
    M = m + P
    write_gram(y, parameters, sizes, work)
    for p in range(P):
        largest, mass = 0.0, 0.0
        for i in range(m):
            r = work[i * M + m + p]
            if r > 0.0 or sizes[2] == 0:
                largest = max(largest, r * r / work[i * M + i])
            mass += learned_mean(i, m + p, sizes, work)
        out[p] = largest - 0.5
        whole = learned_mean(m + p, m + p, sizes, work)
        out[P + p] = mass / whole - 0.5 * parameters[p] if whole > 0.0 else np.nan


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """S = Sᵀ: steps treat both halves alike up to the order of sums, so one is copied over the other."""
    m = sizes[0]
    first = m * sizes[1]
    for i in range(m):
        for j in range(i):
            y[first + j * m + i] = y[first + i * m + j]
