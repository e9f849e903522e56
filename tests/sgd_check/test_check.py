"""`sgd_check.check` against the three calls that it makes, and what it refuses."""

import numpy as np
import pytest

import dynamics
import sgd_check
from dynamics.problem import Problem, Teacher
from sgd_check.verdicts.check import CheckPlan, prediction_to_test

QUIET = {"progress": False}
QUICK = {"learning_rate": 1e-4, "steps": 40_000, "directions": 1, "seeds": 8, **QUIET}


SPHERICAL = Problem(activation="he3", teacher=Teacher([1.0]), width=4, dimension=8, student="spherical")


@pytest.fixture(scope="module")
def problem(tools):
    return tools.problem([[0.5]], coefficients=(1.0,), activation="he3", dimension=8)


def same(one, other):
    """Whether two datasets have the same variables, but for the clock."""
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        np.testing.assert_array_equal(one[name].values, other[name].values)


@pytest.mark.thorough
def test_one_call_is_the_three_calls_by_hand(problem):
    tree = sgd_check.check(problem, theory="flow", **QUICK)
    flow = dynamics.solve_overlaps(problem, **QUIET)
    runs = sgd_check.simulate(problem, learning_rate=1e-4, steps=40_000, seeds=8, **QUIET)
    expected = sgd_check.compare(flow, runs)
    assert set(tree.children) == set(expected.children) == {"prediction", "simulation", "comparison"}
    for name in ("prediction", "simulation", "comparison"):
        same(tree[name].to_dataset(), expected[name].to_dataset())
    assert tree["comparison"].attrs["reasons"] == expected["comparison"].attrs["reasons"]


def test_the_finite_step_equation_is_tested_at_the_rate_of_the_runs(problem):
    tree = sgd_check.check(problem, **QUICK)
    assert tree["comparison"].attrs["theory"] == "finite step"
    assert tree["prediction"].attrs["learning_rate"] == tree["simulation"].attrs["learning_rate"] == 1e-4
    same(tree["given"].to_dataset(), dynamics.solve_overlaps(problem, **QUIET))


@pytest.mark.thorough
def test_a_problem_alone_is_enough(problem):
    tree = sgd_check.check(problem, **QUIET)
    assert tree["comparison"].attrs["verdict"] == "agree"
    assert tree["simulation"].sizes["seed"] == 32
    flow = dynamics.solve_overlaps(problem, **QUIET)
    from sgd_check.verdicts.check import plan_by_times

    course = plan_by_times(flow)
    assert tree["simulation"].attrs["learning_rate"] == course.learning_rate
    assert tree["simulation"].attrs["steps"] == course.steps


@pytest.mark.long
def test_without_the_equation_the_flow_is_tested_and_a_warning_says_so():
    problem = Problem(activation="tanh", teacher=Teacher([1.0]), width=1, dimension=8, seed=1)
    with pytest.warns(UserWarning, match="^The times in the prediction are tested, without the finite-step equation: "):
        tree = sgd_check.check(problem, **QUICK | {"learning_rate": 1e-3, "steps": 2_000})
    assert tree["comparison"].attrs["theory"] == "flow"
    with pytest.raises(ValueError, match="polynomial"):
        sgd_check.check(problem, theory="finite-step", **QUICK)


def test_a_committee_is_checked_with_torch():
    problem = Problem(activation="erf", teacher=Teacher([1.0]), width=1, dimension=8, student="committee", seed=1)
    with pytest.warns(UserWarning, match="without the finite-step equation"):
        tree = sgd_check.check(problem, **QUICK | {"learning_rate": 1e-2, "steps": 500})
    assert tree["simulation"].attrs["engine"] == "torch"


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"problem": 3}, TypeError, "Argument `problem` must be a Problem, but is int."),
        ({"problem": SPHERICAL}, ValueError, "Argument `problem` must not have the spherical student, whose mean field"),
        ({"theory": "both"}, ValueError, "Argument `theory` must be one of 'auto', 'finite-step', 'flow', but is 'both'."),
        ({"false_alarm_rate": 1.0}, ValueError, "Argument `false_alarm_rate` must lie between 0 and 1, but is 1.0."),
        ({"steps": 0}, ValueError, "Argument `steps` must be at least 1, but is 0."),
        ({"directions": 0}, ValueError, "Argument `directions` must be at least 1, but is 0."),
        ({"learning_rate": -1.0}, ValueError, "Argument `learning_rate` must be finite and positive, but is -1.0."),
        ({"seeds": []}, ValueError, "Argument `seeds` must name at least one seed, but is empty."),
        ({"engine": "projekted"}, ValueError, "Did you mean 'projected'?"),
        ({"device": "cuda"}, ValueError, "Argument `device` must be 'auto' or 'cpu' for engine 'projected'"),
    ],
)  # fmt: skip
def test_refusals_come_before_any_step(problem, changes, kind, words, monkeypatch):
    monkeypatch.setattr("sgd_check.engines.projected.ProjectedEngine.advance", lambda *_: pytest.fail("ran"))
    with pytest.raises(kind) as refused:
        sgd_check.check(**{"problem": problem} | QUICK | changes)
    assert words in str(refused.value)


@pytest.mark.parametrize("name", ["loss", "squared_norm", "teacher_overlap"])
def test_a_prediction_whose_loss_or_start_the_equation_does_not_have_is_tested_itself(problem, name):
    flow, said = dynamics.solve_overlaps(problem, **QUIET), []
    given = {"theory": "auto", "say": said.append, "words": ("FILE", "--theory finite-step")}
    plan = CheckPlan(problem, 1e-4, 40_000)
    assert "learning_rate" in prediction_to_test(flow, plan, 1, False, **given).attrs
    assert said == []
    wrong = flow.assign({name: 1.15 * flow[name]})
    assert prediction_to_test(wrong, plan, 1, False, **given) is wrong
    assert said[0].endswith("than FILE, so FILE is tested; --theory finite-step tests the equation.")
    # Without the records near the start the loss is still that of the whole file.
    late = flow.isel(time=flow["time"].values > 0.5 * float(flow["emergence_time"][0]))
    assert prediction_to_test(late, plan, 1, False, **given) is not late
    if name == "loss":
        wrong = late.assign(loss=1.15 * late["loss"])
        assert prediction_to_test(wrong, plan, 1, False, **given) is wrong
        assert said[1].startswith("The finite-step equation has another loss")
