"""The contract between a system of equations and an integrator.

A system's kernel pieces define the functions below, the last one if it can; integrators reach them by their machine
addresses. They are declared here for readers and type checkers; nothing imports this module at run time. Shapes: state
`y`, direction `v` and `out` (N,), `parameters` (any,) float64, `sizes` (any,) int64, `work` (any,) float64 scratch that
keeps nothing between calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from dynamics.compiler.compilation import Piece

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]


class System(Protocol):
    """What a system hands to the integrators and the run loop; all of it plain arrays and source text."""

    name: str
    pieces: tuple[Piece, ...]
    initial_state: Floats
    parameters: Floats
    sizes: Integers
    work_size: int
    num_events: int

    def absolute_tolerance(self, atol: float) -> Floats:
        """Return atol per component of the state, in the units of that component."""
        ...

    def observer(self, keep: str) -> Callable[[Floats], dict[str, Any]]:
        """Return the function that gives the named observables of one state."""
        ...


def rhs(t: float, y: Floats, out: Floats, parameters: Floats, sizes: Integers, work: Floats) -> None:
    """Write y' into `out`."""
    raise NotImplementedError


def jacobian_diagonal(t: float, y: Floats, out: Floats, parameters: Floats, sizes: Integers, work: Floats) -> None:
    """Write an approximation of the diagonal of ∂rhs/∂y into `out`; a preconditioner is made of it."""
    raise NotImplementedError


def event_values(t: float, y: Floats, out: Floats, parameters: Floats, sizes: Integers, work: Floats) -> None:
    """Write the event functions into `out` (num_events,); an event is passed when its value is at least 0."""
    raise NotImplementedError


def normalise(y: Floats, parameters: Floats, sizes: Integers) -> None:
    """Put an accepted state back on its constraints, in place."""
    raise NotImplementedError


def jacobian_product(
    t: float, y: Floats, v: Floats, out: Floats, parameters: Floats, sizes: Integers, work: Floats
) -> None:
    """Write ∂rhs/∂y · v into `out`; "sundials" asks for it, "bdf" where differences of `rhs` are lost in rounding."""
    raise NotImplementedError
