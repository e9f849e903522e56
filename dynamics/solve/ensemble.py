"""Many small flows answered together, each phase of the work for all of them before the next one.

A flow of eight neurons takes two milliseconds of compiled steps. What Python does for it besides takes half as long in
phases as it does flow by flow: a phase finds its own code and data in the caches of the processor.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dynamics.equations.interface import takes_stacks
from dynamics.integrators.stepper import leaping
from dynamics.runs.loop import UnwatchedRun, results_of
from dynamics.runs.looser_run import LOOSER, observer_of
from dynamics.solve.asked import checked
from dynamics.solve.skeleton import contents_of, labelled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dynamics.runs.dataset import Contents
    from dynamics.runs.result import RunResult
    from dynamics.solve.registry import Answer
    from dynamics.solve.skeleton import Integration

__all__ = ["contents_together"]


def contents_together(
    answer: Answer, build: Callable[..., Integration], calls: Sequence[Mapping[str, Any]], until: float
) -> list[Contents | None]:
    """Return what `contents_of` returns for the first of some calls, to the last bit; None where it would raise.

    Parameters
    ----------
    answer : Answer
    build : callable
        As that of `contents_of`.
    calls : sequence of mapping
        All arguments of the public function by name, `problem` included, and what `build` may be given besides. None
        has trackers, a checkpoint or a budget of time, and BLAS has one thread.
    until : float
        Time of `time.monotonic` after which no run is begun, but the first.

    Raises
    ------
    TypeError, ValueError, ImportError
        For bad arguments of one of them, before any step.
    """
    flows = [_Flow(answer, build, arguments) for arguments in calls]
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

    def __init__(self, answer: Answer, build: Callable[..., Integration], arguments: Mapping[str, Any]) -> None:
        self._call = answer, build, arguments["problem"], arguments
        self._answer = answer
        self._asked, own = checked(answer, arguments["problem"], arguments)
        self.integration = build(self._asked, **own)
        #: The run, and the looser one beside it where errors are estimated; none where they would not leap.
        self.runs: list[UnwatchedRun] = []
        self.results: list[RunResult | None] = []
        self._alone: Contents | None = None

    def begin(self) -> None:
        """Make the steppers."""
        flow, rtol = self.integration, self._asked.rtol
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
            with suppress(Exception):  # the call will say what is wrong when it is asked again
                self._alone = contents_of(*self._call)

    @property
    def alike(self) -> tuple[object, ...] | None:
        """What flows have in common that are observed together; None for one that is observed by itself."""
        flow = self.integration
        key = getattr(flow.observe, "alike", None)
        return None if key is None else (key, flow.loss is None, flow.sound, len(flow.schedule))

    def contents(self) -> Contents | None:
        """Return what the dataset holds."""
        if not self.runs:
            return self._alone
        result, *looser = self.results
        if result is None or None in looser:
            return None
        flow = self.integration
        contents = labelled(self._answer, self._asked, flow, self.runs[0].stepper, result, *(looser or [None]))
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
