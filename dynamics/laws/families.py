"""Families of problems, answered one after the other, with a bar, a clock and an orderly interruption.

Knows answers as functions of a problem; nothing of what a study makes of them.
"""

from __future__ import annotations

import sys
import time as clock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.answers import solve_decoupled
from dynamics.flow import solve_overlaps
from dynamics.prediction import predict
from dynamics.schedule import SaveAt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import xarray as xr

    from dynamics.problem import Problem

__all__ = ["Answers", "answer_all", "common_times", "coupled_flow", "solve_decoupled"]

#: Tolerance of the coupled flow: far below the scatter between starts.
RTOL = 1e-4


class Answers(NamedTuple):
    """Datasets of the problems that were answered, the seconds each took, and how the family ended."""

    datasets: list[xr.Dataset]
    seconds: list[float]
    stop_reason: str


def answer_all(
    questions: Iterable[tuple[Problem, SaveAt]], solve: Callable[..., xr.Dataset], *, progress: bool | None, total: int
) -> Answers:
    """Answer every problem in turn; an interruption keeps what is there.

    Parameters
    ----------
    questions : iterable of (Problem, SaveAt)
    solve : callable
        Answer to a problem, called as solve(problem, save_at=…).
    progress : bool or None
        Whether to show a bar on stderr; None if it is a terminal.
    total : int
        Number of problems, for the bar.

    Returns
    -------
    Answers
    """
    from tqdm import tqdm

    datasets: list[xr.Dataset] = []
    seconds: list[float] = []
    reason = "reached_end"
    hidden = None if progress is None else not progress
    with tqdm(total=total, file=sys.stderr, disable=hidden, leave=False, unit="problem") as bar:
        try:
            for problem, save_at in questions:
                started = clock.perf_counter()
                datasets.append(solve(problem, save_at=save_at))
                seconds.append(clock.perf_counter() - started)
                bar.update()
        except KeyboardInterrupt:
            reason = "interrupted"
    return Answers(datasets, seconds, reason)


def coupled_flow(problem: Problem, *, save_at: SaveAt) -> xr.Dataset:
    """Integrate the exact coupled flow as the studies need it: loss and times alone, no second run for the errors.

    Where the numerics fail the record ends in NaN.
    """
    return solve_overlaps(
        problem,
        save_at=save_at,
        keep="summary",
        method="stiff",
        rtol=RTOL,
        error_estimate=False,
        progress=False,
        on_failure="return",
    )


def common_times(problems: Sequence[Problem], count: int, *, reach: float = 1.0) -> SaveAt:
    """Return geometric times for all: half the first predicted emergence to `reach` times the last learned time."""
    predictions = [predict(problem) for problem in problems]
    emergence = np.concatenate([one.predicted_emergence_time for one in predictions])
    learned = np.concatenate([one.predicted_learned_time for one in predictions])
    emergence, learned = emergence[np.isfinite(emergence) & (emergence > 0.0)], learned[np.isfinite(learned)]
    return SaveAt.geometric(0.5 * float(emergence.min()), reach * float(learned.max()), count)
