"""Whether fitted exponents scatter as their errors say: `python -m benchmarks.exponent_errors [--sets 40]`.

Writes `benchmarks/exponent_errors.json` and prints it as a table; docs/scaling_laws.md has its range. Laws are read off
disjoint sets of four starts, of the sum formula with matched overlaps mostly drawn from their law, so that a set takes
a part of a second; those of SGD off disjoint sets of runs, at reduced size. A set is covered if its exponent lies
within two of its own errors of the mean over the other sets. With 40 sets a coverage of 95 % is seen as 90 % or more in
95 of 100 studies, and the mean is known to a sixth of the scatter. `--only WORDS` repeats the studies whose names hold
the words.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dynamics
import sgd_check
from benchmarks.random_problems import plain
from dynamics.laws import scaling_laws
from dynamics.laws.scaffold import common_times
from dynamics.theory import pairs

if TYPE_CHECKING:
    from dynamics.laws.scaling_laws import ScalingLaw

STARTS, DIMENSION, TIMES = 4, 2**24, 150
WIDTHS = (4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128)
#: Entries of the overlaps of a start above which matched ones are drawn: of all studies but that over widths.
LARGEST_MATRIX = 1 << 17
#: Runs of each point of a study of SGD; of its transfer they have as many starts.
RUNS = 4
#: A transfer of the step size takes a quarter of a minute: so many sets are one of it.
SETS_PER_TRANSFER = 2
#: Name of a law -> its exponent and the error of that.
Reading = dict[str, tuple[float, float]]
TARGET = Path(__file__).with_suffix(".json")


def teacher_problem(directions: int, beta: float) -> dynamics.Problem:
    """Return a problem of h_4 with three neurons for each direction."""
    teacher = dynamics.Teacher.power_law(directions, beta)
    return dynamics.Problem(activation="he4", teacher=teacher, width=3 * directions, dimension=DIMENSION)


def read(laws: Sequence[ScalingLaw]) -> Reading:
    """Return what was fitted."""
    return {law.name: (law.fit.exponent, law.fit.standard_error) for law in laws}


def laws_of_starts(at: int, *, directions: int, beta: float) -> Reading:
    """Return the laws of the loss in time and of T_p in p of a set of starts."""
    seeds = range(STARTS * at, STARTS * (at + 1))
    starts = [replace(teacher_problem(directions, beta), seed=seed) for seed in seeds]
    times = common_times(starts[:1], TIMES)
    found = [dynamics.predict_emergence(one, save_at=times) for one in starts]
    return read([scaling_laws.loss_against_time(found), scaling_laws.times_against_direction(found)])


def laws_over_widths(at: int, *, directions: int, beta: float) -> Reading:
    """Return the laws of the loss in width, and of loss and best width in compute."""
    seeds = range(STARTS * at, STARTS * (at + 1))
    given = teacher_problem(directions, beta)
    family = [replace(given, width=m, seed=seed) for m in WIDTHS for seed in seeds]
    found = [dynamics.predict_emergence(one, save_at=common_times([one], TIMES, reach=2.0)) for one in family]
    return read([scaling_laws.loss_against_width(found), *scaling_laws.frontier_laws(found, 0.1)])


def samples_of_sgd(at: int, *, k: int, dimensions: Sequence[int]) -> Reading:
    """Return the law of the steps to escape in d, of runs of online SGD."""
    seed = at * 2 * RUNS * len(dimensions)
    found = sgd_check.sample_complexity(
        information_exponents=(k,), dimensions=dimensions, seeds=2 * RUNS, seed=seed, progress=False
    )
    measured = {name: float(found[name].sel(source="SGD")[0]) for name in ("exponent", "exponent_error")}
    return {"samples-dimension": (measured["exponent"], measured["exponent_error"])}


def transfer_of_sgd(at: int, *, directions: int, dimension: int, widths: Sequence[int], samples: int) -> Reading:
    """Return the laws of the gap of the loss and of the drift of the best step in width, of runs of online SGD."""
    if at % SETS_PER_TRANSFER:
        return {}
    size = {"directions": directions, "dimension": dimension, "widths": widths, "samples": samples}
    found = sgd_check.sgd_transfer(**size, starts=RUNS, seeds=RUNS, seed=1000 * at, progress=False).attrs
    return {name: (found[f"{name}_exponent"], found[f"{name}_exponent_error"]) for name in ("gap", "drift")}


STUDIES: dict[str, Callable[[int], Reading]] = {
    **{
        f"P = {P}, β = {beta}": partial(laws_of_starts, directions=P, beta=beta)
        for P, beta in ((256, 0.8), (1024, 0.8), (1024, 1.5), (4096, 1.0))
    },
    "P = 256, β = 0.8, m = 4 to 128": partial(laws_over_widths, directions=256, beta=0.8),
    "SGD, k = 3, d = 32 to 128": partial(samples_of_sgd, k=3, dimensions=(32, 64, 128)),
    "SGD, k = 4, d = 24 to 54": partial(samples_of_sgd, k=4, dimensions=(24, 36, 54)),
    "SGD, P = 4, d = 20, m = 1 to 8": partial(
        transfer_of_sgd, directions=4, dimension=20, widths=(1, 2, 4, 8), samples=20_000
    ),
}


def coverage(found: list[tuple[float, float]]) -> dict[str, Any]:
    """Return the mean over sets, their scatter, the root mean square of the errors, and the share of covered sets.

    A set is held against the mean of the others.
    """
    x, error = np.array(found).T
    known = np.isfinite(x) & np.isfinite(error)
    x, error = x[known], error[known]
    others = (x.sum() - x) / (x.size - 1)
    return {
        "sets": int(known.sum()),
        "mean": float(x.mean()),
        "scatter": float(x.std(ddof=1)),
        "error": float(np.sqrt(np.mean(error**2))),
        "covered": float(np.mean(np.abs(x - others) <= 2.0 * error)),
    }


def measure(name: str, sets: int) -> dict[str, dict[str, Any]]:
    """Return the coverage of each law of a study over disjoint sets of starts."""
    found: dict[str, list[tuple[float, float]]] = {}
    for at in range(sets):
        for law, pair in STUDIES[name](at).items():
            found.setdefault(law, []).append(pair)
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
    parser.add_argument("--only", default="", help="words in the names of the studies to repeat (default: all)")
    parser.add_argument("--output", type=Path, default=TARGET, help="file to write, or to renew in part")
    options = parser.parse_args()
    pairs.LARGEST_MATRIX = LARGEST_MATRIX
    has_file = options.only and options.output.exists()
    totals: dict[str, dict[str, dict[str, Any]]] = (
        json.loads(options.output.read_text(encoding="utf-8")) if has_file else {}
    )
    for name in [name for name in STUDIES if options.only in name]:
        totals[name] = measure(name, options.sets)
        print(name, flush=True)
        options.output.write_text(json.dumps(plain(totals), indent=1) + "\n", encoding="utf-8")
    print(table(totals))


if __name__ == "__main__":
    main()
