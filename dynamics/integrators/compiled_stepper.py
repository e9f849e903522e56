"""The stepper that runs a compiled method, and the arrays in which that keeps its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators import step_kernels as slots
from dynamics.integrators.stepper import Status, SystemStepper, UndoneSteps, check_stored
from hermite.arrays import aligned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from dynamics.equations.vectors import VectorSystem
    from dynamics.integrators.step_kernels import Layout
    from dynamics.integrators.stepper import Tolerances
    from dynamics.integrators.system_calls import BoundSystem
    from hermite.arrays import Array


class CompiledStepper(SystemStepper, UndoneSteps):
    """Runs the entry of a compiled method that advances through saved times, from the state y0 at t0.

    The first call of `advance`, which may be to t0, evaluates the start and records the events that it passes. The
    `constants` of a method are the last of its scalars, `integers` stand behind its counters and are not stored.
    """

    #: Whether there is `advance_through`.
    leaps = True

    def __init__(
        self,
        through: Callable[..., int],
        layout: Layout,
        y0: Array,
        system: BoundSystem,
        *,
        tolerances: Tolerances,
        num_events: int,
        t0: float,
        constants: Sequence[float] = (),
        integers: Sequence[int] = (),
        unit_vectors: VectorSystem | None = None,
    ) -> None:
        """Allocate the arrays of a compiled method, and put the state y0 (n,) and the time t0 in them.

        `through` is the entry `advance_through` of the method; `layout` says how many rows of length n, scalars and
        counters it has, and which of them a checkpoint keeps. `system` holds the right-hand side with its numbers,
        `tolerances` the settings of steps, and `num_events` is the number of events. `constants` become the last
        scalars, `integers` follow the counters. `unit_vectors` is the system whose overlaps are shown instead of its
        vectors, None for others.
        """
        self._advance_through, self._layout, self._system, self._unit_vectors = through, layout, system, unit_vectors
        self._slot = system.slot
        self._vectors = aligned(layout.rows, y0.size)
        self._vectors[...] = 0.0
        self._vectors[slots.ROW_STATE] = y0
        self._scalars = np.zeros(layout.scalars)
        self._scalars[[slots.TIME, slots.TIME_START]] = t0
        self._scalars[layout.scalars - len(constants) :] = constants
        self._scalars[slots.RTOL] = tolerances.rtol
        self._scalars[slots.FIXED_STEP] = tolerances.fixed_step
        self._scalars[slots.LARGEST_STEP] = tolerances.largest_step
        self._counters = np.array([*[0] * layout.counters, *integers], dtype=np.int64)
        # `FIXED_ORDER` of BDF; other methods have one order
        self._counters[layout.counters - 1] = tolerances.fixed_order
        self._events = np.full((3, num_events), np.nan)
        self._atol = np.array(tolerances.atol)
        arrays = self._vectors, self._scalars, self._counters, self._atol, self._events
        #: Arrays that the entry reads and changes, in the order of its arguments.
        self._of_steps = ((*arrays, *system.numbers), *system.functions)

    @property
    def time(self) -> float:
        """End of the last accepted step."""
        return float(self._scalars[slots.TIME])

    @property
    def start(self) -> float:
        """Start of the last accepted step."""
        return float(self._scalars[slots.TIME_START])

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; NaN until then."""
        return np.array(self._events[slots.EVENT_TIME])

    def advance_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Advance to the last of increasing times; return also the states at those that were passed, (count, n)."""
        states = np.empty((times.size, self._vectors.shape[1]))
        # The times of a schedule are read-only.
        status, passed = self._through(times.copy(), max_steps, states)
        saved = states[:passed]
        return status, saved if self._unit_vectors is None or not passed else self._unit_vectors.overlaps(saved)

    def _advance(self, target: float, max_steps: int) -> Status:
        """Take at most `max_steps` steps until the time reaches `target`; return the status."""
        return self._through(np.array([target], dtype=np.float64), max_steps, np.empty((0, 0)))[0]

    def _through(self, times: Array, max_steps: int, states: Array) -> tuple[Status, int]:
        """Advance through times; return also how many were passed. Their states are written if there are rows."""
        passed, status = divmod(self._advance_through(times, max_steps, states, *self._of_steps), slots.PASSED)
        return Status(status), passed

    def _end(self, *, last: bool) -> Array:
        """Return the state at the end of the last step, or at its start unless `last`."""
        end: Array = self._vectors[slots.ROW_STATE if last else slots.ROW_START]
        return end

    def _write_inside(self, t: float, out: Array) -> None:
        """Write the state at a time t strictly within the last step to `out`."""
        # A time within the last step needs no further one.
        self._advance_through(np.array([t]), 0, out[None], *self._of_steps)

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations."""
        return {name: int(self._counters[slot]) for name, slot in self._layout.statistics.items()}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays of a stepper of the same method and system."""
        rows = list(self._layout.kept)
        if "vectors" in state and np.shape(state["vectors"]) == self._vectors.shape:  # of an earlier version
            state = {**state, "vectors": state["vectors"][rows]}
        if self._layout.kept_scalars is not None and "scalars" in state:  # an earlier version stored scratch, too
            state = {**state, "scalars": state["scalars"][: self._layout.kept_scalars]}
        check_stored(state, "vectors", (len(rows), self._vectors.shape[1]))
        for name, array in self._small_arrays().items():
            check_stored(state, name, array.shape)
        self._vectors[rows] = state["vectors"]
        for name, array in self._small_arrays().items():
            array[...] = state[name]

    def _small_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state except the vectors."""
        scalars, counters = self._scalars[: self._layout.kept_scalars], self._counters[: self._layout.counters]
        return {"scalars": scalars, "counters": counters, "events": self._events}

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of the arrays from which `restore` continues.

        They are those rows of `vectors` that the method keeps, (rows, n), and its `scalars`, `counters` and `events`
        (3, events): times, values now, and values at the start of the last step.
        """
        small = {name: array.copy() for name, array in self._small_arrays().items()}
        return {"vectors": self._vectors[list(self._layout.kept)], **small}
