"""Compiled passes of the large-flow solver between steps: partial field, correction, cluster tests, events.

Responsible for: one pass over memory each.  Must not know tolerances, nor what a division into clusters is good for.
Executed after `field_kernels` and `partial_kernels`.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compilation import entry, kernel

if TYPE_CHECKING:
    from dynamics.large_flow.partial_kernels import Plan, add_rest, partial_field, rest_number
    from dynamics.systems.array_kernels import FloatCube, FloatMatrix, FloatVector, IntVector, matrix
    from dynamics.systems.link_kernels import g0, g1


@entry(
    "void(i8, i8, i8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[::1],"
    " Tuple((i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], f8[::1])))"
)
def partial_rows(
    first_block: int,
    last_block: int,
    cuts: IntVector,
    U: FloatMatrix,
    log_n: FloatVector,
    sources: FloatMatrix,
    mass: FloatVector,
    F: FloatMatrix,
    growth: FloatVector,
    work: FloatVector,
    plan: Plan,
) -> None:
    """Write the partial field at one state for the blocks order[cuts[b]:cuts[b + 1]]."""
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
        partial_field(rows, u, logs, sources, none, mass, overlap, force, total, plan)
        for x in range(R):
            growth[rows[x]] = total[x]
            for k in range(D):
                F[rows[x], k] = force[x, k]


@entry(
    "void(i8, i8, f8, i8[::1], f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], i8[::1], f8[::1], i8, f8[:,::1], f8[::1],"
    " f8[:,::1])"
)
def settle_rows(
    begin: int,
    end: int,
    share: float,
    cluster: IntVector,
    F: FloatMatrix,
    growth: FloatVector,
    rest: FloatCube,
    rest_growth: FloatMatrix,
    slots: IntVector,
    weights: FloatVector,
    now: int,
    U: FloatMatrix,
    log_n: FloatVector,
    miss: FloatMatrix,
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
    U: FloatMatrix,
    both_poles: bool,
    active: FloatVector,
    nearest: IntVector,
    overlap: FloatVector,
    nearest_active: IntVector,
    overlap_active: FloatVector,
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
    nearest: IntVector,
    overlap: FloatVector,
    threshold: float,
    members: IntVector,
    directions: IntVector,
    first: IntVector,
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
    order: IntVector,
    first: IntVector,
    direction: IntVector,
    a: FloatVector,
    sign: FloatVector,
    U_before: FloatMatrix,
    log_before: FloatVector,
    U: FloatMatrix,
    log_n: FloatVector,
    F: FloatMatrix,
    growth: FloatVector,
    drift: FloatMatrix,
    result: FloatMatrix,
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


@entry("void(f8[:,::1], f8[::1], f8[::1], b1, f8[::1])")
def events_of_rows(U: FloatMatrix, log_n: FloatVector, a: FloatVector, sign_matters: bool, out: FloatVector) -> None:
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
def mass_of_rest(
    rows: IntVector,
    p: int,
    U: FloatMatrix,
    log_n: FloatVector,
    F: FloatMatrix,
    growth: FloatVector,
    out: FloatVector,
) -> None:
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
def inside(dense: FloatVector, x: float, start: float, end: float) -> float:
    """Return the polynomial of a step at its fraction x, given its seven coefficients; see `interpolate_rows`."""
    value = dense[6]
    for q in range(5, -1, -1):
        value = dense[q] + (x if q % 2 == 1 else 1.0 - x) * value
    y: float = start + x * value + x * x * (3.0 - 2.0 * x) * (end - start - dense[0])
    return y


@entry("void(i8[::1], i8, f8, b1, f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], f8[::1])")
def events_inside(
    rows: IntVector,
    p: int,
    x: float,
    sign_matters: bool,
    U: FloatMatrix,
    log_n: FloatVector,
    U_end: FloatMatrix,
    log_end: FloatVector,
    dense: FloatCube,
    dense_growth: FloatMatrix,
    out: FloatVector,
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
    U: FloatMatrix,
    log_n: FloatVector,
    U_end: FloatMatrix,
    log_end: FloatVector,
    dense: FloatCube,
    dense_growth: FloatMatrix,
    U_out: FloatMatrix,
    log_out: FloatVector,
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
