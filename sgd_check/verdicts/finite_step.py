"""The finite-step equation as the prediction of a check, and whether it may stand in for the one that was given.

The flow is the limit of vanishing steps. At the step size of the check the equation of the mean step is the sharper
theory: the delay is in its times, so the band to be tested holds terms of second order in the scatter alone, and it
has the noise floor of the loss. But it is computed from the problem, so that a wrong prediction would go untested
behind it. It stands in only where no time differs from the given one by more than the delay by the step size and half
of a visible error explain.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem import is_correlation
from dynamics.runs import uninterrupted
from sgd_check.verdicts.direction import VISIBLE_ERROR
from sgd_check.verdicts.expectation import expectation, has_step

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr

    from dynamics.problem import Problem
    from sgd_check.verdicts.defaults import Course

THEORIES = ("auto", "finite-step", "flow")
LARGEST_GAP = 0.5 * float(np.log1p(VISIBLE_ERROR))
#: Wall-clock budget of the equation, in seconds: its right-hand side grows like the fourth power of the width.
LONGEST_SECONDS = 120.0


class NoFiniteStepError(ValueError):
    """There is no solution of the finite-step equation to test; the sentence says why."""


def solve_finite_step(course: Course, batch_size: int, *, progress: bool | None, max_runtime: float) -> xr.Dataset:
    """Return the solution of the finite-step equation at the learning rate and the records of the runs of a check.

    Raises NoFiniteStepError if the link has no exact moments, or the solution fails or takes longer than `max_runtime`.
    """
    import warnings

    from dynamics.problem import SaveAt
    from sgd_check.runs.plan import make_plan

    plan = make_plan(course.learning_rate, course.steps, None)
    solve = _solver_of(course, batch_size)
    with warnings.catch_warnings():
        # The simulation says the same of a learning rate beyond the limit, the prediction of components never found.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.filterwarnings("ignore", "No neuron ever carries", UserWarning)
        solution = solve(
            learning_rate=course.learning_rate,
            step_theory="finite-d",
            save_at=SaveAt.at(plan.times(plan.recorded)),
            progress=progress,
            max_runtime=max_runtime,
            on_failure="return",
            error_estimate=False,
        )
    reason = uninterrupted(solution).attrs["stop_reason"]
    if reason != "reached_end":
        msg = f"The finite-step equation stopped at time {solution.attrs['end_time']:.3g} ({reason})."
        raise NoFiniteStepError(msg)
    return solution


def has_equation(problem: Problem, batch_size: int) -> bool:
    """Return whether a problem has an equation of finite steps, by solving one tiny step of it."""
    from sgd_check.verdicts.defaults import Course

    try:
        solve_finite_step(
            Course(problem, 1e-9, 1, np.inf, 0, 0), batch_size, progress=False, max_runtime=LONGEST_SECONDS
        )
    except NoFiniteStepError:
        return False
    return True


def _solver_of(course: Course, batch_size: int) -> Callable[..., xr.Dataset]:
    """Return what solves the equation of a course, or refuse what has none, before any work."""
    import dynamics
    from dynamics.solve import StepSettings, make_system

    if course.problem.kind == "stiefel":
        msg = "The mean step of frames of orthogonal neurons does not close."
        raise NoFiniteStepError(msg)
    if course.problem.kind == "network" or is_correlation(course.problem):
        return partial(_solution, course.problem, batch_size)
    try:
        make_system(course.problem, StepSettings(course.learning_rate, "finite-d", batch_size))
    except ValueError as error:
        raise NoFiniteStepError(str(error)) from None
    return partial(dynamics.solve_overlaps, course.problem, batch_size=batch_size)


def _solution(problem: Problem, batch_size: int, **arguments: Any) -> xr.Dataset:
    """Return the problem's own solution, or say why there is none: its arguments are checked before any work."""
    import dynamics

    if isinstance(problem.student, dynamics.Student) and problem.student.first_layer == "sphere":
        msg = "Neurons that keep their length have none at finite d, since their mean step divides by a random length."
        raise NoFiniteStepError(msg)
    size = {} if batch_size == 1 else {"batch_size": batch_size}
    try:
        return dynamics.solve_problem(problem, **arguments, **size)
    except (TypeError, ValueError) as error:
        raise NoFiniteStepError(str(error)) from None


def prediction_to_test(
    prediction: xr.Dataset,
    course: Course,
    batch_size: int,
    *,
    theory: str,
    progress: bool | None,
    say: Callable[[str], None],
    given: str,
    option: str,
) -> xr.Dataset:
    """Return the prediction to test: the given one, or the finite-step equation at the learning rate of the runs.

    `say` takes the sentence why theory "auto" tests the given one; `given` and `option` are what it calls that, and
    what would test the equation all the same. Raises NoFiniteStepError if `theory` asks for what there is not.
    """
    if theory == "flow" or has_step(prediction):
        return prediction
    try:
        solution = solve_finite_step(course, batch_size, progress=progress, max_runtime=LONGEST_SECONDS)
    except NoFiniteStepError as error:
        if theory == "finite-step":
            raise
        say(f"The times in {given} are tested, without the finite-step equation: {error}")
        return prediction
    worst = misfit(prediction, solution) if theory == "auto" else None
    if worst is None:
        return solution
    say(
        f"The finite-step equation has another time than {given} for direction {worst + 1}, so {given} is "
        f"tested; {option} tests the equation."
    )
    return prediction


def misfit(prediction: xr.Dataset, solution: xr.Dataset) -> int | None:
    """Return the direction for which the solution is farthest from the given prediction, or None if it stands in.

    It may be earlier by half of a visible error, and later by as much or by twice the expected delay. A direction that
    one of the two does not see emerge counts as due at their common end, at the earliest.
    """
    from dynamics.problem import Problem

    end = min(float(part["time"].values[-1]) for part in (prediction, solution) if "time" in part.coords)
    times = [np.asarray(part["emergence_time"].values, dtype=np.float64) for part in (prediction, solution)]
    given, found = (np.clip(np.where(np.isfinite(part), part, end), 1e-300, end) for part in times)
    gap = np.log(found / given)
    rate, size = step_of(solution) or (0.0, 1)
    delay = expectation(Problem.from_dataset(prediction), prediction, rate / size).delay
    late = np.maximum(LARGEST_GAP, 2.0 * np.log1p(np.where(np.isfinite(delay), delay, 0.0)))
    excess = np.maximum(gap - late, -gap - LARGEST_GAP)
    worst = int(np.argmax(excess))
    return worst if excess[worst] > 0 else None


def step_of(prediction: xr.Dataset) -> tuple[float, int] | None:
    """Return learning rate and batch size that a prediction carries, or None for one of the flow."""
    if not has_step(prediction):
        return None
    return float(prediction.attrs["learning_rate"]), int(prediction.attrs["batch_size"])
