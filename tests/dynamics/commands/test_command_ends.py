"""Commands whose output cannot be written or whose directory is removed, the list of commands, and the jobs of `compile`."""

import errno
import io
import os
import pkgutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import import_module, metadata
from pathlib import Path

import pytest
from processes import ROOT, SMALL_STUDY, python

import dynamics
import hermite
import sgd_check
from dynamics import __main__ as list_of_commands
from dynamics import compile as command
from dynamics import study
from dynamics.__main__ import COMMANDS, NAMES
from dynamics.commands import parsing
from dynamics.solve import __main__ as solve
from sgd_check import study as sgd_study

DRY = ["--directions", "2", "--width", "3", "--dimension", "16", "--dry-run"]
#: What may stand where stdout was: a full disk, and nothing; why it takes no result.
DEAF = {"full": "No space left on device", "closed": "Bad file descriptor"}


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0]), width=1, dimension=16)
    found = dynamics.predict_emergence(problem, save_at=dynamics.SaveAt.at([1.0, 2.0]))
    return dynamics.save(found, tmp_path_factory.mktemp("ends") / "answer.nc")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(SMALL_STUDY)
    return tmp_path


class Full(io.StringIO):
    """A stream to a full disk."""

    def write(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def deafen(kind, monkeypatch):
    """Return the kind's reason after stdout has been put into that state."""
    monkeypatch.setattr(sys, "stdout", Full() if kind == "full" else None)
    return DEAF[kind]


@pytest.mark.parametrize("kind", DEAF)
@pytest.mark.parametrize(
    ("main", "arguments"),
    [(solve.main, ["--version"]), (solve.main, DRY), (study.main, ["study.toml", "--dry-run"])],
    ids=["version", "solve", "study"],
)
def test_a_result_that_stdout_does_not_take_is_an_error_in_one_sentence(
    main, arguments, kind, here, monkeypatch, capsys
):
    reason = deafen(kind, monkeypatch)
    assert main(arguments) == parsing.EXIT_FAILED
    assert capsys.readouterr().err == f"error: stdout must take the result, but does not ({reason}).\n"


@pytest.mark.parametrize("module", ["dynamics.solve", "dynamics.report", "dynamics.study", "sgd_check.run"])
def test_a_current_directory_that_is_gone_gets_one_sentence(module, tmp_path):
    """A process of its own, which never has the directory: libraries cannot be imported there."""
    (tmp_path / "gone").mkdir()
    code = (
        "import os, runpy, sys; os.rmdir(os.getcwd()); sys.argv = ['x']; "
        f"runpy.run_module({module!r}, run_name='__main__')"
    )
    done = python("-c", code, cwd=tmp_path / "gone")
    assert done.returncode == 2
    need = "The current directory must exist, or --output have its whole path"
    assert done.stderr == f"error: {need}, but does not (No such file or directory).\n"


def test_a_current_directory_that_is_gone_is_left_where_output_has_its_whole_path(tmp_path):
    """Libraries ask for the directory; a name without a path is refused as before, and nothing is written for it."""
    (tmp_path / "gone").mkdir()
    begin = "cd gone; rmdir ../gone; exec {} -m dynamics.solve --k 4 --directions 1 --width 1 --dimension 16 {}"
    relative = (
        "error: Option --csv must name a file that can be written, but 'b.csv' cannot (No such file or directory).\n"
    )
    gone = "error: The current directory must exist, or --output have its whole path, but does not "
    ends = {
        f"--output {tmp_path}/a.nc": (0, ""),
        f"--output {tmp_path}/b.nc --csv b.csv": (2, relative),
        "--output c.nc": (2, f"{gone}(No such file or directory).\n"),
    }
    for arguments, end in ends.items():
        command = begin.format(sys.executable, arguments)
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == end
        (tmp_path / "gone").mkdir()
    assert {path.name for path in tmp_path.iterdir()} == {"gone", "a.nc", "a.png"}


@pytest.mark.parametrize("module", ["dynamics.solve", "dynamics.study"])
def test_too_few_open_files_get_one_sentence(module):
    """With fewer, libraries did not load or workers did not start, and a traceback said so."""
    command = f"ulimit -n 8; exec {sys.executable} -m {module} study.toml"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: The limit of open files (ulimit -n) must be at least 64, but is 8.\n"


def test_an_address_space_too_small_for_the_libraries_gets_one_sentence():
    """With a small `ulimit -v`, importing the libraries aborts the process or never returns."""
    done = subprocess.run(
        ["sh", "-c", f"ulimit -v 500000; exec {sys.executable} -m dynamics.solve --k 4"], capture_output=True,
        encoding="utf-8", check=False, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "error: The limit of a process's address space (ulimit -v) must be at least 950 MiB, which the program's "
        "libraries take, but is 488 MiB.\n"
    )


@pytest.mark.parametrize("module", ["dynamics", *COMMANDS])
def test_every_command_tells_its_version_and_needs_nothing_else(module, capsys):
    package = import_module(module)
    command = import_module(f"{module}.__main__") if hasattr(package, "__path__") else package
    assert command.main(["--version"]) == 0
    version = metadata.version("feature-emergence")
    assert capsys.readouterr().out == f"feature-emergence {version}\n"
    assert {each.__version__ for each in (hermite, dynamics, sgd_check)} == {version}


def test_the_package_lists_its_commands(capsys):
    assert list_of_commands.main([]) == 0
    told = capsys.readouterr().out
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for package in (hermite, dynamics, sgd_check)
        for path in Path(package.__file__).parent.rglob("*.py")
        if "def main(" in path.read_text()
    }
    assert found == {"dynamics", *COMMANDS}
    assert all(f"\n  python -m {name} " in told for name in COMMANDS)


def test_one_console_command_has_all_commands(capsys, monkeypatch):
    assert set(NAMES.values()) == set(COMMANDS)
    entries = metadata.entry_points(group="console_scripts", name="feature-emergence")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["feature-emergence"]
    console = pkgutil.resolve_name(declared)
    assert {entry.value for entry in entries} <= {declared}
    monkeypatch.setattr("hermite.program.TYPED", {})
    monkeypatch.setattr(list_of_commands, "TYPED", {})
    monkeypatch.setattr(sys, "argv", ["feature-emergence"])
    assert console() == 0
    told = capsys.readouterr().out
    assert all(f"\n  feature-emergence {name} " in told for name in NAMES)
    assert list_of_commands.console(["reprot"]) == 2
    assert capsys.readouterr().err.endswith("but is 'reprot'. Did you mean 'report'?\n")


@pytest.mark.parametrize("name", NAMES)
def test_each_command_answers_under_its_short_name_and_loads_nothing_heavy_for_help(name):
    code = (
        "import sys; sys.argv = ['feature-emergence', *sys.argv[1:]]\n"
        "from hermite.console import console\n"
        "try: console()\n"
        "finally: print(sorted({'scipy', 'numba', 'sympy', 'xarray', 'matplotlib', 'torch'} & set(sys.modules)))"
    )
    done = python("-c", code, name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: feature-emergence {name} [")
    assert done.stdout.endswith("\n[]\n")
    wrong = python("-c", code, name, "--no-such-flag")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: ")


RAISING = {
    "raises": ("1 / 0", "division by zero"),
    "exits": ("import sys; sys.exit()", "SystemExit"),
    "asserts": ("assert False", "AssertionError"),
}


@pytest.mark.parametrize("kind", RAISING)
def test_a_module_of_studies_that_ends_while_it_is_imported_is_refused(kind, here, monkeypatch, capsys):
    text, why = RAISING[kind]
    monkeypatch.syspath_prepend(here)
    (here / f"module_that_{kind}.py").write_text(text)
    (here / "study.toml").write_text(SMALL_STUDY.partition("[study]")[0])
    asked = f"module_that_{kind}:study"
    assert study.main(["study.toml", "--study", asked]) == 2
    told = capsys.readouterr().err
    assert told == (
        f"error: Argument `study` must name a function 'module:function' that exists, but is '{asked}' ({why}).\n"
    )


def test_a_problem_that_a_study_cannot_run_is_refused_before_any_work(answer, here, capsys):
    """A width beyond the dimension, which the engine of the study has no room for."""
    found = dynamics.load(answer)
    parameters = found.attrs["parameters"].replace('"width": 1}', '"width": 1000000000}')
    assert parameters != found.attrs["parameters"]
    dynamics.save(found.assign_attrs(parameters=parameters), "wide.nc")
    assert sgd_study.main(["step-size", "--problem", "wide.nc", "--dry-run"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: Argument `engine` must be 'torch' for a dimension below width + teacher axes")
    assert told.count("\n") == 1


def test_jobs_of_methods_come_first_and_a_word_chooses_some(capsys):
    assert command.main(["--list", "finite steps"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert {"finite steps", "classes, finite steps"} < set(listed)
    names = list(command.jobs())
    assert [name.startswith("method") for name in names] == sorted(
        (name.startswith("method") for name in names), reverse=True
    )


def test_a_process_runs_jobs_whose_whole_names_it_is_given(monkeypatch, capsys):
    ran = []
    made = {name: (lambda name=name: ran.append(name)) for name in command.jobs()}
    monkeypatch.setattr(command, "jobs", lambda: made)
    monkeypatch.setattr("sys.stdin", io.StringIO("finite steps\ncorrelation\n"))
    assert command.main(["--here", "-"]) == 0
    assert ran == ["finite steps", "correlation"]
    assert capsys.readouterr().out == "finite steps\ncorrelation\n"


def test_a_process_keeps_to_a_family_and_waits_for_methods():
    waiting = ["method bdf", "network of erf", "network, descent", "committee", "engine scalar"]
    assert command.next_job(waiting, ["method explicit"], "") == "engine scalar"
    assert command.next_job(waiting, ["engine projected"], "method explicit") == "method bdf"
    assert command.next_job(waiting[1:4], ["method bdf"], "engine scalar") is None
    assert command.next_job(waiting[1:], [], "engine projected") == "engine scalar"
    assert command.next_job(waiting[1:4], ["network of relu"], "method bdf") == "committee"
    assert command.next_job(waiting[1:3], ["network of relu"], "committee") == "network of erf"


def test_a_job_that_fails_is_named_with_its_last_line_and_the_others_run():
    assert command.compile_in_processes(["no such job", "predictions"], 1) == {"no such job": "KeyError: 'no such job'"}


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--workers", "0"], "Argument --workers must be at least 1, but is 0."), (["nothing"], "but is nothing.")],
)
def test_wrong_arguments_are_refused(words, message, capsys):
    assert command.main(words) == 2
    assert message in capsys.readouterr().err


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path):
    """A process of its own, since the number of a stream is that of the process."""
    code = "import os; from hermite.program import _fill_streams; _fill_streams(); print(os.open('x', os.O_CREAT))"
    for closed, number in (("2>&-", 3), ("<&- 2>&-", 3), ("", 3)):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", code], cwd=tmp_path, capture_output=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, check=True,
        )  # fmt: skip
        assert int(done.stdout) == number


def test_a_link_to_nothing_is_called_so(here, capsys):
    (here / "run.nc").symlink_to("missing.nc")
    assert solve.main([*DRY[:-1], "--output", "run.nc"]) == 2
    assert capsys.readouterr().err == "error: Option --output must not name a link to nothing, but is 'run.nc'.\n"


def test_overwrite_without_output_replaces_the_file_of_the_same_parameters(here):
    for _ in range(2):
        assert solve.main([*DRY[:-1], "--t-max", "0.1", "--overwrite", "--quiet"]) == 0
    assert sorted(path.suffix for path in here.iterdir()) == [".nc", ".png", ".toml"]


def test_commands_name_options_not_arguments(here, capsys):
    assert solve.main([*DRY[:-1], "--max-runtime", "1e-9", "--no-plot", "--output", "run.nc"]) == 0
    assert "The wall-clock budget ran out; raise --max-runtime or save" in capsys.readouterr().out


def test_directions_that_memory_does_not_hold_are_refused_by_their_number(capsys):
    assert solve.main(["--directions", "1e8"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: Option --directions must leave room in memory, but 100000000 takes"
    )


@pytest.mark.parametrize("package", ["hermite", "dynamics", "sgd_check"])
def test_packages_in_an_archive_are_refused_in_a_sentence(package, tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in ("hermite/__init__.py", "hermite/unpacked.py", "dynamics/__init__.py", "sgd_check/__init__.py"):
            archive.write(ROOT / file, file)
    path = str(tmp_path / "all.zip")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); import {package}"], cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: Package 'hermite' must lie in a folder with all of its"
    )
