"""Random command lines and environments: each gets an answer or one sentence, no traceback, and what happened is counted.

Fifteen command lines are tried, and with FULL_TESTS=1 300 of them and 100 environments.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzz_calls import problem
from fuzz_commands import PREDICTION, STUDY_FILE, commands
from fuzz_guard import LONGEST_SENTENCE, OutOfTimeError, ended, report
from processes import ROOT, SMALL_STUDY

import dynamics
from dynamics.__main__ import COMMANDS
from hermite.text.messages import shown

FULL = "FULL_TESTS" in os.environ
LINES, ENVIRONMENTS = (300 if FULL else 15), 100
#: Seconds after which a process counts as one that hangs.
HANGS = 150


@pytest.fixture
def count(record_property):
    """Return what counts an outcome of a kind."""

    def counted(kind, outcome):
        record_property(f"{kind}: {outcome}", 1)

    return counted


#: Values that some options have.
NICE = ("0", "1", "3", "8", "0.5", "1e-3", "-1", "auto", "he4", "relu", "x1*x2", "1,0.5", "geometric:5", "linear:3", "new.png")  # fmt: skip
#: Flags with which a command works little, by the beginning of its name; all others answer at once.
DRY = ("dynamics.solve", "dynamics.study", "dynamics.laws", "dynamics.mean_field_study", "sgd_check.study")


def line(rng, command):
    """Return a random command line: options in any order, with values of their kind, of another, and none."""
    given = []
    for name in rng.permutation(list(command.kinds))[: rng.integers(1, 5)]:
        value = str(rng.choice(NICE)) if rng.random() < 0.7 else command.kinds[str(name)](rng)
        given.append(f"--{name}={value}" if rng.random() < 0.9 else f"--{name}")
    if rng.random() < 0.2:
        given.append(str(rng.choice(("--json", "--quiet", "--no-plot", "--version"))))
    little = ["--dry-run"] if command.name.startswith(DRY) else ["--max-runtime=1"]
    little = [] if command.name.startswith(("hermite", "dynamics.report")) else little
    return [*command.good, *(str(each) for each in rng.permutation(given)), *little]


@pytest.mark.longer
@pytest.mark.timeout(3600 if FULL else 300)
def test_random_lines(count, here):
    dynamics.save(dynamics.predict_emergence(problem()), here / PREDICTION)
    (here / STUDY_FILE).write_text(SMALL_STUDY)
    rng, complaints, every = np.random.default_rng(12), {}, list(commands())
    for _ in range(LINES):
        command = every[rng.integers(len(every))]
        given = line(rng, command)
        label = f"{command.name}: {shown(given)}"
        for path in here.glob("new*"):
            path.unlink()
        try:
            end = ended(command.main, given)
        except OutOfTimeError:
            count("command lines", "hangs")
            complaints[label] = "takes too long"
            continue
        except BaseException as error:
            count("command lines", "tracebacks")
            complaints[label] = repr(error)
            continue
        count("command lines", "answers" if end.code == 0 else "refused")
        is_sentence = end.err.startswith("error: ") and not end.out and len(end.err) <= LONGEST_SENTENCE
        if end.code and not (end.code in (1, 2) and is_sentence and (end.code == 1 or end.err.count("\n") == 1)):
            complaints[label] = f"{end}"
    assert not complaints, report(complaints)


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
def test_random_environments(count, tmp_path):
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
            count("environments", "hangs")
            complaints[label] = "hangs"
            continue
        said = done.stderr.decode(errors="replace")
        broken = done.returncode not in (0, 1, 2) or "Traceback" in said or "Error in sys" in said
        count("environments", "tracebacks" if broken else "refused" if done.returncode else "answers")
        # Without stdout a result has no place, which is the one reason to refuse.
        deaf = ">&-" in streams.replace("2>&-", "")
        if broken or (done.returncode and not deaf):
            complaints[label] = f"code {done.returncode}: {said[-1500:]}"
        elif kind in ("solve", "report") and not Path(arguments[-1]).exists():
            complaints[label] = f"no file: {said[-500:]}"
    assert not complaints, report(complaints)
