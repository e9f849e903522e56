"""Every answer that is integrated in time: its arguments are checked, its equations built, run, and labelled.

A public function `solve_*` is a function of a `Run` and of the arguments that this answer alone has, which returns an
`Integration`: a method for a system, the observables of a state, and the attributes of the dataset. `integrated` makes
it a function of a problem and of all arguments.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

import numpy as np

from dynamics.cores import one_blas_thread
from dynamics.equations.losses import DEGREES
from dynamics.integrators import Stepper, check_method, stepper_of
from dynamics.integrators.stepper import end_threads
from dynamics.kernels.compilation import compilation_of_run, note_compiled
from dynamics.kernels.compile_time import compiled_seconds
from dynamics.problem import Problem, check_problem
from dynamics.problem.checks import check_choice, check_switch, checked_tolerances
from dynamics.problem.hints import check_names
from dynamics.problem.question import KINDS, check_question
from dynamics.problem.schedule import SaveAt, schedule_until
from dynamics.runs import loop
from dynamics.runs.compiling import Expected, expected_compilation, noticed_compilation
from dynamics.runs.dataset import make_dataset
from dynamics.runs.result import RunResult, SolveError, SolveInterrupted, StopReason, stack_records
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


#: Arguments that do not change which functions are compiled.
WITHOUT_FUNCTIONS = ("save_at", "t_max", "trackers", "progress", "max_runtime", "on_failure", "checkpoint")


class Solver(Protocol):
    """A public function `solve_*`: the arguments that all of them share, which `SHARED` explains."""

    def __call__(
        self,
        problem: Any,
        *,
        save_at: SaveAt | None = None,
        t_max: float | None = None,
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


#: Text on the shared arguments, for docstrings of answers.
SHARED = """\
t_max : float, optional
    Last saved time, in place of that of the default times; only without `save_at`.
keep : {"full", "summary"}
    Whether all observables are saved at every time, or "summary" leaves out large ones, as said under Returns.
method : {METHODS}
    Of those in the list, "explicit" is of order 8; "bdf" is matrix-free, of order 1 to 5; "sundials" is CVODE (an
    extra); "scipy:<name>" are referees; "map" takes every step of momentum and averages, of which "auto" passes over
    most; of others "auto" is "explicit" while that is cheap, else a method for stiff equations.
rtol, atol : float
    Wanted accuracy of the state, from which each method takes its tolerances per step.
trackers : sequence of Tracker
    Watch the run and may stop it.
progress : bool, optional
    Progress bar on stderr; by default if stderr is a terminal.
max_runtime : float, optional
    Wall-clock budget in seconds. Times after an early stop hold NaN; the attribute `stop_reason` says why it was.
on_failure : {"raise", "return"}
    What to do when the integration fails or is interrupted: raise with the partial dataset attached, or return it.
error_estimate : bool, optional
    Solve once more at ten times the tolerance, in a second thread, and report what that says about the errors of loss
    and times of events, in variables that end in `_error`: two thirds more work. They are inf if the looser run does
    not agree that an event happens. Where cutting the series of a link may change more than the tolerance, solve once
    more with half of its order, for variables that end in `_truncation_error`. By default for all methods but referees.
checkpoint : path or RunFile, optional
    File that holds the result in the end and, every 30 seconds until then, what was computed. `dynamics.resume` goes on
    from it if the run ends early, but for "sundials" and "scipy:<name>"."""
#: Errors of every answer, for docstrings.
RAISES = """\
Raises
------
SolveError
    If the integration fails and `on_failure` is "raise"; `error.dataset` holds what was computed.
SolveInterrupted
    A KeyboardInterrupt with `dataset`, if Ctrl-C was pressed and `on_failure` is "raise".
TypeError, ValueError, ImportError
    For bad arguments or a missing extra, before any work."""


def integrated(
    name: str,
    *,
    check: Callable[[Any], None] = lambda _problem: None,
    lacks: Sequence[str] = (),
    before: str = "trackers",
    question: str = "problem",
    **defaults: object,
) -> Callable[[Callable[..., Integration]], Solver]:
    """Turn a function of a `Run` and further arguments, which returns an `Integration`, into the function of an answer.

    That takes a problem, named `question`, and the shared arguments but those that it `lacks`, with these `defaults`;
    its own ones stand before the shared one named `before`. `check` refuses problems before anything else is looked at.
    """
    every = list(inspect.signature(Solver.__call__).parameters.values())[1:-1]
    shared = [each.replace(default=defaults.get(each.name, each.default)) for each in every if each.name not in lacks]
    shared[0] = shared[0].replace(name=question)

    def decorate(build: Callable[..., Integration]) -> Solver:
        place = [each.name for each in shared].index(before)
        own = list(inspect.signature(build).parameters.values())[1:]
        signature = inspect.Signature([*shared[:place], *own, *shared[place:]], return_annotation="xr.Dataset")

        @wraps(build)
        def solve(*arguments: Any, **named: Any) -> xr.Dataset:
            check_names(build.__name__, named, signature.parameters)
            try:
                given = dict(signature.bind(*arguments, **named).arguments)
            except TypeError as error:
                refuse(f"{build.__name__}() {error}", TypeError)
            problem = given.pop(question)
            check(problem)
            return Run.of(registered(name), problem, given, build).dataset()

        solve.__doc__ = _told(build.__doc__ or "", {each.name for each in shared}, registered(name).methods)
        vars(solve)["__signature__"] = signature
        return cast("Solver", solve)

    return decorate


@cache
def _own_arguments(build: Callable[..., Integration]) -> list[str]:
    """Return the names of the arguments of an answer behind its run."""
    return list(inspect.signature(build).parameters)[1:]


def _told(own: str, names: Collection[str], methods: Sequence[str]) -> str:
    """Return the docstring of an answer, with the shared arguments and errors where numpydoc wants them."""
    menu = dict.fromkeys(f'"{re.sub(":.*", ":<name>", each)}"' for each in methods)
    shared = SHARED.replace("METHODS", ", ".join(menu))
    entries = [each for each in re.split(r"\n(?=\w)", shared) if re.split(r"\W", each, maxsplit=1)[0] in names]
    sections = re.split(r"\n\n(?=[A-Z]\w+\n---)", inspect.cleandoc(own))
    after = (i for i, each in enumerate(sections) if each.startswith(("Warns", "Notes", "References", "Examples")))
    place = next(after, len(sections))
    sections[place:place] = ["\n".join(["Other Parameters\n----------------", *entries]), RAISES]
    return "\n\n".join(sections)


@dataclass(frozen=True, slots=True)
class Run:
    """A call of an answer: its problem, the checked values of the shared arguments, and its file."""

    answer: Answer
    problem: Problem
    #: Function of a run and of the answer's further arguments that returns the integration.
    build: Callable[..., Integration]
    #: All arguments as they were given, or their defaults.
    given: Mapping[str, Any]
    save_at: SaveAt | None
    keep: str
    method: str
    rtol: float
    atol: float
    error_estimate: bool | None
    file: RunFile

    @classmethod
    def of(
        cls,
        answer: Answer,
        problem: Any,
        arguments: Mapping[str, Any],
        build: Callable[..., Integration] | None = None,
    ) -> Run:
        """Return the run of a call, with defaults for missing arguments."""
        if answer.students[0] in KINDS:
            check_question(problem, answer.students)
        else:
            student = getattr(problem, "kind", None)
            check_problem(problem, student if student in answer.students else answer.students[0], answer.fields)
        given = {**answer.defaults(), **arguments}
        method = check_method(given["method"], answer.methods) if answer.methods else ""
        keep, estimate = given.get("keep", "full"), given.get("error_estimate")
        check_choice("keep", keep, ("full", "summary"))
        check_switch("error_estimate", estimate, optional=True)
        rtol, atol = checked_tolerances(given["rtol"], given["atol"]) if "rtol" in given else (0.0, 0.0)
        file, build = as_run_file(given.get("checkpoint")), build or inspect.unwrap(answer.solve())
        return cls(answer, problem, build, given, given["save_at"], keep, method, rtol, atol, estimate, file)

    def schedule(self, default: Callable[[], SaveAt]) -> SaveAt:
        """Return the saved times; the default is computed where none are given."""
        given = self.save_at
        return schedule_until(given, self.given.get("t_max"), default() if given is None else given)

    def estimates(self, method: str) -> bool:
        """Return whether errors are estimated: by default for all methods but those of SciPy."""
        return not method.startswith("scipy:") if self.error_estimate is None else self.error_estimate

    def neurons(self) -> dict[str, Any]:
        """Return the coordinates of overlaps of neurons."""
        numbers = np.arange(self.problem.width)
        return {"neuron": numbers} | ({"neuron_2": numbers} if self.keep == "full" else {})

    def cut(self, make: Callable[[Problem], tuple[Method, Callable[[Array], float]]]) -> HalvedOrder | None:
        """Return the flow that `make` builds with links of half their order; None where cutting them is not seen."""
        half = halved(self.problem, self.rtol)
        return None if half is None else HalvedOrder(*make(half[0]), half[1])

    def built(self) -> Integration:
        """Return the integration without taking a step."""
        return self.build(self, **{name: self.given[name] for name in _own_arguments(self.build)})

    def expected_compilation(self) -> Expected | None:
        """Return what the first run of this kind compiles, None if that is not known."""
        decouples = getattr(self.problem, "information_exponent", 3) >= 3
        has_optimizer = self.given.get("optimizer") is not None
        return expected_compilation(self.answer.name, has_optimizer=has_optimizer, decouples=decouples)

    def kind_of_question(self) -> str:
        """Return a text that two runs share which need the same functions: it lacks most numbers."""
        settings = {name: value for name, value in self.given.items() if name not in WITHOUT_FUNCTIONS}
        sizes = [getattr(self.problem, name, None) for name in ("width", "num_directions")]
        return repr((self.answer.name, sizes, _kinds(self.problem.parameters()), _kinds(settings)))

    @np.errstate(under="ignore")
    def dataset(self) -> xr.Dataset:
        """Return the dataset of the answer; raise SolveError or SolveInterrupted as `on_failure` says."""
        on_failure = self.given["on_failure"]
        check_choice("on_failure", on_failure, ("raise", "return"))
        watchers = all_trackers(self.given["trackers"], self.given["progress"], self.given["max_runtime"])
        with noticed_compilation(self.given["progress"], self.expected_compilation()), compilation_of_run():
            with one_blas_thread():  # the start has the same bits, whatever runs at the same time
                integration = self.built()
            result, dataset = integration.carried_out(self, watchers)
        if result.stop_reason is StopReason.REACHED_END:
            note_compiled(self.kind_of_question())
        integration.warn(dataset.attrs)
        reason = result.stop_reason
        msg = f"The {self.answer.name} solve stopped at t = {result.end_time:.6g} ({reason})"
        if on_failure == "raise" and reason is StopReason.INTERRUPTED:
            raise SolveInterrupted(msg, dataset)
        msg = f"{msg}. {reason.advice}"
        if on_failure == "raise" and reason.failed:
            raise SolveError(msg, dataset)
        return dataset


def _kinds(value: Any) -> Any:
    """Return a value with texts and switches as they are, and anything else by its type."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        return {name: _kinds(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return sorted({repr(_kinds(part)) for part in value})
    return type(value).__name__


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

    def stepper(self, rtol: float) -> Stepper:
        """Return a stepper at the start of the system."""
        return self.make(self.system, self.name, rtol=rtol, atol=self.atol)

    def attributes(self, _stepper: Stepper) -> Mapping[str, Any]:
        """Return name and compile time."""
        return {"method": self.name, "compile_seconds": compiled_seconds()}


class HalvedOrder(NamedTuple):
    """The same flow with the series of its links cut at half of their order, and its E(f − f*)² of a state."""

    method: Method
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
    #: A state; its record tells the shapes.
    start: Array
    #: Name of the times of events -> their number, None for one without a dim, in the order of the stepper's.
    events: Mapping[str, int | None]
    #: Variables that are known before the run, and coordinates other than `time`.
    constants: Mapping[str, Any]
    coords: Mapping[str, Any] = field(default_factory=dict)
    #: Arguments that this answer alone has, as they are stored.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: Variables of the dataset -> further attributes.
    attributes: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _values: {}
    notes: Sequence[str] = ()
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
        """Return the integration of a system by a method for any system, with its observables and directions' events.

        `values` differ from that, or are further ones; degrees are added where the loss is told by them.
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

    def carried_out(self, run: Run, trackers: Sequence[Tracker]) -> tuple[RunResult, xr.Dataset]:
        """Return the result of the run and its dataset."""
        with ExitStack() as context:
            context.enter_context(self.threads())
            stepper, times, beside = self.method.stepper(run.rtol), self.schedule.times, None
            context.callback(end_threads, stepper)
            if self.loss is not None:
                looser = self.method.stepper(loop.LOOSER * run.rtol)
                cut = self.cut and (self.cut.method.stepper(loop.LOOSER * run.rtol), self.cut.loss)
                begun = loop.begun_snapshot(run.file, loop.LOOSER_RUN)
                beside = context.enter_context(loop.LooserRun(looser, self.loss, times, begun, cut))

            def labelled_so_far(result: RunResult, looser: RunResult | None) -> xr.Dataset:
                return self.labelled(run, stepper, result, looser, None if beside is None else beside.cut())

            follow = partial(loop.run, stepper, times, self.observe, sound=self.sound, why_failed=self.why_failed)
            return loop.run_with_file(
                follow, stepper, labelled_so_far, file=run.file, trackers=trackers, looser_run=beside
            )

    def labelled(
        self, run: Run, stepper: Stepper, result: RunResult, looser: RunResult | None, cut: RunResult | None = None
    ) -> xr.Dataset:
        """Return the dataset of a run, wherever it stands."""
        count, times = len(self.schedule), self.schedule.times
        values: dict[str, Any] = {
            **stack_records(result.records, count, lambda: self.observe(self.start)),
            **self.constants,
            **self._by_name(result.event_times),
        }
        if looser is not None:
            errors = {"error": loop.estimated_errors(result, looser, times, run.rtol)}
            if self.cut is not None:
                errors["truncation_error"] = loop.truncation_errors(looser, cut, count, self.cut.factor)
            for kind, (of_loss, of_events) in errors.items():
                values[f"loss_{kind}"] = of_loss
                values |= {f"{name}_{kind}": each for name, each in self._by_name(of_events).items()}
        shared: dict[str, Any] = {name: getattr(run, name) for name in STORED if name in run.given}
        return make_dataset(
            values,
            problem=run.problem,
            title=self.title,
            coords={"time": times, **self.coords},
            solver={"answer": run.answer.name, **shared, **self.settings},
            attributes={
                "answer": run.answer.name,
                **self.method.attributes(stepper),
                "stop_reason": str(result.stop_reason),
                "stop_message": result.stop_reason.advice,
                "end_time": result.end_time,
                "solve_seconds": result.solve_seconds,
                "tracker_seconds": result.tracker_seconds,
                **result.statistics,
                **{name: shared[name] for name in ("rtol", "atol") if name in shared},
                **self.attributes(values),
                "notes": "; ".join(self.notes),
            },
            variables=self.variables,
        )

    def _by_name(self, times: Array) -> dict[str, Any]:
        """Return the times of events, one array per name, or one number."""
        found, end = dict[str, Any](), 0
        for name, count in self.events.items():
            found[name] = times[end] if count is None else times[end : end + count]
            end += 1 if count is None else count
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
        if link is None or link.order * link.truncation_error**2 <= loop.LEAST * rtol * link.norm_squared:
            continue
        half = halves[name] = replace(link, coefficients=link.coefficients[: link.order // 2 + 1])
        if not np.any(np.abs(half.coefficients[1:]) > half.tolerance):
            return None
        share = min(max(share, 2.0 * (link.truncation_error / half.truncation_error) ** 2), SLOWEST)
    if not halves:
        return None
    order = {"order": halves["activation"].order} if "activation" in halves else {}
    return replace(problem, **halves, **order), share / (1.0 - share)
