"""A-posteriori errors of a run, from the same run at a looser tolerance in a second thread.

The error of every method here falls with its tolerance, so two runs at tolerances ρ and 10 ρ differ by about the error
of the looser one, several times that of the tighter one. A single difference may be small by chance, where it changes
its sign or where two runs begin with the same steps. So a loss is taken for no more accurate than those at saved times
nearby, a time for no more accurate than the median time, and neither for better than a part of the tolerance. The
constants below are calibrated by `python -m benchmarks.error_estimates`, whose table is in docs/solvers.md.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dynamics.equations.interface import OfStates, takes_stacks
from dynamics.integrators.stepper import end_threads
from dynamics.runs.loop import run, snapshot_of
from dynamics.runs.result import StopReason, stack_records
from dynamics.runs.trackers import Tracker

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.integrators import Stepper
    from dynamics.runs.result import RunResult, Snapshot
    from dynamics.runs.trackers import RunView
    from hermite.arrays import Array

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
        self._wanted: Future[Snapshot] | None = None

    def snapshot(self) -> Future[Snapshot]:
        """Ask for a snapshot, which comes between two chunks of steps or during a long step, never after the end."""
        wanted: Future[Snapshot] = Future()
        self._wanted = wanted
        return wanted

    def check(self, view: RunView) -> StopReason | None:
        """Give the snapshot that was asked for, if any; stop when told to."""
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted.set_result(view.snapshot())
        return StopReason.CALLBACK if self.stop.is_set() else None

    urgent = check


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
        self._remote, self._remote_of_cut = _Remote(), _Remote()
        self._pool = ThreadPoolExecutor(1)
        self._stepper = stepper
        self._steppers = [stepper] if cut is None else [stepper, cut[0]]
        self._result = self._pool.submit(run, stepper, times, observer_of(loss), trackers=[self._remote], begun=begun)
        self._cut: Future[RunResult] | None = None
        if cut is not None:
            other, loss_of_cut = cut
            self._cut = self._pool.submit(run, other, times, observer_of(loss_of_cut), trackers=[self._remote_of_cut])

    @property
    def _runs(self) -> tuple[Future[RunResult], ...]:
        return (self._result,) if self._cut is None else (self._result, self._cut)

    def ended(self, seconds: float) -> bool:
        """Return whether the looser runs have ended, after waiting for them at most so long."""
        return not wait(self._runs, seconds).not_done

    def cut(self) -> RunResult | None:
        """Return the result with the link cut at a lower order, None if there is none yet."""
        return self._cut.result() if self._cut is not None and self._cut.done() else None

    def finish(self, result: RunResult) -> RunResult:
        """Return the result of the looser run, which is waited for, or stopped if the run has ended early."""
        if result.stop_reason is not StopReason.REACHED_END:
            self.stop()
        looser = self._result.result()
        self._end()
        return looser

    def snapshot(self) -> Snapshot:
        """Return where the looser run stands now."""
        wanted = self._remote.snapshot()
        both: tuple[Future[Any], ...] = (wanted, self._result)
        wait(both, return_when=FIRST_COMPLETED)
        return wanted.result() if wanted.done() else snapshot_of(self._stepper, self._result.result())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the looser run, however the body has ended."""
        self.cancel()

    def cancel(self) -> None:
        """Stop the looser run after the step that it is in."""
        self.stop()
        self._end()

    def _end(self) -> None:
        """End the threads, when the runs have ended."""
        self._pool.shutdown()
        for stepper in self._steppers:
            end_threads(stepper)

    def stop(self) -> None:
        """Ask the looser run to stop, also in the middle of a step."""
        self._remote.stop.set()
        self._remote_of_cut.stop.set()


def observer_of(loss: Callable[[Array], float]) -> OfStates:
    """Return what observes the loss of a state, or of a stack where `loss` takes one."""
    return OfStates(lambda state: {"loss": loss(state)}, lambda: takes_stacks(loss), getattr(loss, "alike", None))


def estimated_errors(result: RunResult, looser: RunResult, times: Array, rtol: float) -> tuple[Array, Array]:
    """Return the estimated errors of the loss at saved times and of the times of events, NaN where unknown.

    `rtol` is the tolerance of the tighter run. An event that only one of the two runs saw has an infinite error:
    whether it happens at all is not resolved.
    """
    loss, other = (stack_records(each.records, times.size, lambda: {"loss": 0.0})["loss"] for each in (result, looser))
    events = event_errors(result.event_times, looser.event_times, rtol)
    if looser.stop_reason is result.stop_reason is StopReason.REACHED_END:
        events[np.isnan(result.event_times) != np.isnan(looser.event_times)] = np.inf
    return loss_errors(loss, other, times, rtol), events


def loss_errors(loss: Array, looser: Array, times: Array, rtol: float) -> Array:
    """Return the estimated errors of the loss at saved times, given that of the looser run; NaN where one of them is.

    The start is exact but for rounding.
    """
    difference = np.abs(loss - looser)
    late = np.isfinite(difference) & (times > 0.0)
    if not late.any():
        return difference
    part = np.floor(np.log(times[late]) / NEARBY).astype(np.int64)
    part -= part.min()
    largest = np.zeros(int(part.max()) + 3)
    np.maximum.at(largest, part + 1, difference[late])
    nearby = np.maximum.reduce([largest[part], largest[part + 1], largest[part + 2]])
    error = difference.copy()
    error[late] = np.maximum(FACTOR * nearby, LEAST * rtol * np.abs(loss[late]))
    return error + ROUNDING * float(np.nanmax(np.abs(loss)))


def event_errors(times: Array, looser: Array, rtol: float) -> Array:
    """Return the estimated errors of event times, given those of the looser run; NaN where one of the two is."""
    difference = np.abs(times - looser)
    known = np.isfinite(difference) & (times > 0.0)
    if known.any():
        relative = difference[known] / times[known]
        least = max(float(np.median(relative)), LEAST * rtol / FACTOR)
        difference[known] = np.maximum(relative, least) * times[known]
    return FACTOR * difference


def truncation_errors(looser: RunResult, cut: RunResult | None, count: int, factor: float) -> tuple[Array, Array]:
    """Return `factor` times the changes by a cut link of the loss at `count` saved times and of times of events.

    NaN is returned where that is not known, inf for an event that only one of the two ended runs saw.
    """
    if cut is None:
        return np.full(count, np.nan), np.full(looser.event_times.size, np.nan)
    loss, other = (stack_records(each.records, count, lambda: {"loss": 0.0})["loss"] for each in (looser, cut))
    events = np.abs(looser.event_times - cut.event_times)
    if looser.stop_reason is cut.stop_reason is StopReason.REACHED_END:
        events[np.isnan(looser.event_times) != np.isnan(cut.event_times)] = np.inf
    return factor * np.abs(loss - other), factor * events
