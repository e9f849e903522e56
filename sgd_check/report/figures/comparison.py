"""The figure of a comparison, and its panel of emergence times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import (
    PREDICTED,
    REFERENCE,
    axes_or_new,
    figure_style,
    finish_panel,
    given_panels,
    new_figure,
    small,
)
from sgd_check.report.curves import by_curves
from sgd_check.report.figures.learning import plot_learning
from sgd_check.report.figures.loss import plot_loss_band
from sgd_check.report.figures.recovery import plot_law_test
from sgd_check.report.figures.runs import plot_overlaps, plot_survival
from sgd_check.report.figures.style import SIMULATED, compared_parts
from sgd_check.report.figures.widths import plot_widths
from sgd_check.verdicts.alignment import ALIGNMENT, event_of, of_sound_runs
from sgd_check.verdicts.mean_field import THEORY
from sgd_check.verdicts.recovery import THEORY as LAW

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hermite.arrays import Array
    from sgd_check.verdicts.alignment import Event

PANELS = 5


def plot_comparison(tree: xr.DataTree, axes: Sequence[Axes] | None = None, *, style: str | None = None) -> Figure:
    """Draw emergence times, overlaps, survival and loss of the runs against the prediction.

    Where curves decide (information exponents up to 2, networks) what is learned over time stands in place of the
    survival.

    Against a mean field, `sgd_check.report.figures.widths.plot_widths` draws losses, distances and exponents on four
    axes, and against the law of an estimator the estimates on one.

    Parameters
    ----------
    tree : DataTree
        Result of `sgd_check.compare`.
    axes : sequence of Axes, optional
        Where to draw times, overlaps, survival, loss and its residual (five), what belongs to a mean field (four), or
        to the law of an estimator (one); by default a new figure.
    style : {"screen", "paper", "talk"}, optional
        Of a new figure; see `figure_style`.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        If `axes` are not so many.
    """
    with figure_style(style):
        return _drawn(tree, axes)


def _drawn(tree: xr.DataTree, axes: Sequence[Axes] | None) -> Figure:
    """Return the figure for what was compared."""
    theory = compared_parts(tree)[0].attrs["theory"]
    if theory == THEORY:
        return plot_widths(tree, axes)
    if theory == LAW:
        return plot_law_test(tree, axes)
    panels: Any = _new_panels() if axes is None else given_panels("axes", axes, PANELS)
    plot_times(tree, panels[0])
    plot_overlaps(tree, panels[1])
    (plot_learning if by_curves(tree) else plot_survival)(tree, panels[2])
    plot_loss_band(tree, (panels[3], panels[4]))
    figure: Figure = panels[0].get_figure()
    return figure


def _new_panels() -> list[Axes]:
    figure: Any = new_figure((11.0, 8.2))
    grid = figure.add_gridspec(2, 2)
    halves = grid[1, 1].subgridspec(2, 1, height_ratios=[2.4, 1], hspace=0.05)
    places = [grid[0, 0], grid[0, 1], grid[1, 0], halves[0], halves[1]]
    return [figure.add_subplot(place) for place in places]


def plot_times(tree: xr.DataTree, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw simulated against predicted emergence times, one point with error bar per direction.

    Dots are single runs; the error bar is the geometric mean with twice its standard error; the short orange line spans
    the band that theory allows the mean, or, across, the middle 80 % of the predicted runs; triangles count runs
    without emergence, at the horizon.

    Parameters
    ----------
    tree : DataTree
        Result of `sgd_check.compare`.
    ax : Axes, optional
    style : {"screen", "paper", "talk"}, optional
        Of new axes; see `figure_style`.

    Returns
    -------
    Axes
    """
    comparison, simulation, _ = compared_parts(tree)
    ax = axes_or_new(ax, style)
    predicted, ratio = comparison["emergence_time"].values, comparison["emergence_ratio"].values
    horizon = float(simulation.attrs["end_time"])
    kept = np.flatnonzero(np.isfinite(predicted))
    for p in kept.tolist():
        ax.plot(
            np.full(ratio.shape[0], predicted[p]), ratio[:, p] * predicted[p], ".", color=SIMULATED, ms=4, alpha=0.3
        )
        _draw_theory(ax, tree, p)
        mean, error = comparison["mean_log_ratio"].values[p], comparison["standard_error"].values[p]
        if np.isfinite(mean):
            low, mid, high = predicted[p] * np.exp(mean + 2 * error * np.array([-1, 0, 1]))
            ax.errorbar(predicted[p], mid, yerr=[[mid - low], [high - mid]], fmt="o", color=SIMULATED, ms=5, capsize=3)
        count = int(comparison["censored_count"].values[p])
        if count:
            ax.plot(predicted[p], horizon, "^", color=SIMULATED, mfc="none", ms=7)
            ax.annotate(
                f"{count}", (predicted[p], horizon), (0, 7), textcoords="offset points", ha="center", fontsize=small(ax)
            )
    _finish_times(ax, comparison, predicted[kept], event_of(simulation))
    return ax


def _draw_theory(ax: Axes, tree: xr.DataTree, p: int) -> None:
    """Draw the allowed band of the mean upwards, or the spread of the predicted runs across."""
    comparison, _, prediction = compared_parts(tree)
    time = float(comparison["emergence_time"].values[p])
    if comparison.attrs["theory"] == "sample":
        sample = of_sound_runs(prediction, "emergence_time")[:, p]
        ends = np.nanquantile(sample, [0.1, 0.9])
        ax.plot(ends, [time, time], color=PREDICTED, lw=2, alpha=0.7)
        return
    low, high = (float(comparison[name].values[p]) for name in ("band_low", "band_high"))
    if np.isfinite(low) and np.isfinite(high):
        ax.plot(
            [time] * 2, time * np.exp([low, high]), color=PREDICTED, lw=12, alpha=0.4, solid_capstyle="butt", zorder=1
        )


def _finish_times(ax: Axes, comparison: xr.Dataset, predicted: Array, event: Event) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if predicted.size:
        span = np.array([predicted.min() / 1.3, predicted.max() * 1.3])
        ax.plot(span, span, ":", color=REFERENCE, lw=1)
        ax.set(xscale="log", yscale="log")
        ax.margins(y=0.12)
    theory = comparison.attrs["theory"]
    if theory == "sample":
        band: Any = Line2D([], [], color=PREDICTED, lw=2, alpha=0.7, label="predicted runs, 10 to 90 %")
    else:
        words = "flow to twice the delay" if theory == "flow" else "finite step, band of the mean"
        is_other = comparison.attrs.get("decided_by") == "curves" or event is ALIGNMENT
        words = "band of the mean" if is_other else words
        band = Patch(color=PREDICTED, alpha=0.45, label=f"theory: {words}")
    handles = [Line2D([], [], marker="o", color=SIMULATED, label="SGD: mean ± 2 s.e."), band]
    if int(comparison["censored_count"].values.sum()):
        handles.append(
            Line2D([], [], marker="^", ls="", mfc="none", color=SIMULATED, label="runs without, at the horizon")
        )
    blown = int(comparison.attrs["blown_up_count"])
    left_out = f", {blown} blown up" if blown else ""
    title = f"{comparison.attrs['verdict']}: {comparison.attrs['usable_runs']} runs{left_out}"
    finish_panel(ax, f"predicted {event.noun} time", f"{event.noun} time in SGD", title)
    ax.legend(handles=handles, frameon=False, fontsize=small(ax))
