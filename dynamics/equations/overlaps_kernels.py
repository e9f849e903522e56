"""Compiled functions of the coupled overlap flow.

State y = [C (m, P) | G (m, m) | ln n (m)], parameters = [a (P) | T (P, P) unless orthonormal | data of the link],
sizes = [m, P, orthonormal, sign_matters, place of the link]. The equations are those of
`dynamics.equations.overlaps`. One right-hand side costs 4 m² P + 2 m³ operations in BLAS products (2 m P² more
for a general teacher Gram matrix) and one pass over C and G; a product with its Jacobian costs twice the m² P and m³
operations.
"""

import numpy as np

from dynamics.equations.pairs.link import (
    g0,
    learned_kernel,
    link_at,
    write_both,
    write_g0,
    write_g1,
    write_g2,
    write_learned,
)
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.products import product_until
from dynamics.kernels.views import matrix, vector

LINK = 4


@kernel
def add_rows(
    sign: float, weights: Vector, overlaps: Matrix, values: Matrix, slopes: Matrix, force: Vector, r: Vector
) -> None:
    """Multiply slopes g' by weights of columns; write sign · Σ weight g and sign · Σ weight g' overlap of each row.

    With sign −1 they are added to what is there.
    """
    for i in range(slopes.shape[0]):
        total = radial = 0.0
        for j in range(slopes.shape[1]):
            slope = weights[j] * slopes[i, j]
            slopes[i, j] = slope
            total += weights[j] * values[i, j]
            radial += slope * overlaps[i, j]
        force[i] = total if sign > 0.0 else force[i] - total
        r[i] = radial if sign > 0.0 else r[i] - radial


@kernel
def pair_forces(
    link: Vector, y: Vector, a: Vector, A: Vector, B: Vector, n: Vector, r: Vector, force: Vector, values: Vector
) -> None:
    """Write A = a g'(C), B = n g'(G), force = Σ_p a g(C) − Σ_j n g(G), r = (A Cᵀ − B G)_ii.

    `values` is scratch for as many numbers as the larger of C and G has.
    """
    m = n.size
    P = A.size // m
    for i in range(m):
        n[i] = np.exp(y[y.size - m + i])
    write_both(link, vector(y, 0, m * P), values, A)
    add_rows(1.0, a, matrix(y, 0, m, P), matrix(values, 0, m, P), matrix(A, 0, m, P), force, r)
    write_both(link, vector(y, m * P, m * m), values, B)
    add_rows(-1.0, n, matrix(y, m * P, m, m), matrix(values, 0, m, m), matrix(B, 0, m, m), force, r)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """C' = A T − B C − diag(r) C, G' = X + Xᵀ − diag(r) G − G diag(r), (ln n)' = 4 [Σ a g(C) − Σ n g(G)]."""
    m, P = sizes[0], sizes[1]
    mP, mm = m * P, m * m
    C, G = matrix(y, 0, m, P), matrix(y, mP, m, m)
    dC, dG, dl = matrix(out, 0, m, P), matrix(out, mP, m, m), vector(out, mP + mm, m)
    A, BC = matrix(work, 0, m, P), matrix(work, mP, m, P)
    o = 2 * mP
    B, X, BG = matrix(work, o, m, m), matrix(work, o + mm, m, m), matrix(work, o + 2 * mm, m, m)
    n, r = vector(work, o + 3 * mm, m), vector(work, o + 3 * mm + m, m)
    values = vector(work, o + 3 * mm + 2 * m, max(mP, mm))
    link = link_at(parameters, sizes[LINK])
    pair_forces(link, y, parameters, vector(work, 0, mP), vector(work, o, mm), n, r, dl, values)
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
    dC, dG, dl = matrix(out, 0, m, P), matrix(out, mP, m, m), vector(out, mP + mm, m)
    A, B = matrix(work, 0, m, P), matrix(work, mP, m, m)
    n, r = vector(work, mP + mm, m), vector(work, mP + mm + m, m)
    link = link_at(parameters, sizes[LINK])
    values = vector(work, mP + mm + 2 * m, max(mP, mm))
    pair_forces(link, y, parameters, vector(work, 0, mP), vector(work, mP, mm), n, r, dl, values)
    write_g2(link, vector(y, 0, mP), vector(out, 0, mP))
    write_g2(link, vector(y, mP, mm), vector(out, mP, mm))
    own_value = g0(link, 1.0)
    for i in range(m):
        own = B[i, i] + r[i]
        for p in range(P):
            bend = parameters[p] * dC[i, p]
            dC[i, p] = bend - own - C[i, p] * (bend * C[i, p] + A[i, p])
        dG[i, i] = 0.0
        for j in range(i):
            s, bend = G[i, j], dG[i, j]
            mass = n[i] + n[j]
            # B_ij + B_ji = (n_i + n_j) g'(s).
            rate = -own - B[j, j] - r[j] - mass * bend + s * (mass * bend * s + B[i, j] + B[j, i])
            dG[i, j] = rate
            dG[j, i] = rate
        dl[i] = -4.0 * n[i] * own_value


@kernel
def write_forces_along(
    link: Vector, y: Vector, v: Vector, a: Vector, A: Vector, dA: Vector, B: Vector, dB: Vector, n: Vector,
    values: Vector,
) -> None:  # fmt: skip
    """Write A, B and n of `pair_forces`, and the derivatives of A and B along v = [dC | dG | d ln n].

    `values` becomes g(G).
    """
    m = n.size
    P = A.size // m
    first = y.size - m
    C, G = vector(y, 0, m * P), vector(y, m * P, m * m)
    for i in range(m):
        n[i] = np.exp(y[first + i])
    write_g1(link, C, A)
    write_g2(link, C, dA)
    write_g1(link, G, B)
    write_g2(link, G, dB)
    write_g0(link, G, values)
    for i in range(m):
        for p in range(P):
            A[i * P + p] *= a[p]
            dA[i * P + p] *= a[p] * v[i * P + p]
        for j in range(m):
            B[i * m + j] *= n[j]
            dB[i * m + j] = n[j] * dB[i * m + j] * v[m * P + i * m + j] + B[i * m + j] * v[first + j]


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
    first = mP + mm
    C, G, dC, dG = matrix(y, 0, m, P), matrix(y, mP, m, m), matrix(v, 0, m, P), matrix(v, mP, m, m)
    oC, oG, ol = matrix(out, 0, m, P), matrix(out, mP, m, m), vector(out, first, m)
    A, dA, BdC, dBC = (
        matrix(work, 0, m, P),
        matrix(work, mP, m, P),
        matrix(work, 2 * mP, m, P),
        matrix(work, 3 * mP, m, P),
    )
    o = 4 * mP
    B, dB, dAC = matrix(work, o, m, m), matrix(work, o + mm, m, m), matrix(work, o + 2 * mm, m, m)
    AdC, dBG, BdG = matrix(work, o + 3 * mm, m, m), matrix(work, o + 4 * mm, m, m), matrix(work, o + 5 * mm, m, m)
    n, r, dr = vector(work, o + 6 * mm, m), vector(work, o + 6 * mm + m, m), vector(work, o + 6 * mm + 2 * m, m)
    write_forces_along(
        link_at(parameters, sizes[LINK]), y, v, parameters, vector(work, 0, mP), vector(work, mP, mP),
        vector(work, o, mm), vector(work, o + mm, mm), n, vector(work, o + 2 * mm, mm),
    )  # fmt: skip
    for i in range(m):
        total = radial = turn = 0.0
        for p in range(P):
            total += A[i, p] * dC[i, p]
            radial += A[i, p] * C[i, p]
            turn += dA[i, p] * C[i, p] + A[i, p] * dC[i, p]
        for j in range(m):
            # dAC holds g(G).
            total -= B[i, j] * dG[i, j] + n[j] * dAC[i, j] * v[first + j]
            radial -= B[i, j] * G[i, j]
            turn -= dB[i, j] * G[i, j] + B[i, j] * dG[i, j]
        ol[i] = 4.0 * total
        r[i] = radial
        dr[i] = turn
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
    C, masses = matrix(y, 0, m, P), matrix(work, 0, m, P)
    link = link_at(parameters, sizes[LINK])
    write_learned(link, vector(y, 0, m * P), vector(work, 0, m * P))
    whole, first = learned_kernel(link, 1.0), m * P + m * m
    for p in range(P):
        out[p] = -0.5
        out[P + p] = -0.5 * parameters[p]
    for i in range(m):
        share = np.exp(y[first + i]) / whole
        for p in range(P):
            c = C[i, p]
            if c > 0.0 or sizes[3] == 0:
                out[p] = max(out[p], c * c - 0.5)
            out[P + p] += share * masses[i, p]


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """|u_i| = 1: rounding aside G_ii is conserved, so it is simply kept at 1."""
    m = sizes[0]
    first = m * sizes[1]
    for i in range(m):
        y[first + i * m + i] = 1.0
