"""Every answer that is integrated in time: its arguments are checked, its equations built, run, and labelled.

A public function `solve_*` is a function of a `Run` and of the arguments that this answer alone has, which returns an
`Integration`: a method for a system, the observables of a state, and the attributes of the dataset. `integrated` makes
it a function of a problem and of all arguments.

Many small flows are answered together, each phase of the work for all of them before the next phase. A flow of eight
neurons takes two milliseconds of compiled steps. The rest of the work, in Python, takes half as long by phases as flow
by flow, because the processor has the code and data of one phase in its caches.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

import numpy as np

from dynamics.cores import one_blas_thread
from dynamics.equations.interface import takes_stacks
from dynamics.equations.losses import DEGREES
from dynamics.integrators import Stepper, check_method, stepper_of
from dynamics.integrators.stepper import end_threads, leaping
from dynamics.problem import Problem, check_problem
from dynamics.problem.checks import check_choice, check_switch, checked_tolerances
from dynamics.problem.question import KINDS, check_question
from dynamics.problem.schedule import SaveAt, checked_schedule
from dynamics.runs.dataset import DatasetArrays, dataset_arrays
from dynamics.runs.loop import (
    LEAST,
    LOOSER,
    LOOSER_RUN,
    LooserRun,
    UnwatchedRun,
    begun_snapshot,
    estimated_errors,
    observer_of,
    results_of,
    run_with_file,
    truncation_errors,
)
from dynamics.runs.result import RunResult, StopReason, failed_outcome, run_attributes, stack_records
from dynamics.runs.run_file import RunFile, as_run_file
from dynamics.runs.trackers import Soundness, Tracker, all_trackers
from dynamics.runs.variables import VARIABLES, Variable
from dynamics.solve.registry import Answer, registered
from hermite import HermiteExpansion
from hermite.arrays import Array
from hermite.text.messages import refuse

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.equations import System


#: Largest share of a mean that is taken to be left when the order of a link is doubled.
SLOWEST = 0.9
#: The shared arguments that change an answer, in the order in which its file has them.
STORED = ("method", "rtol", "atol", "keep", "error_estimate")


class Solver(Protocol):
    """A public function `solve_*`: the arguments that all of them share, explained by `dynamics.solve_overlaps`."""

    def __call__(
        self,
        problem: Any,
        *,
        save_at: SaveAt | None = None,
        keep: Literal["full", "summary"] = "full",
        method: str = "auto",
        rtol: float = 1e-8,
        atol: float = 1e-10,
        trackers: Sequence[Tracker] = (),
        progress: bool | None = None,
        max_runtime: float | None = None,
        on_failure: Literal["raise", "return"] = "raise",
        error_estimate: bool | None = None,
        checkpoint: str | os.PathLike[str] | RunFile | None = None,
        **own: Any,
    ) -> xr.Dataset:
        """Return the answer to a problem; `own` are arguments of this answer alone."""


def integrated(
    answer: str,
    *,
    check: Callable[[Any], None] = lambda _problem: None,
    lacks: Sequence[str] = (),
    before: str = "trackers",
    question: str = "problem",
    **defaults: object,
) -> Callable[[Callable[..., Integration]], Solver]:
    """Make a function of a `Run` and of its own arguments, which returns an `Integration`, the function of an answer.

    That takes a problem, named `question`, and the shared arguments but those that it `lacks`, with these `defaults`;
    its own ones stand before the shared one named `before`. `check` refuses problems before anything else is looked at.
    """
    shared = [
        each.replace(name=question if name == "problem" else name, default=defaults.get(name, each.default))
        for name, each in list(inspect.signature(Solver.__call__).parameters.items())[1:-1]
        if name not in lacks
    ]

    def decorate(build: Callable[..., Integration]) -> Solver:
        place = [each.name for each in shared].index(before)
        own = list(inspect.signature(build).parameters.values())[1:]
        signature = inspect.Signature([*shared[:place], *own, *shared[place:]], return_annotation="xr.Dataset")

        @wraps(build)
        def solve(*arguments: Any, **named: Any) -> xr.Dataset:
            try:
                bound = signature.bind(*arguments, **named)
            except TypeError as error:
                refuse(f"{build.__name__}() {error}", TypeError)
            bound.apply_defaults()
            given = dict(bound.arguments)
            problem = given.pop(question)
            check(problem)
            return solved_contents(answer, problem, build, given).dataset()

        vars(solve)["__signature__"] = signature
        return cast("Solver", solve)

    return decorate


@dataclass(frozen=True, slots=True)
class Run:
    """A call of an answer: its problem, the checked values of the shared arguments, and its file."""

    answer: Answer
    problem: Problem
    #: All arguments as they were given.
    given: Mapping[str, Any]
    save_at: SaveAt | None
    keep: str
    method: str
    rtol: float
    atol: float
    error_estimate: bool | None
    file: RunFile
    #: What the answer has computed for many problems at once.
    prepared: Any = None

    @classmethod
    def of(cls, name: str, problem: Problem, given: Mapping[str, Any], prepared: Any = None) -> Run:
        """Return the run of the answer `name`; TypeError or ValueError is raised for bad arguments."""
        answer = registered(name)
        if answer.students[0] in KINDS:
            check_question(problem, answer.students)
        else:
            student = getattr(problem, "kind", None)
            check_problem(problem, student if student in answer.students else answer.students[0], answer.fields)
        method = check_method(given["method"], answer.methods) if answer.methods else ""
        keep, estimate = given.get("keep", "full"), given.get("error_estimate")
        check_choice("keep", keep, ("full", "summary"))
        check_switch("error_estimate", estimate, optional=True)
        rtol, atol = checked_tolerances(given["rtol"], given["atol"]) if "rtol" in given else (0.0, 0.0)
        file, times = as_run_file(given.get("checkpoint")), given["save_at"]
        return cls(answer, problem, given, times, keep, method, rtol, atol, estimate, file, prepared)

    def schedule(self, default: Callable[[], SaveAt]) -> SaveAt:
        """Return the saved times; the default is computed where none are given."""
        return checked_schedule(self.save_at, default() if self.save_at is None else self.save_at)

    def estimates(self, method: str) -> bool:
        """Return whether errors are estimated: by default for all methods but those of SciPy."""
        return not method.startswith("scipy:") if self.error_estimate is None else self.error_estimate

    def neurons(self) -> dict[str, Any]:
        """Return the coordinates of overlaps of neurons."""
        numbers = np.arange(self.problem.width)
        return {"neuron": numbers} | ({"neuron_2": numbers} if self.keep == "full" else {})

    def built(self, build: Callable[..., Integration]) -> Integration:
        """Return what a function of a run and of the answer's own arguments makes of them."""
        own = list(inspect.signature(build).parameters)[1:]
        return build(self, **{name: self.given[name] for name in own})

    def cut(self, make: Callable[[Problem], tuple[Method, Callable[[Array], float]]]) -> HalvedOrder | None:
        """Return the flow that `make` builds with links of half their order; None where cutting them is not seen."""
        half = halved(self.problem, self.rtol)
        return None if half is None else HalvedOrder(*make(half[0]), half[1])


class Method(Protocol):
    """A method chosen for a system."""

    name: str

    def stepper(self, rtol: float) -> Stepper:
        """Return a stepper at the start of the system."""

    def attributes(self, stepper: Stepper) -> Mapping[str, Any]:
        """Return the attributes of a dataset that tell which method ran."""


@dataclass
class PlainMethod:
    """A method of `dynamics.integrators` for any system."""

    system: System
    name: str
    atol: float
    make: Callable[..., Stepper] = stepper_of
    compile_seconds: float = field(default=0.0, init=False)

    def stepper(self, rtol: float) -> Stepper:
        """Return a stepper at the start of the system."""
        began = time.perf_counter()
        stepper = self.make(self.system, self.name, rtol=rtol, atol=self.atol)
        # The second stepper finds its code in memory.
        self.compile_seconds = max(time.perf_counter() - began, self.compile_seconds)
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
    """Equations, method, observables and labels of one answer."""

    title: str
    schedule: SaveAt
    method: Method
    #: State -> named observables, one record per saved time.
    observe: Callable[[Array], Mapping[str, Any]]
    #: A state, whose record tells the shapes.
    start: Array
    #: Name of the times of events -> their number, None for one without a dim, in the order of the stepper's.
    events: Mapping[str, int | None]
    #: Variables that are known before the run.
    constants: Mapping[str, Any]
    #: Coordinates other than `time`.
    coords: Mapping[str, Any] = field(default_factory=dict)
    #: Arguments that this answer alone has, as they are stored.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: Variables of the dataset -> further attributes.
    attributes: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _values: {}
    notes: Sequence[str] = ()
    #: Conditions on each record.
    sound: Soundness | None = None
    #: State at which no step succeeds -> why, None if it is not known.
    why_failed: Callable[[Array], StopReason | None] = lambda _state: None
    #: State -> E(f − f*)²; given where errors are estimated by a looser run.
    loss: Callable[[Array], float] | None = None
    #: Given where cutting the series of a link may change the answer by more than the tolerance.
    cut: HalvedOrder | None = None
    #: Context of the run that holds BLAS to its number of threads.
    threads: Callable[[], AbstractContextManager[None]] = nullcontext
    #: Attributes of the dataset -> None; warns where they are suspect.
    warn: Callable[[Mapping[str, Any]], None] = lambda _attributes: None
    #: Name -> how a variable is labelled.
    variables: Mapping[str, Variable] = field(default_factory=lambda: VARIABLES)

    @classmethod
    def of(cls, system: System, run: Run, **values: Any) -> Integration:
        """Return the integration of a system by a method for any system, with the observables of the system.

        Unless `values` differ, its events are the times at which each direction emerges and is learned, its
        coordinates are the neurons of the observables, and its errors are estimated by the loss among them. Degrees are
        added where the loss is told by them.
        """
        P, summary = run.problem.num_directions, system.observer("summary")
        given = {
            "method": PlainMethod(system, run.method, run.atol),
            "observe": system.observer(run.keep),
            "start": system.initial_state,
            "events": {"emergence_time": P, "learned_time": P},
            "loss": (lambda state: float(summary(state)["loss"])) if run.estimates(run.method) else None,
            "coords": run.neurons(),
            **values,
        }
        if system.teacher_by_degree is not None:
            given["coords"] = {**given["coords"], "degree": list(DEGREES)}
            given["constants"] = {**given["constants"], "teacher_by_degree": system.teacher_by_degree}
        return cls(**given)


@np.errstate(under="ignore")
def solved_contents(
    name: str, problem: Problem, build: Callable[..., Integration], given: Mapping[str, Any], prepared: Any = None
) -> DatasetArrays:
    """Return the contents of the dataset of the answer `name`, without making the dataset.

    `build` is as for `integrated`, and `given` are all arguments by name. `build` raises TypeError, ValueError or
    ImportError for bad arguments and missing extras, before any work. SolveError and SolveInterrupted are raised as
    `on_failure` says.
    """
    # === check
    run, on_failure = Run.of(name, problem, given, prepared), given["on_failure"]
    check_choice("on_failure", on_failure, ("raise", "return"))
    watchers = all_trackers(given["trackers"], given["progress"], given["max_runtime"])
    # === build
    with one_blas_thread():  # the start has the same bits, whatever runs at the same time
        integration = run.built(build)
    # === run and label
    result, contents = _run(run, integration, watchers)
    # === return
    integration.warn(contents.attributes)
    reason = result.stop_reason
    if on_failure == "raise" and (reason.failed or reason is StopReason.INTERRUPTED):
        raise failed_outcome(contents.dataset(), reason)
    return contents


def _run(run: Run, integration: Integration, watchers: Sequence[Tracker]) -> tuple[RunResult, DatasetArrays]:
    with ExitStack() as context:
        context.enter_context(integration.threads())
        stepper, times, beside = integration.method.stepper(run.rtol), integration.schedule.times, None
        context.callback(end_threads, stepper)
        if integration.loss is not None:
            looser = integration.method.stepper(LOOSER * run.rtol)
            cut = integration.cut and (integration.cut.method.stepper(LOOSER * run.rtol), integration.cut.loss)
            begun = begun_snapshot(run.file, LOOSER_RUN)
            beside = context.enter_context(LooserRun(looser, integration.loss, times, begun, cut))

        def labelled_so_far(result: RunResult, looser: RunResult | None) -> DatasetArrays:
            return labelled(run, integration, stepper, result, looser, None if beside is None else beside.cut())

        return run_with_file(
            stepper,
            times,
            integration.observe,
            labelled_so_far,
            file=run.file,
            trackers=watchers,
            looser_run=beside,
            sound=integration.sound,
            why_failed=integration.why_failed,
        )


def labelled(
    run: Run,
    integration: Integration,
    stepper: Stepper,
    result: RunResult,
    looser: RunResult | None,
    cut: RunResult | None = None,
) -> DatasetArrays:
    """Return the contents of the dataset of a run, wherever it stands."""
    count, events = len(integration.schedule), integration.events
    values: dict[str, Any] = {
        **stack_records(result.records, count, lambda: integration.observe(integration.start)),
        **integration.constants,
        **_by_name(result.event_times, events),
    }
    if looser is not None:
        errors = {"error": estimated_errors(result, looser, integration.schedule.times, run.rtol)}
        if integration.cut is not None:
            errors["truncation_error"] = truncation_errors(looser, cut, count, integration.cut.factor)
        for kind, (loss, times) in errors.items():
            values[f"loss_{kind}"] = loss
            values |= {f"{name}_{kind}": each for name, each in _by_name(times, events).items()}
    shared: dict[str, Any] = {name: getattr(run, name) for name in STORED if name in run.given}
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
            **{name: shared[name] for name in ("rtol", "atol") if name in shared},
            **integration.attributes(values),
            "notes": "; ".join(integration.notes),
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
    halves: dict[str, Any] = {}
    share = 0.0
    for name in ("activation", "teacher_activation"):
        link: HermiteExpansion | None = getattr(problem, name)
        if link is None or link.order * link.truncation_error**2 <= LEAST * rtol * link.norm_squared:
            continue
        half = halves[name] = replace(link, coefficients=link.coefficients[: link.order // 2 + 1])
        if not np.any(np.abs(half.coefficients[1:]) > half.tolerance):
            return None
        share = min(max(share, 2.0 * (link.truncation_error / half.truncation_error) ** 2), SLOWEST)
    if not halves:
        return None
    order = {"order": halves["activation"].order} if "activation" in halves else {}
    return replace(problem, **halves, **order), share / (1.0 - share)


class Call(NamedTuple):
    """A problem, arguments other than by default, and what was prepared for it together with others."""

    problem: Any
    arguments: Mapping[str, Any]
    prepared: Any = None

    def run(self, answer: Answer) -> tuple[Run, Integration]:
        """Return the call's run, and what it integrates; no step is taken."""
        run = Run.of(answer.name, self.problem, {**answer.defaults(), **self.arguments}, self.prepared)
        return run, run.built(answer.build())

    def contents(self, answer: Answer) -> DatasetArrays:
        """Return the contents of the dataset of the call."""
        given = {**answer.defaults(), **self.arguments}
        return solved_contents(answer.name, self.problem, answer.build(), given, self.prepared)


def contents_together(answer: Answer, calls: Sequence[Call], until: float) -> list[DatasetArrays | None]:
    """Return what `solved_contents` returns for the first of some calls, to the last bit; None where it would raise.

    BLAS must have one thread, and the calls have no trackers, checkpoint or budget of time. After the time `until` of
    `time.monotonic` no run is begun but the first. TypeError, ValueError or ImportError is raised for bad arguments of
    one of the calls, before any step.
    """
    flows = [_Flow(answer, call) for call in calls]
    for flow in flows:
        flow.begin()
    alike: dict[object, list[_Flow]] = {}
    for count, flow in enumerate(flows):
        if count and time.monotonic() > until:
            flows = flows[:count]
            break
        flow.follow()
        if flow.runs:
            alike.setdefault(flow.alike or flow, []).append(flow)
    for together in alike.values():
        first = together[0].integration
        results = [results_of([flow.runs[0] for flow in together], first.observe, first.sound)]
        if first.loss is not None:
            results.append(results_of([flow.runs[1] for flow in together], observer_of(first.loss)))
        for flow, own in zip(together, zip(*results, strict=True), strict=True):
            flow.results = list(own)
    return [flow.contents() for flow in flows]


class _Flow:
    """One call: checked and built at first, then begun, followed to its end, observed, and labelled."""

    def __init__(self, answer: Answer, call: Call) -> None:
        self._answer, self._call = answer, call
        self._run, self.integration = call.run(answer)
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
                self._alone = self._call.contents(self._answer)

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
