"""Compiled calls of the functions of a system.

Executed before every other piece of a method.

A system arrives as the tuple (functions, parameters, sizes, work): the addresses of its functions in the order below,
and the three arrays that each of them receives. Both places of the Jacobian hold the same; a system without the product
has no last place. Some methods add addresses of functions of their own.
"""

from dynamics.compiler.arrays import Integers, Vector
from dynamics.compiler.compilation import kernel
from dynamics.compiler.invocation import invoke
from dynamics.compiler.stopping import STOP
from dynamics.compiler.views import vector

System = tuple[Integers, Vector, Integers, Vector]

RHS, EVENT_VALUES, NORMALISE, JACOBIAN_DIAGONAL, JACOBIAN_PRODUCT = 0, 1, 2, 3, 4


@kernel
def is_given_up(system: System) -> bool:
    """Return whether the step is given up: nothing that it writes matters any more."""
    sizes = system[2]
    return bool(sizes[sizes.size - 1] == STOP)


@kernel
def rhs(t: float, y: Vector, out: Vector, system: System) -> None:
    """Write y' into `out`, anything once the step is given up."""
    if not is_given_up(system):
        invoke(system[0][RHS], (t, y, out, system[1], system[2], system[3]))


@kernel
def event_values(t: float, y: Vector, out: Vector, system: System) -> None:
    """Write the event functions into `out`."""
    invoke(system[0][EVENT_VALUES], (t, y, out, system[1], system[2], system[3]))


@kernel
def normalise(y: Vector, system: System) -> None:
    """Put a state back on its constraints, in place."""
    invoke(system[0][NORMALISE], (y, system[1], system[2]))


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, system: System) -> None:
    """Write the diagonal of the Jacobian into `out`, anything once the step is given up."""
    if not is_given_up(system):
        invoke(system[0][JACOBIAN_DIAGONAL], (t, y, vector(y, 0, 0), out, system[1], system[2], system[3]))


@kernel
def jacobian_product(t: float, y: Vector, v: Vector, out: Vector, system: System) -> None:
    """Write the product of the Jacobian with `v` into `out`, anything once the step is given up."""
    if not is_given_up(system):
        invoke(system[0][JACOBIAN_PRODUCT], (t, y, v, out, system[1], system[2], system[3]))
