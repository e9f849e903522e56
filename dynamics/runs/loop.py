"""The run loop: steps up to the next record, in chunks between which trackers may stop the run; flows and SGD alike.

Compiled code ignores signals, so it runs in chunks of about a tenth of a second. A longer step of a flow is taken in a
second thread, where it can be given up; the run then ends with the state before it.

Errors are estimated from the same run at a looser tolerance, in a second thread: two runs at tolerances ρ and 10 ρ
differ by several times the error of the tighter one. A single difference may be small by chance. So a loss is taken for
no more accurate than those at saved times nearby, a time for no more accurate than the median time, and neither for
better than a part of the tolerance (`python -m benchmarks.error_estimates`, docs/solvers.md).
"""

from __future__ import annotations

import threading
import time as clock
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dynamics.cores import one_of_the_runs
from dynamics.equations.interface import OfStates, takes_stacks
from dynamics.integrators import Status
from dynamics.integrators.stepper import end_threads, leaping
from dynamics.kernels.compile_time import compiled_seconds
from dynamics.runs.result import Records, RunResult, Snapshot, StopReason, stack_records
from dynamics.runs.run_file import packed, unpacked
from dynamics.runs.trackers import Progress, Run, Tracker
from dynamics.threads import LOOK, beside, in_worker, interruption
from hermite.text.messages import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import xarray as xr

    from dynamics.integrators import Stepper
    from dynamics.integrators.stepper import LeapingStepper
    from dynamics.runs.run_file import RunFile
    from hermite.arrays import Array

    Observer = Callable[[Array], Mapping[str, Any]]
    LabelledResult = Callable[[RunResult, RunResult | None], xr.Dataset]

#: Numbers of a state that is quick to step.
QUICK_NUMBERS = 4000
#: Numbers in the states at saved times that are observed together.
LARGEST_STACK = 1 << 15
#: Parts of a checkpoint: the records of the first are in the dataset, the second keeps its own.
RUN, LOOSER_RUN = "run", "companion"

_FAILURES = {Status.STEP_TOO_SMALL: StopReason.STEP_TOO_SMALL, Status.NOT_FINITE: StopReason.NOT_FINITE}


class _Flow(Run):
    """A flow: a stepper that goes through increasing times, at each of which `observe` gives one record."""

    def __init__(
        self,
        stepper: Stepper,
        times: Array,
        observe: Observer,
        begun: RunResult,
        sound: Callable[..., StopReason | None] | None,
        why_failed: Callable[[Array], StopReason | None],
        stopping: Callable[[], object],
        *,
        leaps: bool,
    ) -> None:
        """Prepare a run of `stepper` through the increasing `times`, (T,).

        `observe(state)` returns one record, or with `leaps`, where many saved times are passed in one call of the
        stepper, the records of a stack of states. `begun` holds the records of an earlier part of the run. `sound`, if
        given, gets the records after each of them, and `why_failed` the state at which no step succeeds: both return a
        reason to stop, or None. `stopping` is called as soon as a reason is found to give a step up.
        """
        size = stepper.interpolate(stepper.time).size if leaps else 0
        self._compiled = compiled_seconds()
        super().__init__(size if leaps and leaping(stepper) is not None and size <= QUICK_NUMBERS else 0, stopping)
        self.end = float(times[-1])
        self.records = Records(times.size, begun.records)
        self._stepper, self._times, self._observe, self._begun = stepper, times, observe, begun
        self._sound, self._why_failed = sound, why_failed
        #: Saved times that are observed together, 0 where each is observed by itself.
        self._most = max(LARGEST_STACK // size, 1) if leaps else 0
        self._state: Array | None = None

    @property
    def time(self) -> float:
        return min(self._stepper.time, self.end)

    @property
    def settles(self) -> bool:
        return bool(getattr(self._stepper, "settles", True))

    @property
    def over(self) -> bool:
        return len(self.records) == self._times.size

    @property
    def at_record(self) -> bool:
        return not self.over and self._leaper() is None and self._stepper.time >= self._times[len(self.records)]

    def state(self) -> Array:
        return self._stepper.interpolate(self.time)

    def derivative(self) -> Array:
        return self._stepper.derivative(self.time)

    def statistics(self) -> dict[str, int]:
        return self._stepper.statistics()

    def snapshot(self) -> Snapshot:
        return snapshot_of(self._stepper, self.result(StopReason.UNFINISHED))

    def result(self, reason: str) -> RunResult:
        """Return the result so far, with a reason why the run ended."""
        records = Records.of(self.records.columns, len(self.records))  # the arrays are shared: they never change
        # Compiling is told by itself.
        elapsed = clock.perf_counter() - self._started - (compiled_seconds() - self._compiled)
        seconds = self._begun.solve_seconds + max(elapsed, 0.0)
        of_trackers = self._begun.tracker_seconds + self.tracker_seconds
        events = self._stepper.event_times
        within = np.where(events <= self.end, events, np.nan)  # a step may find others beyond the end
        return RunResult(
            records, StopReason(reason), self.time, within, seconds, of_trackers, self.statistics(), intact=self.intact
        )

    def begin(self) -> None:
        self._advance(self._stepper.time)

    def take(self) -> StopReason | None:
        """Take a chunk of steps towards the next record; return a reason to stop, or None.

        A flow that leaps through many saved times makes their records too.
        """
        leaper, began, first, wrong = self._leaper(), clock.perf_counter(), len(self.records), None
        if leaper is None:
            status = self._advance(float(self._times[first]))
        else:
            status, states = leaper.advance_through(self._times[first : first + self._most], self.steps)
            if len(states) > 0:
                self.records.extend(self._observe(states), len(states))
                wrong = None if self._sound is None else self._sound(self.records, first)
        self.adapt(clock.perf_counter() - began, full=status == Status.MAX_STEPS)
        failure = wrong or _FAILURES.get(status)
        return (self._why_failed(self.state()) or failure) if failure in _FAILURES.values() else failure

    def record(self) -> str | None:
        """Observe the state at the saved time."""
        # In memory that the next state takes: new pages cost more than a copy.
        self._state = self._stepper.interpolate(float(self._times[len(self.records)]), self._state)
        self.records.append(self._observe(self._state))
        return None if self._sound is None else self._sound(self.records)

    def _leaper(self) -> LeapingStepper | None:
        """Return the stepper if it is to go through many saved times in one call, None otherwise."""
        return leaping(self._stepper) if self._most and self.steps > 1 else None

    def _advance(self, time: float) -> Status:
        """Take a chunk of steps; a step that may be long runs in a second thread, where it can be given up."""
        if self.steps > 1:
            return self._stepper.advance(time, self.steps)
        return beside(lambda: self._stepper.advance(time, 1), self.asked_to_stop)


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

    At each time `observe` gives the named observables of the state, one record; steps are not held to the times.
    `begun` continues a run, with its records and costs; ValueError is raised if it is not of this stepper. `sound` is
    called after each record, `why_failed` with the state at which no step succeeds: both return a reason to stop, or
    None. `stopping` is called as soon as a reason is found to give a step up.
    """
    if begun is not None:
        try:
            stepper.restore(begun.state or {})
        except (KeyError, IndexError, TypeError, ValueError) as error:
            refuse(f"Argument `begun` must be a snapshot of the same run, but is not ({error}).")
    leaps = takes_stacks(observe) and all(getattr(tracker, "patient", False) for tracker in trackers)
    so_far = RunResult() if begun is None else begun.result
    flow = _Flow(stepper, times, observe, so_far, sound, why_failed, stopping, leaps=leaps)
    return flow.result(flow.follow(trackers))


def snapshot_of(stepper: Stepper, result: RunResult) -> Snapshot:
    """Return the snapshot of a stepper at rest."""
    try:
        return Snapshot(result, stepper.state())
    except NotImplementedError:
        return Snapshot(result, None)


def begun_snapshot(file: RunFile, part: str) -> Snapshot | None:
    """Return the snapshot from which a part of the run continues, None for a new run."""
    begun, arrays = file.begun, file.part(part)
    return None if begun is None or arrays is None else unpacked(arrays, begun.dataset if part == RUN else None)


def run_with_file(
    follow: Callable[..., RunResult],
    stepper: Stepper,
    labelled: LabelledResult,
    *,
    file: RunFile,
    trackers: Sequence[Tracker],
    looser_run: LooserRun | None,
) -> tuple[RunResult, xr.Dataset]:
    """Return the result of a run and its dataset; the run continues what `file` holds, and keeps the file up to date.

    `follow` is `run` of the stepper, and runs in a second thread. `labelled` makes a dataset from the results of the
    run and of the looser run, which ends here.
    """

    def stored(snapshot: Snapshot) -> tuple[xr.Dataset, Mapping[str, xr.Dataset]]:
        """Return the dataset of a snapshot and the parts of its checkpoint."""
        looser = None if looser_run is None else looser_run.snapshot()
        dataset = labelled(snapshot.result, None if looser is None else looser.result)
        parts = {RUN: packed(snapshot, records=False), LOOSER_RUN: None if looser is None else packed(looser)}
        return dataset, {name: part for name, part in parts.items() if part is not None and snapshot.state is not None}

    def followed() -> tuple[RunResult, xr.Dataset]:
        """Follow the run to its end, wait for the looser run beside it, close the file, and return result and dataset.

        A run that stopped early, and can be resumed, leaves a snapshot in its file.
        """
        result = follow(
            trackers=[*trackers, *file.trackers(stored)],
            begun=begun_snapshot(file, RUN),
            # Both give their steps up at the same time.
            stopping=(lambda: None) if looser_run is None else looser_run.stop,
        )
        looser = None
        if looser_run is not None:
            is_interrupted = interruption()
            bar = next((tracker for tracker in trackers if isinstance(tracker, Progress)), None)
            while result.stop_reason is StopReason.REACHED_END and not looser_run.ended(LOOK):
                if is_interrupted():
                    result = replace(result, stop_reason=StopReason.INTERRUPTED)
                if bar is not None:
                    looser_run.show(bar)
            if bar is not None:
                bar.finish()
            looser = looser_run.finish(result)
        resumable = result.stop_reason.resumable
        if file.has_path and resumable and result.intact:
            dataset, parts = stored(snapshot_of(stepper, result))
        else:
            dataset, parts = labelled(result, looser), {}
        file.close(dataset, parts, resumable=resumable)
        return result, dataset

    return in_worker(followed)


#: Tolerance of the looser run over that of the run.
LOOSER = 10.0
#: Factor of the difference that is reported as the error, and share of ρ, relatively, that is the least reported.
FACTOR, LEAST = 3.0, 0.03
#: Width in ln t within which, and within two of which, saved times are nearby.
NEARBY = 0.05
#: Rounding of a loss, a sum of terms that cancel, in units of the largest.
ROUNDING = 1e-14


class _Remote(Tracker):
    """A tracker that stops a run for another thread, or gives it a snapshot."""

    patient = True

    def __init__(self) -> None:
        self.stop = threading.Event()
        #: How far the run is.
        self.time = 0.0
        self._asked: SimpleQueue[Future[Snapshot]] = SimpleQueue()

    def snapshot(self) -> Future[Snapshot]:
        """Ask for a snapshot, which comes between two chunks of steps, never after the end."""
        snapshot: Future[Snapshot] = Future()
        self._asked.put(snapshot)
        return snapshot

    def check(self, view: Run) -> StopReason | None:
        """Give a snapshot that was asked for; return a reason to stop if another thread wants that."""
        self.time = view.time
        with suppress(Empty):
            self._asked.get_nowait().set_result(view.snapshot())
        return self.urgent(view)

    def urgent(self, _view: Run) -> StopReason | None:
        """Return a reason to stop if another thread wants that."""
        return StopReason.CALLBACK if self.stop.is_set() else None


class LooserRun:
    """The same run at `LOOSER` times the tolerance, in a second thread; `loss` is E(f − f*)² of a state.

    `cut` is the stepper and the loss of a run that follows it at the same tolerance, of a link cut at a lower order.
    """

    def __init__(
        self,
        stepper: Stepper,
        loss: Callable[[Array], float],
        times: Array,
        begun: Snapshot | None = None,
        cut: tuple[Stepper, Callable[[Array], float]] | None = None,
    ) -> None:
        """Begin the runs in the second thread, one after the other.

        `times` (T,) are the saved times, `begun` is where an earlier part of the run ended, None for a new one.
        """
        runs_to_follow = [(stepper, loss, begun), *([(*cut, None)] if cut else [])]
        self._steppers = [stepper for stepper, _, _ in runs_to_follow]
        self._remotes = [_Remote() for _ in runs_to_follow]
        self._pool, self._end = ThreadPoolExecutor(1), float(times[-1])
        self._runs = [
            self._pool.submit(run, stepper, times, observer_of(loss_of), trackers=[remote], begun=begun_run)
            for (stepper, loss_of, begun_run), remote in zip(runs_to_follow, self._remotes, strict=True)
        ]

    def ended(self, seconds: float) -> bool:
        """Return whether the looser runs have ended, after waiting for at most this many seconds."""
        return not wait(self._runs, seconds).not_done

    def show(self, bar: Progress) -> None:
        """Advance a bar of the last of the looser runs that has begun."""
        index = int(len(self._runs) > 1 and self._runs[0].done())
        bar.show_other(("error estimate", "truncation")[index], self._remotes[index].time, self._end)

    def cut(self) -> RunResult | None:
        """Return the result with the link cut at a lower order, None if there is none yet."""
        return self._runs[1].result() if len(self._runs) > 1 and self._runs[1].done() else None

    def finish(self, result: RunResult) -> RunResult:
        """Return the result of the looser run, after waiting for its end; stop it if the run has ended early."""
        if result.stop_reason is not StopReason.REACHED_END:
            self.stop()
        wait(self._runs)
        return self._runs[0].result()

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the looser run after its present step; if the caller is interrupted, before that."""
        snapshot, looser, is_interrupted = self._remotes[0].snapshot(), self._runs[0], interruption()
        futures: tuple[Future[Any], ...] = (snapshot, looser)
        while not wait(futures, LOOK, FIRST_COMPLETED).done:
            if is_interrupted():
                self.stop()
        return snapshot.result() if snapshot.done() else snapshot_of(self._steppers[0], looser.result())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the looser runs, also in the middle of a step, and end their threads."""
        self.stop()
        self._pool.shutdown()
        for stepper in self._steppers:
            end_threads(stepper)

    def stop(self) -> None:
        """Ask the looser runs to stop, also in the middle of a step."""
        for remote in self._remotes:
            remote.stop.set()


def observer_of(loss: Callable[[Array], float]) -> OfStates:
    """Return an observer of the loss of a state, or of a stack of states if `loss` takes one."""
    return OfStates(lambda state: {"loss": loss(state)}, lambda: takes_stacks(loss))


def estimated_errors(result: RunResult, looser: RunResult, times: Array, rtol: float) -> tuple[Array, Array]:
    """Return estimated errors of the loss at saved times, (T,), and of the times of events; NaN where unknown.

    They follow from the difference between `result`, a run at tolerance `rtol`, and the same run at a looser one. The
    error of an event that only one of the two finished runs saw is infinite.
    """
    events = event_errors(result.event_times, looser.event_times, rtol)
    _mark_unresolved(events, result, looser)
    loss, looser_loss = _losses(times.size, result, looser)
    return loss_errors(loss, looser_loss, times, rtol), events


def _losses(count: int, *results: RunResult) -> list[Array]:
    """Return the losses (count,) at saved times of each of some results, NaN where no time was reached."""
    return [stack_records(result.records, count, lambda: {"loss": 0.0})["loss"] for result in results]


def _mark_unresolved(errors: Array, first: RunResult, second: RunResult) -> None:
    """Make the error of an event infinite if only one of two finished runs saw it."""
    if first.stop_reason is second.stop_reason is StopReason.REACHED_END:
        errors[np.isnan(first.event_times) != np.isnan(second.event_times)] = np.inf


def loss_errors(loss: Array, looser: Array, times: Array, rtol: float) -> Array:
    """Return estimated errors of the loss at saved times, (T,), from the run and a looser one; NaN where unknown.

    `loss` and `looser` are the losses of both at `times`, and `rtol` is the tolerance of the run. At the start the
    error is that of rounding.
    """
    difference = np.abs(loss - looser)
    is_later = np.isfinite(difference) & (times > 0.0)
    if not is_later.any():
        return difference
    part = np.floor(np.log(times[is_later]) / NEARBY).astype(np.int64)
    part -= part.min()
    largest = np.zeros(int(part.max()) + 3)
    np.maximum.at(largest, part + 1, difference[is_later])
    nearby = np.maximum.reduce([largest[part], largest[part + 1], largest[part + 2]])
    error = difference.copy()
    error[is_later] = np.maximum(FACTOR * nearby, LEAST * rtol * np.abs(loss[is_later]))
    return error + ROUNDING * float(np.nanmax(np.abs(loss)))


def event_errors(times: Array, looser: Array, rtol: float) -> Array:
    """Return estimated errors of event times, in their shape, from those of a looser run; NaN where either is NaN.

    `rtol` is the tolerance of the run, which bounds relative errors from below.
    """
    difference = np.abs(times - looser)
    is_known = np.isfinite(difference) & (times > 0.0)
    if is_known.any():
        relative = difference[is_known] / times[is_known]
        least = max(float(np.median(relative)), LEAST * rtol / FACTOR)
        difference[is_known] = np.maximum(relative, least) * times[is_known]
    return FACTOR * difference


def truncation_errors(looser: RunResult, cut: RunResult | None, count: int, factor: float) -> tuple[Array, Array]:
    """Return `factor` times the change of the loss at `count` saved times, and of the times of events, by a cut link.

    A change is NaN where it is not known, inf for an event that only one of the two finished runs saw.
    """
    if cut is None:
        return np.full(count, np.nan), np.full(looser.event_times.size, np.nan)
    events = np.abs(looser.event_times - cut.event_times)
    _mark_unresolved(events, looser, cut)
    return factor * np.abs(np.subtract(*_losses(count, looser, cut))), factor * events
