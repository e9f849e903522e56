"""The result of a run: records along time, the reason of its end, its cost, snapshots, and exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from hermite.arrays import Array

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr


class StopReason(StrEnum):
    """Why a run ended; every member carries one sentence of advice.

    Examples
    --------
    >>> reason = StopReason("max_runtime")
    >>> reason.resumable, reason.failed
    (True, False)
    >>> reason.advice
    'The wall-clock budget ran out; raise `max_runtime` or save fewer, earlier times.'
    """

    #: One sentence on what happened and what to try.
    advice: str

    def __new__(cls, value: str, advice: str = "") -> Self:
        """Return the member of a value, with its advice."""
        member = str.__new__(cls, value)
        member._value_, member.advice = value, advice
        return member

    REACHED_END = "reached_end", "Every requested time was reached."
    STEADY_STATE = "steady_state", "The state stopped moving before the last requested time."
    MAX_RUNTIME = "max_runtime", "The wall-clock budget ran out; raise `max_runtime` or save fewer, earlier times."
    CALLBACK = "callback", "A callback asked to stop."
    INTERRUPTED = "interrupted", "The run was interrupted; times up to the interruption were kept."
    STEP_TOO_SMALL = (
        "step_too_small",
        "The step size fell to rounding: the tolerance may be below what float64 can give (raise `rtol`), or the "
        "solution may blow up.",
    )
    NOT_FINITE = (
        "not_finite", "The state stopped being finite: the start may be too large, or the solution blows up.",
    )  # fmt: skip
    OVERLAP_ABOVE_ONE = (
        "overlap_above_one", "An overlap of unit vectors left [-1, 1]: the errors have grown too large; lower `rtol`.",
    )  # fmt: skip
    NORM_NOT_POSITIVE = (
        "norm_not_positive",
        "A squared norm is no longer positive: a neuron has shrunk below the smallest number; save earlier times.",
    )
    NOT_REALISABLE = (
        "not_realisable",
        "No vectors have the computed overlaps any more: the errors have grown too large; lower `rtol`.",
    )
    LOSS_ROSE = "loss_rose", "The loss rose, which a gradient flow excludes: the errors are too large; lower `rtol`."
    SERIES_TOO_SHORT = (
        "series_too_short",
        "A neuron has a length or a bias at which the series of its link is not accurate: start with smaller ones, "
        "save earlier times, or take a link with closed means, such as 'erf', 'relu' or a polynomial.",
    )
    TOO_NOISY = (
        "too_noisy", "The scatter of drawn points became too large: ask for more `draws`, or a smaller learning rate.",
    )  # fmt: skip
    UNFINISHED = "unfinished", "The run had not ended when this was written; times until then were kept."

    @property
    def failed(self) -> bool:
        """Whether the run ended because its numerics failed."""
        return not self.resumable and self not in {StopReason.REACHED_END, StopReason.STEADY_STATE}

    @property
    def resumable(self) -> bool:
        """Whether the run was ended from outside, or has not ended, and could go on."""
        return self in {StopReason.MAX_RUNTIME, StopReason.CALLBACK, StopReason.INTERRUPTED, StopReason.UNFINISHED}


@dataclass
class RunResult:
    """The result of a run: one record per saved time that was reached, the reason of its end, and its cost."""

    records: Records = field(default_factory=lambda: Records(0))
    stop_reason: StopReason = StopReason.UNFINISHED
    end_time: float = 0.0
    event_times: Array = field(default_factory=lambda: np.empty(0))
    solve_seconds: float = 0.0
    tracker_seconds: float = 0.0
    statistics: dict[str, int] = field(default_factory=dict)
    #: Whether the stepper stands at the end of a step, so that it can go on.
    intact: bool = True


@dataclass(frozen=True)
class Snapshot:
    """A run between two steps: its result, and the arrays from which its stepper goes on, None if it cannot."""

    result: RunResult
    state: Mapping[str, NDArray[np.generic]] | None


class Records:
    """Records along time, in front of the dims of each observable; NaN where no time was reached.

    Arrays for `capacity` saved times are made at the first record. `begun` holds the first of the records.
    """

    def __init__(self, capacity: int, begun: Records | None = None) -> None:
        self._capacity = capacity
        #: Observables by name, each of shape (capacity, …); empty before the first record.
        self.columns: dict[str, Array] = {}
        self._count = 0
        if begun is not None:
            self.extend({name: column[: len(begun)] for name, column in begun.columns.items()}, len(begun))

    @classmethod
    def of(cls, columns: Mapping[str, Array], count: int) -> Records:
        """Return the first `count` records of arrays that hold them already."""
        records = cls(count)
        records.columns, records._count = dict(columns), count
        return records

    def append(self, record: Mapping[str, object]) -> None:
        """Add a record; an observable that earlier records lack, since an older file lacks it, is NaN in these."""
        self.extend({name: np.asarray(value)[None] for name, value in record.items()}, 1)

    def extend(self, records: Mapping[str, Array], count: int) -> None:
        """Add `count` records of the same observables, each an array with its records along the first axis."""
        for name, values in records.items():
            if name not in self.columns:
                self.columns[name] = np.full((self._capacity, *values.shape[1:]), np.nan)
            self.columns[name][self._count : self._count + count] = values
        self._count += count

    def drop_after(self, count: int) -> None:
        """Keep the first `count` records and drop the others."""
        for column in self.columns.values():
            column[count : self._count] = np.nan
        self._count = count

    def __len__(self) -> int:
        return self._count


class SolveError(RuntimeError):
    """A solve that failed; `dataset` holds the answer up to the failure."""

    def __init__(self, message: str, dataset: xr.Dataset) -> None:
        super().__init__(message)
        self.dataset = dataset


class SolveInterrupted(KeyboardInterrupt):
    """A call that was interrupted, as `message` says; `dataset` holds the answer up to then, of a check a DataTree.

    Examples
    --------
    >>> from dynamics import Callback, Problem, Teacher, solve_overlaps
    >>> def press_ctrl_c(time, state):
    ...     raise KeyboardInterrupt
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16)
    >>> try:
    ...     solve_overlaps(problem, trackers=[Callback(press_ctrl_c)], progress=False)
    ... except SolveInterrupted as error:
    ...     print(error.dataset.attrs["stop_reason"])
    interrupted
    """

    def __init__(self, message: str, dataset: Any) -> None:
        super().__init__(
            f"{message}; what was computed is the attribute `dataset` of this exception, at a prompt and in a notebook "
            "`sys.last_value.dataset`."
        )
        self.message, self.dataset = message, dataset

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.dataset)


def uninterrupted(answer: xr.Dataset) -> xr.Dataset:
    """Return an answer; raise SolveInterrupted with it if its run was interrupted."""
    if answer.attrs.get("stop_reason") == StopReason.INTERRUPTED:
        msg = "The run was interrupted"
        raise SolveInterrupted(msg, answer)
    return answer


def also_interrupted(call: Callable[[], xr.Dataset]) -> xr.Dataset:
    """Return the answer of a call or, if it is interrupted, the answer that SolveInterrupted holds."""
    try:
        return call()
    except SolveInterrupted as stop:
        answer: xr.Dataset = stop.dataset
        return answer


def stack_records(records: Records, count: int, template: Callable[[], Mapping[str, Any]]) -> dict[str, Array]:
    """Return the records of a run along time, in front of the dims of each observable.

    `template` gives one record, such as that of the initial state. Times that were not reached hold NaN, so that the
    shape depends on the schedule alone; if none was, the arrays are read-only and take no memory.
    """
    if len(records) > 0:
        return dict(records.columns)
    return {name: np.broadcast_to(np.nan, (count, *np.shape(value))) for name, value in template().items()}
