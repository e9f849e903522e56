"""The small flow, a method of the overlaps: DOP853 on unit vectors with slowed clusters, from saved time to saved time.

What is done to clusters is what the large flow does to them, where it is explained: `large_flow.division` (which
neurons form one), `step_kernels.slow_together` (their velocity), `row_kernels` (where they end a step). With the
whole field at every stage there are no fast sources and no lagged rest, as in `large_flow.device`.

Numba compiles what a function calls again with each of its callers. So a kernel that one other calls is pasted into it
(`pasted_kernel`), and the three that make and move clusters are callbacks, compiled once.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, II.4 to II.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types

from dynamics.equations.vectors import VectorSystem
from dynamics.integrators import step_kernels as slots
from dynamics.integrators.clusters import (
    DISPLACED_SHARE,
    DISTANCE,
    GROUP,
    KAPPA,
    LAG_SAFETY,
    LAG_TOLERANCE,
    LARGEST_FACTOR,
    LEAVE_DISTANCE,
    LEAVE_STILL,
    MASS,
    NOTICED,
    SAFETY,
    SMALLEST_FACTOR,
    STALL_GAIN,
    STALL_STEPS,
    STILL,
)
from dynamics.integrators.compiled_stepper import CompiledStepper
from dynamics.integrators.explicit_kernels import (
    DOP853_DENSE_ERROR,
    ROW_DENSE,
    ROW_END,
    ROW_NEW,
    ROW_STAGES,
    ROW_ZERO,
    add_stages,
)
from dynamics.integrators.large_flow.division import along
from dynamics.integrators.large_flow.row_kernels import combined_error
from dynamics.integrators.large_flow.stepper import tolerances
from dynamics.integrators.step_kernels import STATISTICS, Layout, copy_row, events_passed, saving_steps, unowned_arrays
from dynamics.integrators.stepper import Tolerances
from dynamics.integrators.system_calls import (
    EVALUATION,
    EVENT_VALUES,
    INTEGERS_TYPE,
    MATRIX,
    NORMALISATION,
    NORMALISE,
    PARAMETERS,
    RHS,
    SIZES,
    VECTOR,
    WORK,
    BoundSystem,
    System,
    event_values,
    normalise,
    rhs,
)
from dynamics.kernels.jit import callback, entry, kernel, pasted_kernel, row_part, vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.integrators.step_kernels import Arrays
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers, Matrix, Vector

# Rows and slots after those of the explicit pair. The state is [U (m, D) | ln n (m)], so that a row also holds the mean
# velocities of m clusters, shape (m, D + 1).
# Rows: rates at the end and at the start of the last step with nothing slowed, mean velocities of its clusters over the
# step before, scratch. The first of them follow the zeros of the explicit pair.
ROW_RATES, ROW_RATES_START, ROW_DRIFT, ROW_SHIFT, ROW_MEAN, ROW_FIVE, ROW_THREE, SMALL_FLOW_ROWS = range(28, 36)
# Slots of `scalars`: length of the last step and of the one before (0: none), the last `KEPT_TIMES` ends of steps, then
# constants: the change of a coordinate by displaced clusters that others notice, whether −θ_p is as good as θ_p, and
# the squared coefficients of the link.
LAST_STEP, STEP_BEFORE, END_TIMES = 6, 7, 8
KEPT_TIMES = STALL_STEPS + 1
LARGEST_LAG, BOTH_POLES, SQUARES = range(END_TIMES + KEPT_TIMES, END_TIMES + KEPT_TIMES + 3)
# Slots of `counters`: number of clusters; then four parts of m + 1: direction of the cluster of each neuron (−1: none),
# its pole (±1), members of all clusters in order, and where in them each cluster begins.
CLUSTERS, INTEGERS = 6, 7
# Functions behind those of a system.
SLOW, DIVIDE, LAND = range(6, 9)
# Accuracy of the time of an event, and trials; every fourth one bisects. As in `events`.
EVENT_ACCURACY, EVENT_TRIALS = 1e-13, 200


@kernel
def link_values(squares: Vector, s: float) -> tuple[float, float, float]:
    """Return g(s) = Σ_j c_j² s^j and its first two derivatives."""
    value = slope = bend = 0.0
    for j in range(squares.size - 1, -1, -1):
        bend = bend * s + 2.0 * slope
        slope = slope * s + value
        value = value * s + squares[j]
    return value, slope, bend


@kernel
def parts(counters: Integers, m: int) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the four parts of the integers behind the counts: cluster, pole, order and first."""
    n, at = m + 1, INTEGERS
    return (
        vector(counters, at, n),
        vector(counters, at + n, n),
        vector(counters, at + 2 * n, n),
        vector(counters, at + 3 * n, n),
    )


@kernel
def kept_share(h: float, rate: float) -> float:
    """Return 1 − θ, θ = min(1, κ/(rate h)): what a slowed mode keeps of its velocity in the last step."""
    return max(0.0, 1.0 - KAPPA / (h * rate))


@kernel
def slow_clusters(
    h: float,
    y: Vector,
    rates: Vector,
    vectors: Matrix,
    scalars: Vector,
    counters: Integers,
    a_p: Vector,
    sizes: Integers,
) -> None:
    """Replace the mean velocity v of every cluster by θ v + (1 − θ) drift, in place (see `slow_together`)."""
    m, D, squares = sizes[0], sizes[2], vector(scalars, SQUARES, scalars.size - SQUARES)
    cluster, pole, order, first = parts(counters, m)
    mean, shift = vectors[ROW_MEAN], vectors[ROW_SHIFT]
    value, slope, _ = link_values(squares, 1.0)
    for c in range(counters[CLUSTERS]):
        a = a_p[cluster[order[first[c]]]]
        held, held_norm = kept_share(h, a * slope), kept_share(h, 4.0 * a * value)
        if held == held_norm == 0.0:
            continue
        drift = row_part(vectors, ROW_DRIFT, c * (D + 1), D + 1)
        total = mean_lean = 0.0
        for k in range(D + 1):
            mean[k] = 0.0
        for x in range(first[c], first[c + 1]):
            i = order[x]
            n = np.exp(y[m * D + i])
            total += n
            mean[D] += n * rates[m * D + i]
            w = n * pole[i]
            for k in range(D):
                mean[k] += w * rates[i * D + k]
        for k in range(D):
            shift[k] = mean[k] = held * (mean[k] / total - drift[k])
        growth = held_norm * (mean[D] / total - drift[D])
        turn = 0.25 * slope / value * growth
        for x in range(first[c], first[c + 1]):
            i = order[x]
            u = vector(y, i * D, D)
            lean = pole[i] * along(u, mean)
            share = np.exp(y[m * D + i]) / total
            mean_lean += share * lean
            rates[m * D + i] -= growth + 4.0 * lean
            w = share * pole[i] * (lean + turn)
            for k in range(D):
                shift[k] += w * u[k]
        for x in range(first[c], first[c + 1]):
            i = order[x]
            u, du = vector(y, i * D, D), vector(rates, i * D, D)
            rates[m * D + i] += 4.0 * mean_lean
            for k in range(D):
                du[k] -= pole[i] * shift[k]
            # Tangential once more: of a radial rounding of 1e-16 the stages of a long step make errors of ln n of 1e-6.
            w = along(u, du)
            for k in range(D):
                du[k] -= w * u[k]


@kernel
def group_neurons(
    y: Vector, both_poles: bool, counters: Integers, direction: Integers, scratch: Integers, sizes: Integers
) -> int:
    """Group neurons with C_ip² above `GROUP` by direction, into the last two parts; return the number of groups."""
    m, P, D = sizes[0], sizes[1], sizes[2]
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
    p: int, a: float, members: Integers, h: float, vectors: Matrix, drift: Vector, squares: Vector, pole: Integers
) -> tuple[float, float, float, float]:
    """Write the mean velocity of a group over the last step, of length h; return what `divide` tests.

    That is the mass, ‖Σ n σ(u·) − a σ(e·)‖², and how far the mean velocities of direction and norm are from the drift.
    """
    y, before, velocity, mean = (
        vectors[slots.ROW_STATE],
        vectors[slots.ROW_START],
        vectors[ROW_RATES],
        vectors[ROW_MEAN],
    )
    D = drift.size - 1
    m = y.size // (D + 1)
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
def divide_neurons(vectors: Matrix, scalars: Vector, counters: Integers, a_p: Vector, sizes: Integers) -> None:
    """Make the clusters of the next step, with hysteresis, and their mean velocities over the last one."""
    m, P, D = sizes[0], sizes[1], sizes[2]
    y, squares = vectors[slots.ROW_STATE], vector(scalars, SQUARES, scalars.size - SQUARES)
    cluster, pole, order, first = parts(counters, m)
    value, slope, _ = link_values(squares, 1.0)
    h = scalars[LAST_STEP] if scalars[LAST_STEP] > 0.0 else 1.0
    at = INTEGERS + 4 * (m + 1) + 1  # behind what is kept
    direction, new = vector(counters, at, m), vector(counters, at + m, m)
    rest = vector(counters, at + 2 * m, m + P + 1)
    for i in range(m):
        new[i] = -1
    count = group_neurons(y, scalars[BOTH_POLES] > 0.0, counters, direction, rest, sizes)
    kept = filled = begin = 0
    for c in range(count):
        p, end = direction[c], first[c + 1]
        a, members = a_p[p], vector(order, begin, end - begin)
        drift = row_part(vectors, ROW_DRIFT, kept * (D + 1), D + 1)
        mass, distance, off, off_norm = weigh_group(p, a, members, h, vectors, drift, squares, pole)
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


@kernel
def weigh_shift(c: int, h: float, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> float:
    """Write how far cluster c sits from where it belongs at the end of a step of length h (see `weigh_shifts`).

    Returned is the largest change of another neuron's velocity by it.
    """
    m, D, squares = system[SIZES][0], system[SIZES][2], vector(scalars, SQUARES, scalars.size - SQUARES)
    cluster, pole, order, first = parts(counters, m)
    y, start, rates = vectors[slots.ROW_STATE], vectors[slots.ROW_START], vectors[ROW_RATES]
    p = cluster[order[first[c]]]
    a, shift = system[PARAMETERS][p], row_part(vectors, ROW_SHIFT, c * (D + 1), D + 1)
    drift, velocity = row_part(vectors, ROW_DRIFT, c * (D + 1), D + 1), vectors[ROW_MEAN]
    rho = total = overlap = square = 0.0
    for k in range(D + 1):
        # The drift of a cluster whose members have just changed is unknown, and 0.
        if drift[k] != 0.0 and scalars[STEP_BEFORE] > 0.0:
            rho = h / (h + scalars[STEP_BEFORE])
        shift[k] = velocity[k] = 0.0
    for x in range(first[c], first[c + 1]):
        i = order[x]
        n = np.exp(y[m * D + i])
        total += n
        velocity[D] += n * rates[m * D + i]
        shift[D] += n * (y[m * D + i] - start[m * D + i])
        w = n * pole[i]
        for k in range(i * D, (i + 1) * D):
            velocity[k - i * D] += w * rates[k]
            shift[k - i * D] += w * (y[k] - start[k])
    forward = (1.0 + rho) / h
    value, slope, _ = link_values(squares, 1.0)
    for k in range(D + 1):
        rate = a * slope if k < D else 4.0 * a * value
        # Modes that relax less than κ within a step are not slowed.
        follows = -np.expm1(-max(h * rate - KAPPA, 0.0))
        shift[k] = follows * (velocity[k] / total - forward * shift[k] / total + rho * drift[k]) / (rate + forward)
        square += shift[k] * shift[k] if k < D else 0.0
    for i in range(m):
        if cluster[i] != p:
            overlap = max(overlap, abs(y[i * D + p]))
    _, _, bend = link_values(squares, overlap)
    return float(a * abs(bend) * max(np.sqrt(square), abs(shift[D])))


@kernel
def land_clusters(
    h: float,
    vectors: Matrix,
    scalars: Vector,
    counters: Integers,
    a_p: Vector,
    sizes: Integers,
    work: Vector,
    rhs_: Callable[..., None],
    events_: Callable[..., None],
    normalise_: Callable[..., None],
) -> None:
    """Move clusters at the end of a step to where their stiff means belong, if others notice it.

    Other neurons are moved back by what they felt of clusters that sat elsewhere: the change of their rates at the end,
    for `DISPLACED_SHARE` of the step.
    """
    system = (a_p, sizes, work, rhs_, events_, normalise_)
    m, D = sizes[0], sizes[2]
    y, rates, felt = vectors[slots.ROW_STATE], vectors[ROW_RATES], vectors[ROW_FIVE]
    cluster, pole, order, first = parts(counters, m)
    noticed = 0.0
    for c in range(counters[CLUSTERS]):
        noticed = max(noticed, weigh_shift(c, h, vectors, scalars, counters, system))
    if h * noticed <= scalars[LARGEST_LAG]:
        return
    for c in range(counters[CLUSTERS]):
        b = row_part(vectors, ROW_SHIFT, c * (D + 1), D + 1)
        for x in range(first[c], first[c + 1]):
            i = order[x]
            u = vector(y, i * D, D)
            w = along(u, b)
            for k in range(D):
                u[k] += pole[i] * (b[k] - w * u[k])
            y[m * D + i] += b[D]
    normalise(y, system)
    copy_row(felt, rates)
    rhs(0.0, y, rates, system)
    for i in range(m):
        if cluster[i] < 0:
            for k in range(D):
                y[i * D + k] -= DISPLACED_SHARE * h * (felt[i * D + k] - rates[i * D + k])
            y[m * D + i] -= DISPLACED_SHARE * h * (felt[m * D + i] - rates[m * D + i])
    normalise(y, system)
    rhs(0.0, y, rates, system)
    counters[slots.EVALUATIONS] += 2


@kernel
def slow(
    h: float, y: Vector, rates: Vector, vectors: Matrix, scalars: Vector, counters: Integers, system: System
) -> None:
    """Call `slow_clusters`."""
    system[SLOW](h, y, rates, vectors, scalars, counters, system[PARAMETERS], system[SIZES])


def cluster_callbacks() -> tuple[Any, Any, Any]:
    """Return `slow_clusters`, `divide_neurons` and `land_clusters` as arguments of `advance_through`."""
    of_step = VECTOR, INTEGERS_TYPE
    functions = types.FunctionType(EVALUATION), types.FunctionType(EVALUATION), types.FunctionType(NORMALISATION)
    return (
        callback(slow_clusters, types.void(types.float64, VECTOR, VECTOR, MATRIX, *of_step, *of_step)),
        callback(divide_neurons, types.void(MATRIX, *of_step, *of_step)),
        callback(land_clusters, types.void(types.float64, MATRIX, *of_step, *of_step, VECTOR, *functions)),
    )


@kernel
def take_stage(s: int, h: float, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Compute stage s of a step of length h from ROW_START."""
    y, stages = vectors[slots.ROW_TRIAL], vectors[ROW_STAGES:ROW_DENSE]
    add_stages(vectors[slots.ROW_START], stages, s, h, y.size, y)
    rhs(0.0, y, stages[s], system)
    slow(h, y, stages[s], vectors, scalars, counters, system)


@kernel
def square(x: float) -> float:
    """Return x²; for a first integer power Numba compiles a function of its own, which takes four times as long."""
    return x * x


@pasted_kernel
def leading_direction(i: int, y: Vector, both_poles: bool, counters: Integers, system: System) -> int:
    """Return the direction without a cluster that neuron i may be about to learn, −1 for none."""
    m, P, D = system[SIZES][0], system[SIZES][1], system[SIZES][2]
    cluster, _, order, first = parts(counters, m)
    best, leading = 0.0, -1
    for p in range(P):
        c = y[i * D + p]
        if c * c > best and (c > 0.0 or both_poles):
            taken = False
            for x in range(counters[CLUSTERS]):
                taken = taken or cluster[order[first[x]]] == p
            if not taken:
                best, leading = c * c, p
    return leading


@kernel
def step_error(h: float, vectors: Matrix, scalars: Vector, counters: Integers, atol: Vector, system: System) -> float:
    """Return the error of a step in units of the tolerance: the root mean square of the worst neuron."""
    m, D, rtol = system[SIZES][0], system[SIZES][2], scalars[slots.RTOL]
    y, new, e5, e3 = vectors[slots.ROW_START], vectors[ROW_NEW], vectors[ROW_FIVE], vectors[ROW_THREE]
    stages = vectors[ROW_STAGES:ROW_DENSE]
    for q in range(2):
        add_stages(vectors[ROW_ZERO], stages, 16 + q, 1.0, y.size, vectors[ROW_FIVE + q])
    worst = 0.0
    for i in range(m):
        q = m * D + i
        five, three = square(e5[q] / atol[q]), square(e3[q] / atol[q])
        for k in range(i * D, (i + 1) * D):
            scale = 1.0 / (atol[k] + rtol * max(abs(y[k]), abs(new[k])))
            five += square(e5[k] * scale)
            three += square(e3[k] * scale)
        error = combined_error(five, three, h, D + 1.0)
        p = leading_direction(i, y, scalars[BOTH_POLES] > 0.0, counters, system)
        if p >= 0:
            k = i * D + p
            scale = 1.0 / (atol[k] + rtol * max(abs(y[k]), abs(new[k])))
            error = max(error, combined_error(square(e5[k] * scale), square(e3[k] * scale), h, 1.0))
        worst = max(worst, error)
    return worst


@kernel
def attempt(h: float, vectors: Matrix, scalars: Vector, counters: Integers, atol: Vector, system: System) -> float:
    """Compute the state after a step of length h from ROW_START into ROW_NEW; return its error."""
    first = vectors[ROW_STAGES]
    copy_row(first, vectors[ROW_RATES_START])
    slow(h, vectors[slots.ROW_START], first, vectors, scalars, counters, system)
    for s in range(1, 12):
        take_stage(s, h, vectors, scalars, counters, system)
    counters[slots.EVALUATIONS] += 11
    # The weights of the new state follow those of the last stage. (For a literal 12 a second copy would be compiled.)
    add_stages(vectors[slots.ROW_START], vectors[ROW_STAGES:ROW_DENSE], s + 1, h, first.size, vectors[ROW_NEW])
    return step_error(h, vectors, scalars, counters, atol, system)


@kernel
def prepare_dense(vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> float:
    """Write the coefficients of the polynomial inside the last step, unless they are there; return its error / rtol."""
    m, D, h = system[SIZES][0], system[SIZES][2], scalars[LAST_STEP]
    y, start, dense = vectors[slots.ROW_STATE], vectors[slots.ROW_START], vectors[ROW_DENSE:ROW_ZERO]
    begin, end, stages = vectors[ROW_STAGES], vectors[ROW_END], vectors[ROW_STAGES:ROW_DENSE]
    if counters[slots.DENSE_READY] == 0:
        copy_row(end, vectors[ROW_RATES])
        slow(h, y, end, vectors, scalars, counters, system)
        for s in range(13, 16):
            take_stage(s, h, vectors, scalars, counters, system)
        counters[slots.EVALUATIONS] += 3
        for i in range(y.size):
            dense[0, i] = y[i] - start[i]
            dense[1, i] = h * begin[i] - dense[0, i]
            dense[2, i] = 2.0 * dense[0, i] - h * (end[i] + begin[i])
        for q in range(4):
            add_stages(vectors[ROW_ZERO], stages, 18 + q, h, y.size, dense[3 + q])
        counters[slots.DENSE_READY] = 1
    worst = 0.0
    for i in range(m):
        total = square(dense[6, m * D + i])
        for k in range(i * D, (i + 1) * D):
            total += square(dense[6, k])
        worst = max(worst, total)
    return float(DOP853_DENSE_ERROR * np.sqrt(worst) / scalars[slots.RTOL])


@pasted_kernel
def state_inside(t: float, out: Vector, vectors: Matrix, scalars: Vector, system: System) -> None:
    """Write the state at a time strictly within the last step, whose polynomial is there."""
    x = (t - scalars[slots.TIME_START]) / scalars[LAST_STEP]
    start, dense = vectors[slots.ROW_START], vectors[ROW_DENSE:ROW_ZERO]
    for i in range(out.size):
        value = dense[6, i]
        for q in range(5, -1, -1):
            value = dense[q, i] + (x if q % 2 == 1 else 1.0 - x) * value
        out[i] = start[i] + x * value
    normalise(out, system)


@kernel
def rise_of_event(e: int, vectors: Matrix, scalars: Vector, events: Matrix, system: System) -> float:
    """Return the time in the last step at which an event rises to zero, by false position with the Illinois weight."""
    low, high = scalars[slots.TIME_START], scalars[slots.TIME]
    values = events[slots.EVENT_NOW]
    low_value, high_value = events[slots.EVENT_BEFORE, e], values[e]
    tolerance = EVENT_ACCURACY * max(abs(high), high - low)
    side = 0
    for trial in range(EVENT_TRIALS):
        if high - low <= tolerance:
            break
        t = high - high_value * (high - low) / (high_value - low_value)
        if trial % 4 == 3:
            t = 0.5 * (low + high)
        # A root within the accuracy of one end is enclosed by stepping just past it.
        t = min(max(t, low + 0.5 * tolerance), high - 0.5 * tolerance)
        state_inside(t, vectors[slots.ROW_TRIAL], vectors, scalars, system)
        event_values(t, vectors[slots.ROW_TRIAL], values, system)
        if values[e] >= 0.0:
            high, high_value = t, values[e]
            low_value *= 0.5 if side > 0 else 1.0
            side = 1
        else:
            low, low_value = t, values[e]
            high_value *= 0.5 if side < 0 else 1.0
            side = -1
    event_values(scalars[slots.TIME], vectors[slots.ROW_STATE], values, system)
    return float(high)


@kernel
def record_events(vectors: Matrix, scalars: Vector, counters: Integers, events: Matrix, system: System) -> None:
    """Write the times of events that were passed in the last step, or at the start."""
    if not events_passed(scalars[slots.TIME], vectors[slots.ROW_STATE], events, system):
        return
    for e in range(events.shape[1]):
        if np.isnan(events[slots.EVENT_TIME, e]) and events[slots.EVENT_NOW, e] >= 0.0:
            events[slots.EVENT_TIME, e] = scalars[slots.TIME_START]
            if scalars[slots.TIME] > scalars[slots.TIME_START] and events[slots.EVENT_BEFORE, e] < 0.0:
                prepare_dense(vectors, scalars, counters, system)
                events[slots.EVENT_TIME, e] = rise_of_event(e, vectors, scalars, events, system)


@pasted_kernel
def begin(vectors: Matrix, scalars: Vector, counters: Integers, atol: Vector, events: Matrix, system: System) -> None:
    """Start with a step short enough to be linear."""
    m, D = system[SIZES][0], system[SIZES][2]
    y, rates = vectors[slots.ROW_STATE], vectors[ROW_RATES]
    rhs(scalars[slots.TIME], y, rates, system)
    counters[slots.EVALUATIONS] += 1
    copy_row(vectors[slots.ROW_START], y)
    fastest = 1e-290
    for i in range(y.size):
        fastest = max(fastest, abs(rates[i]) * (scalars[slots.RTOL] / atol[0] if i < m * D else 1.0))
    scalars[slots.STEP] = 1e-2 / fastest
    cluster, _, _, _ = parts(counters, m)
    for i in range(m):
        cluster[i] = -1
    counters[slots.READY] = 1
    record_events(vectors, scalars, counters, events, system)


@kernel
def take_step(
    target: float, vectors: Matrix, scalars: Vector, counters: Integers, atol: Vector, events: Matrix, system: System
) -> int:
    """Take one accepted step; return why that is impossible, or that it was done.

    If `target` is inside, its polynomial is made; where that is not good enough, as with a stiff mode, the step ends at
    `target`, or after a fifth of its length if `target` comes before that.
    """
    y, t, h = vectors[slots.ROW_STATE], scalars[slots.TIME], scalars[slots.STEP]
    system[DIVIDE](vectors, scalars, counters, system[PARAMETERS], system[SIZES])
    copy_row(vectors[slots.ROW_START], y)
    copy_row(vectors[ROW_RATES_START], vectors[ROW_RATES])
    before, planned, most, error = scalars[LAST_STEP], 0.0, LARGEST_FACTOR, 0.0
    scalars[STEP_BEFORE] = before
    scalars[slots.TIME_START] = t
    while True:
        if not (h > slots.SMALLEST_STEP * t or (t == 0.0 and h > slots.SMALLEST_STEP_AT_ZERO)):
            copy_row(y, vectors[slots.ROW_START])
            copy_row(vectors[ROW_RATES], vectors[ROW_RATES_START])
            return slots.STATUS_STEP_TOO_SMALL if np.isfinite(h) else slots.STATUS_NOT_FINITE
        error = attempt(h, vectors, scalars, counters, atol, system)
        if error <= 1.0:
            copy_row(y, vectors[ROW_NEW])
            normalise(y, system)
            rhs(t + h, y, vectors[ROW_RATES], system)
            counters[slots.EVALUATIONS] += 1
            scalars[LAST_STEP] = h
            counters[slots.DENSE_READY] = 0
            system[LAND](
                h, vectors, scalars, counters, system[PARAMETERS], system[SIZES], system[WORK], system[RHS],
                system[EVENT_VALUES], system[NORMALISE],
            )  # fmt: skip
            inside = t < target < t + h and h != target - t
            if not inside or prepare_dense(vectors, scalars, counters, system) <= 1.0:
                break
            planned = planned if planned > 0.0 else h
            h = max(target - t, SMALLEST_FACTOR * h)
            continue
        counters[slots.REJECTED] += 1
        factor = SAFETY * error**-0.125 if error < np.inf else 0.0
        h *= max(SMALLEST_FACTOR, min(factor, LAG_SAFETY))
        planned, most = 0.0, 1.0
    scalars[slots.TIME] = t + h
    factor = SAFETY * max(error, 1e-12) ** -0.125
    scalars[slots.STEP] = planned if planned > 0.0 else h * min(most, max(SMALLEST_FACTOR, factor))
    counters[slots.ACCEPTED] += 1
    scalars[END_TIMES + counters[slots.ACCEPTED] % KEPT_TIMES] = t + h
    record_events(vectors, scalars, counters, events, system)
    return slots.STATUS_REACHED


@pasted_kernel
def advance(
    target: float,
    max_steps: int,
    vectors: Matrix,
    scalars: Vector,
    counters: Integers,
    atol: Vector,
    events: Matrix,
    system: System,
) -> int:
    """Take steps until the time reaches `target`, `max_steps` were tried, or none succeeds."""
    if counters[slots.READY] == 0:
        begin(vectors, scalars, counters, atol, events, system)
    last = counters[slots.ACCEPTED] + counters[slots.REJECTED] + max_steps
    while scalars[slots.TIME] < target:
        if counters[slots.ACCEPTED] + counters[slots.REJECTED] >= last:
            return slots.STATUS_MAX_STEPS
        status = take_step(target, vectors, scalars, counters, atol, events, system)
        if status != slots.STATUS_REACHED:
            return status
    return slots.STATUS_REACHED


@kernel
def interpolate(t: float, out: Vector, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Write the state at a time strictly within the last step."""
    prepare_dense(vectors, scalars, counters, system)
    state_inside(t, out, vectors, scalars, system)


save_through = saving_steps(advance, interpolate)


@entry
def advance_through(
    targets: Vector,
    max_steps: int,
    states: Matrix,
    arrays: Arrays,
    rhs: Callable[..., None],
    event_values: Callable[..., None],
    normalise: Callable[..., None],
    slow: Callable[..., None],
    divide: Callable[..., None],
    land: Callable[..., None],
) -> int:
    """Advance to the last of some increasing times, writing the state at each; return status and number of these."""
    arrays = unowned_arrays(arrays)
    system = (arrays[5], arrays[6], arrays[7], rhs, event_values, normalise, slow, divide, land)
    return save_through(targets, max_steps, states, arrays, system)


_ROWS = (
    slots.ROW_STATE,
    slots.ROW_START,
    *range(ROW_STAGES, ROW_ZERO),
    ROW_RATES,
    ROW_RATES_START,
    ROW_DRIFT,
)


class SmallFlowStepper(CompiledStepper):
    """Steps of a small coupled flow, for problems against which `large_flow.reason_against` finds no reason.

    `rtol` and `atol` are as for `LargeFlowStepper`.
    """

    def __init__(self, problem: Problem, *, rtol: float, atol: float) -> None:
        system = VectorSystem(problem)
        m, D = system.shape
        squares = np.array(problem.activation.coefficients, dtype=np.float64) ** 2
        layout = Layout(
            rows=SMALL_FLOW_ROWS,
            scalars=SQUARES + squares.size,
            counters=INTEGERS + 4 * (m + 1) + 1,
            kept=_ROWS,
            statistics=STATISTICS,
        )
        coordinate, relative, norm = tolerances(problem, rtol, atol)
        lag = NOTICED * LAG_TOLERANCE * relative / np.sqrt(problem.dimension)
        super().__init__(
            advance_through,
            layout,
            system.initial_state,
            BoundSystem(system),
            tolerances=Tolerances(rtol=relative, atol=np.repeat([coordinate, norm], [m * D, m])),
            num_events=system.num_events,
            t0=0.0,
            constants=[lag, float(problem.activation.parity == "even"), *squares],
            integers=[0] * (3 * m + problem.num_directions + 1),
            more_functions=cluster_callbacks(),
            unit_vectors=system,
        )
        self._system_of_vectors = system

    def vectors(self, t: float) -> tuple[Array, Array]:
        """Return the unit vectors and ln n at a time within the last step, both ends included."""
        return self._system_of_vectors.unpack(self._within(t))

    @property
    def stalled(self) -> bool:
        """Whether stiffness that no cluster explains has held up the run for long."""
        accepted = int(self._counters[slots.ACCEPTED])
        before = END_TIMES + (accepted - STALL_STEPS) % KEPT_TIMES
        return bool(accepted > STALL_STEPS and self.time < STALL_GAIN * self._scalars[before])
