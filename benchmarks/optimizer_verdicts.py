"""How often the verdict on optimizers is right: `python -m benchmarks.optimizer_verdicts [NAME …]`.

Prints rows of the table of docs/verdict.md: ensembles of runs of two erf neurons that learn two, d = 100, of sign SGD
one that learns one, against the equation of their optimizer, that of plain SGD at the same learning rate, and the
former with times 30 % longer and shorter.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import NamedTuple

import numpy as np
import xarray as xr

import dynamics
import sgd_check
from dynamics.problem import Optimizer
from sgd_check.studies.kinds import stretched

DIMENSION, NOISE, ENSEMBLES = 100, 0.3, 40


class Case(NamedTuple):
    """An optimizer, η d, the time of the end, the number of runs of an ensemble, and of neurons."""

    optimizer: Optimizer
    rate: float
    end: float
    runs: int = 16
    width: int = 2


CASES = {
    "heavy ball": Case(dynamics.SGD(momentum=0.9), 0.02, 0.5),
    "Nesterov": Case(dynamics.SGD(momentum=0.9, nesterov=True), 0.02, 0.5),
    "exponential average": Case(dynamics.SGD(average=1 / (2 * DIMENSION)), 0.2, 5.0, runs=24),
    "Polyak average": Case(dynamics.SGD(average="polyak"), 0.2, 5.0, runs=24),
    "zeroth order": Case(dynamics.ZerothOrder(), 0.005, 12.0, runs=64),
    "zeroth order, K = 8": Case(dynamics.ZerothOrder(directions=8), 0.03, 12.0, runs=64),
    "Adam": Case(dynamics.Adam(beta2=1 - 2 / DIMENSION), 0.05, 2.5),
    "RMSprop": Case(dynamics.RMSprop(beta2=1 - 2 / DIMENSION), 0.05, 2.5),
    "sign SGD": Case(dynamics.SignSGD(), 0.1, 2.5, width=1),
}


def problem(width: int) -> dynamics.Problem:
    """Return the problem of so many erf neurons and directions; the start is close to a plateau."""
    ones, numbers = [1.0] * width, np.arange(width)
    overlap = 0.1 * np.cos(1.0 + 2.0 * numbers[:, None] + 3.0 * numbers)
    return dynamics.Problem(
        student=dynamics.Student(activation="erf", width=width, second_layer="fixed", initial_second_layer=ones),
        teacher=dynamics.Teacher(ones),
        initial_weights=np.hstack([overlap, 0.5 * np.eye(width)]),
        dimension=DIMENSION,
        label_noise=NOISE,
    )


def theories(case: Case, times: dynamics.SaveAt) -> dict[str, xr.Dataset]:
    """Return the equation of an optimizer, and wrong ones."""
    asked = {"learning_rate": case.rate / DIMENSION, "save_at": times, "progress": False, "error_estimate": False}
    right = dynamics.solve_problem(problem(case.width), optimizer=case.optimizer, **asked)
    plain = dynamics.solve_problem(problem(case.width), step_theory=right.attrs["step_theory"], **asked)
    return {
        "right": right,
        "plain SGD": plain,
        "times × 1.3": stretched(right, 1.3),
        "times / 1.3": stretched(right, 1 / 1.3),
    }


def verdicts(case: Case, ensembles: range) -> dict[str, Counter[str]]:
    """Return how often each theory had each verdict."""
    rate, asked, held = case.rate / DIMENSION, problem(case.width), dict[str, xr.Dataset]()
    counts: dict[str, Counter[str]] = {}
    for ensemble in ensembles:
        runs = sgd_check.simulate(
            asked,
            learning_rate=rate,
            steps=round(case.end / rate),
            seeds=range(1000 * ensemble, 1000 * ensemble + case.runs),
            optimizer=case.optimizer,
            progress=False,
        )
        held = held or theories(case, dynamics.SaveAt.at(np.append(runs["time"].values[1:], 1.4 * case.end)))
        for name, theory in held.items():
            found = sgd_check.compare(theory, runs)["comparison"].attrs["verdict"]
            counts.setdefault(name, Counter())[found] += 1
    return counts


def main(names: list[str]) -> int:
    """Print a row per optimizer and theory."""
    print("| optimizer | theory | agree | undecided | disagree |")
    print("|---|---|---|---|---|")
    for name in names:
        for theory, count in verdicts(CASES[name], range(ENSEMBLES)).items():
            print(f"| {name} | {theory} | {count['agree']} | {count['undecided']} | {count['disagree']} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(CASES)))
