"""The run loop: next save time → compiled chunk → trackers → stop reason.

Compiled code ignores signals, so it runs in chunks of about a tenth of a second; between chunks Python shows progress,
hears Ctrl-C and asks the trackers. The loop knows a stepper, times and an observer; no physics and no dataset.
"""

from __future__ import annotations

import signal
import threading
import time as clock
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.integrators import Status
from dynamics.trackers import StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from dynamics.integrators import Stepper
    from dynamics.trackers import RunView, Tracker

    Observer = Callable[[NDArray[np.float64]], Mapping[str, Any]]

CHUNK_SECONDS = 0.1
FIRST_CHUNK_STEPS = 64
LARGEST_CHUNK_STEPS = 1 << 20

_FAILURES = {Status.STEP_TOO_SMALL: StopReason.STEP_TOO_SMALL, Status.NOT_FINITE: StopReason.NOT_FINITE}


@dataclass
class RunResult:
    """What a run leaves: one record per saved time that was reached, why it ended, and what it cost."""

    records: list[Mapping[str, Any]] = field(default_factory=list)
    stop_reason: StopReason = StopReason.REACHED_END
    end_time: float = 0.0
    event_times: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    solve_seconds: float = 0.0
    tracker_seconds: float = 0.0
    statistics: dict[str, int] = field(default_factory=dict)


class _View:
    """What the trackers see of the run."""

    def __init__(self, stepper: Stepper, end: float) -> None:
        self._stepper = stepper
        self._end = end

    @property
    def time(self) -> float:
        return min(self._stepper.time, self.end)

    @property
    def end(self) -> float:
        return self._end

    def state(self) -> NDArray[np.float64]:
        return self._stepper.interpolate(self.time)

    def derivative(self) -> NDArray[np.float64]:
        return self._stepper.derivative(self.time)

    def statistics(self) -> dict[str, int]:
        return self._stepper.statistics()


class _Pace:
    """Number of steps per chunk, adapted so that a chunk takes about `CHUNK_SECONDS`."""

    def __init__(self) -> None:
        self.steps = FIRST_CHUNK_STEPS

    def adapt(self, seconds: float) -> None:
        if seconds < 0.5 * CHUNK_SECONDS:
            self.steps = min(2 * self.steps, LARGEST_CHUNK_STEPS)
        elif seconds > 2.0 * CHUNK_SECONDS:
            self.steps = max(self.steps // 2, 1)


class _Interrupts:
    """Hear Ctrl-C between chunks: an exception raised at any instant can be lost inside a callback of some library.

    A second Ctrl-C raises at once, for whoever does not want to wait for the end of a chunk. Outside the main thread,
    where Python allows no handlers, KeyboardInterrupt is left as it is.
    """

    def __init__(self) -> None:
        self._heard = False
        self._previous: Any = None

    def start(self, view: RunView) -> None:  # noqa: ARG002
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._hear)

    def check(self, view: RunView) -> StopReason | None:  # noqa: ARG002
        return StopReason.INTERRUPTED if self._heard else None

    def finish(self, view: RunView) -> None:  # noqa: ARG002
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _hear(self, *_signal: object) -> None:
        if self._heard:
            raise KeyboardInterrupt
        self._heard = True


def run(
    stepper: Stepper,
    times: NDArray[np.float64],
    observe: Observer,
    *,
    trackers: Sequence[Tracker] = (),
) -> RunResult:
    """Take `stepper` through `times`, observing at each, until the end or a reason to stop.

    Parameters
    ----------
    stepper : Stepper
        Integrator at time 0, with its state inside.
    times : ndarray, shape (T,)
        Increasing times to observe at; steps are not held to them.
    observe : callable
        state -> named observables, stored as one record per time.
    trackers : sequence of Tracker

    Returns
    -------
    RunResult
        KeyboardInterrupt does not escape: it becomes the stop reason "interrupted".
    """
    result = RunResult()
    interrupts = _Interrupts()
    view = _View(stepper, float(times[-1]))
    pace = _Pace()
    started = clock.perf_counter()
    reason: StopReason | None = None
    try:
        for tracker in (interrupts, *trackers):
            tracker.start(view)
        for time in times:
            reason = _reach(stepper, float(time), view, pace, [*trackers, interrupts], result)
            if stepper.time >= time and reason not in _FAILURES.values():
                result.records.append(observe(stepper.interpolate(float(time))))
            if reason is not None:
                break
    except KeyboardInterrupt:
        reason = StopReason.INTERRUPTED
    finally:
        for tracker in (*trackers, interrupts):
            tracker.finish(view)
    result.stop_reason = reason or StopReason.REACHED_END
    result.end_time = view.time
    result.event_times = np.where(stepper.event_times <= times[-1], stepper.event_times, np.nan)
    result.solve_seconds = clock.perf_counter() - started
    result.statistics = stepper.statistics()
    return result


def _reach(
    stepper: Stepper, time: float, view: _View, pace: _Pace, trackers: Sequence[Tracker], result: RunResult
) -> StopReason | None:
    """Advance until `stepper.time` ≥ `time`, chunk by chunk; return a reason to stop, or None."""
    while stepper.time < time:
        began = clock.perf_counter()
        status = stepper.advance(time, pace.steps)
        ended = clock.perf_counter()
        if status == Status.MAX_STEPS:
            pace.adapt(ended - began)
        if status in _FAILURES:
            return _FAILURES[status]
        for tracker in trackers:
            reason = tracker.check(view)
            if reason is not None:
                return reason
        result.tracker_seconds += clock.perf_counter() - ended
    return None
