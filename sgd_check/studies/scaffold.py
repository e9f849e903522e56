"""The scaffold of studies of SGD: steps and seconds that are expected, runs of every point, and prepared starts.

At a prepared start neuron p leans on direction p alone, C² = s/d, and is orthogonal to all other neurons, which takes
the scatter of a random start out of a study of the step size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from sys import float_info
from typing import Any

import numpy as np
import xarray as xr

from dynamics.commands import duration
from dynamics.laws.scaffold import Meter, PreparedStudy, under_way
from dynamics.problem import MOST_RUNS, Problem, SaveAt, Teacher, checked_integer, checked_number
from dynamics.problem.checks import checked_list, checked_real, is_at_most, require
from dynamics.problem.optimizers import PLAIN, Optimizer
from dynamics.solve import solve_overlaps
from hermite import HermiteExpansion
from hermite.arrays import Array
from hermite.text.messages import shown
from sgd_check.engines import EngineOptions, engine_of, make_engine
from sgd_check.simulations.simulation import simulate
from sgd_check.verdicts.check import BURST_STEPS, measured_seconds_per_step

LONG_RUN_SECONDS = 660
DEFAULT_START, DEFAULT_NORM = 4.0, 1e-2


@dataclass(frozen=True)
class SgdStudy(PreparedStudy):
    """A study with its theory computed and no step taken; `settings["seeds"]` is the number of runs of each point.

    Where runs are of several problems, `problem` is the one that takes most steps.
    """

    #: Expected number of steps of all runs together, if none blows up.
    steps: float = 0.0
    #: Returns about how many seconds they take on this machine; by default those of steps of `problem`.
    seconds: Callable[[], float] | None = None
    #: Advice that makes a long run shorter.
    advice: str = "fewer or smaller dimensions, fewer seeds or a larger step size"

    def work(self) -> str:
        """Return a sentence with the expected time of the runs."""
        estimate = self.seconds or (lambda: seconds_of(self.problem, self.settings["seeds"], self.steps))
        seconds = estimate()
        text = f"About {duration(seconds)} for {self.steps:.2g} steps of all runs together."
        if seconds > LONG_RUN_SECONDS:
            text += f"\nThis is a long run: {self.advice} is faster."
        return text

    def seeds_of(self, point: int) -> range:
        """Return the seeds of the runs of a point: no two runs of the study share their samples."""
        first = int(self.settings["seed"] + point * self.settings["seeds"])
        return range(first, first + self.settings["seeds"])

    @contextmanager
    def stepping(self) -> Iterator[Meter]:
        """Return a context in which the steps of a study are taken, with a bar.

        It gives a `Meter` to be told the steps. An interruption ends the body and is recorded. Warnings that a learning
        rate may be above the limit of stability are suppressed, since that limit is the subject of studies.
        """
        total, progress = round(self.steps), self.progress
        with warnings.catch_warnings(), under_way(total, progress, unit="step", unit_scale=True) as meter:
            warnings.filterwarnings("ignore", message="The learning rate", category=UserWarning)
            yield meter

    def simulated(
        self,
        problem: Problem,
        learning_rate: float,
        steps: int,
        seeds: range,
        records: Sequence[int],
        *,
        training_samples: int | None = None,
        batch_size: int = 1,
        reshuffle: bool = True,
    ) -> xr.Dataset:
        """Return the runs of one point of the study, recorded at the steps `records` (integers).

        `steps` is the number of SGD steps of each run; the further arguments are those of `simulate`.
        """
        return simulate(
            problem,
            learning_rate=learning_rate,
            steps=steps,
            seeds=seeds,
            save_at=SaveAt.at([learning_rate * record for record in records]),
            progress=False,
            batch_size=batch_size,
            training_samples=training_samples,
            reshuffle=reshuffle,
        )


def seconds_of(
    problem: Problem,
    runs: int,
    steps: float,
    engine: str = "",
    burst: int = BURST_STEPS,
    *,
    training_samples: int | None = None,
    batch_size: int = 1,
    reshuffle: bool = True,
    dtype: str = "auto",
) -> float:
    """Return the seconds that `steps` steps, of all runs together, take here, from the fastest of three short bursts.

    Other work of the machine can only make a burst slower.
    """
    timed = min(runs, 256)  # further runs take as long
    options = EngineOptions(
        seeds=tuple(range(timed)),
        batch_size=batch_size,
        training_samples=training_samples,
        reshuffle=reshuffle,
        dtype=dtype,
    )
    engine_runs = make_engine(engine or engine_of(problem), problem, options)
    return min(measured_seconds_per_step(engine_runs, burst) for _ in range(3)) / timed * steps


def checked_runs(seeds: object, seed: object, fewest: int = 2) -> dict[str, Any]:
    """Return the settings "seeds", `fewest` runs or more of each point, and "seed", the first of all of them."""
    return {
        "seeds": checked_integer(seeds, "seeds", minimum=fewest, maximum=MOST_RUNS),
        "seed": checked_integer(seed, "seed", minimum=0),
    }


def checked_rising(values: object, name: str, kind: str, least: float, most: float = float_info.max) -> list[float]:
    """Return a list of increasing numbers from `least` to `most`; `kind` says so, such as "positive numbers"."""
    numbers = [checked_real(value, name) for value in checked_list(values, name)]
    is_within = numbers and is_at_most(least, numbers[0]) and is_at_most(numbers[-1], most)
    require(
        is_within and all(a < b for a, b in pairwise(numbers)),
        f"Argument `{name}` must hold increasing {kind}, but is {shown(numbers)}.",
    )
    return numbers


def log_means(time: Array) -> tuple[Array, Array]:
    """Return the mean of ln T over the last axis and its standard error; NaN where a run has no time.

    A mean without the late runs would be too small, so that a point with a censored run counts for no fit.
    """
    logs = np.log(time)
    return logs.mean(axis=-1), logs.std(axis=-1, ddof=1) / np.sqrt(time.shape[-1])


def share_never(time: Array, blown: Array) -> Array:
    """Return the share of runs (points, runs, …) that have no time; NaN for points that were not run."""
    return np.where(np.isnan(blown[:, :1]), np.nan, np.isnan(time).mean(axis=1))


def finite_step_times(problem: Problem, learning_rate: float, last: float, optimizer: Optimizer = PLAIN) -> Array:
    """Return the emergence times (P,) of the equation that is exact in d, even if overlaps blow up; NaN if never."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning), np.errstate(all="ignore"):
        answer = solve_overlaps(
            problem,
            learning_rate=learning_rate,
            step_theory="finite-d",
            optimizer=None if optimizer.is_plain else optimizer,
            save_at=SaveAt.at([last]),
            keep="summary",
            progress=False,
            on_failure="return",
            error_estimate=False,
        )
    return np.asarray(answer["emergence_time"].values)


def prepared_pairs(
    information_exponent: int,
    dimension: int,
    *,
    teacher: Teacher | None = None,
    start: float = DEFAULT_START,
    initial_norm: float = DEFAULT_NORM,
) -> Problem:
    """Return the problem of as many neurons of length σ0 as directions, each at C² = s/d from its direction."""
    k = checked_integer(information_exponent, "information_exponent", minimum=3)
    d = checked_integer(dimension, "dimension", minimum=1)
    goal = Teacher([1.0]) if teacher is None else teacher
    count, lead = goal.num_directions, checked_real(start, "start")
    require(
        d >= 2 * count,
        f"Argument `dimension` must be at least twice the number of directions, {2 * count}, but is {d}.",
    )
    require(
        0.0 < lead < 0.5 * d,
        f"Argument `start` must be positive and below half the dimension {d}, but is {lead}.",
    )
    norm = checked_number(initial_norm, "initial_norm", positive=True)
    overlaps = (np.sqrt(lead / d) * np.eye(count), np.eye(count), np.full(count, norm * norm))
    return Problem(activation=f"he{k}", teacher=goal, width=count, dimension=d, initial_overlaps=overlaps)


def lone_sphere(link: HermiteExpansion | str, d: int, overlap: float, smoothing: float = 0.0) -> Problem:
    """Return the problem of one spherical neuron that starts at an overlap and descends its correlation."""
    return Problem(
        activation=link,
        teacher=Teacher([1.0]),
        width=1,
        dimension=d,
        student="spherical",
        objective="correlation",
        smoothing=smoothing,
        initial_overlaps=([[overlap]], [[1.0]], [1.0]),
    )
