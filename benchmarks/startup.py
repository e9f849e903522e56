"""How long the commands take: `python benchmarks/startup.py` prints a table and writes `benchmarks/startup.json`.

Every number is the wall-clock time of a fresh process: the median over runs, with the fastest and the slowest. "First
time" means with an empty cache of compiled code.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dynamics import provenance

MAIN = ["-m", "dynamics.solve", "--k", "4", "--beta", "1.0", "--quiet"]
CASES = {
    "import hermite, dynamics, sgd_check": (["-c", "import hermite, dynamics, sgd_check"], False),
    "python -m dynamics.solve --help": (["-m", "dynamics.solve", "--help"], False),
    "python -m sgd_check.run --help": (["-m", "sgd_check.run", "--help"], False),
    "python -m dynamics.solve --k 4 --beta 1.0, first time": (MAIN, True),
    "python -m dynamics.solve --k 4 --beta 1.0, again": (MAIN, False),
}
RUNS = 5


def seconds(arguments: list[str], *, cold: bool) -> list[float]:
    found = []
    with tempfile.TemporaryDirectory() as warm_cache:
        for run in range(RUNS + (not cold)):
            with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cold_cache:
                cache = cold_cache if cold else warm_cache
                environment = {**os.environ, "FEATURE_EMERGENCE_CACHE": cache}
                began = time.perf_counter()
                subprocess.run(
                    [sys.executable, *arguments], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
                )
                if cold or run > 0:
                    found.append(time.perf_counter() - began)
    return sorted(found)


def main() -> None:
    measured = {name: seconds(arguments, cold=cold) for name, (arguments, cold) in CASES.items()}
    print("| command | seconds, median (range) |\n|---|---|")
    for name, runs in measured.items():
        print(f"| `{name}` | {statistics.median(runs):.2f} ({runs[0]:.2f} to {runs[-1]:.2f}) |")
    stored = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": provenance.git_commit(),
        "environment": json.loads(provenance.environment()),
        "cores": os.cpu_count(),
        "seconds": measured,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
