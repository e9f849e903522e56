"""Sweeps over processes: one worker against one per core, in turn, and what a point costs besides its own work.

A worker has one thread. Timed is the whole call of `dynamics.sweep`: processes start, points run, files are merged.
Kernels are compiled before. Results of all worker counts are compared bit for bit.
"""

from __future__ import annotations

import os
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
SIZE, DIMENSION = 32, 256
#: Points that do no work to speak of.
IDLE_POINTS, QUICK_IDLE_POINTS = 512, 64


def run(journal: Journal, *, quick: bool) -> dict[str, Any]:
    """Return seconds of the sweep by number of workers, their ratio by round, and seconds of a point without work."""
    size, repeats = (8, 1) if quick else (SIZE, REPEATS)
    idle = QUICK_IDLE_POINTS if quick else IDLE_POINTS
    rounds = [journal.measure(f"sweep over processes, round {k}", lambda: in_turn(size)) for k in range(repeats)]
    return {
        "points": POINTS,
        "size": size,
        "dimension": DIMENSION,
        "cores": os.cpu_count() or 1,
        "rounds": rounds,
        "seconds_per_idle_point": journal.measure("points without work", lambda: idle_point(idle)),
    }


def in_turn(size: int) -> dict[str, float]:
    """Return seconds with one worker and with one per core, and how much faster the latter is."""
    cores = os.cpu_count() or 1
    seconds, results = [], []
    for workers in (1, cores):
        began = time.perf_counter()
        results.append(sweep(size, workers))
        seconds.append(time.perf_counter() - began)
    check_same(*results)
    return {"one": seconds[0], "all": seconds[1], "speed_up": seconds[0] / seconds[1]}


def sweep(size: int, workers: int) -> xr.Dataset:
    """Return 64 starts of one flow, each with its late loss and times."""
    teacher = dynamics.Teacher.power_law(size, beta=1.0)
    problem = dynamics.Problem(activation="he4", teacher=teacher, width=size, dimension=DIMENSION)
    options = {
        "keep": "summary",
        "error_estimate": False,
        "save_at": dynamics.SaveAt.geometric(1.0, 6.0 * DIMENSION * size, 50),
    }
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "sweep.nc"
        with dynamics.sweep(
            problem, {"seed": range(POINTS)}, options=options, workers=workers, output=output, progress=False
        ) as found:
            return found.load()


def idle_point(count: int) -> float:
    """Return seconds of a point of which nothing but the prediction is asked, in this process."""
    teacher = dynamics.Teacher.power_law(4, beta=1.0)
    problem = dynamics.Problem(activation="he4", teacher=teacher, width=8, dimension=32)
    began = time.perf_counter()
    dynamics.sweep(problem, {"seed": range(count)}, study="prediction", workers=0, progress=False)
    return (time.perf_counter() - began) / count


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
