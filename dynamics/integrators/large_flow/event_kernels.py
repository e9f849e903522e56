"""Compiled events of the large-flow solver, the state inside a step, and curvatures of the kernel.

`link` is the data of g, and a state is (U, ln n). The dense output is its coefficients for vectors, (7, m, D), and for
ln n, (7, m).
"""

from __future__ import annotations

import numpy as np

from dynamics.equations.pairs.link import g0, g1, write_g0, write_g2
from dynamics.kernels.arrays import Cube, Integers, Matrix, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.views import row_part

State = tuple[Matrix, Vector]
Dense = tuple[Cube, Matrix]


@entry
def curvatures(link: Vector, overlaps: Vector, out: Vector) -> None:
    """Write |g''(C)| of overlaps C."""
    write_g2(link, overlaps, out)
    for p in range(out.size):
        out[p] = abs(out[p])


@entry
def events_of_rows(link: Vector, U: Matrix, log_n: Vector, a: Vector, sign_matters: bool, out: Vector) -> None:
    """Write the events: max_i C_ip² − ½ (C > 0 only, if the sign matters), then Σ_i n_i g(C_ip)/g(1) − a_p/2."""
    P = a.size
    whole, value = g0(link, 1.0), np.empty(P)
    for p in range(P):
        out[p] = -0.5
        out[P + p] = -0.5 * a[p]
    for i in range(U.shape[0]):
        share = np.exp(log_n[i]) / whole
        C = row_part(U, i, 0, P)
        write_g0(link, C, value)
        for p in range(P):
            c = C[p]
            if c > 0.0 or not sign_matters:
                out[p] = max(out[p], c * c - 0.5)
            out[P + p] += share * value[p]


@entry
def mass_of_rest(
    link: Vector, rows: Integers, p: int, state: tuple[Matrix, Vector, Matrix, Vector], out: Vector
) -> None:
    """Write Σ_i n_i g(C_ip)/g(1) over some rows, and its rate of change; the state has its F and growth."""
    U, log_n, F, growth = state
    whole = g0(link, 1.0)
    out[0] = out[1] = 0.0
    for x in range(rows.size):
        i = rows[x]
        c = U[i, p]
        share, value = np.exp(log_n[i]) / whole, g0(link, c)
        radial = 0.0
        for k in range(U.shape[1]):
            radial += F[i, k] * U[i, k]
        out[0] += share * value
        out[1] += share * (4.0 * growth[i] * value + g1(link, c) * (F[i, p] - radial * c))


@kernel
def inside(dense: Vector, x: float, start: float, end: float) -> float:
    """Return the polynomial of a step at its fraction x, given its seven coefficients; see `interpolate_rows`."""
    value = dense[6]
    for q in range(5, -1, -1):
        value = dense[q] + (x if q % 2 == 1 else 1.0 - x) * value
    y: float = start + x * value + x * x * (3.0 - 2.0 * x) * (end - start - dense[0])
    return y


@entry
def events_inside(
    link: Vector,
    rows: Integers,
    p: int,
    x: float,
    sign_matters: bool,
    begin: State,
    end: State,
    polynomials: Dense,
    out: Vector,
) -> None:
    """Write max C_ip² and Σ n g(C_ip)/g(1) over some rows at the fraction x of a step."""
    (U, log_n), (U_end, log_end), (dense, dense_growth) = begin, end, polynomials
    whole = g0(link, 1.0)
    out[0] = out[1] = 0.0
    for z in range(rows.size):
        i = rows[z]
        c = inside(dense[:, i, p], x, U[i, p], U_end[i, p])
        n = np.exp(inside(dense_growth[:, i], x, log_n[i], log_end[i]))
        if c > 0.0 or not sign_matters:
            out[0] = max(out[0], c * c)
        out[1] += n * g0(link, c) / whole


@entry
def interpolate_rows(first: int, last: int, x: float, begin: State, end: State, polynomials: Dense, out: State) -> None:
    """Write rows first … last − 1 at the fraction x of the step from one state to another, normalised.

    With coefficients b_0 … b_6 it is y + x (b_0 + (1−x)(b_1 + x (b_2 + (1−x)(b_3 + …)))). Where the end was corrected
    after they were written, the correction comes in as x² (3 − 2 x), without a change of slope at either end.
    """
    (U, log_n), (U_end, log_end), (dense, dense_growth), (U_out, log_out) = begin, end, polynomials, out
    D = U.shape[1]
    late = x * x * (3.0 - 2.0 * x)
    for i in range(first, last):
        total = dense_growth[6, i]
        for k in range(D):
            U_out[i, k] = dense[6, i, k]
        for q in range(5, -1, -1):
            factor = x if q % 2 == 1 else 1.0 - x
            total = dense_growth[q, i] + factor * total
            for k in range(D):
                U_out[i, k] = dense[q, i, k] + factor * U_out[i, k]
        log_out[i] = log_n[i] + x * total + late * (log_end[i] - log_n[i] - dense_growth[0, i])
        length = 0.0
        for k in range(D):
            U_out[i, k] = U[i, k] + x * U_out[i, k] + late * (U_end[i, k] - U[i, k] - dense[0, i, k])
            length += U_out[i, k] * U_out[i, k]
        length = 1.0 / np.sqrt(length)
        for k in range(D):
            U_out[i, k] *= length
