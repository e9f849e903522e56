"""The exact jumps of a quadratic network as a stepper: a step is a jump, and the last one ends where it is asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.quadratic import Course
from dynamics.integrators.stepper import Status, check_inside, check_stored

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array


class JumpStepper:
    """A quadratic network on its way; `state` is that of before a jump while one is taken in another thread."""

    def __init__(self, problem: Problem) -> None:
        self._course = Course.of(problem)
        self._jumps = 0
        #: A_j at time 0, shape (P,).
        self.initial_alignment = self._course.alignment

    @property
    def time(self) -> float:
        """End of the last jump."""
        return self._course.time

    @property
    def event_times(self) -> Array:
        """When directions were aligned, and then when they were learned; NaN if not yet."""
        return np.concatenate(self._course.reached)

    def advance(self, target: float, max_steps: int) -> Status:
        """Jump until a time is reached, or `max_steps` times."""
        for _ in range(max_steps):
            if self.time >= target:
                break
            self._course, self._jumps = self._course.towards(target), self._jumps + 1
        return Status.REACHED if self.time >= target else Status.MAX_STEPS

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return U and V as one array, at the end of the last jump alone."""
        check_inside(t, self.time, self.time)
        numbers = self._course.numbers()
        if out is None:
            return numbers
        out[:] = numbers
        return out

    def derivative(self, t: float) -> Array:
        """Return the velocity of `interpolate`, up to a rotation of the neurons."""
        check_inside(t, self.time, self.time)
        return self._course.velocity()

    def record(self) -> dict[str, Any]:
        """Return what would be recorded now."""
        return self._course.record()

    def observe(self, numbers: Array) -> Mapping[str, Any]:
        """Return what is recorded of a state."""
        return self._course.standing(numbers).record()

    def statistics(self) -> dict[str, int]:
        """Return the number of jumps."""
        return {"steps_accepted": self._jumps}

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit."""
        course = self._course
        return {
            "numbers": course.numbers(),
            "reached": np.array(course.reached),
            "time": np.array(course.time),
            "jumps": np.array(self._jumps),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned."""
        for name, array in self.state().items():
            check_stored(state, name, array.shape)
        self._jumps = int(state["jumps"])
        self._course = self._course.standing(
            np.asarray(state["numbers"], dtype=np.float64),
            time=float(state["time"]),
            reached=np.asarray(state["reached"], dtype=np.float64),
        )
