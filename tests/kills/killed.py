"""Runs that are killed: each begins, or goes on where its file says, in a process of its own."""

from pathlib import Path

import numpy as np

import dynamics
import sgd_check
from dynamics.runs import run_file, trackers

FLOW = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.5, 0.4]), width=9, dimension=32)
SPHERICAL = dynamics.Problem(
    activation="he4", teacher=dynamics.Teacher([1.0]), width=9, dimension=32, student="spherical"
)
LEARNED = dynamics.Problem(
    activation="he3", teacher=dynamics.Teacher([1.0, 0.6]), width=3, dimension=12, initial_norm=0.2
)
TIMES = dynamics.SaveAt.geometric(0.5, 2000.0, 40)
STEPS = {"learning_rate": 2e-3, "steps": 40_000, "seeds": 3, "progress": False}
GRID = {"width": [4, 8], "seed": range(12)}
#: How each run begins.
RUNS = {
    **{
        method: lambda method=method, **file: dynamics.solve_overlaps(
            FLOW, save_at=TIMES, method=method, progress=False, **file
        )
        for method in ("explicit", "stiff", "bdf")
    },
    "mean field": lambda **file: dynamics.solve_mean_field(
        SPHERICAL, save_at=TIMES, particles=128, keep="summary", progress=False, **file
    ),
    "projected": lambda **file: sgd_check.simulate(LEARNED, **STEPS, **file),
    "minibatches": lambda **file: sgd_check.simulate(LEARNED, batch_size=3, **STEPS, **file),
    "torch": lambda **file: sgd_check.simulate(
        LEARNED, engine="torch", device="cpu", **STEPS | {"steps": 10_000}, **file
    ),
    "sweep": lambda **file: dynamics.sweep(
        FLOW, GRID, study="prediction", options={"save_at": TIMES}, progress=False, **file
    ),
}


def go_on(kind, path, every):
    """Begin the run of this kind, or go on with it if there is its file; do nothing if it has ended."""
    run_file.LARGEST_SHARE = np.inf
    trackers.FIRST_CHUNK_STEPS = trackers.LARGEST_CHUNK_STEPS = 24
    there = Path(path).exists()
    if kind.startswith("sweep"):
        RUNS["sweep"](output=path, workers=2 if kind.endswith("processes") else 0).close()
        return
    if not there:
        RUNS[kind](checkpoint=dynamics.RunFile(path, every=every))
        return
    found = dynamics.load(path).attrs
    if found["stop_reason"] != "reached_end":
        resume = sgd_check.resume if "engine" in found else dynamics.resume
        resume(path, progress=False, every=every)
