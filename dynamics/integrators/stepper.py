"""What every stepper looks like from Python, and the one that runs compiled kernels.

Responsible for: the protocol between the run loop and a method, and the arrays in which a compiled method keeps its
state.  Must not know the system, save times or datasets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dynamics.integrators.events import record_crossings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from numpy.typing import ArrayLike, NDArray

    BoundSystem = tuple[Any, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]

__all__ = ["CompiledStepper", "Layout", "Status", "Stepper", "Tolerances", "check_vector"]

# Returned by a compiled method to have the time of an event found; never seen outside.
EVENT_PASSED = 4
# Functions that the entry point ``evaluate`` calls.
RHS, EVENT_VALUES, NORMALISE = 0, 1, 2


class Status(IntEnum):
    """Say why `Stepper.advance` returned."""

    REACHED = 0
    MAX_STEPS = 1
    STEP_TOO_SMALL = 2
    NOT_FINITE = 3


class Stepper(Protocol):
    """Take steps of a system until a time is reached; answer questions about the last step."""

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        ...

    @property
    def event_times(self) -> NDArray[np.float64]:
        """Time at which each event was passed; not-a-number until then; the start if passed there."""
        ...

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        ...

    def interpolate(self, t: float, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return the state at a time within the last step."""
        ...

    def derivative(self, t: float) -> NDArray[np.float64]:
        """Return y' at a time within the last step."""
        ...

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations."""
        ...

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit.

        While `advance` takes a single step in another thread, they are those before it.
        """
        ...

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """Hold what controls the steps.

    Parameters
    ----------
    rtol : float
        Relative tolerance on each component, positive.
    atol : float or array of shape (n,)
        Absolute tolerance on each component, positive.
    fixed_step : float
        Length of every step, without error control; 0 for adaptive steps.
    largest_step : float
        Upper bound on the length of a step.
    fixed_order : int
        Order kept throughout by a method of variable order; 0 to choose it.
    """

    rtol: float
    atol: float | NDArray[np.float64]
    fixed_step: float = 0.0
    largest_step: float = np.inf
    fixed_order: int = 0

    def __post_init__(self) -> None:
        for name in ("rtol", "largest_step"):
            value = getattr(self, name)
            if not value > 0.0:
                msg = f"Argument `{name}` must be positive, but is {value}."
                raise ValueError(msg)
        if not np.all(np.asarray(self.atol) > 0.0):
            msg = f"Argument `atol` must be positive, but has minimum {np.min(self.atol)}."
            raise ValueError(msg)
        if not self.fixed_step >= 0.0:
            msg = f"Argument `fixed_step` must be at least 0, but is {self.fixed_step}."
            raise ValueError(msg)
        if not 0 <= self.fixed_order <= 5:
            msg = f"Argument `fixed_order` must be between 0 and 5, but is {self.fixed_order}."
            raise ValueError(msg)

    def absolute(self, size: int) -> NDArray[np.float64]:
        """Return the absolute tolerance as one number per component."""
        atol = np.asarray(self.atol, dtype=np.float64)
        if atol.ndim > 0 and atol.shape != (size,):
            msg = f"Argument `atol` must be a number or have shape (n,) = ({size},), but has shape {atol.shape}."
            raise ValueError(msg)
        return np.ascontiguousarray(np.broadcast_to(atol, (size,))).copy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Describe the arrays of a compiled method.

    Parameters
    ----------
    rows : int
        Rows of `vectors`.
    scalars, counters : int
        Lengths of these arrays.
    carried : tuple of int
        Rows of `vectors` that a step finds and changes.
    kept : tuple of int
        Rows from which a run goes on, `carried` and those that dense output reads; all others are scratch.
    statistics : mapping
        Name of each public count and its slot in `counters`.
    """

    rows: int
    scalars: int
    counters: int
    carried: tuple[int, ...]
    kept: tuple[int, ...]
    statistics: Mapping[str, int]


def check_vector(values: ArrayLike, name: str, dtype: type[np.float64 | np.int64]) -> NDArray[np.generic]:
    """Return a contiguous one-dimensional copy, refusing other shapes."""
    array: NDArray[np.generic] = np.array(values, dtype=dtype, order="C")
    if array.ndim != 1:
        msg = f"Argument `{name}` must have one dimension, but has shape {array.shape}."
        raise ValueError(msg)
    return array


class CompiledStepper:
    """Drive the entry points of a compiled method.

    Parameters
    ----------
    namespace : module
        Namespace in which the method's pieces were executed.
    layout : Layout
        Sizes of the state arrays of the method.
    y0 : array of shape (n,)
        Initial state, dimensionless.
    system : tuple (functions, parameters, sizes, work)
        Addresses of the system's functions, and the arrays passed on to them.
    tolerances : Tolerances
        Error control.
    num_events : int
        Number of events of the system.
    t0 : float
        Initial time, dimensionless.
    """

    def __init__(
        self,
        namespace: ModuleType,
        layout: Layout,
        y0: NDArray[np.float64],
        system: BoundSystem,
        *,
        tolerances: Tolerances,
        num_events: int,
        t0: float,
    ) -> None:
        self._namespace = namespace
        self._layout = layout
        self._vectors = np.zeros((layout.rows, y0.size))
        self._vectors[0] = y0
        self._scalars = np.zeros(layout.scalars)
        self._scalars[[0, 1, 3, 4, 5]] = (
            t0,
            t0,
            tolerances.rtol,
            tolerances.fixed_step,
            tolerances.largest_step,
        )
        self._counters = np.zeros(layout.counters, dtype=np.int64)
        self._counters[-1] = tolerances.fixed_order
        self._events = np.full((3, num_events), np.nan)
        self._atol = tolerances.absolute(y0.size)
        self._system = system
        # What `state` says while a single step is taken, or after it was given up; None between steps. Its rows have
        # a place of their own, made when they are first needed.
        self._before: dict[str, NDArray[np.generic]] | None = None
        self._rows_before = np.empty((0, y0.size))
        self.advance(t0, 0)

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return float(self._scalars[0])

    @property
    def start(self) -> float:
        """Start of the last accepted step, dimensionless."""
        return float(self._scalars[1])

    @property
    def event_times(self) -> NDArray[np.float64]:
        """Time at which each event was passed; not-a-number until then; the start if passed there."""
        return np.array(self._events[0])

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        if max_steps == 1:
            self._keep()
        status = self._advance(target, max_steps)
        self._before = None
        return status

    def _keep(self) -> None:
        """Copy what a step changes: the run asks for single steps where they take long, and may give them up."""
        if self._rows_before.size == 0:
            self._rows_before = np.empty((len(self._layout.carried), self._vectors.shape[1]))
        for place, row in enumerate(self._layout.carried):
            self._rows_before[place] = self._vectors[row]
        self._before = self._copies()

    def _advance(self, target: float, max_steps: int) -> Status:
        last = self._tried() + max_steps
        while True:
            status = self._namespace.advance(
                float(target),
                last - self._tried(),
                self._vectors,
                self._scalars,
                self._counters,
                self._atol,
                self._events,
                self._system,
            )
            if status != EVENT_PASSED:
                return Status(status)
            times, now, before = self._events
            record_crossings(times, before, now, (self.start, self.time), self._event_values)

    def _tried(self) -> int:
        return int(self._counters[2] + self._counters[3])

    def _event_values(self, t: float) -> NDArray[np.float64]:
        values = np.empty(self._events.shape[1])
        self._namespace.evaluate(EVENT_VALUES, t, self.interpolate(t), values, self._system)
        return values

    def interpolate(self, t: float, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return the state at a time within the last step, both ends included.

        Parameters
        ----------
        t : float
            Time within the last step, dimensionless.
        out : array of shape (n,), optional
            Array to write to.

        Returns
        -------
        array of shape (n,)
            State on the polynomial of the step.

        Raises
        ------
        ValueError
            If `t` is outside the last step.
        """
        if not self._scalars[1] <= t <= self._scalars[0]:
            msg = f"Argument `t` must be within the last step [{self._scalars[1]}, {self._scalars[0]}], but is {t}."
            raise ValueError(msg)
        out = np.empty(self._vectors.shape[1]) if out is None else out
        # Both ends are returned exactly, and without the evaluations that a dense output may need.
        if t in (self._scalars[0], self._scalars[1]):
            out[:] = self._vectors[0 if t == self._scalars[0] else 1]
        else:
            self._interpolate_inside(float(t), out)
        return out

    def _interpolate_inside(self, t: float, out: NDArray[np.float64]) -> None:
        self._namespace.interpolate(t, out, self._vectors, self._scalars, self._counters, self._system)

    def derivative(self, t: float) -> NDArray[np.float64]:
        """Return y' at a time within the last step, shape (n,)."""
        out = np.empty(self._vectors.shape[1])
        self._namespace.evaluate(RHS, t, self.interpolate(t), out, self._system)
        return out

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations."""
        return {name: int(self._counters[slot]) for name, slot in self._layout.statistics.items()}

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit; before a step, while it is taken."""
        before, rows = self._before, self._layout.kept
        vectors = self._vectors[list(rows)]
        if before is None:
            return {"vectors": vectors, **self._copies()}
        vectors[[rows.index(row) for row in self._layout.carried]] = self._rows_before
        return {"vectors": vectors, **before}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned.

        Parameters
        ----------
        state : mapping
            Arrays of a stepper of the same method and system.

        Raises
        ------
        ValueError
            If an array is missing or has another shape.
        """
        rows = list(self._layout.kept)
        if "vectors" in state and np.shape(state["vectors"]) == self._vectors.shape:  # of an earlier version
            state = {**state, "vectors": state["vectors"][rows]}
        wanted = {"vectors": (len(rows), self._vectors.shape[1])} | {
            name: array.shape for name, array in self._small_arrays().items()
        }
        for name, shape in wanted.items():
            given = np.shape(state[name]) if name in state else None
            if given != shape:
                msg = f"Argument `state` must hold `{name}` of shape {shape}, but has {given}."
                raise ValueError(msg)
        self._vectors[rows] = state["vectors"]
        for name, array in self._small_arrays().items():
            array[...] = state[name]

    def _small_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return all arrays of the state but the vectors."""
        return {"scalars": self._scalars, "counters": self._counters, "events": self._events}

    def _copies(self) -> dict[str, NDArray[np.generic]]:
        return {name: array.copy() for name, array in self._small_arrays().items()}
