"""The scalar engine on one core, beside the projected engine at m = P = 1: `python -m benchmarks.scalar`.

Everyone takes steps in turn, several times in one run; a number is the median over the turns, by processor time, so
that it hardly depends on what else the machine does. Rates of learning are so small that nothing moves. Prints a table
and writes `benchmarks/scalar.json`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import dynamics
from sgd_check.engines import EngineOptions, make_engine

if TYPE_CHECKING:
    from collections.abc import Callable

OUTPUT = Path(__file__).with_suffix(".json")
TURNS, STEPS, RATE = 7, 10**6, 1e-30
#: Links, smoothing and dimensions.
CASES = (("he3", 0.0, 10**6), ("he4", 2.0, 10**6), *(("he3", 2.0, d) for d in (10**2, 10**6, 10**12)))


def contenders() -> dict[str, Callable[[], None]]:
    """Return, by name, what takes `STEPS` steps of one run."""
    one = dynamics.Teacher([1.0])
    start = ([[1e-3]], [[1.0]], [1.0])
    found = {
        f"scalar, {link}, smoothing {smoothing:g}, d = {d:g}": taking(
            "scalar",
            dynamics.Problem(
                activation=link,
                teacher=one,
                width=1,
                dimension=d,
                student="spherical",
                objective="correlation",
                smoothing=smoothing,
                initial_overlaps=start,
            ),
        )
        for link, smoothing, d in CASES
    }
    pair = dynamics.Problem(activation="he3", teacher=one, width=1, dimension=10**6, initial_overlaps=start)
    return found | {"projected, he3, m = P = 1, d = 1e+06": taking("projected", pair)}


def taking(name: str, problem: dynamics.Problem) -> Callable[[], None]:
    engine = make_engine(name, problem, EngineOptions(seeds=(0,)))
    rates = np.full(STEPS, RATE)

    def take() -> None:
        with engine.running():
            engine.advance(rates)

    return take


def main() -> None:
    who = contenders()
    seconds: dict[str, list[float]] = {name: [] for name in who}
    for turn in range(TURNS + 1):
        for name, take in who.items():
            began = time.process_time()
            take()
            if turn:  # the first turn warms up
                seconds[name].append(time.process_time() - began)
    found = {name: STEPS / float(np.median(spent)) for name, spent in seconds.items()}
    last = list(found)[-1]
    for name, speed in found.items():
        print(f"{name:45} {speed / 1e6:6.2f} million steps/s, {speed / found[last]:5.2f} of projected")
    OUTPUT.write_text(json.dumps({"steps_per_second": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
