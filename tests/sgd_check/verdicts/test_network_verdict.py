"""The verdict by curves for general networks: components, sensitivities, finite steps, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

import dynamics
import sgd_check
from dynamics import Problem, Student, Teacher
from dynamics.report.findings import find_findings
from sgd_check import plot_comparison
from sgd_check.studies.kinds import stretched

QUIET = {"progress": False}
TIMES = dynamics.SaveAt.geometric(0.02, 12.0, 120)


@pytest.fixture(scope="module")
def staircase():
    student = Student(
        activation="erf", width=4, second_layer="trained", biases="fixed", scale="1/m", rates="mean-field"
    )
    return Problem(student=student, teacher=Teacher.polynomial("x1 + x1*x2"), dimension=12)


@pytest.fixture(scope="module")
def flow(staircase):
    return dynamics.solve_problem(staircase, save_at=TIMES, error_estimate=False, **QUIET)


@pytest.fixture(scope="module")
def runs(staircase):
    return [
        sgd_check.simulate(staircase, learning_rate=rate, steps=round(9.0 / rate), seeds=24, **QUIET)
        for rate in (1e-3, 5e-4)
    ]


def test_components_loss_and_times_agree_with_the_flow(flow, runs):
    comparison = sgd_check.compare(flow, runs)["comparison"]
    assert comparison.attrs["verdict"] == "agree"
    names = comparison["quantity"].values.tolist()
    assert names[:3] == ["loss", "component x1", "component x1*x2"]
    assert "emergence time of axis 1" in names
    assert "learning time of component x1" in names
    means, expected = (
        comparison[name].sel(quantity="component x1").values for name in ("look_mean", "look_prediction")
    )
    np.testing.assert_allclose(means, expected, atol=0.02)


@pytest.mark.parametrize("factor", [1.3, 1 / 1.3])
def test_a_flow_with_times_thirty_percent_off_is_refuted(flow, runs, factor):
    assert sgd_check.compare(stretched(flow, factor), runs)["comparison"].attrs["verdict"] == "disagree"


def test_one_wrong_component_is_refuted_though_the_loss_is_right(flow, runs):
    wrong = flow.copy(deep=True)
    wrong["component"].values[:, 1] *= 1.3
    attrs = sgd_check.compare(wrong, runs)["comparison"].attrs
    assert attrs["verdict"] == "disagree"
    assert attrs["reasons"].startswith("The component x1*x2 is smaller than predicted")


def test_the_equation_of_finite_steps_is_tested_with_one_simulation(staircase, runs):
    stepped = dynamics.solve_problem(
        staircase, learning_rate=1e-3, step_theory="finite-d", save_at=TIMES, error_estimate=False, **QUIET
    )
    attrs = sgd_check.compare(stepped, runs[0])["comparison"].attrs
    assert (attrs["verdict"], attrs["theory"]) == ("agree", "finite step")
    with pytest.raises(ValueError, match="must be one Dataset, unless the prediction is a flow"):
        sgd_check.compare(stepped, [runs[0], runs[0]])


@pytest.mark.long
def test_a_teacher_of_units_is_judged_by_its_sensitivity():
    student = Student(activation="relu", width=3, second_layer="trained")
    problem = Problem(student=student, teacher=Teacher([1.0, -0.6]), dimension=10, initial_norm=0.5)
    flow = dynamics.solve_problem(problem, save_at=TIMES, error_estimate=False, **QUIET)
    runs = [
        sgd_check.simulate(problem, learning_rate=rate, steps=round(9 / rate), seeds=32, **QUIET)
        for rate in (6e-4, 3e-4)
    ]
    comparison = sgd_check.compare(flow, runs)["comparison"]
    assert comparison["quantity"].values.tolist()[:3] == ["loss", "sensitivity 1", "sensitivity 2"]
    assert comparison.attrs["verdict"] == "agree"


@pytest.mark.thorough
def test_a_step_size_that_moves_much_is_not_extrapolated_from(flow, staircase):
    coarse = [
        sgd_check.simulate(staircase, learning_rate=rate, steps=round(9.0 / rate), seeds=64, **QUIET)
        for rate in (0.08, 0.04)
    ]
    attrs = sgd_check.compare(flow, coarse)["comparison"].attrs
    assert attrs["verdict"] == "undecided"
    assert "too much to extrapolate from two learning rates: use smaller ones." in attrs["reasons"]


def test_another_student_is_refused(flow, staircase):
    other = replace(staircase, student=replace(staircase.student, decay=(0.1, 0.0)))
    runs = sgd_check.simulate(other, learning_rate=1e-3, steps=10, seeds=4, **QUIET)
    with pytest.raises(ValueError, match="must have the student of the prediction"):
        sgd_check.compare(flow, runs)


def test_findings_and_figure_show_components(flow, runs):
    tree = sgd_check.compare(flow, runs)
    found = find_findings(tree)
    assert [table.caption for table in found.tables] == ["Curves of SGD against prediction", "Evidence"]
    assert found.tables[0].rows[1]["what"] == "component x1"
    chart = found.chart()
    for at, curve in enumerate(chart.curves):
        times = tree["simulation"]["component_learned_time"].values[:, at]
        assert curve.facts["SGD, median t ="] == np.median(np.where(np.isnan(times), np.inf, times))
        np.testing.assert_equal(curve.predicted, float(flow.component_learned_time[at]))
    panels = plot_comparison(tree).axes
    assert panels[2].get_ylabel() == r"component $f_\alpha / f^*_\alpha$"
    assert [text.get_text() for text in panels[2].get_legend().get_texts()] == ["$x_{1}$", r"$x_{1}\,x_{2}$"]
