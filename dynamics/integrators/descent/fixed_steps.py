"""What all steps of a fixed length have in common: counting them, the states between two, and resuming."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators.stepper import EVENT_PASSED, Status, check_inside, check_stored
from dynamics.problem.checks import checked_number
from dynamics.threads.stopping import GivenUp, stopping_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hermite.arrays import Array

#: Arrays that a step changes; the next state is written to a slot that the last two do not use.
CARRIED = ("step", "events")


class FixedSteps(ABC):
    """Steps of a fixed length η > 0; time is η · step.

    The state after step s is in slot s mod 3 of a subclass' arrays. Between two steps it is interpolated linearly, a
    choice of order η² that keeps overlaps realisable, since that is convex. Events are located on this interpolant.
    """

    def __init__(self, learning_rate: float, num_events: int) -> None:
        self._eta = checked_number(learning_rate, "learning_rate", positive=True)
        self._step = np.zeros(1, dtype=np.int64)
        self._events = np.full((3, num_events), np.nan)
        #: Number of steps in one call of `advance`.
        self._most_steps: float = math.inf
        # Where compiled code looks for `STOP`.
        self._slot = np.zeros(1, dtype=np.int64)
        # What a single step changes of `state`, as it was before, while the step is taken.
        self._before: dict[str, NDArray[np.generic]] = {}

    @abstractmethod
    def _take(self, count: int) -> int:
        """Take steps until one blows up, which is then not taken, or passes an event, `count` at most."""

    @abstractmethod
    def _look_ahead(self) -> None:
        """Write the state after the first step into its slot, without taking that step."""

    @abstractmethod
    def _state_after(self, step: int, out: Array | None = None) -> Array:
        """Return the state after one of the last two steps."""

    @abstractmethod
    def _record_events(self) -> None:
        """Locate the events that the last step passed."""

    @abstractmethod
    def _states(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that hold the states."""

    @property
    def time(self) -> float:
        """Flow time η · step of the last step, dimensionless."""
        return float(self._eta * self._step[0])

    @property
    def start(self) -> float:
        """Flow time before the last step, dimensionless."""
        return float(self._eta * max(self._step[0] - 1, 0))

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; not-a-number until then; the start if passed there."""
        return np.array(self._events[0])

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were taken, or one would not be finite.

        With several threads a call may end earlier, as if `max_steps` were reached, to give way to the run loop.
        """
        if max_steps != 1:
            return self._advance(target, max_steps)
        self._before = {name: self._arrays()[name].copy() for name in CARRIED}
        try:
            with stopping_at(self._slot):
                return self._advance(target, max_steps)
        except GivenUp:
            for name, array in self._before.items():
                self._arrays()[name][...] = array
            raise
        finally:
            self._before = {}

    def _advance(self, target: float, max_steps: int) -> Status:
        wanted = self._first_step_at(target)
        last = min(wanted, int(self._step[0]) + int(min(max_steps, self._most_steps)))
        while self._step[0] < last:
            status = self._take(last - int(self._step[0]))
            if status == Status.NOT_FINITE:
                return Status.NOT_FINITE
            if status == EVENT_PASSED:
                self._record_events()
        return Status.REACHED if last >= wanted else Status.MAX_STEPS

    def _first_step_at(self, target: float) -> int:
        """Return the first step whose time, as computed, is at least `target`."""
        step = max(math.ceil(target / self._eta), 0)
        while step > 0 and self._eta * (step - 1) >= target:
            step -= 1
        while self._eta * step < target:
            step += 1
        return step

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state at a time within the last step."""
        check_inside(t, self.start, self.time)
        if t in (self.start, self.time):
            return self._state_after(int(self._step[0]) if t == self.time else int(self._step[0]) - 1, out)
        out = self._state_after(int(self._step[0]), out)
        # In this order what both states share, such as ones on a diagonal, stays exactly as it is.
        back = self._state_after(int(self._step[0]) - 1)
        back -= out
        back *= 1.0 - self._share(t)
        out += back
        return out

    def _share(self, t: float) -> float:
        return min(max(t / self._eta - (int(self._step[0]) - 1), 0.0), 1.0)

    def derivative(self, t: float) -> Array:
        """Return the slope of the interpolant: the change of the state over the last step, divided by η.

        Before any step has been taken it is that of the first.
        """
        check_inside(t, self.start, self.time)
        step = int(self._step[0])
        if step == 0:
            self._look_ahead()
            step = 1
        change: Array = self._state_after(step) - self._state_after(step - 1)
        return change / self._eta

    def statistics(self) -> dict[str, int]:
        """Return the number of steps, each with one gradient."""
        return {"steps_accepted": int(self._step[0]), "rhs_evaluations": int(self._step[0])}

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit; before a step, while it is taken."""
        before = self._before
        return {name: array.copy() for name, array in self._arrays().items()} | before

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays of a stepper of the same problem and learning rate."""
        for name, array in self._arrays().items():
            check_stored(state, name, array.shape)
        if state["learning_rate"] != self._eta:
            msg = f"Argument `state` must have learning rate {self._eta}, but has {state['learning_rate']}."
            raise ValueError(msg)
        for name, array in self._arrays().items():
            array[...] = state[name]

    def _arrays(self) -> dict[str, NDArray[np.generic]]:
        return {
            **self._states(),
            "step": self._step,
            "events": self._events,
            "learning_rate": np.array(self._eta),
        }
