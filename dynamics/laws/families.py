"""Families of problems, answered one after the other or by several processes, with a bar, a clock and an orderly end.

Knows answers as functions of a problem; nothing of what a study makes of them.
"""

from __future__ import annotations

import sys
import time as clock
from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.compiler.cores import available_cores, one_core
from dynamics.problem.checks import checked_integer
from dynamics.problem.schedule import SaveAt
from dynamics.solve.decoupled import solve_decoupled
from dynamics.solve.overlaps import solve_overlaps
from dynamics.study.pool import ProcessCrew
from dynamics.study.studies import STUDIES
from dynamics.theory.prediction import predict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import xarray as xr

    from dynamics.problem import Problem

    Task = Callable[[], xr.Dataset]

__all__ = ["Answers", "answer_all", "checked_workers", "common_times", "coupled_flow", "solve_decoupled"]

#: Tolerance of the coupled flow: far below the scatter between starts.
RTOL = 1e-4


class Answers(NamedTuple):
    """Datasets of the problems that were answered, the seconds each took, and how the family ended."""

    datasets: list[xr.Dataset]
    seconds: list[float]
    stop_reason: str


def answer_all(tasks: Sequence[Task], *, progress: bool | None, workers: int = 1) -> Answers:
    """Do every task; an interruption keeps what is there.

    Parameters
    ----------
    tasks : sequence of callable
        Each returns the answer to one problem, for several workers a `partial` of functions at the top of modules.
    progress : bool or None
        Whether to show a bar on stderr; None if it is a terminal.
    workers : int
        Number of processes, each on one thread; 1 is this one, with threads of its own. Answers are the same.

    Returns
    -------
    Answers
    """
    from tqdm import tqdm

    datasets: list[xr.Dataset] = []
    seconds: list[float] = []
    reason = "reached_end"
    hidden = None if progress is None else not progress
    with tqdm(total=len(tasks), file=sys.stderr, disable=hidden, leave=False, unit="problem") as bar:
        try:
            for dataset, spent in map(_timed, tasks) if workers == 1 else _by_processes(tasks, workers):
                datasets.append(dataset)
                seconds.append(spent)
                bar.update()
        except KeyboardInterrupt:
            reason = "interrupted"
    return Answers(datasets, seconds, reason)


def checked_workers(workers: int | None) -> int:
    """Return a number of processes, by default one per core.

    Raises
    ------
    TypeError, ValueError
        If it is no positive integer.
    """
    return available_cores() if workers is None else checked_integer(workers, "workers", minimum=1)


def _by_processes(tasks: Sequence[Task], workers: int) -> Iterator[tuple[xr.Dataset, float]]:
    """Yield answers in the order of the tasks."""
    try:
        with ProcessCrew(workers, STUDIES["overlaps"]) as crew:
            for future in [crew.submit(_timed_on_one_core, task) for task in tasks]:
                yield future.result()
    except BrokenExecutor:
        msg = (
            "Worker processes must outlive the study, but one died; a script must call it below "
            "`if __name__ == '__main__':`, or with workers=1."
        )
        raise RuntimeError(msg) from None


def _timed(task: Task) -> tuple[xr.Dataset, float]:
    started = clock.perf_counter()
    return task(), clock.perf_counter() - started


def _timed_on_one_core(task: Task) -> tuple[xr.Dataset, float]:
    with one_core():
        return _timed(task)


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
