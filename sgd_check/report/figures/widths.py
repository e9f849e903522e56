"""The figure of a check of a mean field: losses of all widths, distances scaled by the width, and their exponents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import BAND, REFERENCE, given_panels, new_panels, plot_chaos, small
from sgd_check.report.figures.style import finish_over_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 4


def plot_widths(tree: xr.DataTree, axes: Sequence[Axes] | None = None) -> Figure:
    """Draw the loss, m E(f_m − f_∞)², √m |Δ| and their exponents in m, of SGD without its noise.

    Curves are means over starts with two standard errors; dashed black is the mean field, the grey band what
    corrections of finite width may do to the exponent, and the black line is what is tested.
    """
    panels: Any = new_panels((11.0, 8.2), 2, 2)[1].ravel() if axes is None else given_panels("axes", axes, PANELS)
    comparison = tree["comparison"].to_dataset()
    shown = comparison.isel(time=comparison["time"].values > 0.0)
    plot_chaos(comparison, panels[1:])
    _draw_loss(panels[0], shown, [line.get_color() for line in panels[1].get_lines()])
    _draw_test(panels[3], shown)
    for ax in panels:
        finish_over_time(ax, shown["time"].values, ax.get_ylabel())
    runs = f"{comparison.attrs['usable_runs']} runs of {comparison.sizes['seed']} starts"
    if np.isnan(shown["coupling_error"].values).all():
        panels[2].get_legend().remove()
        panels[2].text(0.5, 0.5, "no tracers: neurons not followed", ha="center", transform=panels[2].transAxes)
    panels[0].set_title(f"{comparison.attrs['verdict']}: {runs}", fontsize=small(panels[0], 1.0))
    figure: Figure = panels[0].figure
    return figure


def _draw_loss(ax: Axes, shown: xr.Dataset, colours: list[Any]) -> None:
    """Draw the loss of every width in the colour of its distance."""
    time = shown["time"].values
    for width, colour in zip(shown["width"].values, colours, strict=False):
        runs = shown["loss"].sel(width=width).transpose("seed", "time").values
        mean, error = runs.mean(axis=0), BAND * runs.std(axis=0) / np.sqrt(max(len(runs) - 1, 1))
        ax.plot(time, mean, color=colour, lw=1.5, label=f"$m = {width}$")
        ax.fill_between(time, mean - error, mean + error, color=colour, alpha=0.2, lw=0)
    ax.plot(time, shown["mean_field_loss"].values, "--", color="black", lw=1.2, label="mean field")
    ax.set(yscale="log", ylabel="loss")


def _draw_test(ax: Axes, shown: xr.Dataset) -> None:
    """Draw the allowed band, and the tested mean with two standard errors at the middle of its window."""
    allowed = float(shown.attrs["width_correction"])
    ax.axhspan(-1.0 - allowed, -1.0 + allowed, color=REFERENCE, alpha=0.18, lw=0)
    ends = np.array([shown.attrs["tested_from"], shown.attrs["tested_to"]])
    exponent, error = (float(shown[name]) for name in ("mean_gap_exponent", "mean_gap_exponent_error"))
    middle = float(np.sqrt(ends.prod()))
    ax.plot(ends, [exponent, exponent], color="black", lw=2, label="tested: mean over log time")
    ax.errorbar(middle, exponent, yerr=BAND * error, color="black", lw=2, capsize=4)
    ax.set_ylim(-2.0, 0.1)
