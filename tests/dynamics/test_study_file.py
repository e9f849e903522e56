"""`python -m dynamics.study` as a user meets it: the file, the output, exit codes, one sentence for every mistake."""

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
from dynamics.commands.parsing import UsageError
from dynamics.cores import available_cores
from dynamics.sweeps import workers as sweep_workers
from dynamics.sweeps.grid import make_grid
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
    monkeypatch.setattr("dynamics.sweeps.sweep.available_cores", lambda: 0)  # points run in this process
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


def test_json_is_one_object_and_names_the_failures(here, capsys):
    # For odd seeds, and without the file, the points fail.
    (here / "toys.toml").write_text(
        """
        [problem]
        activation = "he4"
        coefficients = [0.8, 0.6]
        width = 2
        dimension = 16
        [grid]
        seed = { range = [0, 25] }
        [study]
        name = "sweep_toys:shapes"
        good = "missing"
        [output]
        path = "found.nc"
        """
    )
    assert study.main(["toys.toml", "--json", "--study", "sweep_toys:shapes"]) == 1
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert summary["points"] == 25
    assert summary["axes"] == {"seed": list(range(25))}
    assert summary["failures"][0] == {"point": "seed=1", "reason": "ValueError: seed 1 is odd"}
    assert summary["variables"]["history"] == ["time", "neuron"]
    assert printed.err.startswith("warning: 12 of 25 points failed, the first at seed=1: ValueError: seed 1 is odd")
    assert study.main(["toys.toml", "--overwrite", "--study", "sweep_toys:shapes"]) == 1
    table = capsys.readouterr().out
    assert "\nseed  0, 1, 2, ..., 24 (25)\n" in table
    assert "failed: seed=1: ValueError: seed 1 is odd" in table
    assert "failed: 2 more; see the variable `failure`" in table


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


def test_interrupted_by_the_user_it_names_the_command_that_goes_on(tmp_path):
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
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment, text=True, stderr=subprocess.PIPE, start_new_session=True
        )

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


def test_workers_are_a_local_cluster_or_processes_without_one(here, monkeypatch, capsys):
    begun = []

    class Cluster:
        def __init__(self, **settings):
            begun.append(settings)

        def __enter__(self):
            from concurrent.futures import ThreadPoolExecutor

            return ThreadPoolExecutor(1)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(sweep_workers, "cluster_executor", Cluster)
    assert study.main(["small.toml", "--workers", "2", "--quiet"]) == 0
    assert study.main(["small.toml", "--scheduler", "tcp://there:1", "--quiet", "--overwrite"]) == 0
    assert begun == [{"scheduler": None, "workers": 2}, {"scheduler": "tcp://there:1", "workers": None}]
    monkeypatch.setattr(sweep_workers, "find_spec", lambda _name: None)
    assert study.main(["small.toml", "--scheduler", "tcp://there:1", "--overwrite"]) == 2
    assert capsys.readouterr().err == (
        "error: Option --scheduler must have dask.distributed, but it is not installed: "
        "pip install 'feature-emergence[cluster]'.\n"
    )
    asked = []
    monkeypatch.setattr("dynamics.sweeps.sweep.sweep", lambda *_, **settings: asked.append(settings) or _stop())
    assert study.main(["small.toml", "--workers", "2", "--overwrite"]) == 1
    assert asked[0]["workers"] == 2
    assert asked[0]["executor"] is None


def _stop():
    sentence = "no more"
    raise RuntimeError(sentence)


def test_what_was_computed_is_named_when_a_run_fails(here, monkeypatch, capsys):
    monkeypatch.setattr("dynamics.sweeps.sweep._write_file", lambda *_: _stop())
    assert study.main(["small.toml", "--quiet"]) == 1
    assert capsys.readouterr().err == (
        "error: File 'small.nc' could not be written: no more.\n"
        "What was computed is kept in small.nc.points. To go on: python -m dynamics.study small.toml --quiet\n"
    )


def test_a_scheduler_that_does_not_answer_is_one_sentence(here, monkeypatch, capsys):
    monkeypatch.setattr(sweep_workers, "CONNECT_SECONDS", 0.2)
    assert study.main(["small.toml", "--scheduler", "tcp://127.0.0.1:1"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: A dask scheduler must listen at 'tcp://127.0.0.1:1', but none answers (")
    assert told.count("\n") == 1


def test_an_interrupt_before_the_run(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "_study", interrupt)
    assert study.main(["small.toml"]) == 130
    assert capsys.readouterr().err == "interrupted before anything was computed\n"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "[problem]",
            "[problems]",
            "must hold the tables [problem], [grid], [study], [output], but has 'problems'. Did you mean 'problem'?",
        ),
        ("[problem]\n", "[problem\n", "Argument FILE must name a TOML file, but 'small.toml' is not ("),
        ("k = 4", "k = 4\nsede = 1", "but is not. Did you mean 'seed'?"),
        ("k = 4", "kk = 4", "Key `kk` of [problem] must be one of activation, width, dimension,"),
        ("k = 4\n", "k = 4\nwidth = 3\n", "Key `width` must be in [problem] or in [grid], but is in both."),
        ("k = 4\n", "", "Table [problem] or [grid] must have `k` or `activation`, but neither does."),
        ("dimension = 16\n", "", "Table [problem] or [grid] must have `dimension`, but neither does."),
        ("width = [2, 4]", "widht = [2, 4]", "must have `width`, but neither does. Did you mean it by 'widht'?"),
        ("width = [2, 4]", "width = { geometrc = [2, 4, 2] }", "{'geometrc': [2, 4, 2]}. Did you mean 'geometric'?"),
        ("{ at = [1.0, 2.0] }", "{ liner = [1.0, 2.0, 3] }", "{'liner': [1.0, 2.0, 3]}. Did you mean 'linear'?"),
        ("num_directions = 3\n", "", "`coefficients` or `num_directions` must be given, but neither is."),
        ("num_directions = 3\n", "coefficients = [1.0]\n", "Key `beta` must be absent when `coefficients` is given"),
        ("dimension = 16", "dimension = 2.5", "does not: Argument `dimension` must be an integer, but is 2.5."),
        ("k = 4", "k = 4\nactivation = 'he3'", "Key `activation` must be absent when `k` is given, but is 'he3'."),
        ("width = [2, 4]", "width = 2", "Key `width` of [grid] must be a list of values, {range = [first, end]}"),
        ("width = [2, 4]", "width = []", "of [grid] must be a list of values"),
        ("width = [2, 4]", "width = { steps = [1, 2] }", "of [grid] must be a list of values"),
        ("width = [2, 4]", "width = { range = [0.5] }", "of [grid] must be a list of values"),
        ("width = [2, 4]", "width = [2, 2]", "Grid key `width` must hold distinct values, but holds [2, 2]."),
        ("width = [2, 4]", "width = [2, 0]", "Point width=0, beta=0.8 of the grid must be a problem, but is none:"),
        ("beta = { linear = [0.8, 1.2, 2] }", "beta = ['a']", "`beta` must be a number, but is 'a'."),
        ("width = [2, 4]\nbeta = { linear = [0.8, 1.2, 2] }", "", "Table [grid] must have at least one key"),
        ('name = "prediction"', "name = 3", "Key `name` of [study] must be text, but is 3."),
        ('name = "prediction"', 'name = "predicton"', "but is 'predicton'. Did you mean 'prediction'?"),
        ("save_at = { at = [1.0, 2.0] }", "save_at = 3", "Key `save_at` must be {geometric = [first, last, count]}"),
        ('"prediction"', '"os:getcwd"', "must be the name of a registered study, but is 'os:getcwd': code that this"),
        ("{ at = [1.0, 2.0] }", "{ at = [2.0, 1.0] }", "Key `save_at` must be a schedule, but is none: "),
        ("save_at =", "save =", "has, but hold `save`."),
        ("[study]", "[output]\nfolder = 'x'\n[study]", "Key `folder` of [output] must be `path`, but is not."),
        ("[study]", "[output]\npath = 3\n[study]", "Key `path` of [output] must be text, but is 3."),
    ],
)
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
        (
            ["small.toml", "--study", "os:sep"],
            "Option --study must be the `name` of [study], 'prediction', but is 'os:sep'.",
        ),
        (["small.toml", "--json", "--quiet"], "Options --json and --quiet must not be given together, but are."),
        (["small.toml", "--output", "no/where.nc"], "must lie in an existing directory, but is 'no/where.nc'."),
    ],
)
def test_mistakes_in_the_command(here, capsys, arguments, sentence):
    assert study.main(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_a_file_that_is_no_text(here):
    Path("small.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="must name a TOML file"):
        read_study_file("small.toml")


def test_the_example_of_the_page_runs(here):
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
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


def test_points_on_tokens_wait_for_the_same_command(here, monkeypatch, capsys):
    text = TOKENS.replace('["gradient", "spectral"]', '["spectral"]').replace('["-", 0.5]', "[0.5, 1.0]")
    (here / "memory.toml").write_text(text)
    from dynamics.sweeps import sweep

    asked, whole = [], sweep.run_points

    def interrupted(missing, *rest, **options):
        asked.append(list(missing))
        if len(asked) == 1:
            whole(missing[:1], *rest, **options)
            raise KeyboardInterrupt
        whole(missing, *rest, **options)

    monkeypatch.setattr(sweep, "run_points", interrupted)
    assert study.main(["memory.toml"]) == 130
    assert "1 of 2 points are kept in memory.nc.points" in capsys.readouterr().err
    assert study.main(["memory.toml", "--quiet"]) == 0
    assert [len(each) for each in asked] == [2, 1]
    assert np.isfinite(dynamics.load("memory.nc").learned_time).all()


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ('kind = "composition"\nvocabulary = 4', "hops = [2, 4]"),
        ('kind = "composition"\nhops = 2', "vocabulary = { geometric = [4, 9, 3] }"),
        ('kind = "causal-graph"\nvocabulary = 3\nsecond_layer = "softmax"', "beta = [0.1, 0.2]"),
        ('kind = "memory"\nfrequency_exponent = 1.5\ngroup_sizes = [2, 4]', 'smoothing = ["-", 0.1]'),
    ],
    ids=["hops", "vocabulary", "beta", "smoothing"],
)
def test_axes_of_problems_on_tokens(here, text, grid):
    text += '\nparents = ["-", 0, 1]' if "causal" in text else ""
    (here / "tokens.toml").write_text(f"[problem]\n{text}\n[grid]\n{grid}\n")
    asked = read_study_file("tokens.toml")
    points = list(make_grid(asked.problem, asked.grid, asked.study, asked.options))
    (name,) = asked.grid
    assert [getattr(point.problem, name) for point in points] == asked.grid[name]
    if name == "vocabulary":
        assert asked.grid[name] == [4, 6, 9]
    if name == "smoothing":
        assert [point.problem.optimizer for point in points] == ["gradient", "spectral"]
    assert asked.study == "tokens"


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
