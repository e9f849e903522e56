"""The question of a newcomer for ten links: when is a direction learned, in samples, and does SGD agree?

`python -m benchmarks.newcomer [LINK …] [--folder FOLDER]` asks it by one command, for twenty directions with
a_p ∝ 1/p from a file, 64 neurons and d = 512, then runs SGD itself and counts the runs within the interval. Answers
stay in the folder as JSON, one file a link, and are not asked again. docs/predictions.md has its table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import dynamics
import sgd_check
from benchmarks.stability import LINKS as NAMED

LINKS = ("relu", "leaky relu", "gelu", "silu", "tanh", "erf", "sigmoid", "softplus", "sin", "abs")
DIRECTIONS, WIDTH, DIMENSION = 20, 64, 512
#: The direction that runs reach, the one that is asked for, and the number of runs.
FIRST, ASKED, RUNS = 1, 10, 64
#: Runs last this much longer than the interval.
BEYOND = 1.2


def asked(name: str, folder: Path) -> dict[str, Any]:
    """Return what the command says about a link, and the share of runs of SGD within the interval."""
    stem, weights = name.replace(" ", "_"), folder / "weights.csv"
    prediction, checked = folder / f"{stem}.nc", folder / f"{stem}-sgd.nc"
    sizes = [f"--coefficients=@{weights}", f"--width={WIDTH}", f"--dimension={DIMENSION}"]
    directions = f"--learning-steps={FIRST},{ASKED}"
    files = ["--json", "--overwrite", "--no-plot", "--output", str(checked)]
    question = [f"--activation={NAMED[name]}", *sizes, directions]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "sgd_check.run", str(prediction), *files, "--", *question],
        capture_output=True, check=True, encoding="utf-8",
    )  # fmt: skip
    seconds = time.perf_counter() - began
    flow, verdict = map(json.loads, done.stdout.splitlines())
    steps = {(row["direction"], row["event"]): row for row in flow["learning_steps"]}
    first = steps[FIRST, "emergence"]
    found = {
        "limit": 10.0 * first["learning_rate"],
        "asked": steps[ASKED, "learned"]["steps"],
        "first": [first["steps_low"], first["steps"], first["steps_high"]],
        "flow": first["time"] / first["learning_rate"],
        "verdict": verdict["verdict"],
        "reasons": verdict["reasons"],
        "seconds": seconds,
        "inside": None,
    }
    if first["steps_high"] is not None:
        runs = sgd_check.simulate(
            dynamics.Problem.from_dataset(dynamics.load(prediction)),
            learning_rate=first["learning_rate"],
            steps=int(BEYOND * first["steps_high"]),
            seeds=RUNS,
            progress=False,
        )
        reached = runs["emergence_time"].sel(direction=FIRST).values / first["learning_rate"]
        found["inside"] = int(np.sum((reached >= first["steps_low"]) & (reached <= first["steps_high"])))
    return found


def row(name: str, found: dict[str, Any]) -> str:
    """Return the row of the table."""
    low, mean, high = found["first"]
    known = found["inside"] is not None
    cells = [
        name,
        f"{DIMENSION * found['limit']:.3g}",
        f"{found['flow']:,.3g}",
        f"{mean:.3g} ({low:.3g} to {high:.3g})" if known else "-",
        f"{found['inside']} of {RUNS}" if known else "-",
        "-" if found["asked"] is None else f"{found['asked']:.3g}",
        found["verdict"],
        f"{np.sum(found['seconds']):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Ask for all links that have no answer yet, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.newcomer")
    parser.add_argument("links", nargs="*", choices=LINKS)
    parser.add_argument("--folder", type=Path, default=Path(".benchmarks") / "newcomer")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    weights = 1.0 / np.arange(1.0, DIRECTIONS + 1.0)
    np.savetxt(options.folder / "weights.csv", weights / np.linalg.norm(weights))
    print("| link | limit × d | first, flow | SGD (95 % of runs) | inside | tenth, flow | verdict | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.links or LINKS:
        file = options.folder / f"{name}.json"
        if not file.exists():
            file.write_text(json.dumps(asked(name, options.folder)), encoding="utf-8")
        print(row(name, json.loads(file.read_text(encoding="utf-8"))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
