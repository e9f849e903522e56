"""The one look of figures: styles and their fonts, ticks, names of curves, and numbers rounded by their errors."""

import inspect
import math
import re

import numpy as np
import pytest
from matplotlib import pyplot, rcParams

import dynamics
import sgd_check
from dynamics.report.figures import (
    finish_panel,
    new_panels,
    share_bars,
)
from dynamics.report.findings import Table
from hermite.text.messages import with_error


@pytest.fixture(scope="module")
def answer():
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.1]), width=2, dimension=64)
    return dynamics.solve_decoupled(problem)


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


def test_tables_round_numbers_by_the_errors_beside_them():
    rows = [{"law": "L", "x": 1.0262, "s.e.": 0.039245}, {"law": "T", "x": 0.123456, "s.e.": math.nan}]
    shown, _ = Table(caption="Exponents", rows=rows, errors={"x": "s.e."}).spread(10)
    assert [getattr(shown[0][name], "text", None) for name in ("x", "s.e.")] == ["1.03", "0.04"]
    assert shown[0]["x"] == 1.0262
    assert shown[1] == rows[1]


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


def test_every_public_plot_takes_axes_and_a_style():
    plots = [
        getattr(package, name) for package in (dynamics, sgd_check) for name in dir(package) if name.startswith("plot_")
    ]
    assert len(plots) == 16
    for plot in plots:
        parameters = inspect.signature(plot).parameters
        assert parameters["style"].default is None
        assert {"ax", "axes"} & set(parameters)


def test_an_unknown_style_is_refused(answer):
    message = r"Argument `style` must be one of 'screen', 'paper', 'talk', but is 'poster'\."
    with pytest.raises(ValueError, match=message):
        dynamics.plot_loss(answer, style="poster")
    with pytest.raises(ValueError, match=message), dynamics.figure_style("poster"):
        pass


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


def test_intervals_of_shares_are_wilsons():
    # z = 2: of 0 in 10 up to 4/14, of 5 in 10 1/2 ± sqrt(1/40 + 1/100)/1.4.
    down, up = share_bars(np.array([0.0, 0.5]), 10)
    np.testing.assert_allclose(up, [4 / 14, 2 * math.sqrt(0.25 / 10 + 4 / 400) / 1.4])
    np.testing.assert_allclose(down, [0.0, up[1]])
