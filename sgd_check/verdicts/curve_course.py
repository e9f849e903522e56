"""What to simulate where curves decide: how far, and at which learning rate, by pilot runs; one simulation or two.

Theory has no limit of stability and no scatter to offer there. So eight pilot runs are made with more and more steps to
the same end, until the very test that will be made, of finite steps or of the flow, would see an error of 30 % in time
in all curves that move. If that takes over a minute, as where noise chooses the neuron that learns the last direction,
the course ends with the last curve of which it can be seen. Only the scatter of the pilot and its distance from theory
are looked at, and its samples are others than those of the check.
"""

from __future__ import annotations

import time as clock
import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sgd_check.engines import SpanEngine, make_engine
from sgd_check.runs.simulation import simulate
from sgd_check.verdicts.alignment import check_prediction, decided_by_curves
from sgd_check.verdicts.curve_sources import courses_of, curves_over_time, paired_runs
from sgd_check.verdicts.curve_tests import allowance_of, looks_of, power_of
from sgd_check.verdicts.defaults import AFFORDABLE_SECONDS, Course, measured_seconds_per_step
from sgd_check.verdicts.direction import FEWEST_RUNS, VISIBLE_ERROR
from sgd_check.verdicts.expectation import has_step
from sgd_check.verdicts.finite_step import has_equation

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr

    from dynamics.problem import Problem
    from sgd_check.engines import EngineOptions

PILOT_SEEDS = tuple(range(2**31, 2**31 + 8))
PILOT_STEPS, PILOT_FACTOR = 500, 2
#: A curve is followed until it has made this part of its way, and 30 % longer.
FOLLOWED = 0.9
#: Standard deviation over runs of twice a run at half of the learning rate less one at the whole.
EXTRAPOLATED_SCATTER = float(np.sqrt(3.0))
#: The scatter of eight runs is itself uncertain by a quarter.
SCATTER_MARGIN = 1.25
#: Of the equation of finite steps, whose band grows with the square of the scatter, less is asked.
STEPPED_MARGIN = 1.15
#: Power that the pilot asks for, so that the check has 0.8.
PILOT_POWER = 0.9
#: Parts of its range by which the step size may move a curve, and runs may scatter, so that it can be extrapolated: the
#: effect that two simulations show has half of their scatter as its error.
PILOT_EFFECT, EXTRAPOLATED_LIMIT = 0.1, 0.15
#: Part of the band around the equation of finite steps that the mean of the pilot may use up.
PILOT_BAND = 0.75
#: Steps of all runs, at the learning rate and at half of it, per step at the learning rate.
BOTH_RATES = 3
#: Beyond so many seconds of simulation a course is shortened to what can be seen, if that is anything.
PATIENCE_SECONDS = 60.0


class Pilot(NamedTuple):
    """What pilot runs are made for: a prediction, the check's engine, its runs, and how it will test theory.

    `stepped` says whether that is the equation of finite steps; `seconds` are those of one step of the check.
    """

    problem: Problem
    prediction: xr.Dataset
    name: str
    options: EngineOptions
    false_alarm_rate: float
    stepped: bool
    seconds: float


def choose_curve_course(
    prediction: xr.Dataset,
    name: str,
    options: EngineOptions,
    *,
    learning_rate: float | None,
    steps: int | None,
    false_alarm_rate: float,
    theory: str = "auto",
) -> tuple[Course, float | None]:
    """Return what to simulate and about how many seconds that takes, None for an engine whose cost is not in steps.

    What is not given is chosen: the end by the prediction, the learning rate by pilot runs with the engine `name` for
    the `theory` that will be tested. Raises ValueError if nothing moves in the prediction and learning rate and steps
    are not both given.
    """
    from dynamics.problem import Problem

    check_prediction(prediction)
    problem = Problem.from_dataset(prediction)
    engine = make_engine(name, problem, options)
    stepped = has_step(prediction) or (theory != "flow" and has_equation(problem, options.batch_size))
    seconds = None
    if not isinstance(engine, SpanEngine):
        seconds = (1 if stepped else BOTH_RATES) * measured_seconds_per_step(engine)
    if learning_rate is None or steps is None:
        end = ends_of_curves(problem, prediction)[-1]
        if learning_rate is not None:
            steps = int(np.ceil(end / learning_rate))
        elif steps is None:
            pilot = Pilot(problem, prediction, name, options, false_alarm_rate, stepped, seconds or 0.0)
            learning_rate, steps = _piloted(pilot)
        learning_rate = learning_rate or end / steps
    emerging = int(np.isfinite(prediction["emergence_time"].values).sum())
    course = Course(problem, learning_rate, steps, np.inf, emerging, emerging)
    return course, None if seconds is None else seconds * steps


def ends_of_curves(problem: Problem, prediction: xr.Dataset) -> list[float]:
    """Return the times until which the curves that move are to be followed, ascending, within the prediction."""
    found = []
    times = np.asarray(prediction["time"].values) if "time" in prediction.coords else np.empty(0)
    for course in courses_of(problem, prediction):
        known = np.isfinite(course.values)
        way = np.abs(np.diff(course.values[known], prepend=course.values[known][:1])).cumsum()
        if way.size and np.ptp(course.values[known]) >= course.scale:
            found.append(float(times[known][np.searchsorted(way, FOLLOWED * way[-1])]))
    if not max(found, default=0.0) > 0.0:
        msg = "Argument `steps` must be given with a learning rate, because nothing moves in the prediction."
        raise ValueError(msg)
    last = float(times[np.isfinite(prediction["loss"].values)][-1])
    return sorted({min((1.0 + VISIBLE_ERROR) * time, last) for time in found})


def simulate_for_curves(
    prediction: xr.Dataset, course: Course, simulate_at: Callable[[float, int, bool], xr.Dataset]
) -> list[xr.Dataset]:
    """Return the simulation of a check, and where the flow is tested by curves one at half of the learning rate.

    `simulate_at` takes learning rate, steps, and whether these are the first runs. Without all of the first runs there
    is no use for the second.
    """
    found = [simulate_at(course.learning_rate, course.steps, True)]
    if needs_two(course.problem, prediction) and found[0].attrs["stop_reason"] == "reached_end":
        found.append(simulate_at(0.5 * course.learning_rate, 2 * course.steps, False))
    return found


def seconds_left(budget: float | None, started: float) -> float | None:
    """Return what is left of a budget in seconds since a reading of the clock, and a little at least."""
    return None if budget is None else max(budget - (clock.perf_counter() - started), 1e-3)


def needs_two(problem: Problem, prediction: xr.Dataset) -> bool:
    """Return whether runs at two learning rates are to be compared with a prediction."""
    return decided_by_curves(problem) and not has_step(prediction)


def _piloted(pilot: Pilot) -> tuple[float, int]:
    """Return the largest learning rate at which pilot runs let all tests see, and the steps to the end of the curves.

    Where that takes over a minute the end is the last one until which they do; else what ten minutes allow.
    """
    ends = ends_of_curves(pilot.problem, pilot.prediction)
    steps = PILOT_STEPS
    while True:
        rate = ends[-1] / steps
        runs = _pilot_runs(pilot, rate, steps)
        slow = pilot.seconds * steps * PILOT_FACTOR > PATIENCE_SECONDS
        seen = next((end for end in (ends[::-1] if slow else ends[-1:]) if _sees(pilot, runs, end)), None)
        if seen is not None:
            return rate, int(np.ceil(seen / rate))
        if pilot.seconds * steps * PILOT_FACTOR > AFFORDABLE_SECONDS:
            return rate, steps
        steps *= PILOT_FACTOR


def _pilot_runs(pilot: Pilot, rate: float, steps: int) -> xr.Dataset:
    """Return the pilot runs at a learning rate."""
    options = pilot.options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return simulate(
            pilot.problem,
            learning_rate=rate,
            steps=steps,
            seeds=PILOT_SEEDS,
            engine=pilot.name,
            batch_size=options.batch_size,
            device=options.device,
            dtype=options.dtype,
            progress=False,
        )


def _sees(pilot: Pilot, runs: xr.Dataset, end: float) -> bool:
    """Return whether a check until `end`, at the learning rate of pilot runs, would see an error of 30 % in time."""
    if runs.attrs["stop_reason"] != "reached_end" or paired_runs([runs]).size < len(PILOT_SEEDS):
        return False
    curves = curves_over_time(pilot.problem, pilot.prediction, [runs.sel(time=runs["time"] <= end * (1 + 1e-9))])
    looks = [looks_of(curve.theory, curve.saved) for curve in curves]
    level = pilot.false_alarm_rate / max(sum(part.size for part in looks), 1)
    count, powers = max(len(pilot.options.seeds), FEWEST_RUNS), []
    for curve, part in zip(curves, looks, strict=True):
        scatter = curve.runs.std(axis=0, ddof=1)
        shift = np.abs(curve.runs.mean(axis=0) - curve.theory)
        if pilot.stepped:
            spread = STEPPED_MARGIN * scatter
            tested = curve._replace(effect=spread)
            largest = PILOT_BAND * allowance_of(tested, part)
        else:
            tested = curve._replace(effect=np.maximum(shift, SCATTER_MARGIN * scatter))
            spread, largest = EXTRAPOLATED_SCATTER * SCATTER_MARGIN * scatter, PILOT_EFFECT * curve.range
            if curve.moves and SCATTER_MARGIN * np.max(scatter) > EXTRAPOLATED_LIMIT * curve.range:
                return False
        if curve.moves and np.max(shift[part]) > largest:
            return False
        powers.append(power_of(tested, part, float(spread[part].max()), count, level))
    return any(power >= PILOT_POWER for power in powers) and all(
        np.isnan(power) or power >= PILOT_POWER for power in powers
    )
