"""A run whose file is kept up to date, with the looser run beside it if there is one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dynamics.runs.checkpoint import packed, unpacked
from dynamics.runs.loop import run, snapshot_of
from dynamics.runs.result import StopReason
from dynamics.threads.stopping import LOOK, in_worker, is_interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.integrators import Stepper
    from dynamics.runs.companion import Companion
    from dynamics.runs.dataset import Contents
    from dynamics.runs.loop import Observer
    from dynamics.runs.result import RunResult, Snapshot
    from dynamics.runs.run_file import RunFile
    from dynamics.runs.soundness import Soundness
    from dynamics.runs.trackers import Tracker
    from hermite.arrays import Array

    LabelledResult = Callable[[RunResult, RunResult | None], Contents]

#: Parts of a checkpoint: the records of the first are in the dataset, the second keeps its own.
RUN, COMPANION = "run", "companion"


def begun_snapshot(file: RunFile, part: str) -> Snapshot | None:
    """Return what a part of the run is continued from, None if it begins."""
    arrays = file.part(part)
    held = file.begun.dataset if file.begun is not None and part == RUN else None
    return None if arrays is None else unpacked(arrays, held)


def kept_run(
    stepper: Stepper,
    times: NDArray[Any],
    observe: Observer,
    labelled: LabelledResult,
    *,
    file: RunFile,
    trackers: Sequence[Tracker] = (),
    companion: Companion | None = None,
    sound: Soundness | None = None,
    why_failed: Callable[[Array], StopReason | None] = lambda _state: None,
) -> tuple[RunResult, Contents]:
    """Run as `run` does, from where `file` stands, and keep the file up to date.

    The run is followed in a second thread for which the main thread waits: see `in_worker`.

    `labelled` gives what a dataset holds of the result and of that of the companion, if there is one; the companion
    runs already, and is ended here.
    """

    def now(own: Snapshot) -> tuple[Contents, Mapping[str, xr.Dataset]]:
        beside = None if companion is None else companion.snapshot()
        contents = labelled(own.result, None if beside is None else beside.result)
        parts = {RUN: packed(own, records=False), COMPANION: None if beside is None else packed(beside)}
        return contents, {name: part for name, part in parts.items() if part is not None and own.state is not None}

    def stored(own: Snapshot) -> tuple[xr.Dataset, Mapping[str, xr.Dataset]]:
        contents, parts = now(own)
        return contents.dataset(), parts

    def followed() -> tuple[RunResult, Contents]:
        result = run(
            stepper,
            times,
            observe,
            trackers=[*trackers, *file.trackers(stored)],
            begun=begun_snapshot(file, RUN),
            sound=sound,
            why_failed=why_failed,
            # Both give their steps up at the same time.
            stopping=(lambda: None) if companion is None else companion.stop,
        )
        looser = None
        if companion is not None:
            while result.stop_reason is StopReason.REACHED_END and not companion.ended(LOOK):
                if is_interrupted():
                    result = replace(result, stop_reason=StopReason.INTERRUPTED)
            looser = companion.finish(result)
        resumable = result.stop_reason.resumable
        if file.has_path and resumable and result.intact:
            contents, parts = now(snapshot_of(stepper, result))
        else:
            contents, parts = labelled(result, looser), {}
        if file.has_path:
            file.close(contents.dataset(), parts, resumable=resumable)
        return result, contents

    return in_worker(followed)
