"""Whether intervals of `learning_steps` hold 95 % of runs: `python -m benchmarks.passage_coverage [--runs 1000]`.

Writes `benchmarks/passage_coverage.json` and prints it as a table; docs/learning_rate.md has its range. Runs of one
neuron are a chain of its overlap C and squared norm n with every coordinate of a sample drawn, without theory; runs of
several directions are SGD by `sgd_check`. Of 1000 runs 95 % are seen as 93.0 to 97.0 % in 997 of 1000 settings.
`--only WORDS` repeats the settings whose names hold the words.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import dynamics
import sgd_check
from benchmarks.random_problems import plain

if TYPE_CHECKING:
    from hermite.arrays import Array

TARGET = Path(__file__).with_suffix(".json")
#: Runs are given up after this multiple of the upper end of the interval, where all are late.
LONGEST = 1.001
AT = dynamics.SaveAt.at([1.0])


class Setting(NamedTuple):
    """A problem, the learning rate, the number p of the direction, and the event."""

    problem: dynamics.Problem
    learning_rate: float
    direction: int = 1
    event: str = "emergence"


def one(link: str, dimension: int, overlap: float, **changes: Any) -> dynamics.Problem:
    """Return a problem of one neuron and one direction, homogeneous unless `changes` have another student."""
    norm = 1.0 if changes.get("student") == "spherical" else 1e-4
    start: Any = ([[overlap]], [[1.0]], [norm])
    teacher = dynamics.Teacher([1.0])
    given = {"activation": link, "teacher": teacher, "width": 1, "dimension": dimension, "initial_overlaps": start}
    return dynamics.Problem(**given | changes)


def several(coefficients: list[float], dimension: int, overlap: float, **changes: Any) -> dynamics.Problem:
    """Return a problem of h_3 whose neurons have the same overlap with one direction each and none with others."""
    count = len(coefficients)
    start: Any = (overlap * np.eye(count), np.eye(count), np.full(count, 1e-4))
    teacher = dynamics.Teacher(coefficients)
    return dynamics.Problem(
        activation="he3", teacher=teacher, width=count, dimension=dimension, initial_overlaps=start, **changes
    )


def settings() -> dict[str, Setting]:
    """Return the settings by name: learning rates are shares ρ of d^(−k/2) or of 1/d."""
    found = {}
    correlation = {"student": "spherical", "objective": "correlation"}
    for tau in (0.3, 1.0):
        problem = one("he3", 32, 0.3, label_noise=tau)
        found[f"h3, d = 32, τ = {tau}, ρ = 0.1"] = Setting(problem, 0.1 * 32**-1.5)
    for link, overlap in (("he2", 0.1), ("relu", 0.05), ("gelu", 0.05), ("erf", 0.05), ("tanh", 0.02)):
        found[f"{link}, d = 64, ρ = 0.1"] = Setting(one(link, 64, overlap), 0.1 / 64)
    for link, rho, overlap in (("he3", 0.2, 0.2), ("he4", 0.5, 0.4)):
        problem = one(link, 32, overlap, **correlation)
        found[f"sphere, {link}, d = 32, ρ = {rho}"] = Setting(problem, rho * 32 ** (-0.5 * int(link[2:])))
    for rho, overlap in ((0.1, 0.3), (0.2, 0.25)):
        setting = Setting(one("he3", 32, overlap), rho * 32**-1.5, event="learned")
        found[f"h3, d = 32, ρ = {rho}, C = {overlap}, learned"] = setting
    for a, rho in (([1.0, 1.0, 1.0], 0.05), ([1.0, 0.8], 0.08)):
        found[f"h3, d = 48, a = {a}, ρ = {rho}"] = Setting(several(a, 48, 0.35), rho * 48**-1.5)
    for rho, overlap in ((0.5, 0.4), (1.0, 0.3), (0.15, 0.3)):
        found[f"h4, d = 24, ρ = {rho}, C = {overlap}"] = Setting(one("he4", 24, overlap), rho / 24**2)
    for rho, overlap in ((0.2, 0.3), (0.05, 0.3), (0.4, 0.2), (0.1, 0.2), (0.05, 0.1), (0.02, 0.1)):
        found[f"h3, d = 48, ρ = {rho}, C = {overlap}"] = Setting(one("he3", 48, overlap), rho * 48**-1.5)
    return found


def chain_times(setting: Setting, runs: int, longest: float, seed: int = 0) -> Array:
    """Return the steps (runs,) until the event in runs of one neuron, inf for more than `longest`.

    The neuron is w = √n (C θ + s e + …): a sample has the coordinates a along it and v along e, and the length r in
    all other axes.
    """
    problem, eta, rng = setting.problem, setting.learning_rate, np.random.default_rng(seed)
    link, spherical = problem.activation, problem.student == "spherical"
    start, kernel = problem.start(), problem.learned_part.kernel
    C, n = np.full(runs, start.teacher_overlap[0, 0]), np.full(runs, start.squared_norm[0])
    steps, alive, level = np.full(runs, math.inf), np.arange(runs), math.sqrt(problem.emergence_level)
    for number in range(int(longest) + 1):
        if setting.event == "learned":
            there = n * kernel(C) >= 0.5 * problem.learned_part.kernel_at_one
        else:
            there = (C if problem.information_exponent % 2 else np.abs(C)) >= level
        if there.any():
            steps[alive[there]] = number
            alive, C, n = alive[~there], C[~there], n[~there]
            if not alive.size:
                break
        a, v, noise = rng.standard_normal((3, C.size))
        r, s = np.sqrt(rng.chisquare(problem.dimension - 2, C.size)), np.sqrt((1.0 - C) * (1.0 + C))
        y, output = link.value(C * a + s * v) + problem.label_noise * noise, link.value(a)
        error = eta * (y if spherical else y - n * output)
        pull = error * link.derivative(a)
        along = 1.0 if spherical else 1.0 + 2.0 * error * output
        size = along**2 + pull**2 * (v**2 + r**2)
        C = (C * along + s * pull * v) / np.sqrt(size)
        n = n if spherical else n * size
    return steps


def simulated_times(setting: Setting, runs: int, longest: float) -> Array:
    """Return the steps (runs,) until the event in runs of SGD, inf for more than `longest`."""
    rate = setting.learning_rate
    simulation = sgd_check.simulate(
        setting.problem, seeds=runs, steps=int(longest) + 1, learning_rate=rate, save_at=AT, progress=False,
        engine="projected",
    )  # fmt: skip
    times = simulation[f"{setting.event}_time"].sel(direction=setting.direction).values / rate
    return np.asarray(np.where(np.isfinite(times), times, math.inf))


def coverage(setting: Setting, runs: int) -> dict[str, Any]:
    """Return the interval, its relative scatter, and the share of runs within it, before it and after it."""
    answer = dynamics.predict_emergence(setting.problem, save_at=AT)
    if not np.isfinite(answer[f"{setting.event}_time"].values).all():
        answer = dynamics.solve_problem(setting.problem, progress=False)
    said = dynamics.learning_steps(
        answer, direction=setting.direction, event=setting.event, learning_rate=setting.learning_rate
    )
    draw = chain_times if setting.problem.width == 1 else simulated_times
    steps = draw(setting, runs, LONGEST * said.steps_high)
    early, late = float(np.mean(steps < said.steps_low)), float(np.mean(steps > said.steps_high))
    return {
        "runs": runs,
        "low": said.steps_low,
        "high": said.steps_high,
        "scatter": said.steps_deviation / said.steps,
        "early": early,
        "late": late,
        "covered": 1.0 - early - late,
    }


def table(totals: dict[str, dict[str, Any]]) -> str:
    """Return coverage as a table in Markdown."""
    lines = ["| setting | scatter | 95 % interval, steps | runs before | after | within |", "|---" * 6 + "|"]
    lines += [
        f"| {name} | {row['scatter']:.2f} | {row['low']:.5g} to {row['high']:.5g} | {100 * row['early']:.1f} % | "
        f"{100 * row['late']:.1f} % | {100 * row['covered']:.1f} % |"
        for name, row in totals.items()
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure every setting and write what was found after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.passage_coverage", description="Coverage of intervals")
    parser.add_argument("--runs", type=int, default=1000, help="runs of each setting (default: 1000)")
    parser.add_argument("--only", default="", help="words in the names of the settings to repeat (default: all)")
    parser.add_argument("--output", type=Path, default=TARGET, help="file to write, or to renew in part")
    options = parser.parse_args()
    has_file = options.only and options.output.exists()
    totals: dict[str, dict[str, Any]] = json.loads(options.output.read_text(encoding="utf-8")) if has_file else {}
    for name, setting in settings().items():
        if options.only in name:
            totals[name] = coverage(setting, options.runs)
            print(name, totals[name]["covered"], flush=True)
            options.output.write_text(json.dumps(plain(totals), indent=1) + "\n", encoding="utf-8")
    print(table(totals))
    print(f"mean {100 * np.mean([row['covered'] for row in totals.values()]):.1f} %")


if __name__ == "__main__":
    main()
