"""The cases timed by pytest-benchmark, run in a process of their own: `bench_*.py` in this folder."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.journal import FOLDER, ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.journal import Journal

FILES = ("bench_startup.py", "bench_expansion.py", "bench_right_hand_side.py")
QUICK_FILES = ("bench_expansion.py", "bench_right_hand_side.py")


def run(journal: Journal, files: Sequence[str]) -> list[dict[str, Any]]:
    """Return seconds (smallest, median, largest) of every case, with what it says of itself."""
    cases: list[dict[str, Any]] = []
    for file in files:
        cases.extend(journal.measure(f"timed cases of {file}", partial(_collect, file)))
    return cases


def _collect(file: str) -> list[dict[str, Any]]:
    target = FOLDER / f"{file}.json"
    folder = ROOT / "benchmarks"
    # Fewer seconds per case than pytest-benchmark would take: hundreds of rounds fit into a quarter of a second.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(folder / "pytest.ini"),
        "--rootdir",
        str(ROOT),
        str(folder / file),
    ]
    options = [f"--benchmark-json={target}", "--benchmark-max-time=0.25", "--benchmark-quiet"]
    subprocess.run([*command, *options], cwd=ROOT, check=True)
    found = json.loads(target.read_text(encoding="utf-8"))["benchmarks"]
    return [
        {
            "group": case["group"],
            **case["extra_info"],
            "seconds": [case["stats"][name] for name in ("min", "median", "max")],
            "rounds": case["stats"]["rounds"],
        }
        for case in found
    ]
