"""What every compiled method uses: limits of a step, a vector copy, events."""

import numpy as np

from dynamics.integrators.slots import EVENT_BEFORE, EVENT_NOW, EVENT_TIME
from dynamics.integrators.system_calls import System, event_values
from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import kernel

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
