"""Compiled kernels of the linearised flow of links with k ≤ 2.

State W (m, D), sizes = [m, P, D, rows of θ, sign_matters, terms of g_3], parameters = [a (P) | c_0², c_1², c_2² |
θ (P, D) | g_3 in powers] or, with no row of θ, without it: the teacher's directions are the first P axes. The equations
are those of `dynamics.equations.pairs.vectors`.
"""

import numpy as np

from dynamics.equations.pairs.vectors_kernels import add_pull, multiply, pair_products, project
from dynamics.kernels.arrays import Integers, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import matrix


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write W' = B W + A θ, B_ij = −2 c_2² w_i·w_j − c_1² |w_i| |w_j| with the growth along w_i on its diagonal."""
    m, P, D = sizes[0], sizes[1], sizes[2]
    a, squares, teacher = parameters, parameters[P : P + 3], matrix(parameters, P + 3, sizes[3], D)
    W, moved = matrix(y, 0, m, D), matrix(out, 0, m, D)
    A, B, length = matrix(work, 0, m, P), matrix(work, m * P, m, m), work[m * P + m * m :]
    pair_products(W, W, B, sizes)
    project(W, teacher, A, sizes)
    left = 0.0
    for p in range(P):
        left += a[p]
    for i in range(m):
        left -= B[i, i]
        length[i] = np.sqrt(B[i, i])
    for i in range(m):
        along = 0.0
        for p in range(P):
            along += a[p] * A[i, p]
            A[i, p] = a[p] * (2.0 * squares[2] * A[i, p] + squares[1] * length[i])
        for j in range(m):
            along -= length[j] * B[i, j]
            B[i, j] = -2.0 * squares[2] * B[i, j] - squares[1] * length[i] * length[j]
        B[i, i] += 2.0 * squares[0] * left + squares[1] * along / length[i]
    multiply(B, W, moved, sizes)
    add_pull(A, teacher, moved)


@kernel
def polynomial(s: float, powers: Vector, count: int) -> float:
    """Return Σ_j powers_j s^j, by Horner's rule."""
    total = 0.0
    for j in range(count - 1, -1, -1):
        total = total * s + powers[j]
    return total


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence max_i C_ip² − ½ (C > 0 only, if the sign matters), learned mass − a_p/2, carried weight − a_p/2.

    The learned mass is Σ_i n_i g_3(C_ip)/g_3(1), the carried weight the same with g(s) = c_0² + c_1² s + c_2² s².
    """
    m, P, D = sizes[0], sizes[1], sizes[2]
    squares, W, A = parameters[P : P + 3], matrix(y, 0, m, D), matrix(work, 0, m, P)
    powers = parameters[P + 3 + sizes[3] * D :]
    project(W, matrix(parameters, P + 3, sizes[3], D), A, sizes)
    norm, whole = squares[0] + squares[1] + squares[2], polynomial(1.0, powers, sizes[5])
    for p in range(P):
        out[p] = -0.5
        out[P + p] = out[2 * P + p] = -0.5 * parameters[p]
    for i in range(m):
        n = 0.0
        for k in range(D):
            n += W[i, k] * W[i, k]
        for p in range(P):
            c = A[i, p] / np.sqrt(n)
            if c > 0.0 or sizes[4] == 0:
                out[p] = max(out[p], c * c - 0.5)
            out[P + p] += n * polynomial(c, powers, sizes[5]) / whole
            out[2 * P + p] += n * (squares[0] + c * (squares[1] + c * squares[2])) / norm


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Leave weights, which have no constraints, as they are."""
