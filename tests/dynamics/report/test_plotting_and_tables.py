"""Figures say what the data say (asserted on their artists), and the table shows what was measured."""

import json
import math
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

import dynamics
from dynamics.report.findings import find_findings


@pytest.fixture(scope="module")
def flow():
    problem = dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher.power_law(6, 1.0), width=18, dimension=48, initial_norm=0.02
    )
    return dynamics.solve_overlaps(problem, progress=False)


@pytest.fixture
def ax():
    return Figure().subplots()


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_loss_figure_draws_flow_sum_formula_fit_and_asymptote(flow, ax):
    assert dynamics.plot_loss(flow, ax) is ax
    assert labels(ax)[:2] == ["flow", "sum formula"]
    assert labels(ax)[2].startswith("fit: $t^{-")
    assert labels(ax)[3] == "asymptotic (P, d → ∞): $t^{-1}$"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), flow.loss)
    dashed, low_high = ax.lines[2], find_findings(flow).values["exponents"][0]["window"]
    np.testing.assert_allclose(dashed.get_xdata(), low_high)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


@pytest.mark.parametrize("share", [0.0, 0.001])
def test_a_sum_formula_that_is_empty_in_the_window_has_no_exponent_there(flow, share):
    """Links with k <= 2 may have it so: their linearised flow can be over before the coupled one has learned much."""
    end = share * flow.time.values[-1]
    found = find_findings(flow.assign(predicted_loss=flow.predicted_loss.where(flow.time < end, 0.0)))
    law, usual = found.values["exponents"][0], find_findings(flow).values["exponents"][0]
    assert law["sum_formula"] is None
    assert "sum formula" not in law["text"]
    assert law["fitted"] == usual["fitted"]
    assert usual["sum_formula"] is not None


@pytest.mark.parametrize(
    ("x", "scale", "symbol", "label"),
    [("steps", 500.0, "s", "number of SGD steps $s$"), ("samples", 4000.0, "n", "samples $n$")],
)
def test_loss_is_drawn_over_steps_and_samples_with_the_same_exponents(flow, ax, x, scale, symbol, label):
    dynamics.plot_loss(flow, ax, x=x, learning_rate=2e-3, batch_size=8)
    over_time = Figure().subplots()
    dynamics.plot_loss(flow, over_time)
    for line, other in zip(ax.lines, over_time.lines, strict=True):
        np.testing.assert_allclose(line.get_xdata(), scale * np.asarray(other.get_xdata()), rtol=1e-12)
        np.testing.assert_allclose(line.get_ydata(), other.get_ydata(), rtol=1e-9)
    assert labels(ax) == [text.replace("$t^", f"${symbol}^") for text in labels(over_time)]
    assert (over_time.get_xlabel(), ax.get_xlabel()) == ("flow time $t$", label)


def test_steps_and_samples_need_the_rate_of_the_answer(flow):
    stepped = flow.assign_attrs(learning_rate=1e-3, batch_size=4)
    ends = [
        dynamics.plot_loss(stepped, Figure().subplots(), x=x).lines[0].get_xdata()[-1] for x in ("steps", "samples")
    ]
    np.testing.assert_allclose(ends, float(flow.time[-1]) * np.array([1e3, 4e3]))
    limit = dynamics.learning_rate_limit(dynamics.Problem.from_dataset(flow), batch_size=4)
    share = dynamics.plot_loss(flow, Figure().subplots(), x="samples", learning_rate="0.1x", batch_size=4).lines[0]
    np.testing.assert_allclose(share.get_xdata()[-1], float(flow.time[-1]) * 4 / (0.1 * limit))
    for answer, given, error, said in [
        (flow, {"x": "steps"}, TypeError, "Argument `learning_rate` must be given for `x` = 'steps' of an answer that"),
        (
            flow,
            {"learning_rate": 0.1},
            ValueError,
            "Argument `learning_rate` must be None where `x` is 'time', but is 0",
        ),
        (flow, {"x": "epochs"}, ValueError, "Argument `x` must be "),
        (flow, {"x": "steps", "learning_rate": -1.0}, ValueError, "Argument `learning_rate` must be "),
        (
            stepped,
            {"x": "samples", "batch_size": 2},
            ValueError,
            "Argument `batch_size` must be that of the answer, 4, but",
        ),
    ]:
        with pytest.raises(error, match=f"^{re.escape(said)}"):
            dynamics.plot_loss(answer, **given)


def test_emergence_figure_has_a_curve_and_a_tick_per_direction(flow, ax):
    dynamics.plot_emergence(flow, ax)
    curves = [line for line in ax.lines if len(line.get_xdata()) == flow.sizes["time"]]
    assert len(curves) == 6
    expected = (flow.teacher_overlap.isel(direction=0) ** 2).max("neuron")
    np.testing.assert_allclose(curves[0].get_ydata(), expected)
    ticks = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "|"]
    np.testing.assert_allclose(ticks, flow.predicted_emergence_time)


def test_times_figure_has_a_point_per_direction_and_arrows_for_those_not_emerged(flow, ax):
    partly = flow.copy(deep=True)
    partly["emergence_time"][5] = np.nan
    dynamics.plot_emergence_times(partly, ax)
    points = {line.get_label(): line for line in ax.lines}
    np.testing.assert_allclose(points["exact transit of the pair"].get_ydata(), flow.emergence_time[:5])
    assert len(points["not emerged by the end"].get_xdata()) == 1
    assert len(points["leading order"].get_xdata()) == 5


def test_overlap_figures_need_a_history(flow, ax):
    bare = flow.drop_vars("teacher_overlap")
    with pytest.raises(ValueError, match="must hold an overlap history"):
        dynamics.plot_emergence(bare, ax)


def test_json_has_null_where_there_is_no_number(flow):
    partly = flow.copy(deep=True)
    partly["emergence_time"][5] = np.nan
    stored = json.loads(find_findings(partly).as_json({}))
    assert stored["directions"][5]["emergence_time"] is None
    assert math.isfinite(stored["exponents"][0]["standard_error"])
