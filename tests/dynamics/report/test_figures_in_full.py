"""Figures leave nothing out: labels lie within them, legends name thresholds and steps, and no legend hides a curve."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import dynamics
from dynamics.report import networks, page
from dynamics.report.figures import headline, row_of, steps_in_words


@pytest.fixture(scope="module")
def network():
    student = dynamics.Student(activation="relu", width=2, scale="1/m", rates="mean-field")
    problem = dynamics.Problem(student=student, teacher=dynamics.Teacher([0.5, 0.4]), dimension=8, seed=1)
    return dynamics.solve_network(
        problem, t_max=20.0, method="explicit", rtol=1e-4, error_estimate=False, progress=False
    )


def names_of(ax):
    return ax.get_legend_handles_labels()[1]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_labels_of_a_row_of_panels_lie_within_the_figure_and_beside_other_panels(count, network):
    figure = row_of(network, [networks.plot_axes] * count, (4.4 * count, 4.2))
    figure.savefig("/dev/null", format="png")
    for before, ax in zip([None, *figure.axes], figure.axes, strict=False):
        box = ax.yaxis.label.get_window_extent()
        assert box.x0 > (0.0 if before is None else before.get_window_extent().x1)
        assert ax.xaxis.label.get_window_extent().y0 > 0.0


def test_thresholds_are_drawn_at_the_level_that_counts_and_named(network):
    ax = dynamics.plot_axes(network, Figure().subplots())
    level = dynamics.Problem.from_dataset(network).emergence_level
    (line,) = [line for line in ax.lines if line.get_label() == "emerged"]
    assert np.unique(line.get_ydata()).tolist() == [level]
    given = {"activation": "he4", "teacher": dynamics.Teacher([0.8, 0.6]), "width": 6, "dimension": 32}
    for level in (0.5, 0.8):
        answer = dynamics.solve_decoupled(dynamics.Problem(**given, emergence_level=level))
        ax = dynamics.plot_emergence(answer, Figure().subplots())
        (line,) = [line for line in ax.lines if line.get_label() == "emerged"]
        assert np.unique(line.get_ydata()).tolist() == [level]


def test_optimizer_and_learning_rate_are_named(network):
    assert steps_in_words(network.attrs) == ""
    stepped = network.assign_attrs(
        step_theory="finite-d", learning_rate=0.01, optimizer="Adam(beta1=0.9)", batch_size=4
    )
    told = r"Adam(beta1=0.9), $\eta = 0.01$, $B = 4$"
    assert headline(stepped).endswith(told)
    assert names_of(dynamics.plot_loss(stepped, Figure().subplots(), fit=False))[0] == told
    assert names_of(dynamics.plot_loss(network, Figure().subplots(), fit=False))[0] == "flow"
    descent = network.assign_attrs(method="gradient-descent", learning_rate=0.01)
    assert steps_in_words(descent.attrs) == r"gradient descent, $\eta = 0.01$"


def test_times_of_tokens_in_closed_form_are_named_above_the_curves():
    flow = dynamics.tokens.predict(dynamics.tokens.Composition(vocabulary=6, hops=4))
    time = np.linspace(0.0, 4.0, 5)
    rise = np.linspace(0.0, 1.0, 5)[:, None] * np.ones(flow.sizes["component"])
    flow = flow.assign_coords(time=time).assign(progress=(("time", "component"), rise))
    learned = flow["predicted_learned_time"].copy(data=np.full(flow.sizes["component"], 2.0))
    flow = flow.assign(predicted_learned_time=learned, learned_time=learned)
    ax = dynamics.plot_progress(flow, ax=Figure().subplots())
    assert names_of(ax)[-1] == "learned, closed form"
    ax.figure.canvas.draw()
    top = ax.transData.transform((0.0, 1.0))[1]
    assert ax.get_legend().get_window_extent().y0 > top


def test_plots_of_a_page_have_no_least_width_on_a_narrow_screen():
    css = Path(page.__file__).with_name("page.css").read_text(encoding="utf-8")
    narrow = css[css.index("@media screen and (max-width: 34rem)") :]
    assert "img, img.wide, .chart svg { min-width: 0; }" in narrow
    assert css.index("img.wide { min-width") < css.index("@media screen and (max-width: 34rem)"), "the later rule holds"
