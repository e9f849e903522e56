"""Calls of the functions of a system, which a method receives as arguments.

In compiled code a system is the tuple (parameters, sizes, work, rhs, event_values, normalise), followed by
(jacobian_diagonal, jacobian_product) for implicit methods.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types

from dynamics.kernels.jit import callback, entry, kernel, pasted_kernel
from dynamics.kernels.stopping import is_stopped, with_slot
from dynamics.kernels.units import INTEGERS, MATRIX, VECTOR, make_all_choices, make_choices, tuple_of
from hermite.arrays import aligned

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations import interface
    from dynamics.equations.interface import Functions
    from hermite.arrays import Array, Integers, Vector

System = tuple[Any, ...]

#: Numba's types of the arguments of methods: the functions of a system, the system, and arrays of a method.
_NUMBERS = VECTOR, INTEGERS, VECTOR
EVALUATION = types.void(types.float64, VECTOR, VECTOR, *_NUMBERS)
NORMALISATION = types.void(VECTOR, VECTOR, INTEGERS)
PRODUCT = types.void(types.float64, VECTOR, VECTOR, VECTOR, *_NUMBERS)
_FUNCTIONS = [types.FunctionType(kind) for kind in (EVALUATION, EVALUATION, NORMALISATION)]
_OF_JACOBIAN = [types.FunctionType(kind) for kind in (EVALUATION, PRODUCT)]
ARRAYS = tuple_of(MATRIX, VECTOR, INTEGERS, VECTOR, MATRIX)
#: Types of the annotations `System` and `Arrays` of units, in explicit and in implicit methods.
EXPLICIT: dict[str, Any] = {"System": tuple_of(*_NUMBERS, *_FUNCTIONS), "Arrays": ARRAYS}
IMPLICIT: dict[str, Any] = {"System": tuple_of(*_NUMBERS, *_FUNCTIONS, *_OF_JACOBIAN), "Arrays": ARRAYS}

PARAMETERS, SIZES, WORK, RHS, EVENT_VALUES, NORMALISE, JACOBIAN_DIAGONAL, JACOBIAN_PRODUCT = range(8)


@pasted_kernel
def rhs(t: float, y: Vector, out: Vector, system: System) -> None:
    """Write y' into `out`; once the step is given up its content is arbitrary."""
    if not is_stopped(system[SIZES]):
        # Exceptions of a user's function are lost on the way here; the values it has not written then fail the step.
        out[0] = out[out.size - 1] = np.nan
        system[RHS](t, y, out, system[PARAMETERS], system[SIZES], system[WORK])


@kernel
def event_values(t: float, y: Vector, out: Vector, system: System) -> None:
    """Write the event functions into `out`."""
    system[EVENT_VALUES](t, y, out, system[PARAMETERS], system[SIZES], system[WORK])


@kernel
def normalise(y: Vector, system: System) -> None:
    """Put a state back on its constraints, in place."""
    system[NORMALISE](y, system[PARAMETERS], system[SIZES])


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, system: System) -> None:
    """Write the diagonal of the Jacobian into `out`; once the step is given up its content is arbitrary."""
    if not is_stopped(system[SIZES]):
        system[RHS](t, y, out, system[PARAMETERS], system[SIZES], system[WORK])
        system[JACOBIAN_DIAGONAL](t, y, out, system[PARAMETERS], system[SIZES], system[WORK])


@kernel
def jacobian_product(t: float, y: Vector, v: Vector, out: Vector, system: System) -> None:
    """Write the product of the Jacobian with `v` into `out`; once the step is given up its content is arbitrary."""
    if not is_stopped(system[SIZES]):
        system[JACOBIAN_PRODUCT](t, y, v, out, system[PARAMETERS], system[SIZES], system[WORK])


@entry
def evaluate(function: Callable[..., None], t: float, y: Vector, out: Vector, numbers: tuple[Any, ...]) -> None:
    """Call a right-hand side, events or the diagonal of a Jacobian from Python, unless the step is given up."""
    if not is_stopped(numbers[SIZES]):
        function(t, y, out, numbers[0], numbers[1], numbers[2])


@entry
def evaluate_product(
    function: Callable[..., None], t: float, y: Vector, v: Vector, out: Vector, numbers: tuple[Any, ...]
) -> None:
    """Call the product of a Jacobian with `v` from Python, unless the step is given up."""
    if not is_stopped(numbers[SIZES]):
        function(t, y, v, out, numbers[0], numbers[1], numbers[2])


@entry
def put_back(function: Callable[..., None], y: Vector, numbers: tuple[Any, ...]) -> None:
    """Put a state back on its constraints from Python."""
    function(y, numbers[0], numbers[1])


# Defaults for functions that a system lacks: no preconditioner, no events, no constraints. The product is never
# called where there is none.


@kernel
def _zeros(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write zeros to `out`."""
    for i in range(out.size):
        out[i] = 0.0


@kernel
def _product(t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Do nothing: the product with a Jacobian of systems that have none."""
    pass


@kernel
def _as_it_is(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Leave a state without constraints as it is."""
    pass


@lru_cache(maxsize=256)
def callbacks(functions: Functions, *, implicit: bool) -> tuple[Any, ...]:
    """Return the functions of a system as arguments of entries, compiled or loaded once per process for equal ones.

    They are in the order of `Functions`, those of the Jacobian for implicit methods alone.
    """
    if functions.choices is None:
        kernels = (functions.rhs, functions.event_values, functions.normalise, functions.jacobian_diagonal)
        make_all_choices([function for function in (*kernels, functions.jacobian_product) if function is not None])
    else:
        make_choices(functions.choices)
    evaluations = (
        callback(functions.rhs, EVALUATION),
        callback(functions.event_values or _zeros, EVALUATION),
        callback(functions.normalise or _as_it_is, NORMALISATION),
    )
    if not implicit:
        return evaluations
    return (
        *evaluations,
        callback(functions.jacobian_diagonal or _zeros, EVALUATION),
        callback(functions.jacobian_product or _product, PRODUCT),
    )


class BoundSystem:
    """A system that a stepper integrates: its functions, compiled or loaded, copies of its numbers, and scratch.

    `work` is the scratch, new by default.
    """

    def __init__(self, system: interface.EquationSystem, work: Array | None = None, *, implicit: bool = False) -> None:
        """Compile or load the functions of a system, and copy its numbers.

        `numbers` become (parameters, sizes with one more integer, `STOP` or 0, and scratch); `implicit` says that the
        functions that implicit methods need are wanted too.
        """
        self.functions = callbacks(system.functions, implicit=implicit)
        #: Whether there is a product with the Jacobian.
        self.has_product = system.functions.jacobian_product is not None
        self.least_stiff = system.functions.least_stiff
        parameters = aligned(system.parameters.size)
        parameters[...] = system.parameters
        self.numbers = parameters, with_slot(system.sizes), aligned(system.work_size) if work is None else work
        #: Where the functions look for `STOP`, (1,).
        self.slot = self.numbers[1][-1:]

    def rhs(self, t: float, y: Array, out: Array) -> None:
        """Write y' into `out`."""
        evaluate(self.functions[0], float(t), y, out, self.numbers)

    def event_values(self, t: float, y: Array, out: Array) -> None:
        """Write the event functions into `out`."""
        evaluate(self.functions[1], float(t), y, out, self.numbers)

    def normalise(self, y: Array) -> None:
        """Put a state back on its constraints, in place."""
        put_back(self.functions[2], y, self.numbers)

    def jacobian_diagonal(self, t: float, y: Array, out: Array) -> None:
        """Write the diagonal of the Jacobian into `out`."""
        self.rhs(t, y, out)
        evaluate(self.functions[3], float(t), y, out, self.numbers)

    def jacobian_product(self, t: float, y: Array, v: Array, out: Array) -> None:
        """Write the product of the Jacobian with `v` into `out`."""
        evaluate_product(self.functions[4], float(t), y, v, out, self.numbers)
