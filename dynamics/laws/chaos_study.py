"""The propagation of chaos as a study: a teacher of the table, several widths, exponents in the width with errors.

Responsible for what is asked, drawn and printed; the measurement is `dynamics.laws.chaos.propagation_of_chaos`.
"""

from __future__ import annotations

import sys
import time as clock
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.commands.prepared import duration
from dynamics.laws.chaos import default_chaos_schedule, propagation_of_chaos
from dynamics.problem.checks import MOST_RUNS, checked_increasing, checked_integer
from dynamics.problem.named_teachers import spherical_problem
from dynamics.problem.schedule import SaveAt
from dynamics.report.figures.chaos import chaos_figure as plot_study
from dynamics.report.study_text import study_json, study_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import xarray as xr

    from dynamics.problem import Problem

__all__ = ["ChaosStudy", "as_json", "as_text", "plot_study", "prepare", "sentences", "summarise"]

#: Networks and mean field to this accuracy: errors of 10^-5 in positions, far below distances of 1/√m.
RTOL, ATOL = 1e-3, 1e-5
#: Evaluations of the flow of h_4 per unit of time, and operations per second, for the estimate.
EVALUATIONS, SPEED = 25.0, 3e10
#: Saved times that the table shows.
SHOWN = 8
#: Standard errors within which an exponent counts as that of theory.
BAND = 2.0


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
        dataset = propagation_of_chaos(
            self.problem,
            widths=self.widths,
            seeds=self.seeds,
            save_at=self.save_at,
            rtol=RTOL,
            atol=ATOL,
            progress=sys.stderr.isatty() if self.progress is None else self.progress,
        )
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


def summarise(dataset: xr.Dataset) -> dict[str, Any]:
    """Return exponents at some times as `points`, and at how many times that of the function gap is −1."""
    shown = dataset.isel(time=np.unique(np.linspace(0, dataset.sizes["time"] - 1, SHOWN).round().astype(int)))
    exponent, error = dataset["function_gap_exponent"].values, dataset["function_gap_exponent_error"].values
    reached = dataset["loss_level_time"].values[-1]
    points = [
        {
            "time": float(at["time"]),
            "loss": float(at["mean_field_loss"]),
            "function_gap_exponent": float(at["function_gap_exponent"]),
            "function_gap_exponent_error": float(at["function_gap_exponent_error"]),
            "coupling_exponent": float(at["coupling_exponent"]),
            "coupling_exponent_error": float(at["coupling_exponent_error"]),
        }
        for at in (shown.isel(time=t) for t in range(shown.sizes["time"]))
    ]
    return {
        "points": points,
        "times": int(np.isfinite(exponent).sum()),
        "times_as_theory": int(np.sum(np.abs(exponent + 1.0) <= BAND * error)),
        "loss_tenth_time": float(reached),
    }


def as_json(dataset: xr.Dataset, output: Path, figure: Path | None) -> str:
    """Return one JSON object; what is not finite becomes null."""
    return study_json(dataset, summarise(dataset), output, figure)


def as_text(dataset: xr.Dataset, output: Path, figure: Path | None) -> str:
    """Return the table of exponents over time, sentences on them, and the names of the files."""
    return study_text(dataset, summarise(dataset), sentences(dataset), output, figure)


def sentences(dataset: xr.Dataset) -> list[str]:
    """Return what is to be said about the exponents."""
    summary = summarise(dataset)
    found = [
        "Exponents in m of E(f_m - f_inf)^2 and of mean |Delta_i|^2; theory: -1. Errors: bootstrap over the starts.",
        f"The first is -1 within {BAND:g} standard errors at {summary['times_as_theory']} of {summary['times']} times, "
        "which share their starts.",
    ]
    if np.isfinite(summary["loss_tenth_time"]):
        found.append(f"The loss of the mean field falls below a tenth at t = {summary['loss_tenth_time']:.5g}.")
    return found
