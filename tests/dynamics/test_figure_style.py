"""The one look of figures: styles and their fonts, ticks, names of curves, and numbers rounded by their errors."""

from __future__ import annotations

import inspect
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot, rcParams
from matplotlib.figure import Figure

import dynamics
import sgd_check
from dynamics.commands.options import STYLE
from dynamics.commands.parsing import UsageError, chosen_style
from dynamics.report import flows
from dynamics.report.figures import (
    STYLES,
    component_formula,
    finish_panel,
    formula,
    given_panels,
    log_band,
    name_curves,
    new_panels,
    plain_text,
    power,
    shades,
    share_bars,
)
from dynamics.report.findings import Table, find_findings
from dynamics.report.laws import law_formula
from hermite.text.messages import rounded, with_error


@pytest.fixture(scope="module")
def answer():
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.1]), width=2, dimension=64)
    return dynamics.solve_decoupled(problem)


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1.0262, 0.039245, "1.03 ± 0.04"),
        (-1.42, 0.22, "-1.42 ± 0.22"),
        (1234.0, 56.0, "1230 ± 60"),
        (1.0, 0.0999, "1.00 ± 0.10"),
        (1.5e-7, 2e-9, "(1.500 ± 0.020)e-07"),
        (0.25, math.nan, "0.25"),
        (math.nan, 0.1, "-"),
        (2.0, 0.0, "2"),
    ],
)
def test_numbers_are_rounded_by_their_errors(value, error, text):
    assert with_error(value, error) == text


@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e6))
def test_what_is_shown_is_nearer_than_a_third_of_the_error(value, error):
    shown, shown_error = map(float, rounded(value, error))
    # A digit of the error is at least 1/9.5 of it, and rounding changes half of one.
    assert abs(shown - value) <= error * 0.15 + 1e-12 * abs(value)
    assert shown_error == pytest.approx(error, rel=0.15)


def test_formulas_have_true_minus_signs_and_powers():
    assert power("t", -1.416, 0.22) == r"$t^{-1.42 \pm 0.22}$"
    assert formula(1.5e-7, 2e-9) == r"$(1.500 \pm 0.020)\cdot 10^{-7}$"
    assert [formula(1e6), formula(-1e-5), formula(3200.0)] == ["$10^{6}$", "$-10^{-5}$", r"$3.2\cdot 10^{3}$"]
    assert component_formula("h2(x1)*x12") == r"$h_{2}(x_{1})\,x_{12}$"
    assert law_formula("loss-samples-tuned", typeset=True) == r"$L \propto n^x$, tuned step"
    assert plain_text("a $b$") == r"a \$b\$"


def test_tables_round_numbers_by_the_errors_beside_them():
    rows = [{"law": "L", "x": 1.0262, "s.e.": 0.039245}, {"law": "T", "x": 0.123456, "s.e.": math.nan}]
    shown, _ = Table(caption="Exponents", rows=rows, errors={"x": "s.e."}).spread(10)
    assert [getattr(shown[0][name], "text", None) for name in ("x", "s.e.")] == ["1.03", "0.04"]
    assert shown[0]["x"] == 1.0262
    assert shown[1] == rows[1]


# --- styles ----------------------------------------------------------------------------------------------------------


def test_styles_are_those_of_the_command_line():
    assert set(STYLES) == set(STYLE.choices)
    assert chosen_style({"style": None}) == "screen"
    with pytest.raises(UsageError, match=r"Option --style must be one of screen, paper, talk, but is 'papers'\."):
        chosen_style({"style": "papers"})


@pytest.mark.parametrize("style", ["screen", "paper", "talk"])
def test_figures_have_the_size_of_their_style_and_embedded_fonts(answer, tmp_path, style):
    ax = dynamics.plot_loss(answer, style=style)
    figure = ax.figure
    widths = {"screen": 6.8, "paper": 3.4, "talk": 5.2}
    letters = {"screen": rcParams["font.size"], "paper": 7.5, "talk": 11.0}
    assert figure.get_size_inches()[0] == widths[style]
    assert ax.xaxis.label.get_fontsize() == letters[style]
    # After the block of the style: the figure keeps its own.
    figure.savefig(tmp_path / "loss.pdf")
    figure.savefig(tmp_path / "loss.svg")
    pyplot.close(figure)
    written = (tmp_path / "loss.pdf").read_bytes()
    assert b"/FontFile2" in written
    assert b"/Type3" not in written
    width = float(re.search(rb"/MediaBox \[ 0 0 ([0-9.]+) ", written)[1])
    assert width == pytest.approx(72.0 * widths[style], abs=0.01)
    assert "<text" not in (tmp_path / "loss.svg").read_text()


def test_lines_are_thinner_on_paper_however_often_they_are_drawn(tmp_path):
    widths = {}
    for style in STYLES:
        with dynamics.figure_style(style):
            figure, ax = new_panels((6.8, 4.4))
            (line,) = ax.plot([0.0, 1.0], lw=2.0, label="line")
            ax.legend()
        for _ in range(2):
            figure.savefig(tmp_path / "lines.png")
        (named,) = ax.get_legend().get_lines()
        widths[style] = (line.get_linewidth(), named.get_linewidth())
    assert widths == {"screen": (2.0, 2.0), "paper": (1.2, 1.2), "talk": (2.0, 2.0)}


def test_every_public_plot_takes_axes_and_a_style():
    plots = [
        getattr(package, name) for package in (dynamics, sgd_check) for name in dir(package) if name.startswith("plot_")
    ]
    assert len(plots) == 16
    for plot in plots:
        parameters = inspect.signature(plot).parameters
        assert parameters["style"].default is None
        assert {"ax", "axes"} & set(parameters)


def test_axes_may_come_alone_in_a_list_or_in_an_array_of_any_shape(answer):
    ax, *others = (axes := Figure().subplots(2, 2)).ravel()
    assert dynamics.plot_loss(answer, ax) is dynamics.plot_loss(answer, [ax]) is ax
    assert given_panels("axes", axes, 4).tolist() == given_panels("axes", axes.tolist(), 4).tolist() == [ax, *others]
    with pytest.raises(ValueError, match=r"^Argument `ax` must be 1 axes, but has 4\.$"):
        dynamics.plot_loss(answer, axes)
    with pytest.raises(TypeError, match=r"^Argument `ax` must be matplotlib's axes, but is <Figure"):
        dynamics.plot_loss(answer, ax.figure)


def test_an_unknown_style_is_refused(answer):
    message = r"Argument `style` must be one of 'screen', 'paper', 'talk', but is 'poster'\."
    with pytest.raises(ValueError, match=message):
        dynamics.plot_loss(answer, style="poster")
    with pytest.raises(ValueError, match=message), dynamics.figure_style("poster"):
        pass


# --- panels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "labels"),
    [
        ((0.9, 250.0), ["1", "10", "100"]),
        ((3.0, 60.0), ["5", "10", "20", "50"]),
        ((1.05, 4.9), ["1.5", "2", "3"]),
        ((0.101, 0.49), ["0.15", "0.2", "0.3"]),
        ((1e-6, 1.0), ["10⁻⁶", "10⁻⁴", "10⁻²", "10⁰"]),
        ((2e4, 2e5), ["2·10⁴", "5·10⁴", "10⁵", "2·10⁵"]),
        ((0.9999, 1.0002), ["0.9999", "1", "1.0001", "1.0002"]),
    ],
)
def test_log_axes_have_one_kind_of_labels(limits, labels):
    figure, ax = new_panels((6.8, 4.4))
    ax.set(xscale="log", xlim=limits)
    finish_panel(ax, "x", "y")
    figure.draw_without_rendering()
    seen = [
        tick.get_text()
        for tick, at in zip(ax.get_xticklabels(), ax.get_xticks(), strict=True)
        if limits[0] <= at * (1 + 1e-12) and at <= limits[1] * (1 + 1e-12)
    ]
    assert [label for label in seen if label in labels] == labels
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("limits", [(1e-6, 1.0), (1e-7, 3e-6)])
def test_a_log_axis_that_runs_backwards_has_the_same_labels(limits):
    labels = []
    for ends in (limits, limits[::-1]):
        figure, ax = new_panels((6.8, 4.4))
        ax.set(xscale="log", xlim=ends)
        finish_panel(ax, "x", "y")
        figure.draw_without_rendering()
        ticks = zip(ax.get_xticklabels(), ax.get_xticks(), strict=True)
        labels.append({tick.get_text() for tick, at in ticks if limits[0] <= at <= limits[1]})
    assert labels[0] == labels[1]
    assert all("10" in label for label in labels[0])


@pytest.mark.parametrize("finished", [(0.9, 250.0), (3.0, 60.0), (1e-6, 1.0)])
def test_limits_that_change_later_have_one_kind_of_labels_too(finished):
    figure, ax = new_panels((6.8, 4.4))
    ax.set(xscale="log", xlim=finished)
    finish_panel(ax, "x", "y")
    # Less than a decade: matplotlib's ticks are then those of a linear axis, some of them outside, at 0 too.
    ax.set_xlim(0.5, 4.5)
    figure.draw_without_rendering()
    seen = {
        tick.get_text(): at for tick, at in zip(ax.get_xticklabels(), ax.get_xticks(), strict=True) if 0.5 <= at <= 4.5
    }
    assert seen
    assert all(text == f"{at:g}" for text, at in seen.items())


@pytest.mark.parametrize(
    ("ends", "beside", "legend", "bars"),
    [
        ([0.3, 0.6, 0.9], 3, 0, 0),
        ([0.5, 0.52, 0.9], 0, 3, 0),
        ([0.3, np.nan], 0, 2, 0),
        (np.linspace(0.1, 0.9, 9), 0, 0, 1),
    ],
)
def test_curves_are_named_beside_themselves_where_there_is_room(ends, beside, legend, bars):
    _, ax = new_panels((6.8, 4.4))
    lines = [ax.plot([0.0, 1.0], color=colour)[0] for colour in shades(len(ends))]
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
    name_curves(ax, "$p$", lines, range(1, len(ends) + 1), ends)
    finish_panel(ax, "x", "y")
    named = ax.get_legend().get_texts() if ax.get_legend() else []
    assert (len(ax.texts), len(named), len(ax.child_axes)) == (beside, legend, bars)


def test_no_panel_is_empty(answer):
    late = answer.copy(deep=True)
    late["emergence_time"][:] = np.nan
    assert len(find_findings(answer).overview().axes) == 3
    assert len(find_findings(late).overview().axes) == 2


def test_ticks_of_predictions_beyond_the_axis_are_not_drawn(answer):
    cut = answer.isel(time=slice(0, int((answer["time"] < 2.0 * answer["emergence_time"][0]).sum())))
    ax = flows.plot_emergence(cut, Figure().subplots())
    assert all(line.get_clip_on() for line in ax.lines)
    assert ax.get_xlim()[1] < float(answer["predicted_emergence_time"][1])


def test_intervals_of_shares_are_wilsons():
    # z = 2: of 0 in 10 up to 4/14, of 5 in 10 1/2 ± sqrt(1/40 + 1/100)/1.4.
    down, up = share_bars(np.array([0.0, 0.5]), 10)
    np.testing.assert_allclose(up, [4 / 14, 2 * math.sqrt(0.25 / 10 + 4 / 400) / 1.4])
    np.testing.assert_allclose(down, [0.0, up[1]])


def test_bands_hold_two_standard_errors_and_end_with_the_runs():
    runs = np.array([[1.0, 1.0, np.nan], [np.e, 1e-200, np.nan], [np.e**2, 0.0, np.nan]])
    mean, low, high = log_band(runs)
    # ln of the first column: 0, 1, 2, of deviation 1 and error 1/sqrt(3); of the second: one run stands at 10^-200.
    np.testing.assert_allclose([mean[0], low[0]], np.exp([1.0, max(0.0, 1.0 - 2.0 / math.sqrt(3.0))]))
    np.testing.assert_allclose([mean[1], low[1], high[1]], [1e-100, 1e-200, 1.0])
    assert np.isnan([mean[2], low[2], high[2]]).all()
