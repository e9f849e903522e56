"""The coupled overlap flow of links with information exponent at least 3, at hundreds to thousands of directions.

An explicit method of order 8 on unit vectors, made non-stiff by treating the few stiff modes apart and cheap by
computing at every stage only what changes fast; BDF where that is held up. `reason_against` says why
a problem does not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from dynamics.integrators import Status
from dynamics.integrators.large_flow.stepper import LargeFlowStepper
from dynamics.integrators.stepper import end_threads, leaping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from dynamics.integrators import Stepper
    from dynamics.integrators.large_flow.device import TorchFlowStepper
    from dynamics.integrators.small_flow import SmallFlowStepper
    from dynamics.problem import Problem
    from hermite.arrays import Array

__all__ = ["HELD_UP", "FallingBack", "LargeFlowStepper", "reason_against"]

#: Steps between two looks at whether the run is held up. Counted over the whole run, so that its answer does not depend
#: on how many steps a caller asks for at once.
LOOK = 100
#: A run is held up if it passed no event and gained less than this factor of time within three looks, or one per ten
#: neurons, and would need this many more steps at that pace. With one neuron at rest outside every cluster, and a
#: horizon of 1e9 relaxations, that is so after 700 steps.
QUIET_LOOKS, NEURONS_PER_LOOK, QUIET_GAIN, QUIET_STEPS = 3, 10, 1.5, 1e4
HELD_UP = "stiffness outside its clusters held it up"


def reason_against(problem: Problem) -> str | None:
    """Return why the large-flow solver does not apply to a problem, or None if it does.

    Its clusters assume that learned directions decouple from everything else, and its learned masses that c_0, c_1 and
    c_2 are 0, so that the kernel g_3 of these masses is g.
    """
    if problem.information_exponent < 3:
        return "directions of a link with information exponent below 3 do not decouple"
    if problem.activation.coefficients[0] != 0.0:
        return "the link has c_0 != 0, so that all neurons interact from the start"
    if not problem.teacher.is_orthonormal:
        return "the teacher's directions are not orthonormal"
    return None


class FallingBack:
    """A stepper with clusters that hands its unit vectors and ln n, and the time, to `robust` when it stalls or fails.

    It is `former()` that goes on from a file in which an earlier version left arrays of the large-flow solver.
    """

    def __init__(
        self,
        first: LargeFlowStepper | SmallFlowStepper | TorchFlowStepper,
        robust: Callable[[tuple[Array, Array], float], Stepper],
        last_time: float,
        former: Callable[[], LargeFlowStepper] | None = None,
    ) -> None:
        """Begin with the stepper `first`.

        `robust((U, ln n), time)` makes the stepper that follows it from unit vectors and logarithms of squared norms,
        and `former()` the one that goes on from files of an earlier version. `last_time` is the end of the run, from
        which the number of steps that a held-up run would still need is judged.
        """
        self._first = first
        self._former = former
        self._robust = robust
        self._last_time = last_time
        self._window = max(QUIET_LOOKS, first.vectors(first.time)[1].size // NEURONS_PER_LOOK)
        # Time and number of events passed at each of the last looks.
        self._looks: list[tuple[float, float]] = []
        self._next_look = LOOK
        self._held = False
        self._second: Stepper | None = None
        self.fallback_time: float | None = None
        self.fallback_reason: str | None = None

    @property
    def _current(self) -> Stepper:
        """The stepper that takes the steps now."""
        return self._first if self._second is None else self._second

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return self._current.time

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; not-a-number until then; the start if passed there."""
        first = self._first.event_times
        return first if self._second is None else np.where(np.isnan(first), self._second.event_times, first)

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        remaining_steps = max_steps
        while self._second is None:
            # It still interpolates within its last step.
            if self._first.time >= target:
                return Status.REACHED
            if self._held:
                self._fall_back(HELD_UP)
                break
            if remaining_steps <= 0:
                return Status.MAX_STEPS
            tried = self._tried()
            status = self._first.advance(target, min(remaining_steps, self._next_look - tried))
            remaining_steps -= self._tried() - tried
            self._heed(status)
        assert self._second is not None
        return self._second.advance(target, max(remaining_steps, 1))

    @property
    def leaps(self) -> bool:
        """Whether `advance_through` can be called now."""
        return self._second is None and not self._held and leaping(self._first) is not None

    def advance_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Advance to the last of increasing times; return also the states at those that were passed, (count, n).

        After a look that finds the run held up, or no step, the second stepper goes on by `advance`.
        """
        last = self._tried() + max_steps
        passed: list[Array] = []
        while True:
            first = cast("SmallFlowStepper", self._first)  # the only one that leaps
            status, states = first.advance_through(times, min(last, self._next_look) - self._tried())
            passed, times = [*passed, states] if len(states) else passed, times[len(states) :]
            self._heed(status)
            if self._second is not None:
                status = Status.MAX_STEPS
            if status == Status.REACHED or not self.leaps or self._tried() >= last:
                return status, np.concatenate(passed) if passed else states

    def _heed(self, status: Status) -> None:
        """Fall back if no step succeeds; otherwise check every `LOOK` steps whether the run is held up."""
        if status in (Status.STEP_TOO_SMALL, Status.NOT_FINITE):
            self._fall_back("no step of it succeeded")
        elif self._tried() >= self._next_look:
            self._look()

    def _tried(self) -> int:
        """Return the number of steps that the first stepper has tried."""
        counts = self._first.statistics()
        return counts["steps_accepted"] + counts["steps_rejected"]

    def _look(self) -> None:
        """Check whether the run is held up."""
        self._next_look = LOOK * (self._tried() // LOOK + 1)
        time, passed = float(self._first.time), float(np.isfinite(self._first.event_times).sum())
        self._looks = [*self._looks[-self._window :], (time, passed)]
        begin, passed_before = self._looks[0]
        long = (self._last_time - time) * self._window * LOOK > QUIET_STEPS * (time - begin)
        quiet = len(self._looks) > self._window and passed == passed_before
        self._held = self._first.stalled or (quiet and long and time < QUIET_GAIN * begin)

    def _fall_back(self, reason: str) -> Stepper:
        """Go on with the second stepper from the present vectors and time, for a reason; return it."""
        time = self._first.time
        self.fallback_time, self.fallback_reason = time, reason
        self._second = self._robust(self._first.vectors(time), time)
        return self._second

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state [C | G | ln n] at a time within the last step."""
        return self._current.interpolate(t, out)

    def derivative(self, t: float) -> Array:
        """Return the rates of the state at a time within the last step."""
        return self._current.derivative(t)

    def close(self) -> None:
        """End the threads of the first stepper, if it has any; the second has none."""
        end_threads(self._first)

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations, of both steppers together."""
        counts = self._first.statistics()
        for name, count in ({} if self._second is None else self._second.statistics()).items():
            counts[name] = counts.get(name, 0) + count
        return counts

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit.

        Names of the first stepper's arrays begin with "first_", those of the second, if it runs, with "second_".
        `looks` (looks, 2) are times and numbers of passed events at the last looks, `next_look` is (step of the next
        look, whether the run is held up).
        """
        arrays = {f"first_{name}": array for name, array in self._first.state().items()}
        arrays["looks"] = np.array(self._looks).reshape(-1, 2)
        arrays["next_look"] = np.array([self._next_look, self._held])
        if self._second is not None:
            arrays |= {f"second_{name}": array for name, array in self._second.state().items()}
            arrays["fallback_time"] = np.array(self.fallback_time)
            arrays["fallback_reason"] = np.array(self.fallback_reason)
        return arrays

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned."""
        arrays = _part(state, "first_")
        if self._former is not None and "U" in arrays:
            self._first = self._former()
        self._first.restore(arrays)
        self._looks = [(time, passed) for time, passed in state["looks"].tolist()]
        next_look, held = state["next_look"].tolist()
        self._next_look, self._held = next_look, bool(held)
        self._second, self.fallback_time, self.fallback_reason = None, None, None
        if "fallback_time" in state:
            self._fall_back(str(state["fallback_reason"])).restore(_part(state, "second_"))
            self.fallback_time = float(state["fallback_time"])


def _part(state: Mapping[str, NDArray[np.generic]], prefix: str) -> dict[str, NDArray[np.generic]]:
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
