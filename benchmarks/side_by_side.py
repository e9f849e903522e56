"""This tree against another checkout of the program, in turn, by what both of them offer under public names.

`python -m benchmarks.side_by_side OTHER_TREE [--only PART …] [--rounds N] [--large]` prints part by part the ratio of
the seconds of this tree to those of the other: median, smallest and largest over the rounds, and the median of the
ratio of processor seconds, which other work on the machine changes less. Below 1 this tree is faster. All numbers are
written as JSON. In every round each tree runs once, in a process and with a cache of compiled code of its own, and the
other tree goes first in every second round. All calls but those of "cold" are warm.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench_startup import MAIN
from benchmarks.journal import FOLDER, ROOT, machine
from benchmarks.side_by_side_child import PARTS as MEASURED

if TYPE_CHECKING:
    from collections.abc import Iterator

CHILD = ROOT / "benchmarks" / "side_by_side_child.py"
#: Part -> what a process of its own is started for: arguments of Python, and whether its cache is empty.
STARTED: dict[str, dict[str, tuple[tuple[str, ...], bool]]] = {
    "commands": {
        "main command": (MAIN, False),
        "dynamics.solve --help": (("-m", "dynamics.solve", "--help"), False),
        "sgd_check.run --help": (("-m", "sgd_check.run", "--help"), False),
    },
    "cold": {"main command, empty cache": (MAIN, True)},
}
PARTS = (*MEASURED, *STARTED)
LEAST_ROUNDS = 3
#: A command is started so often in a round, and the shortest time counts.
STARTS = 3

Measured = dict[str, dict[str, float | int | None]]


class Tree:
    """A checkout, and its cache of compiled code under `.benchmarks/`, which is not under version control."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.cache = FOLDER / "side-by-side" / name
        self.cache.mkdir(parents=True, exist_ok=True)

    def commit(self) -> str:
        command = ["git", "-C", str(self.root), "describe", "--always", "--dirty", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def python(self, *arguments: str, cache: Path | None = None) -> str:
        """Run Python with the packages of this tree, in a folder where nothing else is; return what it prints."""
        cache = self.cache if cache is None else cache
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            # Of versions with generated kernels, and of those with modules that Numba caches itself.
            "FEATURE_EMERGENCE_CACHE": str(cache / "program"),
            "NUMBA_CACHE_DIR": str(cache / "numba"),
            "MPLBACKEND": "Agg",
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, *arguments]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            msg = f"{' '.join(command)} failed in {self.root}:\n{done.stderr[-2000:]}"
            raise RuntimeError(msg)
        return done.stdout

    def measure(self, part: str, *, large: bool) -> Measured:
        """Return the numbers of every case of a part."""
        if part in STARTED:
            return {name: self._started(*asked) for name, asked in STARTED[part].items()}
        flags = ["--large"] if large else []
        lines = (json.loads(line) for line in self.python("-P", str(CHILD), part, *flags).splitlines())
        return {line.pop("case"): line for line in lines}

    def _started(self, arguments: tuple[str, ...], cold: bool) -> dict[str, float | int | None]:
        if not cold:
            self.python(*arguments)
        seconds, of_processor = float("inf"), float("inf")
        for _ in range(1 if cold else STARTS):
            with tempfile.TemporaryDirectory() as empty:
                began, used = time.perf_counter(), _of_children()
                self.python(*arguments, cache=Path(empty) if cold else None)
                seconds = min(seconds, time.perf_counter() - began)
                of_processor = min(of_processor, _of_children() - used)
        return {"seconds": seconds, "processor_seconds": of_processor, "evaluations": None}


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(part: str, trees: tuple[Tree, Tree], rounds: int, *, large: bool) -> dict[str, Any]:
    """Measure both trees in turn; return, by case, seconds of both, ratios and evaluations."""
    found: tuple[list[Measured], list[Measured]] = ([], [])
    for number in range(rounds):
        for i in (0, 1) if number % 2 == 0 else (1, 0):
            found[i].append(trees[i].measure(part, large=large))
        print(f"  {part}, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    here, there = found
    return {
        case: {
            "seconds": [each[case]["seconds"] for each in here],
            "seconds_of_other": [each[case]["seconds"] for each in there],
            "ratio": _ratios(here, there, case, "seconds"),
            "processor_ratio": _ratios(here, there, case, "processor_seconds"),
            "evaluations": [here[0][case]["evaluations"], there[0][case]["evaluations"]],
        }
        for case in here[0]
    }


def _ratios(here: list[Measured], there: list[Measured], case: str, clock: str) -> list[float]:
    return [float(a[case][clock] or 0.0) / float(b[case][clock] or 0.0) for a, b in zip(here, there, strict=True)]


def rows(cases: dict[str, Any]) -> Iterator[str]:
    """Return a line per case."""
    for case, each in cases.items():
        ratio, here = each["ratio"], statistics.median(each["seconds"])
        evaluations, of_other = each["evaluations"]
        other_steps = "" if evaluations == of_other else f"  evaluations {evaluations} against {of_other}"
        yield (
            f"{case:<34} {_shown(here)} {_shown(statistics.median(each['seconds_of_other']))} "
            f"{statistics.median(ratio):8.3f}  ({min(ratio):.3f} to {max(ratio):.3f}) "
            f"{statistics.median(each['processor_ratio']):8.3f}{other_steps}"
        )


def _shown(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:8.3g} {unit:<2}"
    return f"{seconds * 1e9:8.3g} ns"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.side_by_side", description="Seconds of this tree over those of another one."
    )
    parser.add_argument("other", type=Path, metavar="OTHER_TREE", help="root of another checkout of this repository")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="measure these parts alone")
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS, help=f"times in turn [{LEAST_ROUNDS}]")
    parser.add_argument("--large", action="store_true", help="the stiff flow of m = P = 1024 too, minutes a round")
    parser.add_argument("--output", type=Path, default=FOLDER / "side_by_side.json", help="file of all numbers")
    options = parser.parse_args()
    if not (options.other / "dynamics" / "__init__.py").exists():
        parser.error(f"argument OTHER_TREE: must be a checkout of this repository, but is {options.other}")
    if options.rounds < 1:
        parser.error(f"argument --rounds: must be at least 1, but is {options.rounds}")
    return options


def main() -> None:
    options = parse()
    trees = Tree(ROOT, "this"), Tree(options.other.resolve(), "other")
    report: dict[str, Any] = {"machine": machine(), "commits": [tree.commit() for tree in trees], "parts": {}}
    print(f"{'':<34} {'this':>11} {'other':>11} {'ratio':>8}  (smallest, largest) processor")
    for part in options.only:
        report["parts"][part] = compare(part, trees, options.rounds, large=options.large)
        print(part, *rows(report["parts"][part]), sep="\n", flush=True)
        options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
