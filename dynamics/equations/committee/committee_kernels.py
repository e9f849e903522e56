"""Compiled kernels of the committee's overlap equations; executed after the kernels of its link.

State y = [R (m, P) | S (m, m)], sizes = [m, P, sign_matters, K, theory, lowest degree that counts in learned masses]
with theory 0 for the flow, 1 for the step's limit d → ∞ and 2 for the step at finite d; parameters = [a (P) |
T (P, P) | τ² | η | d | B | numbers of the link].
Vectors v_b are the m neurons and then the P directions, M = m + P in number, C their Gram matrix, w = (1, −a) their
weights in the error. The first M² numbers of `work` hold C, the next the link's tables. The equations are those of
`dynamics.equations.committee.system`.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.committee.committee_polynomial_kernels import *
    from dynamics.equations.pairs.array_kernels import *


@kernel
def write_gram(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Gram matrix C = [S R; Rᵀ T] of all vectors, then the link's tables of it."""
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
    write_tables(parameters, sizes, work)


@kernel
def write_forces(parameters: Vector, sizes: Integers, work: Vector, N: Matrix, k: Vector) -> None:
    """N_ib = w_b E σ'_i σ'_b and k_i = Σ_b w_b E σ''_i σ_b: the mean gradient of neuron i is Σ_b N_ib v_b + k_i w_i."""
    m, P = sizes[0], sizes[1]
    for i in range(m):
        if is_stopped(sizes):
            return
        k[i] = 0.0
        for b in range(m + P):
            weight = 1.0 if b < m else -parameters[b - m]
            _, slopes, bend = pair_means(i, b, sizes, work)
            N[i, b] = weight * slopes
            k[i] += weight * bend


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """R' = −(F)_R, S' = −(F_S + F_Sᵀ) + η (second/B + (1 − 1/B) D), F = N C + diag(k) C, D = F (N + diag(k))ᵀ."""
    m, P = sizes[0], sizes[1]
    M = m + P
    write_gram(y, parameters, sizes, work)
    place = M * M + table_size(sizes)
    N, F, k = matrix(work, place, m, M), matrix(work, place + m * M, m, M), work[place + 2 * m * M :]
    write_forces(parameters, sizes, work, N, k)
    C = matrix(work, 0, M, M)
    product_until(N, C, F, sizes)
    for i in range(m):
        for b in range(M):
            F[i, b] += k[i] * C[i, b]
    rate, batch = parameters[P + P * P + 1], parameters[P + P * P + 3]
    # |x|² and the product of two samples differ by a factor of order d, so that the limit has no such product.
    mean_rate = rate - rate / batch if sizes[4] == 2 else 0.0
    for i in range(m):
        for p in range(P):
            out[i * P + p] = -F[i, m + p]
        for j in range(i + 1):
            change = -F[i, j] - F[j, i]
            if sizes[4] > 0:
                change += rate / batch * step_second(i, j, parameters, sizes, work)
            if mean_rate > 0.0:
                change += mean_rate * (F[i, j] * k[j] + np.dot(F[i], N[j]))
            out[m * P + i * m + j] = change
            out[m * P + j * m + i] = change


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Diagonal with the forces N and k held: −N_ii − k_i for R, the sum of two such for S."""
    m, P = sizes[0], sizes[1]
    M = m + P
    write_gram(y, parameters, sizes, work)
    place = M * M + table_size(sizes)
    N, k = matrix(work, place, m, M), work[place + 2 * m * M :]
    write_forces(parameters, sizes, work, N, k)
    for i in range(m):
        own = N[i, i] + k[i]
        for p in range(P):
            out[i * P + p] = -own
        for j in range(m):
            out[m * P + i * m + j] = -own - N[j, j] - k[j]


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
