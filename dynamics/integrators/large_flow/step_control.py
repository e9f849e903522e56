"""Constants of step control, and the common part of the steppers with slowed clusters."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.integrators.clusters import (
    LAG_SAFETY,
    SAFETY,
    SMALLEST_FACTOR,
    STALL_GAIN,
    STALL_STEPS,
)
from dynamics.integrators.stepper import Status
from hermite.arrays import Array

if TYPE_CHECKING:
    from dynamics.problem import Problem

#: Error of the polynomial inside a step, in units of rtol, from which on the step ends at the saved time inside it
#: instead. Steps are a hundred times as accurate as rtol, so that at 1 the polynomials of single steps in which a
#: neuron escapes were the error of the loss: 3.2e-5 with 128 directions at rtol 1e-4, 1.7e-7 with 0.03, for 4 % more
#: steps. The escape of the first of 1024 directions was wrong by 3.0e-5 with 0.03 and is by 3.7e-7 with 0.01, for 1 %
#: more steps.
DENSE_TOLERANCE = 0.01
#: Absolute tolerance of a coordinate in units of rtol / √d, where the given one is smaller: single coordinates have no
#: meaning, since rotations of the complement of the teacher change them.
COORDINATE_FLOOR = 0.1
SMALLEST_STEP = 16.0 * np.finfo(np.float64).eps


def tolerances(problem: Problem, rtol: float, atol: float) -> tuple[float, float, float]:
    """Return the absolute and the relative tolerance of a coordinate, and the absolute one of ln n."""
    return max(atol, COORDINATE_FLOOR * rtol) / np.sqrt(problem.dimension), rtol, max(atol, rtol)


def factor_of(error: float) -> float:
    """Return the factor by which the length of a step may change, given its error in units of the tolerance."""
    return SAFETY * error**-0.125 if np.isfinite(error) else 0.0


def shortened(h: float, factor: float) -> float:
    """Return the length of the next try after a step of length h was rejected."""
    return h * max(SMALLEST_FACTOR, min(factor, LAG_SAFETY))


class ClusterStepper:
    """A stepper with slowed clusters: time, events, and whether steps still advance the time."""

    #: Length of the next step.
    _h: float

    def __init__(self, num_events: int) -> None:
        self._time = 0.0
        self._event_times = np.full(num_events, np.nan)
        self._marks: list[float] = []
        # Held while what `state` copies is changed.
        self._whole = threading.Lock()

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return self._time

    @property
    def event_times(self) -> Array:
        """Time at which each direction emerged, then was learned; NaN until then."""
        return np.array(self._event_times)

    @property
    def stalled(self) -> bool:
        """Whether stiffness that no cluster explains has held up the run for long."""
        marks = self._marks
        return len(marks) > STALL_STEPS and marks[-1] < STALL_GAIN * marks[-1 - STALL_STEPS]

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        last = self._tried() + max_steps
        while self._time < target:
            if self._tried() >= last:
                return Status.MAX_STEPS
            failure = self._advance_once(target)
            if failure is not None:
                return failure
        return Status.REACHED

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations of the full field."""
        raise NotImplementedError

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit; before a step, while it is taken."""
        with self._whole:
            return self._copies()

    def _copies(self) -> dict[str, NDArray[np.generic]]:
        raise NotImplementedError

    def _tried(self) -> int:
        counts = self.statistics()
        return counts["steps_accepted"] + counts["steps_rejected"]

    def _advance_once(self, target: float) -> Status | None:
        """Take one accepted step; return why that is impossible, or None."""
        raise NotImplementedError

    def _failure(self, h: float) -> Status | None:
        """Return why no step of length h can be taken, or None."""
        if h > SMALLEST_STEP * self._time or (self._time == 0.0 and h > 1e-290):
            return None
        return Status.STEP_TOO_SMALL if np.isfinite(h) else Status.NOT_FINITE

    def _lies_inside(self, target: float, h: float) -> bool:
        """Return whether a time lies within a step of length h; by rounding a step to it may end a bit beyond it."""
        return self._time < target < self._time + h and h != target - self._time

    def _mark(self) -> None:
        """Remember the time of an accepted step."""
        self._marks = [*self._marks[-STALL_STEPS:], self._time]
