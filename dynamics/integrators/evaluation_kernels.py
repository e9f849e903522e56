"""Calls of the functions of a system from Python; executed after `system_calls`."""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.integrators.system_calls import *


@entry("void(i8, f8, f8[::1], f8[::1], Tuple((i8[::1], f8[::1], i8[::1], f8[::1])))")
def evaluate(which: int, t: float, y: Vector, out: Vector, system: System) -> None:
    """Call the right-hand side or the events, or put `out` on its constraints, from Python."""
    if which == RHS:
        rhs(t, y, out, system)
    elif which == EVENT_VALUES:
        event_values(t, y, out, system)
    else:
        normalise(out, system)
