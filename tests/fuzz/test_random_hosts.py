"""Random arrays, command lines and environments: each gets an answer or one sentence, and what happened is counted.

Arrays are held against the list of the same numbers. Runs with FULL_TESTS=1.
"""

from __future__ import annotations

import array
import os
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from fuzz_calls import problem
from fuzz_commands import commands
from fuzz_guard import LONGEST_SENTENCE, OutOfTimeError, complaint_of_sentence, ended, report
from processes import ROOT, SMALL_STUDY

import dynamics
import hermite
from dynamics.__main__ import COMMANDS
from hermite.text.messages import shown

ARRAYS, LINES, ENVIRONMENTS = 300, 300, 100
#: Seconds after which a process counts as one that hangs.
HANGS = 150


@pytest.fixture
def count(record_property):
    """Return what counts an outcome of a kind."""

    def counted(kind, outcome):
        record_property(f"{kind}: {outcome}", 1)

    return counted


# --- arrays -------------------------------------------------------------------------------------------------


def strided(values):
    wide = np.zeros((len(values), 3))
    wide[:, 1] = values
    return wide[:, 1]


def tensor(values, **kind):
    return pytest.importorskip("torch").tensor(values, **kind)


#: What holds numbers without a loss.
CONTAINERS = {
    "tuple": tuple,
    "array": np.array,
    "strided": strided,
    "backwards": lambda values: np.array(values[::-1])[::-1],
    "big-endian": lambda values: np.array(values, ">f8"),
    "long": lambda values: np.array(values, np.longdouble),
    "objects": lambda values: np.array([*values, None], object)[:-1],
    "column": lambda values: pd.Series(values, index=range(len(values), 0, -1), dtype=float),
    "table": lambda values: pd.DataFrame({"w": np.array(values, float)}),
    "index": lambda values: pd.Index(values, dtype=float),
    "labelled": lambda values: xr.DataArray(np.array(values, float), dims="p"),
    "variable": lambda values: xr.Variable("p", np.array(values, float)),
    "unmasked": lambda values: np.ma.masked_array(values, False, float),
    "buffer": lambda values: array.array("d", values),
    "view": lambda values: memoryview(array.array("d", values)),
    "tensor": lambda values: tensor(values, dtype=pytest.importorskip("torch").float64),
    "on a graph": lambda values: tensor(values, dtype=pytest.importorskip("torch").float64, requires_grad=True),
    "decimals": lambda values: [Decimal(value) for value in values],
    "fractions": lambda values: [Fraction(value) for value in values],
    "scalars": lambda values: [np.float64(value) for value in values],
    "scalar arrays": lambda values: [np.array(value) for value in values],
}
#: What no list of numbers may be or hold, made of a good one.
DEFECTS = {
    "masked": lambda values: np.ma.masked_array(values, [True] + [False] * (len(values) - 1)),
    "not a number": lambda values: np.array([*values, np.nan]),
    "infinite": lambda values: np.array([*values, -np.inf]),
    "missing": lambda values: [*values, None],
    "missing in a column": lambda values: pd.Series([*values, None], dtype="Float64"),
    "text": lambda values: [*map(str, values)],
    "mixed": lambda values: [*values, "1"],
    "truth": lambda values: [*values, True],
    "complex": lambda values: np.array(values) + 0j,
    "dates": lambda values: np.arange(len(values)).astype("M8[D]"),
    "durations": lambda values: np.arange(len(values)).astype("m8[s]"),
    "ragged": lambda values: [values, [*values, 1.0]],
    "deep": lambda values: np.array(values)[None, :, None],
    "records": lambda values: np.zeros(len(values), [("a", float), ("b", int)]),
    "bytes": lambda values: bytes(len(values)),
    "generator": lambda values: (value for value in values),
    "set": set,
    "dictionary": lambda values: dict(enumerate(values)),
    "two columns": lambda values: pd.DataFrame({"a": values, "b": values}),
    "categories": lambda values: pd.Series(map(str, values), dtype="category"),
    "unit": lambda values: xr.DataArray(np.array(values), dims="p", attrs={"units": "s"}),
    "elsewhere": lambda values: tensor(values, device="meta"),
    "sparse": lambda values: tensor(values).to_sparse(),
    "huge integers": lambda values: [10**400] * len(values),
    "quantised": lambda values: np.array([*values, 0.0]).view("V8"),
}
#: Where users' vectors enter, whatever is right or wrong of their numbers.
VECTORS = {
    "coefficients": lambda made: dynamics.Teacher(made).coefficients,
    "biases": lambda made: dynamics.Teacher([1.0, 0.5], biases=made).biases,
    "eigenvalues": lambda made: dynamics.Inputs(made, [3, 5]).eigenvalues,
    "times": lambda made: dynamics.SaveAt.at(made).times,
    "second layer": lambda made: dynamics.Student(activation="erf", width=2, initial_second_layer=made).initial_second_layer,
    "points": lambda made: hermite.expand("he3").value(made),
    "slopes": lambda made: hermite.expand("0.8*h4(z) + 0.6*h6(z)").kernel(made),
}  # fmt: skip

#: Those that take every shape and every float, and the defects that are none to them.
POINTS, SHAPES = ("points", "slopes"), ("deep", "two columns", "not a number", "infinite")


def found(call, given):
    """Return numbers, or the error, of a call."""
    try:
        return np.asarray(call(given), dtype=float).tolist()
    except Exception as error:
        return error


def numbers(rng):
    """Return one to four numbers in one order of magnitude or many, in descending order half of the time."""
    values = rng.normal(size=rng.choice([1, 2, 2, 2, 2, 3, 4])) * 10.0 ** rng.choice([0, 0, 0, -300, 12, 1])
    values = np.round(values) if rng.random() < 0.2 else values
    return sorted(np.abs(values).tolist(), reverse=rng.random() < 0.5) if rng.random() < 0.7 else values.tolist()


@pytest.mark.long
def test_random_arrays(count):
    rng, complaints = np.random.default_rng(11), {}
    for _ in range(ARRAYS):
        values, call = numbers(rng), str(rng.choice(list(VECTORS)))
        is_bad = rng.random() < 0.4
        defects = [name for name in DEFECTS if call not in POINTS or name not in SHAPES]
        kind = str(rng.choice(defects if is_bad else list(CONTAINERS)))
        made = (DEFECTS if is_bad else CONTAINERS)[kind](values)
        answer, plain = found(VECTORS[call], made), found(VECTORS[call], values)
        label = f"{call} of {values} as {kind}"
        refused = isinstance(answer, ValueError | TypeError)
        outcome = "refused" if refused else "tracebacks" if isinstance(answer, Exception) else "answers"
        count("arrays", outcome)
        if refused and (complaint := complaint_of_sentence(str(answer))):
            complaints[label] = complaint
        elif (
            outcome == "tracebacks"
            or (is_bad and not refused)
            or (not is_bad and refused != isinstance(plain, Exception))
        ):
            complaints[label] = f"{answer!r}, the list {plain!r}"
        elif not is_bad and not refused and answer != plain and np.ravel(answer).tolist() != plain:
            complaints[label] = f"{answer}, the list {plain}"
    assert not complaints, report(complaints)


# --- command lines ------------------------------------------------------------------------------------------

#: Values that some options have.
NICE = (
    "0",
    "1",
    "2",
    "3",
    "8",
    "0.5",
    "0.1",
    "1e-3",
    "-1",
    "auto",
    "he4",
    "relu",
    "x1*x2",
    "1,0.5",
    "geometric:5",
    "linear:3",
    "new.png",
)
#: Flags with which a command works little, by the beginning of its name.
LITTLE = {"dynamics.solve": ["--dry-run"], "dynamics.study": ["--dry-run"], "dynamics.laws": ["--dry-run"],
          "sgd_check.study": ["--dry-run"], "dynamics.mean_field_study": ["--dry-run"], "sgd_check.run": ["--no-plot", "--max-runtime=1"]}  # fmt: skip
SWITCHES = ("--json", "--quiet", "--no-plot", "--no-progress", "--version", "--dry-run")


def little(command):
    return next((flags for name, flags in LITTLE.items() if command.name.startswith(name)), [])


def line(rng, command):
    """Return a random command line: options in any order, with values of their kind, of another, and none."""
    given = []
    for name in rng.permutation(list(command.kinds))[: rng.integers(1, 5)]:
        value = str(rng.choice(NICE)) if rng.random() < 0.7 else command.kinds[str(name)](rng)
        given.append(f"--{name}={value}")
        if rng.random() < 0.1:
            given[-1:] = [f"--{name}"]
    if rng.random() < 0.2:
        given.append(str(rng.choice(SWITCHES)))
    return [*command.good, *(str(each) for each in rng.permutation(given)), "--overwrite", *little(command)]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_random_lines(count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dynamics.save(dynamics.predict_emergence(problem()), tmp_path / "prediction.nc")
    (tmp_path / "study.toml").write_text(SMALL_STUDY)
    rng, complaints, every = np.random.default_rng(12), {}, list(commands())
    for command in every:  # what is compiled, from an empty cache, takes longer than a refusal may
        if command.name.startswith("sgd_check"):
            command.main([*command.good, "--overwrite", *little(command)])
    for _ in range(LINES):
        command = every[rng.integers(len(every))]
        given = [word for word in line(rng, command) if "overwrite" not in word or "exponents" not in command.name]
        label = f"{command.name}: {shown(given)}"
        try:
            end = ended(command.main, given)
        except OutOfTimeError:
            count("lines", "hangs")
            complaints[label] = "takes too long"
            continue
        except BaseException as error:
            count("lines", "tracebacks")
            complaints[label] = repr(error)
            continue
        count("lines", "answers" if end.code == 0 else "refused")
        is_sentence = end.err.startswith("error: ") and not end.out and len(end.err) <= LONGEST_SENTENCE
        if end.code and not (end.code in (1, 2) and is_sentence and (end.code == 1 or end.err.count("\n") == 1)):
            complaints[label] = f"{end}"
    assert not complaints, report(complaints)


# --- environments -------------------------------------------------------------------------------------------

#: Variable -> what it may be; None where it is not set.
VARIABLES = {
    "MPLBACKEND": (None, "module://matplotlib_inline.backend_inline", "TkAgg", "nonsense", ""),
    "MPLCONFIGDIR": (None, "/proc", "missing"),
    "LC_ALL": (None, "C", "C.UTF-8", "de_DE.UTF-8", "nonsense"),
    "PYTHONIOENCODING": (None, "ascii", "latin-1"),
    "HOME": (None, "/proc", "/missing", ""),
    "TMPDIR": (None, "/proc", "/missing"),
    "PYTHONOPTIMIZE": (None, "1", "2"),
    "PYTHONWARNINGS": (None, "error", "always"),
    "PYTHONDONTWRITEBYTECODE": (None, "1"),
    "NO_COLOR": (None, "1"),
    "TERM": (None, "dumb", "xterm"),
    "COLUMNS": (None, "0", "1", "-3", "text", "100000"),
    "OMP_NUM_THREADS": (None, "0", "1", "-1", "text", "64"),
    "OPENBLAS_NUM_THREADS": (None, "0", "text", "3"),
    "TZ": (None, "nonsense"),
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
@pytest.mark.timeout(1800)
def test_random_environments(count, tmp_path):
    dynamics.save(dynamics.predict_emergence(problem()), tmp_path / "prediction.nc")
    (tmp_path / "severe").mkdir()
    (tmp_path / "severe" / "sitecustomize.py").write_text(SEVERE, encoding="utf-8")
    kept = {name: os.environ[name] for name in ("PATH", "NUMBA_CACHE_DIR") if name in os.environ}
    rng, complaints = np.random.default_rng(13), {}
    for at in range(ENVIRONMENTS):
        own = {name: values[rng.integers(len(values))] for name, values in VARIABLES.items() if rng.random() < 0.4}
        own = {name: value for name, value in own.items() if value is not None}
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
        target = Path(arguments[-1])
        if broken or (done.returncode and "2>&-" not in streams and "error: " not in said):
            complaints[label] = f"code {done.returncode}: {said[-1500:]}"
        elif done.returncode and ">&-" not in streams.replace("2>&-", ""):
            complaints[label] = f"refused: {said[-500:]}"
        elif kind in ("solve", "report") and not target.exists():
            complaints[label] = f"no file: {said[-500:]}"
    assert not complaints, report(complaints)
