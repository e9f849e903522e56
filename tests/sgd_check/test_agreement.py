"""The experiment against the exact flow, at d = 64 and k = 4: one long simulation, many questions."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import sgd_check
from sgd_check.table import as_json, as_text, rows


@pytest.fixture(scope="module")
def tree(escape_flow, escape_runs):
    return sgd_check.compare(escape_flow, escape_runs)


@pytest.mark.statistical
def test_sgd_agrees_with_the_flow(tree):
    """False-alarm rate of the verdict: 1 %, with fixed seeds."""
    comparison = tree["comparison"]
    assert comparison.attrs["verdict"] == "agree", comparison.attrs["reasons"]
    assert comparison["censored_count"].values.tolist() == [0, 0]
    assert comparison.attrs["tested_directions"] == 2
    assert float(comparison["p_value"]) >= 0.01


@pytest.mark.statistical
@pytest.mark.parametrize(("stretch", "side"), [(1.3, "early"), (1 / 1.3, "late")])
def test_a_prediction_off_by_thirty_percent_is_refuted(tools, escape, escape_runs, stretch, side):
    flow = tools.flow(escape, np.geomspace(0.02, 1.06, 20), stretch=stretch)
    comparison = sgd_check.compare(flow, escape_runs)["comparison"]
    assert comparison.attrs["verdict"] == "disagree"
    assert float(comparison["p_value"]) < 0.01
    assert side in comparison.attrs["reasons"]


@pytest.mark.statistical
def test_a_direction_beyond_the_horizon_is_not_tested_unless_all_runs_have_it(escape_flow, escape_runs):
    """False-alarm rate of the second verdict: 1 %, with fixed seeds."""
    far = escape_flow.copy(deep=True)
    far["emergence_time"][1] = 5.0
    assert sgd_check.compare(far, escape_runs)["comparison"].attrs["verdict"] == "disagree"
    cut = escape_runs.copy(deep=True)
    cut["emergence_time"][:4, 1] = np.nan
    comparison = sgd_check.compare(far, cut)["comparison"]
    assert comparison.attrs["verdict"] == "agree"
    assert comparison.attrs["tested_directions"] == 1
    assert "predicted never or beyond the horizon: direction 2." in comparison.attrs["reasons"]


@pytest.mark.statistical
def test_runs_follow_the_flow_before_emergence(escape_flow, escape_runs):
    """Mean matched overlap at half the first emergence time; z < 5 after the allowed delay of 4 %."""
    at = 0.5 * float(escape_flow["emergence_time"][0])
    runs = escape_runs["teacher_overlap"].sel(time=at, method="nearest")
    for p in (0, 1):
        sample = runs[:, p, p].values
        # An allowed delay of δ moves the overlap back along the flow, to the time at/(1 + δ)² at the earliest.
        band = np.interp(
            [float(runs["time"]) / 1.04**2, float(runs["time"])],
            escape_flow["time"].values,
            escape_flow["teacher_overlap"].values[:, p, p],
        )
        error = sample.std(ddof=1) / np.sqrt(32)
        assert band[0] - 5 * error < sample.mean() < band[1] + 5 * error
        assert band[1] > escape_flow["teacher_overlap"].values[0, p, p] + 3 * error


def test_the_simulation_describes_itself(escape, escape_runs):
    attrs = escape_runs.attrs
    assert attrs["stop_reason"] == "reached_end"
    assert attrs["engine"] == "projected"
    assert attrs["simulated_link"] == "he4 (polynomial)"
    assert attrs["end_step"] == attrs["steps"] == 125_000
    assert attrs["end_time"] == pytest.approx(125_000 * 0.03 / 64**2)
    assert attrs["above_limit"] == 0
    assert attrs["learning_rate"] == attrs["effective_learning_rate"] == 0.03 / 64**2
    assert attrs["learning_rate"] < attrs["learning_rate_limit"]
    assert attrs["steps_per_second"] > 0
    assert escape_runs["teacher_overlap"].dims == ("seed", "time", "neuron", "direction")
    assert escape_runs["step"].values[0] == 0
    start = escape.start()
    np.testing.assert_allclose(escape_runs["teacher_overlap"].values[5, 0], start.teacher_overlap, atol=1e-14)
    np.testing.assert_allclose(
        escape_runs["squared_norm"].values[:, 0], np.tile(start.squared_norm, (32, 1)), rtol=1e-13
    )


def test_loss_starts_where_the_flow_starts_and_falls(escape_flow, escape_runs):
    assert escape_runs["loss"].values[:, 0] == pytest.approx(np.full(32, escape_flow["loss"].values[0]), rel=2e-3)
    assert (escape_runs["loss"].values[:, -1] < escape_runs["loss"].values[:, 0]).all()


def test_emergence_lies_between_the_records_that_straddle_it(escape_runs):
    squared = np.max(escape_runs["teacher_overlap"].values ** 2, axis=2)
    time, step = escape_runs["time"].values, escape_runs["emergence_time"].values
    for s in range(32):
        for p in range(2):
            first = int(np.argmax(squared[s, :, p] >= 0.5))
            assert step[s, p] <= time[first]


@pytest.mark.statistical
def test_the_pair_prediction_is_accepted_as_prediction_too(escape, escape_runs):
    """Pairs alone describe this start as well as the flow does; false-alarm rate 1 %, with fixed seeds."""
    from dynamics.answers import predict_emergence

    comparison = sgd_check.compare(predict_emergence(escape), escape_runs)["comparison"]
    assert comparison.attrs["prediction"] == "prediction"
    assert comparison.attrs["verdict"] == "agree", comparison.attrs["reasons"]
    assert np.isfinite(comparison["z_score"].values).all()


def test_figure_shows_times_overlaps_and_loss(tree):
    figure = sgd_check.plot_comparison(tree)
    times, overlaps, loss = figure.axes
    assert times.get_title().startswith("agree: 32 runs")
    assert overlaps.get_title() == "thin: runs, thick: flow"
    assert loss.get_yscale() == "log"
    figure.canvas.draw()


def test_a_figure_without_histories_or_loss_shows_the_runs(escape_flow, escape_runs):
    bare = escape_flow.drop_vars(["teacher_overlap", "loss"])
    figure = sgd_check.plot_comparison(sgd_check.compare(bare, escape_runs))
    assert figure.axes[1].get_title() == "runs"
    figure.canvas.draw()


def test_a_figure_counts_runs_that_did_not_emerge_or_blew_up(escape_flow, escape_runs):
    cut = escape_runs.copy(deep=True)
    cut["emergence_time"][:3, 1] = np.nan
    cut["censored"][:3, 1] = 1
    cut["blown_up"][31] = 1
    tree = sgd_check.compare(
        escape_flow.rename(teacher_overlap="other").assign(max_overlap=lambda d: d["other"][:, 0]), cut
    )
    figure = sgd_check.plot_comparison(tree)
    assert "3" in [text.get_text() for text in figure.axes[0].texts]
    assert figure.axes[0].get_title().endswith("31 runs, 1 blown up")
    assert figure.axes[1].get_title() == "thin: runs, thick: flow"
    figure.canvas.draw()


def test_figures_of_odd_links_count_only_overlaps_above_zero(tools):
    """At k = 3 a neuron opposite to a direction, C = -0.9, does not draw it as emerged; at k = 4 it does."""
    for activation, highest in (("he3", 0.3**2), ("he4", 0.9**2)):
        problem = tools.problem([[0.3], [-0.9]], coefficients=(1.0,), dimension=8, activation=activation)
        flow = tools.flow(problem, np.array([1e-7, 2e-7]))
        runs = sgd_check.simulate(problem, learning_rate=1e-9, steps=20, seeds=4, progress=False)
        axes = sgd_check.plot_comparison(sgd_check.compare(flow, runs)).axes[1]
        curves = [line.get_ydata() for line in axes.lines if len(line.get_ydata()) and line.get_linestyle() == "-"]
        assert len(curves) == 5, "four runs and the flow"
        for curve in curves:
            np.testing.assert_allclose(curve, highest, rtol=1e-4)
        matched = flow.drop_vars("teacher_overlap").assign(overlap=flow["teacher_overlap"][:, 1])
        axes = sgd_check.plot_comparison(sgd_check.compare(matched, runs)).axes[1]
        alone = 0.0 if activation == "he3" else 0.9**2
        np.testing.assert_allclose(axes.lines[4].get_ydata(), alone, rtol=1e-4)


def test_plot_functions_draw_where_they_are_told(tree):
    ax = Figure().subplots()
    assert sgd_check.plot_times(tree, ax) is ax
    assert sgd_check.plot_times(tree).get_figure() is not ax.get_figure()
    axes = Figure().subplots(1, 3)
    assert sgd_check.plot_comparison(tree, list(axes)) is axes[0].get_figure()
    with pytest.raises(ValueError, match=r"^Argument `axes` must be three axes, but has 1\.$"):
        sgd_check.plot_comparison(tree, [ax])


def test_table_and_json_hold_the_same_numbers(tree, tmp_path):
    import json

    records = rows(tree)
    assert [r["direction"] for r in records] == [1, 2]
    assert records[0]["ratio"] == pytest.approx(float(np.exp(tree["comparison"]["mean_log_ratio"][0])))
    found = json.loads(as_json(tree, tmp_path / "a.nc", None))
    assert found["verdict"] == "agree"
    assert found["directions"] == records
    assert found["plot"] is None
    text = as_text(tree, tmp_path / "a.nc", tmp_path / "a.png")
    assert "verdict: agree (false-alarm rate 0.01)" in text
    assert text.splitlines()[-1] == f"written: {tmp_path / 'a.nc'}, {tmp_path / 'a.png'}"


def test_a_comparison_survives_a_file(tree, tmp_path):
    from dynamics.storage import load, save

    back = load(save(tree, tmp_path / "tree.nc"))
    assert back["comparison"].attrs["verdict"] == "agree"
    np.testing.assert_array_equal(back["comparison"]["emergence_ratio"], tree["comparison"]["emergence_ratio"])
    again = sgd_check.compare(back["prediction"].to_dataset(), back["simulation"].to_dataset())["comparison"]
    np.testing.assert_array_equal(again["z_score"], tree["comparison"]["z_score"])


def test_runs_that_stopped_early_do_not_agree_on_what_they_never_reached(escape_flow, escape_runs):
    stopped = escape_runs.copy(deep=True)
    stopped["emergence_time"][:, 1] = np.nan
    stopped["censored"][:, 1] = True
    stopped.attrs |= {"end_time": 0.5, "stop_reason": "interrupted"}
    attrs = sgd_check.compare(escape_flow, stopped)["comparison"].attrs
    assert attrs["verdict"] == "undecided"
    assert "The runs stopped early (interrupted), before direction 2 could be tested." in attrs["reasons"]
    finished = stopped.assign_attrs(stop_reason="reached_end")
    assert sgd_check.compare(escape_flow, finished)["comparison"].attrs["verdict"] == "agree"
