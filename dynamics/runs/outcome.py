"""What becomes of a run: records stacked along time, its attributes, and the exception if it failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.runs.result import StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import xarray as xr

    from dynamics.runs.records import Records
    from dynamics.runs.result import RunResult
    from hermite.arrays import Array


class SolveError(RuntimeError):
    """A solve that failed; what was computed before is in `dataset`."""

    def __init__(self, message: str, dataset: xr.Dataset) -> None:
        super().__init__(message)
        self.dataset = dataset


class SolveInterrupted(KeyboardInterrupt):
    """A solve, a simulation, a check or a study that was interrupted; what was computed before is in `dataset`.

    That is a Dataset, of a check a DataTree.
    """

    def __init__(self, message: str, dataset: Any) -> None:
        super().__init__(message)
        self.dataset = dataset


def uninterrupted(answer: xr.Dataset) -> xr.Dataset:
    """Return an answer; raise SolveInterrupted with it if its run was interrupted."""
    if answer.attrs.get("stop_reason") == StopReason.INTERRUPTED:
        msg = "The run was interrupted; what was computed is the attribute `dataset` of this exception."
        raise SolveInterrupted(msg, answer)
    return answer


def also_interrupted(call: Callable[[], xr.Dataset]) -> xr.Dataset:
    """Return what a call returns or, if it is interrupted, what SolveInterrupted says that it kept."""
    try:
        return call()
    except SolveInterrupted as stop:
        kept: xr.Dataset = stop.dataset
        return kept


def stack_records(records: Records, count: int, template: Callable[[], Mapping[str, Any]]) -> dict[str, Array]:
    """Return the records of a run along time, in front of the dims of each observable.

    `template` gives one record, such as that of the initial state. Times that were not reached hold NaN, so that the
    shape depends on the schedule alone; if none was, the arrays are read-only and take no memory.
    """
    if len(records) > 0:
        return dict(records.columns)
    return {name: np.broadcast_to(np.nan, (count, *np.shape(value))) for name, value in template().items()}


def run_attributes(result: RunResult) -> dict[str, Any]:
    """Return how the run ended and what it cost."""
    return {
        "stop_reason": str(result.stop_reason),
        "stop_message": result.stop_reason.advice,
        "end_time": result.end_time,
        "solve_seconds": result.solve_seconds,
        "tracker_seconds": result.tracker_seconds,
        **result.statistics,
    }


def checked_outcome(dataset: xr.Dataset, reason: StopReason, on_failure: str) -> xr.Dataset:
    """Return the dataset of a run; with `on_failure` "raise", a failure or an interruption raises with it inside."""
    if on_failure == "raise" and (reason.failed or reason is StopReason.INTERRUPTED):
        end = dataset.attrs["end_time"]
        msg = f"The {dataset.attrs['answer']} solve stopped at t = {end:.6g} ({reason}). {reason.advice}"
        raise (SolveError if reason.failed else SolveInterrupted)(msg, dataset)
    return dataset


def joined(notes: Iterable[str]) -> str:
    """Return notes as one attribute."""
    return "; ".join(notes)
