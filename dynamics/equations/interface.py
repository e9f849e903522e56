"""A system of equations, as integrators and the run loop use it.

`EquationSystem` is the Python side. The compiled side are `Functions`, kernels of `dynamics.kernels.jit` that methods
receive:

* ``rhs(t, y, out, parameters, sizes, work)`` writes y' into `out`.
* ``event_values(t, y, out, parameters, sizes, work)`` writes the event functions into `out` (num_events,); an event is
  passed when its value is at least 0.
* ``normalise(y, parameters, sizes)`` puts an accepted state back on its constraints, in place.
* ``jacobian_diagonal(t, y, out, parameters, sizes, work)`` writes about the diagonal of ∂rhs/∂y, a preconditioner.
  Methods call `rhs` at the same state right before: `out` holds y', and `work` the scratch of `rhs`.
* ``jacobian_product(t, y, v, out, parameters, sizes, work)`` writes ∂rhs/∂y · v; "sundials" asks for it, "bdf" where
  differences of `rhs` are lost in rounding.

Shapes: state `y`, direction `v` and `out` (N,), `parameters` (any,) float64, `sizes` (any,) int64, `work` (any,)
float64 scratch that keeps nothing else between calls. Methods append one number to `sizes`: functions that take longer
than seconds return once it says that the step is given up (`dynamics.kernels.stopping`).

These arrays are flat so that a method is compiled once for all systems. Their layout is named at the head of each
module: a `NamedTuple` of numbers and views, and a function such as ``numbers_of(parameters, sizes)`` that makes it.
Kernels call it once, at their head; no other function computes where a number stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

Observables = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Functions:
    """The compiled functions of a system, of which all but the first may be missing; "bdf" uses the next three values.

    It divides by 1 − γ J_ii, γ about half a step, to solve its linear equations, once one of these is `least_stiff`.
    """

    rhs: Callable[..., None]
    event_values: Callable[..., None] | None = None
    normalise: Callable[..., None] | None = None
    jacobian_diagonal: Callable[..., None] | None = None
    jacobian_product: Callable[..., None] | None = None
    least_stiff: int = 1
    #: Of the units among which the functions choose (`dynamics.kernels.units.choice`), those that the system takes;
    #: None: all that the functions can reach.
    choices: tuple[Callable[..., object], ...] | None = None


@dataclass(frozen=True, slots=True)
class OfStates:
    """A function of a state (N,); where `stacks` returns True it also takes a stack (…, N) of states."""

    function: Callable[[Array], object]
    stacks: Callable[[], bool] = lambda: True

    def __call__(self, state: Array) -> Any:
        """Return the function at a state (N,), or at each of a stack if it takes stacks."""
        return self.function(state)


def takes_stacks(function: Callable[[Array], object]) -> bool:
    """Return whether a function of a state takes a stack of them."""
    return isinstance(function, OfStates) and function.stacks()


class EquationSystem:
    """A system of equations for one problem: a subclass sets the attributes and defines the observables.

    Methods call `functions` with a state, from `initial_state` on, with `parameters`, `sizes` and `work_size` numbers
    of scratch; `event_values` writes `num_events` numbers. `teacher_by_degree` has E of the squares of the parts of f*
    by `dynamics.equations.losses.DEGREES`, where the loss is told by degree.
    """

    name: str
    problem: Problem
    functions: Functions
    initial_state: Array
    parameters: Array
    sizes: Integers
    work_size: int = 0
    num_events: int = 0
    teacher_by_degree: Array | None = None

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component of the state, in units of 1/√d, the size of a random overlap."""
        return np.full(self.initial_state.size, atol / np.sqrt(self.problem.dimension))

    def observer(self, keep: str) -> Callable[[Array], Observables]:
        """Return the function that gives observables of a state: `observe` for "full", `summarise` for "summary"."""
        return self.observe if keep == "full" else self.summarise

    def observe(self, state: Array) -> Observables:
        """Return all observables of a state."""
        raise NotImplementedError

    def summarise(self, state: Array) -> Observables:
        """Return the observables whose size does not grow as the state does."""
        return self.observe(state)


class FlowSystem(EquationSystem):
    """A system of overlaps, of which `FlowMethod` chooses a method and estimates the error."""

    #: E(f − f*)² of the parts that `unpack` returns.
    loss: Callable[..., float]
    #: Whether it is the overlap flow on isotropic inputs, which is also integrated in unit vectors of the neurons.
    has_unit_vectors: bool = False
    #: Estimated time of one evaluation of the rates, 0 where that is short.
    seconds_of_rates: float = 0.0
    #: Notes on the accuracy of the rates, for a reader of the answer.
    notes: Sequence[str] = ()
    #: Why the method "stiff" is not for this system; None if the problem decides.
    against_clusters: str | None = "its slowed clusters are derived for the gradient flow, not for finite steps"

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps of a state, matrices, and squared norms if the state stores them separately."""
        raise NotImplementedError

    def stiffness(self) -> float:
        """Return the fastest relaxation rate of the flow, in units of 1/t; it may be a bound."""
        raise NotImplementedError
