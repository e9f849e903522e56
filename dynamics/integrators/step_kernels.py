"""Shared parts of compiled methods: rows and slots of the arrays of their state, events, and steps to saved times.

The arrays are `vectors` (rows of length n), `scalars`, `counters` and `events`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.integrators.system_calls import SIZES, System, event_values
from dynamics.kernels.jit import kernel, pasted_kernel, unowned
from dynamics.kernels.stopping import is_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hermite.arrays import Matrix, Vector

    # Vectors, scalars, counters, absolute tolerances and events; an entry receives those of a system behind them.
    Arrays = tuple[Any, ...]


# Rows of `vectors`: state now, state at the start of the last step, trial state.
ROW_STATE, ROW_START, ROW_TRIAL = 0, 1, 2
# Slots of `scalars`: time now, start of the last step, next step length, relative tolerance, forced step length
# (0: adaptive), largest step length.
TIME, TIME_START, STEP, RTOL, FIXED_STEP, LARGEST_STEP = 0, 1, 2, 3, 4, 5
# Slots of `counters`; FAILURES counts rejections since the last accepted step.
READY, DENSE_READY, ACCEPTED, REJECTED, EVALUATIONS, FAILURES = 0, 1, 2, 3, 4, 5
# Rows of `events`: time of passing (not-a-number: not yet), values now, values at the start of the last step.
EVENT_TIME, EVENT_NOW, EVENT_BEFORE = 0, 1, 2
# `advance_through` returns a status and, in units of this, how many times were passed.
PASSED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sizes of the arrays of a compiled method, and what their rows and slots are for."""

    rows: int
    scalars: int
    counters: int
    #: Rows of `vectors` that a step finds, and those that dense output reads; all others are scratch.
    kept: tuple[int, ...]
    #: Name of each public count and its slot in `counters`.
    statistics: Mapping[str, int]
    #: Numbers of `scalars` that are not scratch, None for all.
    kept_scalars: int | None = None


STATISTICS = {"steps_accepted": ACCEPTED, "steps_rejected": REJECTED, "rhs_evaluations": EVALUATIONS}

STATUS_REACHED, STATUS_MAX_STEPS, STATUS_STEP_TOO_SMALL, STATUS_NOT_FINITE, STATUS_EVENT = 0, 1, 2, 3, 4

# A step below this multiple of the time is lost in rounding; the second number ends the search at time 0.
SMALLEST_STEP, SMALLEST_STEP_AT_ZERO = 16.0 * 2.220446049250313e-16, 1e-290


@kernel
def copy_row(out: Vector, source: Vector) -> None:
    """Copy one vector; a plain loop compiles ten times faster than a slice assignment."""
    for i in range(out.size):
        out[i] = source[i]


@kernel
def unowned_arrays(arrays: Arrays) -> Arrays:
    """Return the arrays of a method without owners: counting references to rows took a tenth of small steps."""
    a, b, c, d, e, f, g, h = arrays
    return unowned(a), unowned(b), unowned(c), unowned(d), unowned(e), unowned(f), unowned(g), unowned(h)


@kernel
def events_passed(t: float, y: Vector, events: Matrix, system: System) -> bool:
    """Write the values of all events at time t and state y; return whether one not yet recorded is at or above 0."""
    for e in range(events.shape[1]):
        events[EVENT_BEFORE, e] = events[EVENT_NOW, e]
    event_values(t, y, events[EVENT_NOW], system)
    return is_passed(events)


@kernel
def is_passed(events: Matrix) -> bool:
    """Return whether an event (a column of `events`) without a recorded time has a value at or above 0."""
    passed = False
    for e in range(events.shape[1]):
        if np.isnan(events[EVENT_TIME, e]) and events[EVENT_NOW, e] >= 0.0:
            passed = True
    return passed


# Relative accuracy of an event time; every fourth trial bisects, so that the number of trials is bounded.
ACCURACY, MOST_TRIALS = 1e-13, 200

# Times below and above a rise to zero, the values there, and which of them moved last (−1, 1).
Bracket = tuple[float, float, float, float, int]


@pasted_kernel
def next_trial(trial: int, bracket: Bracket, tolerance: float) -> float:
    """Return a time inside a bracket of a root, by false position, or its middle in every fourth trial.

    `trial` counts from 0; the time is at least half of `tolerance` away from both ends.
    """
    low, high, low_value, high_value, _ = bracket
    t = high - high_value * (high - low) / (high_value - low_value)
    if trial % 4 == 3:
        t = 0.5 * (low + high)
    # A root within the accuracy of one end is enclosed by stepping just past it.
    return min(max(t, low + 0.5 * tolerance), high - 0.5 * tolerance)


@pasted_kernel
def narrowed(bracket: Bracket, t: float, value: float) -> Bracket:
    """Return the bracket of a root that ends at the time t with this value.

    The value at an end that stays again is halved (Illinois method).
    """
    low, high, low_value, high_value, side = bracket
    if value >= 0.0:
        return low, t, low_value * (0.5 if side > 0 else 1.0), value, 1
    return t, high, value, high_value * (0.5 if side < 0 else 1.0), -1


def event_recorder(interpolate: Callable[..., None]) -> Callable[..., None]:
    """Return the kernel record_events(arrays, system) of a method, which writes the times of events of a step.

    `interpolate` writes the state within the last step. An event that has risen to 0 is located between both ends of
    the step by bracketing, to `ACCURACY`.
    """

    @pasted_kernel
    def record_events(arrays: Arrays, system: System) -> None:
        """Write the times at which events rose to 0 within the last step; the start for those at 0 before."""
        vectors, scalars, counters, _, events = arrays
        start, end, now = scalars[TIME_START], scalars[TIME], events[EVENT_NOW]
        tolerance = ACCURACY * max(abs(end), end - start)
        for e in range(events.shape[1]):
            if np.isnan(events[EVENT_TIME, e]) and now[e] >= 0.0:
                events[EVENT_TIME, e] = start
                if end > start and events[EVENT_BEFORE, e] < 0.0:
                    bracket = (start, end, events[EVENT_BEFORE, e], now[e], 0)
                    for trial in range(MOST_TRIALS):
                        if bracket[1] - bracket[0] <= tolerance:
                            break
                        if is_stopped(system[SIZES]):
                            return
                        t = next_trial(trial, bracket, tolerance)
                        interpolate(t, vectors[ROW_TRIAL], vectors, scalars, counters, system)
                        event_values(t, vectors[ROW_TRIAL], now, system)
                        bracket = narrowed(bracket, t, now[e])
                    event_values(end, vectors[ROW_STATE], now, system)
                    events[EVENT_TIME, e] = bracket[1]

    return record_events


def saving_steps(
    advance: Callable[..., int], interpolate: Callable[..., None], record_events: Callable[..., None]
) -> Callable[..., int]:
    """Return the kernel save_through(targets, max_steps, states, arrays, system) of a method with these kernels.

    It advances to the last of some increasing times, writes the state at each if `states` has rows, and returns the
    status and, in units of `PASSED`, the number of these times. `advance` returns `STATUS_EVENT` where a step passed
    one.
    """

    @pasted_kernel
    def save_through(targets: Vector, max_steps: int, states: Matrix, arrays: Arrays, system: System) -> int:
        """Advance through the targets; return status + `PASSED` · number of targets passed."""
        vectors, scalars, counters = arrays[:3]
        last = counters[ACCEPTED] + counters[REJECTED] + max_steps
        for k in range(targets.size):
            t, status = targets[k], STATUS_EVENT
            while status == STATUS_EVENT:
                remaining_steps = last - counters[ACCEPTED] - counters[REJECTED]
                status = advance(t, remaining_steps, arrays, system)
                if status == STATUS_EVENT:
                    record_events(arrays, system)
            if status != STATUS_REACHED:
                return int(status + PASSED * k)
            if states.shape[0] == 0:
                continue
            if t == scalars[TIME]:
                copy_row(states[k], vectors[ROW_STATE])
            elif t == scalars[TIME_START]:
                copy_row(states[k], vectors[ROW_START])
            else:
                interpolate(t, states[k], vectors, scalars, counters, system)
        return int(STATUS_REACHED + PASSED * targets.size)

    return save_through
