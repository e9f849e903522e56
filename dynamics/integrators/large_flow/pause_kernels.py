"""Compiled passes of the large-flow solver between steps: partial field, correction, cluster tests.

Executed after `field_kernels` and `partial_kernels`.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Cube, Integers, Matrix, SingleMatrix, Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix
    from dynamics.equations.pairs.link_kernels import g0
    from dynamics.integrators.large_flow.partial_kernels import Plan, add_rest, partial_field, rest_number


@entry(
    "void(i8, i8, i8[::1], f8[:,::1], f8[::1], f8[:,::1], f4[:,::1], f8[::1], f8[:,::1], f8[::1], b1,"
    " f8[:,::1], f8[::1], f8[::1],"
    " Tuple((i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], f8[::1])))"
)
def partial_rows(
    first_block: int,
    last_block: int,
    cuts: Integers,
    U: Matrix,
    log_n: Vector,
    sources: Matrix,
    rounded: SingleMatrix,
    mass: Vector,
    field: Matrix,
    field_growth: Vector,
    is_rest: bool,
    out: Matrix,
    out_growth: Vector,
    work: Vector,
    plan: Plan,
) -> None:
    """Write the partial field at one state for the blocks order[cuts[b]:cuts[b + 1]], or what it leaves of the field.

    All blocks but the first, that of the sources, read these from `rounded`, if it has rows.
    """
    D, S = U.shape[1], mass.size
    none = np.empty((0, D), dtype=np.float32)
    for b in range(first_block, last_block):
        rows = plan[0][cuts[b] : cuts[b + 1]]
        R = rows.size
        o = 2 * R * D + R * S
        u, force, overlap = matrix(work, 0, R, D), matrix(work, R * D, R, D), matrix(work, 2 * R * D, R, S)
        logs, total = work[o : o + R], work[o + R : o + 2 * R]
        for x in range(R):
            logs[x] = log_n[rows[x]]
            for k in range(D):
                u[x, k] = U[rows[x], k]
        partial_field(rows, u, logs, sources, none if b == 0 else rounded, mass, overlap, force, total, plan)
        for x in range(R):
            i = rows[x]
            if is_rest:
                out_growth[i] = field_growth[i] - total[x]
                for k in range(D):
                    out[i, k] = field[i, k] - force[x, k]
            else:
                out_growth[i] = total[x]
                for k in range(D):
                    out[i, k] = force[x, k]


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
    place = np.zeros(P + 1, dtype=np.int64)
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


@entry(
    "void(i8, i8, f8, i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[:,::1],"
    " f8[::1],"
    " f8[:,::1], f8[:,::1])"
)
def weigh_groups(
    begin: int,
    end: int,
    h: float,
    order: Integers,
    first: Integers,
    direction: Integers,
    a: Vector,
    sign: Vector,
    U_before: Matrix,
    log_before: Vector,
    U: Matrix,
    log_n: Vector,
    F: Matrix,
    growth: Vector,
    drift: Matrix,
    result: Matrix,
) -> None:
    """Weigh groups begin … end − 1 of rows: group c holds order[first[c]:first[c + 1]], all near direction[c].

    `drift` (groups, D + 1) is the mean velocity of direction and norm over the last step, of length h; `result`
    (groups, 4) the mass, the squared distance ‖Σ n σ(u·) − a σ(e·)‖², and how far the mean velocity of the direction
    and that of the norm are now from their drift.
    """
    D = U.shape[1]
    mean = np.empty(D)
    for c in range(begin, end):
        p = direction[c]
        mass = rise = 0.0
        distance = a[p] * a[p] * g0(1.0)
        for k in range(D):
            mean[k] = drift[c, k] = 0.0
        drift[c, D] = 0.0
        for x in range(first[c], first[c + 1]):
            i = order[x]
            n = np.exp(log_n[i])
            mass += n
            rise += n * 4.0 * growth[i]
            distance += n * n * g0(1.0) - 2.0 * a[p] * n * g0(U[i, p])
            for z in range(first[c], x):
                j = order[z]
                s = 0.0
                for k in range(D):
                    s += U[i, k] * U[j, k]
                distance += 2.0 * n * np.exp(log_n[j]) * g0(s)
            radial = 0.0
            for k in range(D):
                radial += F[i, k] * U[i, k]
            w = n * sign[i]
            for k in range(D):
                mean[k] += w * (F[i, k] - radial * U[i, k])
                drift[c, k] += w * (U[i, k] - U_before[i, k])
            drift[c, D] += n * (log_n[i] - log_before[i])
        square = 0.0
        for k in range(D + 1):
            drift[c, k] /= mass * h
        for k in range(D):
            square += (mean[k] / mass - drift[c, k]) ** 2
        result[c, 0], result[c, 1] = mass, distance
        result[c, 2], result[c, 3] = np.sqrt(square), abs(rise / mass - drift[c, D])
