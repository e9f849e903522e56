"""Many small flows answered together: each phase of the work is done for all of them before the next phase.

A flow of eight neurons takes two milliseconds of compiled steps. The rest of the work, in Python, takes half as long by
phases as flow by flow, because the processor has the code and data of one phase in its caches.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from dynamics.equations.interface import takes_stacks
from dynamics.integrators.stepper import leaping
from dynamics.runs.loop import LOOSER, UnwatchedRun, observer_of, results_of
from dynamics.solve.integration import Run, labelled, solved_contents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dynamics.problem import Problem
    from dynamics.runs.dataset import DatasetArrays
    from dynamics.runs.result import RunResult
    from dynamics.solve.integration import Integration, Settings, Watch

__all__ = ["Call", "built", "contents_of", "contents_together"]


class Call(NamedTuple):
    """One call of an answer; calls that are answered together have no trackers, checkpoint or budget of time."""

    problem: Problem
    settings: Settings
    build: Callable[[Run], Integration]
    watch: Watch


def contents_of(name: str, call: Call) -> DatasetArrays:
    """Return the contents of the dataset of one call."""
    return solved_contents(name, call.problem, call.settings, call.watch, call.build)


def built(name: str, call: Call) -> Integration:
    """Return the integration of a call; no step is taken."""
    return call.build(Run.of(name, call.problem, call.settings))


def contents_together(name: str, calls: Sequence[Call], until: float) -> list[DatasetArrays | None]:
    """Return what `solved_contents` returns for the first of some calls, to the last bit; None where it would raise.

    BLAS must have one thread. After the time `until` of `time.monotonic` no run is begun but the first. TypeError,
    ValueError or ImportError is raised for bad arguments of one of the calls, before any step.
    """
    flows = [_Flow(name, call) for call in calls]
    for flow in flows:
        flow.begin()
    followed: list[_Flow] = []
    for flow in flows:
        if followed and time.monotonic() > until:
            break
        flow.follow()
        followed.append(flow)
    for same in _alike(followed):
        _observe(same)
    return [flow.contents() for flow in followed]


class _Flow:
    """One call: checked and built at first, then begun, followed to its end, observed, and labelled."""

    def __init__(self, name: str, call: Call) -> None:
        self._name, self._call = name, call
        self._run = Run.of(name, call.problem, call.settings)
        self.integration = call.build(self._run)
        #: The run, and the looser one where errors are estimated; none where they would not leap.
        self.runs: list[UnwatchedRun] = []
        self.results: list[RunResult | None] = []
        self._alone: DatasetArrays | None = None

    def begin(self) -> None:
        """Make the steppers."""
        flow, rtol = self.integration, self._run.rtol
        if flow.cut is not None or not takes_stacks(flow.observe):
            return
        factors = (1.0,) if flow.loss is None else (1.0, LOOSER)
        steppers = [flow.method.stepper(factor * rtol) for factor in factors]
        if all(map(leaping, steppers)):
            self.runs = [UnwatchedRun(stepper, flow.schedule.times) for stepper in steppers]

    def follow(self) -> None:
        """Take all steps; without runs that leap, do all that is left."""
        for run in self.runs:
            run.follow()
        if not self.runs:
            with suppress(Exception):  # asked again, the call raises the error
                self._alone = contents_of(self._name, self._call)

    @property
    def alike(self) -> tuple[object, ...] | None:
        """What flows have in common that are observed together; None for one that is observed by itself."""
        flow = self.integration
        key = getattr(flow.observe, "alike", None)
        return None if key is None else (key, flow.loss is None, flow.sound, len(flow.schedule))

    def contents(self) -> DatasetArrays | None:
        """Return the contents of the dataset, None where the run did not arrive."""
        if not self.runs:
            return self._alone
        result, *looser = self.results
        if result is None or None in looser:
            return None
        flow = self.integration
        contents = labelled(self._run, flow, self.runs[0].stepper, result, *(looser or [None]))
        flow.warn(contents.attributes)
        return contents


def _alike(flows: Sequence[_Flow]) -> list[list[_Flow]]:
    """Return flows that leap, those together that can be observed so."""
    found: dict[object, list[_Flow]] = {}
    for flow in flows:
        if flow.runs:
            found.setdefault(flow.alike or flow, []).append(flow)
    return list(found.values())


def _observe(flows: Sequence[_Flow]) -> None:
    """Give flows that are alike their results."""
    first = flows[0].integration
    results = [results_of([flow.runs[0] for flow in flows], first.observe, first.sound)]
    if first.loss is not None:
        results.append(results_of([flow.runs[1] for flow in flows], observer_of(first.loss)))
    for flow, own in zip(flows, zip(*results, strict=True), strict=True):
        flow.results = list(own)
