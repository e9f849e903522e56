"""The command line: what it prints where, what it writes, how it exits."""

import json
import re
import sys

import numpy as np
import pytest

from dynamics import Inputs, load, save
from sgd_check.engines.projected import ProjectedEngine
from sgd_check.run.__main__ import main
from sgd_check.verdicts.check import plan_by_times


@pytest.fixture
def prediction(tools, tmp_path):
    problem = tools.problem([[0.65, 0.1]], dimension=8, coefficients=(1.0, 0.5))
    return save(tools.flow(problem, np.geomspace(0.01, 1.0, 20)), tmp_path / "prediction.nc")


QUICK = ["--learning-rate", "2e-4", "--steps", "1500", "--seeds", "4"]


def head_of_table(printed):
    """Return the words above the columns of the first table, which comes after the verdict."""
    return next(line.split() for line in printed.splitlines() if line.split()[:2] == ["p", "a_p"])


def test_the_finite_step_equation_is_tested_and_both_times_are_shown(prediction, capsys):
    """At this learning rate the flow is early by a quarter; the equation of the mean step is not."""
    assert main([str(prediction), *QUICK, "--no-plot", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["theory"] == "finite step"
    tree = load(prediction.with_name("prediction-sgd.nc"))
    assert tree["prediction"].attrs["learning_rate"] == 2e-4
    flow = load(prediction)["emergence_time"].values[0]
    first = found["directions"][0]
    assert first["given"] == pytest.approx(flow, rel=1e-12)
    assert first["predicted"] == pytest.approx(float(tree["prediction"]["emergence_time"][0]), rel=1e-12)
    assert first["predicted"] > 1.2 * flow
    np.testing.assert_array_equal(tree["prediction"]["time"], tree["simulation"]["time"])
    assert main([str(prediction), *QUICK, "--no-plot", "--overwrite"]) == 0
    assert head_of_table(capsys.readouterr().out)[2:5] == ["given", "finite", "step"]


def test_options_of_a_problem_behind_two_dashes_make_the_prediction_first(tmp_path, capsys):
    """One command from the weights in a file to limit, times and verdict."""
    (tmp_path / "weights.csv").write_text("0.8\n0.6\n", encoding="utf-8")
    question = ["--k", "4", "--coefficients", f"@{tmp_path / 'weights.csv'}", "--width", "4"]
    question += ["--dimension", "16", "--learning-steps", "1"]
    file, flags = tmp_path / "question.nc", [*QUICK, "--no-plot", "--no-progress"]
    assert main([str(file), *flags, "--json", "--", *question]) == 0
    solved, checked = map(json.loads, capsys.readouterr().out.splitlines())
    assert solved["learning_steps"][0]["direction"] == 1
    assert checked["verdict"] in ("agree", "disagree", "undecided")
    assert load(file)["teacher_coefficient"].values.tolist() == [0.8, 0.6]
    assert main([str(file), *flags, "--", *question]) == 2
    assert "question-sgd.nc" in capsys.readouterr().err
    assert main([str(file), *flags, "--overwrite", "--", "--k", "none"]) == 2
    assert capsys.readouterr().err == "error: Option --k must be a number, but is 'none'.\n"


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize("stretch", [1.3, pytest.param(1 / 1.3, marks=pytest.mark.long)])
def test_a_wrong_prediction_is_tested_itself_and_refuted(tools, tmp_path, capsys, stretch):
    """A file off by 30 % does not hide behind the equation of its problem; verdict at 1 %, with fixed seeds."""
    problem = tools.problem([[0.65, 0.1]], dimension=8, coefficients=(1.0, 0.5))
    path = save(tools.flow(problem, np.geomspace(0.01, 1.0, 20), stretch=stretch), tmp_path / "wrong.nc")
    assert main([str(path), "--seeds", "32", "--no-plot"]) == 0
    shown = capsys.readouterr()
    assert "has another time than the file for direction 1, so the file is tested" in shown.err
    assert "verdict: disagree" in shown.out
    assert "emerges early" in shown.out if stretch > 1 else "emerges late" in shown.out


def test_a_prediction_that_carries_a_step_sets_it(tools, tmp_path, capsys):
    import dynamics

    problem = tools.problem([[0.65, 0.1]], dimension=8, coefficients=(1.0, 0.5))
    equation = dynamics.solve_overlaps(problem, learning_rate=1e-4, batch_size=2, progress=False, error_estimate=False)
    path = save(equation, tmp_path / "step.nc")
    assert main([str(path), "--steps", "2000", "--seeds", "4", "--no-plot"]) == 0
    tree = load(path.with_name("step-sgd.nc"))
    assert tree["simulation"].attrs["learning_rate"] == 1e-4
    assert tree["simulation"].attrs["batch_size"] == 2
    assert tree["comparison"].attrs["theory"] == "finite step"
    capsys.readouterr()
    for option, sentence in [
        (["--learning-rate", "2e-4"], "Option --learning-rate must be that of the prediction, 0.0001, but is 0.0002."),
        (["--batch-size", "1"], "Option --batch-size must be that of the prediction, 2, but is 1."),
        (["--theory", "flow"], "Option --theory must not be flow for a prediction of finite steps, but is."),
    ]:
        assert main([str(path), "--overwrite", *option]) == 2
        assert capsys.readouterr().err == f"error: {sentence}\n"


def test_a_link_without_exact_moments_is_tested_by_its_flow(tools, tmp_path, capsys):
    problem = tools.problem([[0.65, 0.1]], dimension=8, activation="x^2 exp(-x^2)")
    path = save(tools.flow(problem, np.geomspace(0.01, 1.0, 20)), tmp_path / "bump.nc")
    run = [str(path), "--learning-rate", "1e-3", "--steps", "300", "--seeds", "4", "--no-plot"]
    assert main(run) == 0
    assert "are tested, without the finite-step equation: Argument `problem` must" in capsys.readouterr().err
    assert main([*run, "--overwrite", "--theory", "finite-step"]) == 2
    assert "must have a polynomial link" in capsys.readouterr().err


def test_nothing_is_overwritten_unless_allowed(prediction, capsys, monkeypatch):
    target = prediction.with_name("prediction-sgd.nc")
    target.write_bytes(b"precious")
    with monkeypatch.context() as patch:
        patch.setattr(ProjectedEngine, "advance", lambda *_: pytest.fail("checked before the run"))
        assert main([str(prediction), *QUICK]) == 2
    assert target.read_bytes() == b"precious"
    assert "allow it with overwrite" in capsys.readouterr().err
    assert main([str(prediction), *QUICK, "--overwrite", "--no-plot", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")
    assert target.read_bytes() != b"precious"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seeds", "0"], "error: argument --seeds: must be a positive integer, but is '0'"),
        (["--steps", "1.5"], "error: argument --steps: must be a positive integer, but is '1.5'"),
        (["--learning-rate", "big"], "error: argument --learning-rate: must be a number, but is 'big'"),
        (["--engine", "tirch"], "error: Option --engine must be one of 'projected', 'torch', 'diffusion', 'scalar', but is 'tirch'. Did you mean 'torch'?"),
        (["--dtype", "half", "--quiet"], "error: Option --dtype must be 'float64' for engine 'projected', but is 'half'."),
        (["--plot", "figure.bmp"], "error: Option --plot must end in one of .png, .pdf, .svg, .jpg, .jpeg, but is 'figure.bmp'."),
        (["--plot", "figure"], "error: Option --plot must end in one of .png, .pdf, .svg, .jpg, .jpeg, but is 'figure'."),
        (["--false-alarm-rate", "1.5"], "error: argument --false-alarm-rate: must lie between 0 and 1, but is '1.5'"),
        (["--theory", "finit-step"], "error: argument --theory: must be one of auto, finite-step, flow, but is 'finit-step'. Did you mean 'finite-step'?"),
        (["--theory", "none"], "error: argument --theory: must be one of auto, finite-step, flow, but is 'none'"),
        (["--unknown"], "error: unrecognized arguments: --unknown"),
    ],
)  # fmt: skip
def test_usage_errors_are_one_sentence_and_exit_two(prediction, capsys, arguments, sentence):
    assert main([str(prediction), *arguments]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == sentence


def with_text_as_norm(dataset):
    dataset.attrs["parameters"] = re.sub(
        r'"initial_norm": [^,]*', '"initial_norm": "torch"', dataset.attrs["parameters"]
    )
    return dataset


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (with_text_as_norm, "Argument `initial_norm` must be a real number, but is 'torch'."),
        (lambda dataset: dataset.assign_attrs(step_theory="finite-d", learning_rate="fast", batch_size=1), "Argument FILE must have a number as attribute `learning_rate`, but has 'fast'."),
        (
            lambda dataset: dataset.drop_vars("emergence_time").assign(emergence_time=("more", np.ones(5))),
            "Argument FILE must have numbers `emergence_time{'direction': 2}`, but has float64 {'more': 5}.",
        ),
        (lambda dataset: dataset.assign(loss=(("time", "more"), np.ones((20, 3)))), "Argument FILE must have numbers `loss{'time': 20}`, but has float64 {'time': 20, 'more': 3}."),
        (lambda dataset: dataset.assign(loss=("time", np.array(["low"] * 20))), "Argument FILE must have numbers `loss{'time': 20}`, but has <U3 {'time': 20}."),
    ],
    ids=["norm", "rate", "times", "loss", "text"],
)  # fmt: skip
def test_a_prediction_that_nothing_can_be_held_against_is_refused_before_the_runs(
    prediction, capsys, monkeypatch, spoil, sentence
):
    monkeypatch.setattr("sgd_check.verdicts.check.simulate", lambda *_, **__: pytest.fail("run"))
    save(spoil(load(prediction)), prediction, overwrite=True)
    assert main([str(prediction), *QUICK, "--no-plot"]) == 2
    assert capsys.readouterr().err == f"error: {sentence}\n"


@pytest.mark.thorough
def test_a_missing_or_foreign_file_exits_two(tmp_path, capsys, prediction):
    assert main([str(tmp_path / "none.nc")]) == 2
    assert "must name an existing file" in capsys.readouterr().err
    assert main([str(prediction), *QUICK, "--quiet"]) == 0
    assert main([str(prediction.with_name("prediction-sgd.nc")), "--quiet"]) == 2
    assert "must be a dataset of a prediction" in capsys.readouterr().err


def test_a_run_where_all_blow_up_exits_one_and_keeps_its_file(prediction, capsys):
    code = main([str(prediction), "--learning-rate", "5", "--steps", "2000", "--seeds", "4", "--no-plot"])
    shown = capsys.readouterr()
    assert code == 1
    assert "warning: The learning rate 5 exceeds" in shown.err
    assert "Every run blew up" in shown.err
    assert load(prediction.with_name("prediction-sgd.nc"))["comparison"].attrs["usable_runs"] == 0


def test_a_missing_torch_is_said_in_one_sentence(prediction, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sgd_check.engines.torch.engine", None)
    assert main([str(prediction), *QUICK, "--quiet", "--engine", "torch"]) == 2
    assert "pip install torch" in capsys.readouterr().err


def test_a_horizon_before_the_first_emergence_is_said_to_be_too_early(prediction, capsys):
    time = float(np.nanmin(load(prediction)["emergence_time"]))
    assert main([str(prediction), "--seeds", "4", "--t-max", f"{time / 50:.3g}", "--no-plot"]) == 0
    shown = capsys.readouterr()
    said = shown.out + shown.err
    assert "made for 0 of 1 directions." in said
    assert "Not all directions emerge by then; --directions 1 instead of --t-max checks all." in said
    assert "ten minutes" not in said


def test_the_default_rate_is_safe_and_the_default_horizon_long_enough(prediction):
    from dynamics import learning_rate_limit

    flow = load(prediction)
    course = plan_by_times(flow)
    assert course.learning_rate <= 0.1 * learning_rate_limit(course.problem)
    assert course.largest_delay <= 0.04
    last = float(np.nanmax(flow["emergence_time"]))
    assert course.learning_rate * course.steps == pytest.approx(2.5 * last, rel=1e-3)
    more = plan_by_times(flow, seeds=64)
    assert course.learning_rate < more.learning_rate, "more runs resolve the same error at a larger scatter"


def test_without_emergence_or_theory_the_missing_option_is_named(tools):
    never = tools.flow(tools.problem([[0.65, 0.1]], dimension=8), np.array([1e-4, 2e-4]))
    with pytest.raises(ValueError, match=r"^Argument `steps` must be given, because no direction emerges") as caught:
        plan_by_times(never)
    assert str(caught.value).endswith("in the prediction, which ends at t = 0.0002; or let it last longer.")
    assert plan_by_times(never, 1e-4, 10).largest_delay == np.inf
    inputs = Inputs([2.0, 1.0], [2, 6])
    crooked = tools.problem([[0.65, 0.1]], dimension=8, directions=[[1.0, 0.0], [0.6, 0.8]], inputs=inputs)
    with pytest.raises(ValueError, match=r"^Argument `learning_rate` must be given, because theory gives no safe one"):
        plan_by_times(tools.flow(crooked, np.linspace(0.1, 9, 5)))
