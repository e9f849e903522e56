"""Snapshots of a run: the tracker that has them written, and how one becomes a dataset and is read back."""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.checks import checked_number
from dynamics.runs.records import Records
from dynamics.runs.result import RunResult, Snapshot
from dynamics.runs.trackers import Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import xarray as xr

    from dynamics.runs.result import StopReason
    from dynamics.runs.trackers import RunView

DEFAULT_SECONDS = 30.0
#: Writing takes at most about this part of the time.
LARGEST_SHARE = 0.1
#: What the names of arrays begin with: those of the stepper, and records that are nowhere else.
STATE, RECORD = "state_", "record_"


class Rhythm:
    """When it is time to write again: every so many seconds, more rarely where writing takes long."""

    def __init__(self, every: float) -> None:
        self._every = checked_number(every, "every", positive=True)
        self._next = clock.monotonic() + self._every

    def beat(self, write: Callable[[], None]) -> None:
        """Call `write` if it is time."""
        began = clock.monotonic()
        if began >= self._next:
            write()
            ended = clock.monotonic()
            self._next = ended + max(self._every, (ended - began) / LARGEST_SHARE)


class Checkpoint(Tracker):
    """A tracker that hands a snapshot of the run to `write` in the given rhythm."""

    patient = True

    def __init__(self, write: Callable[[Snapshot], None], every: float = DEFAULT_SECONDS) -> None:
        self._write = write
        self._every = every

    def start(self, view: RunView) -> None:  # noqa: ARG002
        """Start the clock."""
        self._rhythm = Rhythm(self._every)

    def check(self, view: RunView) -> StopReason | None:
        """Write when it is time."""
        self._rhythm.beat(lambda: self._write(view.snapshot()))
        return None


def labelled_arrays(arrays: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[list[str], Any]]:
    """Return arrays as variables of a dataset, each with dims of its own."""
    return {
        f"{prefix}{name}": ([f"{prefix}{name}_{axis}" for axis in range(np.ndim(array))], np.asarray(array))
        for name, array in arrays.items()
    }


def packed(snapshot: Snapshot, *, records: bool = True) -> xr.Dataset | None:
    """Return a snapshot as a dataset, its records left out where another holds them; None if it cannot go on."""
    import xarray as xr

    if snapshot.state is None:
        return None
    result = snapshot.result
    count, columns = len(result.records), result.records.columns
    variables = labelled_arrays(snapshot.state, STATE)
    if records:
        variables |= labelled_arrays({name: column[:count] for name, column in columns.items()}, RECORD)
    costs = {"solve_seconds": result.solve_seconds, "tracker_seconds": result.tracker_seconds}
    return xr.Dataset(variables, attrs={"records": count, "observables": " ".join(columns), **costs})


def unpacked(dataset: xr.Dataset, held: xr.Dataset | None = None) -> Snapshot:
    """Return the snapshot that `packed` made a dataset of; KeyError or ValueError is raised for any other dataset."""
    names = dataset.attrs["observables"].split()
    count = int(dataset.attrs["records"])
    columns = {name: (dataset[f"{RECORD}{name}"] if held is None else held[name]).to_numpy()[:count] for name in names}
    state = {
        str(name).removeprefix(STATE): array.to_numpy()
        for name, array in dataset.data_vars.items()
        if str(name).startswith(STATE)
    }
    result = RunResult(
        records=Records.of(columns, count),
        solve_seconds=float(dataset.attrs["solve_seconds"]),
        tracker_seconds=float(dataset.attrs["tracker_seconds"]),
    )
    return Snapshot(result, state)
