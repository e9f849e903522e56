"""What every answer that is integrated in time does alike: check, build, run, label.

A public function `solve_*` is a signature and a docstring. It hands its arguments to `answered`, with the function of
its module that builds an `Integration`: steppers of a system, what is recorded of a state, what the dataset says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dynamics.integrators import stepper_of
from dynamics.integrators.stepper import end_threads
from dynamics.problem.checks import check_choice
from dynamics.runs.dataset import make_contents
from dynamics.runs.result import StopReason, checked_outcome, joined, run_attributes, stack_records
from dynamics.runs.trackers import all_trackers
from dynamics.runs.variables import VARIABLES
from dynamics.solve.asked import checked
from dynamics.threads.cores import one_blas_thread

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.equations import System
    from dynamics.integrators import Stepper
    from dynamics.problem import Problem
    from dynamics.problem.schedule import SaveAt
    from dynamics.runs.dataset import Contents
    from dynamics.runs.looser_run import LooserRun
    from dynamics.runs.result import RunResult
    from dynamics.runs.soundness import Soundness
    from dynamics.runs.trackers import Tracker
    from dynamics.runs.variables import Variable
    from dynamics.solve.asked import Asked
    from dynamics.solve.registry import Answer
    from dynamics.solve.truncation import CutLink
    from hermite.arrays import Array

__all__ = ["Integration", "Method", "PlainMethod", "answered", "contents_of", "labelled"]


class Method(Protocol):
    """A method chosen for a system."""

    def stepper(self, rtol: float) -> Stepper:
        """Return a stepper at the start of the system."""
        ...

    def attributes(self, stepper: Stepper) -> Mapping[str, Any]:
        """Return what a dataset says about the method that ran."""
        ...


@dataclass
class PlainMethod:
    """A method of `dynamics.integrators` for any system."""

    system: System
    name: str
    atol: float
    make: Callable[..., tuple[Stepper, float]] = stepper_of
    compile_seconds: float = field(default=0.0, init=False)

    def stepper(self, rtol: float) -> Stepper:
        """Return a stepper at the start of the system."""
        stepper, seconds = self.make(self.system, self.name, rtol=rtol, atol=self.atol)
        self.compile_seconds = max(seconds, self.compile_seconds)  # the second stepper finds its code in memory
        return stepper

    def attributes(self, _stepper: Stepper) -> Mapping[str, Any]:
        """Return name and compile time."""
        return {"method": self.name, "compile_seconds": self.compile_seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Integration:
    """What is integrated, recorded and said: all that one answer has apart from the others.

    Parameters
    ----------
    title : str
        Of the dataset.
    schedule : SaveAt
    method : Method
    observe : callable
        State -> named observables, one record per saved time.
    start : ndarray
        A state, whose record tells the shapes.
    events : mapping
        Name of the times of events -> how many there are, None for one without a dim, in the order of the stepper's.
    constants : mapping
        Variables that are known before the run.
    coords : mapping
        Coordinates beside `time`.
    settings : mapping
        Arguments of the answer alone, as they are stored.
    says : callable
        Variables of the dataset -> further attributes.
    notes : sequence of str
    sound : Soundness, optional
        What each record must satisfy.
    why_failed : callable
        State at which no step succeeds -> why, None if it is not known.
    loss : callable, optional
        State -> E(f − f*)²; given where errors are estimated by a looser run.
    cut : CutLink, optional
        The same flow of a link cut at a lower order, beside that run, where the link's series is cut at all.
    threads : callable
        Context of the run that holds BLAS to its number of threads.
    warn : callable
        Attributes of the dataset -> None; warns of what they say is suspect.
    variables : mapping
        Name -> how a variable is labelled.
    """

    title: str
    schedule: SaveAt
    method: Method
    observe: Callable[[Array], Mapping[str, Any]]
    start: Array
    events: Mapping[str, int | None]
    constants: Mapping[str, Any]
    coords: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    says: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _values: {}
    notes: Sequence[str] = ()
    sound: Soundness | None = None
    why_failed: Callable[[Array], StopReason | None] = lambda _state: None
    loss: Callable[[Array], float] | None = None
    cut: CutLink | None = None
    threads: Callable[[], AbstractContextManager[None]] = nullcontext
    warn: Callable[[Mapping[str, Any]], None] = lambda _attributes: None
    variables: Mapping[str, Variable] = field(default_factory=lambda: VARIABLES)

    @classmethod
    def of(cls, system: System, asked: Asked, **said: Any) -> Integration:
        """Return the integration of a system by a method for any system, recording what the system observes.

        Unless something else is said, its events are the times at which each direction emerges and is learned, and
        its errors are estimated by the loss among its observables.
        """
        P, summary = asked.problem.num_directions, system.observer("summary")
        return cls(
            **{
                "method": PlainMethod(system, asked.method, asked.atol),
                "observe": system.observer(asked.keep),
                "start": system.initial_state,
                "events": {"emergence_time": P, "learned_time": P},
                "loss": (lambda state: float(summary(state)["loss"])) if asked.estimates(asked.method) else None,
                **said,
            }
        )


def answered(
    answer: Answer, build: Callable[..., Integration], problem: Problem, arguments: Mapping[str, Any]
) -> xr.Dataset:
    """Check the arguments of a call, build what is integrated, run it, and return it labelled.

    The arguments are those of `contents_of`.
    """
    return contents_of(answer, build, problem, arguments).dataset()


def contents_of(
    answer: Answer, build: Callable[..., Integration], problem: Problem, arguments: Mapping[str, Any]
) -> Contents:
    """Return what the dataset of a call holds.

    Parameters
    ----------
    answer : Answer
    build : callable
        (asked, **own arguments of the answer) -> Integration; raises before any work what is against them.
    problem : Problem
    arguments : mapping
        All arguments of the public function by name, `problem` included.

    Raises
    ------
    SolveError, SolveInterrupted
        As `on_failure` says.
    TypeError, ValueError, ImportError
        For bad arguments or a missing extra, before any work.
    """
    # === check
    asked, own = checked(answer, problem, arguments)
    on_failure = arguments.get("on_failure", "raise")
    check_choice("on_failure", on_failure, ("raise", "return"))
    watchers = all_trackers(arguments.get("trackers", ()), arguments.get("progress"), arguments.get("max_runtime"))
    # === build
    with one_blas_thread():  # whatever runs beside this, the start has the same bits
        integration = build(asked, **own)
    # === run and label
    result, contents = _run(answer, asked, integration, watchers)
    # === return
    integration.warn(contents.attributes)
    reason = result.stop_reason
    if on_failure == "raise" and (reason.failed or reason is StopReason.INTERRUPTED):
        checked_outcome(contents.dataset(), reason, on_failure)
    return contents


def _run(
    answer: Answer, asked: Asked, integration: Integration, watchers: Sequence[Tracker]
) -> tuple[RunResult, Contents]:
    """Return how the run ended, and what its dataset holds."""
    from dynamics.runs.loop import kept_run

    times = integration.schedule.times
    with ExitStack() as context:
        context.enter_context(integration.threads())
        stepper = integration.method.stepper(asked.rtol)
        context.callback(end_threads, stepper)
        with nullcontext() if integration.loss is None else _looser_run(asked, integration, integration.loss) as beside:

            def labelled_so_far(result: RunResult, looser: RunResult | None) -> Contents:
                cut = None if beside is None else beside.cut()
                return labelled(answer, asked, integration, stepper, result, looser, cut)

            return kept_run(
                stepper,
                times,
                integration.observe,
                labelled_so_far,
                file=asked.file,
                trackers=watchers,
                looser_run=beside,
                sound=integration.sound,
                why_failed=integration.why_failed,
            )


def _looser_run(asked: Asked, integration: Integration, loss: Callable[[Array], float]) -> LooserRun:
    """Return the looser run, begun in a second thread."""
    from dynamics.runs.loop import LOOSER_RUN, begun_snapshot
    from dynamics.runs.looser_run import LOOSER, LooserRun

    stepper = integration.method.stepper(LOOSER * asked.rtol)
    begun = begun_snapshot(asked.file, LOOSER_RUN)
    cut = (
        None if integration.cut is None else (integration.cut.method.stepper(LOOSER * asked.rtol), integration.cut.loss)
    )
    return LooserRun(stepper, loss, integration.schedule.times, begun, cut)


def labelled(
    answer: Answer,
    asked: Asked,
    integration: Integration,
    stepper: Stepper,
    result: RunResult,
    looser: RunResult | None,
    cut: RunResult | None = None,
) -> Contents:
    """Return what the dataset of a run holds, wherever it stands."""
    count = len(integration.schedule)
    values: dict[str, Any] = {
        **stack_records(result.records, count, lambda: integration.observe(integration.start)),
        **integration.constants,
        **_by_name(result.event_times, integration.events),
    }
    if looser is not None:
        from dynamics.runs.looser_run import estimated_errors, truncation_errors

        errors = {"error": estimated_errors(result, looser, integration.schedule.times, asked.rtol)}
        if integration.cut is not None:
            errors["truncation_error"] = truncation_errors(looser, cut, count, integration.cut.factor)
        for kind, (loss, events) in errors.items():
            values[f"loss_{kind}"] = loss
            values |= {f"{name}_{kind}": times for name, times in _by_name(events, integration.events).items()}
    coords = {"time": integration.schedule.times, **integration.coords}
    shared = {"method": asked.method, "rtol": asked.rtol, "atol": asked.atol, "keep": asked.keep}
    if answer.can("estimate"):
        shared["error_estimate"] = asked.error_estimate
    return make_contents(
        values,
        problem=asked.problem,
        title=integration.title,
        coords=coords,
        solver={"answer": answer.name, **shared, **integration.settings},
        attributes={
            "answer": answer.name,
            **integration.method.attributes(stepper),
            **run_attributes(result),
            "rtol": asked.rtol,
            "atol": asked.atol,
            **integration.says(values),
            "notes": joined(integration.notes),
        },
        variables=integration.variables,
    )


def _by_name(times: Array, events: Mapping[str, int | None]) -> dict[str, Any]:
    """Return the times of events, one array per name, or one number."""
    found, begin = {}, 0
    for name, count in events.items():
        found[name] = times[begin] if count is None else times[begin : begin + count]
        begin += 1 if count is None else count
    return found
