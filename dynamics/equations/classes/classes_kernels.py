"""Compiled kernels of the overlap flow on inputs of covariance Σ; executed after g0 = g, g1 = g', g2 = g''.

State y = [U (m, D) | ln n (m)], parameters = [a (P) | Θ (P, r) | s (D)], sizes = [m, P, D, r, sign_matters]. The
equations are those of `dynamics.equations.classes.system`. One right-hand side costs 4 m² D + 4 m P r operations.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix, product_until
    from dynamics.equations.pairs.link_kernels import g0, g1, g2, learned_kernel


@kernel
def class_forces(
    y: Vector, parameters: Vector, sizes: Integers, C: Matrix, G: Matrix, A: Matrix, B: Matrix, e: Vector, n: Vector
) -> None:
    """Write C, G, A = a g'(C), B = n g'(G), e of the system, and n."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    U, rows = matrix(y, 0, m, D), matrix(parameters, P, P, r)
    product_until(U, U.T, G, sizes)
    for i in range(m):
        n[i] = np.exp(y[m * D + i])
    for i in range(m):
        total = 0.0
        for p in range(P):
            c = 0.0
            for k in range(r):
                c += rows[p, k] * U[i, k]
            C[i, p] = c
            A[i, p] = parameters[p] * g1(c)
            total += 2.0 * parameters[p] * g0(c) - A[i, p] * c
        for j in range(m):
            s = G[i, j]
            B[i, j] = n[j] * g1(s)
            total += B[i, j] * s - 2.0 * n[j] * g0(s)
        e[i] = total


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """U' = Y diag(s) − diag(ℓ'/2) U, ℓ' = (ln n)' = 2 Σ_l s_l U_il Y_il, Y = diag(e) U − B U + A Θ."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    mP, mm = m * P, m * m
    C, A = matrix(work, 0, m, P), matrix(work, mP, m, P)
    G, B = matrix(work, 2 * mP, m, m), matrix(work, 2 * mP + mm, m, m)
    o = 2 * mP + 2 * mm
    BU, toward = matrix(work, o, m, D), matrix(work, o + m * D, m, r)
    o += m * D + m * r
    e, n = work[o:], work[o + m :]
    class_forces(y, parameters, sizes, C, G, A, B, e, n)
    U, dU = matrix(y, 0, m, D), matrix(out, 0, m, D)
    product_until(B, U, BU, sizes)
    product_until(A, matrix(parameters, P, P, r), toward, sizes)
    first = P + P * r
    for i in range(m):
        growth = 0.0
        for k in range(D):
            rate = e[i] * U[i, k] - BU[i, k]
            if k < r:
                rate += toward[i, k]
            dU[i, k] = parameters[first + k] * rate
            growth += dU[i, k] * U[i, k]
        for k in range(D):
            dU[i, k] -= growth * U[i, k]
        out[m * D + i] = 2.0 * growth


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """About the diagonal of the Jacobian: what multiplies U_il, the bend of its force, and −4 n g(1) Σ s U² of ln n."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    rhs(t, y, out, parameters, sizes, work)
    mP, mm = m * P, m * m
    C, B = matrix(work, 0, m, P), matrix(work, 2 * mP + mm, m, m)
    o = 2 * mP + 2 * mm + m * D + m * r
    e, n = work[o:], work[o + m :]
    first = P + P * r
    for i in range(m):
        stretch = 0.0
        for k in range(D):
            u = y[i * D + k]
            rate = e[i] - B[i, i]
            if k < r:
                for p in range(P):
                    theta = parameters[P + p * r + k]
                    rate += parameters[p] * g2(C[i, p]) * theta * theta
            out[i * D + k] = parameters[first + k] * rate - 0.5 * out[m * D + i]
            stretch += parameters[first + k] * u * u
        out[m * D + i] = -4.0 * n[i] * g0(1.0) * stretch


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence max_i C_ip² − ½ (C > 0 only, if the sign matters), then Σ_i n_i g_3(C_ip)/g_3(1) − a_p/2."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    for p in range(P):
        out[p] = -0.5
        out[P + p] = -0.5 * parameters[p]
    for i in range(m):
        share = np.exp(y[m * D + i]) / learned_kernel(1.0)
        for p in range(P):
            c = 0.0
            for k in range(r):
                c += parameters[P + p * r + k] * y[i * D + k]
            if c > 0.0 or sizes[4] == 0:
                out[p] = max(out[p], c * c - 0.5)
            out[P + p] += share * learned_kernel(c)


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """|u_i| = 1, of which rounding would take a neuron that shrinks away."""
    m, D = sizes[0], sizes[2]
    for i in range(m):
        square = 0.0
        for k in range(i * D, i * D + D):
            square += y[k] * y[k]
        for k in range(i * D, i * D + D):
            y[k] /= np.sqrt(square)
