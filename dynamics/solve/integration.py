"""Every answer that is integrated in time: its arguments are checked, its equations built, run, and labelled.

A public function `solve_*` names a function of an `AnswerCall` and of the arguments that this answer alone has. It
returns an `Integration`: a method for a system, the observables of a state, and the attributes of the dataset.
`integrate` calls it, and runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Protocol, cast

import numpy as np

from dynamics.cores import one_blas_thread
from dynamics.equations.losses import DEGREES
from dynamics.integrators import Stepper, check_method, stepper_of
from dynamics.integrators.stepper import end_threads
from dynamics.kernels.compilation import compilation_of_run, note_compiled
from dynamics.kernels.compile_time import compiled_seconds
from dynamics.problem import Problem, check_problem
from dynamics.problem.checks import check_choice, check_switch, checked_tolerances
from dynamics.problem.question import KINDS, check_question
from dynamics.problem.saved_times import SaveAt, saved_until
from dynamics.runs import loop
from dynamics.runs.compiling import Expected, expected_compilation, noticed_compilation
from dynamics.runs.dataset import make_dataset
from dynamics.runs.result import RunResult, SolveError, SolveInterrupted, StopReason, stack_records
from dynamics.runs.run_file import RunFile, as_run_file
from dynamics.runs.trackers import Soundness, Tracker, all_trackers
from dynamics.runs.variables import VARIABLES, Variable
from dynamics.solve.arguments import DEFAULTS, Shared
from dynamics.solve.registry import Answer, registered
from hermite.arrays import Array

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.equations.interface import EquationSystem
    from dynamics.problem.question import Question

OwnArguments = ParamSpec("OwnArguments")

#: Largest share of a mean that is taken to be left when the order of a link is doubled.
SLOWEST = 0.9
#: Arguments that do not change which functions are compiled.
WITHOUT_FUNCTIONS = ("save_at", "t_max", "trackers", "progress", "max_runtime", "on_failure", "checkpoint")


def chosen_method(answer: Answer, problem: Question, arguments: Mapping[str, object]) -> str:
    """Return the name of the method of a run, without taking a step."""
    run = AnswerCall.of(answer, problem, arguments)
    own_arguments = {name: value for name, value in run.arguments.items() if name not in DEFAULTS}
    integration: Integration = resolve_name(answer.integration)(run, **own_arguments)
    return integration.method.name


def integrate(
    name: str,
    build: Callable[Concatenate[AnswerCall, OwnArguments], Integration],
    problem: Question,
    shared: Mapping[str, object],
    *arguments: OwnArguments.args,
    **own: OwnArguments.kwargs,
) -> xr.Dataset:
    """Return the dataset of the answer `name` to a problem.

    `build` is given the run and the arguments that this answer alone has; `shared` are those of all answers.
    """
    run = AnswerCall.of(registered(name), problem, {**shared, **own})
    return run.dataset(lambda: build(run, *arguments, **own))


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A call of an answer: its problem, the checked values of the shared arguments, and its file."""

    answer: Answer
    problem: Problem
    #: All arguments by name, as they were given, or their defaults, and those of them that answers share.
    arguments: Mapping[str, object]
    shared: Shared
    keep: str
    method: str
    rtol: float
    atol: float
    error_estimate: bool | None
    file: RunFile

    @classmethod
    def of(cls, answer: Answer, problem: Question, arguments: Mapping[str, object]) -> AnswerCall:
        """Return the run of a call, with defaults for missing arguments."""
        if answer.students[0] in KINDS:
            check_question(problem, answer.students)
        else:
            is_taken = isinstance(problem, Problem) and problem.kind in answer.students
            check_problem(problem, problem.kind if is_taken else answer.students[0], answer.fields)
        every = {**answer.defaults(), **arguments}
        shared = cast("Shared", {name: value for name, value in every.items() if name in DEFAULTS})
        method = check_method(shared["method"], answer.methods) if answer.methods else ""
        keep, estimate = shared.get("keep", "full"), shared.get("error_estimate")
        check_choice("keep", keep, ("full", "summary"))
        check_switch("error_estimate", estimate, optional=True)
        rtol, atol = checked_tolerances(shared["rtol"], shared["atol"]) if "rtol" in shared else (0.0, 0.0)
        file, asked = as_run_file(shared.get("checkpoint")), cast("Problem", problem)
        return cls(answer, asked, every, shared, keep, method, rtol, atol, estimate, file)

    def saved_times(self, default: Callable[[], SaveAt]) -> SaveAt:
        """Return the saved times; the default is computed where none are given."""
        save_at = self.shared.get("save_at")
        return saved_until(save_at, self.shared.get("t_max"), default() if save_at is None else save_at)

    def estimates(self, method: str) -> bool:
        """Return whether errors are estimated: as `error_estimate` says, by default for all methods but SciPy's."""
        return not method.startswith("scipy:") if self.error_estimate is None else self.error_estimate

    def neurons(self) -> dict[str, object]:
        """Return the labels 0 to m − 1 of the dims of neurons, by name; with "summary" there is no dim "neuron_2"."""
        numbers = np.arange(self.problem.width)
        return dict.fromkeys(("neuron", "neuron_2") if self.keep == "full" else ("neuron",), numbers)

    def cut(self, make: Callable[[Problem], tuple[Method, Callable[[Array], float]]]) -> HalvedOrder | None:
        """Return the flow with the link's series cut at half its order, to estimate the error of the cut.

        None if not needed. `make` builds the method and the loss of a problem.
        """
        half = halved(self.problem, self.rtol)
        return None if half is None else HalvedOrder(*make(half[0]), half[1])

    def expected_compilation(self) -> Expected | None:
        """Return the functions and seconds that the first run of this kind compiles, None if unknown."""
        decouples = self.answer.students[0] in KINDS or self.problem.information_exponent >= 3
        has_optimizer = self.arguments.get("optimizer") is not None
        return expected_compilation(self.answer.name, has_optimizer=has_optimizer, decouples=decouples)

    def kind_of_question(self) -> str:
        """Return a text that is equal for runs that need the same compiled functions; it leaves out most numbers."""
        settings = {name: value for name, value in self.arguments.items() if name not in WITHOUT_FUNCTIONS}
        is_gaussian = self.answer.students[0] not in KINDS
        sizes = [self.problem.width, self.problem.num_directions] if is_gaussian else [None, None]
        return repr((self.answer.name, sizes, _kinds(self.problem.parameters()), _kinds(settings)))

    @np.errstate(under="ignore")
    def dataset(self, build: Callable[[], Integration]) -> xr.Dataset:
        """Return the dataset of the answer; raise SolveError or SolveInterrupted as `on_failure` says."""
        on_failure, progress = self.shared["on_failure"], self.shared["progress"]
        check_choice("on_failure", on_failure, ("raise", "return"))
        watchers = all_trackers(self.shared["trackers"], progress, self.shared["max_runtime"])
        with noticed_compilation(progress, self.expected_compilation()), compilation_of_run():
            with one_blas_thread():  # the start has the same bits, whatever runs at the same time
                integration = build()
            result, dataset = integration.carried_out(self, watchers)
        if result.stop_reason is StopReason.REACHED_END:
            note_compiled(self.kind_of_question())
        integration.warn(dataset.attrs)
        reason = result.stop_reason
        name, time = self.answer.name, result.end_time
        if on_failure == "raise" and reason is StopReason.INTERRUPTED:
            msg = f"The {name} solve stopped at t = {time:.6g} ({reason})"
            raise SolveInterrupted(msg, dataset)
        if on_failure == "raise" and reason.failed:
            msg = f"The {name} solve stopped at t = {time:.6g} ({reason}). {reason.advice}"
            raise SolveError(msg, dataset)
        return dataset


def _kinds(value: object) -> object:
    """Return a value with texts and switches as they are, and the name of its type for every other value."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        return {name: _kinds(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return sorted({repr(_kinds(part)) for part in value})
    return type(value).__name__


class Method(Protocol):
    """A method chosen for a system of equations; `name` is that of the method, such as "explicit"."""

    name: str

    def stepper(self, rtol: float) -> Stepper:
        """Return a stepper at the start of the system."""

    def attributes(self, stepper: Stepper) -> Mapping[str, object]:
        """Return the attributes of a dataset that tell which method ran."""


@dataclass
class PlainMethod:
    """A method of `dynamics.integrators` for any system.

    `atol` is the absolute tolerance, `make` builds the stepper.
    """

    system: EquationSystem
    name: str
    atol: float
    make: Callable[..., Stepper] = stepper_of

    def stepper(self, rtol: float) -> Stepper:
        """Return a stepper at the start of the system."""
        return self.make(self.system, self.name, rtol=rtol, atol=self.atol)

    def attributes(self, _stepper: Stepper) -> Mapping[str, object]:
        """Return the name of the method and the seconds of compiling."""
        return {"method": self.name, "compile_seconds": compiled_seconds()}


class HalvedOrder(NamedTuple):
    """The flow with the series of its links cut at half of their order, and the function state -> E(f − f*)²."""

    method: Method
    loss: Callable[[Array], float]
    #: Error of the whole series over the change of the answer.
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Integration:
    """Equations, method, observables and labels of one answer."""

    title: str
    saved_times: SaveAt
    method: Method
    #: State -> named observables, one record per saved time.
    observe: Callable[[Array], Mapping[str, object]]
    #: A state; its record tells the shapes.
    start: Array
    #: Name of the times of events -> their number, None for one without a dim, in the order of the stepper's.
    events: Mapping[str, int | None]
    #: Variables that are known before the run, and coordinates other than `time`.
    constants: Mapping[str, object]
    coords: Mapping[str, object] = field(default_factory=dict)
    #: Arguments that this answer alone has, as they are stored.
    settings: Mapping[str, object] = field(default_factory=dict)
    #: Variables of the dataset -> further attributes.
    attributes: Callable[[Mapping[str, Any]], Mapping[str, object]] = lambda _values: {}
    #: E of the squares of the parts of f* by `DEGREES`, where the loss is told by degree.
    teacher_by_degree: Array | None = None
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
    warn: Callable[[Mapping[str, object]], None] = lambda _attributes: None
    #: Times of events (events,) -> variables by name, where they are not the parts that `events` names.
    of_times: Callable[[Array], Mapping[str, object]] | None = None
    #: Values, saved times and end of a run -> the variables of bands of single runs, and whether they were given up.
    bands: Callable[[Mapping[str, object], Array, float], tuple[Mapping[str, object], bool]] | None = None
    #: Name -> how a variable is labelled.
    variables: Mapping[str, Variable] = field(default_factory=lambda: VARIABLES)

    def carried_out(self, run: AnswerCall, trackers: Sequence[Tracker]) -> tuple[RunResult, xr.Dataset]:
        """Return the result of the run, with its records, and the labelled dataset; both may end early.

        With a `loss`, a second run at a looser tolerance is taken beside, and the differences estimate the numerical
        errors.
        """
        with ExitStack() as context:
            context.enter_context(self.threads())
            stepper, times, beside = self.method.stepper(run.rtol), self.saved_times.times, None
            context.callback(end_threads, stepper)
            if self.loss is not None:
                looser = self.method.stepper(loop.LOOSER * run.rtol)
                cut = self.cut and (self.cut.method.stepper(loop.LOOSER * run.rtol), self.cut.loss)
                begun = loop.begun_snapshot(run.file, loop.LOOSER_RUN)
                beside = context.enter_context(loop.LooserRun(looser, self.loss, times, begun, cut))

            def labelled_so_far(result: RunResult, looser: RunResult | None) -> xr.Dataset:
                return self.labelled(run, stepper, result, looser, None if beside is None else beside.cut())

            follow = partial(loop.run, stepper, times, self.observe, sound=self.sound, why_failed=self.why_failed)
            result, dataset = loop.run_with_file(
                follow, stepper, labelled_so_far, file=run.file, trackers=trackers, looser_run=beside
            )
            # Bands, which come after the run, may have been given up.
            return replace(result, stop_reason=StopReason(dataset.attrs["stop_reason"])), dataset

    def labelled(
        self,
        run: AnswerCall,
        stepper: Stepper,
        result: RunResult,
        looser: RunResult | None,
        cut: RunResult | None = None,
    ) -> xr.Dataset:
        """Return the dataset of a run that may have ended early, with NaN for records that it lacks.

        `looser` is the run at a looser tolerance, and `cut` that with the link's series cut at half its order, from
        which the errors are estimated; None without an estimate.
        """
        count, times = len(self.saved_times), self.saved_times.times
        by_degree = {} if self.teacher_by_degree is None else {"teacher_by_degree": self.teacher_by_degree}
        values: dict[str, object] = {
            **stack_records(result.records, count, lambda: self.observe(self.start)),
            **self.constants,
            **by_degree,
            **(self._by_name if self.of_times is None else self.of_times)(result.event_times),
        }
        if looser is not None:
            errors = {"error": loop.estimated_errors(result, looser, times, run.rtol)}
            if self.cut is not None:
                errors["truncation_error"] = loop.truncation_errors(looser, cut, count, self.cut.factor)
            for kind, (of_loss, of_events) in errors.items():
                values[f"loss_{kind}"] = of_loss
                values |= {f"{name}_{kind}": numbers for name, numbers in self._by_name(of_events).items()}
        if self.bands is not None and not result.stop_reason.resumable:
            of_runs, given_up = self.bands(values, times, result.end_time)
            values |= of_runs
            result = replace(result, stop_reason=StopReason.INTERRUPTED) if given_up else result
        stored_settings = {
            "method": run.method,
            "rtol": run.rtol,
            "atol": run.atol,
            "keep": run.keep,
            "error_estimate": run.error_estimate,
        }
        stored_settings = {name: value for name, value in stored_settings.items() if name in run.shared}
        return make_dataset(
            values,
            problem=run.problem,
            title=self.title,
            coords={"time": times, **self.coords, **({"degree": list(DEGREES)} if by_degree else {})},
            solver={"answer": run.answer.name, **stored_settings, **self.settings},
            attributes={
                "answer": run.answer.name,
                **self.method.attributes(stepper),
                "stop_reason": str(result.stop_reason),
                "stop_message": result.stop_reason.advice,
                "end_time": result.end_time,
                "solve_seconds": result.solve_seconds,
                "tracker_seconds": result.tracker_seconds,
                **result.statistics,
                **{name: stored_settings[name] for name in ("rtol", "atol") if name in stored_settings},
                **self.attributes(values),
                "notes": "; ".join(self.notes),
            },
            variables=self.variables,
        )

    def _by_name(self, times: Array) -> dict[str, object]:
        """Return the times of events (events,) split by name: one array per name, or one number."""
        times_by_name, end = dict[str, object](), 0
        for name, count in self.events.items():
            times_by_name[name] = times[end] if count is None else times[end : end + count]
            end += 1 if count is None else count
        return times_by_name


def halved(problem: Problem, rtol: float) -> tuple[Problem, float] | None:
    """Return the problem with links of half their order, and the factor from its distance to the error of the whole.

    The means of a flow leave out tails of Σ c_j² and of Σ j c_j², or of the products of student's and teacher's
    coefficients, which are no larger than both. If they fall like powers of the order J, the share of the latter that
    is left from J/2 to J is ρ = 2 tail(J)/tail(J/2), and the error is ρ/(1 − ρ) times the change. ρ near 1 would say
    that g'(1) has no limit; it counts as `SLOWEST` at most. Return None where the tails are below the tolerance.
    """
    halves: dict[str, Any] = {}
    share = 0.0
    for name, link in (("activation", problem.activation), ("teacher_activation", problem.teacher_activation)):
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
