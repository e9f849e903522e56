"""The first questions of a newcomer, on a machine that has compiled nothing and again: processor and wall seconds.

`python -m benchmarks.first_answer [WORDS …]` asks each question twice in processes of its own, first with an empty
cache of compiled code, then with the cache that the first process filled. Processor seconds are those of the command
and its children, and depend little on what else the machine does; wall seconds do. With all questions it writes the
table of docs/benchmarks.md; with words, it asks those that contain one of them and prints their rows.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.journal import ROOT, machine

PAGE = ROOT / "docs" / "benchmarks.md"
START, END = "<!-- first answers -->", "<!-- end of first answers -->"
SHORT = {"S": "-m dynamics.solve", "F": "-m dynamics.solve --activation erf --second-layer fixed"}
HEAD = f"""`S` is `python {SHORT["S"]}`, `F` is `S --activation erf --second-layer fixed`.

| question | processor, first | wall, first | processor, again | wall, again |
|---|---|---|---|---|"""

#: Arguments of Python by the question; S and F stand for those of `SHORT`.
QUESTIONS = {
    "main": "S --k 4 --beta 1.0",
    "k = 3": "S --k 3",
    "24 directions (stiff)": "S --k 4 --beta 1.0 --directions 24",
    "relu network": "S --activation relu --second-layer trained",
    "gelu network": "S --activation gelu --second-layer trained",
    "tanh network": "S --activation tanh --second-layer trained",
    "erf network": "S --activation erf --second-layer trained",
    "README, example 1": "S --k 4 --coefficients 0.8,0.6 --width 8 --dimension 16 --output small.nc",
    "its check": "-m sgd_check.run small.nc",
    "README, example 2": 'S --teacher "x1 + x1*x2 + x1*x2*x3" --activation relu --width 32 --biases trained '
    "--scale 1/m --rates mean-field",
    "committee": "F --directions 2 --width 2",
    "quadratic": "S --model quadratic",
    "mean field": "S --model mean-field --k 4 --dimension 64",
    "momentum": "F --momentum 0.9 --learning-rate 0.1x",
    "Adam": "F --optimizer adam --learning-rate 0.001",
    "sign SGD": "F --width 2 --directions 1 --optimizer sign --label-noise 0.3 --learning-rate 0.001",
    "samples used again": "S --samples 4d",
    "composition of tokens": "-m dynamics.tokens composition --vocabulary 6 --hops 4",
    "sweep of 20 points": "-m dynamics.study study.toml",
    "phase retrieval": "S --k 2 --directions 1 --width 1 --dimension 100",
    "spectrum": "S --k 4 --beta 1 --spectrum 0.25 --directions 3 --width 12 --dimension 200",
    "link as text": 'S --activation "z*tanh(z)" --directions 4 --width 12 --dimension 64',
    "link as a function": "link.py",
}
#: The question that has to be asked before.
BEFORE = {"its check": "README, example 1"}
#: What the folder of a command holds.
FILES = {
    "link.py": """
import numpy as np, dynamics
teacher = dynamics.Teacher.power_law(4, beta=1.0)
problem = dynamics.Problem(activation=lambda z: z * np.tanh(z), teacher=teacher, width=12, dimension=64)
dynamics.solve_overlaps(problem, progress=False)
""",
    "study.toml": """
[problem]
k = 4
num_directions = 4
width = 8
dimension = 64

[grid]
beta = [0.6, 0.8, 1.0, 1.2]
seed = { range = [0, 5] }

[study]
name = "overlaps"
""",
}


def ask(name: str, cache: Path, limit: float) -> tuple[float, float] | None:
    """Return processor and wall seconds of a question in a new folder, or nothing where it takes more than `limit`."""
    environment = {**os.environ, "FEATURE_EMERGENCE_CACHE": str(cache)}
    environment.pop("NUMBA_CACHE_DIR", None)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # whoever uses the program reads it as bytecode
    with tempfile.TemporaryDirectory() as folder:
        for file, text in FILES.items():
            Path(folder, file).write_text(text, encoding="utf-8")
        for question in filter(None, (BEFORE.get(name), name)):
            words = shlex.split(QUESTIONS[question])
            command = [sys.executable, *shlex.split(SHORT.get(words[0], words[0])), *words[1:]]
            used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            try:
                subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=limit)
            except subprocess.TimeoutExpired:
                return None
            wall, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return now.ru_utime - used.ru_utime + now.ru_stime - used.ru_stime, wall


def row(name: str, limit: float) -> str:
    """Return the row of the table about a question, asked with an empty and with a full cache."""
    cells = [f"{name}: `{QUESTIONS[name]}`"]
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            seconds = ask(name, Path(folder), limit)
            cells += ["-", f"> {limit:.0f}"] if seconds is None else [f"{number:.1f}" for number in seconds]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Ask the questions, print their rows, and write the table of the page where all of them were asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_answer", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORDS", help="questions whose names contain one of these")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that a command may take (default: 300)")
    options = parser.parse_args()
    names = [name for name in QUESTIONS if not options.words or any(part in name for part in options.words)]
    print(HEAD, flush=True)
    lines = [HEAD]
    for name in names:
        lines.append(row(name, options.limit))
        print(lines[-1], flush=True)
    if len(names) == len(QUESTIONS):
        about = f"Seconds on {machine()['processor']}, {datetime.date.today()} (`python -m benchmarks.first_answer`)."
        table = "\n".join([START, about, *lines, END])
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(re.sub(f"{START}.*{END}", lambda _: table, text, flags=re.DOTALL), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
