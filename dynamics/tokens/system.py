"""What the systems of this room have in common beyond `equations.interface`, and the system of a problem."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.equations import System

if TYPE_CHECKING:
    from dynamics.tokens.token_problem import TokenProblem
    from hermite.arrays import Array

#: Kind of a problem -> its system; the kinds alone.
SYSTEMS = {
    "composition": "dynamics.tokens.composition:CompositionSystem",
    "recall": "dynamics.tokens.recall:RecallSystem",
    "causal-graph": "dynamics.tokens.causal_graph:CausalGraphSystem",
    "memory": "dynamics.tokens.memory:MemorySystem",
}
KINDS = tuple(SYSTEMS)


class TokenSystem(System):
    """The reduction of a problem: one event per component, passed when half of it is learned.

    Attributes
    ----------
    components : list of str
        What is learned one after the other.
    numbers : list of str
        Names of the numbers of the state.
    references : str
    time_scale : float
        Time before which nothing is learned, a first guess.
    stage_ends : tuple of float
        Times at which the equations jump; `sizes[-1]` is the stage, −1 if the time tells it.
    last_time : float
        Time beyond which the equations do not go, inf if there is none.
    geometric : bool
        Whether the components' times lie far apart, so that times are saved geometrically by default.
    """

    components: list[str]
    numbers: list[str]
    references: str
    time_scale: float
    stage_ends: tuple[float, ...] = ()
    last_time: float = np.inf
    geometric: bool = False

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component of the state."""
        return np.full(self.initial_state.size, atol)

    def summarise(self, state: Array) -> dict[str, Any]:
        """Return loss and progress."""
        return {name: value for name, value in self.observe(state).items() if name != "state"}

    def closed_times(self) -> Array:
        """Return the times of all components in closed form: inf for never, not-a-number where there is none."""
        raise NotImplementedError

    def plateaus(self) -> Array:
        """Return the loss on the plateau that ends as each component is learned."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Return what must be known of the reduction, one sentence each."""
        raise NotImplementedError


def system_of(problem: TokenProblem) -> TokenSystem:
    """Return the system of a problem."""
    system: TokenSystem = resolve_name(SYSTEMS[problem.kind])(problem)
    return system


def share_time(keys: float) -> float:
    r"""Return τ(n): of n keys, the first better by Δ than the others, softmax shares under gradient flow.

    .. math:: w' = p \circ (v - p\cdot v), \quad w(0) = 0: \qquad p_1 - p_2 = \tfrac12 \text{ at } \tau(n)/\Delta,
       \qquad \tau(n) = 1 + 2 (1 - 1/n) \ln(n + 1) + (n - 1)^2/(n + 1)
    """
    return float(1.0 + 2.0 * (1.0 - 1.0 / keys) * np.log(keys + 1.0) + (keys - 1.0) ** 2 / (keys + 1.0))
