"""A system of equations, as integrators and the run loop use it.

`System` is the Python side. The kernels' side are the functions below, which the pieces of a system define, the last
one if they can; integrators call them by their machine addresses, with one more number behind `sizes` (`with_slot`): it
is `dynamics.compiler.stopping.STOP` once the step is given up, and what takes long may then return at once.

Shapes: state `y`, direction `v` and `out` (N,), `parameters` (any,) float64, `sizes` (any,) int64, `work` (any,)
float64 scratch that keeps nothing between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hermite.arrays import Array, Integers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.compiler.compilation import CompiledModule, Piece, Source
    from dynamics.problem import Problem

Observables = dict[str, Any]

_EVALUATION = "void(f8, f8[::1], f8[::1], f8[::1], i8[::1], f8[::1])"
#: Numba's signatures of what methods call by its address, in the order of `system_calls`; most need the first three.
SIGNATURES = {
    "rhs": _EVALUATION,
    "event_values": _EVALUATION,
    "normalise": "void(f8[::1], f8[::1], i8[::1])",
    "jacobian": "void(f8, f8[::1], f8[::1], f8[::1], f8[::1], i8[::1], f8[::1])",
}
_ALWAYS_NEEDED = 3


def source_of_functions(pieces: Sequence[Piece], *, implicit: bool = False) -> Source:
    """Return the pieces of a system and the functions to compile; that of its Jacobian for implicit methods alone."""
    from dynamics.compiler.compilation import Piece, kernel_pieces

    text = "".join(piece.text for piece in pieces)
    if "def jacobian_diagonal(" in text:
        product = Piece("product", f"HAS_PRODUCT = {'def jacobian_product(' in text}\n")
        pieces = *pieces, product, *kernel_pieces("dynamics.equations.jacobian_kernels")
    return pieces, dict(list(SIGNATURES.items())[: None if implicit else _ALWAYS_NEEDED])


def load_functions(pieces: Sequence[Piece], *, implicit: bool = False) -> CompiledModule:
    """Compile the functions of a system, or load them; that of its Jacobian for implicit methods alone.

    Raises ValueError if the pieces do not define one of them.
    """
    from dynamics.compiler.compilation import load

    return load(*source_of_functions(pieces, implicit=implicit))


@dataclass(frozen=True, slots=True)
class OfStates:
    """A function of a state, (N,), that takes a stack of states, (..., N), as well where `stacks` says so.

    Those with equal `alike` other than None give the same for the same state.
    """

    function: Callable[[Array], Any]
    stacks: Callable[[], bool] = lambda: True
    alike: Hashable = None

    def __call__(self, state: Array) -> Any:
        """Return the function of a state."""
        return self.function(state)


def takes_stacks(function: Callable[[Array], Any]) -> bool:
    """Return whether a function of a state takes a stack of them."""
    return isinstance(function, OfStates) and function.stacks()


class System:
    """A system of equations for one problem: a subclass sets the attributes and says what is observed.

    Attributes
    ----------
    name : str
    problem : Problem
    pieces : tuple of Piece
        Source of the functions that this module declares.
    initial_state, parameters, sizes : ndarray
        State at t = 0, and what the functions receive.
    work_size : int
        Numbers of scratch that they need.
    num_events : int
        Numbers that `event_values` writes.
    """

    name: str
    problem: Problem
    pieces: tuple[Piece, ...]
    initial_state: Array
    parameters: Array
    sizes: Integers
    work_size: int = 0
    num_events: int = 0

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component of the state, in units of 1/√d, the size of a random overlap."""
        return np.full(self.initial_state.size, atol / np.sqrt(self.problem.dimension))

    def observer(self, keep: str) -> Callable[[Array], Observables]:
        """Return what gives the named observables of a state: `observe` for "full", `summarise` for "summary"."""
        return self.observe if keep == "full" else self.summarise

    def observe(self, state: Array) -> Observables:
        """Return all observables of a state."""
        raise NotImplementedError

    def summarise(self, state: Array) -> Observables:
        """Return the observables whose size does not grow as the state does."""
        return self.observe(state)


class FlowSystem(System):
    """A system of overlaps, of which `FlowMethod` chooses a method and estimates the error."""

    #: E(f − f*)² of the parts that `unpack` returns.
    loss: Callable[..., float]

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps of a state, and norms that are apart from them."""
        raise NotImplementedError

    def stiffness(self) -> float:
        """Return the fastest relaxation rate of the flow."""
        raise NotImplementedError


def rhs(t: float, y: Array, out: Array, parameters: Array, sizes: Integers, work: Array) -> None:
    """Write y' into `out`."""
    raise NotImplementedError


def jacobian_diagonal(t: float, y: Array, out: Array, parameters: Array, sizes: Integers, work: Array) -> None:
    """Write an approximation of the diagonal of ∂rhs/∂y into `out`; a preconditioner is made of it."""
    raise NotImplementedError


def event_values(t: float, y: Array, out: Array, parameters: Array, sizes: Integers, work: Array) -> None:
    """Write the event functions into `out` (num_events,); an event is passed when its value is at least 0."""
    raise NotImplementedError


def normalise(y: Array, parameters: Array, sizes: Integers) -> None:
    """Put an accepted state back on its constraints, in place."""
    raise NotImplementedError


def jacobian_product(t: float, y: Array, v: Array, out: Array, parameters: Array, sizes: Integers, work: Array) -> None:
    """Write ∂rhs/∂y · v into `out`; "sundials" asks for it, "bdf" where differences of `rhs` are lost in rounding."""
    raise NotImplementedError
