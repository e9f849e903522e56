"""How far runs on samples that are used again are from d → ∞, and how often their verdict is right.

`python -m benchmarks.reused_data_verdicts [deviations|verdicts|CASE …]` writes reused_data_verdicts.json beside itself,
the numbers of the section of docs/verdict.md, of all cases or those named:

* deviations: distance of the mean of runs at d = 200 to 1600 from `dynamics.solve_reused_data`, and their scatter.
* verdicts: counts over ensembles of 32 runs, 96 of relu, at d = 800 for the right theory, those of fresh samples, of
  other samples, noise and batches, and with times 30 % longer and shorter.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

import dynamics
import sgd_check
from sgd_check.verdicts.curves import SECOND_ORDER, TOLERANCE, quantities_of
from sgd_check.verdicts.path_tests import interpolated

FILE = Path(__file__).with_suffix(".json")
#: Dimension -> runs of a deviation.
RUNS = {200: 400, 400: 200, 800: 100, 1600: 40}
AT_ONCE = 20
DIMENSION, ENSEMBLES = 800, 20
NOISE, RATIO = 0.4, 1.5
TESTED = ("loss", "train_loss", "teacher_overlap", "squared_norm")


class Case(NamedTuple):
    """Links of student and teacher, η, steps, batches per epoch, whether these are drawn anew, runs of an ensemble."""

    student: str
    teacher: str
    rate: float
    steps: int
    batches: int = 1
    reshuffle: bool = False
    runs: int = 32


CASES = {
    "erf learns erf, full batch": Case("erf", "erf", 2.0, 16),
    "erf learns erf, four batches": Case("erf", "erf", 0.7, 16, 4),
    "erf learns erf, four batches of a new order": Case("erf", "erf", 0.7, 16, 4, reshuffle=True),
    "relu learns tanh, full batch": Case("relu", "tanh", 0.5, 16, runs=96),
}


def problem(case: Case, dimension: int = DIMENSION, noise: float = NOISE) -> dynamics.Problem:
    """Return the problem of one neuron with M = 0.2 and |w|² = 0.5 at the start."""
    student = dynamics.Student(
        activation=case.student, width=1, second_layer="fixed", initial_second_layer=[1.0], biases="none"
    )
    return dynamics.Problem(
        student=student,
        teacher=dynamics.Teacher([1.0], links=[case.teacher]),
        dimension=dimension,
        initial_weights=[[0.2, np.sqrt(0.46)]],
        label_noise=noise,
    )


def theory(case: Case, noise: float = NOISE, **changed: Any) -> xr.Dataset:
    """Return the prediction, with some arguments changed."""
    given: Any = {
        "samples": f"{RATIO}d",
        "learning_rate": case.rate,
        "steps": case.steps,
        "batches_per_epoch": case.batches,
    }
    return dynamics.solve_reused_data(problem(case, noise=noise), **given | {"reshuffle": case.reshuffle} | changed)


def simulated(case: Case, dimension: int, seeds: range) -> xr.Dataset:
    """Return runs, a few at once."""
    samples = int(RATIO * dimension)
    steps: Any = {"steps": case.steps, "save_at": dynamics.SaveAt.at(case.rate * np.arange(case.steps + 1))}
    parts = [
        sgd_check.simulate(
            problem(case, dimension),
            learning_rate=case.rate,
            seeds=seeds[at : at + AT_ONCE],
            training_samples=samples,
            batch_size=samples // case.batches,
            reshuffle=case.reshuffle,
            progress=False,
            **steps,
        )
        for at in range(0, len(seeds), AT_ONCE)
    ]
    return xr.concat(parts, "seed", data_vars="minimal", combine_attrs="override")


def deviations(case: Case) -> dict[str, dict[str, list[float]]]:
    """Return by quantity and dimension, in parts of the range: scatter, largest deviation, its error, and the band."""
    predicted, found = theory(case), dict[str, dict[str, list[float]]]()
    expected = {one.kind: one for one in quantities_of(problem(case), predicted)}
    for dimension, count in RUNS.items():
        runs = simulated(case, dimension, range(count))
        for one in islice(quantities_of(problem(case), runs), len(expected)):
            y = expected[one.kind]
            unit = max(float(np.ptp(y.values)), y.scale)
            off, scatter = (one.values.mean(axis=0) - y.values) / unit, one.values.std(axis=0, ddof=1) / unit
            at, drawn = int(np.argmax(np.abs(off))), (np.zeros(off.size) if y.error is None else y.error) / unit
            error, band = np.hypot(scatter / np.sqrt(count), drawn)[at], TOLERANCE + SECOND_ORDER * scatter.max() ** 2
            row = [float(f"{value:.3g}") for value in (scatter.max(), off[at], error, band)]
            found.setdefault(one.kind, {})[str(dimension)] = row
    return found


def theories(case: Case) -> dict[str, xr.Dataset]:
    """Return the right prediction, wrong ones that state the same, and the equation of fresh samples."""
    long, steps, samples = theory(case, steps=int(1.3 * case.steps) + 2), case.steps, RATIO / case.batches
    right, times = long.isel(time=slice(steps + 1)), long["time"].values

    def stating(other: xr.Dataset) -> xr.Dataset:
        names = [*TESTED, *(f"{name}_error" for name in TESTED)]
        return right.assign({name: (right[name].dims, other[name].values[: steps + 1]) for name in names})

    def stretched(factor: float) -> xr.Dataset:
        moved = {name: np.moveaxis(interpolated(times, np.moveaxis(long[name].values, 0, -1), times / factor), -1, 0)
                 for name in TESTED}  # fmt: skip
        return stating(long.assign({name: (long[name].dims, values) for name, values in moved.items()}))

    others = {"batches": stating(theory(case, batches_per_epoch=2 if case.batches > 2 else 4))}
    if case.batches > 1:
        others["order"] = stating(theory(case, reshuffle=not case.reshuffle))
    if case.student == "erf":  # known for relu in no closed form
        others["equation of fresh samples"] = dynamics.solve_network(
            problem(case),
            learning_rate=case.rate,
            batch_size=int(samples * DIMENSION),
            step_theory="finite-d",
            save_at=dynamics.SaveAt.at(times[: steps + 1]),
            error_estimate=False,
            progress=False,
        )
    return {
        "right": right,
        "fresh samples": stating(theory(case, samples=f"{samples * steps}d", batches_per_epoch=steps, reshuffle=False)),
        "samples / 1.2": stating(theory(case, samples=f"{RATIO / 1.2}d")),
        "samples × 1.2": stating(theory(case, samples=f"{RATIO * 1.2}d")),
        "noise .5": stating(theory(case, noise=0.5)),
        **others,
        "times × 1.3": stretched(1.3),
        "times / 1.3": stretched(1 / 1.3),
    }


def verdicts(case: Case) -> dict[str, dict[str, int]]:
    """Return how often each theory had each verdict."""
    held, counts = theories(case), dict[str, Counter[str]]()
    for ensemble in range(ENSEMBLES):
        runs = simulated(case, DIMENSION, range(1000 * ensemble, 1000 * ensemble + case.runs))
        for name, predicted in held.items():
            word = sgd_check.compare(predicted, runs)["comparison"].attrs["verdict"]
            counts.setdefault(name, Counter())[word] += 1
        print(ensemble, {name: dict(count) for name, count in counts.items()}, file=sys.stderr, flush=True)
    return {name: {word: count[word] for word in ("agree", "undecided", "disagree")} for name, count in counts.items()}


def main(parts: list[str]) -> int:
    """Measure the named parts of the named cases, or all, and write them into the file, beside what it has."""
    measured = {"deviations": deviations, "verdicts": verdicts}
    for part in [part for part in measured if part in parts] or measured:
        for name in [name for name in CASES if name in parts] or CASES:
            case = CASES[name]
            found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
            found.setdefault(part, {})[name] = measured[part](case)
            FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(name, found[part][name], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
