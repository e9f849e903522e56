"""Runs of SGD as the loop of `dynamics.runs.loop` takes them: from look to look, and from and to their file."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dynamics.runs import StopReason, labelled_arrays, uninterrupted
from dynamics.runs.trackers import MaxRuntime, Run, StepProgress
from dynamics.threads import in_worker
from sgd_check.engines import ResumableEngine, SpanEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.runs import Begun, RunFile
    from dynamics.runs.trackers import Tracker
    from sgd_check.engines.registry import Stepper
    from sgd_check.runs.plan import Plan

#: Parts of a checkpoint.
ENGINE, RECORDER = "engine", "recorder"
#: Why runs end that have all blown up.
BLOWN_UP = "blown_up"


class Recorder(Protocol):
    """What records the runs at the steps of the plan at which they are looked at."""

    blown_up: NDArray[np.bool_]

    def observe(self, step: int, engine: Any) -> NDArray[np.bool_]:
        """Measure the runs; return which of them have just blown up."""

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return all that it goes on from, except the records."""

    def restore(self, state: Mapping[str, NDArray[np.generic]], records: Mapping[str, Any]) -> None:
        """Go on from what `state` returned and from the records of a dataset."""


@dataclass(frozen=True)
class Reached:
    """How far runs are: the step of the last look, the steps that were taken, and the seconds that this cost."""

    look: int = -1
    step: int = 0
    seconds: float = 0.0


class _SgdRun(Run):
    """Runs of SGD side by side: an engine, and a recorder that looks at it. How they are cut changes no bit."""

    def __init__(self, engine: Stepper, plan: Plan, recorder: Recorder, reached: Reached) -> None:
        super().__init__()
        self.end = plan.steps
        self._engine, self._plan, self._recorder, self._reached = engine, plan, recorder, reached
        self._looks = plan.observed[plan.observed > reached.look].tolist()[::-1]
        self._began = clock.perf_counter() - reached.seconds

    @property
    def time(self) -> float:
        return self._reached.step

    @property
    def over(self) -> bool:
        return not self._looks

    @property
    def at_record(self) -> bool:
        return not self.over and self._reached.step >= self._looks[-1]

    def take(self) -> StopReason | None:
        first, last, engine, began = self._reached.step, self._looks[-1], self._engine, clock.perf_counter()
        if isinstance(engine, SpanEngine):
            rates = self._plan.span(first, last)
            if not engine.advance_span(last - first, rates, lambda: self.asked_to_stop() is not None):
                return self.urgent
        else:
            last = min(first + self.steps, last)
            engine.advance(self._plan.rates(first, last))
            self.adapt(clock.perf_counter() - began, full=last - first == self.steps)
        self._reached = replace(self._reached, step=last)
        return None

    def record(self) -> str | None:
        look = self._looks.pop()
        self.intact = False
        self._engine.freeze(self._recorder.observe(look, self._engine))
        self.intact = True
        self._reached = replace(self._reached, look=look)
        return BLOWN_UP if self._recorder.blown_up.all() else None

    def snapshot(self) -> Reached:
        return replace(self._reached, seconds=clock.perf_counter() - self._began)


def run_with_file(
    engine: Stepper,
    plan: Plan,
    recorder: Recorder,
    file: RunFile,
    labelled: Callable[[Reached, str], xr.Dataset],
    *,
    budget: float,
    progress: bool | None,
    resumable: bool = True,
) -> xr.Dataset:
    """Take the steps, from where the file says if it does, and return the dataset, which the file then holds.

    They are taken in a second thread, see `in_worker`; SolveInterrupted is raised if the caller was interrupted.
    `labelled` makes a dataset of the records so far, and of why the runs end. Runs that are not `resumable` leave no
    checkpoint.
    """
    run = _SgdRun(engine, plan, recorder, Reached() if file.begun is None else restored(engine, recorder, file.begun))

    def parts(reached: Reached) -> dict[str, xr.Dataset]:
        return parts_of(engine, recorder, reached) if resumable and run.intact else {}

    def followed() -> xr.Dataset:
        trackers: list[Tracker] = [] if progress is False else [StepProgress(force=bool(progress))]
        trackers += [] if np.isinf(budget) else [MaxRuntime(budget)]
        if isinstance(engine, ResumableEngine):
            trackers += file.trackers(lambda reached: (labelled(reached, StopReason.UNFINISHED), parts(reached)))
        with engine.running():
            reason = run.follow(trackers)
        if run.over and reason == StopReason.MAX_RUNTIME:
            reason = StopReason.REACHED_END
        reached, goes_on = run.snapshot(), reason in (StopReason.INTERRUPTED, StopReason.MAX_RUNTIME)
        dataset = labelled(reached, str(reason))
        file.close(dataset, parts(reached) if goes_on and file.has_path else {}, resumable=goes_on)
        return dataset

    return uninterrupted(in_worker(followed))


def parts_of(engine: object, recorder: Recorder, reached: Reached) -> dict[str, xr.Dataset]:
    """Return the parts of a checkpoint of runs between two steps; none for an engine that cannot be resumed."""
    import xarray as xr

    if not isinstance(engine, ResumableEngine):
        return {}
    try:
        state = engine.state()
    except NotImplementedError:
        return {}
    where = {"look": reached.look, "step": reached.step, "seconds": reached.seconds}
    return {
        ENGINE: xr.Dataset(labelled_arrays(state), attrs=where),
        RECORDER: xr.Dataset(labelled_arrays(recorder.state())),
    }


def restored(engine: Stepper, recorder: Recorder, begun: Begun) -> Reached:
    """Put engine and recorder where a checkpoint says; return how far that is, or refuse one of other runs."""
    parts = begun.parts
    try:
        if not isinstance(engine, ResumableEngine):
            raise TypeError
        with engine.running():
            engine.restore(_arrays(parts[ENGINE]))
        recorder.restore(_arrays(parts[RECORDER]), _arrays(begun.dataset))
        where = parts[ENGINE].attrs
        return Reached(int(where["look"]), int(where["step"]), float(where["seconds"]))
    except (KeyError, TypeError, ValueError) as error:
        msg = f"Argument `checkpoint` must be of the same runs, but is not ({error})."
        raise ValueError(msg) from error


def _arrays(dataset: xr.Dataset) -> dict[str, NDArray[Any]]:
    return {str(name): array.to_numpy() for name, array in dataset.data_vars.items()}
