"""Compiled events of the large-flow solver, the state inside a step, and curvatures of the kernel.

`link` is the data of g, and a state is (U, ln n). The dense output is its coefficients for vectors, (7, m, D), and for
ln n, (7, m).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynamics.equations.link import g0, g1, write_g0, write_g2
from dynamics.integrators.large_flow.division_kernels import (
    DIRECTION,
    FIRST,
    ORDER,
    POLE,
    TEACHER,
    Plan,
    add_rest,
    rest_number,
)
from dynamics.integrators.large_flow.row_kernels import Dense, State
from dynamics.kernels.arrays import Cube, Integers, Matrix, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.views import row_part


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
def interpolate_rows(
    first: int,
    last: int,
    x: float,
    begin: State,
    end: State,
    polynomials: Dense,
    out: State,
) -> None:
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


# Compiled end of a step for slowed clusters: where their stiff means belong once the full field there is known.
#
# A state is (U, ln n, F, growth) where the stages end. `lag` is (rest, rest_growth, slots, weights, part,
# part_growth, ahead, ahead_growth): the extrapolated rest of the field is Σ_q weights_q rest[slots_q], `part` the
# partial field at the end of the step, and `ahead`, if it has rows, the error of what distant sources were expected
# to exert there.


Moving = tuple[Matrix, Vector, Matrix, Vector]
Lag = tuple[Cube, Matrix, Integers, Vector, Matrix, Vector, NDArray[Any], Vector]


@kernel
def miss_of_row(i: int, u: Vector, F: Matrix, growth: Vector, lag: Lag, miss: Vector) -> float:
    """Write the tangential error of the extrapolated rest of row i; return the error of its (ln n)'."""
    rest, rest_growth, slots, weights, part, part_growth, ahead, ahead_growth = lag
    D = u.size
    for k in range(D):
        miss[k] = 0.0
    add_rest(i, weights, slots, rest, miss)
    if ahead.shape[0] > 0:
        for k in range(D):
            miss[k] -= ahead[i, k]
    along = length = 0.0
    for k in range(D):
        miss[k] = F[i, k] - part[i, k] - miss[k]
        along += miss[k] * u[k]
        length += u[k] * u[k]
    along /= length
    for k in range(D):
        miss[k] -= along * u[k]
    off: float = growth[i] - part_growth[i] - rest_number(i, weights, slots, rest_growth)
    if ahead.shape[0] > 0:
        off += ahead_growth[i]
    return 4.0 * off


@entry
def largest_overlaps(U: Matrix, cluster: Integers, out: Vector) -> None:
    """Write max_i |C_ip| of every direction over the rows that are not in its cluster."""
    for p in range(out.size):
        out[p] = 0.0
    for i in range(U.shape[0]):
        own = cluster[i]
        for p in range(out.size):
            if p != own:
                out[p] = max(out[p], abs(U[i, p]))


@entry
def weigh_shifts(
    begin: int,
    end: int,
    h: float,
    ratio: float,
    modes: tuple[Matrix, Matrix, Matrix, Matrix],
    start: tuple[Matrix, Vector],
    state: Moving,
    lag: Lag,
    out: tuple[Vector, Cube, Matrix],
    plan: Plan,
) -> None:
    """Write the shift of clusters begin … end − 1 at the end of a step of length h from `start`, (U, ln n).

    `modes` is (rates, follows, shares, drift), `drift` (c, D + 1) being the velocity over the last step, and `out` is
    (curvature, shift, size). `shift` (2, c, D + 1) takes the shift b of the mean direction and β of mean ln n, then the
    mean error of the extrapolated rest. `size` (c, 3) takes |b|, |β| and the largest change of another row's velocity
    by them, a |g''(C)| max(|b|, |β|); `curvature` holds |g''(C)|.

    The mean x relaxes as x' = λ (M − x), so its velocity v at the end says how far M is. With Δ its move in this step,
    w its velocity over the last and ρ = h/(h + h_last), the quadratic through three ends of steps moves by
    (1 + ρ) Δ/h − ρ w there, and v − λ b = (1 + ρ)(Δ + b)/h − ρ w gives b: BDF of order 2 for this mode. To the share
    1 − `follows` the mode has been followed by the stages themselves, and gets `shares` times the error of the rest.
    """
    of_rows, clusters, teacher = plan[0], plan[1], plan[2]
    (rates, follows, shares, drift), (U_begin, log_begin), (U, log_n, F, growth) = modes, start, state
    curvature, shift, size = out
    D = U.shape[1]
    velocity, miss = np.empty(D + 1), np.empty(D)
    for c in range(begin, end):
        moved, off = shift[0, c], shift[1, c]
        rho = 0.0
        for k in range(D + 1):
            # The drift of a cluster whose members have just changed is unknown, and 0.
            if drift[c, k] != 0.0:
                rho = ratio
        for k in range(D + 1):
            moved[k] = -rho * drift[c, k]
            off[k] = velocity[k] = 0.0
        forward = (1.0 + rho) / h
        total = 0.0
        for x in range(clusters[FIRST, c], clusters[FIRST, c + 1]):
            total += np.exp(log_n[of_rows[ORDER, x]])
        for x in range(clusters[FIRST, c], clusters[FIRST, c + 1]):
            i = of_rows[ORDER, x]
            share = np.exp(log_n[i]) / total
            w = share * of_rows[POLE, i]
            off[D] += share * miss_of_row(i, U[i], F, growth, lag, miss)
            velocity[D] += share * 4.0 * growth[i]
            moved[D] += share * forward * (log_n[i] - log_begin[i])
            radial = length = 0.0
            for k in range(D):
                radial += F[i, k] * U[i, k]
                length += U[i, k] * U[i, k]
            radial /= length
            for k in range(D):
                off[k] += w * miss[k]
                velocity[k] += w * (F[i, k] - radial * U[i, k])
                moved[k] += w * forward * (U[i, k] - U_begin[i, k])
        square = 0.0
        for k in range(D + 1):
            mode = 0 if k < D else 1
            followed = follows[c, mode] * (velocity[k] - moved[k]) / (rates[c, mode] + forward)
            moved[k] = followed + (1.0 - follows[c, mode]) * shares[c, mode] * off[k]
            if k < D:
                square += moved[k] * moved[k]
        size[c, 0], size[c, 1] = np.sqrt(square), abs(moved[D])
        p = clusters[DIRECTION, c]
        size[c, 2] = teacher[TEACHER, p] * curvature[p] * max(size[c, 0], size[c, 1])


@entry
def shift_clusters(chosen: Integers, share: float, state: Moving, lag: Lag, shift: Cube, plan: Plan) -> None:
    """Move the members of the `chosen` clusters: all by the shift, each by its own lag besides.

    `shift` is what `weigh_shifts` wrote; the rest of a member differs from that of the mean like a row's outside
    clusters, which moves by `share` times its error.
    """
    of_rows, clusters, (U, log_n, F, growth) = plan[0], plan[1], state
    D = U.shape[1]
    miss = np.empty(D)
    for z in range(chosen.size):
        c = chosen[z]
        b, off = shift[0, c], shift[1, c]
        for x in range(clusters[FIRST, c], clusters[FIRST, c + 1]):
            i = of_rows[ORDER, x]
            s = of_rows[POLE, i]
            own = miss_of_row(i, U[i], F, growth, lag, miss)
            along = 0.0
            for k in range(D):
                along += b[k] * U[i, k]
            for k in range(D):
                U[i, k] += share * (miss[k] - s * off[k]) + s * (b[k] - along * U[i, k])
            log_n[i] += share * (own - off[D]) + b[D]
