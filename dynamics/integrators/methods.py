"""The menu of methods, and the functions that make a stepper of any of them."""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dynamics.integrators import METHODS
from dynamics.integrators.compiled_stepper import LAYOUTS, BdfStepper
from dynamics.integrators.stepper import Stepper, Tolerances, check_vector
from dynamics.integrators.system_calls import BoundSystem, callbacks
from dynamics.threads.stopping import with_slot
from hermite.text.messages import not_a_choice, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from dynamics.equations.interface import Functions, System
    from hermite.arrays import Array, Integers

# Stands for an event value that was not written.
_UNTOUCHED = -1.2345678e300
_IMPLICIT = ("bdf", "sundials")


def check_method(method: object, menu: Sequence[str] = METHODS) -> str:
    """Return the name of a method of the menu.

    Raises TypeError or ValueError if it is none of them, ImportError if it needs a package that is not installed.

    Examples
    --------
    >>> check_method("explicit")
    'explicit'
    """
    if not isinstance(method, str):
        msg = f"Argument `method` must be a string, but is {shown(method)}."
        raise TypeError(msg)
    if method not in menu:
        raise ValueError(not_a_choice("Argument `method`", method, menu))
    if method == "sundials":
        from dynamics.integrators.foreign import check_installed

        check_installed()
    return method


def _check_events(state: Array, bound: BoundSystem, num_events: int, t0: float) -> None:
    """Refuse fewer events than the system writes, which would end outside of the steppers' arrays.

    They are counted by letting the system write them once, with room behind them for two per component of the state.
    """
    if num_events < 0:
        msg = f"Argument `num_events` must be at least 0, but is {num_events}."
        raise ValueError(msg)
    values = np.full(num_events + 2 * state.size + 64, _UNTOUCHED)
    try:
        bound.event_values(t0, state.copy(), values[:num_events])
    except IndexError:  # Python runs the functions, and refuses what is written behind the end
        bound.event_values(t0, state.copy(), values)
    written = int(np.flatnonzero(values != _UNTOUCHED).max(initial=-1)) + 1
    if written > num_events:
        msg = f"Argument `num_events` must be at least {written}, as the system has, but is {num_events}."
        raise ValueError(msg)


def make_stepper(
    method: str,
    functions: Functions,
    y0: ArrayLike,
    parameters: ArrayLike,
    sizes: ArrayLike,
    work: Array,
    *,
    rtol: float = 1e-8,
    atol: float | Array = 1e-10,
    num_events: int = 0,
    t0: float = 0.0,
    fixed_step: float = 0.0,
    largest_step: float = np.inf,
    fixed_order: int = 0,
) -> Stepper:
    """Return a stepper at the initial state y(t0) = y0, shape (n,), of y' = rhs(t, y); all numbers are dimensionless.

    The methods are ``"explicit"``, of order 8, best without stiffness; ``"bdf"``, matrix-free backward differentiation
    of order 1 to 5; ``"sundials"``, the same by CVODE, an extra; ``"scipy:<name>"``, a referee.

    The functions of a system are compiled, or loaded, at first use. They receive `parameters`, `sizes` and the scratch
    `work`, which is never copied. `rtol` and `atol`, a number or one per component, bound the error of each component
    in a step; `fixed_step` and `fixed_order` force every step and the order of ``"bdf"`` unless 0.

    Raises TypeError, ValueError or ImportError if an argument is wrong or the method is not installed.
    """
    check_method(method)
    tolerances = Tolerances(
        rtol=rtol, atol=atol, fixed_step=fixed_step, largest_step=largest_step, fixed_order=fixed_order
    )
    state = cast("Array", check_vector(y0, "y0", np.float64))
    numbers = cast("Array", check_vector(parameters, "parameters", np.float64))
    integers = cast("Integers", check_vector(sizes, "sizes", np.int64))
    if method == "explicit" and fixed_order != 0:
        msg = f"Argument `fixed_order` must be 0 for method 'explicit', but is {fixed_order}."
        raise ValueError(msg)
    family, _, name = method.partition(":")
    bound = BoundSystem(
        callbacks(functions, implicit=family in _IMPLICIT),
        numbers,
        with_slot(integers),
        work,
        has_product=functions.jacobian_product is not None,
    )
    _check_events(state, bound, num_events, t0)
    control: dict[str, Any] = {"tolerances": tolerances, "num_events": num_events, "t0": t0}
    if family == "scipy":
        # Imported here because scipy.integrate is heavy and a referee is rare.
        from dynamics.integrators.foreign import ScipyStepper

        return ScipyStepper(name, state, bound, **control)
    if family == "sundials":
        from dynamics.integrators.foreign import SundialsStepper

        return SundialsStepper(state, bound, **control)
    if family == "explicit":
        from dynamics.integrators.compiled_stepper import ExplicitStepper

        return ExplicitStepper(None, LAYOUTS["explicit"], state, bound, **control)
    from dynamics.integrators.bdf_kernels import advance_through

    return BdfStepper(advance_through, LAYOUTS["bdf"], state, bound, **control)


def stepper_of(
    system: System,
    method: str,
    *,
    rtol: float,
    atol: float | Array,
    start: ArrayLike | None = None,
    t0: float = 0.0,
    largest_step: float = np.inf,
) -> tuple[Stepper, float]:
    """Return a stepper of a system, and the seconds spent compiling or loading its code; arguments as `make_stepper`.

    It begins at `start`, by default the initial state. `atol` is a number, which `system.absolute_tolerance` turns into
    one per component, or these themselves.
    """
    began = clock.perf_counter()
    callbacks(system.functions, implicit=method in _IMPLICIT)
    seconds = clock.perf_counter() - began
    stepper = make_stepper(
        method,
        system.functions,
        system.initial_state if start is None else start,
        system.parameters,
        system.sizes,
        np.empty(system.work_size),
        rtol=rtol,
        atol=atol if isinstance(atol, np.ndarray) else system.absolute_tolerance(atol),
        num_events=system.num_events,
        t0=t0,
        largest_step=largest_step,
    )
    return stepper, seconds
