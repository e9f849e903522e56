"""The run loop: compiled steps up to the next saved time, in chunks between which the trackers may stop the run.

Compiled code ignores signals, so it runs in chunks of about a tenth of a second; between chunks Python shows progress,
and asks the trackers and whether the run was interrupted. A step that takes longer is taken in a second thread, which
is joined: what is urgent is then heard in the middle of the step, and the run ends with the state before it.
"""

from __future__ import annotations

import time as clock
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.equations.interface import takes_stacks
from dynamics.integrators import Status
from dynamics.integrators.stepper import leaping
from dynamics.runs.result import Records, RunResult, Snapshot, StopReason
from dynamics.runs.run_file import packed, unpacked
from dynamics.runs.trackers import Interrupts, UrgentTracker
from dynamics.threads.cores import one_of_the_runs
from dynamics.threads.stopping import LOOK, Stopped, beside, in_worker, is_interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.integrators import Stepper
    from dynamics.integrators.stepper import LeapingStepper
    from dynamics.runs.companion import Companion
    from dynamics.runs.dataset import Contents
    from dynamics.runs.run_file import RunFile
    from dynamics.runs.soundness import Soundness
    from dynamics.runs.trackers import Tracker
    from hermite.arrays import Array

    Observer = Callable[[Array], Mapping[str, Any]]

    LabelledResult = Callable[[RunResult, RunResult | None], Contents]


CHUNK_SECONDS = 0.1
#: Steps of the first chunk: one, which may be long, unless the state has few numbers; then so many numbers are stepped.
FIRST_CHUNK_STEPS, QUICK_NUMBERS, FIRST_QUICK_WORK = 1, 4000, 1 << 18
LARGEST_CHUNK_STEPS = 1 << 20
#: Numbers in the states at saved times that are observed together.
LARGEST_STACK = 1 << 15

_FAILURES = {Status.STEP_TOO_SMALL: StopReason.STEP_TOO_SMALL, Status.NOT_FINITE: StopReason.NOT_FINITE}


def snapshot_of(stepper: Stepper, result: RunResult) -> Snapshot:
    """Return the snapshot of a stepper at rest."""
    try:
        return Snapshot(result, stepper.state())
    except NotImplementedError:
        return Snapshot(result, None)


class _View:
    """What the trackers see of the run, with what it has recorded and cost."""

    def __init__(
        self, stepper: Stepper, times: Array, begun: RunResult, stopping: Callable[[], object] = lambda: None
    ) -> None:
        self._stepper = stepper
        self.end = float(times[-1])
        self._begun = begun
        self._state: Array | None = None
        self._started = clock.perf_counter()
        self.result = replace(begun, records=Records(times.size, begun.records))
        self._stopping = stopping
        #: The first reason that was found to stop without waiting for the end of a step.
        self.urgent: StopReason | None = None

    @property
    def time(self) -> float:
        return min(self._stepper.time, self.end)

    def state(self) -> Array:
        return self._stepper.interpolate(self.time)

    def state_at(self, time: float) -> Array:
        """Return a state within the last step, in memory that the next one takes: new pages cost more than a copy."""
        self._state = self._stepper.interpolate(time, self._state)
        return self._state

    def derivative(self) -> Array:
        return self._stepper.derivative(self.time)

    def statistics(self) -> dict[str, int]:
        return self._stepper.statistics()

    def stop_for(self, reason: StopReason) -> None:
        """Take note of a reason to stop, at once."""
        self.urgent = reason
        self._stopping()

    def snapshot(self) -> Snapshot:
        return snapshot_of(self._stepper, self.so_far(StopReason.UNFINISHED))

    def so_far(self, reason: StopReason) -> RunResult:
        events = self._stepper.event_times
        return replace(
            self.result,
            records=self.result.records.so_far(),
            stop_reason=reason,
            end_time=self.time,
            event_times=np.where(events <= self.end, events, np.nan),
            solve_seconds=self._begun.solve_seconds + clock.perf_counter() - self._started,
            statistics=self._stepper.statistics(),
        )


class _Pace:
    """Number of steps per chunk, adapted so that a chunk takes about `CHUNK_SECONDS`."""

    def __init__(self, quick_size: int) -> None:
        self.steps = min(FIRST_QUICK_WORK // quick_size, LARGEST_CHUNK_STEPS) if quick_size else FIRST_CHUNK_STEPS
        #: What the last record took.
        self.seconds_of_record = np.inf

    def adapt(self, seconds: float, *, full: bool) -> None:
        """Adapt to the seconds of a chunk, which had all the steps that were allowed if `full`."""
        if seconds < 0.5 * CHUNK_SECONDS and (full or self.steps == 1):
            self.steps = min(2 * self.steps, LARGEST_CHUNK_STEPS)
        elif seconds > 2.0 * CHUNK_SECONDS:
            self.steps = max(self.steps // 2, 1)


@one_of_the_runs()
def run(
    stepper: Stepper,
    times: Array,
    observe: Observer,
    *,
    trackers: Sequence[Tracker] = (),
    begun: Snapshot | None = None,
    sound: Callable[[Records], StopReason | None] | None = None,
    why_failed: Callable[[Array], StopReason | None] = lambda _state: None,
    stopping: Callable[[], object] = lambda: None,
) -> RunResult:
    """Take `stepper` from time 0 through increasing `times`, until the end or a reason to stop.

    At each time `observe` gives the named observables of the state, which are one record; steps are not held to the
    times. `begun` continues a run: its records are kept and its costs counted; ValueError is raised if it is not of
    this stepper. `sound` is called after each record and says why to stop, if the records are wrong; `why_failed` is
    called with the state at which no step succeeds, and says why, if it knows. `stopping` is called as soon as a reason
    is found to give a step up. A KeyboardInterrupt of a tracker becomes the stop reason "interrupted".
    """
    if begun is not None:
        _restore(stepper, begun)
    view = _View(stepper, times, RunResult() if begun is None else begun.result, stopping)
    records, watchers = view.result.records, [*trackers, Interrupts()]
    leaps = takes_stacks(observe) and all(getattr(tracker, "patient", False) for tracker in watchers)
    size = stepper.interpolate(stepper.time).size if leaps else 0
    pace = _Pace(size if leaps and leaping(stepper) is not None and size <= QUICK_NUMBERS else 0)
    reason: StopReason | None = None
    try:
        for tracker in trackers:
            tracker.start(view)
        # Evaluates the start, which may take long, and records the events there.
        view.result.intact = False
        _advance(stepper, stepper.time, view, pace, watchers)
        view.result.intact = True
        reason = view.urgent
        while len(records) < times.size and reason is None:
            leaper = leaping(stepper) if leaps and pace.steps > 1 else None
            if leaper is not None:
                reason = _leap(leaper, times, max(LARGEST_STACK // size, 1), view, pace, observe, watchers, sound)
                if reason in _FAILURES.values():
                    reason = why_failed(view.state()) or reason
                continue
            time = float(times[len(records)])
            # Urgent trackers are asked at every time: millions of times may lie within one step.
            reason = _reach(stepper, time, view, pace, watchers) or _urgent(view, watchers)
            if stepper.time >= time and reason not in _FAILURES.values():
                _record(time, view, pace, observe, watchers)
                # That a record is wrong says more than that somebody wanted an end.
                reason = (sound(records) if sound is not None else None) or reason
            elif reason in _FAILURES.values():
                reason = why_failed(view.state()) or reason
    except Stopped as stopped:
        reason = stopped.reason
    except KeyboardInterrupt:
        reason = StopReason.INTERRUPTED
    finally:
        for tracker in trackers:
            tracker.finish(view)
    return view.so_far(reason or StopReason.REACHED_END)


def _restore(stepper: Stepper, begun: Snapshot) -> None:
    try:
        stepper.restore(begun.state or {})
    except (KeyError, IndexError, TypeError, ValueError) as error:
        msg = f"Argument `begun` must be a snapshot of the same run, but is not ({error})."
        raise ValueError(msg) from error


def _urgent(view: _View, trackers: Sequence[Tracker]) -> StopReason | None:
    """Return a reason to stop that does not wait for the end of a step, or None; once found, it stays."""
    asked = (tracker.urgent(view) for tracker in trackers if isinstance(tracker, UrgentTracker))
    if view.urgent is None and (found := next((reason for reason in asked if reason is not None), None)) is not None:
        view.stop_for(found)
    return view.urgent


def _reach(stepper: Stepper, time: float, view: _View, pace: _Pace, trackers: Sequence[Tracker]) -> StopReason | None:
    """Advance until `stepper.time` ≥ `time`, chunk by chunk; return a reason to stop, or None."""
    while stepper.time < time:
        began = clock.perf_counter()
        view.result.intact = False
        status = _advance(stepper, time, view, pace, trackers)
        pace.adapt(clock.perf_counter() - began, full=status == Status.MAX_STEPS)
        if status in _FAILURES:
            return _FAILURES[status]
        if (reason := _checked(view, trackers)) is not None:
            return reason
    return None


def _checked(view: _View, trackers: Sequence[Tracker]) -> StopReason | None:
    """Show the trackers a state between two chunks; return a reason to stop, or None."""
    began = clock.perf_counter()
    view.result.intact = True
    if view.urgent is not None:
        return view.urgent
    for tracker in trackers:
        reason = tracker.check(view)
        if reason is not None:
            return reason
    view.result.tracker_seconds += clock.perf_counter() - began
    return None


def _leap(
    stepper: LeapingStepper,
    times: Array,
    most: int,
    view: _View,
    pace: _Pace,
    observe: Observer,
    trackers: Sequence[Tracker],
    sound: Callable[..., StopReason | None] | None,
) -> StopReason | None:
    """Take a chunk of steps through at most `most` saved times and record these; return a reason to stop, or None."""
    began, records = clock.perf_counter(), view.result.records
    first = len(records)
    view.result.intact = False
    status, states = stepper.advance_through(times[first : first + most], pace.steps)
    records.extend(observe(states))
    pace.adapt(clock.perf_counter() - began, full=status == Status.MAX_STEPS)
    # That a record is wrong says more than that somebody wanted an end, or that no step succeeded after it.
    if sound is not None and len(records) > first and (reason := sound(records, first)):
        return reason
    if status in _FAILURES:
        return _FAILURES[status]
    return _checked(view, trackers)


def _advance(stepper: Stepper, time: float, view: _View, pace: _Pace, trackers: Sequence[Tracker]) -> Status:
    """Take a chunk of steps; a step that may be long runs in a second thread, where it can be given up."""
    if pace.steps > 1:
        return stepper.advance(time, pace.steps)
    try:
        return beside(lambda: stepper.advance(time, 1), lambda: _urgent(view, trackers))
    except Stopped:
        view.result.intact = True
        raise


def _record(time: float, view: _View, pace: _Pace, observe: Observer, trackers: Sequence[Tracker]) -> None:
    """Observe the state at a time, in a second thread if that may take long."""

    def record() -> None:
        view.result.records.append(observe(view.state_at(time)))

    began = clock.perf_counter()
    if pace.seconds_of_record < 0.5 * CHUNK_SECONDS:
        record()
    else:
        beside(record, lambda: _urgent(view, trackers))
    pace.seconds_of_record = clock.perf_counter() - began


#: Steps in one call, between which Ctrl-C is heard.
MOST_STEPS = 1 << 11


class Leap:
    """A stepper at time 0 that is to go through increasing times, and the states that it has there.

    What ends otherwise than at the last of the times has no result here: `dynamics.runs.loop` tells what came of it.
    """

    def __init__(self, stepper: Stepper, times: Array) -> None:
        self.stepper = stepper
        self.times = times
        #: States at all times, (T, N); fewer where the run ended before, or the stepper could not go on so.
        self.states: Array = np.empty((0, 0))
        self.seconds = 0.0

    def follow(self) -> None:
        """Take the steps, as long as they succeed and the stepper leaps."""
        began, times, parts = clock.perf_counter(), self.times, []
        while times.size > 0 and (leaper := leaping(self.stepper)) is not None:
            status, states = leaper.advance_through(times, MOST_STEPS)
            parts.append(states)
            times = times[len(states) :]
            if status not in (Status.REACHED, Status.MAX_STEPS):
                break
        self.states = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self.seconds = clock.perf_counter() - began

    def result(self, records: Records, seconds: float) -> RunResult:
        """Return what `dynamics.runs.loop.run` returns of a run with these records, which took so long to make."""
        events, end = self.stepper.event_times, float(self.times[-1])
        return RunResult(
            records,
            StopReason.REACHED_END,
            end,
            np.where(events <= end, events, np.nan),
            self.seconds + seconds,
            statistics=self.stepper.statistics(),
        )


def results_of(runs: Sequence[Leap], observe: Observer, sound: Soundness | None = None) -> list[RunResult | None]:
    """Return what came of runs through as many times each, seen by one observer; None for those that did not arrive.

    Also None for those that were observed together with one that is not `sound`.
    """
    found: list[RunResult | None] = [None] * len(runs)
    there = [at for at, run in enumerate(runs) if len(run.states) == run.times.size]
    if not there:
        return found
    most = max(LARGEST_STACK // runs[there[0]].states.size, 1)
    for begin in range(0, len(there), most):
        began, some = clock.perf_counter(), there[begin : begin + most]
        columns = observe(np.stack([runs[at].states for at in some]))
        if sound is None or sound.holds(columns):
            seconds = (clock.perf_counter() - began) / len(some)
            for place, at in enumerate(some):
                own = {name: values[place] for name, values in columns.items()}
                found[at] = runs[at].result(Records.of(own, runs[at].times.size), seconds)
    return found


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
