"""Sweeps over processes: one worker against one per core, in turn, and what a point costs besides its own work.

A worker has one thread. Timed is the whole call of `dynamics.sweep`, the first of a fresh process: processes start,
points run, files are merged. Kernels are compiled before. Results of all worker counts are compared bit for bit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dynamics

if TYPE_CHECKING:
    import xarray as xr

    from benchmarks.journal import Journal

POINTS, REPEATS = 64, 3
SIZES, QUICK_SIZES, DIMENSION = (24, 32), (8,), 256
#: Small flows, to an error of the loss of 1e-5: as many as a figure has, and a large sweep.
SMALL_COUNTS, QUICK_SMALL_COUNTS, SMALL_SIZE, SMALL_RTOL = (64, 1000), (64,), 8, 1e-5
#: Points that do no work to speak of.
IDLE_POINTS = 128


def run(journal: Journal, *, quick: bool) -> dict[str, Any]:
    """Return seconds of sweeps by round and number of workers, their ratio, and seconds of a point without work."""
    sizes, repeats = (QUICK_SIZES, 1) if quick else (SIZES, REPEATS)
    with tempfile.TemporaryDirectory() as folder:
        sweep(sizes[0], 1, Path(folder) / "compiled.nc", points=1).close()
    return {
        "points": POINTS,
        "dimension": DIMENSION,
        "cores": os.cpu_count() or 1,
        "rounds": [
            journal.measure(f"sweep over processes, m = P = {size}, round {k}", lambda size=size: in_turn(size))
            for k in range(repeats)
            for size in sizes
        ],
        "seconds_per_idle_point": journal.measure("points without work", idle_point),
        "small": [
            journal.measure(f"a sweep of {points} small flows", lambda points=points: small(points, repeats))
            for points in (QUICK_SMALL_COUNTS if quick else SMALL_COUNTS)
        ],
    }


def in_turn(size: int) -> dict[str, float]:
    """Return seconds with one worker and with one per core, and how much faster the latter is."""
    seconds, results = [], []
    with tempfile.TemporaryDirectory() as folder:
        for workers in (1, os.cpu_count() or 1):
            output = Path(folder) / f"{workers}.nc"
            command = [sys.executable, "-m", "benchmarks.sweep", str(size), str(workers), str(output)]
            seconds.append(float(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
            results.append(dynamics.load(output))
    check_same(*results)
    return {"size": size, "one": seconds[0], "all": seconds[1], "speed_up": seconds[0] / seconds[1]}


def small(points: int, repeats: int) -> dict[str, Any]:
    """Return seconds of a sweep over small flows, one worker per core."""
    workers, seconds = os.cpu_count() or 1, []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            output = str(Path(folder) / "small.nc")
            arguments = [str(SMALL_SIZE), str(workers), output, str(points), str(SMALL_RTOL)]
            command = [sys.executable, "-m", "benchmarks.sweep", *arguments]
            seconds.append(float(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
    return {"points": points, "size": SMALL_SIZE, "rtol": SMALL_RTOL, "workers": workers, "seconds": sorted(seconds)}


def main() -> None:
    """Sweep in a process of its own, and print the seconds of the call."""
    size, workers, output, *more = sys.argv[1:]
    points, rtol = (int(more[0]), float(more[1])) if more else (POINTS, None)
    began = time.perf_counter()
    sweep(int(size), int(workers), Path(output), points=points, rtol=rtol).close()
    print(time.perf_counter() - began)


def sweep(size: int, workers: int, output: Path, *, points: int = POINTS, rtol: float | None = None) -> xr.Dataset:
    """Return starts of one flow, each with its late loss and times."""
    teacher = dynamics.Teacher.power_law(size, beta=1.0)
    problem = dynamics.Problem(activation="he4", teacher=teacher, width=size, dimension=DIMENSION)
    options = {
        "keep": "summary",
        "error_estimate": False,
        "save_at": dynamics.SaveAt.geometric(1.0, 6.0 * DIMENSION * size, 50),
        **({} if rtol is None else {"rtol": rtol}),
    }
    return dynamics.sweep(
        problem, {"seed": range(points)}, options=options, workers=workers, output=output, progress=False
    )


def idle_point(count: int = IDLE_POINTS) -> float:
    """Return seconds of a point of which nothing but the prediction is asked, in this process and not its first."""
    teacher = dynamics.Teacher.power_law(4, beta=1.0)
    problem = dynamics.Problem(activation="he4", teacher=teacher, width=8, dimension=32)
    for _ in range(2):
        began = time.perf_counter()
        dynamics.sweep(problem, {"seed": range(count)}, study="prediction", workers=0, progress=False)
        seconds = time.perf_counter() - began
    return seconds / count


def check_same(one: xr.Dataset, other: xr.Dataset) -> None:
    """Raise unless two results agree in every bit but those of measured seconds.

    Raises
    ------
    ValueError
        If they do not.
    """
    for name in one.variables:
        if "seconds" not in str(name) and not np.array_equal(
            one[name].values, other[name].values, equal_nan=one[name].dtype.kind == "f"
        ):
            msg = f"Results must not depend on the number of workers, but `{name}` does."
            raise ValueError(msg)


if __name__ == "__main__":
    main()
