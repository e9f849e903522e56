"""What all studies share: how long the steps should take, the bar and Ctrl-C meanwhile, means, and the dataset."""

from __future__ import annotations

import time as clock
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.commands import duration
from dynamics.problem import MOST_RUNS, SaveAt, checked_integer
from dynamics.runs import bar_settings, open_bar, study_dataset
from dynamics.solve import solve_overlaps
from hermite.text.signals import stop_if_heard
from sgd_check.engines import EngineOptions, engine_of, make_engine
from sgd_check.runs.simulation import simulate
from sgd_check.verdicts.check_plan import measured_seconds_per_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from dynamics.runs import Values
    from hermite.arrays import Array

BURSTS = 3
LONG_RUN_SECONDS = 660


def seconds_of(problem: Problem, runs: int, steps: float) -> float:
    """Return the seconds that so many steps, of all runs together, take on this machine, from the best short burst."""
    engine = make_engine(engine_of(problem), problem, EngineOptions(seeds=tuple(range(runs))))
    # Whatever else the machine does can only make a burst slower.
    return min(measured_seconds_per_step(engine) for _ in range(BURSTS)) / runs * steps


@dataclass
class Meter:
    """Counts the steps of all runs of a study that is under way; in the end its seconds and why it ended."""

    add: Callable[[int], object]
    seconds: float = 0.0
    reason: str = "reached_end"


def checked_runs(seeds: object, seed: object) -> dict[str, Any]:
    """Return the settings "seeds", two or more runs of each point, and "seed", the first of all of them."""
    return {
        "seeds": checked_integer(seeds, "seeds", minimum=2, maximum=MOST_RUNS),
        "seed": checked_integer(seed, "seed", minimum=0),
    }


def log_means(time: Array) -> tuple[Array, Array]:
    """Return the mean of ln T over the last axis and its standard error; NaN where a run has no time.

    A mean without the late runs would be too small, so that a point with a censored run counts for no fit.
    """
    logs = np.log(time)
    return logs.mean(axis=-1), logs.std(axis=-1, ddof=1) / np.sqrt(time.shape[-1])


def share_never(time: Array, blown: Array) -> Array:
    """Return the share of runs (points, runs, …) that have no time; NaN for points that were not run."""
    return np.where(np.isnan(blown[:, :1]), np.nan, np.isnan(time).mean(axis=1))


@contextmanager
def under_way(steps: float, shown: bool | None) -> Iterator[Meter]:
    """Return the context in which a study takes about so many steps; an interruption ends it and is written down.

    That a learning rate may be above the limit of stability is what studies are about, and no reason to warn.
    """
    started = clock.perf_counter()
    bar = open_bar(bar_settings(shown), total=round(steps), unit="step", unit_scale=True)

    def add(count: int) -> None:
        bar.update(count)
        stop_if_heard()

    meter = Meter(add)
    with bar, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The learning rate", category=UserWarning)
        try:
            yield meter
        except KeyboardInterrupt:
            meter.reason = "interrupted"
    meter.seconds = clock.perf_counter() - started


@dataclass(frozen=True)
class PreparedStudy:
    """A study of which theory is computed, and no step taken yet; `settings` has "seeds" runs of each point.

    `problem` is the one in the dataset; where runs are of several problems, it is the one that takes most steps.
    """

    settings: dict[str, Any]
    progress: bool | None
    problem: Problem

    @property
    def steps(self) -> float:
        """Expected number of steps of all runs together, if none blows up."""
        raise NotImplementedError

    def expected_seconds(self) -> float:
        """Return about how many seconds the runs take on this machine."""
        return seconds_of(self.problem, self.settings["seeds"], self.steps)

    def work(self) -> str:
        """Return how long the runs should take, in words."""
        seconds = self.expected_seconds()
        lines = [f"About {duration(seconds)} for {self.steps:.2g} steps of all runs together."]
        if seconds > LONG_RUN_SECONDS:
            lines.append(
                "This is a long run: fewer or smaller dimensions, fewer seeds or a larger step size is faster."
            )
        return "\n".join(lines)

    def seeds_of(self, point: int) -> range:
        """Return the seeds of the runs of a point: no two runs of the study share their samples."""
        first = int(self.settings["seed"] + point * self.settings["seeds"])
        return range(first, first + self.settings["seeds"])

    def dataset(
        self,
        answer: str,
        values: Values,
        meter: Meter,
        *,
        title: str,
        coords: dict[str, Any],
        **attributes: Any,
    ) -> xr.Dataset:
        """Return what was found, labelled; what an interruption has left undone is NaN."""
        ended = {"stop_reason": meter.reason, "wall_seconds": meter.seconds}
        return study_dataset(
            self.problem,
            values,
            title=title,
            coords=coords,
            settings={"answer": answer, **self.settings},
            attributes={"answer": answer, **ended, **attributes},
        )


def simulated(
    problem: Problem, *, learning_rate: float, steps: int, seeds: range, records: NDArray[Any] | list[int]
) -> xr.Dataset:
    """Return the runs of one point, recorded after so many steps."""
    return simulate(
        problem,
        learning_rate=learning_rate,
        steps=steps,
        seeds=seeds,
        save_at=SaveAt.at([learning_rate * record for record in records]),
        progress=False,
    )


def finite_step_times(problem: Problem, learning_rate: float, last: float) -> Array:
    """Return the emergence times (P,) of the equation that is exact in d; NaN where nothing emerges by time `last`.

    Above the limit of stability the overlaps may blow up; what emerged before counts.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        found = solve_overlaps(
            problem,
            learning_rate=learning_rate,
            step_theory="finite-d",
            save_at=SaveAt.at([last]),
            keep="summary",
            progress=False,
            on_failure="return",
            error_estimate=False,
        )
    times: Array = found["emergence_time"].values
    return times
