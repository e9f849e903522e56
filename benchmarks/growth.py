"""How the cost of our stiff method grows with P, with T and with d.

Each series varies one quantity of the standard problem. The first sizes beyond those with a reference are solved twice;
the difference from the tighter solve stands for the error.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.contenders import OUR_METHODS
from benchmarks.problems import errors, horizon
from benchmarks.worker import RunFailed, Task, TimeLimitReached, Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.journal import Journal

#: The method for large flows, or the one before it.
METHOD = next(method for method in ("stiff", "bdf") if method in OUR_METHODS)
#: Meets the targets of `work_precision` at m = P = 128.
RTOL = 1e-5
TIGHTER = 0.1
#: m = P, d
SIZES = ((8, 1024), (16, 1024), (32, 1024), (64, 1024), (128, 1024), (256, 1024), (512, 1024))
LARGE_SIZES = ((1024, 2048),)
QUICK_SIZES = ((8, 1024), (16, 1024), (32, 1024))
#: The size at which T and d vary, and how.
SIZE = 32
HORIZONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
DIMENSIONS = (64, 256, 1024, 4096, 16384)
CHECKED_SIZES = (256, 512)
LIMIT = 720.0


def run(journal: Journal, sizes: Sequence[tuple[int, int]], limit: float = LIMIT) -> dict[str, Any]:
    """Measure the three series."""
    with Worker(METHOD) as worker:
        return {
            "method": METHOD,
            "rtol": RTOL,
            "limit": limit,
            "directions": _sizes(journal, worker, sizes, limit),
            "time": [
                _measured(journal, worker, Task(SIZE, RTOL, 2, last=part * horizon(SIZE)), limit) for part in HORIZONS
            ],
            "dimension": [
                _measured(journal, worker, Task(SIZE, RTOL, 2, dimension=dimension), limit) for dimension in DIMENSIONS
            ],
        }


def _sizes(journal: Journal, worker: Worker, sizes: Sequence[tuple[int, int]], limit: float) -> list[dict[str, Any]]:
    """Measure sizes in growing order, up to the first that exceeds the limit."""
    found = []
    for size, dimension in sizes:
        found.append(_measured(journal, worker, Task(size, RTOL, 2, dimension), limit))
        if found[-1]["status"] != "done":
            break
    return found


def _measured(journal: Journal, worker: Worker, task: Task, limit: float) -> dict[str, Any]:
    last = task.last or horizon(task.size, task.dimension)
    key = f"growth: {METHOD}, m = P = {task.size}, d = {task.dimension}, T = {last:g}"
    entry: dict[str, Any] = journal.measure(key, lambda: _solved(worker, task, limit))
    return {"size": task.size, "dimension": task.dimension, "last": last, **entry}


def _solved(worker: Worker, task: Task, limit: float) -> dict[str, Any]:
    try:
        outcome = worker.solve(task, limit)
        found = {"status": "done", "seconds": outcome.seconds, "evaluations": outcome.evaluations}
        if task.size in CHECKED_SIZES:
            tighter = worker.solve(Task(task.size, TIGHTER * task.rtol, task.threads, repeat=False), 2.0 * limit)
            found["difference"] = asdict(errors(outcome, tighter))
    except TimeLimitReached:
        return {"status": f"not finished in {limit:.0f} s"}
    except RunFailed as error:
        return {"status": f"failed: {error}"}
    return found
