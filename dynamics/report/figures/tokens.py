"""The figure of what is learned from tokens: progress of each stage, with runs beside the prediction if any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.report.figures.panels import axes_or_new, check_drawable, finish_panel, new_panels
from dynamics.report.figures.style import BAND, MEASURED, PREDICTED, shades

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Components that a legend names.
MOST_NAMES = 12
#: Width of a predicted curve, on which runs are drawn as thin black lines.
WIDE = 3.0
TIME = r"time, $\eta\times$ steps"


def plot_progress(
    prediction: xr.Dataset, simulation: xr.Dataset | None = None, ax: Axes | None = None, *, style: str | None = None
) -> Axes:
    """Draw the progress of every component over time.

    Lines are the prediction, thin black ones runs, orange ticks at ½ the times in closed form, where there are any.

    Parameters
    ----------
    prediction : Dataset
        Of `dynamics.tokens.solve`.
    simulation : Dataset, optional
        Of `sgd_check.tokens.simulate`.
    ax : Axes, optional
    style : {"screen", "paper", "talk"}, optional
        Of new axes; see `figure_style`.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError, ValueError
        If the dataset is of another answer.
    """
    check_drawable(prediction, progress=("time", "component"))
    ax = axes_or_new(ax, style)
    names = prediction["component"].values.tolist()
    for at, colour in enumerate(shades(len(names), 0.85)):
        label = str(names[at]) if len(names) <= MOST_NAMES or at in (0, len(names) - 1) else None
        ax.plot(prediction["time"].values, prediction["progress"].values[:, at], color=colour, lw=WIDE, label=label)
        if simulation is not None:
            for run in simulation["progress"].values[:, :, at]:
                ax.plot(simulation["time"].values, run, color="k", lw=0.6, alpha=0.7)
        closed = prediction["predicted_learned_time"].values[at]
        if np.isfinite(closed):
            ax.plot(closed, 0.5, marker="|", ms=20, mew=1.6, color=PREDICTED, zorder=5)
    ax.set_ylim(-0.03, 1.03)
    _use_log_axis(prediction, ax)
    finish_panel(ax, TIME, "progress")
    return ax


def progress_figure(prediction: xr.Dataset, simulation: xr.Dataset | None = None) -> Figure:
    """Return progress beside the loss with its plateaus, which no window shows."""
    figure, (left, right) = new_panels((11.0, 4.2), 1, 2)
    plot_progress(prediction, simulation, left)
    if simulation is not None:
        right.plot(simulation["time"].values, simulation["loss"].values.T, color="k", lw=0.6, alpha=0.7)
    right.plot(prediction["time"].values, prediction["loss"].values, color="0.6", lw=WIDE, zorder=1.5)
    for level in np.unique(prediction["plateau"].values[np.isfinite(prediction["plateau"].values)])[-MOST_NAMES:]:
        right.axhline(level, color="0.75", lw=0.8, ls=":", zorder=0)
    _use_log_axis(prediction, right)
    finish_panel(right, TIME, "loss (dotted: plateaus)")
    return figure


def recovery_figure(prediction: xr.Dataset, simulation: xr.Dataset | None = None) -> Figure:
    """Return the share of items that are recovered after one step against their rank, which no window shows."""
    figure, ax = new_panels((6.8, 4.4))
    if simulation is not None:
        draws = simulation["recovery"]
        error = BAND * draws.std("seed", ddof=1) / np.sqrt(draws.sizes["seed"]) if draws.sizes["seed"] > 1 else None
        bars = {"fmt": "o", "color": MEASURED, "ms": 3, "capsize": 2}
        ax.errorbar(simulation["rank"], draws.mean("seed"), yerr=error, **bars, label="mean over draws, two s.e.")
    ax.semilogx(prediction["rank"], prediction["recovery"], color=PREDICTED, lw=WIDE / 2, label="closed form")
    finish_panel(ax, "rank of the item", "share recovered")
    return figure


def _use_log_axis(prediction: xr.Dataset, ax: Axes) -> None:
    """Show time as it was saved, geometrically or linearly; beyond the first component's time nothing is seen."""
    time, learned = prediction["time"].values, prediction["learned_time"].values
    known = learned[np.isfinite(learned) & (learned > 0)]
    if known.size and time.size > 2 and time[-1] - time[-2] > 2.0 * (time[1] - time[0]):
        ax.set_xscale("log")
        # Before the first component is learned there is room for the legend, a third of the axis.
        first, last = float(known.min()), float(time[-1])
        ax.set_xlim(min(0.02 * first, first * (first / last) ** 0.5), last)
