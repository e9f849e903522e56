"""How a sweep scales to sixteen workers, by simulation: `python -m benchmarks.sweep_scaling`.

Writes `benchmarks/sweep_scaling.json` and prints the table of docs/sweeps.md. Measured on one core, in seconds of the
processor: the work of each point, what the sweeping process does for a point (it is sent, and its answer kept), and the
merge at the end; in seconds of the clock: the start of a worker. `simulate` plays what `dynamics.sweeps.workers` does
with these numbers: workers + 1 points are submitted, and one process keeps the answers, one after the other. Workers
share no memory bandwidth, clock rate or file system there, which real ones do.
"""

from __future__ import annotations

import heapq
import json
import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import dynamics
from benchmarks.sweep import DIMENSION

TARGET = Path(__file__).with_suffix(".json")
WORKERS = (1, 2, 4, 8, 16)
#: Flows, and points of which nothing but the prediction is asked, that are measured.
FLOWS, SIZE, IDLE_POINTS = 64, 32, 500
#: Name of a sweep -> the kind of its points, and their number.
SWEEPS = {"64 flows": ("flow", 64), "1,024 flows": ("flow", 1024), "10,000 predictions": ("prediction", 10_000)}


@dataclass
class Recorder(Executor):
    """An executor that does each task at once, from and to bytes, and measures its seconds."""

    seconds: list[float] = field(default_factory=list)
    #: Processor time at the end of the last task.
    end: float = 0.0

    def submit(self, function: Callable[..., object], /, *arguments: object, **options: object) -> Future[Any]:
        task = pickle.loads(pickle.dumps((function, arguments, options)))  # noqa: S301 (of this process)
        begin = time.process_time()
        answer = task[0](*task[1], **task[2])
        self.seconds.append(time.process_time() - begin)
        future: Future[object] = Future()
        future.set_result(pickle.loads(pickle.dumps(answer)))  # noqa: S301
        self.end = time.process_time()
        return future


@dataclass(frozen=True)
class Costs:
    """Measured seconds: of each point, in the order in which they are asked; and of what surrounds them."""

    seconds: list[float]
    per_point: float
    merge_per_point: float


def measure(kind: str) -> Costs:
    """Return the costs of a kind of points, measured in this process on one core."""
    size, count = (SIZE, FLOWS) if kind == "flow" else (4, IDLE_POINTS)
    problem = dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher.power_law(size, 1.0), width=size, dimension=DIMENSION
    )
    times = dynamics.SaveAt.geometric(1.0, 6.0 * DIMENSION * size, 50)
    options = {"keep": "summary", "error_estimate": False, "save_at": times} if kind == "flow" else {}
    study = "overlaps" if kind == "flow" else "prediction"
    for _ in range(2):  # the first loads and compiles
        recorder = Recorder()
        with TemporaryDirectory() as folder:
            begin = time.process_time()
            grid, output = {"seed": range(count)}, Path(folder) / "sweep.nc"
            dynamics.sweep(
                problem, grid, study=study, options=options, executor=recorder, output=output, progress=False
            ).close()
            whole, merge = time.process_time() - begin, time.process_time() - recorder.end
    return Costs(recorder.seconds, (whole - merge - sum(recorder.seconds)) / count, merge / count)


def start_of_worker(repeats: int = 3) -> float:
    """Return seconds until a worker has answered its first point, the least of some tries."""
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0]), width=2, dimension=16)
    seconds: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(repeats):
        for workers, tries in seconds.items():
            begin = time.perf_counter()
            dynamics.sweep(problem, {"seed": [0]}, study="prediction", workers=workers, progress=False)
            tries.append(time.perf_counter() - begin)
    return min(seconds[1]) - min(seconds[0])


def simulate(
    seconds: Sequence[float], workers: int, *, start: float = 0.0, per_point: float = 0.0, merge: float = 0.0
) -> float:
    """Return the seconds of a sweep of points of `seconds` on so many workers.

    Workers begin at `start`. workers + 1 points are submitted; the sweeping process takes `per_point` seconds to keep
    an answer, one after the other, and submits the next point then. `merge` is what follows the last answer.
    """
    free = [start] * workers
    heapq.heapify(free)
    queue = list(reversed(seconds))
    running: list[float] = []

    def submit(at: float) -> None:
        """Give the next point to the worker that is free first."""
        if queue:
            end = max(heapq.heappop(free), at) + queue.pop()
            heapq.heappush(free, end)
            heapq.heappush(running, end)

    for _ in range(workers + 1):
        submit(0.0)
    now = 0.0
    while running:
        now = max(now, heapq.heappop(running)) + per_point
        submit(now)
    return now + merge


def scaled(costs: Costs, count: int, workers: int, start: float, seed: int = 0) -> float:
    """Return the simulated seconds of a sweep of `count` points, drawn from the measured ones where they are more."""
    seconds = np.array(costs.seconds)
    if count > seconds.size:
        seconds = np.random.default_rng(seed).choice(seconds, count)
    merge = costs.merge_per_point * count
    return simulate(seconds.tolist(), workers, start=start, per_point=costs.per_point, merge=merge)


def study() -> dict[str, Any]:
    """Return measured costs and simulated seconds of every sweep and number of workers."""
    start, costs = start_of_worker(), {kind: measure(kind) for kind in ("flow", "prediction")}
    simulated = {
        name: {str(workers): scaled(costs[kind], count, workers, start) for workers in WORKERS}
        for name, (kind, count) in SWEEPS.items()
    }
    return {"start": start, "costs": {kind: asdict(value) for kind, value in costs.items()}, "simulated": simulated}


def table(stored: dict[str, Any]) -> str:
    """Return the table of docs/sweeps.md: seconds with one worker, and how many times as fast more are."""
    lines = [f"| sweep, simulated | 1 worker | {' | '.join(map(str, WORKERS[1:]))} |", "|---|" + "---|" * len(WORKERS)]
    for name, seconds in stored["simulated"].items():
        one = seconds["1"]
        faster = " | ".join(f"{one / seconds[str(workers)]:.2g}" for workers in WORKERS[1:])
        lines.append(f"| {name} | {one:.3g} s | {faster} |")
    return "\n".join(lines)


def main() -> None:
    stored = study()
    TARGET.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    print(table(stored))


if __name__ == "__main__":
    main()
