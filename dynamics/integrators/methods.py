"""The menu of methods, their kernels and arrays, and the functions that make a stepper of any of them."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dynamics.compiler.compilation import (
    CompiledModule,
    compiler_is_off,
    kernel_pieces,
    load,
)
from dynamics.compiler.stopping import with_slot
from dynamics.equations.interface import source_of_functions
from dynamics.integrators.compiled_stepper import LAYOUTS, CompiledStepper
from dynamics.integrators.explicit.stepper import ExplicitStepper
from dynamics.integrators.names import METHODS
from dynamics.integrators.stepper import EVENT_VALUES, Stepper, Tolerances, check_vector
from hermite.text.messages import not_a_choice, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from numpy.typing import ArrayLike

    from dynamics.compiler.compilation import Piece, Source
    from dynamics.equations.interface import System
    from dynamics.integrators.stepper import BoundSystem
    from hermite.arrays import Array, Integers


_HERE = "dynamics.integrators"
_FIRST = ("slots", "system_calls", "evaluation_kernels")
_KERNELS = {
    "explicit": (
        *_FIRST,
        "shared_kernels",
        *(f"explicit.{name}" for name in ("dop853_tableau", "stage_sum_kernels", "explicit_kernels")),
    ),
    "bdf": (
        *_FIRST,
        "shared_kernels",
        *(f"bdf.{name}_kernels" for name in ("nordsieck", "newton", "bdf")),
        "saving_kernels",
    ),
    "sundials": (*_FIRST, "sundials.sundials_kernels"),
    # The steps of `descent.euler`, which is no method of every system.
    "euler": (*_FIRST, "shared_kernels", "descent.euler_kernels"),
    # The steps of `small_flow.stepper`, which is the method "stiff" of small flows.
    "small-flow": (
        *_FIRST,
        "small_flow.small_slots",
        "shared_kernels",
        "explicit.dop853_tableau",
        "explicit.stage_sum_kernels",
        "small_flow.cluster_kernels",
        "small_flow.small_flow_kernels",
        "saving_kernels",
    ),
    "scipy": _FIRST,
}
_SYSTEM = "Tuple((i8[::1], f8[::1], i8[::1], f8[::1]))"
_OF_CLUSTERS = ("slots", "system_calls", "small_flow.small_slots", "shared_kernels", "small_flow.cluster_kernels")
# Functions that a method calls by address once or a few times per step, in the order of their places after those of the
# system, and their pieces.
_OF_A_STEP: dict[str, tuple[tuple[tuple[str, ...], dict[str, str]], ...]] = {
    "bdf": (
        (
            ("slots", "system_calls", "bdf.krylov_kernels"),
            {"solve_linear": f"void(f8, f8, f8, f8, f8[:, ::1], f8[::1], i8[::1], {_SYSTEM})"},
        ),
    ),
    "small-flow": (
        (
            (*_OF_CLUSTERS, "small_flow.division_kernels"),
            {"divide": f"void(f8[:, ::1], f8[::1], i8[::1], {_SYSTEM})"},
        ),
        (
            (*_OF_CLUSTERS, "small_flow.small_landing_kernels"),
            {"land": f"void(f8, f8[:, ::1], f8[::1], i8[::1], {_SYSTEM})"},
        ),
        (_OF_CLUSTERS, {"slow": f"void(f8, f8[::1], f8[::1], f8[:, ::1], f8[::1], i8[::1], {_SYSTEM})"}),
    ),
}
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
        from dynamics.integrators.sundials.stepper import check_installed

        check_installed()
    return method


@dataclass(frozen=True, slots=True)
class CompiledMethod:
    """A method and a system, both compiled and ready to be joined, and the seconds that took."""

    method: str
    kernels: CompiledModule
    system: CompiledModule
    compile_seconds: float
    #: What the method itself calls by address.
    of_a_step: tuple[CompiledModule, ...] = ()

    @property
    def from_cache(self) -> bool:
        """Whether all of it came from the on-disk cache."""
        return all(module.from_cache for module in (self.kernels, self.system, *self.of_a_step))

    def functions(self) -> Integers | tuple[Callable[..., None], ...]:
        """Return the addresses of the system's functions; the functions themselves if the compiler is off."""
        return self._addresses(self._of_system())

    def called(self) -> Integers | tuple[Callable[..., None], ...]:
        """Return what the method calls by address: `functions`, and then those of its own."""
        own = (function for module in self.of_a_step for function in module.functions.values())
        return self._addresses((*self._of_system(), *own))

    def _of_system(self) -> tuple[Any, ...]:
        functions = tuple(self.system.functions.values())
        has_product = "jacobian" in self.system.functions and self.system.namespace.HAS_PRODUCT
        return functions + functions[-1:] if has_product else functions

    def _addresses(self, functions: tuple[Any, ...]) -> Integers | tuple[Callable[..., None], ...]:
        if compiler_is_off():
            return functions
        return np.array([function.address for function in functions], dtype=np.int64)


def load_method(method: str, system_pieces: Sequence[Piece]) -> CompiledMethod:
    """Compile one of `METHODS`, "euler" or "small-flow" and the functions of a system, or load them.

    Raises TypeError, ValueError or ImportError if the method is unknown or not installed, or if the pieces lack a
    function (`dynamics.equations.interface`) that it needs.
    """
    family = check_method(method, (*METHODS, "euler", "small-flow")).split(":")[0]
    began = clock.perf_counter()
    method_code, system, *own = (load(*source) for source in _sources(family, tuple(system_pieces)))
    return CompiledMethod(method, method_code, system, clock.perf_counter() - began, tuple(own))


@lru_cache(maxsize=64)
def _sources(family: str, system_pieces: tuple[Piece, ...]) -> list[Source]:
    """Return what is compiled for a method and a system: the method, the system, and what the method calls of its own.

    Kept, since each of a thousand small runs asks for it.
    """
    of_a_step = [(_pieces(names), signatures) for names, signatures in _OF_A_STEP.get(family, ())]
    functions = source_of_functions(system_pieces, implicit=family in _IMPLICIT)
    return [(_pieces(_KERNELS[family]), {}), functions, *of_a_step]


def _pieces(names: Sequence[str]) -> tuple[Piece, ...]:
    return kernel_pieces(*(f"{_HERE}.{name}" for name in names))


def _check_events(compiled: CompiledMethod, state: Array, bound: BoundSystem, num_events: int, t0: float) -> None:
    """Refuse fewer events than the system writes, which would end outside of the steppers' arrays.

    They are counted by letting the system write them once; there is room for two per component of the state.
    """
    if num_events < 0:
        msg = f"Argument `num_events` must be at least 0, but is {num_events}."
        raise ValueError(msg)
    values = np.full(num_events + 2 * state.size + 64, _UNTOUCHED)
    compiled.kernels.namespace.evaluate(EVENT_VALUES, t0, state.copy(), values, bound)
    written = np.flatnonzero(values != _UNTOUCHED)
    if written.size > 0 and written[-1] >= num_events:
        msg = f"Argument `num_events` must be at least {written[-1] + 1}, as the system has, but is {num_events}."
        raise ValueError(msg)


def make_stepper(
    method: str,
    system: CompiledMethod | Sequence[Piece],
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

    The pieces of a system are compiled unless `load_method` has done so. Its functions receive `parameters`, `sizes`
    and the scratch `work`, which is never copied. `rtol` and `atol`, a number or one per component, bound the error of
    each component in a step; `fixed_step` and `fixed_order` force every step and the order of ``"bdf"`` unless 0.

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
    compiled = system if isinstance(system, CompiledMethod) else load_method(method, system)
    if compiled.method.split(":")[0] != method.split(":", maxsplit=1)[0]:
        msg = f"Argument `system` must be compiled for method {method!r}, but is for {compiled.method!r}."
        raise ValueError(msg)
    bound = (compiled.called(), numbers, with_slot(integers), work)
    _check_events(compiled, state, bound, num_events, t0)
    return _stepper(method, compiled.kernels.namespace, state, bound, tolerances, num_events, t0)


def _stepper(
    method: str,
    namespace: ModuleType,
    state: Array,
    system: BoundSystem,
    tolerances: Tolerances,
    num_events: int,
    t0: float,
) -> Stepper:
    """Return the stepper of a method for a compiled system."""
    control: dict[str, Any] = {"tolerances": tolerances, "num_events": num_events, "t0": t0}
    family, _, name = method.partition(":")
    if family == "scipy":
        # Imported here because scipy.integrate is heavy and a referee is rare.
        from dynamics.integrators.scipy_referee import ScipyStepper

        return ScipyStepper(name, namespace, state, system, **control)
    if family == "sundials":
        from dynamics.integrators.sundials.stepper import SundialsStepper

        return SundialsStepper(namespace, state, system, **control)
    stepper = ExplicitStepper if family == "explicit" else CompiledStepper
    return stepper(namespace, LAYOUTS[family], state, system, **control)


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
    compiled = load_method(method, system.pieces)
    stepper = make_stepper(
        method,
        compiled,
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
    return stepper, compiled.compile_seconds
