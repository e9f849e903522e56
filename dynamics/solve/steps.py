"""Steps of finite size: their arguments, the equation of the coupled flow, the limit of stability, and the delay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dynamics.commands.options import STEP_THEORIES
from dynamics.integrators.methods import FlowMethod, choose_method
from dynamics.problem.checks import checked_integer, require
from dynamics.problem.optimizers import PLAIN, SGD, Optimizer, checked_optimizer
from dynamics.problem.problem import check_flow_memory
from dynamics.problem.rates import Schedule, check_bearable
from dynamics.problem.saved_times import SaveAt
from dynamics.theory import learning_rates
from dynamics.theory.schedules import resolved_schedule
from dynamics.theory.step_noise import escape_bias
from hermite.text.messages import refuse, shown, suggestion, warn

if TYPE_CHECKING:
    from dynamics.equations.interface import FlowSystem
    from dynamics.equations.overlaps import OverlapSystem
    from dynamics.equations.rates import RateTable
    from dynamics.problem import Problem
    from dynamics.solve.integration import AnswerCall
    from dynamics.theory.prediction import EmergencePrediction


#: The method that takes every step of a map, and the one of "auto", which passes over most of them.
MAP, SMOOTH_MAP = "map", "smooth-map"
#: Options of commands that say how steps enter, in the order of `checked_step`.
STEP_OPTIONS = ("learning_rate", "method", "step_theory", "batch_size", "optimizer")


@dataclass(frozen=True, slots=True)
class StepSettings:
    """The settings of steps of finite size; without a `learning_rate` they stand for the gradient flow.

    `step_theory` is "finite-d" or "infinite-d" for SGD, None for the flow and for gradient descent. `batch_size` is in
    samples per step. `varying` is the schedule of a learning rate that is not one number, and `table` its rates up to
    the last time. `takes_all` says that every step of a map is taken, none passed over.
    """

    #: η > 0, dimensionless; of a schedule the first, and the largest once `table` is known; None for the flow.
    learning_rate: float | None = None
    #: "finite-d" or "infinite-d": the equation; None for the flow, and for the discrete steps of gradient descent.
    step_theory: str | None = None
    #: Number B of samples per step.
    batch_size: int = 1
    #: The optimizer of a step; None stands for plain SGD by default.
    optimizer: Optimizer | None = None
    #: Rates that vary, None for one rate, and those of the steps until the last saved time.
    varying: Schedule | None = None
    table: RateTable | None = None
    #: Whether every step of a map is taken, also where the flow through them is smooth.
    takes_all: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments "learning_rate", "step_theory", "batch_size" and, if given, "optimizer" as files store them."""
        rate = self.learning_rate if self.varying is None else repr(self.varying)
        values = {"learning_rate": rate, "step_theory": self.step_theory, "batch_size": self.batch_size}
        return values if self.optimizer is None else {**values, "optimizer": str(self.optimizer)}

    @property
    def attributes(self) -> dict[str, object]:
        """Attributes of a dataset, none for the flow: the arguments, with a schedule and its mean rate over time."""
        if self.learning_rate is None or self.step_theory is None:
            return {"learning_rate": self.learning_rate}
        if self.varying is None or self.table is None:
            return self.arguments
        name = {"learning_rate": "schedule", "schedule": repr(self.varying)}
        return self.arguments | name | {"effective_learning_rate": self.table.effective}

    @property
    def is_plain(self) -> bool:
        """Whether a step is w ← w − η g."""
        return self.optimizer in (None, PLAIN)

    @property
    def is_map(self) -> bool:
        """Whether the mean motion is a map from step to step, as with momentum or averages."""
        return isinstance(self.optimizer, SGD) and not self.is_plain

    @property
    def fixed_step(self) -> float | None:
        """Length of a step in flow time if the method takes every step, None if it follows a tolerance."""
        return self.learning_rate if self.descends or (self.is_map and self.takes_all) else None

    @property
    def pace(self) -> float:
        """Flow time that passes per unit of η · step, to leading order: (1 − δ)/(1 − β) for momentum."""
        return self.optimizer.amplification if isinstance(self.optimizer, SGD) else 1.0

    def planned(self, run: AnswerCall, of_flow: Callable[[], SaveAt]) -> tuple[StepSettings, SaveAt]:
        """Return the settings of a run, with the table of rates of a schedule, and the times to be saved.

        `of_flow` makes the default times, those of the flow, which are divided by the pace of an optimizer. For a map
        the times are moved to the nearest steps. Raise ValueError for records beyond the memory, and for an estimate of
        errors where all steps are taken: they have no tolerance that a looser run could relax.
        """
        if run.method == MAP and not self.takes_all:
            return replace(self, takes_all=True).planned(run, of_flow)
        require(
            self.fixed_step is None or not run.error_estimate,
            f"Argument `error_estimate` must not be True for method {run.method!r}, which has no tolerance.",
        )
        save_at = run.saved_times(lambda: SaveAt.at(of_flow().times / self.pace))
        if self.is_map and self.learning_rate is not None:
            steps, last = np.unique(np.rint(save_at.times / self.learning_rate)), float(save_at.times[-1])
            require(
                steps[-1] > 0.0 or last == 0.0,
                f"Argument `save_at` must be 0 alone, or reach the first step, at the time {self.learning_rate:g}, but "
                f"ends at {last:g}.",
            )
            save_at = SaveAt.at(self.learning_rate * steps)
        check_flow_memory(run.problem, keep=run.keep, times=len(save_at))
        if self.varying is None:
            return self, save_at
        from dynamics.equations.rates import RateTable

        table = RateTable.until(self.varying, float(save_at.times[-1]))
        return replace(self, table=table, learning_rate=table.peak), save_at

    def method(
        self, system: FlowSystem, run: AnswerCall, save_at: SaveAt, stiff: str = "bdf", device: str | None = None
    ) -> FlowMethod:
        """Return the method that integrates a run up to the last of the saved times.

        For "auto" it is the explicit method or the one named `stiff`, whichever is expected to be faster; on a `device`
        it is `stiff`.
        """
        last, name = float(save_at.times[-1]), run.method
        if self.is_map:
            return FlowMethod(system, MAP if self.takes_all else SMOOTH_MAP, run.atol, self.learning_rate, None, last)
        if name == "auto":
            is_explicit = device is None and choose_method(system, last) == "explicit"
            name = "explicit" if is_explicit else stiff
        return FlowMethod(system, name, run.atol, self.fixed_step, device, last, run.rtol)

    def coords(self, save_at: SaveAt) -> dict[str, object]:
        """Return the coordinate `step` where an optimizer or a schedule is given; it counts whole steps of a map."""
        if self.table is not None:
            return {"step": self.table.steps(save_at.times)}
        if self.optimizer is None or self.learning_rate is None:
            return {}
        steps = save_at.times / self.learning_rate
        return {"step": np.rint(steps).astype(np.int64) if self.is_map else steps}

    @property
    def descends(self) -> bool:
        """Whether discrete steps of population gradient descent are taken."""
        return self.learning_rate is not None and self.step_theory is None


def checked_step(
    learning_rate: object,
    method: str,
    step_theory: object = None,
    batch_size: object = 1,
    optimizer: object = None,
    *,
    problem: Problem | None = None,
) -> StepSettings:
    """Return the checked settings of the steps of a run; raise ValueError or TypeError for arguments that contradict.

    Without a learning rate they are those of the flow. With one, method "gradient-descent" takes its steps on the mean
    loss; any other method integrates the mean steps of SGD, by the theory "finite-d" unless the optimizer needs
    another.
    """
    descends = method == "gradient-descent"
    size, chosen, varying, first_rate = _checked_settings(
        problem, learning_rate, batch_size, optimizer, descends=descends
    )
    require(
        varying is None or not descends,
        f"Argument `learning_rate` must be one number for method 'gradient-descent', but is {varying!r}.",
    )
    rate = learning_rates.checked_learning_rate(first_rate, method)
    stochastic, use = rate is not None and not descends, "given with a method other than 'gradient-descent'"
    check_needless("batch_size", size, 1, stochastic, use)
    require(
        step_theory in (None, *STEP_THEORIES),
        f"Argument `step_theory` must be one of 'finite-d', 'infinite-d' or None, but is {shown(step_theory)}."
        f"{suggestion(step_theory, STEP_THEORIES)}",
    )
    check_needless("step_theory", step_theory, None, stochastic, use)
    check_needless("optimizer", chosen, None, stochastic, use)
    default_theory = "infinite-d" if chosen is not None and chosen.closes_in_the_limit else "finite-d"
    step = StepSettings(rate, str(step_theory or default_theory) if stochastic else None, size, chosen, varying)
    refuse_beside_map(step, method)
    return step


def _checked_settings(
    problem: Problem | None, learning_rate: object, batch_size: object, optimizer: object, *, descends: bool = False
) -> tuple[int, Optimizer | None, Schedule | None, object]:
    """Return batch size, optimizer or None, schedule or None, and learning rate, under a schedule that of step 0."""
    size = checked_integer(batch_size, "batch_size", minimum=1)
    chosen = None if optimizer is None else checked_optimizer(optimizer)
    if isinstance(learning_rate, str) and problem is not None:
        learning_rate = resolved_schedule(problem, learning_rate, size, optimizer=chosen, descends=descends)
    varying = checked_schedule(learning_rate)
    return size, chosen, varying, learning_rate if varying is None else varying(0)


def sgd_step(
    problem: Problem, learning_rate: object, step_theory: str | None, batch_size: object, optimizer: object = None
) -> StepSettings:
    """Return the settings of steps of SGD by the theory `step_theory`, or of the flow if `learning_rate` is None."""
    size, chosen, varying, first_rate = _checked_settings(problem, learning_rate, batch_size, optimizer)
    rate = learning_rates.checked_learning_rate(first_rate, "map")
    check_needless("batch_size", size, 1, rate is not None)
    check_needless("optimizer", chosen, None, rate is not None)
    return StepSettings(rate, step_theory, size, chosen, varying)


def check_needless(name: str, value: object, usual: object, steps: bool, where: str = "given") -> None:
    """Raise ValueError if an argument of steps of SGD differs from its default `usual` where none are taken.

    `steps` says whether steps are taken. `where` ends the sentence "unless `learning_rate` is …".
    """
    value_text = value if isinstance(value, Optimizer) else shown(value)
    require(
        steps or value == usual,
        f"Argument `{name}` must be {usual} unless `learning_rate` is {where}, but is {value_text}.",
    )


def checked_schedule(learning_rate: object) -> Schedule | None:
    """Return `learning_rate` if it is a schedule that the equations take, None if it is a number, a text or None.

    Raise TypeError for any other callable.
    """
    if isinstance(learning_rate, Schedule):
        check_bearable(learning_rate)
        return learning_rate
    if callable(learning_rate):
        refuse(
            "Argument `learning_rate` must be a number or a schedule such as dynamics.cosine(0.01, 100000), but is "
            f"{shown(learning_rate)}; `sgd_check.simulate` takes other functions.",
            error=TypeError,
        )
    return None


def make_system(problem: Problem, settings: StepSettings) -> OverlapSystem:
    """Return the equations of the overlaps: those of the flow, of gradient descent, or of the mean steps of SGD."""
    rate, theory = settings.learning_rate, settings.step_theory
    if (optimized_system := optimized(problem, settings)) is not None:
        return cast("OverlapSystem", optimized_system)
    flow: type[OverlapSystem]
    stepped: Callable[..., OverlapSystem]
    if problem.inputs is not None:
        from dynamics.equations.classes import ClassDescentSystem, ClassStepSystem, ClassSystem

        flow, stepped = ClassDescentSystem if settings.descends else ClassSystem, ClassStepSystem
    else:
        from dynamics.equations.finite_step import FiniteStepSystem
        from dynamics.equations.overlaps import OverlapSystem

        flow, stepped = OverlapSystem, FiniteStepSystem
    return flow(problem) if rate is None or theory is None else stepped(problem, rate, theory, settings.batch_size)


def optimized(problem: Problem, settings: StepSettings) -> Any:
    """Return the mean motion under a schedule or an optimizer that is not plain SGD, None for plain SGD and flows."""
    plain = settings.is_plain and settings.varying is None
    if plain or settings.step_theory is None or settings.learning_rate is None:
        return None
    from dynamics.equations.optimizers import optimized_system
    from dynamics.equations.rates import RateTable

    rate: float | RateTable = settings.learning_rate
    if settings.varying is not None:
        rate = settings.table or RateTable.until(settings.varying, 0.0)
    return optimized_system(problem, rate, settings.step_theory, settings.batch_size, settings.optimizer or PLAIN)


def limit_of(problem: Problem, settings: StepSettings) -> float | None:
    """Return the learning rate at which the converged student loses stability, None for the flow or if unknown.

    It is that of `descent_limit` for gradient descent, and that of `learning_rate_limit` for both equations of SGD.
    """
    if settings.learning_rate is None or settings.descends:
        return learning_rates.descent_limit(problem) if settings.descends else None
    return learning_rates.quick_limit(problem, settings.batch_size, settings.optimizer)


def warn_limit(settings: StepSettings, limit: float | None) -> None:
    """Warn if the learning rate is at or above the limit of stability."""
    rate = settings.learning_rate
    if rate is None or limit is None:
        return
    if settings.descends:
        learning_rates.warn_descent_limit(rate, limit)
    elif rate >= limit:
        warn(
            f"The converged student loses stability from learning rate {limit:.4g} on, and `learning_rate` is "
            f"{rate:g}: overlaps may blow up instead of converging.",
            category=RuntimeWarning,
        )


def refuse_beside_map(settings: StepSettings, method: str = "auto", device: str | None = None) -> None:
    """Refuse a method of integration, and a device, for steps that are a map, and the method "map" for others."""
    for name, value, allowed in (("method", method, ("auto", MAP)), ("device", device, (None,))):
        require(
            value in allowed or not settings.is_map,
            f"Argument `{name}` must be {' or '.join(map(repr, allowed))} for {settings.optimizer}, whose mean steps "
            f"are a map, but is {shown(value)}.",
        )
    require(
        method != MAP or settings.is_map,
        f"Argument `method` must be one for equations without momentum or averages, but is {MAP!r}, which takes every "
        "step.",
    )


def step_notes(
    problem: Problem, settings: StepSettings, limit: float | None, prediction: EmergencePrediction | None
) -> tuple[str, ...]:
    """Return sentences on the equation of steps, its share of the stable rate, and the delay by noise."""
    if settings.step_theory is None or settings.learning_rate is None:
        return ()
    rate, size = settings.learning_rate, settings.batch_size
    batch = "" if size == 1 else f" and {size} samples per step"
    share = "no limit is known" if limit is None else f"{rate / limit:.3g} of the limit"
    rate_text = f"learning rate {rate:g}" if settings.varying is None else f"{settings.varying!r} up to {rate:g}"
    notes = [f"{settings.step_theory} equation at {rate_text}{batch} ({share}); predictions are the flow's"]
    if settings.is_map and not settings.takes_all:
        notes.append("steps of the map are passed over where the flow through them is known to the tolerance")
    if settings.pace != 1.0:
        notes[0] += f", whose times momentum divides by about {settings.pace:.3g}"
    optimizer = settings.optimizer or PLAIN
    # The noise of other optimizers is not that of SGD.
    if prediction is not None and isinstance(optimizer, SGD) and settings.varying is None:
        bias = escape_bias(problem, rate * optimizer.amplification / size, prediction)
        if (delays := bias.drift_bias[np.isfinite(bias.drift_bias)]).size:
            notes.append(f"their noise should delay emergence by up to {100 * delays.max():.3g} %")
        if bias.trapped.any():
            notes.append(f"it should keep {int(bias.trapped.sum())} directions from emerging")
    return tuple(notes)
