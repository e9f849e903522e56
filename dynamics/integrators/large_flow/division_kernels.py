"""Compiled division of the neurons of a large flow: groups near a direction, which of them are clusters, fast neurons.

The tests are explained in `division`.
"""

import numpy as np

from dynamics.kernels.arrays import Integers, Matrix, Switches, Vector
from dynamics.kernels.jit import entry


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
