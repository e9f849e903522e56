"""Steps of a small flow: DOP853 on unit vectors with slowed clusters, from save time to save time without Python.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, II.4 to II.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators.explicit.dop853_tableau import DOP853_DENSE_ERROR
from dynamics.integrators.explicit.stage_sum_kernels import add_stages
from dynamics.integrators.saving_kernels import saving_steps
from dynamics.integrators.shared_kernels import (
    SMALLEST_STEP,
    SMALLEST_STEP_AT_ZERO,
    STATUS_MAX_STEPS,
    STATUS_NOT_FINITE,
    STATUS_REACHED,
    STATUS_STEP_TOO_SMALL,
    copy_row,
    events_passed,
)
from dynamics.integrators.slots import (
    ACCEPTED,
    DENSE_READY,
    EVALUATIONS,
    EVENT_BEFORE,
    EVENT_NOW,
    EVENT_TIME,
    READY,
    REJECTED,
    ROW_DENSE,
    ROW_END,
    ROW_NEW,
    ROW_STAGES,
    ROW_START,
    ROW_STATE,
    ROW_TRIAL,
    ROW_ZERO,
    RTOL,
    STEP,
    TIME,
    TIME_START,
)
from dynamics.integrators.small_flow.cluster_kernels import parts, slow
from dynamics.integrators.small_flow.division_kernels import divide
from dynamics.integrators.small_flow.small_landing_kernels import land
from dynamics.integrators.small_flow.small_slots import (
    BOTH_POLES,
    CLUSTERS,
    END_TIMES,
    KEPT_TIMES,
    LAST_STEP,
    ROW_FIVE,
    ROW_RATES,
    ROW_RATES_START,
    ROW_THREE,
    STEP_BEFORE,
)
from dynamics.integrators.system_calls import SIZES, System, event_values, normalise, rhs
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import entry, kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.integrators.saving_kernels import Arrays

# As in `large_flow.step_control`.
SAFETY, LAG_SAFETY, LARGEST_FACTOR, SMALLEST_FACTOR = 0.5, 0.9, 2.0, 0.2
# Accuracy of the time of an event, and trials; every fourth one bisects. As in `events`.
EVENT_ACCURACY, EVENT_TRIALS = 1e-13, 200


@kernel
def take_stage(s: int, h: float, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Compute stage s of a step of length h from ROW_START."""
    y, stages = vectors[ROW_TRIAL], vectors[ROW_STAGES:ROW_DENSE]
    add_stages(vectors[ROW_START], stages, s, h, y.size, y)
    rhs(0.0, y, stages[s], system)
    slow(h, y, stages[s], vectors, scalars, counters, system)


@kernel
def square(x: float) -> float:
    """Return x²; for a first integer power Numba compiles a function of its own, which takes four times as long."""
    return x * x


@kernel
def combined_error(five: float, three: float, h: float, count: float) -> float:
    """Return h |e_5|²/√(count (|e_5|² + 0.01 |e_3|²)) of the squares of both errors, infinity if not finite."""
    total = five + 0.01 * three
    if not total < np.inf:
        return np.inf
    return float(h * five / np.sqrt(total * count)) if total > 0.0 else 0.0


@kernel
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
    m, D, rtol = system[SIZES][0], system[SIZES][2], scalars[RTOL]
    y, new, e5, e3 = vectors[ROW_START], vectors[ROW_NEW], vectors[ROW_FIVE], vectors[ROW_THREE]
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
    slow(h, vectors[ROW_START], first, vectors, scalars, counters, system)
    for s in range(1, 12):
        take_stage(s, h, vectors, scalars, counters, system)
    counters[EVALUATIONS] += 11
    # The weights of the new state follow those of the last stage. (For a literal 12 a second copy would be compiled.)
    add_stages(vectors[ROW_START], vectors[ROW_STAGES:ROW_DENSE], s + 1, h, first.size, vectors[ROW_NEW])
    return step_error(h, vectors, scalars, counters, atol, system)


@kernel
def prepare_dense(vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> float:
    """Write the coefficients of the polynomial inside the last step, unless they are there; return its error / rtol."""
    m, D, h = system[SIZES][0], system[SIZES][2], scalars[LAST_STEP]
    y, start, dense = vectors[ROW_STATE], vectors[ROW_START], vectors[ROW_DENSE:ROW_ZERO]
    begin, end, stages = vectors[ROW_STAGES], vectors[ROW_END], vectors[ROW_STAGES:ROW_DENSE]
    if counters[DENSE_READY] == 0:
        copy_row(end, vectors[ROW_RATES])
        slow(h, y, end, vectors, scalars, counters, system)
        for s in range(13, 16):
            take_stage(s, h, vectors, scalars, counters, system)
        counters[EVALUATIONS] += 3
        for i in range(y.size):
            dense[0, i] = y[i] - start[i]
            dense[1, i] = h * begin[i] - dense[0, i]
            dense[2, i] = 2.0 * dense[0, i] - h * (end[i] + begin[i])
        for q in range(4):
            add_stages(vectors[ROW_ZERO], stages, 18 + q, h, y.size, dense[3 + q])
        counters[DENSE_READY] = 1
    worst = 0.0
    for i in range(m):
        total = square(dense[6, m * D + i])
        for k in range(i * D, (i + 1) * D):
            total += square(dense[6, k])
        worst = max(worst, total)
    return float(DOP853_DENSE_ERROR * np.sqrt(worst) / scalars[RTOL])


@kernel
def state_inside(t: float, out: Vector, vectors: Matrix, scalars: Vector, system: System) -> None:
    """Write the state at a time strictly within the last step, whose polynomial is there."""
    x = (t - scalars[TIME_START]) / scalars[LAST_STEP]
    start, dense = vectors[ROW_START], vectors[ROW_DENSE:ROW_ZERO]
    for i in range(out.size):
        value = dense[6, i]
        for q in range(5, -1, -1):
            value = dense[q, i] + (x if q % 2 == 1 else 1.0 - x) * value
        out[i] = start[i] + x * value
    normalise(out, system)


@kernel
def rise_of_event(e: int, vectors: Matrix, scalars: Vector, events: Matrix, system: System) -> float:
    """Return the time in the last step at which an event rises to zero, by false position with the Illinois weight."""
    low, high = scalars[TIME_START], scalars[TIME]
    values = events[EVENT_NOW]
    low_value, high_value = events[EVENT_BEFORE, e], values[e]
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
        state_inside(t, vectors[ROW_TRIAL], vectors, scalars, system)
        event_values(t, vectors[ROW_TRIAL], values, system)
        if values[e] >= 0.0:
            high, high_value = t, values[e]
            low_value *= 0.5 if side > 0 else 1.0
            side = 1
        else:
            low, low_value = t, values[e]
            high_value *= 0.5 if side < 0 else 1.0
            side = -1
    event_values(scalars[TIME], vectors[ROW_STATE], values, system)
    return float(high)


@kernel
def record_events(vectors: Matrix, scalars: Vector, counters: Integers, events: Matrix, system: System) -> None:
    """Write the times of events that were passed in the last step, or at the start."""
    if not events_passed(scalars[TIME], vectors[ROW_STATE], events, system):
        return
    for e in range(events.shape[1]):
        if np.isnan(events[EVENT_TIME, e]) and events[EVENT_NOW, e] >= 0.0:
            events[EVENT_TIME, e] = scalars[TIME_START]
            if scalars[TIME] > scalars[TIME_START] and events[EVENT_BEFORE, e] < 0.0:
                prepare_dense(vectors, scalars, counters, system)
                events[EVENT_TIME, e] = rise_of_event(e, vectors, scalars, events, system)


@kernel
def begin(vectors: Matrix, scalars: Vector, counters: Integers, atol: Vector, events: Matrix, system: System) -> None:
    """Start with a step short enough to be linear."""
    m, D = system[SIZES][0], system[SIZES][2]
    y, rates = vectors[ROW_STATE], vectors[ROW_RATES]
    rhs(scalars[TIME], y, rates, system)
    counters[EVALUATIONS] += 1
    copy_row(vectors[ROW_START], y)
    fastest = 1e-290
    for i in range(y.size):
        fastest = max(fastest, abs(rates[i]) * (scalars[RTOL] / atol[0] if i < m * D else 1.0))
    scalars[STEP] = 1e-2 / fastest
    cluster, _, _, _ = parts(counters, m)
    for i in range(m):
        cluster[i] = -1
    counters[READY] = 1
    record_events(vectors, scalars, counters, events, system)


@kernel
def take_step(
    target: float, vectors: Matrix, scalars: Vector, counters: Integers, atol: Vector, events: Matrix, system: System
) -> int:
    """Take one accepted step; return why that is impossible, or that it was done.

    If `target` is inside, its polynomial is made; where that is not good enough, as with a stiff mode, the step ends at
    `target`, or after a fifth of its length if `target` comes before that.
    """
    y, t, h = vectors[ROW_STATE], scalars[TIME], scalars[STEP]
    divide(vectors, scalars, counters, system)
    copy_row(vectors[ROW_START], y)
    copy_row(vectors[ROW_RATES_START], vectors[ROW_RATES])
    before, planned, most, error = scalars[LAST_STEP], 0.0, LARGEST_FACTOR, 0.0
    scalars[STEP_BEFORE] = before
    scalars[TIME_START] = t
    while True:
        if not (h > SMALLEST_STEP * t or (t == 0.0 and h > SMALLEST_STEP_AT_ZERO)):
            copy_row(y, vectors[ROW_START])
            copy_row(vectors[ROW_RATES], vectors[ROW_RATES_START])
            return STATUS_STEP_TOO_SMALL if np.isfinite(h) else STATUS_NOT_FINITE
        error = attempt(h, vectors, scalars, counters, atol, system)
        if error <= 1.0:
            copy_row(y, vectors[ROW_NEW])
            normalise(y, system)
            rhs(t + h, y, vectors[ROW_RATES], system)
            counters[EVALUATIONS] += 1
            scalars[LAST_STEP] = h
            counters[DENSE_READY] = 0
            land(h, vectors, scalars, counters, system)
            inside = t < target < t + h and h != target - t
            if not inside or prepare_dense(vectors, scalars, counters, system) <= 1.0:
                break
            planned = planned if planned > 0.0 else h
            h = max(target - t, SMALLEST_FACTOR * h)
            continue
        counters[REJECTED] += 1
        factor = SAFETY * error**-0.125 if error < np.inf else 0.0
        h *= max(SMALLEST_FACTOR, min(factor, LAG_SAFETY))
        planned, most = 0.0, 1.0
    scalars[TIME] = t + h
    factor = SAFETY * max(error, 1e-12) ** -0.125
    scalars[STEP] = planned if planned > 0.0 else h * min(most, max(SMALLEST_FACTOR, factor))
    counters[ACCEPTED] += 1
    scalars[END_TIMES + counters[ACCEPTED] % KEPT_TIMES] = t + h
    record_events(vectors, scalars, counters, events, system)
    return STATUS_REACHED


@kernel
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
    if counters[READY] == 0:
        begin(vectors, scalars, counters, atol, events, system)
    last = counters[ACCEPTED] + counters[REJECTED] + max_steps
    while scalars[TIME] < target:
        if counters[ACCEPTED] + counters[REJECTED] >= last:
            return STATUS_MAX_STEPS
        status = take_step(target, vectors, scalars, counters, atol, events, system)
        if status != STATUS_REACHED:
            return status
    return STATUS_REACHED


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
    numbers: tuple[Vector, Integers, Vector],
    rhs: Callable[..., None],
    event_values: Callable[..., None],
    normalise: Callable[..., None],
) -> int:
    """Advance to the last of some increasing times, writing the state at each; return status and number of these."""
    system = (numbers[0], numbers[1], numbers[2], rhs, event_values, normalise)
    return save_through(targets, max_steps, states, arrays, system)
