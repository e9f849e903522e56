"""The tests are strong enough: of a list of faults made by hand, each is caught by the tests of its own module."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from planted import FAULTS

ROOT = Path(__file__).parents[2]
#: How a test fails that has seen a fault: by an assertion, or by the strict floating point under which all tests run.
CAUGHT = ("AssertionError", "assert ", "Failed: ", "FloatingPointError")
COPIED = ("hermite", "dynamics", "sgd_check", "benchmarks", "tests", "docs")


def full_tier(test):
    """Leave a test to the long tier, and give it the time that it takes on a slow machine."""
    return pytest.mark.long(pytest.mark.timeout(900)(test))


def run_tests(copy: Path, tests: tuple[str, ...], *, compiled: bool, cache: Path) -> tuple[int, list[str], str]:
    """Run tests in a copy of the program; return the exit code, the messages of what failed, and what was printed."""
    report = copy / "report.xml"
    settings = {"FEATURE_EMERGENCE_CACHE": str(cache), "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    settings |= {"NUMBA_DISABLE_JIT": "0" if compiled else "1", "NUMBA_CACHE_DIR": str(cache / "numba")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
    ended = subprocess.run(
        command, cwd=copy, env=os.environ | settings, capture_output=True, text=True, timeout=800, check=False
    )
    failures = ElementTree.parse(report).iter("failure") if report.exists() else ()
    return ended.returncode, [str(failure.get("message")) for failure in failures], ended.stdout[-3000:] + ended.stderr


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """What is compiled, shared by all copies: files are named by their content, so that no fault meets another's."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def copy(tmp_path):
    """The program and its tests, free to be changed."""
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / "copy" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / "copy" / name)
    return tmp_path / "copy"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_line_of_the_list_still_stands_where_it_is_said_to(fault):
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.before) == 1
    compile(text.replace(fault.before, fault.after), fault.file, "exec")
    assert all((ROOT / test.split("::")[0]).is_file() for test in fault.tests)


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
@full_tier
def test_without_a_fault_the_same_tests_pass(copy, cache, compiled):
    tests = dict.fromkeys(test for fault in FAULTS if fault.compiled == compiled for test in fault.tests)
    code, failures, printed = run_tests(copy, tuple(tests), compiled=compiled, cache=cache)
    assert (code, failures) == (0, []), printed


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@full_tier
def test_a_planted_fault_is_caught_by_the_tests_of_its_module(copy, cache, fault):
    target = copy / fault.file
    target.write_text(target.read_text(encoding="utf-8").replace(fault.before, fault.after), encoding="utf-8")
    code, failures, printed = run_tests(copy, fault.tests, compiled=fault.compiled, cache=cache)
    assert code == 1, printed
    assert failures, printed
    assert any(kind in failures[0] for kind in CAUGHT), printed
