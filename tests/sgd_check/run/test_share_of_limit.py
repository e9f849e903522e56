"""Learning rates as a share of the limit of stability, "0.1x", wherever a number is taken."""

import re

import pytest

import dynamics
import sgd_check
from dynamics import Problem, SaveAt, Teacher
from dynamics.solve.__main__ import main as solve_main
from dynamics.theory.learning_rates import resolved_rate, stable_rate
from sgd_check.run import main as check_main

TEACHER = Teacher([0.8, 0.6])


def problem(**given):
    return Problem(**{"activation": "he3", "teacher": TEACHER, "width": 2, "dimension": 12, "seed": 3} | given)


def test_a_share_is_one_of_the_limit_of_sgd_or_of_descent():
    asked = problem(activation="relu")
    for batch in (1, 8):
        limit = dynamics.learning_rate_limit(asked, batch_size=batch)
        assert resolved_rate(asked, "0.25x", batch) == 0.25 * limit
    assert resolved_rate(asked, None) is None
    frame = Problem(activation="he2", teacher=TEACHER, width=2, dimension=12, student="stiefel")
    assert stable_rate(frame, 4) == 4 * dynamics.learning_rate_limit(frame)


@pytest.mark.parametrize("text", ["x", "-0.1x", "nanx", "infx", "0.1", "0.1 y", "0x"])
def test_other_text_is_refused_in_one_sentence(text):
    with pytest.raises(ValueError, match=r"^Argument `learning_rate` must be a positive number, or a share of the lim"):
        resolved_rate(problem(), text)


def test_runs_store_the_number():
    asked = problem(activation="gelu")
    runs = sgd_check.simulate(asked, learning_rate="0.1x", steps=20, seeds=2, batch_size=4, progress=False)
    limit = dynamics.learning_rate_limit(asked, batch_size=4)
    assert runs.attrs["learning_rate"] == 0.1 * limit
    assert runs.attrs["learning_rate_limit"] == limit
    assert not runs.attrs["above_limit"]


def test_equations_of_steps_store_the_number():
    save_at, limit = SaveAt.at([0.0, 0.1]), dynamics.learning_rate_limit(problem())
    steps = dynamics.solve_overlaps(problem(), save_at=save_at, learning_rate="0.2x", progress=False)
    assert steps.attrs["learning_rate"] == 0.2 * limit
    descent = dynamics.solve_overlaps(
        problem(), save_at=save_at, learning_rate="0.2x", method="gradient-descent", progress=False
    )
    assert descent.attrs["learning_rate"] == 0.2 * descent.attrs["learning_rate_limit"]
    committee = problem(activation="erf", teacher=Teacher([1.0, 1.0]), student="committee")
    found = dynamics.solve_committee(committee, save_at=save_at, learning_rate="0.2x", progress=False)
    assert found.attrs["learning_rate"] == 0.2 * dynamics.learning_rate_limit(committee)


def test_a_committee_is_warned_above_its_limit():
    committee = problem(activation="erf", teacher=Teacher([1.0, 1.0]), student="committee")
    with pytest.warns(RuntimeWarning, match="The converged student loses stability from learning rate"):
        dynamics.solve_committee(committee, save_at=SaveAt.at([0.0, 0.1]), learning_rate="2x", progress=False)


def test_learning_steps_take_a_share(tmp_path):
    alone = problem(teacher=Teacher([1.0]), width=1, initial_norm=0.1)
    answer = dynamics.solve_overlaps(alone, progress=False)
    found = dynamics.learning_steps(answer, direction=1, learning_rate="0.05x")
    assert found.learning_rate == 0.05 * dynamics.learning_rate_limit(alone)


def test_commands_take_a_share(tmp_path, capsys):
    flow = tmp_path / "flow.nc"
    given = ["--activation", "he3", "--directions", "1", "--width", "1", "--dimension", "12", "--quiet", "--no-plot"]
    assert solve_main([*given, "--learning-rate", "0.05x", "--output", str(flow)]) == 0
    stored = dynamics.load(flow)
    asked = Problem.from_dataset(stored)
    assert stored.attrs["learning_rate"] == 0.05 * dynamics.learning_rate_limit(asked)
    assert solve_main([*given, "--learning-rate", "0.05y", "--output", str(flow)]) == 2
    assert "--learning-rate must be" in capsys.readouterr().err
    plain = tmp_path / "plain.nc"
    assert solve_main([*given, "--output", str(plain)]) == 0
    runs = ["--learning-rate", "0.05x", "--steps", "50", "--seeds", "2", "--quiet", "--no-plot", "--theory", "flow"]
    assert check_main([str(plain), *runs, "--output", str(tmp_path / "sgd.nc")]) == 0
    assert re.search("0.05x", capsys.readouterr().err) is None


def test_a_share_is_one_of_the_limit_of_the_optimizer():
    asked, save_at = problem(), SaveAt.at([0.0, 0.001])
    for optimizer in ("SGD(momentum=0.5)", "zeroth-order"):
        limit = dynamics.learning_rate_limit(asked, optimizer=optimizer)
        given = {"learning_rate": "0.1x", "optimizer": optimizer, "progress": False}
        runs = sgd_check.simulate(asked, steps=2, seeds=2, engine="torch", **given)
        steps = dynamics.solve_overlaps(asked, save_at=save_at, **given)
        for found in (runs, steps):
            assert found.attrs["learning_rate"] == 0.1 * limit
            assert found.attrs["learning_rate_limit"] == limit
    given = {"learning_rate": "0.1x", "optimizer": "adam"}
    for call in (sgd_check.simulate, dynamics.solve_overlaps, sgd_check.check):
        more = {"steps": 2, "seeds": 2} if call is sgd_check.simulate else {}
        with pytest.raises(ValueError, match=r"must be a number for optimizer Adam\(\), not a share such as '0.1x'"):
            call(asked, **given, **more)
