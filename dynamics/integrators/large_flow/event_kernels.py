"""Compiled events of the large-flow solver, the state inside a step, and curvatures of the kernel.

Executed after the link kernels.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Cube, Integers, Matrix, Vector
from dynamics.compiler.compilation import entry, kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.link_kernels import g0, g1, g2


@entry("void(f8[::1])")
def curvatures(overlaps: Vector) -> None:
    """Replace overlaps C by |g''(C)|."""
    for p in range(overlaps.size):
        overlaps[p] = abs(g2(overlaps[p]))


@entry("void(f8[:,::1], f8[::1], f8[::1], b1, f8[::1])")
def events_of_rows(U: Matrix, log_n: Vector, a: Vector, sign_matters: bool, out: Vector) -> None:
    """Write the events: max_i C_ip² − ½ (C > 0 only, if the sign matters), then Σ_i n_i g(C_ip)/g(1) − a_p/2."""
    P = a.size
    for p in range(P):
        out[p] = -0.5
        out[P + p] = -0.5 * a[p]
    for i in range(U.shape[0]):
        share = np.exp(log_n[i]) / g0(1.0)
        for p in range(P):
            c = U[i, p]
            if c > 0.0 or not sign_matters:
                out[p] = max(out[p], c * c - 0.5)
            out[P + p] += share * g0(c)


@entry("void(i8[::1], i8, f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[::1])")
def mass_of_rest(rows: Integers, p: int, U: Matrix, log_n: Vector, F: Matrix, growth: Vector, out: Vector) -> None:
    """Write Σ_i n_i g(C_ip)/g(1) over some rows, and its rate of change."""
    out[0] = out[1] = 0.0
    for x in range(rows.size):
        i = rows[x]
        c = U[i, p]
        share = np.exp(log_n[i]) / g0(1.0)
        radial = 0.0
        for k in range(U.shape[1]):
            radial += F[i, k] * U[i, k]
        out[0] += share * g0(c)
        out[1] += share * (4.0 * growth[i] * g0(c) + g1(c) * (F[i, p] - radial * c))


@kernel
def inside(dense: Vector, x: float, start: float, end: float) -> float:
    """Return the polynomial of a step at its fraction x, given its seven coefficients; see `interpolate_rows`."""
    value = dense[6]
    for q in range(5, -1, -1):
        value = dense[q] + (x if q % 2 == 1 else 1.0 - x) * value
    y: float = start + x * value + x * x * (3.0 - 2.0 * x) * (end - start - dense[0])
    return y


@entry("void(i8[::1], i8, f8, b1, f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], f8[::1])")
def events_inside(
    rows: Integers,
    p: int,
    x: float,
    sign_matters: bool,
    U: Matrix,
    log_n: Vector,
    U_end: Matrix,
    log_end: Vector,
    dense: Cube,
    dense_growth: Matrix,
    out: Vector,
) -> None:
    """Write max C_ip² and Σ n g(C_ip)/g(1) over some rows at the fraction x of a step."""
    out[0] = out[1] = 0.0
    for z in range(rows.size):
        i = rows[z]
        c = inside(dense[:, i, p], x, U[i, p], U_end[i, p])
        n = np.exp(inside(dense_growth[:, i], x, log_n[i], log_end[i]))
        if c > 0.0 or not sign_matters:
            out[0] = max(out[0], c * c)
        out[1] += n * g0(c) / g0(1.0)


@entry("void(i8, i8, f8, f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], f8[:,::1], f8[::1])")
def interpolate_rows(
    begin: int,
    end: int,
    x: float,
    U: Matrix,
    log_n: Vector,
    U_end: Matrix,
    log_end: Vector,
    dense: Cube,
    dense_growth: Matrix,
    U_out: Matrix,
    log_out: Vector,
) -> None:
    """Write rows begin … end − 1 at the fraction x of the step from (U, log_n) to (U_end, log_end), normalised.

    With coefficients b_0 … b_6 it is y + x (b_0 + (1−x)(b_1 + x (b_2 + (1−x)(b_3 + …)))). Where the end was corrected
    after they were written, the correction comes in as x² (3 − 2 x), without a change of slope at either end.
    """
    D = U.shape[1]
    late = x * x * (3.0 - 2.0 * x)
    for i in range(begin, end):
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
