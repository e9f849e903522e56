"""The figure of what is learned: lines are theory's components over the teacher's, bands quantiles of the runs."""

import numpy as np
import pytest
import xarray as xr

import dynamics
import sgd_check


@pytest.fixture(scope="module")
def tree():
    student = dynamics.Student(activation="h2(z)", width=2, second_layer="fixed", initial_second_layer=[1.0, -1.0])
    teacher = dynamics.Teacher.polynomial("-1*x1*x2")
    problem = dynamics.Problem(student=student, teacher=teacher, dimension=20, initial_norm=0.5, seed=1)
    flow = dynamics.solve_problem(problem, rtol=1e-6, progress=False)
    runs = [
        sgd_check.simulate(problem, learning_rate=rate, steps=round(2 / rate), seeds=6, progress=False)
        for rate in (4e-3, 2e-3)
    ]
    return sgd_check.compare(flow, runs)


@pytest.mark.long
def test_components_are_parts_of_their_teachers_and_bands_of_the_finer_runs(tree):
    ax = sgd_check.plot_learning(tree)
    prediction, finer = tree["prediction"], tree["finer"]
    assert ax.lines[0].get_ydata() == pytest.approx(-prediction["component"].values[:, 0], abs=1e-12)
    low, high = np.quantile(-finer["component"].values[..., 0], [0.1, 0.9], axis=0)
    drawn = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (drawn.min(), drawn.max()) == pytest.approx((low.min(), high.max()), abs=1e-12)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [r"$x_{1}\,x_{2}$"]


def test_the_loss_is_drawn_on_request(tree):
    ax = sgd_check.plot_learning(tree, quantity="loss")
    assert ax.get_yscale() == "log"
    assert ax.lines[0].get_ydata() == pytest.approx(tree["prediction"]["loss"].values)


def test_the_loss_of_an_average_stands_beside_the_loss_and_not_among_what_is_learned(tree):
    copy = tree.copy()
    copy["prediction"] = xr.DataTree(
        tree["prediction"].to_dataset().assign(average_loss=2 * tree["prediction"]["loss"])
    )
    ax = sgd_check.plot_learning(copy, quantity="loss")
    assert [line.get_linestyle() for line in ax.lines] == ["-", ":"]
    assert ax.lines[1].get_ydata() == pytest.approx(2 * tree["prediction"]["loss"].values)
    assert len(sgd_check.plot_learning(copy).lines) == len(sgd_check.plot_learning(tree).lines)


def test_another_quantity_is_refused(tree):
    with pytest.raises(ValueError, match=r"Argument `quantity` must be one of 'learned', 'loss', but is 'norm'\."):
        sgd_check.plot_learning(tree, quantity="norm")
