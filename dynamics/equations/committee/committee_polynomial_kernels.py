"""Gaussian means of a polynomial link by Wick's theorem; `committee_kernels` says the layout.

A projection λ_a has a variance v_a that is not 1, so that the mean derivatives F_ak = E σ^(k)(λ_a) depend on it: each
is a polynomial in v_a, F_ak = Σ_j F_(k+2j) ((v_a − 1)/2)^j / j!, of the mean derivatives F_k at v = 1, the numbers of
the link. Tables in `work` after C are those of `step_diagram_kernels`.
"""

from dynamics.equations.committee.step_diagram_kernels import diagram_second, diagram_size, write_diagram_tables
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import vector


@kernel
def polynomial_table_size(M: int, K: int) -> int:
    """Return the numbers of scratch for tables."""
    return int(diagram_size(M, K) - M * M)


@kernel
def write_mean_derivatives(parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Mean derivatives of σ at every vector."""
    P, K = sizes[1], sizes[3]
    M = sizes[0] + P
    numbers = P + P * P + 4
    own = M * M
    for a in range(M):
        v = work[a * M + a]
        for k in range(K + 4):
            total, factor, j = 0.0, 1.0, 0
            while k + 2 * j <= K:
                total += factor * parameters[numbers + k + 2 * j]
                j += 1
                factor *= 0.5 * (v - 1.0) / j
            work[own + a * (K + 4) + k] = total


@kernel
def write_step_tables(parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Weights of all vectors, and what diagrams need besides C and the mean derivatives."""
    m, P, K = sizes[0], sizes[1], sizes[3]
    M = m + P
    weights = diagram_size(M, K) - M
    for a in range(M):
        work[weights + a] = 1.0 if a < m else -parameters[a - m]
    write_diagram_tables(M, K, work)


@kernel
def write_polynomial_row(i: int, parameters: Vector, sizes: Integers, work: Vector, N: Matrix) -> float:
    """Write N_ib = w_b E σ'_i σ'_b; return k_i = Σ_b w_b E σ''_i σ_b."""
    m, K = sizes[0], sizes[3]
    M, total = m + sizes[1], 0.0
    F = vector(work, M * M + i * (K + 4), K + 4)
    for b in range(M):
        G, c = vector(work, M * M + b * (K + 4), K + 4), work[i * M + b]
        slopes = bend = 0.0
        for k in range(K, -1, -1):
            slopes = F[k + 1] * G[k + 1] + slopes * c / (k + 1)
            bend = F[k + 2] * G[k] + bend * c / (k + 1)
        weight = 1.0 if b < m else -parameters[b - m]
        N[i, b] = weight * slopes
        total += weight * bend
    return total


@kernel
def polynomial_learned_mean(i: int, b: int, sizes: Integers, work: Vector) -> float:
    """Return E σ_i σ_b of the degrees from sizes[5] on."""
    M, K = sizes[0] + sizes[1], sizes[3]
    c = work[i * M + b]
    F, G = vector(work, M * M + i * (K + 4), K + 4), vector(work, M * M + b * (K + 4), K + 4)
    value = 0.0
    for k in range(K, -1, -1):
        value = (F[k] * G[k] if k >= sizes[5] else 0.0) + value * c / (k + 1)
    return value


@kernel
def empty_parity(parameters: Vector, sizes: Integers) -> int:
    """Return the parity, 0 or 1, of the degrees that the link lacks; 2 if it has both."""
    numbers = sizes[1] * (sizes[1] + 1) + 4
    even = odd = 0.0
    for k in range(sizes[3] + 1):
        if k % 2 == 0:
            even += abs(parameters[numbers + k])
        else:
            odd += abs(parameters[numbers + k])
    if even == 0.0:
        return 0
    return 1 if odd == 0.0 else 2


@kernel
def polynomial_second(i: int, j: int, parameters: Vector, sizes: Integers, work: Vector) -> float:
    """Return E[(ē² + τ²) σ'_i σ'_j |x|²], of theory 1 its part of order d."""
    P = sizes[1]
    noise, d = parameters[P + P * P], parameters[P + P * P + 2]
    absent = empty_parity(parameters, sizes)
    return diagram_second(i, j, noise, d, sizes[4] == 2, absent, sizes[0] + P, sizes[3], work)
