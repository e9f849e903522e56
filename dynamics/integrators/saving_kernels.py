"""Steps of a compiled method through saved times, whose states are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamics.integrators.shared_kernels import STATUS_REACHED, copy_row
from dynamics.integrators.slots import ACCEPTED, PASSED, REJECTED, ROW_START, ROW_STATE, TIME, TIME_START
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import pasted_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.integrators.system_calls import System

    #: Vectors, scalars, counters, absolute tolerances, events of a method; parameters, sizes, scratch of a system.
    Arrays = tuple[Matrix, Vector, Integers, Vector, Matrix, Vector, Integers, Vector]


def saving_steps(advance: Callable[..., int], interpolate: Callable[..., None]) -> Callable[..., int]:
    """Return the kernel save_through(targets, max_steps, states, arrays, system) of a method with these kernels.

    It advances to the last of some increasing times, writes the state at each, and returns the status and, in units of
    `PASSED`, the number of these times. `arrays` are the vectors, scalars, counters, absolute tolerances and events of
    the method. No state is written if `states` has no rows.
    """

    @pasted_kernel
    def save_through(targets: Vector, max_steps: int, states: Matrix, arrays: Arrays, system: System) -> int:
        vectors, scalars, counters, atol, events = arrays[:5]
        last = counters[ACCEPTED] + counters[REJECTED] + max_steps
        for k in range(targets.size):
            t = targets[k]
            left = last - counters[ACCEPTED] - counters[REJECTED]
            status = advance(t, left, vectors, scalars, counters, atol, events, system)
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
