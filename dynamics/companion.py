"""A-posteriori error of a flow: the same run at a looser tolerance, beside it in a second thread.

Responsible for the estimate and its meaning.  The error of every method here falls with its tolerance, so two runs at
tolerances ρ and 10 ρ differ by about the error of the looser one, several times that of the tighter one.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from dynamics.outcome import stack_records
from dynamics.run import run
from dynamics.trackers import StopReason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.flow_methods import FlowMethod
    from dynamics.run import RunResult
    from dynamics.trackers import RunView

    Array = NDArray[np.float64]

__all__ = ["FACTOR", "Companion", "event_errors"]

#: Tolerance of the looser run over that of the run.
LOOSER = 10.0
#: Factor of the difference that is reported as the error.
FACTOR = 2.0


class _Cancelled:
    """A tracker that stops the companion when the run it accompanies has ended early."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def start(self, view: RunView) -> None:
        """Do nothing."""

    def check(self, view: RunView) -> StopReason | None:  # noqa: ARG002
        """Stop when told to."""
        return StopReason.CALLBACK if self.event.is_set() else None

    def finish(self, view: RunView) -> None:
        """Do nothing."""


class Companion:
    """Run a method at a looser tolerance while the caller runs it at the tolerance asked for.

    Parameters
    ----------
    method : FlowMethod
        What to run.
    rtol : float
        Tolerance of the caller's run.
    times : ndarray, shape (T,)
        Saved times.
    """

    def __init__(self, method: FlowMethod, rtol: float, times: Array) -> None:
        self._times = times
        self._cancelled = _Cancelled()
        self._pool = ThreadPoolExecutor(1)
        stepper = method.stepper(LOOSER * rtol)
        system = method.system

        def observe(state: Array) -> dict[str, float]:
            return {"loss": system.loss(*system.unpack(state))}

        self._result = self._pool.submit(run, stepper, times, observe, trackers=[self._cancelled])

    def errors(self, result: RunResult) -> dict[str, Array]:
        """Wait for the looser run; return the estimated errors of loss and of event times, NaN where unknown.

        An event that only one of the two runs saw has an infinite error: whether it happens at all
        is not resolved.
        """
        if result.stop_reason is not StopReason.REACHED_END:
            self._cancelled.event.set()
        looser = self._result.result()
        self._pool.shutdown()
        count = self._times.size
        loss, other = (
            stack_records([{"loss": record["loss"]} for record in each.records], count, {"loss": 0.0})["loss"]
            for each in (result, looser)
        )
        events = event_errors(result.event_times, looser.event_times)
        if looser.stop_reason is result.stop_reason is StopReason.REACHED_END:
            events[np.isnan(result.event_times) != np.isnan(looser.event_times)] = np.inf
        half = events.size // 2
        return {
            "loss_error": FACTOR * np.abs(loss - other),
            "emergence_time_error": events[:half],
            "learned_time_error": events[half:],
        }

    def cancel(self) -> None:
        """Stop the looser run without waiting for its end."""
        self._cancelled.event.set()
        self._pool.shutdown()


def event_errors(times: Array, looser: Array) -> Array:
    """Return the estimated errors of event times, given those of the looser run; NaN where one of the two is.

    A single difference may be small by chance: no time is taken for more accurate, relatively, than the median.
    """
    difference = np.abs(times - looser)
    known = np.isfinite(difference) & (times > 0.0)
    if known.any():
        typical = np.median(difference[known] / times[known])
        difference[known] = np.maximum(difference[known], typical * times[known])
    return FACTOR * difference
