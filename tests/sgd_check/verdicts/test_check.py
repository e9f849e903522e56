"""`sgd_check.check` against the three calls that it makes, and what it refuses."""

import json

import numpy as np
import pytest
import xarray as xr

import dynamics
import sgd_check
from dynamics import Problem, Teacher
from sgd_check.verdicts.check import CheckPlan, further_runs, prediction_to_test, with_runs

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


def test_runs_that_are_added_are_those_of_one_simulation(problem):
    given = {"learning_rate": 1e-4, "steps": 4000, **QUIET}
    whole = sgd_check.simulate(problem, seeds=range(9), **given)
    joined = with_runs(*(sgd_check.simulate(problem, seeds=part, **given) for part in (range(5), range(5, 9))))
    same(joined, whole)
    assert {name: joined[name].dims for name in joined} == {name: whole[name].dims for name in whole}
    assert json.loads(joined.attrs["parameters"]) == json.loads(whole.attrs["parameters"])


@pytest.mark.statistical
def test_a_check_with_time_left_makes_as_many_runs_as_show_an_error():
    """At this rate 32 runs do not show 30 % in a time. False-alarm rate of the verdict: 1 %, with fixed seeds."""
    start = ([[0.3]], [[1.0]], [0.01])
    problem = Problem(
        activation="h2", teacher=Teacher([1.0]), width=1, dimension=16, initial_overlaps=start, label_noise=0.2
    )
    tree = sgd_check.check(problem, learning_rate=1e-3, **QUIET)
    attrs, runs = tree["comparison"].attrs, tree["simulation"].sizes["seed"]
    assert attrs["verdict"] == "agree"
    assert runs == attrs["runs_needed"] > 32
    steps = int(tree["simulation"].attrs["steps"])
    for kept in ({"seeds": range(32)}, {"steps": steps}, {"max_runtime": 0.05}):
        few = sgd_check.check(problem, **{"learning_rate": 1e-3} | kept, **QUIET)
        assert few["comparison"].attrs["verdict"] == "undecided"
        assert few["simulation"].sizes["seed"] == 32
    assert few["comparison"].attrs["runs_needed"] > 32


def test_runs_are_added_only_where_their_number_helps(problem):
    runs = [xr.Dataset(coords={"seed": np.arange(10)}, attrs={"stop_reason": "reached_end"})]
    plan = CheckPlan(problem, 1e-3, 100, flexible=True)

    def more(needed, p=1.0, plan=plan, left=1e3, stop="reached_end"):
        comparison = xr.Dataset({"p_value": p}, attrs={"runs_needed": needed, "false_alarm_rate": 0.01})
        return further_runs(plan, comparison, [runs[0].assign_attrs(stop_reason=stop)], 10.0, left)

    assert more(20.0) == 14
    assert more(20.0, left=14.0) == 14
    assert more(20.0, p=5e-3) == 14, "the scatter decides"
    for none in (
        {"needed": 10.0},
        {"needed": np.inf},
        {"needed": 161.0},
        {"needed": 20.0, "left": 13.9},
        {"needed": 20.0, "p": 9e-5},
        {"needed": 20.0, "stop": "max_runtime"},
        {"needed": 20.0, "plan": CheckPlan(problem, 1e-3, 100)},
    ):
        assert more(**none) == 0
