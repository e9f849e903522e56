"""Gaussian means of a polynomial link by Wick's theorem; executed before `committee_kernels`, which says the layout.

A projection λ_a has a variance v_a that is not 1, so that the mean derivatives F_ak = E σ^(k)(λ_a) depend on it: each
is a polynomial in v_a, F_ak = Σ_j F_(k+2j) ((v_a − 1)/2)^j / j!, of the mean derivatives F_k at v = 1, the numbers of
the link. Tables in `work` after C are those of `step_diagram_kernels`.
"""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Integers, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.committee.step_diagram_kernels import *


@kernel
def table_size(sizes: Integers) -> int:
    """Return the numbers of scratch for tables."""
    M = sizes[0] + sizes[1]
    return int(diagram_size(M, sizes[3]) - M * M)


@kernel
def write_tables(parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Mean derivatives of σ at every vector, and for the step what the diagrams need besides."""
    m, P, K = sizes[0], sizes[1], sizes[3]
    M = m + P
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
    if sizes[4] == 0:
        return
    weights = diagram_size(M, K) - M
    for a in range(M):
        work[weights + a] = 1.0 if a < m else -parameters[a - m]
    write_diagram_tables(M, K, work)


@kernel
def pair_means(i: int, b: int, sizes: Integers, work: Vector) -> tuple[float, float, float]:
    """Return E σ_i σ_b, E σ'_i σ'_b and E σ''_i σ_b."""
    M, K = sizes[0] + sizes[1], sizes[3]
    c = work[i * M + b]
    F, G = work[M * M + i * (K + 4) :], work[M * M + b * (K + 4) :]
    value = slopes = bend = 0.0
    for k in range(K, -1, -1):
        value = F[k] * G[k] + value * c / (k + 1)
        slopes = F[k + 1] * G[k + 1] + slopes * c / (k + 1)
        bend = F[k + 2] * G[k] + bend * c / (k + 1)
    return value, slopes, bend


@kernel
def learned_mean(i: int, b: int, sizes: Integers, work: Vector) -> float:
    """Return E σ_i σ_b of the degrees from sizes[5] on."""
    M, K = sizes[0] + sizes[1], sizes[3]
    c = work[i * M + b]
    F, G = work[M * M + i * (K + 4) :], work[M * M + b * (K + 4) :]
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
def step_second(i: int, j: int, parameters: Vector, sizes: Integers, work: Vector) -> float:
    """Return E[(ē² + τ²) σ'_i σ'_j |x|²], of theory 1 its part of order d."""
    P = sizes[1]
    noise, d = parameters[P + P * P], parameters[P + P * P + 2]
    absent = empty_parity(parameters, sizes)
    return diagram_second(i, j, noise, d, sizes[4] == 2, absent, sizes[0] + P, sizes[3], work)
