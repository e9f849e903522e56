"""The loop over the steps of a simulation: from look to look, with the clock, Ctrl-C and the file served in between."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dynamics.runs import Rhythm, bar_settings, labelled_arrays, open_bar, uninterrupted
from dynamics.threads.stopping import in_worker, interruption
from sgd_check.engines import ResumableEngine, SpanEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    import numpy as np
    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.runs import Begun, RunFile
    from hermite.arrays import Array
    from sgd_check.runs.plan import Plan

# The clock, the progress bar and interruptions are served after so many steps at first, since steps may be long, and
# then about this often, in seconds; how a run is cut changes no bit of it.
TICK_STEPS = 1
TICK_SECONDS = 0.1
#: Parts of a checkpoint.
ENGINE, RECORDER = "engine", "recorder"


class Stepper(Protocol):
    """What the loop asks of runs, those of every engine and of models on tokens."""

    def running(self) -> AbstractContextManager[None]:
        """Return the context in which steps are taken."""

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate."""

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN for good."""


class Looker(Protocol):
    """What records the runs: at the steps of the plan it looks at them."""

    blown_up: NDArray[np.bool_]

    def look(self, step: int, engine: Any) -> NDArray[np.bool_]:
        """Measure the runs; return which of them have just blown up."""

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return what it goes on from, beside the records."""

    def restore(self, state: Mapping[str, NDArray[np.generic]], records: Mapping[str, Any]) -> None:
        """Go on from what `state` returned and from the records of a dataset."""


@dataclass
class Reached:
    """How far the runs are: the step of the last look, the steps that were taken, and the seconds that this cost.

    `intact` says whether the engine stands between two steps, so that it can be kept.
    """

    look: int = -1
    step: int = 0
    seconds: float = 0.0
    intact: bool = True


@dataclass
class StepLoop:
    """Takes the steps of a simulation from look to look; between them clock, bar, Ctrl-C and file are served.

    `now` says how far engine and recorder are, and moves; `budget` is seconds of wall-clock time. A bar is shown if
    `progress`; None: as of `bar_settings`. `keep` writes down in the rhythm given how far the runs are, for an engine
    that can be resumed.
    """

    engine: Stepper
    plan: Plan
    recorder: Looker
    now: Reached
    budget: float
    progress: bool | None
    rhythm: Rhythm
    keep: Callable[[Reached], None] | None
    #: Whether looks are so close that runs are kept after them, too, rather than between them alone.
    after_looks: bool = False
    tick: int = field(default_factory=lambda: TICK_STEPS)

    def __post_init__(self) -> None:
        self._is_interrupted = interruption()
        self._bar = open_bar(bar_settings(self.progress), total=self.plan.steps, initial=self.now.step, unit="step")
        self._started = clock.perf_counter() - self.now.seconds
        self._deadline = self._started + self.now.seconds + self.budget

    def run(self) -> str:
        """Take the steps until the end, the budget, an interruption, or until every run blew up; return why."""
        engine, recorder, now, reason = self.engine, self.recorder, self.now, "reached_end"
        with engine.running(), self._bar:
            for look in self.plan.looked_at[self.plan.looked_at > now.look].tolist():
                if not self._advance(look):
                    reason = "interrupted" if self._is_interrupted() else "max_runtime"
                    break
                now.look, now.intact = look, False
                engine.freeze(recorder.look(look, engine))
                now.intact = True
                if self.after_looks:
                    self._beat()
                if recorder.blown_up.all():
                    reason = "blown_up"
                    break
        now.seconds = clock.perf_counter() - self._started
        return reason

    def _advance(self, look: int) -> bool:
        """Advance to a look; return whether it was reached before the deadline and any interruption."""
        now = self.now
        while now.step < look and not self._given_up():
            now.intact = False
            ahead = self._piece(look)
            if ahead is None:
                return False
            self._bar.update(ahead - now.step)
            now.step, now.seconds, now.intact = ahead, clock.perf_counter() - self._started, True
            if now.step < look:
                self._beat()
        return now.step >= look

    def _given_up(self) -> bool:
        return self._is_interrupted() or clock.perf_counter() > self._deadline

    def _beat(self) -> None:
        """Keep how far the runs are, if it is time for that."""
        now, keep = self.now, self.keep
        if keep is not None and isinstance(self.engine, ResumableEngine):
            now.seconds = clock.perf_counter() - self._started
            self.rhythm.beat(lambda: keep(now))

    def _piece(self, look: int) -> int | None:
        """Take steps towards a look and return the step reached; None if a span was given up."""
        first, engine, began = self.now.step, self.engine, clock.perf_counter()
        if isinstance(engine, SpanEngine):
            done = engine.advance_span(look - first, self.plan.span(first, look), self._given_up)
            return look if done else None
        ahead = min(first + self.tick, look)
        engine.advance(self.plan.rates(first, ahead))
        if ahead - first == self.tick and clock.perf_counter() - began < 0.5 * TICK_SECONDS:
            self.tick *= 2
        return ahead


def run_with_file(
    engine: Stepper,
    plan: Plan,
    recorder: Looker,
    file: RunFile,
    labelled: Callable[[Reached, str], xr.Dataset],
    *,
    budget: float,
    progress: bool | None,
    resumable: bool = True,
    after_looks: bool = False,
) -> xr.Dataset:
    """Take the steps, from where the file says if it does, and return the dataset, which the file then holds.

    SolveInterrupted is raised with it if the caller was interrupted. The steps are taken in a second thread, for which
    the main thread waits: see `in_worker`. `labelled` makes a dataset of what was recorded until now, and of why it
    ended. Runs that are not `resumable` leave
    no checkpoint; `after_looks` is that of `StepLoop`.
    """
    reached = Reached() if file.begun is None else restored(engine, recorder, file.begun)

    def parts() -> dict[str, xr.Dataset]:
        return parts_of(engine, recorder, reached) if resumable else {}

    def keep(reached: Reached) -> None:
        file.keep(labelled(reached, "unfinished"), parts())

    written = keep if file.has_path else None
    rhythm = Rhythm(file.every)

    def followed() -> xr.Dataset:
        reason = StepLoop(engine, plan, recorder, reached, budget, progress, rhythm, written, after_looks).run()
        dataset = labelled(reached, reason)
        goes_on = reason in ("interrupted", "max_runtime")
        file.close(dataset, parts() if goes_on and file.has_path else {}, resumable=goes_on)
        return dataset

    return uninterrupted(in_worker(followed))


def parts_of(engine: object, recorder: Looker, now: Reached) -> dict[str, xr.Dataset]:
    """Return the parts of a checkpoint; none for an engine that cannot be resumed, or torn out of a step."""
    import xarray as xr

    if not isinstance(engine, ResumableEngine) or not now.intact:
        return {}
    try:
        state = engine.state()
    except NotImplementedError:
        return {}
    where = {"look": now.look, "step": now.step, "seconds": now.seconds}
    return {
        ENGINE: xr.Dataset(labelled_arrays(state), attrs=where),
        RECORDER: xr.Dataset(labelled_arrays(recorder.state())),
    }


def restored(engine: Stepper, recorder: Looker, begun: Begun) -> Reached:
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
