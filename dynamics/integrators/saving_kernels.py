"""Steps of a compiled method through saved times, whose states are kept.

Executed after `advance` and `interpolate` of the method.
"""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.integrators.bdf.bdf_kernels import advance, interpolate
    from dynamics.integrators.shared_kernels import STATUS_REACHED, copy_row
    from dynamics.integrators.slots import *
    from dynamics.integrators.system_calls import System


@entry(
    "i8(f8[::1], i8, f8[:, ::1], f8[:, ::1], f8[::1], i8[::1], f8[::1], f8[:, ::1],"
    " Tuple((i8[::1], f8[::1], i8[::1], f8[::1])))"
)
def advance_through(
    targets: Vector,
    max_steps: int,
    states: Matrix,
    vectors: Matrix,
    scalars: Vector,
    counters: Integers,
    atol: Vector,
    events: Matrix,
    system: System,
) -> int:
    """Advance to the last of some increasing times, writing the state at each; return status and number of these.

    No state is written if `states` has no rows.
    """
    last = counters[ACCEPTED] + counters[REJECTED] + max_steps
    for k in range(targets.size):
        t = targets[k]
        left = last - counters[ACCEPTED] - counters[REJECTED]
        status: int = advance(t, left, vectors, scalars, counters, atol, events, system)
        if status != STATUS_REACHED:
            return status + PASSED * k
        if states.shape[0] == 0:
            continue
        if t == scalars[TIME]:
            copy_row(states[k], vectors[ROW_STATE])
        elif t == scalars[TIME_START]:
            copy_row(states[k], vectors[ROW_START])
        else:
            interpolate(t, states[k], vectors, scalars, counters, system)
    return STATUS_REACHED + PASSED * targets.size
