"""The propagation of chaos as a study: what can be asked of it, checked, and about how long it takes."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dynamics.commands.studies import duration
from dynamics.laws.chaos import default_chaos_schedule, propagation_of_chaos
from dynamics.problem.checks import MOST_RUNS, checked_increasing, checked_integer
from dynamics.problem.named_teachers import spherical_problem
from dynamics.problem.schedule import SaveAt
from dynamics.runs.result import also_interrupted
from dynamics.runs.trackers import bar_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.problem import Problem

#: Networks and mean field to this accuracy: errors of 10^-5 in positions, far below distances of 1/√m.
RTOL, ATOL = 1e-3, 1e-5
#: Evaluations of the flow of h_4 per unit of time, and operations per second, for the estimate.
EVALUATIONS, SPEED = 25.0, 3e10


@dataclass(frozen=True)
class ChaosStudy:
    """What will be measured, checked."""

    problem: Problem
    widths: tuple[int, ...]
    seeds: range
    save_at: SaveAt
    progress: bool | None

    def work(self) -> str:
        """Return what will be done, in one line."""
        last, d = float(self.save_at.times[-1]), self.problem.dimension
        operations = sum(4.0 * m**2 * min(d, self.problem.teacher.span + m) for m in self.widths)
        seconds = EVALUATIONS * last * len(self.seeds) * operations / SPEED
        asked = f"{len(self.widths)} widths, {len(self.seeds)} starts each, to t = {last:.4g}"
        return f"About {duration(seconds)} for {asked}."

    def run(self) -> xr.Dataset:
        """Return the dataset of `propagation_of_chaos`, with the seconds it took."""
        began = clock.perf_counter()
        run = partial(
            propagation_of_chaos,
            self.problem,
            widths=self.widths,
            seeds=self.seeds,
            save_at=self.save_at,
            rtol=RTOL,
            atol=ATOL,
            progress=not bar_settings(self.progress)["disable"],
        )
        dataset = also_interrupted(run)
        dataset.attrs["wall_seconds"] = clock.perf_counter() - began
        return dataset


def prepare(
    *,
    teacher: str = "he4",
    dimension: int = 16,
    widths: Sequence[int] = (128, 256, 512, 1024),
    seeds: int = 8,
    seed: int = 0,
    last: float | None = None,
    progress: bool | None = None,
) -> ChaosStudy:
    """Check what is asked: a teacher of `SPHERICAL_TEACHERS`, widths, at least two starts, and the last saved time."""
    problem = spherical_problem(teacher, dimension=dimension)
    counts = checked_increasing(widths, "widths", minimum=1)
    number = checked_integer(seeds, "seeds", minimum=2, maximum=MOST_RUNS)
    schedule = default_chaos_schedule(problem)
    if last is not None:
        first = min(float(schedule.times[0]), last / 100.0)
        schedule = SaveAt.geometric(first, last, len(schedule))
    return ChaosStudy(problem, tuple(counts), range(seed, seed + number), schedule, progress)
