"""Compiled Euler steps of any system; executed after `shared_kernels`."""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Integers, Matrix
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.integrators.shared_kernels import *
    from dynamics.integrators.system_calls import *

# Products of two such numbers, as a loss has them, are still numbers.
LARGEST_NUMBER = 1e150


@entry("i8(i8, f8, f8[:, ::1], Tuple((i8[::1], f8[::1], i8[::1], f8[::1])))")
def write_next(step: int, eta: float, states: Matrix, system: System) -> int:
    """Write y + η f(y), back on its constraints, into the free slot; return whether that is not finite."""
    y, new = states[step % 3], states[(step + 1) % 3]
    rhs(eta * step, y, new, system)
    for i in range(y.size):
        new[i] = y[i] + eta * new[i]
    normalise(new, system)
    largest = 0.0
    for i in range(y.size):
        # Written so that not-a-number is kept.
        largest = largest if abs(new[i]) <= largest else abs(new[i])
    return STATUS_REACHED if largest < LARGEST_NUMBER else STATUS_NOT_FINITE


@entry("i8(i8, i8[::1], f8, f8[:, ::1], f8[:, ::1], Tuple((i8[::1], f8[::1], i8[::1], f8[::1])))")
def descend(count: int, step: Integers, eta: float, states: Matrix, events: Matrix, system: System) -> int:
    """Take `count` steps, fewer if one blows up, which is then not taken, or passes an event."""
    for _ in range(count):
        if write_next(step[0], eta, states, system) != STATUS_REACHED:
            return STATUS_NOT_FINITE
        step[0] += 1
        if events_passed(eta * step[0], states[step[0] % 3], events, system):
            return STATUS_EVENT
    return STATUS_REACHED
