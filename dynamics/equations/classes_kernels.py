"""Compiled functions of the overlap flow on inputs of covariance Σ.

State y = [U (m, D) | ln n (m)], parameters = [a (P) | Θ (P, r) | s (D) | data of the link], sizes = [m, P, D, r,
sign_matters, place of the link]. The equations are those of `dynamics.equations.classes`. One right-hand side
costs 4 m² D + 4 m P r operations.
"""

import numpy as np

from dynamics.equations.pairs.link import g0, learned_kernel, link_at, write_both, write_g2
from dynamics.kernels.arrays import Integers, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.products import product_until
from dynamics.kernels.views import matrix, vector

LINK = 5


@kernel
def class_forces(y: Vector, parameters: Vector, sizes: Integers, work: Vector, e: Vector, n: Vector) -> None:
    """Write e of the system and n, and C, G, A = a g'(C), B = n g'(G), g(C) and g(G) to `work`."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    mP, mm = m * P, m * m
    both = mP + mm
    U, rows, link = matrix(y, 0, m, D), matrix(parameters, P, P, r), link_at(parameters, sizes[LINK])
    C, G = matrix(work, 0, m, P), matrix(work, mP, m, m)
    A, B = matrix(work, both, m, P), matrix(work, both + mP, m, m)
    toward, apart = matrix(work, 2 * both, m, P), matrix(work, 2 * both + mP, m, m)
    product_until(U, U.T, G, sizes)
    for i in range(m):
        n[i] = np.exp(y[m * D + i])
        for p in range(P):
            c = 0.0
            for k in range(r):
                c += rows[p, k] * U[i, k]
            C[i, p] = c
    write_both(link, vector(work, 0, both), vector(work, 2 * both, both), vector(work, both, both))
    for i in range(m):
        total = 0.0
        for p in range(P):
            A[i, p] *= parameters[p]
            total += 2.0 * parameters[p] * toward[i, p] - A[i, p] * C[i, p]
        for j in range(m):
            B[i, j] *= n[j]
            total += B[i, j] * G[i, j] - 2.0 * n[j] * apart[i, j]
        e[i] = total


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """U' = Y diag(s) − diag(ℓ'/2) U, ℓ' = (ln n)' = 2 Σ_l s_l U_il Y_il, Y = diag(e) U − B U + A Θ."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    both = m * P + m * m
    A, B = matrix(work, both, m, P), matrix(work, both + m * P, m, m)
    o = 3 * both
    BU, toward = matrix(work, o, m, D), matrix(work, o + m * D, m, r)
    o += m * D + m * r
    e, n = vector(work, o, m), vector(work, o + m, m)
    class_forces(y, parameters, sizes, work, e, n)
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
    both = m * P + m * m
    B, bend = matrix(work, both + m * P, m, m), matrix(work, 2 * both, m, P)
    o = 3 * both + m * D + m * r
    e, n = vector(work, o, m), vector(work, o + m, m)
    link, first = link_at(parameters, sizes[LINK]), P + P * r
    own = g0(link, 1.0)
    write_g2(link, vector(work, 0, m * P), vector(work, 2 * both, m * P))
    for i in range(m):
        stretch = 0.0
        for k in range(D):
            u = y[i * D + k]
            rate = e[i] - B[i, i]
            if k < r:
                for p in range(P):
                    theta = parameters[P + p * r + k]
                    rate += parameters[p] * bend[i, p] * theta * theta
            out[i * D + k] = parameters[first + k] * rate - 0.5 * out[m * D + i]
            stretch += parameters[first + k] * u * u
        out[m * D + i] = -4.0 * n[i] * own * stretch


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence max_i C_ip² − ½ (C > 0 only, if the sign matters), then Σ_i n_i g_3(C_ip)/g_3(1) − a_p/2."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    link = link_at(parameters, sizes[LINK])
    whole = learned_kernel(link, 1.0)
    for p in range(P):
        out[p] = -0.5
        out[P + p] = -0.5 * parameters[p]
    for i in range(m):
        share = np.exp(y[m * D + i]) / whole
        for p in range(P):
            c = 0.0
            for k in range(r):
                c += parameters[P + p * r + k] * y[i * D + k]
            if c > 0.0 or sizes[4] == 0:
                out[p] = max(out[p], c * c - 0.5)
            out[P + p] += share * learned_kernel(link, c)


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


# Compiled functions of the flow in weights, whose Euler steps are gradient descent.
#
# State y = [Ŵ (m, D)]; parameters and sizes are those of the flow in unit vectors, which does the work.


@kernel
def write_units(y: Vector, sizes: Integers, state: Vector) -> None:
    """Write unit vectors and ln n of weights."""
    m, D = sizes[0], sizes[2]
    for i in range(m):
        square = 0.0
        for k in range(i * D, i * D + D):
            square += y[k] * y[k]
        state[m * D + i] = np.log(square)
        for k in range(i * D, i * D + D):
            state[k] = y[k] / np.sqrt(square)


@kernel
def descent_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """ŵ' = ρ (u' + ½ (ln n)' u)."""
    m, D = sizes[0], sizes[2]
    size = m * D + m
    state, rate = vector(work, 0, size), vector(work, size, size)
    write_units(y, sizes, state)
    rhs(t, state, rate, parameters, sizes, vector(work, 2 * size, work.size - 2 * size))
    for i in range(m):
        rho = np.exp(0.5 * state[m * D + i])
        for k in range(i * D, i * D + D):
            out[k] = rho * (rate[k] + 0.5 * rate[m * D + i] * state[k])


@kernel
def descent_event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence and learned mass of the flow."""
    size = sizes[0] * sizes[2] + sizes[0]
    state = vector(work, 0, size)
    write_units(y, sizes, state)
    event_values(t, state, out, parameters, sizes, vector(work, size, work.size - size))


@kernel
def leave_weights(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Weights are free."""
