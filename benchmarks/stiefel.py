"""Time per step of frames of orthogonal neurons: projected in closed form against R^d, over dimensions, in one run.

`python -m benchmarks.stiefel` prints a table and two ratios; times are of the processor, least of three.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np

import dynamics
from sgd_check.engines import EngineOptions, make_engine

WIDTH, DIRECTIONS = 16, 32
DIMENSIONS = {"projected": (4096, 10**6, 10**9, 10**12), "torch": (1024, 4096)}
#: Steps of one timing, by engine.
STEPS = {"projected": 4000, "torch": 200}
REPEATS = 3


def seconds_per_step(engine: str, dimension: int) -> float:
    """Return the least processor time of a step of one run, in double precision."""
    problem = dynamics.Problem(
        activation="he2",
        teacher=dynamics.Teacher.power_law(DIRECTIONS, 1.0),
        width=WIDTH,
        dimension=dimension,
        student="stiefel",
    )
    made = make_engine(engine, problem, EngineOptions(seeds=(0,), dtype="float64"))
    rates = np.full(STEPS[engine], 0.1 * dynamics.learning_rate_limit(problem))
    found = []
    with made.running():
        made.advance(rates[: len(rates) // 10])
        for _ in range(REPEATS):
            began = time.process_time()
            made.advance(rates)
            found.append((time.process_time() - began) / len(rates))
    return min(found)


def main() -> int:
    """Print the table; return 0 if the projected step is flat in d and 20 times as fast at d = 4096."""
    warnings.simplefilter("ignore")
    found = {(name, d): seconds_per_step(name, d) for name, sizes in DIMENSIONS.items() for d in sizes}
    print(f"one step, m = {WIDTH}, r = {DIRECTIONS}, one run, float64, processor time")
    for (name, d), seconds in found.items():
        print(f"{name:>10} d = {d:<14.4g} {1e6 * seconds:9.2f} µs")
    flat = found["projected", 10**12] / found["projected", 4096]
    faster = found["torch", 4096] / found["projected", 4096]
    print(f"projected, d = 10^12 over d = 4096: {flat:.2f}; torch over projected at d = 4096: {faster:.0f}")
    return 0 if flat < 1.5 and faster >= 20.0 else 1


if __name__ == "__main__":
    sys.exit(main())
