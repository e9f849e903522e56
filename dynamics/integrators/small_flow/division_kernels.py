"""Clusters of a small flow for the next step: which neurons have learned a direction, and their mean velocities.

The tests are those of the large-flow solver (`large_flow.division`), where they are
explained.
"""

import numpy as np

from dynamics.integrators.slots import ROW_START, ROW_STATE
from dynamics.integrators.small_flow.cluster_kernels import link_values, parts
from dynamics.integrators.small_flow.small_slots import (
    BOTH_POLES,
    CLUSTERS,
    INTEGERS,
    LAST_STEP,
    ROW_DRIFT,
    ROW_MEAN,
    ROW_RATES,
    SQUARES,
)
from dynamics.integrators.system_calls import PARAMETERS, SIZES, System
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import row_part, vector

# As in `large_flow.division` and `step_control`, whose values a test holds these to.
GROUP, MASS, DISTANCE, STILL, LEAVE_DISTANCE, LEAVE_STILL = 0.9, 0.05, 1e-3, 1e-6, 3.0, 100.0


@kernel
def group_neurons(
    y: Vector, both_poles: bool, counters: Integers, direction: Integers, scratch: Integers, system: System
) -> int:
    """Group neurons with C_ip² above `GROUP` by direction, into the last two parts; return the number of groups."""
    m, P, D = system[SIZES][0], system[SIZES][1], system[SIZES][2]
    _, pole, order, first = parts(counters, m)
    nearest, place = vector(scratch, 0, m), vector(scratch, m, P + 1)
    for p in range(P + 1):
        place[p] = 0
    for i in range(m):
        best = 0.0
        nearest[i] = -1
        for p in range(P):
            c = y[i * D + p]
            size = abs(c) if both_poles else c
            if size > best and size * size > GROUP:
                best = size
                nearest[i] = p
                pole[i] = -1 if c < 0.0 else 1
        if nearest[i] >= 0:
            place[nearest[i] + 1] += 1
    count = 0
    first[0] = 0
    for p in range(P):
        if place[p + 1] > 0:
            direction[count] = p
            count += 1
            first[count] = place[p] + place[p + 1]
        place[p + 1] += place[p]
    for i in range(m):
        if nearest[i] >= 0:
            order[place[nearest[i]]] = i
            place[nearest[i]] += 1
    return count


@kernel
def weigh_group(
    p: int, members: Integers, h: float, vectors: Matrix, drift: Vector, squares: Vector, pole: Integers, system: System
) -> tuple[float, float, float, float]:
    """Write the mean velocity of a group over the last step, of length h; return what `divide` tests.

    That is the mass, ‖Σ n σ(u·) − a σ(e·)‖², and how far the mean velocities of direction and norm are from the drift.
    """
    y, before, velocity, mean = vectors[ROW_STATE], vectors[ROW_START], vectors[ROW_RATES], vectors[ROW_MEAN]
    m, D, a = system[SIZES][0], system[SIZES][2], system[PARAMETERS][p]
    value, _, _ = link_values(squares, 1.0)
    mass = 0.0
    distance = a * a * value
    for k in range(D + 1):
        mean[k] = drift[k] = 0.0
    for x in range(members.size):
        i = members[x]
        u, q = i * D, m * D + i
        n = np.exp(y[q])
        mass += n
        pull, _, _ = link_values(squares, y[u + p])
        distance += n * n * value - 2.0 * a * n * pull
        for z in range(x):
            j = members[z]
            s = 0.0
            for k in range(D):
                s += y[u + k] * y[j * D + k]
            push, _, _ = link_values(squares, s)
            distance += 2.0 * n * np.exp(y[m * D + j]) * push
        w = n * pole[i]
        for k in range(D):
            mean[k] += w * velocity[u + k]
            drift[k] += w * (y[u + k] - before[u + k])
        mean[D] += n * velocity[q]
        drift[D] += n * (y[q] - before[q])
    square = 0.0
    for k in range(D + 1):
        drift[k] /= mass * h
        mean[k] = mean[k] / mass - drift[k]
    for k in range(D):
        square += mean[k] * mean[k]
    return mass, distance, np.sqrt(square), abs(mean[D])


@kernel
def divide(vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Make the clusters of the next step, with hysteresis, and their mean velocities over the last one."""
    m, P, D = system[SIZES][0], system[SIZES][1], system[SIZES][2]
    y, squares = vectors[ROW_STATE], vector(scalars, SQUARES, scalars.size - SQUARES)
    cluster, pole, order, first = parts(counters, m)
    value, slope, _ = link_values(squares, 1.0)
    h = scalars[LAST_STEP] if scalars[LAST_STEP] > 0.0 else 1.0
    at = INTEGERS + 4 * (m + 1) + 1  # behind what is kept
    direction, new = vector(counters, at, m), vector(counters, at + m, m)
    rest = vector(counters, at + 2 * m, m + P + 1)
    for i in range(m):
        new[i] = -1
    count = group_neurons(y, scalars[BOTH_POLES] > 0.0, counters, direction, rest, system)
    kept = filled = begin = 0
    for c in range(count):
        p, end = direction[c], first[c + 1]
        a, members = system[PARAMETERS][p], vector(order, begin, end - begin)
        drift = row_part(vectors, ROW_DRIFT, kept * (D + 1), D + 1)
        mass, distance, off, off_norm = weigh_group(p, members, h, vectors, drift, squares, pole, system)
        was, unchanged = False, True
        for i in range(m):
            was = was or cluster[i] == p
        reach, patience = (
            DISTANCE * a * a * value * (LEAVE_DISTANCE if was else 1.0),
            STILL * (LEAVE_STILL if was else 1.0),
        )
        if (
            abs(mass - a) <= MASS * a
            and distance <= reach
            and off <= patience * a * slope
            and off_norm <= patience * 4.0 * a * value
        ):
            for x in range(begin, end):
                new[order[x]] = p
                order[filled] = order[x]
                filled += 1
            # A mean velocity over a step is one of the members it had then.
            for i in range(m):
                unchanged = unchanged and (cluster[i] == p) == (new[i] == p)
            if not unchanged:
                for k in range(D + 1):
                    drift[k] = 0.0
            kept += 1
            first[kept] = filled
        begin = end
    counters[CLUSTERS] = kept
    for i in range(m):
        cluster[i] = new[i]
