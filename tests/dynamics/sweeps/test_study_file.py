"""`python -m dynamics.study` as a user meets it: the file, the output, exit codes, one sentence for every mistake."""

import contextlib
import doctest
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import sweep_toys

import dynamics
from dynamics import Problem, SaveAt, Teacher, study
from dynamics.cores import available_cores
from dynamics.sweeps import workers as sweep_workers
from dynamics.sweeps.points import answered_points
from dynamics.sweeps.study_file import read_study_file

SMALL = """
[problem]
k = 4
num_directions = 3
dimension = 16

[grid]
width = [2, 4]
beta = { linear = [0.8, 1.2, 2] }

[study]
name = "prediction"
save_at = { at = [1.0, 2.0] }
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dynamics.sweeps.workers.available_cores", lambda: 0)  # points run in this process
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def test_a_file_is_the_call_of_sweep(here, capsys):
    assert study.main(["small.toml"]) == 0
    printed = capsys.readouterr()
    assert "4 of 4 points were answered." in printed.out
    assert "each over width, beta: " in printed.out
    assert "loss(time)" in printed.out
    assert printed.err == ""
    stored = dynamics.load("small.nc")
    for width in (2, 4):
        for beta in (0.8, 1.2):
            problem = Problem(activation="he4", teacher=Teacher.power_law(3, beta), width=width, dimension=16)
            alone = dynamics.predict_emergence(problem, save_at=SaveAt.at([1.0, 2.0]))
            np.testing.assert_array_equal(stored.loss.sel(width=width, beta=beta), alone.loss)
    assert sorted(path.name for path in here.iterdir()) == ["small.nc", "small.toml"]
    assert study.main(["small.toml"]) == 2
    assert "must not name an existing file" in capsys.readouterr().err
    assert study.main(["small.toml", "--overwrite", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_dry_run_refuses_a_target_that_cannot_be_written(here, capsys):
    assert study.main(["small.toml", "--dry-run", "--output", "none/small.nc"]) == 2
    assert (
        capsys.readouterr().err == "error: Option --output must lie in an existing directory, but is 'none/small.nc'.\n"
    )


def test_dry_run_counts_points_and_runs_nothing(here, capsys):
    assert study.main(["small.toml", "--dry-run"]) == 0
    assert capsys.readouterr().out == (
        "points: 4 (2 width x 2 beta)\nmemory and time of a point of the study 'prediction': no estimate\n"
    )
    (here / "flow.toml").write_text(SMALL.replace("prediction", "overlaps"))
    assert study.main(["flow.toml", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "largest point: width=4, beta=0.8; each worker holds one point at a time\nmemory: " in printed
    assert "history 2 times" in printed
    assert sorted(path.name for path in here.iterdir()) == ["flow.toml", "small.toml"]


def test_schedules_and_lists_of_the_grid(here):
    (here / "grid.toml").write_text(
        """
        [grid]
        k = [3, 4]
        width = { geometric = [4, 32, 4] }
        dimension = [16]
        num_directions = [2]
        initial_norm = { geometric = [0.01, 0.1, 2] }
        save_at = [{ at = [1.0] }, { linear = [0.0, 1.0, 3] }, { geometric = [1.0, 4.0, 3] }]
        """
    )
    asked = read_study_file("grid.toml")
    assert asked.study == "overlaps"
    assert asked.output == Path("grid.nc")
    assert asked.grid["width"] == [4, 8, 16, 32]
    assert asked.grid["initial_norm"] == pytest.approx([0.01, 0.1])
    assert [len(schedule) for schedule in asked.grid["save_at"]] == [1, 3, 3]
    assert asked.problem == Problem(
        activation="he3", teacher=Teacher.power_law(2, 1.0), width=4, dimension=16, initial_norm=0.01
    )


SLOW = """
[problem]
k = 4
num_directions = 4
dimension = 16
[grid]
width = [4, 8]
seed = { range = [0, SEEDS] }
[study]
name = "sweep_toys:counted"
folder = "calls"
gate = "gate"
"""


@pytest.mark.thorough
def test_interrupted_by_the_user_it_names_the_command_that_goes_on(tmp_path, request):
    workers = available_cores()
    seeds = 1 + workers  # all but the first wait at the gate, one in each worker
    (tmp_path / "slow.toml").write_text(SLOW.replace("SEEDS", str(seeds)))
    calls = tmp_path / "calls"
    calls.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    flags = ["--study", "sweep_toys:counted", "--no-progress", "--output", "a b.nc"]
    command = [sys.executable, "-m", "dynamics.study", "slow.toml", *flags]

    def start():
        # A session of its own, so that Ctrl-C reaches the command and its workers alone.
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, text=True, stderr=subprocess.PIPE, start_new_session=True
        )

        def end():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

        request.addfinalizer(end)
        return process

    first = start()
    points, deadline = tmp_path / "a b.nc.points", time.monotonic() + 60.0
    # The signal goes to the workers too. One that is starting writes a traceback, so all of them must be at work.
    while not answered_points(points) or len(sweep_toys.processes(calls)) < workers:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGINT)
    _, told = first.communicate(timeout=60)
    assert first.returncode == 130
    done = len(answered_points(points))
    assert told == (
        f"Interrupted; {done} of {2 * seeds} points are kept in a b.nc.points. To go on:\n"
        "python -m dynamics.study slow.toml --study sweep_toys:counted --no-progress --output 'a b.nc'\n"
    )
    assert shlex.split(told.splitlines()[1])[1:] == command[1:]
    before = sum(sweep_toys.calls(calls).values())
    (tmp_path / "gate").touch()
    second = start()
    _, told = second.communicate(timeout=60)
    assert (second.returncode, told) == (0, "")
    assert sum(sweep_toys.calls(calls).values()) - before == 2 * seeds - done
    base = Problem(activation="he4", teacher=Teacher.power_law(4, 1.0), width=4, dimension=16)
    options = {"save_at": SaveAt.at([1.0, 2.0])}
    grid = {"width": [4, 8], "seed": range(seeds)}
    whole = dynamics.sweep(base, grid, study="prediction", options=options, workers=0)
    stored = dynamics.load(tmp_path / "a b.nc")
    for name in ("loss", "emergence_time", "predicted_learned_time"):
        np.testing.assert_array_equal(stored[name], whole[name])


def test_a_scheduler_that_does_not_answer_is_one_sentence(here, monkeypatch, capsys):
    monkeypatch.setattr(sweep_workers, "CONNECT_SECONDS", 0.2)
    assert study.main(["small.toml", "--scheduler", "tcp://127.0.0.1:1"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: A dask scheduler must listen at 'tcp://127.0.0.1:1', but none answers (")
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[problem]", "output = 'sweep.nc'\n[problem]", "must hold 'output' as the table [output], but has 'sweep.nc'."),
        ("[problem]", "[problems]", "must hold the tables [problem], [grid], [study], [output], but has 'problems'. Did you mean 'problem'?"),
        ("[problem]\n", "[problem\n", "Argument FILE must name a TOML file, but 'small.toml' is not ("),
        ("k = 4", "k = 4\nsede = 1", "but is not. Did you mean 'seed'?"),
        ("k = 4\n", "k = 4\nwidth = 3\n", "Key `width` must be in [problem] or in [grid], but is in both."),
        ("k = 4\n", "", "Table [problem] or [grid] must have `k` or `activation`, but neither does."),
        ("dimension = 16\n", "", "Table [problem] or [grid] must have `dimension`, but neither does."),
        ("width = [2, 4]", "widht = [2, 4]", "must have `width`, but neither does. Did you mean it by 'widht'?"),
        ("width = [2, 4]", "m = [2, 4]", "must have `width`, but neither does. Did you mean it by 'm'?"),
        ("width = [2, 4]", "width = { geometrc = [2, 4, 2] }", "{'geometrc': [2, 4, 2]}. Did you mean 'geometric'?"),
        ("num_directions = 3\n", "", "`coefficients` or `num_directions` must be given, but neither is."),
        ("num_directions = 3\n", "coefficients = [1.0]\n", "Key `beta` must be absent when `coefficients` is given"),
        ("dimension = 16", "dimension = 2.5", "does not: Argument `dimension` must be an integer, but is 2.5."),
        ("k = 4", "k = 4\nactivation = 'he3'", "Key `activation` must be absent when `k` is given, but is 'he3'."),
        ("width = [2, 4]", "width = 2", "Key `width` of [grid] must be a list of values, {range = [first, end]}"),
        ("width = [2, 4]", "width = [2, 2]", "Grid key `width` must hold distinct values, but holds [2, 2]."),
        ("beta = { linear = [0.8, 1.2, 2] }", "beta = ['a']", "`beta` must be a number, but is 'a'."),
        ("width = [2, 4]\nbeta = { linear = [0.8, 1.2, 2] }", "", "Table [grid] must have at least one key"),
        ('name = "prediction"', "name = 3", "Key `name` of [study] must be text, but is 3."),
        ('name = "prediction"', 'name = "predicton"', "but is 'predicton'. Did you mean 'prediction'?"),
        ("save_at = { at = [1.0, 2.0] }", "save_at = 3", "Key `save_at` must be {geometric = [first, last, count]}"),
        ('"prediction"', '"os:getcwd"', "must be the name of a registered study, but is 'os:getcwd': code that this"),
        ("{ at = [1.0, 2.0] }", "{ at = [2.0, 1.0] }", "Key `save_at` must be a schedule, but is none: "),
        ("[study]", "[output]\npath = 3\n[study]", "Key `path` of [output] must be text, but is 3."),
    ],
)  # fmt: skip
def test_mistakes_in_the_file_name_the_key(here, capsys, old, new, sentence):
    assert old in SMALL
    (here / "small.toml").write_text(SMALL.replace(old, new))
    assert study.main(["small.toml"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert sentence in told.err
    assert told.err.count("\n") == 1
    assert [path.name for path in here.iterdir()] == ["small.toml"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "the following arguments are required: FILE"),
        (["none.toml"], "Argument FILE must name a readable file, but 'none.toml' is not (No such file or directory)."),
        (["small.toml", "--workers", "0"], "Option --workers must be at least 1, but is 0."),
        (["small.toml", "--workers", "2", "--scheduler", "x"], "Options --workers and --scheduler must not be given"),
        (["small.toml", "--study", "os:sep"], "Option --study must be the `name` of [study], 'prediction', but is 'os:sep'."),
        (["small.toml", "--json", "--quiet"], "Options --json and --quiet must not be given together, but are."),
        (["small.toml", "--output", "no/where.nc"], "must lie in an existing directory, but is 'no/where.nc'."),
    ],
)  # fmt: skip
def test_mistakes_in_the_command(here, capsys, arguments, sentence):
    assert study.main(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_the_example_of_the_page_runs(here):
    page = (Path(__file__).parents[3] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (here / "widths.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    assert study.main(["widths.toml", "--quiet"]) == 0
    example = doctest.DocTestParser().get_doctest(page, {}, "sweeps.md", None, None)
    assert len(example.examples) == 5
    assert doctest.DocTestRunner().run(example).failed == 0


TOKENS = """
[problem]
kind = "memory"
group_sizes = [1, 3]
frequency_exponent = 1.5
smoothing = 0.01

[grid]
optimizer = ["gradient", "spectral"]
learning_rate = ["-", 0.5]

[study]
save_at = { linear = [0.0, 40.0, 5] }
"""


@pytest.mark.kernels
def test_a_file_asks_about_problems_on_tokens(here, capsys):
    (here / "memory.toml").write_text(TOKENS)
    assert study.main(["memory.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["study"] == "tokens"
    stored = dynamics.load("memory.nc")
    assert stored.learned_time.dims == ("optimizer", "learning_rate", "component")
    memory = {"group_sizes": [1, 3], "frequency_exponent": 1.5}
    muon = dynamics.tokens.AssociativeMemory(**memory, optimizer="spectral", smoothing=0.01)
    for at, problem in enumerate((dynamics.tokens.AssociativeMemory(**memory), muon)):
        for number, rate in enumerate((None, 0.5)):
            alone = dynamics.tokens.solve(problem, SaveAt.linear(0.0, 40.0, 5), rate, progress=False)
            np.testing.assert_array_equal(stored.learned_time[at, number], alone.learned_time)
            np.testing.assert_array_equal(stored.loss[at, number], alone.loss)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"memory"', '"x"', "Key `kind` of [problem] must be one of 'composition', 'recall', "),
        ("group_sizes", "sizes", "Key `sizes` of [problem] must be one of kind, group_sizes, "),
        ("[1, 3]", "[1]", "Table [problem] must describe a problem, but does not: Argument `group_sizes` must hold 1"),
        ("smoothing = 0.01", "k = 4", "Key `k` of [problem] must be one of kind, "),
    ],
)
def test_mistakes_of_problems_on_tokens_name_the_key(here, capsys, old, new, sentence):
    (here / "memory.toml").write_text(TOKENS.replace(old, new))
    assert study.main(["memory.toml"]) == 2
    assert sentence in capsys.readouterr().err
