"""Ctrl-C in any phase of a call or a command hands over what was computed, and says where that is."""

import pickle

import numpy as np
import pytest

import dynamics
import sgd_check
from dynamics.commands import parsing
from dynamics.laws import __main__ as laws
from dynamics.solve import __main__ as solve
from sgd_check.run import __main__ as run
from sgd_check.verdicts import check

START = ([[0.5]], [[1.0]], [0.01])
SMALL = dynamics.Problem(
    activation="he3", teacher=dynamics.Teacher([1.0]), width=1, dimension=8, initial_overlaps=START
)
#: Decided by curves, by runs at two learning rates.
RELU = dynamics.Problem(activation="tanh", teacher=dynamics.Teacher([1.0]), width=1, dimension=8, seed=1)
QUICK = {"learning_rate": 1e-3, "steps": 200, "seeds": 4, "progress": False}


def at_call(number, function, stopped=KeyboardInterrupt):
    """Return a function that is interrupted when it is called for the `number`-th time."""
    calls = []

    def interrupted(*arguments, **settings):
        calls.append(0)
        if len(calls) == number:
            raise stopped
        return function(*arguments, **settings)

    return interrupted


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("problem", "owner", "name", "number", "branches"),
    [
        (SMALL, dynamics, "solve_problem", 1, set()),
        (SMALL, check, "plan_check", 1, {"prediction"}),
        (SMALL, check, "solve_finite_step", 1, {"prediction"}),
        (SMALL, check, "simulate", 1, {"prediction"}),
        (SMALL, check, "compare", 1, {"prediction", "given", "simulation"}),
        (RELU, check, "simulate", 2, {"prediction", "simulation"}),
        (RELU, check, "compare", 1, {"prediction", "simulation", "finer"}),
    ],
    ids=["flow", "plan", "equation", "runs", "comparison", "second rate", "comparison of two rates"],
)
def test_a_check_hands_over_what_it_has(problem, owner, name, number, branches, monkeypatch):
    theory = "flow" if problem is RELU else "auto"
    monkeypatch.setattr(owner, name, at_call(number, getattr(owner, name)))
    with pytest.raises(
        dynamics.SolveInterrupted, match=r"in its DataTree; what was computed is the attribute `dataset`"
    ):
        sgd_check.check(problem, theory=theory, **QUICK)
    monkeypatch.undo()
    monkeypatch.setattr(owner, name, at_call(number, getattr(owner, name)))
    with pytest.raises(KeyboardInterrupt) as caught:
        sgd_check.check(problem, theory=theory, **QUICK)
    assert set(caught.value.dataset.children) == branches
    for branch in branches:
        assert np.isfinite(caught.value.dataset[branch]["emergence_time"]).size > 0
    assert "sys.last_value.dataset" in str(caught.value)


def test_a_part_of_the_flow_is_handed_over_as_the_prediction(monkeypatch):
    part = dynamics.solve_overlaps(SMALL, progress=False)

    def interrupted(*_, **__):
        event = "The flow was interrupted"
        raise dynamics.SolveInterrupted(event, part)

    monkeypatch.setattr(dynamics, "solve_problem", interrupted)
    with pytest.raises(dynamics.SolveInterrupted) as caught:
        sgd_check.check(SMALL, **QUICK)
    assert caught.value.dataset["prediction"].to_dataset().identical(part)


def test_what_was_handed_over_travels_between_processes():
    stop = dynamics.SolveInterrupted("The run was interrupted", dynamics.predict_emergence(SMALL))
    again = pickle.loads(pickle.dumps(stop))
    assert str(again) == str(stop)
    assert again.dataset.identical(stop.dataset)


def test_a_sweep_hands_over_its_points(monkeypatch):
    from dynamics.sweeps.points import PointDirectory

    whole = dynamics.sweep(SMALL, {"label_noise": [0.0, 0.1, 0.2]}, study="prediction", workers=0)
    for number, count in ((1, 0), (3, 2)):
        with monkeypatch.context() as patch:
            patch.setattr(PointDirectory, "keep", at_call(number, PointDirectory.keep))
            with pytest.raises(KeyboardInterrupt) as caught:
                dynamics.sweep(SMALL, {"label_noise": [0.0, 0.1, 0.2]}, study="prediction", workers=0)
        if not count:
            assert not isinstance(caught.value, dynamics.SolveInterrupted)
            continue
        assert str(caught.value).startswith("The sweep was interrupted after 2 of 3 points; what was computed is ")
        part = caught.value.dataset["predicted_emergence_time"]
        assert int(np.isfinite(part).sum()) == count
        assert np.array_equal(part[:2], whole["predicted_emergence_time"][:2])


def test_a_sweep_into_a_file_names_its_directory(tmp_path, monkeypatch):
    from dynamics.sweeps.points import PointDirectory

    monkeypatch.setattr(PointDirectory, "keep", at_call(3, PointDirectory.keep))
    output = tmp_path / "a.nc"
    with pytest.raises(KeyboardInterrupt) as caught:
        dynamics.sweep(SMALL, {"label_noise": [0.0, 0.1, 0.2]}, study="prediction", workers=0, output=output)
    kept = f"{output}.points"
    expected = f"The sweep was interrupted after 2 of 3 points, which are kept in {kept!r}: the same call goes on."
    assert str(caught.value) == expected


@pytest.fixture
def prediction(tmp_path):
    return dynamics.save(dynamics.solve_overlaps(SMALL, progress=False), tmp_path / "flow.nc")


RUN = ["--learning-rate", "1e-3", "--steps", "200", "--seeds", "4", "--theory", "flow", "--quiet"]
SOLVE = ["--directions", "2", "--width", "4", "--dimension", "16"]
FIGURE, TABLE = (parsing, "_drawn"), (parsing, "store_table")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("main", "arguments", "owner", "name"),
    [
        (solve.main, SOLVE, *FIGURE),
        (solve.main, [*SOLVE, "--learning-steps", "1"], "dynamics.solve.learning_steps", "learning_steps"),
        (solve.main, SOLVE, "dynamics.report.findings", "find_findings"),
        (laws.main, ["scaling", "--directions", "64", "--starts", "2"], *FIGURE),
        (run.main, ["flow.nc", *RUN], *FIGURE),
        (run.main, ["flow.nc", *RUN], "sgd_check.report.findings", "comparison_findings"),
    ],
    ids=["figure", "learning steps", "findings", "figure of a study", "figure of a check", "findings of a check"],
)
def test_a_command_that_is_interrupted_after_its_work_names_the_file(
    main, arguments, owner, name, prediction, here, monkeypatch, capsys
):
    from importlib import import_module

    owner = import_module(owner) if isinstance(owner, str) else owner
    monkeypatch.setattr(owner, name, at_call(1, getattr(owner, name)))
    assert main([*arguments, "--output", "kept.nc"]) == parsing.EXIT_INTERRUPTED
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1] == (
        "Interrupted while the result was summed up; it is in kept.nc, and this shows it: "
        "python -m dynamics.report kept.nc"
    )
    dynamics.load(here / "kept.nc")


def test_a_check_that_is_interrupted_in_its_comparison_keeps_the_runs(prediction, here, monkeypatch, capsys):
    monkeypatch.setattr(check, "compare", at_call(1, check.compare))
    assert run.main(["flow.nc", *RUN]) == parsing.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "The run was interrupted; what was computed is in flow-sgd.nc.\n"
    tree = dynamics.load("flow-sgd.nc")
    assert set(tree.children) == {"prediction", "simulation"}
    assert not (here / "flow-sgd-runs.nc").exists()


def test_a_check_that_is_interrupted_before_its_runs_says_so(prediction, here, monkeypatch, capsys):
    monkeypatch.setattr(check, "plan_check", at_call(1, check.plan_check))
    assert run.main(["flow.nc", *RUN]) == parsing.EXIT_INTERRUPTED
    assert capsys.readouterr().err == f"{run.UNBEGUN}\n"
    assert [path.name for path in here.iterdir()] == ["flow.nc"]
