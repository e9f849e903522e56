"""Compute the answers to all questions of `cases.py` anew and store them in `answers/`, or say what has changed.

`python -m tests.golden.make [NAME …]` writes the answers whose names contain one of the words, or all of them, and
removes those of questions that are no longer asked. `--check` compares instead, and tells every difference.
Answers are stored as the program gave them before its kernels were built in another way: a change of them must be meant.
"""

import argparse
import importlib.util
import sys
import time
from pathlib import Path

import numpy as np

from . import stored
from .cases import CASES

ANSWERS = Path(__file__).parent / "answers"


def path_of(name):
    """Return the file of an answer."""
    return ANSWERS / f"{name}.json"


def can_answer(name):
    """Return whether what an answer needs is installed."""
    needs = CASES[name].needs
    return needs is None or importlib.util.find_spec(needs) is not None


def answer(name):
    """Return the answer to a question; floating point that is not valid raises, as in tests."""
    with np.errstate(all="raise", under="ignore"):
        return stored.answer(CASES[name].ask)


def differences(name):
    """Ask once more, and return how the answer differs from the stored one."""
    return stored.differences(answer(name), stored.read(path_of(name)), CASES[name].bound)


def main():
    """Write or compare; return 1 if answers have changed."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make", description="Stored answers of the program.")
    parser.add_argument("words", nargs="*", metavar="NAME", help="answers whose names contain one of these [all]")
    parser.add_argument("--check", action="store_true", help="compare with the stored answers and write nothing")
    options = parser.parse_args()
    chosen = [name for name in CASES if not options.words or any(word in name for word in options.words)]
    changed = 0
    ANSWERS.mkdir(exist_ok=True)
    for name in filter(can_answer, chosen):
        began = time.perf_counter()
        told = differences(name) if options.check else []
        if not options.check:
            stored.write(path_of(name), answer(name))
        changed += bool(told)
        print(f"{time.perf_counter() - began:6.2f} s  {name}", *told, sep="\n          ", flush=True)
    if not options.check and not options.words:
        for path in ANSWERS.glob("*.json"):
            if path.stem not in CASES:
                path.unlink()
    if options.check:
        print(f"{changed} of {len(chosen)} answers have changed")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
