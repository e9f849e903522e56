"""The figure of a check by curves: the mean of the runs, and beside it the mean at two learning rates taken to none."""

import numpy as np
import pytest

import dynamics
import sgd_check
from sgd_check.report.figures import EXTRAPOLATED


@pytest.fixture(scope="module")
def tree():
    problem = dynamics.Problem(activation="tanh", teacher=dynamics.Teacher([1.0]), width=1, dimension=8, seed=1)
    return sgd_check.check(problem, learning_rate=0.1, steps=150, seeds=8, theory="flow", progress=False)


def test_the_mean_of_runs_is_theirs_and_the_extrapolated_one_has_its_name(tree):
    assert "finer" in tree.children
    upper = sgd_check.plot_loss_band(tree)[0]
    lines = {line.get_label(): line for line in upper.lines}
    runs = tree["simulation"]["loss"]
    np.testing.assert_allclose(lines["runs, mean"].get_ydata(), runs.mean("seed"), rtol=1e-12)
    assert np.all(lines["runs, mean"].get_ydata() >= runs.min("seed"))
    np.testing.assert_array_equal(lines[EXTRAPOLATED].get_ydata(), tree["comparison"]["mean_loss"])
    assert lines[EXTRAPOLATED].get_linestyle() == "--"


def test_times_that_are_extrapolated_say_so_and_no_point_lies_under_the_legend(tree):
    ax = sgd_check.plot_times(tree)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert EXTRAPOLATED in texts[0]
    assert "single runs" in texts
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent()
    points = np.concatenate(
        [ax.transData.transform(line.get_xydata()) for line in ax.lines if line.get_marker() == "."]
    )
    assert not any(box.contains(*point) for point in points)
