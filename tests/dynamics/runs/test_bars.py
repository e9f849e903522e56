"""Progress bars: what they count, the time that they say is left, and how they are turned off."""

import io
import math
import re
from importlib import import_module

import pytest
from processes import python

import dynamics
import sgd_check
from dynamics.__main__ import COMMANDS
from dynamics.runs import trackers
from dynamics.runs.trackers import Progress, SecondsLeft
from hermite.program import say


class Terminal(io.StringIO):
    def isatty(self):
        return True


def at_terminal(monkeypatch):
    """Put a terminal that keeps its text at the place of stderr, in the test itself: each phase of a test has its own stderr."""
    made = Terminal()
    monkeypatch.setattr("sys.stderr", made)
    return made


def tanh_problem(width=3):
    return dynamics.Problem(activation="tanh", teacher=dynamics.Teacher([1.0]), width=width, dimension=8, seed=1)


COSTS = {
    "even in time": lambda t, end: 100.0 * t / end,
    "even in log time": lambda t, end: 7.0 * math.log1p(1e6 * t / end),
    "even in its root": lambda t, end: 100.0 * math.sqrt(t / end),
}


@pytest.mark.thorough
@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("begin", [0.0, 1e-3])
@pytest.mark.parametrize("steps", [40, 4000])
def test_the_time_left_is_right_within_a_factor_of_two(cost, begin, steps):
    """From a hundredth of the time on; the run is looked at at even costs, as it is every tenth of a second."""
    end, whole = 50.0, cost(50.0, 50.0)
    first = begin * end
    left, spent = SecondsLeft(first), cost(first, end)
    times = [first + (end - first) * (n / 100_000) ** 3 for n in range(1, 100_001)]
    due = iter([spent + (whole - spent) * n / steps for n in range(1, steps)])
    looked, told = next(due), 0
    for t in times:
        if cost(t, end) < looked:
            continue
        while looked is not None and cost(t, end) >= looked:
            looked = next(due, None)
        found, true = left.after(t, cost(t, end) - spent, end), whole - cost(t, end)
        if found is None and true > 0.5 * trackers.FURTHEST * (cost(t, end) - spent):
            continue  # too far away to be told
        if t > max(0.01 * end, 4.0 * first) and true > 0.02 * whole:
            assert 0.5 * true < found < 2.0 * true
            told += 1
        if looked is None:
            break
    assert told >= 0.25 * steps


def test_the_time_left_of_a_run_that_stands_still_is_not_told():
    left = SecondsLeft(0.0)
    assert left.after(0.0, 1.0, 5.0) is None
    assert left.after(5.0, 2.0, 5.0) == 0.0


def test_the_bar_of_a_flow_has_no_stray_comma(monkeypatch):
    terminal = at_terminal(monkeypatch)
    monkeypatch.setattr(trackers, "CHUNK_SECONDS", 1e-9)
    dynamics.solve_overlaps(tanh_problem(), save_at=dynamics.SaveAt.at([4.0]), progress=None)
    assert re.search(r"\| t = [\d.e+-]+, \d+ steps \[\d\d:\d\d<(\?|\d\d:\d\d)\]", terminal.getvalue())
    assert "| ," not in terminal.getvalue()


def test_a_bar_below_another_one_leaves_the_cursor_at_the_begin_of_a_line(monkeypatch):
    terminal = at_terminal(monkeypatch)
    above = trackers.open_bar(trackers.bar_settings(True), total=1)
    below = trackers.open_bar(trackers.bar_settings(True), total=1)
    above.close()
    below.close()
    assert terminal.getvalue().endswith("\r")


def test_a_run_that_has_ended_shows_the_runs_that_estimate_its_error(monkeypatch):
    terminal = at_terminal(monkeypatch)
    bar = Progress()
    bar.open(0.0, 2.0)
    bar.finish()
    for time in (0.5, 1.0):
        bar.show_other("error estimate", time, 2.0)
    bar.show_other("truncation", 0.1, 2.0)
    bar.finish()
    assert terminal.getvalue().count("error estimate: ") >= 1
    assert "truncation: " in terminal.getvalue()


@pytest.mark.thorough
def test_every_part_of_a_check_has_a_bar_with_its_name(monkeypatch):
    terminal = at_terminal(monkeypatch)
    sgd_check.check(tanh_problem(1), learning_rate=0.02, steps=400, seeds=8, theory="flow")
    named = re.findall(r"([a-z][a-z ]*):\s+\d+%", terminal.getvalue())
    assert list(dict.fromkeys(named)) == ["flow", "runs"]
    counted = [(int(done), int(total)) for done, total in re.findall(r"(\d+)/(\d+) \[", terminal.getvalue())]
    assert {total for _, total in counted} == {1200}, "400 steps, and 800 of half the learning rate"
    assert max(done for done, _ in counted) == 1200
    assert min(done for done, _ in counted) == 0


@pytest.mark.thorough
def test_pilot_runs_have_bars(monkeypatch):
    terminal = at_terminal(monkeypatch)
    problem = dynamics.Problem(activation="tanh", teacher=dynamics.Teacher([1.0]), width=1, dimension=4, seed=1)
    flow = dynamics.solve_problem(problem, progress=False)
    from sgd_check.engines import EngineOptions
    from sgd_check.verdicts.check import plan_check

    options = EngineOptions(seeds=tuple(range(4)))
    choice = {"learning_rate": None, "steps": None, "false_alarm_rate": 0.01, "theory": "flow"}
    plan_check(flow, "projected", options, directions=None, progress=None, **choice)
    assert "pilot runs at " in terminal.getvalue()


@pytest.mark.parametrize("columns", [0, 50])
def test_a_terminal_that_says_it_has_no_columns_gets_a_bar(columns, monkeypatch):
    at_terminal(monkeypatch)
    import os

    monkeypatch.setattr(trackers.sys.stderr, "fileno", lambda: 2, raising=False)
    monkeypatch.setattr(trackers.os, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))
    assert trackers.bar_settings(None)["ncols"] == (None if columns else trackers.USUAL_COLUMNS)


@pytest.mark.parametrize("module", [name for name in COMMANDS if name not in ("dynamics.report", "hermite.exponents")])
def test_every_command_that_computes_turns_its_bar_off(module, capsys):
    package = import_module(module)
    main = (import_module(f"{module}.__main__") if hasattr(package, "__path__") else package).main
    studies = {"dynamics.laws": "scaling", "sgd_check.study": "sample-complexity", "dynamics.tokens": "recall",
               "dynamics.mean_field_study": "propagation-of-chaos"}  # fmt: skip
    with pytest.raises(SystemExit):
        main([*([studies[module]] if module in studies else []), "--help"])
    assert "--no-progress" in capsys.readouterr().out


class Written:
    """A stream that keeps what is written and can do nothing else."""

    def __init__(self):
        self.lines = []

    def write(self, text):
        self.lines.append(text)
        return len(text)


CLOSED = io.StringIO()
CLOSED.close()


@pytest.mark.parametrize("kind", [Written, object, lambda: None, lambda: CLOSED])
@pytest.mark.parametrize("progress", [None, True, False])
def test_any_stream_may_stand_at_the_place_of_stderr(kind, progress, monkeypatch):
    stream = kind()
    monkeypatch.setattr("sys.stderr", stream)
    settings = trackers.bar_settings(progress)
    with trackers.open_bar(settings, total=2, unit="job") as bar:
        bar.update()
        bar.set_postfix_str("one")
    said = "".join(stream.lines) if isinstance(stream, Written) else ""
    assert ("1/2" in said) == (isinstance(stream, Written) and progress is True)
    say("a sentence")
    assert not isinstance(stream, Written) or stream.lines.pop() == "a sentence\n"


BARS = """
import sys, warnings
from dynamics.runs.trackers import bar_settings, open_bar

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for progress in (False, True, True):
        with open_bar(bar_settings(progress), total=2, unit="job") as bar:
            bar.update()
print(*[entry.message for entry in caught], sep="\\n")
"""


@pytest.mark.parametrize(
    "variable",
    ["NCOLS=wide", "MININTERVAL=often", "BAR_FORMAT={nonsense}", "BAR_FORMAT={", "ASCII=1", "GUI=1", "WRITE_BYTES=1"],
)
def test_variables_that_tqdm_does_not_take_are_said_once(variable):
    name, _, value = variable.partition("=")
    done = python("-c", BARS, **{f"TQDM_{name}": value})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        f"No progress bar is shown, since tqdm does not take TQDM_{name} of the environment: "
    )
    assert done.stdout.count("\n") == 1


def test_the_variable_of_tqdm_for_no_bar_is_kept(monkeypatch):
    at_terminal(monkeypatch)
    assert not trackers.bar_settings(None)["disable"]
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert trackers.bar_settings(None)["disable"]
    assert not trackers.bar_settings(True)["disable"]
