"""Random environments: each gets an answer or one sentence, no traceback, and what happened is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzz_calls import problem
from fuzz_commands import PREDICTION
from fuzz_guard import report
from processes import ROOT

import dynamics
from dynamics.__main__ import COMMANDS

ENVIRONMENTS = 100
#: Seconds after which a process counts as one that hangs.
HANGS = 150
#: Variable -> values to choose from.
VARIABLES = {
    "MPLBACKEND": ("module://matplotlib_inline.backend_inline", "TkAgg", "svg", "nonsense", ""),
    "MPLCONFIGDIR": ("/proc", "missing"),
    "LC_ALL": ("C", "C.UTF-8", "de_DE.UTF-8", "nonsense"),
    "PYTHONIOENCODING": ("ascii", "latin-1"),
    "PYTHONUTF8": ("0", "1"),
    "HOME": ("/proc", "/missing", ""),
    "TMPDIR": ("/proc", "/missing"),
    "PYTHONOPTIMIZE": ("1", "2"),
    "PYTHONWARNINGS": ("error", "always"),
    "PYTHONDONTWRITEBYTECODE": ("1",),
    "GIT_DIR": ("/missing", ""),
    "NO_COLOR": ("1",),
    "TERM": ("dumb", "xterm"),
    "COLUMNS": ("0", "1", "-3", "text", "100000"),
    "OMP_NUM_THREADS": ("0", "1", "-1", "text", "64"),
    "OPENBLAS_NUM_THREADS": ("0", "text", "3"),
    "TZ": ("nonsense",),
}
STREAMS = ("", "<&-", "2>&-", "<&- 2>&-", ">&-", "<&- >&- 2>&-", "</dev/null")
SEVERE = "import numpy\nnumpy.seterr(all='raise')\n"
ASKED = (
    "import hermite, dynamics\n"
    "teacher = dynamics.Teacher([1.0, 0.5])\n"
    "problem = dynamics.Problem(activation='he4', teacher=teacher, width=4, dimension=16)\n"
    "print(hermite.expand('he3').information_exponent, len(dynamics.predict_emergence(problem).direction))\n"
)
SMALL = ("--k", "4", "--directions", "2", "--width", "4", "--dimension", "16", "--t-max", "1")


def task(rng, at, folder):
    """Return the arguments of Python for something cheap, and its kind."""
    kind = str(rng.choice(["import", "solve", "help", "report"], p=[0.3, 0.3, 0.2, 0.2]))
    return kind, {
        "import": ["-c", ASKED],
        "solve": ["-m", "dynamics.solve", *SMALL, "--output", f"{folder}/{at}.nc"],
        "help": ["-m", str(rng.choice(list(COMMANDS))), "--help"],
        "report": ["-m", "dynamics.report", f"{folder}/prediction.nc", "--output", f"{folder}/{at}.html"],
    }[kind]  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_random_environments(record_property, tmp_path):
    dynamics.save(dynamics.predict_emergence(problem()), tmp_path / PREDICTION)
    (tmp_path / "severe").mkdir()
    (tmp_path / "severe" / "sitecustomize.py").write_text(SEVERE, encoding="utf-8")
    kept = {name: os.environ[name] for name in ("PATH", "NUMBA_CACHE_DIR") if name in os.environ}
    rng, complaints = np.random.default_rng(13), {}
    for at in range(ENVIRONMENTS):
        own = {name: str(rng.choice(values)) for name, values in VARIABLES.items() if rng.random() < 0.3}
        place, streams = str(rng.choice([str(tmp_path), "/proc"])), str(rng.choice(STREAMS))
        path = [str(tmp_path / "severe")] * (rng.random() < 0.3)
        kind, arguments = task(rng, at, tmp_path)
        label = f"{at} {kind} in {place} {own} {streams} {'severe' * len(path)} {arguments[:2]}"
        try:
            done = subprocess.run(
                ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, *arguments], cwd=place, capture_output=True,
                env={**kept, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)]), **own}, timeout=HANGS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            record_property("environments: hangs", 1)
            complaints[label] = "hangs"
            continue
        said = done.stderr.decode(errors="replace")
        broken = done.returncode not in (0, 1, 2) or "Traceback" in said or "Error in sys" in said
        outcome = "tracebacks" if broken else "refused" if done.returncode else "answers"
        record_property(f"environments: {outcome}", 1)
        # Without stdout a result has no place, which is the one reason to refuse.
        deaf = ">&-" in streams.replace("2>&-", "")
        if broken or (done.returncode and not deaf):
            complaints[label] = f"code {done.returncode}: {said[-1500:]}"
        elif kind in ("solve", "report") and not Path(arguments[-1]).exists():
            complaints[label] = f"no file: {said[-500:]}"
    assert not complaints, report(complaints)
