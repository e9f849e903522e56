"""The stepper that runs a compiled method, and the arrays in which that keeps its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.integrators import explicit_kernels
from dynamics.integrators import step_kernels as slots
from dynamics.integrators.stepper import EVENT_PASSED, Status, check_inside, check_stored, leaping, record_crossings
from dynamics.threads import GivenUp, give_way, stopping_at, whether_given_up
from hermite.arrays import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from dynamics.equations.vectors import VectorSystem
    from dynamics.integrators.stepper import Stepper, Tolerances
    from dynamics.integrators.system_calls import BoundSystem
    from hermite.arrays import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sizes of the arrays of a compiled method, and what their rows and slots are for."""

    rows: int
    scalars: int
    counters: int
    #: Rows of `vectors` that a step finds and changes.
    carried: tuple[int, ...]
    #: Rows from which a run goes on, `carried` and those that dense output reads; all others are scratch.
    kept: tuple[int, ...]
    #: Name of each public count and its slot in `counters`.
    statistics: Mapping[str, int]
    #: Integers behind `counters` that no step finds as another left them.
    scratch: int = 0


# Dense output of the explicit pair adds its stages and its coefficients to the rows that are carried.
_CARRIED_BY_BDF = (
    slots.ROW_STATE,
    slots.ROW_START,
    slots.ROW_DIAGONAL,
    *range(slots.ROW_SAVED, slots.ROW_NORDSIECK + slots.MAX_ORDER + 1),
)
STATISTICS = {
    "steps_accepted": slots.ACCEPTED,
    "steps_rejected": slots.REJECTED,
    "rhs_evaluations": slots.EVALUATIONS,
}
LAYOUTS = {
    "explicit": Layout(
        rows=slots.ROW_ZERO + 1,
        scalars=8,
        counters=8,
        carried=(slots.ROW_STATE, slots.ROW_START, slots.ROW_END),
        kept=(
            slots.ROW_STATE,
            slots.ROW_START,
            *range(slots.ROW_STAGES, slots.ROW_END + 1),
            *range(slots.ROW_DENSE, slots.ROW_ZERO),
        ),
        statistics=STATISTICS | {"steps_limited_by_stability": slots.STABILITY_LIMITED},
    ),
    "bdf": Layout(
        rows=slots.ROW_NORDSIECK + slots.MAX_ORDER + 1,
        scalars=slots.HESSENBERG + (slots.MAX_KRYLOV + 1) * (slots.MAX_KRYLOV + 3),
        counters=16,
        carried=_CARRIED_BY_BDF,
        kept=_CARRIED_BY_BDF,
        statistics=STATISTICS
        | {
            "linear_iterations": slots.PRODUCTS,
            "nonlinear_iterations": slots.ITERATIONS,
            "nonlinear_failures": slots.FAILED_ITERATIONS,
            "diagonal_evaluations": slots.DIAGONALS,
            "order": slots.ORDER,
        },
        scratch=1,
    ),
}


class CompiledStepper:
    """Runs the entries of a compiled method from the state y0 at t0.

    `through` is the entry that advances through saved times; a subclass whose method has none overrides `_one_call` and
    `_interpolate_inside`.

    The first call of `advance`, which may be to t0, evaluates the start and records the events that it passes.

    The `constants` of a method are the last of its scalars, `more_functions` arguments of its entries behind those of
    the system. A single step that was given up leaves the stepper as it was before.
    """

    def __init__(
        self,
        through: Callable[..., int] | None,
        layout: Layout,
        y0: Array,
        system: BoundSystem,
        *,
        tolerances: Tolerances,
        num_events: int,
        t0: float,
        constants: Sequence[float] = (),
        more_functions: Sequence[Any] = (),
    ) -> None:
        self._advance_through = through
        self._layout = layout
        self._vectors = np.zeros((layout.rows, y0.size))
        self._vectors[slots.ROW_STATE] = y0
        self._scalars = np.zeros(layout.scalars)
        self._scalars[[slots.TIME, slots.TIME_START]] = t0
        self._scalars[layout.scalars - len(constants) :] = constants
        self._scalars[slots.RTOL] = tolerances.rtol
        self._scalars[slots.FIXED_STEP] = tolerances.fixed_step
        self._scalars[slots.LARGEST_STEP] = tolerances.largest_step
        self._counters = np.zeros(layout.counters + layout.scratch, dtype=np.int64)
        self._counters[layout.counters - 1] = (
            tolerances.fixed_order
        )  # `FIXED_ORDER` of BDF; the explicit pair has one order
        if layout is LAYOUTS["bdf"]:
            self._counters[slots.HAS_PRODUCT] = system.has_product
        self._events = np.full((3, num_events), np.nan)
        self._atol = tolerances.absolute(y0.size)
        self._arrays = self._vectors, self._scalars, self._counters, self._atol, self._events
        self._no_states = np.empty((0, y0.size))
        self._system = system
        self._functions = (*system.functions, *more_functions)
        # What `state` says while a single step is taken; None between steps. Its rows have a place of their own, made
        # when they are first needed.
        self._before: dict[str, NDArray[np.generic]] | None = None
        self._rows_before = np.empty((0, y0.size))
        # Whether those rows are not put back yet after a step that was given up: most runs end there.
        self._torn = False

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return float(self._scalars[slots.TIME])

    @property
    def start(self) -> float:
        """Start of the last accepted step, dimensionless."""
        return float(self._scalars[slots.TIME_START])

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; NaN until then."""
        return np.array(self._events[slots.EVENT_TIME])

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        self._mend()
        if max_steps != 1:
            return self._advance(target, max_steps)
        self._keep()
        try:
            with stopping_at(self._system.slot):
                return self._advance(target, max_steps)
        except GivenUp:
            self._take_back()
            raise
        finally:
            self._before = None

    #: Whether there is `advance_through`.
    leaps = True

    def advance_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Advance to the last of increasing times; return also the states at those that were passed, (count, n)."""
        states = np.empty((times.size, self._vectors.shape[1]))
        # The times of a schedule are read-only.
        status, passed = self._through(times.copy(), max_steps, states)
        return status, states[:passed]

    def _through(self, times: Array, max_steps: int, states: Array) -> tuple[Status, int]:
        """Advance through times; return also how many were passed, whose states are written if there are rows."""
        last, passed = self._tried() + max_steps, 0
        while True:
            left = last - self._tried()
            assert self._advance_through is not None
            code = self._advance_through(times[passed:], left, states[passed:], *self._of_steps())
            further, status = divmod(code, slots.PASSED)
            passed += further
            if status != EVENT_PASSED:
                return Status(status), passed
            give_way(whether_given_up())
            self._record_crossings()

    def _keep(self) -> None:
        """Copy what a step changes: the run asks for single steps where they take long, and may give them up."""
        if self._rows_before.size == 0:
            self._rows_before = np.empty((len(self._layout.carried), self._vectors.shape[1]))
        for place, row in enumerate(self._layout.carried):
            self._rows_before[place] = self._vectors[row]
        self._before = self._copies()

    def _take_back(self) -> None:
        """Put back what the step has changed, its rows when they are asked for."""
        self._torn = True
        for name, array in self._small_arrays().items():
            array[...] = (self._before or {})[name]

    def _mend(self) -> None:
        if self._torn:
            self._vectors[list(self._layout.carried)] = self._rows_before
            self._torn = False

    def _advance(self, target: float, max_steps: int) -> Status:
        if self._advance_through is not None:
            return self._through(np.array([target], dtype=np.float64), max_steps, self._no_states)[0]
        last = self._tried() + max_steps
        while True:
            status = self._one_call(float(target), last - self._tried())
            if status != EVENT_PASSED:
                return Status(status)
            give_way(whether_given_up())
            self._record_crossings()

    def _of_steps(self) -> tuple[Any, ...]:
        """Return what entry points that take steps read and change, in the order of their arguments."""
        return (*self._arrays, *self._system.numbers), *self._functions

    def _one_call(self, target: float, max_steps: int) -> int:
        """Take steps to one time, in one call of compiled code; return its status."""
        raise NotImplementedError

    def _record_crossings(self) -> None:
        times, now, before = self._events
        record_crossings(times, before, now, (self.start, self.time), self._event_values)

    def _tried(self) -> int:
        return int(self._counters[slots.ACCEPTED] + self._counters[slots.REJECTED])

    def _event_values(self, t: float) -> Array:
        values = np.empty(self._events.shape[1])
        self._system.event_values(t, self.interpolate(t), values)
        return values

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state at a time within the last step, shape (n,), on the polynomial of the step."""
        check_inside(t, self.start, self.time)
        self._mend()
        out = np.empty(self._vectors.shape[1]) if out is None else out
        # Both ends are returned exactly, and without the evaluations that a dense output may need.
        if t in (self.start, self.time):
            out[:] = self._vectors[slots.ROW_STATE if t == self.time else slots.ROW_START]
        else:
            self._interpolate_inside(float(t), out)
        return out

    def _interpolate_inside(self, t: float, out: Array) -> None:
        # A time within the last step needs no further one.
        assert self._advance_through is not None
        self._advance_through(np.array([t]), 0, out[None], *self._of_steps())

    def derivative(self, t: float) -> Array:
        """Return y' at a time within the last step, shape (n,)."""
        out = np.empty(self._vectors.shape[1])
        self._system.rhs(t, self.interpolate(t), out)
        return out

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations."""
        return {name: int(self._counters[slot]) for name, slot in self._layout.statistics.items()}

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit; before a step, while it is taken."""
        before, rows = self._before, self._layout.kept
        vectors = self._vectors[list(rows)]
        if before is None:
            before = self._copies()
            if not self._torn:
                return {"vectors": vectors, **before}
        vectors[[rows.index(row) for row in self._layout.carried]] = self._rows_before
        return {"vectors": vectors, **before}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays of a stepper of the same method and system."""
        rows = list(self._layout.kept)
        if "vectors" in state and np.shape(state["vectors"]) == self._vectors.shape:  # of an earlier version
            state = {**state, "vectors": state["vectors"][rows]}
        check_stored(state, "vectors", (len(rows), self._vectors.shape[1]))
        for name, array in self._small_arrays().items():
            check_stored(state, name, array.shape)
        self._vectors[rows], self._torn = state["vectors"], False
        for name, array in self._small_arrays().items():
            array[...] = state[name]

    def _small_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return all arrays of the state but the vectors."""
        counters = self._counters[: self._layout.counters]
        return {"scalars": self._scalars, "counters": counters, "events": self._events}

    def _copies(self) -> dict[str, NDArray[np.generic]]:
        return {name: array.copy() for name, array in self._small_arrays().items()}


# The explicit stepper, which goes from save time to save time in Python.


class ExplicitStepper(CompiledStepper):
    """Compiled steps of order 8, with an interpolant of order 7."""

    def advance_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Advance to the last of increasing times; return also the states at those that were passed, (count, n)."""
        states = np.empty((times.size, self._vectors.shape[1]))
        last = self._tried() + max_steps
        for passed, t in enumerate(times.tolist()):
            status = Status.REACHED if t <= self.time else self.advance(t, last - self._tried())
            if status != Status.REACHED:
                return status, states[:passed]
            self.interpolate(t, states[passed])
        return Status.REACHED, states

    def _one_call(self, target: float, max_steps: int) -> int:
        return int(explicit_kernels.advance(target, max_steps, *self._of_steps()))

    def _interpolate_inside(self, t: float, out: Array) -> None:
        explicit_kernels.interpolate(t, out, *self._of_steps())


class BdfStepper(CompiledStepper):
    """Compiled steps of backward differentiation."""

    def _interpolate_inside(self, t: float, out: Array) -> None:
        from dynamics.integrators.bdf_kernels import interpolate_alone

        parameters, sizes, _ = self._system.numbers
        normalise = self._system.compiled.normalise
        interpolate_alone(t, out, self._vectors, self._scalars, self._counters, parameters, sizes, normalise)


# A stepper of unit vectors [U | ln n], seen from outside as one of the overlaps [C | G | ln n].


class VectorStepper:
    """A stepper of the overlaps, made of one of `VectorSystem`, whose state is [U | ln n]."""

    def __init__(self, stepper: Stepper, system: VectorSystem) -> None:
        self._stepper = stepper
        self._system = system

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return self._stepper.time

    @property
    def event_times(self) -> Array:
        """Time at which each direction emerged, then was learned; not-a-number until then; the start if there."""
        return self._stepper.event_times

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        return self._stepper.advance(target, max_steps)

    @property
    def leaps(self) -> bool:
        """Whether there is `advance_through`."""
        return leaping(self._stepper) is not None

    def advance_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Advance to the last of increasing times; return also the states at those that were passed, (count, n)."""
        status, states = self.vectors_through(times, max_steps)
        return status, self.overlaps(states)

    def vectors_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Do the same, and return the states as [U | ln n], of which `overlaps` makes those of `advance_through`."""
        stepper = leaping(self._stepper)
        assert stepper is not None
        return stepper.advance_through(times, max_steps)

    def overlaps(self, states: Array) -> Array:
        """Return [C | G | ln n] of states [U | ln n], (count, n)."""
        return self._system.overlaps(states)

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state [C | G | ln n] at a time within the last step, both ends included."""
        return self._system.overlaps(self._stepper.interpolate(t), out)

    def vectors(self, t: float) -> tuple[Array, Array]:
        """Return the unit vectors and ln n at a time within the last step, both ends included."""
        return self._system.unpack(self._stepper.interpolate(t))

    def derivative(self, t: float) -> Array:
        """Return the rates of [C | G | ln n] at a time within the last step."""
        return self._system.overlap_rates(self._stepper.interpolate(t), self._stepper.derivative(t))

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations."""
        return self._stepper.statistics()

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit."""
        return self._stepper.state()

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned."""
        self._stepper.restore(state)
