"""Runs of SGD that stay at their teacher, below and above the limit of the learning rate, link by link.

`python -m benchmarks.stability` prints what docs/learning_rate.md sums up.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

import dynamics
import sgd_check

LINKS = {
    "relu": "relu",
    "leaky relu": "Max(z, 0.1*z)",
    "gelu": "gelu",
    "silu": "z/(1 + exp(-z))",
    "tanh": "tanh",
    "erf": "erf",
    "sigmoid": "1/(1 + exp(-z))",
    "softplus": "log(1 + exp(z))",
    "sin": "sin(z)",
    "abs": "Abs(z)",
    "0.6 h1 + 0.8 h2": {1: 0.6, 2: 0.8},
    "0.6 h1 + 0.8 h3": {1: 0.6, 3: 0.8},
}
DIRECTIONS, DIMENSION, NOISE = 3, 48, 0.05
BATCHES, PARTS, RUNS, STEPS = (1, 16), (0.7, 1.5), 20, 4000
#: A run stays if its loss E(f − f*)² is at most this part of E f*².
LARGEST_LOSS = 0.5


def losses(problem: dynamics.Problem, rate: float, batch: int) -> np.ndarray:
    """Return E(f − f*)²/E f*² of runs after all steps, infinite for those that blew up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of rates above the limit
        runs = sgd_check.simulate(
            problem,
            learning_rate=rate,
            steps=STEPS,
            seeds=RUNS,
            batch_size=batch,
            engine="projected",
            save_at=dynamics.SaveAt.at([rate * STEPS]),
            progress=False,
        )
    a, c = problem.teacher.coefficients, problem.activation.coefficients
    square = float(np.sum(a**2) * np.sum(c[1:] ** 2) + np.sum(a) ** 2 * c[0] ** 2)
    found = runs.loss.values[:, -1] / square
    return np.where(np.isfinite(found), found, np.inf)


def main() -> int:
    """Print the table; return 0 if all runs stay below the limit."""
    teacher, stays = dynamics.Teacher.power_law(DIRECTIONS, 1.0), True
    start = np.sqrt(teacher.coefficients)[:, None] * np.eye(DIRECTIONS, DIMENSION)
    print("| link | B | limit × d | stay at 0.7 | stay at 1.5 | loss over E f*² at 0.7 | at 1.5 |")
    print("|---|---|---|---|---|---|---|")
    for name, link in LINKS.items():
        problem = dynamics.Problem(
            activation=link,
            teacher=teacher,
            width=DIRECTIONS,
            dimension=DIMENSION,
            initial_weights=start,
            label_noise=NOISE,
        )
        for batch in BATCHES:
            limit = dynamics.learning_rate_limit(problem, batch_size=batch)
            below, above = (losses(problem, part * limit, batch) for part in PARTS)
            counts = [int(np.sum(each <= LARGEST_LOSS)) for each in (below, above)]
            medians = ["∞" if np.isinf(middle := np.median(each)) else f"{middle:.2g}" for each in (below, above)]
            cells = (name, batch, f"{limit * DIMENSION:.3g}", *counts, *medians)
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
            stays &= counts[0] == RUNS
    return 0 if stays else 1


if __name__ == "__main__":
    sys.exit(main())
