"""The figure of the propagation of chaos: distances over time, scaled by the width, and their exponents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.report.figures.panels import check_drawable, finish_panel, new_panels, panels_or_new
from dynamics.report.figures.style import BAND, MEASURED, PREDICTED, REFERENCE, shades

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Exponents that are shown at least, and the lowest that are where bands are wider.
USUAL_EXPONENTS, LOWEST_EXPONENT = (-1.6, 0.1), -3.0


def plot_chaos(dataset: xr.Dataset, axes: Sequence[Axes] | None = None, *, style: str | None = None) -> Sequence[Axes]:
    """Draw m E(f_m − f_∞)², √m |Δ| and the exponents in m over log time.

    Curves are means over the seeds, bands two standard errors; where widths collapse the scaling holds. The dotted
    line is the time at which the loss of the mean field falls below a tenth.

    Parameters
    ----------
    dataset : Dataset
        Answer of `propagation_of_chaos`.
    axes : three Axes, optional
        For the function gap, the coupling error and the exponents.
    style : {"screen", "paper", "talk"}, optional
        Of new axes; see `figure_style`.

    Returns
    -------
    sequence of three Axes

    Raises
    ------
    ValueError
        If the dataset is of another answer.
    """
    check_drawable(dataset, function_gap=("width", "seed", "time"))
    axes = panels_or_new(axes, 3, (13.0, 4.0), 1, 3, style=style)
    shown = dataset.isel(time=dataset["time"].values > 0)
    _draw_collapse(axes[0], shown, "function_gap", r"$m\,\mathrm{E}(f_m - f_\infty)^2$")
    _draw_collapse(axes[1], shown, "coupling_error", r"$\sqrt{m}\,\cdot$ rms $|\Delta_i|$")
    _draw_exponents(axes[2], shown)
    for ax in axes:
        ax.set(xscale="log", xlim=shown["time"].values[[0, -1]])
        finish_panel(ax, "flow time $t$", ax.get_ylabel())
        for reached in shown["loss_level_time"].values[-1:]:
            if np.isfinite(reached):
                ax.axvline(reached, color=REFERENCE, lw=0.9, ls=":")
    return axes


def chaos_figure(dataset: xr.Dataset) -> Figure:
    """Return the figure of `plot_chaos`, which no window shows."""
    figure, panels = new_panels((13.0, 4.0), 1, 3)
    plot_chaos(dataset, panels)
    return figure


def _draw_collapse(ax: Axes, dataset: xr.Dataset, name: str, label: str) -> None:
    time, widths = dataset["time"].values, dataset["width"].values
    seeds = dataset.sizes["seed"]
    for width, colour in zip(widths, shades(widths.size, 0.85, first=0.05), strict=True):
        values = dataset[name].sel(width=width).transpose("seed", "time").values
        mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(seeds)
        ax.plot(time, mean, color=colour, lw=1.5, label=f"$m = {width}$")
        ax.fill_between(time, mean - BAND * error, mean + BAND * error, color=colour, alpha=0.15, lw=0)
    ax.set(ylabel=label, ylim=(0.0, None))


def _draw_exponents(ax: Axes, dataset: xr.Dataset) -> None:
    time = dataset["time"].values
    names = (
        ("function_gap", r"$\mathrm{E}(f_m - f_\infty)^2$", "-", MEASURED),
        ("coupling", r"mean $|\Delta_i|^2$", "--", PREDICTED),
    )
    lowest = USUAL_EXPONENTS[0]
    for name, label, line, colour in names:
        exponent, error = dataset[f"{name}_exponent"].values, dataset[f"{name}_exponent_error"].values
        low, high = exponent - BAND * error, exponent + BAND * error
        ax.plot(time, exponent, line, color=colour, lw=1.5, label=label)
        ax.fill_between(time, low, high, color=colour, alpha=0.18, lw=0)
        lowest = float(np.nanmin(low, initial=lowest))
    ax.axhline(-1.0, color=REFERENCE, lw=0.9)
    ax.set(ylim=(max(lowest, LOWEST_EXPONENT), USUAL_EXPONENTS[1]), ylabel="exponent in the width $m$")
