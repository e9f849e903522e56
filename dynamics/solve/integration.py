"""Every answer that is integrated in time: its arguments are checked, its equations built, run, and labelled.

A public function `solve_*` is a signature and a docstring. It hands its arguments to `solved`, with a function that
builds an `Integration`: a method for a system, the observables of a state, and the attributes of the dataset.

Many small flows are answered together, each phase of the work for all of them before the next phase. A flow of eight
neurons takes two milliseconds of compiled steps. The rest of the work, in Python, takes half as long by phases as flow
by flow, because the processor has the code and data of one phase in its caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from dynamics.cores import one_blas_thread
from dynamics.equations.degrees import DEGREES
from dynamics.equations.interface import takes_stacks
from dynamics.integrators import check_method, stepper_of
from dynamics.integrators.stepper import end_threads, leaping
from dynamics.problem import check_problem
from dynamics.problem.checks import check_choice, check_switch, checked_tolerances
from dynamics.problem.question import KINDS, check_question
from dynamics.problem.schedule import checked_schedule
from dynamics.runs.dataset import dataset_arrays
from dynamics.runs.loop import LOOSER, UnwatchedRun, observer_of, results_of
from dynamics.runs.result import StopReason, checked_outcome, joined, run_attributes, stack_records
from dynamics.runs.run_file import as_run_file
from dynamics.runs.trackers import all_trackers
from dynamics.runs.variables import VARIABLES
from dynamics.solve.registry import registered

if TYPE_CHECKING:
    import os

    import xarray as xr

    from dynamics.equations import System
    from dynamics.integrators import Stepper
    from dynamics.problem import Problem
    from dynamics.problem.schedule import SaveAt
    from dynamics.runs.dataset import DatasetArrays
    from dynamics.runs.loop import LooserRun
    from dynamics.runs.result import RunResult
    from dynamics.runs.run_file import RunFile
    from dynamics.runs.trackers import Soundness, Tracker
    from dynamics.runs.variables import Variable
    from dynamics.solve.registry import Answer
    from hermite import HermiteExpansion
    from hermite.arrays import Array


#: Largest share of a mean that is taken to be left when the order of a link is doubled.
SLOWEST = 0.9


class Settings(NamedTuple):
    """Arguments that all these answers have, and store."""

    save_at: SaveAt | None = None
    keep: str = "full"
    method: str = "auto"
    rtol: float = 1e-8
    atol: float = 1e-10
    error_estimate: bool | None = None


class Watch(NamedTuple):
    """Arguments that watch, bound, end and keep a run, and that are not stored."""

    trackers: Sequence[Tracker] = ()
    progress: bool | None = None
    max_runtime: float | None = None
    on_failure: str = "raise"
    checkpoint: str | os.PathLike[str] | RunFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A call of an answer: the checked values of its `Settings`, its problem, and its file."""

    answer: Answer
    problem: Problem
    save_at: SaveAt | None
    keep: str
    method: str
    rtol: float
    atol: float
    error_estimate: bool | None
    file: RunFile

    @classmethod
    def of(cls, name: str, problem: Problem, settings: Settings, checkpoint: Any = None) -> Run:
        """Return the run of the answer `name`; TypeError or ValueError is raised for bad arguments."""
        answer = registered(name)
        if answer.students[0] in KINDS:
            check_question(problem, answer.students)
        else:
            student = getattr(problem, "kind", None)
            check_problem(problem, student if student in answer.students else answer.students[0], answer.fields)
        method = check_method(settings.method, answer.methods)
        check_choice("keep", settings.keep, ("full", "summary"))
        check_switch("error_estimate", settings.error_estimate, optional=True)
        rtol, atol = checked_tolerances(settings.rtol, settings.atol)
        values = settings._replace(method=method, rtol=rtol, atol=atol)
        return cls(answer=answer, problem=problem, file=as_run_file(checkpoint), **values._asdict())

    def schedule(self, default: Callable[[], SaveAt]) -> SaveAt:
        """Return the saved times; the default is computed where none are given."""
        return checked_schedule(self.save_at, default() if self.save_at is None else self.save_at)

    def estimates(self, method: str) -> bool:
        """Return whether errors are estimated: by default for all methods but those of SciPy."""
        return not method.startswith("scipy:") if self.error_estimate is None else self.error_estimate


class Method(Protocol):
    """A method chosen for a system."""

    name: str

    def stepper(self, rtol: float) -> Stepper:
        """Return a stepper at the start of the system."""
        ...

    def attributes(self, stepper: Stepper) -> Mapping[str, Any]:
        """Return the attributes of a dataset that tell which method ran."""
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


class HalvedOrder(NamedTuple):
    """The same flow with the series of its links cut at half of their order."""

    method: Method
    #: State -> E(f − f*)².
    loss: Callable[[Array], float]
    #: Error of the whole series over the change of the answer.
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Integration:
    """Equations, method, observables and labels of one answer.

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
        Name of the times of events -> their number, None for one without a dim, in the order of the stepper's.
    constants : mapping
        Variables that are known before the run.
    coords : mapping
        Coordinates other than `time`.
    settings : mapping
        Arguments that this answer alone has, as they are stored.
    attributes : callable
        Variables of the dataset -> further attributes.
    notes : sequence of str
    sound : Soundness, optional
        Conditions on each record.
    why_failed : callable
        State at which no step succeeds -> why, None if it is not known.
    loss : callable, optional
        State -> E(f − f*)²; given where errors are estimated by a looser run.
    cut : HalvedOrder, optional
        Given where cutting the series of a link may change the answer by more than the tolerance.
    threads : callable
        Context of the run that holds BLAS to its number of threads.
    warn : callable
        Attributes of the dataset -> None; warns where they are suspect.
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
    attributes: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _values: {}
    notes: Sequence[str] = ()
    sound: Soundness | None = None
    why_failed: Callable[[Array], StopReason | None] = lambda _state: None
    loss: Callable[[Array], float] | None = None
    cut: HalvedOrder | None = None
    threads: Callable[[], AbstractContextManager[None]] = nullcontext
    warn: Callable[[Mapping[str, Any]], None] = lambda _attributes: None
    variables: Mapping[str, Variable] = field(default_factory=lambda: VARIABLES)

    @classmethod
    def of(cls, system: System, run: Run, **values: Any) -> Integration:
        """Return the integration of a system by a method for any system, with the observables of the system.

        Unless `values` differ, its events are the times at which each direction emerges and is learned, its
        coordinates are the neurons of the observables, and its errors are estimated by the loss among them. Degrees are
        added where the loss is told by them.
        """
        P, summary, neurons = run.problem.num_directions, system.observer("summary"), np.arange(run.problem.width)
        given = {
            "coords": {"neuron": neurons} | ({"neuron_2": neurons} if run.keep == "full" else {}),
            **values,
        }
        if system.teacher_by_degree is not None:
            given["coords"] = {**given["coords"], "degree": list(DEGREES)}
            given["constants"] = {**given["constants"], "teacher_by_degree": system.teacher_by_degree}
        return cls(
            **{
                "method": PlainMethod(system, run.method, run.atol),
                "observe": system.observer(run.keep),
                "start": system.initial_state,
                "events": {"emergence_time": P, "learned_time": P},
                "loss": (lambda state: float(summary(state)["loss"])) if run.estimates(run.method) else None,
                **given,
            }
        )


def solved(
    name: str, problem: Problem, settings: Settings, watch: Watch, build: Callable[[Run], Integration]
) -> xr.Dataset:
    """Return the answer `name` to a problem; `build` is as for `solved_contents`."""
    return solved_contents(name, problem, settings, watch, build).dataset()


@np.errstate(under="ignore")
def solved_contents(
    name: str, problem: Problem, settings: Settings, watch: Watch, build: Callable[[Run], Integration]
) -> DatasetArrays:
    """Return the contents of the dataset that `solved` returns, without making the dataset.

    `build` raises TypeError, ValueError or ImportError for bad arguments and missing extras, before any work.
    SolveError and SolveInterrupted are raised as `on_failure` says.
    """
    # === check
    run = Run.of(name, problem, settings, watch.checkpoint)
    check_choice("on_failure", watch.on_failure, ("raise", "return"))
    watchers = all_trackers(watch.trackers, watch.progress, watch.max_runtime)
    # === build
    with one_blas_thread():  # the start has the same bits, whatever runs at the same time
        integration = build(run)
    # === run and label
    result, contents = _run(run, integration, watchers)
    # === return
    integration.warn(contents.attributes)
    reason = result.stop_reason
    if watch.on_failure == "raise" and (reason.failed or reason is StopReason.INTERRUPTED):
        checked_outcome(contents.dataset(), reason, watch.on_failure)
    return contents


def _run(run: Run, integration: Integration, watchers: Sequence[Tracker]) -> tuple[RunResult, DatasetArrays]:
    """Return how the run ended, and the contents of its dataset."""
    from dynamics.runs.loop import run_with_file

    with ExitStack() as context:
        context.enter_context(integration.threads())
        stepper = integration.method.stepper(run.rtol)
        context.callback(end_threads, stepper)
        beside = None if integration.loss is None else context.enter_context(_looser_run(run, integration))

        def labelled_so_far(result: RunResult, looser: RunResult | None) -> DatasetArrays:
            return labelled(run, integration, stepper, result, looser, None if beside is None else beside.cut())

        return run_with_file(
            stepper,
            integration.schedule.times,
            integration.observe,
            labelled_so_far,
            file=run.file,
            trackers=watchers,
            looser_run=beside,
            sound=integration.sound,
            why_failed=integration.why_failed,
        )


def _looser_run(run: Run, integration: Integration) -> LooserRun:
    """Return the looser run, begun in a second thread."""
    from dynamics.runs.loop import LOOSER, LOOSER_RUN, LooserRun, begun_snapshot

    loss: Any = integration.loss
    stepper = integration.method.stepper(LOOSER * run.rtol)
    cut = integration.cut and (integration.cut.method.stepper(LOOSER * run.rtol), integration.cut.loss)
    return LooserRun(stepper, loss, integration.schedule.times, begun_snapshot(run.file, LOOSER_RUN), cut)


def labelled(
    run: Run,
    integration: Integration,
    stepper: Stepper,
    result: RunResult,
    looser: RunResult | None,
    cut: RunResult | None = None,
) -> DatasetArrays:
    """Return the contents of the dataset of a run, wherever it stands."""
    count = len(integration.schedule)
    values: dict[str, Any] = {
        **stack_records(result.records, count, lambda: integration.observe(integration.start)),
        **integration.constants,
        **_by_name(result.event_times, integration.events),
    }
    if looser is not None:
        from dynamics.runs.loop import estimated_errors, truncation_errors

        errors = {"error": estimated_errors(result, looser, integration.schedule.times, run.rtol)}
        if integration.cut is not None:
            errors["truncation_error"] = truncation_errors(looser, cut, count, integration.cut.factor)
        for kind, (loss, events) in errors.items():
            values[f"loss_{kind}"] = loss
            values |= {f"{name}_{kind}": times for name, times in _by_name(events, integration.events).items()}
    shared = {"method": run.method, "rtol": run.rtol, "atol": run.atol, "keep": run.keep}
    if run.answer.can("estimate"):
        shared["error_estimate"] = run.error_estimate
    return dataset_arrays(
        values,
        problem=run.problem,
        title=integration.title,
        coords={"time": integration.schedule.times, **integration.coords},
        solver={"answer": run.answer.name, **shared, **integration.settings},
        attributes={
            "answer": run.answer.name,
            **integration.method.attributes(stepper),
            **run_attributes(result),
            "rtol": run.rtol,
            "atol": run.atol,
            **integration.attributes(values),
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


def halved(problem: Problem, rtol: float) -> tuple[Problem, float] | None:
    """Return the problem with links of half their order, and the factor from its distance to the error of the whole.

    The means of a flow leave out tails of Σ c_j² and of Σ j c_j², or of the products of student's and teacher's
    coefficients, which are no larger than both. If they fall like powers of the order J, the share of the latter that
    is left from J/2 to J is ρ = 2 tail(J)/tail(J/2), and the error is ρ/(1 − ρ) times the change. ρ near 1 would say
    that g'(1) has no limit; it counts as `SLOWEST` at most. Return None where the tails are below the tolerance.
    """
    links = {name: getattr(problem, name) for name in ("activation", "teacher_activation")}
    cut = {name: link for name, link in links.items() if link is not None and _is_seen(link, rtol)}
    halves: dict[str, Any] = {
        name: replace(link, coefficients=link.coefficients[: link.order // 2 + 1]) for name, link in cut.items()
    }
    if not halves or not all(np.any(np.abs(half.coefficients[1:]) > half.tolerance) for half in halves.values()):
        return None
    shares = [2.0 * (cut[name].truncation_error / half.truncation_error) ** 2 for name, half in halves.items()]
    share = min(max(shares), SLOWEST)
    order = {"order": halves["activation"].order} if "activation" in halves else {}
    return replace(problem, **halves, **order), share / (1.0 - share)


def _is_seen(link: HermiteExpansion, rtol: float) -> bool:
    """Return whether the tail of a series exceeds the least error of integration that is told."""
    from dynamics.runs.loop import LEAST

    return bool(link.order * link.truncation_error**2 > LEAST * rtol * link.norm_squared)


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
