"""Compiled passes of the large-flow solver between steps that know no link: correction, groups of rows.

Executed after `plan_kernels`; compiled once for all links.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Cube, Integers, Matrix, Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.integrators.large_flow.plan_kernels import add_rest, rest_number


@entry(
    "void(i8, i8, f8, i8[::1], f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], i8[::1], f8[::1], i8, f8[:,::1], f8[::1],"
    " f8[:,::1])"
)
def settle_rows(
    begin: int,
    end: int,
    share: float,
    cluster: Integers,
    F: Matrix,
    growth: Vector,
    rest: Cube,
    rest_growth: Matrix,
    slots: Integers,
    weights: Vector,
    now: int,
    U: Matrix,
    log_n: Vector,
    miss: Matrix,
) -> None:
    """Compare the rest of the field at the end of a step with what was extrapolated, correct the state, normalise it.

    Slot `now` of `rest` and `rest_growth` holds the partial field, and on return the rest of it, F − partial; the
    extrapolated one is Σ_q weights_q rest[slots_q]. `miss` (m, 2) is the largest component of the extrapolation's error
    and that of the growth.  Rows outside clusters move by `share` times that error.
    """
    D = U.shape[1]
    part, part_growth = rest[now], rest_growth[now]
    guess = np.empty(D)
    for i in range(begin, end):
        for k in range(D):
            guess[k] = 0.0
        add_rest(i, weights, slots, rest, guess)
        along = 0.0
        for k in range(D):
            left = F[i, k] - part[i, k]
            part[i, k] = left
            guess[k] = left - guess[k]
            along += guess[k] * U[i, k]
        left = growth[i] - part_growth[i]
        off = left - rest_number(i, weights, slots, rest_growth)
        part_growth[i] = left
        miss[i, 0] = miss[i, 1] = length = 0.0
        if cluster[i] < 0:
            miss[i, 1] = abs(off)
            log_n[i] += share * 4.0 * off
            largest = 0.0
            for k in range(D):
                error = guess[k] - along * U[i, k]
                largest = max(largest, abs(error))
                U[i, k] += share * error
            miss[i, 0] = largest
        for k in range(D):
            length += U[i, k] * U[i, k]
        length = 1.0 / np.sqrt(length)
        for k in range(D):
            U[i, k] *= length


@entry("void(f8[:,::1], b1, f8[::1], i8[::1], f8[::1], i8[::1], f8[::1])")
def nearest_directions(
    U: Matrix,
    both_poles: bool,
    active: Vector,
    nearest: Integers,
    overlap: Vector,
    nearest_active: Integers,
    overlap_active: Vector,
) -> None:
    """Write the direction with which each row overlaps most, and the same among the active ones (active > 0)."""
    for i in range(U.shape[0]):
        best = best_active = 0.0
        nearest[i] = nearest_active[i] = 0
        overlap[i] = overlap_active[i] = 0.0
        for p in range(active.size):
            c = U[i, p]
            size = abs(c) if both_poles else c
            if size > best:
                best, nearest[i], overlap[i] = size, p, c
            if size > best_active and active[p] > 0.0:
                best_active, nearest_active[i], overlap_active[i] = size, p, c


@entry("i8(i8[::1], f8[::1], f8, i8[::1], i8[::1], i8[::1])")
def group_rows(
    nearest: Integers, overlap: Vector, threshold: float, members: Integers, directions: Integers, first: Integers
) -> int:
    """Group the rows whose squared overlap exceeds `threshold` by direction; return the number of groups.

    Group c is members[first[c]:first[c + 1]], in rising order, near directions[c], in rising order.
    """
    P = directions.size
    place = np.empty(P + 1, dtype=np.int64)
    for p in range(P + 1):
        place[p] = 0
    for i in range(nearest.size):
        if overlap[i] * overlap[i] > threshold:
            place[nearest[i] + 1] += 1
    count = 0
    first[0] = 0
    for p in range(P):
        size = place[p + 1]
        place[p + 1] += place[p]
        if size > 0:
            directions[count] = p
            first[count + 1] = place[p + 1]
            count += 1
    for i in range(nearest.size):
        if overlap[i] * overlap[i] > threshold:
            p = nearest[i]
            members[place[p]] = i
            place[p] += 1
    return count
