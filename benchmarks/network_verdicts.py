"""How often the verdict on networks with trained biases is right: `python -m benchmarks.network_verdicts [LINK …]`.

Prints rows of the table of docs/verdict.md: 40 ensembles of 16 runs of SGD at η and η/2 to time 9, four neurons that
learn x1 + x1 x2 with both layers trained, against the right flow and flows with a planted error of 30 %.
"""

from __future__ import annotations

import sys
from collections import Counter

import xarray as xr

import dynamics
import sgd_check

#: Learning rate by link.
RATES = {"relu": 1e-3, "gelu": 5e-4, "erf": 1e-3}
TEACHER, STRONGER = "x1 + x1*x2", "1.3*x1 + 1.3*x1*x2"
WIDTH, DIMENSION, END, RUNS, ENSEMBLES = 4, 12, 9.0, 16, 40
TIMES = dynamics.SaveAt.geometric(0.02, 14.0, 140)


def problem(link: str, teacher: str = TEACHER) -> dynamics.Problem:
    """Return the problem of a link."""
    student = dynamics.Student(
        activation=link, width=WIDTH, second_layer="trained", biases="trained", scale="1/m", rates="mean-field"
    )
    return dynamics.Problem(student=student, teacher=dynamics.Teacher.polynomial(teacher), dimension=DIMENSION)


def stretched(flow: xr.Dataset, factor: float) -> xr.Dataset:
    """Return a flow in which everything happens at `factor` times its time."""
    found = flow.assign_coords(time=flow["time"] * factor)
    for name in ("emergence_time", "learned_time", "component_learned_time"):
        if name in flow:
            found[name] = flow[name] * factor
    return found


def theories(link: str) -> dict[str, xr.Dataset]:
    """Return the flow, and wrong ones."""
    right, strong = (
        dynamics.solve_problem(problem(link, teacher), save_at=TIMES, error_estimate=False, progress=False)
        for teacher in (TEACHER, STRONGER)
    )
    names = ("loss", "component", "emergence_time", "component_learned_time")
    wrong = right.assign({name: (right[name].dims, strong[name].values) for name in names if name in right})
    return {
        "right": right,
        "times × 1.3": stretched(right, 1.3),
        "times / 1.3": stretched(right, 1 / 1.3),
        "teacher × 1.3": wrong,
    }


def verdicts(link: str, ensembles: range) -> dict[str, Counter[str]]:
    """Return how often each theory had each verdict."""
    asked, held, rate = problem(link), theories(link), RATES[link]
    counts: dict[str, Counter[str]] = {name: Counter() for name in held}
    for ensemble in ensembles:
        seeds = range(1000 * ensemble, 1000 * ensemble + RUNS)
        runs = [
            sgd_check.simulate(asked, learning_rate=step, steps=round(END / step), seeds=seeds, progress=False)
            for step in (rate, rate / 2)
        ]
        for name, theory in held.items():
            counts[name][sgd_check.compare(theory, runs)["comparison"].attrs["verdict"]] += 1
    return counts


def main(links: list[str]) -> int:
    """Print a row per link and theory."""
    print("| network | theory | agree | undecided | disagree |")
    print("|---|---|---|---|---|")
    for link in links:
        for name, count in verdicts(link, range(ENSEMBLES)).items():
            print(f"| {link} | {name} | {count['agree']} | {count['undecided']} | {count['disagree']} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(RATES)))
