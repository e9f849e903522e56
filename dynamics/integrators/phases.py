"""A flow in two phases: at a given time its equations change, and integration begins anew from the state there."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators.stepper import Status, end_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from dynamics.integrators.methods import FlowMethod
    from dynamics.integrators.stepper import Stepper
    from hermite.arrays import Array

#: Beginning of the names of the first stepper's arrays in a state of the second phase.
OF_FIRST = "first_"


class PhasedStepper:
    """A stepper of a flow whose equations change once, with the interface of `Stepper`.

    It takes steps of `first` until the flow time `switch`, dimensionless, then those of the stepper that `second` makes
    of the state (n,) there.
    """

    def __init__(self, first: Stepper, second: Callable[[Array], Stepper], switch: float) -> None:
        self._first, self._make, self._switch = first, second, switch
        self._second: Stepper | None = None

    @property
    def _current(self) -> Stepper:
        return self._first if self._second is None else self._second

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless; what the first stepper knows beyond the switch is void."""
        return min(self._first.time, self._switch) if self._second is None else self._second.time

    @property
    def settles(self) -> bool:
        """Whether the same equations hold from now on."""
        return self._second is not None

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; not-a-number until then."""
        times = self._first.event_times
        times = np.where(times <= self._switch, times, np.nan)
        return times if self._second is None else np.where(np.isnan(times), self._second.event_times, times)

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, `max_steps` were tried, or no step succeeds; return why.

        A call that comes to the switch ends there, as if its steps were tried.
        """
        if self._second is None and self._first.time < self._switch:
            status = self._first.advance(min(target, self._switch), max_steps)
            return Status.MAX_STEPS if status is Status.REACHED and target > self._switch else status
        if self._second is None and target > self._switch:
            # The first call evaluates the events of the start.
            self._second = self._make(self._first.interpolate(self._switch))
        return self._current.advance(target, max_steps)

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state (n,) at a time within the last step."""
        return self._current.interpolate(t, out)

    def derivative(self, t: float) -> Array:
        """Return the rates (n,) of the state at a time within the last step."""
        return self._current.derivative(t)

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations of both phases together."""
        counts = self._first.statistics()
        more = {} if self._second is None else self._second.statistics()
        return {name: count + more.get(name, 0) for name, count in counts.items()}

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit."""
        if self._second is None:
            return self._first.state()
        return {f"{OF_FIRST}{name}": array for name, array in self._first.state().items()} | self._second.state()

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned."""
        of_first = {name.removeprefix(OF_FIRST): array for name, array in state.items() if name.startswith(OF_FIRST)}
        self._first.restore(of_first or state)
        self._second = None
        if of_first:
            second = self._make(self._first.interpolate(self._switch))
            second.restore({name: array for name, array in state.items() if not name.startswith(OF_FIRST)})
            self._second = second

    def close(self) -> None:
        """End the threads of both steppers."""
        for stepper in (self._first, self._second):
            end_threads(stepper)


@dataclass
class PhasedMethod:
    """Methods of the two phases of a flow, and the time of the switch; both are "bdf" where one of them needs it."""

    first: FlowMethod
    second: FlowMethod
    switch: float
    name: str = field(init=False)

    def __post_init__(self) -> None:
        if self.first.name != self.second.name:
            self.first, self.second = (replace(method, name="bdf") for method in (self.first, self.second))
        self.name = self.first.name

    def stepper(self, rtol: float) -> PhasedStepper:
        """Return a stepper at the start of the first phase."""

        def begun(state: Array) -> Stepper:
            # Other runs share the system.
            system = copy(self.second.system)
            system.initial_state = state
            return replace(self.second, system=system).stepper(rtol, self.switch)

        return PhasedStepper(self.first.stepper(rtol), begun, self.switch)

    def attributes(self, stepper: Stepper) -> dict[str, object]:
        """Return the attributes of a dataset that tell which method ran."""
        return self.first.attributes(stepper)
