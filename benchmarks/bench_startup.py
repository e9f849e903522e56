"""Fresh processes: import, `--help`, the main command with an empty and with a filled cache of compiled code."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.contenders import OUR_METHODS

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 5
MAIN = ("-m", "dynamics.solve", "--k", "4", "--beta", "1.0", "--quiet")
WARM = {
    "import hermite, dynamics, sgd_check": ("-c", "import hermite, dynamics, sgd_check"),
    "python -m dynamics.solve --help": ("-m", "dynamics.solve", "--help"),
    "python -m sgd_check.run --help": ("-m", "sgd_check.run", "--help"),
    "python -m dynamics.solve --k 4 --beta 1.0, again": MAIN,
}
COLD = {"python -m dynamics.solve --k 4 --beta 1.0, first time": MAIN}
COMPILE = """
import dynamics
problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher.power_law(2, beta=1.0), width=2, dimension=16)
save_at = dynamics.SaveAt.at([1.0])
print(dynamics.solve_overlaps(problem, save_at=save_at, method={method!r}, progress=False).attrs["compile_seconds"])
"""


def run_fresh(arguments: tuple[str, ...], cache: Path, folder: Path) -> str:
    """Run Python with its own cache of compiled code, in an empty folder; return what it prints."""
    folder.mkdir()
    environment = {**os.environ, "FEATURE_EMERGENCE_CACHE": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # whoever uses the program reads it as bytecode
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.benchmark(group="startup")
@pytest.mark.parametrize("name", WARM)
def test_with_filled_cache(benchmark: Any, tmp_path: Path, name: str) -> None:
    folders = (tmp_path / f"run{i}" for i in range(ROUNDS + 1))
    benchmark.extra_info["name"] = name
    benchmark.pedantic(lambda: run_fresh(WARM[name], tmp_path / "cache", next(folders)), rounds=ROUNDS, warmup_rounds=1)


@pytest.mark.benchmark(group="startup")
@pytest.mark.parametrize("name", COLD)
def test_with_empty_cache(benchmark: Any, tmp_path: Path, name: str) -> None:
    rounds = iter(range(ROUNDS))

    def run() -> str:
        i = next(rounds)
        return run_fresh(COLD[name], tmp_path / f"cache{i}", tmp_path / f"run{i}")

    benchmark.extra_info["name"] = name
    benchmark.pedantic(run, rounds=ROUNDS)


@pytest.mark.benchmark(group="compilation")
@pytest.mark.parametrize("method", OUR_METHODS)
@pytest.mark.parametrize("state", ["first time", "again"])
def test_compilation(benchmark: Any, tmp_path: Path, method: str, state: str) -> None:
    """The whole process is timed; what compiling took of it, by its own account, is in `compile_seconds`."""
    arguments = ("-c", COMPILE.format(method=method))
    if state == "again":
        run_fresh(arguments, tmp_path / "cache", tmp_path / "first")
    printed = benchmark.pedantic(lambda: run_fresh(arguments, tmp_path / "cache", tmp_path / "run"), rounds=1)
    benchmark.extra_info["name"] = f"compile {method}, {state}"
    benchmark.extra_info["compile_seconds"] = float(printed)
