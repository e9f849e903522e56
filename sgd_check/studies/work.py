"""What all studies share: how long the steps should take, the bar and Ctrl-C while they are taken, and the dataset."""

from __future__ import annotations

import sys
import time as clock
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynamics.commands import duration
from dynamics.problem import SaveAt
from dynamics.runs import study_dataset
from sgd_check.engines import DEFAULT_ENGINE, EngineOptions, make_engine
from sgd_check.runs.simulation import simulate
from sgd_check.verdicts.defaults import measured_seconds_per_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from dynamics.runs import Values

BURSTS = 3
LONG_RUN_SECONDS = 660


def seconds_of(problem: Problem, runs: int, steps: float) -> float:
    """Return the seconds that so many steps, of all runs together, take on this machine, from the best short burst."""
    engine = make_engine(DEFAULT_ENGINE, problem, EngineOptions(seeds=tuple(range(runs))))
    # Whatever else the machine does can only make a burst slower.
    return min(measured_seconds_per_step(engine) for _ in range(BURSTS)) / runs * steps


def announcement(seconds: float, steps: float) -> str:
    """Return what a study says before its first step."""
    lines = [f"About {duration(seconds)} for {steps:.2g} steps of all runs together."]
    if seconds > LONG_RUN_SECONDS:
        lines.append("This is a long run: fewer or smaller dimensions, fewer seeds or a larger step size is faster.")
    return "\n".join(lines)


class Meter:
    """The bar of a study that is under way; in the end its seconds and why it ended."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self.seconds, self.reason = 0.0, "reached_end"

    def add(self, steps: int) -> None:
        """Count steps of all runs together."""
        self._bar.update(steps)


@contextmanager
def under_way(steps: float, shown: bool | None) -> Iterator[Meter]:
    """Return the context in which a study takes about so many steps; Ctrl-C ends it and is written down.

    That a learning rate may be above the limit of stability is what studies are about, and no reason to warn.
    """
    from tqdm import tqdm

    started, hidden = clock.perf_counter(), None if shown is None else not shown
    bar = tqdm(total=round(steps), file=sys.stderr, disable=hidden, leave=False, unit="step", unit_scale=True)
    meter = Meter(bar)
    with bar, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The learning rate", category=UserWarning)
        try:
            yield meter
        except KeyboardInterrupt:
            meter.reason = "interrupted"
    meter.seconds = clock.perf_counter() - started


@dataclass(frozen=True)
class PreparedStudy:
    """A study of which theory is computed, and no step taken yet; `settings` has "seeds" runs of each point."""

    settings: dict[str, Any]
    progress: bool | None

    @property
    def steps(self) -> float:
        """Expected number of steps of all runs together."""
        raise NotImplementedError

    def expected_seconds(self) -> float:
        """Return about how many seconds the runs take on this machine."""
        raise NotImplementedError

    def work(self) -> str:
        """Return how long the runs should take, in words."""
        return announcement(self.expected_seconds(), self.steps)

    def seeds_of(self, point: int) -> range:
        """Return the seeds of the runs of a point: no two runs of the study share their samples."""
        first = int(self.settings["seed"] + point * self.settings["seeds"])
        return range(first, first + self.settings["seeds"])

    def dataset(
        self,
        answer: str,
        problem: Problem,
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
            problem,
            values,
            title=title,
            coords=coords,
            settings={"answer": answer, **self.settings},
            attributes={"answer": answer, **ended, **attributes},
        )


def simulated(
    problem: Problem, *, learning_rate: float, steps: int, seeds: range, records: NDArray[Any] | list[int]
) -> xr.Dataset:
    """Return the runs of one point, recorded after so many steps; raise KeyboardInterrupt if they were interrupted."""
    runs = simulate(
        problem,
        learning_rate=learning_rate,
        steps=steps,
        seeds=seeds,
        save_at=SaveAt.at([learning_rate * record for record in records]),
        progress=False,
    )
    if runs.attrs["stop_reason"] == "interrupted":
        raise KeyboardInterrupt
    return runs
