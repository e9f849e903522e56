"""Whether fitted exponents scatter as their errors say: `python -m benchmarks.exponent_errors [--sets 40]`.

Writes `benchmarks/exponent_errors.json` and prints the table of docs/scaling_laws.md. Laws are read off disjoint sets
of four starts, of the sum formula with matched overlaps mostly drawn from their law, so that a set takes a part of a
second. A set is covered if its exponent lies within two of its own errors of the mean over all sets. With 40 sets a
coverage of 95 % is seen as 90 % or more in 95 of 100 studies, and the mean is known to a sixth of the scatter.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dynamics
from benchmarks.random_problems import plain
from dynamics.laws import laws_across_problems, laws_of_a_problem
from dynamics.laws.families import common_times
from dynamics.theory import prediction

if TYPE_CHECKING:
    from dynamics.laws.laws_of_a_problem import ScalingLaw

STARTS, DIMENSION, TIMES = 4, 2**24, 150
WIDTHS = (4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128)
#: Entries of the overlaps of a start above which matched ones are drawn: of all studies but that over widths.
LARGEST_MATRIX = 1 << 17
TARGET = Path(__file__).with_suffix(".json")


def teacher_problem(directions: int, beta: float) -> dynamics.Problem:
    """Return a problem of h_4 with three neurons for each direction."""
    teacher = dynamics.Teacher.power_law(directions, beta)
    return dynamics.Problem(activation="he4", teacher=teacher, width=3 * directions, dimension=DIMENSION)


def laws_of_starts(seeds: range, *, directions: int, beta: float) -> tuple[ScalingLaw, ...]:
    """Return the laws of the loss in time and of T_p in p."""
    starts = [replace(teacher_problem(directions, beta), seed=seed) for seed in seeds]
    times = common_times(starts[:1], TIMES)
    found = [dynamics.predict_emergence(one, save_at=times) for one in starts]
    return laws_of_a_problem.loss_against_time(found), laws_of_a_problem.times_against_direction(found)


def laws_over_widths(seeds: range, *, directions: int, beta: float) -> tuple[ScalingLaw, ...]:
    """Return the laws of the loss in width, and of loss and best width in compute."""
    given = teacher_problem(directions, beta)
    family = [replace(given, width=m, seed=seed) for m in WIDTHS for seed in seeds]
    found = [dynamics.predict_emergence(one, save_at=common_times([one], TIMES, reach=2.0)) for one in family]
    return laws_across_problems.loss_against_width(found), *laws_across_problems.frontier_laws(found, 0.1)


STUDIES: dict[str, Callable[[range], tuple[ScalingLaw, ...]]] = {
    **{
        f"P = {P}, β = {beta}": partial(laws_of_starts, directions=P, beta=beta)
        for P, beta in ((256, 0.8), (1024, 0.8), (1024, 1.5), (4096, 1.0))
    },
    "P = 256, β = 0.8, m = 4 to 128": partial(laws_over_widths, directions=256, beta=0.8),
}


def coverage(found: list[tuple[float, float]]) -> dict[str, Any]:
    """Return the mean over sets, their scatter, the root mean square of the errors, and the share of covered sets."""
    x, error = np.array(found).T
    known = np.isfinite(x)
    x, error = x[known], error[known]
    return {
        "sets": int(known.sum()),
        "mean": float(x.mean()),
        "scatter": float(x.std(ddof=1)),
        "error": float(np.sqrt(np.mean(error**2))),
        "covered": float(np.mean(np.abs(x - x.mean()) <= 2.0 * error)),
    }


def measure(name: str, sets: int) -> dict[str, dict[str, Any]]:
    """Return the coverage of each law of a study over disjoint sets of starts."""
    found: dict[str, list[tuple[float, float]]] = {}
    for at in range(sets):
        for law in STUDIES[name](range(STARTS * at, STARTS * (at + 1))):
            found.setdefault(law.name, []).append((law.fit.exponent, law.fit.standard_error))
    return {law: coverage(pairs) for law, pairs in found.items()}


def table(totals: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return coverage as a table in Markdown."""
    lines = ["| problem | law | mean | scatter of sets | stated error | within ± 2 |", "|---" * 6 + "|"]
    lines += [
        f"| {study} | {law} | {row['mean']:.3f} | {row['scatter']:.4f} | {row['error']:.4f} | "
        f"{100 * row['covered']:.0f} % of {row['sets']} |"
        for study, laws in totals.items()
        for law, row in laws.items()
    ]
    return "\n".join(lines)


def main() -> None:
    """Repeat every study and write what was found after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exponent_errors", description="Coverage of exponents")
    parser.add_argument("--sets", type=int, default=40, help="disjoint sets of starts (default: 40)")
    parser.add_argument("--output", type=Path, default=TARGET, help="file to write")
    options = parser.parse_args()
    prediction.LARGEST_MATRIX = LARGEST_MATRIX
    totals: dict[str, dict[str, dict[str, Any]]] = {}
    for name in STUDIES:
        totals[name] = measure(name, options.sets)
        print(name, flush=True)
        options.output.write_text(json.dumps(plain(totals), indent=1) + "\n", encoding="utf-8")
    print(table(totals))


if __name__ == "__main__":
    main()
