"""The time at which an event is passed inside a step, located alike for every method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermite.arrays import Array

# Relative accuracy of an event time; every fourth trial bisects, so that the number of trials is bounded.
ACCURACY = 1e-13
MAX_TRIALS = 200


def record_crossings(
    times: Array,
    before: Array,
    now: Array,
    interval: tuple[float, float],
    values_at: Callable[[float], Array],
) -> None:
    """Write the time of each waiting event that is at or above zero at the end of a step.

    An event counts as passed at its first rise to zero; one that rises and falls back within a single step is not seen.
    `times` are not-a-number while waiting, and changed in place. `before` and `now` are the values at both ends of the
    interval, whose ends are equal at the initial state, and `values_at` gives them at a time strictly within.
    """
    start, end = interval
    for event in np.flatnonzero(np.isnan(times) & (now >= 0.0)):
        crossed = end > start and before[event] < 0.0
        times[event] = (
            _rise(int(event), start, end, float(before[event]), float(now[event]), values_at) if crossed else start
        )


def _rise(
    event: int,
    low: float,
    high: float,
    low_value: float,
    high_value: float,
    values_at: Callable[[float], Array],
) -> float:
    """Bracket the rise by false position with the Illinois weight."""
    tolerance = ACCURACY * max(abs(high), high - low)
    side = 0
    for trial in range(MAX_TRIALS):
        if high - low <= tolerance:
            break
        t = high - high_value * (high - low) / (high_value - low_value)
        if trial % 4 == 3:
            t = 0.5 * (low + high)
        # A root within the accuracy of one end is enclosed by stepping just past it.
        t = min(max(t, low + 0.5 * tolerance), high - 0.5 * tolerance)
        value = float(values_at(t)[event])
        if value >= 0.0:
            high, high_value = t, value
            low_value *= 0.5 if side > 0 else 1.0
            side = 1
        else:
            low, low_value = t, value
            high_value *= 0.5 if side < 0 else 1.0
            side = -1
    return high
