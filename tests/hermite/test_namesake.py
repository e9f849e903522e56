"""A `dynamics` of other authors in the place of ours, of which `hermite`, `sgd_check` and the command tell."""

import os
import shutil
import sys
import types

import pytest
from processes import ROOT, python

from hermite.unpacked import MARK, namesake_of

SENTENCE = "Package `dynamics` must be that of feature-emergence, but Python finds another one in {!r}; rename that one, or run `pip uninstall dynamics`"
COMMAND = "import sys; from hermite.console import console; sys.exit(console())"


@pytest.fixture(params=["a file before ours", "a package before ours", "its files over ours"])
def foreign(request, tmp_path):
    """The module path on which another `dynamics` lies, and its file, which must not run."""
    if request.param == "a file before ours":
        path, file = f"{tmp_path}{os.pathsep}{ROOT}", tmp_path / "dynamics.py"
    elif request.param == "a package before ours":
        path, file = f"{tmp_path}{os.pathsep}{ROOT}", tmp_path / "dynamics" / "__init__.py"
    else:
        for package in ("hermite", "dynamics", "sgd_check"):
            shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
        path, file = str(tmp_path), tmp_path / "dynamics" / "__init__.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text("raise SystemExit('the other package ran')\n", encoding="utf-8")
    return path, str(file)


def run(code, path, cwd):
    return python("-P", "-c", code, cwd=cwd, PYTHONPATH=path)


def test_hermite_works_and_warns(foreign, tmp_path):
    path, file = foreign
    done = run("import hermite; print(hermite.expand('he4').information_exponent)", path, tmp_path)
    assert (done.returncode, done.stdout) == (0, "4\n")
    assert f"<string>:1: RuntimeWarning: {SENTENCE.format(file)}" in done.stderr


def test_sgd_check_refuses_to_be_imported(foreign, tmp_path):
    path, file = foreign
    done = run("import sgd_check", path, tmp_path)
    assert done.returncode == 1
    assert f"ImportError: {SENTENCE.format(file)}" in done.stderr


def test_the_command_ends_with_the_code_of_a_mistake(foreign, tmp_path):
    path, file = foreign
    done = run(COMMAND, path, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {SENTENCE.format(file)}" in done.stderr


def test_our_own_packages_are_ours_and_say_nothing(tmp_path):
    done = run("import hermite, sgd_check, dynamics", str(ROOT), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for package in ("hermite", "dynamics", "sgd_check"):
        assert MARK in (ROOT / package / "__init__.py").read_text(encoding="utf-8")
        assert namesake_of(package) == ""


def test_a_package_that_is_absent_or_without_a_file_is_no_namesake(monkeypatch):
    monkeypatch.setitem(sys.modules, "dynamics", types.ModuleType("dynamics"))
    assert namesake_of("dynamics") == namesake_of("no_such_package_at_all") == ""
