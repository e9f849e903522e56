"""What to simulate where curves decide: how far, and at which learning rate, by pilot runs; one simulation or two.

Theory has no limit of stability and no scatter to offer there. So eight pilot runs are made with more and more steps to
the same end, until the tests of all curves that move would see an error of 30 % in time. Only the scatter of the pilot
and its distance from theory are looked at, and its samples are others than those of the check.
"""

from __future__ import annotations

import time as clock
import warnings
from typing import TYPE_CHECKING

import numpy as np

from sgd_check.engines import SpanEngine, make_engine
from sgd_check.runs.simulation import simulate
from sgd_check.verdicts.alignment import check_prediction, decided_by_curves
from sgd_check.verdicts.curve_sources import courses_of, curves_over_time, paired_runs
from sgd_check.verdicts.curve_tests import looks_of, power_of
from sgd_check.verdicts.defaults import AFFORDABLE_SECONDS, Course, measured_seconds_per_step
from sgd_check.verdicts.direction import FEWEST_RUNS, VISIBLE_ERROR
from sgd_check.verdicts.expectation import has_step

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
#: Power that the pilot asks for, so that the check has 0.8.
PILOT_POWER = 0.9
#: Part of its range by which the step size may move a curve, so that it can be extrapolated.
PILOT_EFFECT = 0.1
#: Steps of all runs, at the learning rate and at half of it, per step at the learning rate.
BOTH_RATES = 3


def choose_curve_course(
    prediction: xr.Dataset,
    name: str,
    options: EngineOptions,
    *,
    learning_rate: float | None,
    steps: int | None,
    false_alarm_rate: float,
) -> tuple[Course, float | None]:
    """Return what to simulate and about how many seconds that takes, None for an engine whose cost is not in steps.

    What is not given is chosen: the end by the prediction, the learning rate by pilot runs with the engine `name`.
    Raises ValueError if nothing moves in the prediction and learning rate and steps are not both given.
    """
    from dynamics.problem import Problem

    check_prediction(prediction)
    problem = Problem.from_dataset(prediction)
    engine = make_engine(name, problem, options)
    seconds = None if isinstance(engine, SpanEngine) else BOTH_RATES * measured_seconds_per_step(engine)
    if learning_rate is None or steps is None:
        end = end_of_curves(problem, prediction)
        if learning_rate is not None:
            steps = int(np.ceil(end / learning_rate))
        elif steps is None:
            steps = _piloted_steps(problem, prediction, name, options, end, seconds or 0.0, false_alarm_rate)
        learning_rate = learning_rate or end / steps
    emerging = int(np.isfinite(prediction["emergence_time"].values).sum())
    course = Course(problem, learning_rate, steps, np.inf, emerging, emerging)
    return course, None if seconds is None else seconds * steps


def end_of_curves(problem: Problem, prediction: xr.Dataset) -> float:
    """Return the time until which a prediction is to be followed so that all its curves are seen, within its times."""
    times, last = np.asarray(prediction["time"].values) if "time" in prediction.coords else np.empty(0), 0.0
    for course in courses_of(problem, prediction):
        known = np.isfinite(course.values)
        way = np.abs(np.diff(course.values[known], prepend=course.values[known][:1])).cumsum()
        if way.size and np.ptp(course.values[known]) >= course.scale:
            last = max(last, float(times[known][np.searchsorted(way, FOLLOWED * way[-1])]))
    if not last > 0.0:
        msg = "Argument `steps` must be given with a learning rate, because nothing moves in the prediction."
        raise ValueError(msg)
    return min((1.0 + VISIBLE_ERROR) * last, float(times[np.isfinite(prediction["loss"].values)][-1]))


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


def _piloted_steps(
    problem: Problem,
    prediction: xr.Dataset,
    name: str,
    options: EngineOptions,
    end: float,
    seconds: float,
    rate: float,
) -> int:
    """Return the fewest steps at which pilot runs let all tests see, or the most that ten minutes allow."""
    steps = PILOT_STEPS
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            pilot = simulate(
                problem,
                learning_rate=end / steps,
                steps=steps,
                seeds=PILOT_SEEDS,
                engine=name,
                batch_size=options.batch_size,
                device=options.device,
                dtype=options.dtype,
                progress=False,
            )
        if pilot.attrs["stop_reason"] == "interrupted":
            raise KeyboardInterrupt
        enough = _sees(problem, prediction, pilot, len(options.seeds), rate)
        if enough or seconds * steps * PILOT_FACTOR > AFFORDABLE_SECONDS:
            return steps
        steps *= PILOT_FACTOR


def _sees(problem: Problem, prediction: xr.Dataset, pilot: xr.Dataset, runs: int, rate: float) -> bool:
    """Return whether a check at the learning rate of the pilot would see an error of 30 % in time in every curve."""
    if pilot.attrs["stop_reason"] != "reached_end" or paired_runs([pilot]).size < len(PILOT_SEEDS):
        return False
    curves = curves_over_time(problem, prediction, [pilot])
    looks = [looks_of(curve.theory) for curve in curves]
    level, powers = rate / max(sum(part.size for part in looks), 1), []
    for curve, part in zip(curves, looks, strict=True):
        scatter = SCATTER_MARGIN * curve.runs.std(axis=0, ddof=1)
        spread = EXTRAPOLATED_SCATTER * float(scatter[part].max())
        shift = np.abs(curve.runs.mean(axis=0) - curve.theory)
        if curve.moves and np.max(shift[part]) > PILOT_EFFECT * curve.range:
            return False
        effect = np.maximum(shift, scatter)  # whichever of the two tests will be made
        powers.append(power_of(curve._replace(effect=effect), part, spread, max(runs, FEWEST_RUNS), level))
    return all(np.isnan(power) or power >= PILOT_POWER for power in powers)
