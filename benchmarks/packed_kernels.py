"""The flow as a library sees it at its fastest: h_2 and h_4 only, no symmetric entry stored twice, compiled functions.

State y = [C (m, P) | G_ij for i < j | ln n (m)], m P + m (m − 1)/2 + m numbers, about 3/4 of what the program's own
state holds: dense factorisations cost 0.4 times as much, Krylov vectors 0.75 times. The link is written out,
g(s) = (b + c s²) s², where the program evaluates the series of any link; (b, c) is `link`.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Link = tuple[float, float]

compiled = njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})


@compiled
def unpack(y: Vector, m: int, P: int, G: Matrix) -> None:
    """Write the symmetric G with its unit diagonal."""
    at = m * P
    for i in range(m):
        G[i, i] = 1.0
        for j in range(i + 1, m):
            G[i, j] = y[at]
            G[j, i] = y[at]
            at += 1


@compiled
def rhs(y: Vector, out: Vector, a: Vector, link: Link, m: int, P: int, work: Vector) -> None:
    """C' = A − B C − diag(r) C, G' = X + Xᵀ − diag(r) G − G diag(r), (ln n)' = 4 [Σ a g(C) − Σ n g(G)]."""
    mP, mm = m * P, m * m
    C = y[:mP].reshape(m, P)
    dC = out[:mP].reshape(m, P)
    A = work[:mP].reshape(m, P)
    BC = work[mP : 2 * mP].reshape(m, P)
    o = 2 * mP
    G = work[o : o + mm].reshape(m, m)
    B = work[o + mm : o + 2 * mm].reshape(m, m)
    X = work[o + 2 * mm : o + 3 * mm].reshape(m, m)
    BG = work[o + 3 * mm : o + 4 * mm].reshape(m, m)
    n = work[o + 4 * mm : o + 4 * mm + m]
    unpack(y, m, P, G)
    first = y.size - m
    square, fourth = link
    twice, four = 2.0 * square, 4.0 * fourth
    for i in range(m):
        n[i] = np.exp(y[first + i])
    for i in range(m):
        force = 0.0
        for p in range(P):
            c = C[i, p]
            q, weight = c * c, a[p] * c
            A[i, p] = weight * (twice + four * q)
            force += weight * (square + fourth * q) * c
        for j in range(m):
            s = G[i, j]
            q, weight = s * s, n[j] * s
            B[i, j] = weight * (twice + four * q)
            force -= weight * (square + fourth * q) * s
        out[first + i] = 4.0 * force
    np.dot(A, C.T, X)
    np.dot(B, G, BG)
    np.dot(B, C, BC)
    for i in range(m):
        X[i, i] -= BG[i, i]
    at = mP
    for i in range(m):
        r = X[i, i]
        for p in range(P):
            dC[i, p] = A[i, p] - BC[i, p] - r * C[i, p]
        for j in range(i + 1, m):
            out[at] = X[i, j] + X[j, i] - BG[i, j] - BG[j, i] - (r + X[j, j]) * G[i, j]
            at += 1


@compiled
def jacobian_diagonal(y: Vector, out: Vector, a: Vector, link: Link, m: int, P: int, work: Vector) -> None:
    """Write the exact diagonal of the Jacobian, for the preconditioner 1 / (1 − γ J_ii)."""
    mP, mm = m * P, m * m
    C = y[:mP].reshape(m, P)
    diagonal = out[:mP].reshape(m, P)
    G = work[:mm].reshape(m, m)
    n = work[mm : mm + m]
    r = work[mm + m : mm + 2 * m]
    unpack(y, m, P, G)
    first = y.size - m
    for i in range(m):
        n[i] = np.exp(y[first + i])
    for i in range(m):
        r[i] = 0.0
        for p in range(P):
            r[i] += a[p] * turn(C[i, p] ** 2, link)
        for j in range(m):
            r[i] -= n[j] * turn(G[i, j] ** 2, link)
    at = mP
    for i in range(m):
        own = n[i] * turn(1.0, link) + r[i]
        for p in range(P):
            square = C[i, p] * C[i, p]
            diagonal[i, p] = a[p] * (bend(square, link) - change(square, link)) - own
        for j in range(i + 1, m):
            square = G[i, j] * G[i, j]
            mass = n[i] + n[j]
            out[at] = -own - n[j] * turn(1.0, link) - r[j] - mass * (bend(square, link) - change(square, link))
            at += 1
        out[first + i] = -4.0 * (link[0] + link[1]) * n[i]


@compiled
def turn(q: float, link: Link) -> float:
    """Return s g'(s) at s² = q."""
    return (2.0 * link[0] + 4.0 * link[1] * q) * q


@compiled
def bend(q: float, link: Link) -> float:
    """Return g''(s) at s² = q."""
    return 2.0 * link[0] + 12.0 * link[1] * q


@compiled
def change(q: float, link: Link) -> float:
    """Return s (s g'(s))' at s² = q."""
    return (4.0 * link[0] + 16.0 * link[1] * q) * q


@compiled
def largest_square(y: Vector, out: Vector, m: int, P: int) -> None:
    """Write max_i C_ip² − ½ per direction: a direction emerges when it rises through 0."""
    C = y[: m * P].reshape(m, P)
    for p in range(P):
        out[p] = -0.5
    for i in range(m):
        for p in range(P):
            out[p] = max(out[p], C[i, p] * C[i, p] - 0.5)


@compiled
def loss(y: Vector, a: Vector, link: Link, m: int, P: int, work: Vector) -> float:
    """Return g(1) Σ_p a_p² − 2 Σ_ip n_i a_p g(C_ip) + Σ_ij n_i n_j g(G_ij)."""
    C = y[: m * P].reshape(m, P)
    G = work[: m * m].reshape(m, m)
    unpack(y, m, P, G)
    n = np.exp(y[y.size - m :])
    b, c = link
    total = (b + c) * np.sum(a * a)
    for i in range(m):
        for p in range(P):
            total -= 2.0 * n[i] * a[p] * (b + c * C[i, p] ** 2) * C[i, p] ** 2
        for j in range(m):
            total += n[i] * n[j] * (b + c * G[i, j] ** 2) * G[i, j] ** 2
    return total


@compiled
def precondition(r: Vector, diagonal: Vector, gamma: float, out: Vector) -> None:
    """Write r / (1 − γ J_ii); modes that grow are cut at γ J_ii = ½, where the quotient would change sign."""
    for i in range(r.size):
        out[i] = r[i] / (1.0 - min(gamma * diagonal[i], 0.5))
