"""Compiled kernels of the coupled flow on unit vectors; executed after `neuron_products_kernels` and the link's.

The link's kernels are g0 = g, g1 = g' and g2 = g''.

State y = [U (m, D) | ln n (m)], sizes = [m, P, D, rows of θ, sign_matters], parameters = [a (P) | θ (P, D) | θ² (P, D)]
or, with no row of θ, [a (P)]: the teacher's directions are the first P axes. The equations are those of
`dynamics.equations.pairs.vectors`. One right-hand side costs 4 m² D operations in BLAS products, a product with its
Jacobian 10 m² D; a general teacher adds 4 m P D to the one and 8 m P D to the other.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import kernel
from dynamics.compiler.numbers import larger
from dynamics.compiler.views import vector

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import is_stopped, matrix
    from dynamics.equations.pairs.link_kernels import g0, g1, g2, learned_kernel
    from dynamics.equations.pairs.neuron_products_kernels import add_pull, multiply, pair_products, project


@kernel
def forces(
    y: Vector,
    U: Matrix,
    a: Vector,
    teacher: Matrix,
    A: Matrix,
    B: Matrix,
    n: Vector,
    F: Matrix,
    growth: Vector,
    sizes: Integers,
) -> None:
    """Write A = a g'(C), B_ij = −n_j g'(G_ij) without diagonal, F = A θ + B U, Σ_p a g(C) − Σ_j n_j g(G)."""
    m, P = A.shape
    for i in range(m):
        n[i] = np.exp(y[y.size - m + i])
    pair_products(U, U, B, sizes)
    project(U, teacher, A, sizes)
    if is_stopped(sizes):
        return
    for i in range(m):
        # The force of a neuron on itself is radial, and its own part of the growth that of a unit vector.
        total = n[i] * (g0(B[i, i]) - g0(1.0))
        for j in range(m):
            s = B[i, j]
            total -= n[j] * g0(s)
            B[i, j] = -n[j] * g1(s)
        B[i, i] = 0.0
        for p in range(P):
            s = A[i, p]
            total += a[p] * g0(s)
            A[i, p] = a[p] * g1(s)
        growth[i] = total
    multiply(B, U, F, sizes)
    add_pull(A, teacher, F)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write u' = F − (F·u) u, (ln n)' = 4 [Σ_p a g(C) − Σ_j n g(G)]."""
    m, P, D = sizes[0], sizes[1], sizes[2]
    U, F, growth = matrix(y, 0, m, D), matrix(out, 0, m, D), vector(out, m * D, m)
    A, B, n = matrix(work, 0, m, P), matrix(work, m * P, m, m), vector(work, m * P + m * m, m)
    forces(y, U, parameters, matrix(parameters, P, sizes[3], D), A, B, n, F, growth, sizes)
    for i in range(m):
        growth[i] *= 4.0
        radial = 0.0
        for k in range(D):
            radial += F[i, k] * U[i, k]
        for k in range(D):
            F[i, k] -= radial * U[i, k]


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Diagonal of the Jacobian, H u_k ≈ H_kk u_k: (1 − u_k²) H_kk − u_k F_k − F·u with H = ∂F/∂u.

    H_kk = Σ_p a_p g''(C_p) θ_pk² − Σ_{j≠i} n_j g''(G_ij) u_jk². What it leaves out matters where a neuron is in motion.
    """
    m, P, D = sizes[0], sizes[1], sizes[2]
    a, teacher = parameters, matrix(parameters, P, sizes[3], D)
    U, bend, growth = matrix(y, 0, m, D), matrix(out, 0, m, D), vector(out, m * D, m)
    o, q = m * P, m * P + m * m + m
    A, B, n = matrix(work, 0, m, P), matrix(work, o, m, m), vector(work, o + m * m, m)
    F, squares = matrix(work, q, m, D), matrix(work, q + m * D, m, D)
    forces(y, U, a, teacher, A, B, n, F, growth, sizes)
    pair_products(U, U, B, sizes)
    for i in range(m):
        for j in range(m):
            B[i, j] = -n[j] * g2(B[i, j])
        B[i, i] = 0.0
        for k in range(D):
            squares[i, k] = U[i, k] * U[i, k]
    multiply(B, squares, bend, sizes)
    project(U, teacher, A, sizes)
    for i in range(m):
        for p in range(P):
            A[i, p] = a[p] * g2(A[i, p])
    add_pull(A, matrix(parameters, P + sizes[3] * D, sizes[3], D), bend)
    for i in range(m):
        radial = 0.0
        for k in range(D):
            radial += F[i, k] * U[i, k]
        for k in range(D):
            bend[i, k] = (1.0 - squares[i, k]) * bend[i, k] - U[i, k] * F[i, k] - radial
        growth[i] = -4.0 * n[i] * g0(1.0)


@kernel
def jacobian_product(
    t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """Write the derivative of `rhs` along v = [dU | d ln n].

    dF = dA θ + dB U + B dU with dA = a g''(C) dC, dB_ij = −n_j (g''(G) dG + g'(G) d ln n_j), dG = dU Uᵀ + U dUᵀ. No
    difference of nearly equal forces is taken, so that products stay accurate however slow v is.
    """
    m, P, D = sizes[0], sizes[1], sizes[2]
    a, teacher, lead = parameters, matrix(parameters, P, sizes[3], D), m * D
    U, V, dF, rate = matrix(y, 0, m, D), matrix(v, 0, m, D), matrix(out, 0, m, D), vector(out, lead, m)
    o, q = m * P, m * P + m * m + m
    A, B, n = matrix(work, 0, m, P), matrix(work, o, m, m), vector(work, o + m * m, m)
    F, BdU, r = matrix(work, q, m, D), matrix(work, q + m * D, m, D), q + 2 * m * D
    dB, dA = matrix(work, r, m, m), matrix(work, r + m * m, m, P)
    pair_products(U, U, B, sizes)
    pair_products(V, U, dB, sizes)
    project(U, teacher, A, sizes)
    project(V, teacher, dA, sizes)
    for i in range(m):
        n[i] = np.exp(y[lead + i])
        for j in range(i):
            dB[i, j] += dB[j, i]
            dB[j, i] = dB[i, j]
        dB[i, i] = 0.0
    for i in range(m):
        total = n[i] * (g0(B[i, i]) - g0(1.0)) * v[lead + i]
        for j in range(m):
            s, turn, mass = B[i, j], dB[i, j], v[lead + j]
            slope = g1(s)
            total -= n[j] * (slope * turn + g0(s) * mass)
            B[i, j] = -n[j] * slope
            dB[i, j] = -n[j] * (g2(s) * turn + slope * mass)
        B[i, i] = dB[i, i] = 0.0
        for p in range(P):
            s, turn = A[i, p], dA[i, p]
            A[i, p] = a[p] * g1(s)
            dA[i, p] = a[p] * g2(s) * turn
            total += A[i, p] * turn
        rate[i] = 4.0 * total
    multiply(B, U, F, sizes)
    multiply(dB, U, dF, sizes)
    multiply(B, V, BdU, sizes)
    add_pull(A, teacher, F)
    add_pull(dA, teacher, dF)
    for i in range(m):
        radial = change = 0.0
        for k in range(D):
            dF[i, k] += BdU[i, k]
            radial += F[i, k] * U[i, k]
            change += dF[i, k] * U[i, k] + F[i, k] * V[i, k]
        for k in range(D):
            dF[i, k] -= change * U[i, k] + radial * V[i, k]


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence max_i C_ip² − ½ (C > 0 only, if the sign matters), then Σ_i n_i g_3(C_ip)/g_3(1) − a_p/2."""
    m, P, D = sizes[0], sizes[1], sizes[2]
    C = matrix(work, 0, m, P)
    project(matrix(y, 0, m, D), matrix(parameters, P, sizes[3], D), C, sizes)
    for p in range(P):
        out[p] = -0.5
        out[P + p] = -0.5 * parameters[p]
    for i in range(m):
        share = np.exp(y[m * D + i]) / learned_kernel(1.0)
        for p in range(P):
            c = C[i, p]
            if c > 0.0 or sizes[4] == 0:
                out[p] = larger(out[p], c * c - 0.5)
            out[P + p] += share * learned_kernel(c)


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Scale every u_i to length 1."""
    m, D = sizes[0], sizes[2]
    U = matrix(y, 0, m, D)
    for i in range(m):
        total = 0.0
        for k in range(D):
            total += U[i, k] * U[i, k]
        scale = 1.0 / np.sqrt(total)
        for k in range(D):
            U[i, k] *= scale
