"""What passes of the large-flow solver over rows are told: three tables, the link, and how they multiply few rows.

plan[0] (3, m)      ORDER      rows, in the order in which they are visited, the fast sources first
                    CLUSTER    number of the cluster of each row, no direction; −1 for none
                    POLE       +1 or −1: the pole of its direction at which a row of a cluster sits
plan[1] (2, c + 1)  FIRST      place in ORDER at which each cluster begins, and at which the last one ends
                    DIRECTION  direction of each cluster; the last number means nothing
plan[2] (2, P)      ACTIVE     a_p of the directions without a cluster, 0 for the others
                    TEACHER    a_p of every direction
plan[LINK]                     data of g (`dynamics.equations.link`); g(0) = g'(0) = 0
plan[BY_BLAS]                  whether BLAS multiplies blocks of a few rows, or loops (`dynamics.equations.field`)
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dynamics.equations.link import g0
from dynamics.kernels.arrays import Cube, Integers, Matrix, Switches, Vector
from dynamics.kernels.jit import entry, kernel

# Tables rather than arrays: for each array that a function is given the compiler carries seven numbers.
Plan = tuple[Integers, Integers, Matrix, Vector, bool]
LINK: Final = 3
BY_BLAS: Final = 4
ORDER, CLUSTER, POLE = 0, 1, 2
FIRST, DIRECTION = 0, 1
ACTIVE, TEACHER = 0, 1


# Compiled division of the neurons of a large flow: groups near a direction, which of them are clusters, fast neurons.
#
# The tests are explained in `division`.


@entry
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


@entry
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


@entry
def judge_groups(
    h: float,
    value: float,
    rates: Vector,
    tests: Vector,
    directions: Integers,
    a: Vector,
    active: Vector,
    result: Matrix,
    passed: Switches,
    left: Vector,
) -> bool:
    """Write which groups pass as clusters, and the coefficients that this leaves active; return whether these are new.

    `rates` (2,) are those of direction and norm per teacher coefficient, `tests` the constants of `division`, `active`
    the coefficients of directions that had no cluster, `result` what `weigh_groups` wrote.
    """
    mass, distance, still, slow = tests[0], tests[1], tests[2], tests[3]
    leave_distance, leave_still = tests[4], tests[5]
    for p in range(a.size):
        left[p] = a[p]
    for c in range(directions.size):
        p = directions[c]
        was = active[p] == 0.0
        reach = distance * value * (leave_distance if was else 1.0) * a[p] ** 2
        passed[c] = abs(result[c, 0] - a[p]) <= mass * a[p] and result[c, 1] <= reach
        for mode in range(2):
            rate = a[p] * rates[mode]
            patience = still * (leave_still if was else 1.0) * rate
            passed[c] = passed[c] and result[c, 2 + mode] <= patience * max(1.0, slow / (h * rate)) ** 4
        if passed[c]:
            left[p] = 0.0
    changed = False
    for p in range(a.size):
        changed = changed or left[p] != active[p]
    return changed


@entry
def assign_rows(
    fast_from: float,
    leads_from: float,
    groups: tuple[Integers, Integers, Integers, Switches],
    near: tuple[Integers, Vector],
    before: tuple[Switches, Integers],
    now: tuple[Switches, Integers, Integers],
    drift: Matrix,
) -> bool:
    """Write the cluster of each row, whether it is fast, what it may be about to learn; return whether nothing changed.

    `groups` is (members, directions, first, passed), `near` the nearest direction without a cluster and the overlap
    with it, `before` who was fast and in which cluster, and `now` takes these two and what each row leads. The drifts
    of the groups that passed move to the front; where members have changed they are 0, since a mean velocity over a
    step is one of the members it had then.
    """
    (members, directions, first, passed), (nearest, overlap) = groups, near
    (was_fast, was_cluster), (fast, cluster, leading) = before, now
    unchanged = True
    for i in range(cluster.size):
        cluster[i] = -1
    for c in range(passed.size):
        if passed[c]:
            for x in range(first[c], first[c + 1]):
                cluster[members[x]] = directions[c]
    for i in range(cluster.size):
        square = overlap[i] * overlap[i]
        leading[i] = nearest[i] if square > leads_from else -1
        fast[i] = cluster[i] < 0 and (square > fast_from or (was_fast[i] and square > 0.5 * fast_from))
        unchanged = unchanged and fast[i] == was_fast[i] and cluster[i] == was_cluster[i]
    kept = 0
    for c in range(passed.size):
        if passed[c]:
            same = True
            for i in range(cluster.size if not unchanged else 0):
                same = same and (cluster[i] == directions[c]) == (was_cluster[i] == directions[c])
            for k in range(drift.shape[1]):
                drift[kept, k] = drift[c, k] if same else 0.0
            kept += 1
    return unchanged


# Groups of rows that go through a step together, and the rest of the field that a step extrapolates.


@kernel
def group_end(x: int, rows: Integers, of_rows: Integers, clusters: Integers) -> int:
    """Return where the cluster of row x of a block ends, x + 1 for a row of none, and x if the cluster began before.

    The tables are those of the plan, since an array that is taken from a tuple costs a count of references.
    """
    c = of_rows[CLUSTER, rows[x]]
    if c < 0:
        return x + 1
    if x > 0 and of_rows[CLUSTER, rows[x - 1]] == c:
        return x
    count: int = clusters[FIRST, c + 1] - clusters[FIRST, c]
    return x + count


@kernel
def add_rest(i: int, weights: Vector, slots: Integers, rest: Cube, out: Vector) -> None:
    """Add Σ_q weights_q rest[slots_q] of row i: a pass per value, since a loop over values inside is not vectorised."""
    for q in range(slots.size):
        w, slot = weights[q], slots[q]
        for k in range(out.size):
            out[k] += w * rest[slot, i, k]


@kernel
def rest_number(i: int, weights: Vector, slots: Integers, rest_growth: Matrix) -> float:
    """Return Σ_q weights_q rest_growth[slots_q] of row i."""
    total = 0.0
    for q in range(slots.size):
        total += weights[q] * rest_growth[slots[q], i]
    return total


# Compiled weight of groups of rows between steps of the large-flow solver.


@entry
def weigh_groups(
    begin: int,
    end: int,
    h: float,
    link: Vector,
    groups: tuple[Integers, Integers, Integers],
    a: Vector,
    sign: Vector,
    before: tuple[Matrix, Vector],
    now: tuple[Matrix, Vector, Matrix, Vector],
    out: tuple[Matrix, Matrix],
) -> None:
    """Weigh groups begin … end − 1 of rows: group c holds order[first[c]:first[c + 1]], all near direction[c].

    `groups` is (order, first, direction), `before` (U, ln n) at the beginning of the last step, of length h, `now` the
    same with the field F and growth at its end, and `out` is (drift, result): `drift` (groups, D + 1) is the mean
    velocity of direction and norm over that step; `result` (groups, 4) the mass, the squared distance
    ‖Σ n σ(u·) − a σ(e·)‖², and how far the mean velocity of the direction and that of the norm are now from their
    drift.
    """
    (order, first, direction), (U_before, log_before), (U, log_n, F, growth) = groups, before, now
    drift, result = out
    whole = g0(link, 1.0)
    D = U.shape[1]
    mean = np.empty(D)
    for c in range(begin, end):
        p = direction[c]
        mass = rise = 0.0
        distance = a[p] * a[p] * whole
        for k in range(D):
            mean[k] = drift[c, k] = 0.0
        drift[c, D] = 0.0
        for x in range(first[c], first[c + 1]):
            i = order[x]
            n = np.exp(log_n[i])
            mass += n
            rise += n * 4.0 * growth[i]
            distance += n * n * whole - 2.0 * a[p] * n * g0(link, U[i, p])
            for z in range(first[c], x):
                j = order[z]
                s = 0.0
                for k in range(D):
                    s += U[i, k] * U[j, k]
                distance += 2.0 * n * np.exp(log_n[j]) * g0(link, s)
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
