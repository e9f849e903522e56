"""Time per step of SGD on inputs of few eigenvalues: projected class by class against R^d, over dimensions, in one run.

`python -m benchmarks.class_steps` prints a table and two ratios; times are of the processor, least of three.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import dynamics
from sgd_check.engines import EngineOptions, make_engine

WIDTH, DIRECTIONS, EIGENVALUES = 8, 3, (2.0, 0.5, 1.0)
SIZES = {"projected": (4096, 10**6, 10**9, 10**12), "torch": (1024, 4096)}
#: Steps of one timing, by engine.
STEPS = {"projected": 4000, "torch": 200}
BATCHES, REPEATS = (1, 16), 3
#: Bounds that the ratios of the last line keep: growth in d, and what the projection saves at d = 4096.
FLAT, FASTER = 1.5, 20.0


def seconds_per_step(engine: str, inputs: dynamics.Inputs, dimension: int, batch: int) -> float:
    """Return the least processor time of a step of one run, in double precision."""
    problem = dynamics.Problem(
        activation="he4",
        teacher=dynamics.Teacher.power_law(DIRECTIONS, 1.0),
        width=WIDTH,
        dimension=dimension,
        inputs=inputs,
    )
    made = make_engine(engine, problem, EngineOptions(seeds=(0,), dtype="float64", batch_size=batch))
    rates = np.full(STEPS[engine] // batch, 0.1 * dynamics.learning_rate_limit(problem, batch_size=batch))
    found = []
    with made.running():
        made.advance(rates[: max(1, len(rates) // 10)])
        for _ in range(REPEATS):
            began = time.process_time()
            made.advance(rates)
            found.append((time.process_time() - began) / len(rates))
    return min(found)


def classes(dimension: int) -> dynamics.Inputs:
    """Return three eigenvalues, of an eighth, a half and the rest of the axes."""
    counts = [dimension // 8, dimension // 2]
    return dynamics.Inputs(EIGENVALUES, [*counts, dimension - sum(counts)])


def main() -> int:
    """Print the table; return 0 if the projected step is flat in d and 20 times as fast at d = 4096."""
    found = {
        (engine, d, batch): seconds_per_step(engine, classes(d), d, batch)
        for engine, sizes in SIZES.items()
        for d in sizes
        for batch in BATCHES
    }
    print(f"one step, m = {WIDTH}, P = {DIRECTIONS}, three eigenvalues, one run, float64, processor time")
    for (engine, d, batch), seconds in found.items():
        print(f"{engine:>10} d = {d:<8.4g} B = {batch:<4} {1e6 * seconds:9.2f} µs")
    for d in (64, 256, 1024):
        seconds = seconds_per_step("projected", dynamics.Inputs.power_law(0.25), d, 1)
        print(f" projected d = {d:<8} distinct {1e6 * seconds:9.2f} µs")
    flat = found["projected", 10**12, 1] / found["projected", 4096, 1]
    faster = found["torch", 4096, 1] / found["projected", 4096, 1]
    print(f"projected, d = 10^12 over d = 4096: {flat:.2f}; torch over projected at d = 4096: {faster:.0f}")
    return 0 if flat < FLAT and faster >= FASTER else 1


if __name__ == "__main__":
    sys.exit(main())
