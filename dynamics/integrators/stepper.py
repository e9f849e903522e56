"""The protocol of steppers, their tolerances and shared code, and the time at which a step passed an event."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dynamics.threads import GivenUp, stopping_at
from hermite.text.messages import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from dynamics.equations.vectors import VectorSystem
    from dynamics.integrators.system_calls import BoundSystem
    from hermite.arrays import Array, Integers


class Status(IntEnum):
    """Reason why `Stepper.advance` returned: the time was reached, steps ran out, or no step succeeds."""

    REACHED = 0
    MAX_STEPS = 1
    STEP_TOO_SMALL = 2
    NOT_FINITE = 3


class Stepper(Protocol):
    """Takes steps of a system until a time is reached, and gives the state within the last step.

    Times are dimensionless.
    """

    @property
    def time(self) -> float:
        """End of the last accepted step."""

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; not-a-number until then; the start if passed there."""

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds.

        Return the reason. The last step may go beyond the target.
        """

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state (n,) at a time within the last step, both ends included; in `out` if that is given."""

    def derivative(self, t: float) -> Array:
        """Return the rates y' (n,) of the state at a time within the last step."""

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations by name."""

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit."""

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned."""


class LeapingStepper(Stepper, Protocol):
    """A stepper that can go through many saved times in one call."""

    def advance_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Advance to the last of increasing times; return also the states at those that were passed, (count, n)."""


def leaping(stepper: Any) -> LeapingStepper | None:
    """Return the stepper if it can go through many saved times in one call now (`leaps`), otherwise None."""
    return stepper if getattr(stepper, "leaps", False) else None


def end_threads(stepper: Any) -> None:
    """End the threads of a stepper, if it has any."""
    getattr(stepper, "close", lambda: None)()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """Control of the steps: tolerances of the error of a component y_i in a step, atol_i + rtol |y_i|, and limits.

    `fixed_step` forces the length of every step and `fixed_order` the order of "bdf", from 1 to 5; 0 leaves the choice
    to the method. All are dimensionless.
    """

    rtol: float
    atol: Array  # of each component, (n,)
    fixed_step: float = 0.0
    largest_step: float = np.inf
    fixed_order: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for values out of range."""
        for name, value, holds, requirement in (
            ("rtol", self.rtol, self.rtol > 0.0, "positive"),
            ("atol", self.atol, np.all(self.atol > 0.0), "positive"),
            ("largest_step", self.largest_step, self.largest_step > 0.0, "positive"),
            ("fixed_step", self.fixed_step, self.fixed_step >= 0.0, "at least 0"),
            ("fixed_order", self.fixed_order, 0 <= self.fixed_order <= 5, "between 0 and 5"),
        ):
            if not holds:
                refuse(f"Argument `{name}` must be {requirement}, but is {value}.")


def check_inside(t: float, start: float, end: float) -> None:
    """Raise ValueError for a time t outside the last step, from `start` to `end`."""
    if not start <= t <= end:
        refuse(f"Argument `t` must be within the last step [{start}, {end}], but is {t}.")


def check_stored(state: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless a stored state holds the array `name` with this shape."""
    stored_shape = np.shape(state[name]) if name in state else None
    if stored_shape != shape:
        refuse(f"Argument `state` must hold `{name}` of shape {shape}, but has {stored_shape}.")


class UndoneSteps(ABC):
    """A stepper that is as it was before a single step that is given up."""

    # Where compiled code looks for `STOP`, (1,).
    _slot: Integers

    @abstractmethod
    def _advance(self, target: float, max_steps: int) -> Status:
        """Take steps until the time is at least `target` or `max_steps` were tried; return the reason of the end."""

    @abstractmethod
    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit."""

    @abstractmethod
    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays of a stepper of the same method and system."""

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        if max_steps != 1:
            return self._advance(target, max_steps)
        # The run asks for single steps where they take long, and may give them up.
        before = self.state()
        try:
            with stopping_at(self._slot):
                return self._advance(target, max_steps)
        except GivenUp:
            self.restore(before)
            raise


class SystemStepper(ABC):
    """A stepper that knows both ends of its last step, and the state within it.

    A state of `unit_vectors`, [U | ln n], is seen from outside as one of the overlaps, [C | G | ln n].
    """

    _system: BoundSystem
    _unit_vectors: VectorSystem | None = None

    @property
    @abstractmethod
    def time(self) -> float:
        """End of the last accepted step."""

    @property
    @abstractmethod
    def start(self) -> float:
        """Start of the last accepted step."""

    @abstractmethod
    def _end(self, *, last: bool) -> Array:
        """Return the state at the end of the last step, or at its start unless `last`."""

    @abstractmethod
    def _write_inside(self, t: float, out: Array) -> None:
        """Write the state at a time t strictly within the last step to `out`."""

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state at a time within the last step, shape (n,), on the polynomial of the step."""
        if self._unit_vectors is None:
            return self._within(t, out)
        return self._unit_vectors.overlaps(self._within(t), out)

    def derivative(self, t: float) -> Array:
        """Return the rates of the state at a time within the last step, shape (n,)."""
        state = self._within(t)
        rates = np.empty_like(state)
        self._system.rhs(t, state, rates)
        return rates if self._unit_vectors is None else self._unit_vectors.overlap_rates(state, rates)

    def _within(self, t: float, out: Array | None = None) -> Array:
        """Return the state that is integrated, at a time within the last step."""
        check_inside(t, self.start, self.time)
        out = np.empty_like(self._end(last=True)) if out is None else out
        # Both ends are returned exactly, and without the evaluations that a dense output may need.
        if t in (self.start, self.time):
            out[:] = self._end(last=t == self.time)
        else:
            self._write_inside(float(t), out)
        return out

    def _record_events(self, times: Array, before: Array, now: Array) -> None:
        """Write to `times` when the events were passed in the last step, given their values at both ends.

        All arrays have one entry per event, and `times` are NaN for those that have not passed.
        """

        def values_at(t: float) -> Array:
            """Return the values of all events at time t."""
            values = np.empty_like(times)
            self._system.event_values(t, self._within(t), values)
            return values

        record_crossings(times, before, now, (self.start, self.time), values_at)


def record_crossings(
    times: Array, before: Array, now: Array, interval: tuple[float, float], values_at: Callable[[float], Array]
) -> None:
    """Write the time of each event that has risen to zero by the end of a step to `times`, in place.

    `times` (events,) are not-a-number for events that have not passed; only these are looked at. `before` and `now`
    (events,) are the values at both ends of the interval, which are equal at the initial state, and `values_at` returns
    all values at a time strictly within. An event counts as passed at its first rise to zero; one that rises and falls
    back within a single step is not seen.
    """
    # Imported here because the exact solution of a quadratic network compiles nothing.
    from dynamics.integrators.step_kernels import ACCURACY, MOST_TRIALS, narrowed, next_trial

    start, end = interval
    tolerance = ACCURACY * max(abs(end), end - start)
    for event in np.flatnonzero(np.isnan(times) & (now >= 0.0)).tolist():
        times[event] = start
        if end > start and before[event] < 0.0:
            bracket = start, end, float(before[event]), float(now[event]), 0
            for trial in range(MOST_TRIALS):
                if bracket[1] - bracket[0] <= tolerance:
                    break
                t = next_trial(trial, bracket, tolerance)
                bracket = narrowed(bracket, t, float(values_at(t)[event]))
            times[event] = bracket[1]
