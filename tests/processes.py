"""Processes as users start them: this interpreter, the program of this tree, what they say caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: A study file that takes no time.
SMALL_STUDY = """\
[problem]
k = 4
num_directions = 2
dimension = 16
width = 3
[grid]
seed = [0, 1]
[study]
name = "prediction"
"""


def python(*arguments, cwd=None, timeout=150, **environment):
    """Run `python ARGUMENTS` to its end, whatever that is."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
