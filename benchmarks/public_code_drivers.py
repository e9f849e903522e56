"""How the public codes are called: built from a clone with their own flags, given a start, timed by their CPU seconds.

Nothing of theirs is kept here. C++ headers that are not where the compiler looks (Armadillo, Eigen, Boost) are named by
the environment variable CPLUS_INCLUDE_PATH; the Python codes run in `DIR/venv` if it is there.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.journal import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.public_code_cases import Case

    Array = NDArray[np.float64]

SAVED = 100
#: Times at which nn2pp writes; the first is 0.
PRINTED = 300
#: What a Python code is imported from, in its clone.
PACKAGES = {
    "DimensionlessDynamicsSGD": "committee_learning",
    "batch-size-time-complexity-tradeoffs": "giant-learning",
}


@dataclass(frozen=True)
class Answer:
    """Generalisation errors at `times`, without the part of the noise, and the CPU seconds of `steps` steps."""

    times: Array
    losses: Array
    seconds: float
    steps: int


def commit(clone: Path) -> str:
    """Return the commit of a clone."""
    done = subprocess.run(["git", "-C", clone, "rev-parse", "HEAD"], capture_output=True, check=True, text=True)
    return done.stdout.strip()


def order_parameters(case: Case) -> tuple[Array, Array]:
    """Return Q = W Wᵀ and the overlaps with the teacher's axes."""
    weights = case.weights()
    return weights @ weights.T, weights[:, : case.directions]


# --- C++ --------------------------------------------------------------------------------------------------


def built(clone: Path, source: str, *flags: str) -> Path:
    """Return the program of a source file, compiled once per commit."""
    program = FOLDER / f"{clone.name}-{commit(clone)[:12]}"
    if not program.exists():
        FOLDER.mkdir(exist_ok=True)
        command = ["g++", "-w", *flags, clone / source, "-o", program]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        if done.returncode:
            wrong = next(line for line in done.stderr.splitlines() if "error" in line)
            msg = f"The code {clone.name} must compile, but g++ says: {wrong}"
            raise RuntimeError(msg)
    return program


def run_program(command: list[Any]) -> float:
    """Run a program quietly on one thread; return its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def nn2pp(case: Case, clone: Path, step: float, repeats: int) -> Answer:
    """Run `scmpp_ode`; of Armadillo it needs the headers alone."""
    bare = [f"-DARMA_DONT_USE_{name}" for name in ("WRAPPER", "BLAS", "LAPACK")]
    program = built(clone, "scmpp_ode.cpp", "-std=c++11", "-O3", "-fopenmp", *bare)
    Q, R = order_parameters(case)
    given = {"Q0": Q, "R0": R, "T0": np.eye(case.directions), "A0": np.ones(case.directions), "v0": case.second_layer()}
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "start"
        for name, values in given.items():
            np.savetxt(f"{prefix}_{name}.dat", values, fmt="%.17g")
        options = {
            "M": case.directions,
            "K": case.width,
            "lr": case.rate,
            "sigma": case.noise,
            "dt": step,
            "steps": case.last,
            "prefix": prefix,
        }
        command = [program, *(f"--{name}={value}" for name, value in options.items()), *(["--both"] * case.both)]
        seconds = min(run_program(command) for _ in range(repeats))
        rows = [line.split(",") for line in Path(f"{prefix}_ode.dat").read_text().splitlines() if line[0] != "#"]
    printed = np.array([float(row[0]) for row in rows])
    taken = nn2pp_steps(case.last, step)[: printed.size]
    # It writes six digits of the time: the steps behind them are known better.
    np.testing.assert_allclose(taken * step, printed, rtol=1e-5)
    return Answer(taken * step, np.array([float(row[1]) for row in rows]), seconds, int(taken[-1]))


def nn2pp_steps(last: float, step: float) -> NDArray[np.int64]:
    """Return the number of steps before each line that nn2pp writes, by its own sums of rounded numbers."""
    taken, counts = 0, [0]
    for duration in np.diff(np.logspace(-1, np.log10(last), PRINTED)):
        gone = 0.0
        while gone < duration:
            gone += step
            taken += 1
        counts.append(taken)
    return np.array(counts)


def teacher_student_dynamics(case: Case, clone: Path, step: float, repeats: int) -> Answer:
    """Run the C++ of `ode/c_ode/vanilla` with its second teacher never in use; its own call compiles without -O."""
    program = built(clone, "teacher_student_dynamics/ode/c_ode/vanilla/runner.cpp", "-std=c++17", "-O3")
    Q, R = order_parameters(case)
    eye, layer = np.eye(case.directions), case.second_layer()[:, None]
    head = np.ones((case.directions, 1))
    given = {"Q": Q, "R": R, "U": R, "T": eye, "S": eye, "V": eye, "h1": layer, "h2": layer, "th1": head, "th2": head}
    every = max(1, round(case.last / step) // SAVED)
    dimension = 10_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key, values in given.items():
            np.savetxt(folder / f"{key}.csv", values, fmt="%.17g", delimiter=",")
        (folder / "start.txt").write_text("".join(f"{key},{folder / key}.csv\n" for key in given))
        samples = round(case.last * dimension)
        config = {
            "num_steps": samples,
            "ode_log_frequency": round(every * step * dimension),
            "switch_step": 2 * samples,
            "hidden_learning_rate": case.rate,
            "head_learning_rate": case.rate,
            "input_dimension": dimension,
            "student_hidden": case.width,
            "teacher_hidden": case.directions,
            "multi_head": True,
            "timestep": step,
            "train_head_layer": case.both,
            "train_hidden_layer": True,
            "input_noise_stds": [0.0, 0.0],
            "noise_stds": [case.noise, case.noise],
            "freeze_units": [0, 0],
            "debug_frequency": 2 * samples,
            "order_parameter_paths": folder / "start.txt",
            "output_path": folder,
            "stdout_frequency": samples,
            "stdout_path": os.devnull,
        }
        (folder / "config.txt").write_text("".join(f"{configured(key, value)}\n" for key, value in config.items()))
        seconds = min(run_program([program, folder / "config.txt"]) for _ in range(repeats))
        losses = np.loadtxt(folder / "log_csvs" / "generalisation_error_0.csv")
    return Answer(step * every * np.arange(losses.size), losses, seconds, round(case.last / step))


def configured(key: str, value: object) -> str:
    """Return a line type;key;value of that code's configuration."""
    if isinstance(value, bool):
        return f"bool;{key};{int(value)}"
    if isinstance(value, list):
        return f"it_{type(value[0]).__name__};{key};{','.join(map(str, value))}"
    kind = type(value).__name__ if isinstance(value, int | float) else "str"
    return f"{kind};{key};{value}"


# --- Python -----------------------------------------------------------------------------------------------


def python_code(case: Case, clone: Path, step: float, repeats: int) -> Answer:
    """Run a Python code in its own interpreter, whose CPU seconds are those of the steps alone."""
    Q, R = order_parameters(case)
    ratio = round(case.step / step)
    saved = ratio * np.unique(np.geomspace(1, case.steps, SAVED).round().astype(int))
    task = {"code": clone.name, "Q": Q, "M": R, "P": np.eye(case.directions), "saved": saved, "step": step}
    task |= {name: getattr(case, name) for name in ("rate", "noise", "second_order", "sphere", "link")}
    own = clone.parent / "venv" / "bin" / "python"
    done = subprocess.run(
        [own if own.exists() else sys.executable, Path(__file__).with_name("public_code_child.py")],
        input=json.dumps(task | {"repeats": repeats}, default=lambda array: array.tolist()),
        capture_output=True,
        check=False,
        text=True,
        env=os.environ | {"PYTHONPATH": str(clone / PACKAGES[clone.name]), "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        msg = f"The code in {clone.name} must run, but says: {done.stderr.strip().splitlines()[-1]}"
        raise RuntimeError(msg)
    found = json.loads(done.stdout)
    return Answer(step * saved, np.array(found["losses"]), found["seconds"], int(saved[-1]))


DRIVERS: dict[str, Callable[[Case, Path, float, int], Answer]] = {
    "nn2pp": nn2pp,
    "teacher_student_dynamics": teacher_student_dynamics,
    **dict.fromkeys(PACKAGES, python_code),
}
