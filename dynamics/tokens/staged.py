"""A stepper whose equations jump at given times: one stepper per stage, so that no step crosses a jump."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from dynamics.integrators import Stepper
    from hermite.arrays import Array


class StagedStepper:
    """Steppers one after the other; `make` gives that of a stage from its start (None: that of the system) and time."""

    def __init__(self, make: Callable[[int, Array | None, float], Stepper], ends: tuple[float, ...]) -> None:
        self._make, self._ends = make, (*ends, np.inf)
        self._stage = 0
        self._stepper = make(0, None, 0.0)
        self._passed = np.full_like(self._stepper.event_times, np.nan)
        self._spent: dict[str, int] = {}

    @property
    def time(self) -> float:
        """End of the last accepted step, or of the stage within it."""
        return min(self._stepper.time, self._ends[self._stage])

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; not-a-number until then."""
        own = self._stepper.event_times
        return np.fmin(self._passed, np.where(own <= self._ends[self._stage], own, np.nan))

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps as any stepper does; a call ends at the end of a stage, as if `max_steps` were reached."""
        end = self._ends[self._stage]
        if self.time >= end and target > end:
            self._begin_next()
            end = self._ends[self._stage]
        status = self._stepper.advance(min(target, end), max_steps)
        return Status.MAX_STEPS if status == Status.REACHED and target > end else status

    def _begin_next(self) -> None:
        end = self._ends[self._stage]
        self._passed, self._spent = self.event_times, self.statistics()
        self._stepper = self._make(self._stage + 1, self._stepper.interpolate(end), end)
        self._stage += 1

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state at a time within the last step."""
        return self._stepper.interpolate(t, out)

    def derivative(self, t: float) -> Array:
        """Return y' at a time within the last step."""
        return self._stepper.derivative(t)

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations in all stages."""
        return {name: count + self._spent.get(name, 0) for name, count in self._stepper.statistics().items()}

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return all arrays from which `restore` continues bit for bit."""
        spent = np.array([self._spent.get(name, 0) for name in self._stepper.statistics()])
        own = {"stage": np.array(self._stage), "passed": self._passed.copy(), "spent": spent}
        return {**self._stepper.state(), **own}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned."""
        stage = int(state["stage"])
        if not 0 <= stage < len(self._ends):
            msg = f"Argument `state` must hold a stage below {len(self._ends)}, but has {stage}."
            raise ValueError(msg)
        self._stage, self._stepper = stage, self._make(stage, None, 0.0)
        self._stepper.restore(state)
        self._passed = np.array(state["passed"], dtype=np.float64)
        names = self._stepper.statistics()
        self._spent = {name: int(count) for name, count in zip(names, state["spent"], strict=True)}
