"""A map of whole steps, most of which are skipped where the flow through them is smooth.

Steps are taken one by one at the start, and wherever the next term of the flow's series, or the steps of "bdf" along
it, say that the flow is not known to the tolerance or takes longer. Fast parts of a map, such as buffers of momentum,
die out in the first of these; the flow follows all that is left, implicitly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators.stepper import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from dynamics.integrators.compiled_stepper import CompiledStepper
    from dynamics.integrators.descent import EulerStepper
    from dynamics.integrators.stepper import Tolerances
    from hermite.arrays import Array

#: Steps of the map between two looks at its differences, and steps that must be left for the flow to be worth while.
LOOK, FEWEST = 100, 2000
#: Steps of the flow between two looks, and those of a start from order 1, which are short.
FLOW_LOOK, FLOW_START = 16, 48
#: Steps of the map that one of the flow passes over, for which the error is estimated before the flow is followed.
TYPICAL = 64.0
#: Steps of the map after the flow took longer than them, at first and at most.
WAIT, LONGEST_WAIT = 500, 16_000
#: A disturbance that a step of the map makes so many times as large, or more, turns over: the flow would damp it, and
#: the map from 2 on does not. Size of a disturbance in units of the tolerance, and iterations at a look.
LARGEST_GROWTH, DISTURBANCE, ITERATIONS = 1.5, 1e3, 3
#: Beginning of the names of the flow's arrays in a state.
OF_FLOW = "flow_"
COUNTS = ("steps_accepted", "steps_rejected", "rhs_evaluations")


class MapStepper:
    """Steps y ← F(y) of a map, one by one or along the flow through them; time is η · step.

    `exact` takes the steps; while the flow is followed, it stays at the last whole step from which they may go on.
    `flow` makes a stepper of the flow from a state and a time, `terms` is the number of terms of its series, and
    `tolerances` are those of its steps.
    """

    #: Whether there is `advance_through`.
    leaps = True

    def __init__(
        self,
        exact: EulerStepper,
        flow: Callable[[Array, float], CompiledStepper],
        terms: int,
        tolerances: Tolerances,
        last_time: float,
    ) -> None:
        """Begin at the state of `exact`, with steps taken one by one; the first look is after `LOOK` steps.

        `exact` takes single steps of the map, `flow(state, time)` makes the stepper of the flow, `terms` is the number
        of terms of its series, each of which takes one evaluation of the map, `tolerances` are those of the flow's
        steps, and `last_time` is the time η · step at which the run will end, from which the number of steps left
        follows.
        """
        self._exact, self._make, self._terms, self._tolerances = exact, flow, terms, tolerances
        self._last_time = last_time
        self._flow: CompiledStepper | None = None
        # Next look at the map, and the wait after a flow that takes long, in steps; counts of flows that have ended.
        self._next, self._wait = LOOK, WAIT
        self._ended = np.zeros(len(COUNTS), dtype=np.int64)
        # Steps of the flow at the last look, and whether it takes longer than steps of the map.
        self._looked, self._leaves = 0, False
        # The disturbance that a step changes most.
        self._disturbance = np.cos(np.arange(tolerances.atol.size)) * tolerances.atol
        # Steps of the map that the flow passed over.
        self._passed = 0
        # Time and evaluations of the flow when its cost was last measured.
        self._began = (0.0, 0)

    @property
    def _current(self) -> EulerStepper | CompiledStepper:
        """The stepper that takes the steps now: of the map, or of the flow."""
        return self._exact if self._flow is None else self._flow

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return self._current.time

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; not-a-number until then; the start if passed there."""
        first = self._exact.event_times
        return first if self._flow is None else np.where(np.isnan(first), self._flow.event_times, first)

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        return self._through(np.array([target]), max_steps, saves=False)[0]

    def advance_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Advance to the last of increasing times; return also the states at those that were passed, (count, n)."""
        return self._through(times, max_steps, saves=True)

    def _through(self, times: Array, max_steps: int, *, saves: bool) -> tuple[Status, Array]:
        """Advance through increasing times; return the status, and the states at those passed if `saves`."""
        last, passed = self._tried() + max_steps, [np.empty((0, self._tolerances.atol.size))]
        while True:
            if self._leaves and times[0] > self.time:
                self._take_steps()
            chunk = max(min(last - self._tried(), self._until_look()), 1)
            if saves:
                status, states = self._current.advance_through(times, chunk)
                passed, times = [*passed, states.reshape(len(states), -1)], times[len(states) :]
            else:
                status = self._current.advance(float(times[-1]), chunk)
            goes_on = self._look(status)
            if times.size == 0 or (goes_on and status != Status.MAX_STEPS) or self._tried() >= last:
                status = status if goes_on else Status.MAX_STEPS
                return (Status.REACHED if times.size == 0 else status), np.concatenate(passed)

    def _tried(self) -> int:
        """Return the number of steps tried so far, of the map and of flows."""
        counts = self.statistics()
        return counts["steps_accepted"] + counts["steps_rejected"]

    def _until_look(self) -> int:
        """Return the number of steps until the next look."""
        return self._next - self._exact.step if self._flow is None else FLOW_LOOK - _tried_by(self._flow) % FLOW_LOOK

    def _look(self, status: Status) -> bool:
        """Decide whether to go on step by step or along the flow; return whether the last steps are kept.

        `status` is that of the last steps. While single steps are taken, every `LOOK` of them the flow is tried: it is
        followed if `FEWEST` steps or more are left and `_is_smooth` holds. While the flow is followed, its steps since
        the last look are dropped, and single steps go on from the last whole step, if it failed (step too small, not
        finite) or if, every `FLOW_LOOK` tried steps, it is no longer smooth. If it is smooth but, after `FLOW_START`
        steps, took more evaluations of the map than single steps would, its steps are kept, and `_through` returns to
        single steps after them.
        """
        if self._flow is None:
            if self._exact.step >= self._next:
                self._next = self._exact.step + LOOK
                remaining_steps = self._last_time / self._exact.rate - self._exact.step
                if remaining_steps >= FEWEST and self._is_smooth(self._exact.state_now(), self._exact.time, TYPICAL):
                    self._follow_flow()
            return True
        flow, rate, tried = self._flow, self._exact.rate, _tried_by(self._flow)
        if status in (Status.STEP_TOO_SMALL, Status.NOT_FINITE):
            self._take_steps()
            return False
        if tried % FLOW_LOOK != 0 or tried == self._looked:
            return True
        self._looked = tried
        if not self._is_smooth(flow.interpolate(flow.time), flow.time, (flow.time - flow.start) / rate):
            self._take_steps()
            return False
        self._keep_whole_step()
        counts = flow.statistics()
        begin, before = self._began
        if counts["steps_accepted"] >= FLOW_START:
            self._leaves = flow.time - begin < rate * self._terms * (counts["rhs_evaluations"] - before)
            self._wait = self._wait if self._leaves else WAIT
            self._began = flow.time, counts["rhs_evaluations"]
        return True

    def _is_smooth(self, state: Array, time: float, length: float) -> bool:
        """Return whether a flow can replace `length` steps of the map, from `state` (n,) at `time` on.

        The flow goes through the steps of the map up to an error: it is a series in differences of successive steps,
        cut after some terms. Two conditions must hold. First, the next term of the series would add at most the
        tolerance over `length` steps; it is computed twice, from successive steps, and the part in which the two values
        differ counts as rounding. Second, the disturbance of the state that a step of the map changes most changes by
        less than `LARGEST_GROWTH` times its size, found by `ITERATIONS` steps of power iteration.
        """
        rate, terms, y, out = self._exact.rate, self._terms, np.array(state), np.empty_like(state)
        weight = 1.0 / (self._tolerances.atol + self._tolerances.rtol * np.abs(state))
        next_terms, changes = np.zeros((2, state.size)), np.empty((terms + 2, state.size))
        for k in range(terms + 2):
            self._exact.write_change(time + k * rate, y, changes[k])
            y += rate * changes[k]
        # The next term of the series in two steps: its rounding differs between them, its smooth part does not.
        share = 1.0
        for k in range(terms + 1):
            next_terms += share * changes[k : k + 2]
            share *= -(terms - k) / (k + 1.0)
        first_term, second_term = next_terms
        error = rate / (terms + 1.0) * (0.5 * np.abs(first_term + second_term) - np.abs(first_term - second_term))
        if not length * np.max(error * weight) <= 1.0:
            return False
        # The largest change of a disturbance in one step, by power iteration.
        growth = np.inf
        for _ in range(ITERATIONS):
            size = np.max(np.abs(self._disturbance * weight))
            along = self._disturbance * (DISTURBANCE / size)
            self._exact.write_change(time, state + along, out)
            self._disturbance = rate * (out - changes[0])
            growth = np.max(np.abs(self._disturbance * weight)) / DISTURBANCE
        return bool(growth < LARGEST_GROWTH)

    def _follow_flow(self) -> None:
        """Continue along the flow, from the last step of the map."""
        self._flow = self._make(self._exact.state_now(), self._exact.time)
        self._began, self._looked = (self._exact.time, 0), 0

    def _keep_whole_step(self) -> None:
        """Move `exact` to the last whole step within the last step of the flow, if that contains two."""
        flow, rate = self._flow, self._exact.rate
        assert flow is not None
        step = int(np.floor(flow.time / rate))
        if step > self._exact.step + 1 and rate * (step - 1) >= flow.start and rate * step <= flow.time:
            states = [flow.interpolate(rate * number) for number in (step - 1, step)]
            self._passed += step - self._exact.step
            self._exact.go_to(step, states, self.event_times)

    def _take_steps(self) -> None:
        """Continue step by step from the state of `exact`."""
        flow = self._flow
        assert flow is not None
        self._ended += self._counts_of_flow(flow)
        self._flow, self._leaves = None, False
        self._next, self._wait = self._exact.step + self._wait, min(2 * self._wait, LONGEST_WAIT)

    def _counts_of_flow(self, flow: CompiledStepper) -> NDArray[np.int64]:
        """Return the counts of a flow, integers (3,): accepted steps, rejected steps, evaluations of the map.

        Each rate of the flow, which its own statistics count, takes `terms` evaluations of the map.
        """
        counts = flow.statistics()
        numbers: NDArray[np.int64] = np.array([counts[name] for name in COUNTS])
        numbers[-1] *= self._terms
        return numbers

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state at a time within the last step."""
        return self._current.interpolate(t, out)

    def derivative(self, t: float) -> Array:
        """Return the rates of the state at a time within the last step, or its change over a step divided by η."""
        return self._current.derivative(t)

    def statistics(self) -> dict[str, int]:
        """Return counts of steps, of the map and of the flow together, and of evaluations of the map."""
        counts, map_steps = self._ended.copy(), self._exact.step - self._passed
        counts += (map_steps, 0, map_steps)
        if self._flow is not None:
            counts += self._counts_of_flow(self._flow)
        return dict(zip(COUNTS, counts.tolist(), strict=True))

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit.

        They are those of the single steps; `map_steps`: the step of the next look, the wait after a flow, whether the
        flow is left, its steps at the last look, steps that it passed over, evaluations when its cost was last
        measured, and the three counts of flows that have ended; `map_time`, when that cost was measured;
        `map_disturbance` (n,); and, while the flow is followed, its arrays, with names that begin with `OF_FLOW`.
        """
        arrays = self._exact.state()
        arrays["map_steps"] = np.array(
            [self._next, self._wait, self._leaves, self._looked, self._passed, self._began[1], *self._ended.tolist()]
        )
        arrays["map_time"], arrays["map_disturbance"] = np.array(self._began[0]), self._disturbance.copy()
        if self._flow is not None:
            arrays |= {f"{OF_FLOW}{name}": array for name, array in self._flow.state().items()}
        return arrays

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays of a stepper of the same problem and learning rate, also of the map alone."""
        self._exact.restore(state)
        self._flow = None
        if "map_steps" not in state:
            self._next = self._exact.step + LOOK
            return
        self._next, self._wait, leaves, self._looked, self._passed, evaluations, *ended = state["map_steps"].tolist()
        self._disturbance[:] = state["map_disturbance"]
        self._leaves, self._ended[:], self._began = bool(leaves), ended, (float(state["map_time"]), evaluations)
        of_flow = {name.removeprefix(OF_FLOW): array for name, array in state.items() if name.startswith(OF_FLOW)}
        if of_flow:
            flow = self._make(self._exact.state_now(), self._exact.time)
            flow.restore(of_flow)
            self._flow = flow


def _tried_by(flow: CompiledStepper) -> int:
    """Return the number of steps that a flow has tried."""
    counts = flow.statistics()
    return counts["steps_accepted"] + counts["steps_rejected"]
