"""Runs that nobody watches, of small flows: all steps of each, and after them the records of several at once."""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators import Status
from dynamics.integrators.stepper import leaping
from dynamics.runs.loop import LARGEST_STACK
from dynamics.runs.records import Records
from dynamics.runs.result import RunResult, StopReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.integrators import Stepper
    from dynamics.runs.loop import Observer
    from dynamics.runs.soundness import Soundness
    from hermite.arrays import Array

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
