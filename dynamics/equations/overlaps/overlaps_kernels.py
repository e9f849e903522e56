"""Compiled kernels of the coupled overlap flow; executed after the rendered link kernels g0 = g, g1 = g', g2 = g''.

State y = [C (m, P) | G (m, m) | ln n (m)], parameters = [a (P) | T (P, P) unless orthonormal], sizes = [m, P,
orthonormal, sign_matters]. The equations are those of `dynamics.equations.overlaps.system`. One right-hand side costs
4 m² P + 2 m³ operations in BLAS products (2 m P² more for a general teacher Gram matrix) and one pass over C and G; a
product with its Jacobian costs twice the m² P and m³ operations.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix, product_until
    from dynamics.equations.pairs.link_kernels import g0, g1, g2, learned_kernel


@kernel
def pair_forces(
    C: Matrix, G: Matrix, y: Vector, a: Vector, A: Matrix, B: Matrix, n: Vector, r: Vector, force: Vector
) -> None:
    """Write A = a g'(C), B = n g'(G), force = Σ_p a g(C) − Σ_j n g(G), r = (A Cᵀ − B G)_ii: one pass over C and G."""
    m, P = C.shape
    for i in range(m):
        n[i] = np.exp(y[y.size - m + i])
    for i in range(m):
        total = radial = 0.0
        for p in range(P):
            slope = a[p] * g1(C[i, p])
            A[i, p] = slope
            total += a[p] * g0(C[i, p])
            radial += slope * C[i, p]
        for j in range(m):
            slope = n[j] * g1(G[i, j])
            B[i, j] = slope
            total -= n[j] * g0(G[i, j])
            radial -= slope * G[i, j]
        force[i] = total
        r[i] = radial


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """C' = A T − B C − diag(r) C, G' = X + Xᵀ − diag(r) G − G diag(r), (ln n)' = 4 [Σ a g(C) − Σ n g(G)]."""
    m, P = sizes[0], sizes[1]
    mP, mm = m * P, m * m
    C, G = matrix(y, 0, m, P), matrix(y, mP, m, m)
    dC, dG, dl = matrix(out, 0, m, P), matrix(out, mP, m, m), out[mP + mm :]
    A, BC = matrix(work, 0, m, P), matrix(work, mP, m, P)
    o = 2 * mP
    B, X, BG = matrix(work, o, m, m), matrix(work, o + mm, m, m), matrix(work, o + 2 * mm, m, m)
    n, r = work[o + 3 * mm :], work[o + 3 * mm + m :]
    pair_forces(C, G, y, parameters, A, B, n, r, dl)
    product_until(A, C.T, X, sizes)
    product_until(B, G, BG, sizes)
    product_until(B, C, BC, sizes)
    AT = A
    if sizes[2] == 0:
        AT = dC
        product_until(A, matrix(parameters, P, P, P), dC, sizes)
    for i in range(m):
        dl[i] *= 4.0
        for p in range(P):
            dC[i, p] = AT[i, p] - BC[i, p] - r[i] * C[i, p]
        dG[i, i] = 0.0
        for j in range(i):
            rate = X[i, j] + X[j, i] - BG[i, j] - BG[j, i] - (r[i] + r[j]) * G[i, j]
            dG[i, j] = rate
            dG[j, i] = rate


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Exact diagonal of the Jacobian, an entry of the symmetric G counted as one variable."""
    m, P = sizes[0], sizes[1]
    mP, mm = m * P, m * m
    C, G = matrix(y, 0, m, P), matrix(y, mP, m, m)
    dC, dG, dl = matrix(out, 0, m, P), matrix(out, mP, m, m), out[mP + mm :]
    A, B = matrix(work, 0, m, P), matrix(work, mP, m, m)
    n, r = work[mP + mm :], work[mP + mm + m :]
    pair_forces(C, G, y, parameters, A, B, n, r, dl)
    for i in range(m):
        own = B[i, i] + r[i]
        for p in range(P):
            bend = parameters[p] * g2(C[i, p])
            dC[i, p] = bend - own - C[i, p] * (bend * C[i, p] + A[i, p])
        dG[i, i] = 0.0
        for j in range(i):
            s = G[i, j]
            mass = n[i] + n[j]
            rate = -own - B[j, j] - r[j] - mass * g2(s) + s * mass * (g2(s) * s + g1(s))
            dG[i, j] = rate
            dG[j, i] = rate
        dl[i] = -4.0 * n[i] * g0(1.0)


@kernel
def pair_forces_along(
    C: Matrix,
    G: Matrix,
    dC: Matrix,
    dG: Matrix,
    y: Vector,
    v: Vector,
    a: Vector,
    A: Matrix,
    dA: Matrix,
    B: Matrix,
    dB: Matrix,
    n: Vector,
    r: Vector,
    dr: Vector,
    dforce: Vector,
) -> None:
    """Write A, B, n, r of `pair_forces` and the derivatives of A, B, r, force along v = [dC | dG | d ln n]."""
    m, P = C.shape
    first = y.size - m
    for i in range(m):
        n[i] = np.exp(y[first + i])
    for i in range(m):
        total = radial = turn = 0.0
        for p in range(P):
            slope, bend = a[p] * g1(C[i, p]), a[p] * g2(C[i, p]) * dC[i, p]
            A[i, p] = slope
            dA[i, p] = bend
            total += slope * dC[i, p]
            radial += slope * C[i, p]
            turn += bend * C[i, p] + slope * dC[i, p]
        for j in range(m):
            slope = n[j] * g1(G[i, j])
            bend = n[j] * g2(G[i, j]) * dG[i, j] + slope * v[first + j]
            B[i, j] = slope
            dB[i, j] = bend
            total -= slope * dG[i, j] + n[j] * g0(G[i, j]) * v[first + j]
            radial -= slope * G[i, j]
            turn -= bend * G[i, j] + slope * dG[i, j]
        dforce[i] = total
        r[i] = radial
        dr[i] = turn


@kernel
def jacobian_product(
    t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """Write the derivative of `rhs` along v = [dC | dG | d ln n] with dG symmetric.

    dC' = dA T − dB C − B dC − dr C − r dC and dG' = dX + dXᵀ − (dr_i + dr_j) G − (r_i + r_j) dG, where
    dX = dA Cᵀ + A dCᵀ − dB G − B dG.
    """
    m, P = sizes[0], sizes[1]
    mP, mm = m * P, m * m
    C, G, dC, dG = matrix(y, 0, m, P), matrix(y, mP, m, m), matrix(v, 0, m, P), matrix(v, mP, m, m)
    oC, oG, ol = matrix(out, 0, m, P), matrix(out, mP, m, m), out[mP + mm :]
    A, dA, BdC, dBC = (
        matrix(work, 0, m, P),
        matrix(work, mP, m, P),
        matrix(work, 2 * mP, m, P),
        matrix(work, 3 * mP, m, P),
    )
    o = 4 * mP
    B, dB, dAC = matrix(work, o, m, m), matrix(work, o + mm, m, m), matrix(work, o + 2 * mm, m, m)
    AdC, dBG, BdG = matrix(work, o + 3 * mm, m, m), matrix(work, o + 4 * mm, m, m), matrix(work, o + 5 * mm, m, m)
    o += 6 * mm
    n, r, dr = work[o:], work[o + m :], work[o + 2 * m :]
    pair_forces_along(C, G, dC, dG, y, v, parameters, A, dA, B, dB, n, r, dr, ol)
    product_until(dA, C.T, dAC, sizes)
    product_until(A, dC.T, AdC, sizes)
    product_until(dB, G, dBG, sizes)
    product_until(B, dG, BdG, sizes)
    product_until(dB, C, dBC, sizes)
    product_until(B, dC, BdC, sizes)
    dAT = dA
    if sizes[2] == 0:
        dAT = oC
        product_until(dA, matrix(parameters, P, P, P), oC, sizes)
    for i in range(m):
        ol[i] *= 4.0
        for p in range(P):
            oC[i, p] = dAT[i, p] - dBC[i, p] - BdC[i, p] - dr[i] * C[i, p] - r[i] * dC[i, p]
        for j in range(m):
            dAC[i, j] += AdC[i, j] - dBG[i, j] - BdG[i, j]
    for i in range(m):
        oG[i, i] = 0.0
        for j in range(i):
            rate = dAC[i, j] + dAC[j, i] - (dr[i] + dr[j]) * G[i, j] - (r[i] + r[j]) * dG[i, j]
            oG[i, j] = rate
            oG[j, i] = rate


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence max_i C_ip² − ½ (C > 0 only, if the sign matters), then Σ_i n_i g_3(C_ip)/g_3(1) − a_p/2."""
    m, P = sizes[0], sizes[1]
    C = matrix(y, 0, m, P)
    first = m * P + m * m
    for p in range(P):
        out[p] = -0.5
        out[P + p] = -0.5 * parameters[p]
    for i in range(m):
        share = np.exp(y[first + i]) / learned_kernel(1.0)
        for p in range(P):
            c = C[i, p]
            if c > 0.0 or sizes[3] == 0:
                out[p] = max(out[p], c * c - 0.5)
            out[P + p] += share * learned_kernel(c)


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """|u_i| = 1: rounding aside G_ii is conserved, so it is simply kept at 1."""
    m = sizes[0]
    first = m * sizes[1]
    for i in range(m):
        y[first + i * m + i] = 1.0
