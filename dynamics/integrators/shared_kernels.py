"""Compiled pieces that every stepper uses: slots of the state arrays, a vector copy, events.

The state of a stepper is four arrays: `vectors` (rows of length n), `scalars`, `counters`, `events`.  The slots below
are common to all methods; a method adds its own after them.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.integrators.system_calls import System, event_values

# Rows of `vectors`: state now, state at the start of the last step, trial state.
ROW_STATE, ROW_START, ROW_TRIAL = 0, 1, 2
# Slots of `scalars`: time now, start of the last step, next step length, relative tolerance, forced step length
# (0: adaptive), largest step length.
TIME, TIME_START, STEP, RTOL, FIXED_STEP, LARGEST_STEP = 0, 1, 2, 3, 4, 5
# Slots of `counters`; FAILURES counts rejections since the last accepted step.
READY, DENSE_READY, ACCEPTED, REJECTED, EVALUATIONS, FAILURES = 0, 1, 2, 3, 4, 5
# Rows of `events`: time of passing (not-a-number: not yet), values now, values at the start of the last step.
EVENT_TIME, EVENT_NOW, EVENT_BEFORE = 0, 1, 2

STATUS_REACHED, STATUS_MAX_STEPS, STATUS_STEP_TOO_SMALL, STATUS_NOT_FINITE, STATUS_EVENT = 0, 1, 2, 3, 4

# A step below this multiple of the time is lost in rounding; the second number ends the search at time 0.
SMALLEST_STEP, SMALLEST_STEP_AT_ZERO = 16.0 * 2.220446049250313e-16, 1e-290


@kernel
def copy_row(out: Vector, source: Vector) -> None:
    """Copy one vector; a plain loop compiles ten times faster than a slice assignment."""
    for i in range(out.size):
        out[i] = source[i]


@kernel
def events_passed(t: float, y: Vector, events: Matrix, system: System) -> bool:
    """Evaluate all events at the current state and return whether a waiting one is at or above zero."""
    for e in range(events.shape[1]):
        events[EVENT_BEFORE, e] = events[EVENT_NOW, e]
    event_values(t, y, events[EVENT_NOW], system)
    passed = False
    for e in range(events.shape[1]):
        if np.isnan(events[EVENT_TIME, e]) and events[EVENT_NOW, e] >= 0.0:
            passed = True
    return passed
