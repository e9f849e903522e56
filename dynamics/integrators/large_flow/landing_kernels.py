"""Compiled end of a step for slowed clusters: where their stiff means belong once the full field there is known.

A state is (U, ln n, F, growth) where the stages end. `lag` is (rest, rest_growth, slots, weights, part, part_growth,
ahead, ahead_growth): the extrapolated rest of the field is Σ_q weights_q rest[slots_q], `part` the partial field at the
end of the step, and `ahead`, if it has rows, the error of what distant sources were expected to exert there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynamics.integrators.large_flow.plan import DIRECTION, FIRST, ORDER, POLE, TEACHER, Plan
from dynamics.integrators.large_flow.plan_kernels import add_rest, rest_number
from dynamics.kernels.arrays import Cube, Integers, Matrix, Vector
from dynamics.kernels.jit import entry, kernel

State = tuple[Matrix, Vector, Matrix, Vector]
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
    state: State,
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
def shift_clusters(chosen: Integers, share: float, state: State, lag: Lag, shift: Cube, plan: Plan) -> None:
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
