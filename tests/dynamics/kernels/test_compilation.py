"""What is said while functions are compiled, and the seconds of that, which are told apart from those of a run."""

import io
import os
import re
import subprocess
import sys
import time

import numba
import pytest
from numba.core.event import Event, EventStatus

import dynamics
from dynamics.kernels.compilation import Compilation, is_compiled, listening, note_compiled
from dynamics.kernels.compile_time import compiled_seconds
from dynamics.runs.compiling import EXPECTED, CompilationNotice, Expected, noticed_compilation
from dynamics.runs.trackers import SecondsLeft

LINE = "Compiling for this processor, once"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def fresh_function():
    """Return a compiled function that calls another, neither of which has been compiled."""
    inner = numba.njit(lambda x: 2 * x)
    return numba.njit(lambda x: inner(x) + 1)


def pair():
    return dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0]), width=1, dimension=16)


def test_functions_that_are_compiled_are_counted_and_timed():
    function, compilation = fresh_function(), Compilation()
    with listening(compilation):
        function(1)
        first = compilation.functions, compilation.seconds
        function(2)
    assert first[0] == 2
    assert 0.0 < first[1] == compilation.seconds
    assert compilation.functions == 2, "a function that is compiled already does not count"
    fresh_function()(1)
    assert compilation.functions == 2, "it listens in the body alone"
    assert compiled_seconds() == 0.0


@pytest.mark.parametrize("progress", [True, None])
def test_one_line_and_a_bar_of_functions_are_shown(progress, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with noticed_compilation(progress, Expected(2, 12.4)), noticed_compilation(progress):
        fresh_function()(1)
        fresh_function()(1)
    text = terminal.getvalue()
    assert text.count(f"{LINE} (about 12 s); `feature-emergence compile` does all of it") == 1
    assert "compiling: " in text
    assert "4/4" in text, "a bar that has reached the expected number goes on"


def test_the_bar_of_functions_keeps_its_clock_and_tells_the_seconds_that_are_left(monkeypatch):
    """It closes between two functions of Python, and opens again."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    notice = CompilationNotice(True, Expected(4, 40.0), says=False)
    with listening(notice):
        for _ in range(2):
            fresh_function()(1)
            notice._before += 30.0
    lines = re.findall(r"compiling: .*?\| (\d+)/4 functions \[(\d\d:\d\d)<(\d\d:\d\d)\]", terminal.getvalue())
    assert lines[0] == ("0", "00:00", "00:40"), "all four functions, at the pace that is expected"
    of_second = [line for line in lines if line[0] == "2" and line[1] >= "00:30"]
    assert of_second, "the clock goes on"
    assert {left for _, _, left in of_second} <= {"00:23", "00:24"}, "2 (30 + 40)/(2 + 4) s"
    assert notice.seconds_left() == 0.0


def test_nothing_is_said_without_progress_or_compilation(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with noticed_compilation(False):
        fresh_function()(1)
    with noticed_compilation(True, says=True):
        pass
    assert terminal.getvalue() == ""


def test_a_command_says_the_line_where_no_bar_is_shown(capsys):
    with noticed_compilation(False, says=True):
        fresh_function()(1)
        fresh_function()(1)
    assert capsys.readouterr().err == f"{LINE}; `feature-emergence compile` does all of it\n"


def test_a_compilation_that_began_before_is_no_fault():
    notice = CompilationNotice(False, None, says=False)
    notice.on_end(Event("numba:run_pass", EventStatus.END, data={"name": "nopython_backend [f]"}))
    assert (notice.functions, notice.is_running) == (1, False)


def test_functions_of_one_signature_are_counted_and_timed():
    """Units and arguments of methods are compiled by `numba.cfunc`, which tells of passes alone."""
    signature, compilation = numba.float64(numba.float64), Compilation()
    with listening(compilation):
        numba.cfunc(signature)(lambda x: 2.0 * x)
    assert compilation.functions == 1
    assert compilation.seconds > 0.0


def test_seconds_of_compiling_are_no_seconds_of_the_run():
    function, compilation, began = fresh_function(), Compilation(), time.perf_counter()
    compiles = dynamics.Callback(lambda _time, _state: function(1) < 0)
    with listening(compilation):
        flow = dynamics.solve_overlaps(pair(), trackers=[compiles], progress=False)
    whole = time.perf_counter() - began
    assert compilation.seconds > 0.0
    assert flow.attrs["compile_seconds"] == pytest.approx(compilation.seconds, abs=0.05)
    assert flow.attrs["solve_seconds"] + flow.attrs["compile_seconds"] <= whole


def test_the_time_left_is_not_told_where_it_would_be_far_beyond_what_was_measured():
    left = SecondsLeft(0.0)
    assert left.after(1e-6, 10.0, 1e3) is None, "ten seconds for the first of thirty octaves"
    assert left.after(500.0, 20.0, 1e3) == pytest.approx(10.0, rel=0.5)


def test_a_question_is_compiled_once_a_run_of_its_kind_has_ended(tmp_path, monkeypatch):
    question = f"question {tmp_path}"
    assert not is_compiled(question)
    note_compiled(question)
    assert is_compiled(question)
    from dynamics.kernels import compilation

    monkeypatch.setattr(compilation, "_code_state", lambda: "other sources")
    assert not is_compiled(question)


@pytest.mark.thorough
def test_a_cold_command_says_that_it_compiles_and_a_warm_one_does_not(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    given = ["--directions", "2", "--width", "2", "--dimension", "16", "--output", "a.nc", "--overwrite"]

    def solve(*more):
        command = [sys.executable, "-m", "dynamics.solve", *given, "--no-plot", *more]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)

    cold = solve("--dry-run")
    assert "compilation: about " in cold.stdout
    assert LINE not in cold.stderr
    first, second = solve(), solve()
    assert first.stderr.startswith(f"{LINE} (about ")
    assert LINE not in second.stderr
    assert "s of compiling" not in second.stdout


def test_quiet_commands_and_their_values(capsys):
    from dynamics.commands import parsing

    with parsing.noticed_compilation({"quiet": True, "no_progress": False}, "overlaps"):
        fresh_function()(1)
    assert capsys.readouterr().err == ""
    with parsing.noticed_compilation({"quiet": False, "no_progress": True}, "overlaps"):
        fresh_function()(1)
    assert capsys.readouterr().err.startswith(f"{LINE} (about {EXPECTED['overlaps'].seconds} s)")


@pytest.mark.thorough
def test_a_cold_study_says_that_it_compiles_and_tells_the_seconds_apart(tmp_path):
    (tmp_path / "study.toml").write_text(
        '[problem]\nk = 4\nnum_directions = 2\nwidth = 2\ndimension = 16\n[grid]\nseed = [0, 1]\n[study]\nname = "overlaps"\n'
        '[output]\npath = "a.nc"\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "dynamics.study", "study.toml", "--workers", "1"]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.startswith(LINE)
    told = re.search(r"time: ([\d.]+) s, after ([\d.]+) s of compiling", done.stdout)
    assert told is not None
    assert float(told[2]) > 1.0


@pytest.mark.parametrize("options", [[], ["--objective", "logistic", "--labels", "sign"]])
def test_a_dry_run_compiles_nothing(options, tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "dynamics.solve", *options, "--dry-run"]
    subprocess.run(command, env=environment, check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)
    assert not list(tmp_path.rglob("*.nbi"))
