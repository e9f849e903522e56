"""What to simulate to check a prediction: learning rate, steps and directions, and about how long that takes."""

from __future__ import annotations

import time as clock
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem import is_correlation
from sgd_check.engines import SpanEngine, make_engine
from sgd_check.verdicts.alignment import check_prediction, decided_by_curves
from sgd_check.verdicts.direction import FEWEST_RUNS, VISIBLE_ERROR, reach_factor
from sgd_check.verdicts.expectation import expectation

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from sgd_check.engines import Engine, EngineOptions

DEFAULT_SEEDS = 32
LIMIT_SHARE = 0.1
LARGEST_DELAY = 0.04
HORIZON_FACTOR = 2.5
BURST_STEPS = 300
BURST_SECONDS = 0.03
LONGEST_BURST = 256 * BURST_STEPS
BURST_RATE = 1e-12
AFFORDABLE_SECONDS = 600.0
# The sample's scatter is itself uncertain by a fifth at sixteen runs.
MARGIN = 0.8
SMALLEST_SHARE = 1e-6


@dataclass(frozen=True)
class Course:
    """What to simulate, and why so: made for the `checked` first directions of those `emerging` in the prediction.

    `largest_delay` is the largest expected relative delay of a checked direction at this learning rate, inf if theory
    gives none.
    """

    problem: Problem
    learning_rate: float
    steps: int
    largest_delay: float
    checked: int
    emerging: int

    def describe(self) -> str:
        """Return one line for the reader."""
        if decided_by_curves(self.problem):
            horizon = f"{self.learning_rate * self.steps:.4g}"
            return f"Learning rate {self.learning_rate:.4g}, {self.steps} steps, horizon {horizon}."
        delay = f"{100 * self.largest_delay:.1f} %" if np.isfinite(self.largest_delay) else "unknown"
        return (
            f"Learning rate {self.learning_rate:.4g} (largest expected delay {delay}), {self.steps} steps, "
            f"horizon {self.learning_rate * self.steps:.4g}, made for {self.checked} of {self.emerging} directions."
        )


def choose_course(
    prediction: xr.Dataset,
    learning_rate: float | None = None,
    steps: int | None = None,
    *,
    batch_size: int = 1,
    seeds: int = DEFAULT_SEEDS,
    false_alarm_rate: float = 0.01,
    directions: int | None = None,
) -> Course:
    """Return what to simulate to check a prediction; what is not given is chosen safely.

    By default the learning rate is the largest, up to a tenth of the limit of stability, at which every direction that
    emerges has an expected delay of at most 4 % and scatters so little that an error of 30 % would be seen in `seeds`
    runs, and the steps last up to 2.5 times the last emergence. `directions` asks that of so many directions alone, the
    first to emerge. Raises ValueError if nothing emerges and `steps` is not given, or theory gives no safe rate.
    """
    from dynamics.problem import Problem

    check_prediction(prediction)
    problem = Problem.from_dataset(prediction)
    time = expectation(problem, prediction, 1e-9).time
    emerging = int(np.isfinite(time).sum())
    chosen = np.argsort(time)[: min(directions or emerging, emerging)]  # NaN, never, is sorted last
    rate = learning_rate or _safe_rate(problem, prediction, chosen, batch_size, seeds, false_alarm_rate)
    if steps is None:
        if not emerging:
            msg = "Argument `steps` must be given, because no direction emerges in the prediction."
            raise ValueError(msg)
        steps = int(np.ceil(HORIZON_FACTOR * float(time[chosen].max()) / rate))
    delay = expectation(problem, prediction, rate / batch_size).delay[chosen]
    return Course(problem, rate, steps, float(delay.max(initial=0.0)) if emerging else np.inf, chosen.size, emerging)


def affordable_course(prediction: xr.Dataset, seconds_per_step: float, **options: Any) -> Course:
    """Return what to simulate for as many directions as ten minutes allow, the first to emerge, and at least for one.

    A step of all runs takes `seconds_per_step`; `options` are those of `choose_course`. With `steps` given, all
    directions count.
    """
    course = choose_course(prediction, **options)
    if options.get("steps") is not None or course.steps * seconds_per_step <= AFFORDABLE_SECONDS:
        return course

    def seconds(directions: int) -> float:
        return choose_course(prediction, **options, directions=directions).steps * seconds_per_step

    more = bisect_right(range(2, course.checked), AFFORDABLE_SECONDS, key=seconds)
    return choose_course(prediction, **options, directions=1 + more)


def engine_for(prediction: xr.Dataset, name: str, options: EngineOptions, **choice: Any) -> Engine:
    """Return the engine of a check, or say in one sentence what cannot be run; `choice` as of `choose_course`."""
    course = choose_course(prediction, batch_size=options.batch_size, seeds=len(options.seeds), directions=1, **choice)
    return make_engine(name, course.problem, options)


def choose_and_time(
    prediction: xr.Dataset, engine: Engine, options: EngineOptions, *, directions: int | None, **choice: Any
) -> tuple[Course, float | None]:
    """Return what to simulate and about how many seconds it takes, None for an engine whose cost is not in steps.

    Without `directions` it is for as many as ten minutes allow. Spends `engine`; `choice` as of `choose_course`.
    """
    choice |= {"batch_size": options.batch_size, "seeds": len(options.seeds)}
    if isinstance(engine, SpanEngine):
        return choose_course(prediction, **choice, directions=directions), None
    per_step = measured_seconds_per_step(engine)
    if directions is None:
        course = affordable_course(prediction, per_step, **choice)
    else:
        course = choose_course(prediction, **choice, directions=directions)
    return course, per_step * course.steps


def _safe_rate(
    problem: Problem,
    prediction: xr.Dataset,
    chosen: NDArray[np.intp],
    batch_size: int,
    seeds: int,
    false_alarm_rate: float,
) -> float:
    """Return the default learning rate, lowered in steps of a fifth until every chosen direction can be told apart."""
    from dynamics import theory

    find = theory.largest_rate if is_correlation(problem) else theory.learning_rate_limit
    try:
        limit = batch_size * float(find(problem))
    except ValueError as error:
        msg = f"Argument `learning_rate` must be given, because theory gives no safe one here: {error}"
        raise ValueError(msg) from None
    # Where even a vanishing step has no finite delay, theory has none to give, and no rate would help.
    vanishing = expectation(problem, prediction, SMALLEST_SHARE * limit / batch_size)
    known = chosen[np.isfinite(vanishing.delay[chosen])]
    factor = reach_factor(max(seeds, FEWEST_RUNS), false_alarm_rate / max(chosen.size, 1))
    rate = LIMIT_SHARE * limit
    while rate > SMALLEST_SHARE * limit:
        expected = expectation(problem, prediction, rate / batch_size)
        delay, scatter = expected.delay[known], expected.scatter[known]
        told_apart = 2.0 * np.log1p(delay) + factor * scatter <= MARGIN * np.log1p(VISIBLE_ERROR)
        if ((delay <= LARGEST_DELAY) & told_apart).all():
            break
        rate *= 0.8
    return rate


def measured_seconds_per_step(engine: Engine, steps: int = BURST_STEPS) -> float:
    """Return the seconds of a step of all runs, by bursts of `steps` or more that can be timed; spends `engine`."""
    with engine.running():
        engine.advance(np.full(10, BURST_RATE))
        engine.measure(student=False)
        while True:
            started = clock.perf_counter()
            engine.advance(np.full(steps, BURST_RATE))
            engine.measure(student=False)
            spent = clock.perf_counter() - started
            if spent >= BURST_SECONDS or steps >= LONGEST_BURST:
                return spent / steps
            steps *= 4
