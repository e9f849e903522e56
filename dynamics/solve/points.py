"""Two-layer networks under any loss, labels that are classes and mixtures: means over points, for `solve_network`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators.methods import FlowMethod, choose_method
from dynamics.problem.checks import require
from dynamics.problem.losses import EXPONENTIAL
from dynamics.runs.trackers import Soundness
from dynamics.runs.variables import VARIABLES
from dynamics.solve.bands import band_values, stored_bands
from dynamics.solve.integration import Integration
from dynamics.theory.components import default_network_times
from hermite.text.messages import shown, warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dynamics.equations.network.points import PointSystem
    from dynamics.integrators import Stepper
    from dynamics.problem import Problem
    from dynamics.solve.integration import AnswerCall
    from dynamics.solve.steps import StepSettings

#: Squared norm above which steps of the exponential loss have long tails.
LARGEST_EXPONENTIAL = 0.5
#: Long name of errors by points.
_BY_POINTS = "3.18 standard errors over four scrambles of points"


@dataclass
class PointMethod(FlowMethod):
    """A method for means over points, whose rtol is at least what their kinks allow."""

    def stepper(self, rtol: float, time: float = 0.0) -> Stepper:
        """Return a stepper at the start of the system."""
        least: float = self.system.least_tolerance  # type: ignore[attr-defined]
        return super().stepper(max(rtol, least), time)


def point_system(problem: Problem, step: StepSettings, points: object) -> PointSystem:
    """Return the equations by `points` points, or by default as many as `POINTS`; ValueError for other optimizers."""
    from dynamics.equations.network.points import POINTS, PointSystem

    require(
        problem.covariance is None,
        f"Argument `problem` must have isotropic inputs or a Mixture for means over points, but has "
        f"{problem.inputs!r}.",
    )
    require(
        step.is_plain,
        f"Argument `optimizer` must be plain SGD for means over points, but is {step.optimizer}; "
        "`sgd_check.simulate` takes such steps.",
    )
    require(
        len(problem.phases()) == 1,
        "Argument `points` must be None for a student that is trained layer by layer, whose means have closed forms, "
        f"but is {shown(points)}.",
    )
    require(
        step.varying is None,
        f"Argument `learning_rate` must be one number for means over points, but is {step.varying!r}.",
    )
    count = POINTS if points is None else points
    return PointSystem(problem, step.learning_rate, step.step_theory, step.batch_size, count)


def point_integration(run: AnswerCall, step: StepSettings, points: object, bands: object = False) -> Integration:
    """Return the integration of a network by means over points."""
    problem = run.problem
    require(
        not run.error_estimate,
        "Argument `error_estimate` must be None or False for means over points, whose scrambles give the errors, but "
        f"is {shown(run.error_estimate)}.",
    )
    system = point_system(problem, step, points)
    system.set_half_levels()
    saved_times = run.saved_times(lambda: default_network_times(problem))
    last, name = float(saved_times.times[-1]), run.method
    if name == "auto":
        name = "explicit" if system.kinked or choose_method(system, last) == "explicit" else "bdf"
    method = PointMethod(system, name, run.atol, step.fixed_step, None, last, run.rtol)
    of_classes = {"class": np.arange(problem.num_outputs)} if problem.num_outputs > 1 else {}
    errors = {name: VARIABLES[name]._replace(long_name=_BY_POINTS) for name in VARIABLES if name.endswith("_error")}
    means = {"loss": VARIABLES["loss"]._replace(long_name="mean loss"), "bayes_error": VARIABLES["bayes_error"]}
    return Integration(
        title="Two-layer network by means over points",
        saved_times=saved_times,
        method=method,
        observe=system.observer(run.keep),
        start=system.initial_state,
        events={},
        of_times=system.times,
        coords=run.neurons() | of_classes | step.coords(saved_times),
        constants=system.constants(),
        settings=step.arguments | stored_bands(bands) | {"points": system.points},
        bands=band_values(problem, step, bands, system, method.stepper, run.keep),
        attributes=lambda values: _attributes(problem, system, step, values) | step.attributes,
        notes=system.notes,
        sound=Soundness(0.0 if step.fixed_step else max(run.rtol, system.least_tolerance), 1.0, falls=False, dies=True),
        warn=_warn,
        variables={**VARIABLES, **errors, **means, "test_error": VARIABLES["test_error"]},
    )


def _attributes(
    problem: Problem, system: PointSystem, step: StepSettings, values: Mapping[str, object]
) -> dict[str, object]:
    """Return the number of points, and of steps under the exponential loss the largest squared norm of a neuron."""
    attributes: dict[str, object] = {"points": system.points}
    if problem.objective == EXPONENTIAL and step.step_theory is not None:
        norms = np.asarray(values["squared_norm"], dtype=np.float64)
        attributes["largest_squared_norm"] = float(np.max(norms, initial=0.0, where=np.isfinite(norms)))
    return attributes


def _warn(attributes: Mapping[str, object]) -> None:
    """Warn where steps of the exponential loss have so long tails that runs blow up."""
    largest = attributes.get("largest_squared_norm", 0.0)
    if isinstance(largest, float) and largest > LARGEST_EXPONENTIAL:
        warn(
            f"Squared norms reach {largest:.3g}: steps of the exponential loss have long tails above "
            f"{LARGEST_EXPONENTIAL:g}, so that some runs blow up, and medians of runs agree with theory, means do not."
        )
