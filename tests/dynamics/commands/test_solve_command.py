"""`python -m dynamics.solve` as a user meets it: output, files, exit codes, and one sentence for every mistake."""

import json
import tracemalloc

import pytest
from processes import python

import dynamics
from dynamics.solve import __main__ as solve
from dynamics.solve.dispatch import estimate

SMALL = ["--directions", "4", "--width", "12", "--dimension", "32", "--no-progress"]


def run(*arguments, cwd=None):
    return python("-m", "dynamics.solve", *arguments, cwd=cwd)


def test_main_command_in_a_subprocess_writes_table_dataset_and_figure(tmp_path):
    done = run("--k", "4", "--beta", "1.0", *SMALL, "--output", "run.nc", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "learned: 4 of 4 directions" in done.stdout
    assert "asymptotic -1.000" in done.stdout
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run.nc", "run.png"]
    stored = dynamics.load(tmp_path / "run.nc")
    assert "dynamics" in stored.attrs["history"]
    again = run("--k", "4", *SMALL, "--output", "run.nc", cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr == (
        "error: Option --output must not name an existing file (allow it with overwrite), but is 'run.nc'.\n"
    )


@pytest.mark.parametrize(("command", "words"), [("solve", "examples:"), ("study", "a study file:")])
def test_help_loads_nothing_beyond_the_standard_library_and_shows_examples(command, words):
    """That is why it takes 150 ms: nothing in it computes."""
    script = f"""
import runpy, sys
before = set(sys.modules)
sys.argv = ["dynamics.{command}", "--help"]
try:
    runpy.run_module("dynamics.{command}", run_name="__main__", alter_sys=True)
except SystemExit as ended:
    loaded = {{name.partition(".")[0] for name in set(sys.modules) - before if sys.modules[name] is not None}}
    print(ended.code, sorted(loaded - sys.stdlib_module_names))
"""
    done = python("-c", script)
    assert words in done.stdout
    assert done.stdout.endswith("0 ['dynamics', 'hermite', 'lazy_loader']\n")


@pytest.mark.thorough
def test_a_run_from_the_cache_loads_nothing_that_it_does_not_use(here):
    """Each of these takes 0.05 to 0.4 s to load: by chance, for one function, to compile, or to show nobody a bar."""
    solve.main(["--k", "4", *SMALL[:-1], "--quiet", "--no-plot"])  # fills the cache
    words = ["-X", "importtime", "-m", "dynamics.solve", "--k", "4", *SMALL[:-1], "--quiet", "--output", "again.nc"]
    done = python(*words, cwd=here)
    assert done.returncode == 0, done.stderr
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert {"xarray", "netCDF4", "matplotlib.figure", "numba"} <= loaded
    unused = set("dask.base distributed coverage.control sympy torch tqdm".split())
    assert not loaded & (unused | {"matplotlib.pyplot"})


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["nonsense", "module://nope"])
def test_windows_of_the_parent_process_do_not_matter_to_a_figure(here, backend):
    words = ["-m", "dynamics.solve", "--k", "4", *SMALL[:-1], "--quiet"]
    done = python(*words, "--output", "drawn.nc", cwd=here, MPLBACKEND=backend)
    assert (done.returncode, done.stderr) == (0, "")
    assert (here / "drawn.png").stat().st_size > 5_000


@pytest.mark.thorough
def test_an_answer_is_not_lost_for_its_figure(here):
    """With a backend of the host that matplotlib does not have: the dataset is written, the table printed, then why."""
    words = ["--k", "4", *SMALL[:-1], "--output", "kept.nc"]
    host = (
        f"import runpy, sys; sys.argv = ['x', *{words}]; "
        "runpy.run_module('dynamics.solve', run_name='__main__', alter_sys=True)"
    )
    done = python("-c", host, cwd=here, MPLBACKEND="nonsense")
    assert done.returncode == 1
    assert done.stderr.startswith("error: The figure could not be drawn: Key backend: 'nonsense' is not a valid value")
    assert done.stderr.count("\n") == 1
    assert "learned: " in done.stdout
    assert dynamics.load(here / "kept.nc").attrs["stop_reason"] == "reached_end"


def test_overwrite_replaces(here):
    arguments = ["--k", "4", *SMALL, "--quiet", "--no-plot", "--output", "run.nc"]
    assert solve.main(arguments) == 0
    assert solve.main([*arguments, "--overwrite", "--save", "linear:5", "--t-max", "7"]) == 0
    assert dynamics.load("run.nc").time.values.tolist() == [0.0, 1.75, 3.5, 5.25, 7.0]


NETWORK = ["--teacher", "x1 + x1*x2", "--activation", "erf", "--width", "4", "--biases", "fixed", "--dimension", "100"]


def test_options_of_a_network_choose_the_model(here, capsys):
    arguments = [*NETWORK, "--scale", "1/m", "--rates", "mean-field", "--label-noise", "0.1", "--t-max", "2"]
    assert solve.main([*arguments, "--initial-biases", "0.5,-0.5,1,0", "--output", "run.nc", "--plot"]) == 0
    shown = capsys.readouterr().out
    assert "component" in shown
    assert "x1*x2" in shown
    assert (here / "run.png").exists()  # --plot alone names the figure like the dataset
    stored = dynamics.load("run.nc")
    problem = dynamics.Problem.from_dataset(stored)
    assert stored.attrs["answer"] == "network"
    assert problem.teacher == dynamics.Teacher.polynomial("x1 + x1*x2")
    assert problem.label_noise == 0.1
    assert problem.student == dynamics.Student(
        activation="erf", width=4, biases="fixed", initial_biases=[0.5, -0.5, 1.0, 0.0], scale="1/m", rates="mean-field"
    )


def test_coefficients_are_read_from_a_file(here):
    (here / "a.csv").write_text("0.8,-0.6\n0.4\n")
    small = ["--t-max", "0.5", "--output", "run.nc", "--no-plot", "--quiet", "--dimension", "16"]
    assert solve.main(["--model", "network", "--activation", "erf", "--coefficients", "@a.csv", *small]) == 0
    assert dynamics.load("run.nc").unit_coefficient.values.tolist() == [0.8, -0.6, 0.4]


@pytest.mark.parametrize("inputs", [None, dynamics.Inputs.power_law(1.0)], ids=["isotropic", "power law"])
def test_the_memory_that_a_dry_run_tells_is_what_the_flow_takes(inputs):
    """Numpy's arrays as tracemalloc counts them, with all axes of the inputs where they differ."""
    teacher = dynamics.Teacher.power_law(4, 1.0)
    problem = dynamics.Problem(activation="he4", teacher=teacher, width=64, dimension=500, inputs=inputs)
    save_at, told = dynamics.SaveAt.at([0.0, 1e-3]), estimate(problem, "overlaps", "summary", None)

    def flow():
        return dynamics.solve_overlaps(
            problem, method="explicit", save_at=save_at, keep="summary", progress=False, error_estimate=False
        )

    flow()
    tracemalloc.start()
    flow()
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.7 < 1e-6 * taken / float(told.split()[1]) < 1.1


def test_dry_run_estimates_and_writes_nothing(here, capsys):
    assert solve.main(["--dry-run", "--directions", "512", "--width", "512", "--dimension", "1024"]) == 0
    assert "memory:" in capsys.readouterr().out
    assert solve.main(["--dry-run", "--model", "decoupled", "--directions", "1000"]) == 0
    assert "no time stepping" in capsys.readouterr().out
    assert list(here.iterdir()) == []


def test_configuration_file_fills_in_and_flags_win(here, capsys):
    (here / "run.toml").write_text(
        'k = 4\ndirections = 2\nwidth = 4\ndimension = 32\nmodel = "decoupled"\nt_max = 9.0\n'
    )
    assert solve.main(["--config", "run.toml", "--directions", "3", "--output", "run.nc", "--no-plot"]) == 0
    stored = dynamics.load("run.nc")
    assert stored.sizes["direction"] == 3
    assert stored.attrs["answer"] == "decoupled"
    assert float(stored.time[-1]) == 9.0


def test_truncation_warnings_go_to_stderr(here, capsys):
    arguments = ["--activation", "relu", "--order", "6", "--directions", "2", "--dimension", "16", "--t-max", "1"]
    assert solve.main([*arguments, "--no-plot", "--no-progress"]) == 0
    captured = capsys.readouterr()
    assert "warning: The flow sees relu" in captured.err
    assert "warning" not in captured.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--k", "0"], "Option --k must be at least 1, but is 0."),
        (["--k", "four"], "Option --k must be a number, but is 'four'."),
        (["--beta", "nan"], "Option --beta must be finite, but is nan."),
        (["--rtol", "2"], "Option --rtol must be at least 1e-14 and below 1, but is 2."),
        (["--initial-norm", "0"], "Option --initial-norm must be positive, but is 0."),
        (["--seed", "-1"], "Option --seed must be at least 0, but is -1."),
        (["--save", "cubic:3"], "Option --save must be geometric:COUNT or linear:COUNT, but is 'cubic:3'."),
        (["--k", "4", "--activation", "relu"], "Option --k must equal the information exponent of --activation, but is 4 while relu has 1."),
        (["--coefficients", "1,-2"], "Option --coefficients must have positive coefficients, but entry 2 of 2 is -2.0, which the homogeneous student cannot learn; a `Student` can."),
        (["--coefficients", "@no.csv"], "Option --coefficients must name a file of numbers that can be read, but is '@no.csv': No such file or directory."),
        (["--teacher", "x1", "--model", "overlaps"], "Option --teacher must be absent for --model overlaps, but is x1."),
        (["--coefficients", "1,2", "--beta", "1"], "Option --beta must be absent when --coefficients is given, but is 1.0."),
        (["--dimension", "3"], "Option --dimension must be at least 16, the number of axes that the teacher spans, but is 3."),
        (["--config", "none.toml"], "Option --config must name a readable file, but 'none.toml' is not (No such file or directory)."),
        (["--output", "missing/run.nc"], "Option --output must lie in an existing directory, but is 'missing/run.nc'."),
        (["--model", "decoupled", "--k", "2"], "must have a link of information exponent at least 3"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--bta", "1"], "unrecognized arguments: --bta 1. Did you mean '--beta'?"),
        (
            ["--model", "meanfield"],
            "Option --model must be one of overlaps, decoupled, quadratic, mean-field, network, correlation, reused-data, but is "
            "'meanfield'. Did you mean 'mean-field'?",
        ),
        (["--model", "decoupled", "--rtol", "1e-3"], "Option --rtol must be absent for --model decoupled, but is 1e-3."),
        (["--plot", "a.png", "--no-plot"], "Options --plot and --no-plot must not be given together, but are."),
        (["--json", "--quiet"], "Options --json and --quiet must not be given together, but are."),
        (["--output", "run.png"], "Options --output and --plot must name different files, but both are 'run.png'."),
        (["--save", "liner:9"], "must be geometric:COUNT or linear:COUNT, but is 'liner:9'. Did you mean 'linear'?\n"),
        (["--output", "run.csv"], "Option --output must not end in .csv, which --csv writes, but is 'run.csv'.\n"),
        (["--plot", "figure.xyz"], "Option --plot must end in one of .png, .pdf, .svg, .jpg, .jpeg, but is 'figure.xyz'."),
        (["--activation", "__import__('os')"], "Option --activation must be a formula, but contains a call of"),
        (["--learning-steps", "1,5", *SMALL], "Option --learning-steps must have numbers from 1 to 4, but has 5."),
        (["--step-draws", "50", *SMALL], "Option --step-draws must be absent without --learning-steps, but is 50."),
        (["--learning-steps", "1", "--step-draws", "5", *SMALL], "Option --step-draws must be at least 39, but is 5."),
        (["--learning-steps", "1", "--model", "network"], "Option --learning-steps must be absent for --model network, but is 1."),
        (
            ["--learning-steps", "1", "--activation", "gelu", "--spectrum", "1", "--directions", "8", "--width", "4"],
            "must have an orthonormal teacher, and at least as many neurons as directions or a link with c_1 = 0",
        ),
    ],
)  # fmt: skip
def test_mistakes_get_one_sentence_and_exit_code_2(here, capsys, arguments, sentence):
    assert solve.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
    assert list(here.iterdir()) == []


def test_the_name_of_a_file_of_coefficients_stands_behind_an_at(here, capsys):
    (here / "weights.csv").write_text("weight\n1.0\n0.5\n")
    assert solve.main(["--coefficients", "weights.csv"]) == 2
    sentence = "must be numbers, or @ before the name of a file, but is 'weights.csv'."
    assert capsys.readouterr().err.endswith(f"{sentence}\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x =", "must name a TOML file"),
        ("colour = 3", "must hold options of this command only, but has 'colour'"),
        ("k = 0", "Option --k"),
        ('output = ["a.nc"]', "Option --output must be text in a file, but is ['a.nc']."),
        ('csv = ["a", "b"]', "Option --csv must be text in a file, but is ['a', 'b']."),
        ('activation = ["he3"]', "Option --activation must be text in a file, but is ['he3']."),
    ],
)
def test_bad_configuration_files_get_one_sentence(here, capsys, text, sentence):
    (here / "run.toml").write_text(text)
    assert solve.main(["--config", "run.toml", "--dry-run"]) == 2
    assert sentence in capsys.readouterr().err


def test_a_dry_run_refuses_what_the_run_would(here, capsys):
    """A target that cannot be written is said before any work, also before that which is only estimated."""
    (here / "old.nc").touch()
    for output in ("none/run.nc", "old.nc"):
        assert solve.main(["--directions", "2", "--dimension", "16", "--dry-run", "--output", output]) == 2
        assert "Option --output must" in capsys.readouterr().err
    assert (here / "old.nc").read_bytes() == b""


@pytest.mark.thorough
def test_the_command_tells_steps_of_sgd_as_the_library_does(here, capsys):
    # The link has c_1 and c_3, so that runs are drawn.
    options = ["--activation", "0.6*h1 + 0.8*h3", "--directions", "2", "--width", "2", "--dimension", "16"]
    assert solve.main([*options, "--output", "run.nc", "--no-plot", "--quiet"]) == 0
    told = [*options, "--no-plot", "--learning-steps", "1"]
    assert solve.main([*told, "--output", "text.nc"]) == 0
    text = capsys.readouterr().out
    assert solve.main([*told, "--output", "json.nc", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["learning_steps"]
    answer = dynamics.load("run.nc")
    for row, event in zip(found, ("emergence", "learned"), strict=True):
        expected = dynamics.learning_steps(answer, direction=1, event=event, learning_rate="0.1x")
        assert str(expected) in text
        assert row["steps"] == expected.steps
        assert (row["event"], row["direction"]) == (event, 1)
        assert row["steps_low"] < row["steps"] < row["steps_high"]
    assert "learning_steps" in text


def test_an_interrupt_while_runs_are_drawn_ends_the_command_and_keeps_the_answer(here, monkeypatch):
    def heard():
        raise KeyboardInterrupt

    monkeypatch.setattr("dynamics.draws.sgd_runs.stop_if_heard", heard)
    options = ["--activation", "erf", "--directions", "2", "--width", "2", "--dimension", "16", "--no-plot"]
    assert solve.main([*options, "--output", "run.nc", "--learning-steps", "1"]) == 130
    assert dynamics.load("run.nc").attrs["stop_reason"] == "reached_end"
    # A command that prints nothing draws no runs.
    assert solve.main([*options, "--output", "quiet.nc", "--learning-steps", "1", "--quiet"]) == 0
