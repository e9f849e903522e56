"""The figure of a study of transfer, of descent or of SGD: losses over step sizes, best steps, gap and drift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.bands import log_band
from dynamics.report.figures.panels import finish_panel
from dynamics.report.figures.style import IDEAL, MEASURED, PREDICTED, REFERENCE, power, shades

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


def draw_transfer(dataset: xr.Dataset, axes: Any, unit: float, unit_name: str) -> None:
    """Draw loss over step sizes for each width, best step and gap against the width, on three axes.

    Step sizes are shown in units of the step size `unit`, which `unit_name` names.
    """
    loss_ax, rate_ax, gap_ax = axes
    widths, rates = dataset["width"].values.tolist(), dataset["learning_rate"].values / unit
    for m, colour in zip(widths, shades(len(widths)), strict=True):
        one = dataset.sel(width=m)
        runs = one["final_loss"].values
        known = ~np.isnan(runs).any(axis=1)
        mean, low, high = log_band(np.minimum(runs[known], 1.0).T)
        loss_ax.loglog(rates[known], mean, "o-", color=colour, ms=3, lw=1.1, label=f"$m = {m}$")
        loss_ax.fill_between(rates[known], low, high, color=colour, alpha=0.2, lw=0)
        loss_ax.loglog(float(one["best_rate"]) / unit, float(one["best_loss"]), "*", color=colour, ms=10)
    loss_ax.axvline(1.0, color=REFERENCE, ls=":", lw=1.2)
    stars = "stars: best step; a run that blew up counts as loss 1"
    finish_panel(loss_ax, f"step size / {unit_name}", "loss at the end", stars)
    best, error = dataset["best_rate"].values / unit, dataset["best_rate_error"].values
    bars = np.where(np.isfinite(error), best * error, 0.0)
    rate_ax.errorbar(widths, best, yerr=bars, fmt="o", color=MEASURED, capsize=3)
    rate_ax.axhline(1.0, color=REFERENCE, ls=":", lw=1.2, label=unit_name)
    rate_ax.set_ylim(0.0, 1.25 * max(1.0, float(np.nan_to_num(best + bars).max())))
    _finish_widths(rate_ax, widths, f"best step / {unit_name}", "bars: standard error over runs")
    _draw_gaps(dataset, gap_ax, widths[:-1])


def _draw_gaps(dataset: xr.Dataset, ax: Axes, widths: list[int]) -> None:
    """Draw loss gap, drift of the best step and its cost against the width, all but the largest."""
    # The points of one width side by side.
    for name, marker, colour, label, exponent, shift in (
        ("loss_gap", "o", MEASURED, "loss gap", "gap_exponent", 0.94),
        ("rate_drift", "s", PREDICTED, "drift of the best step", "drift_exponent", 1.0),
        ("transfer_cost", "^", IDEAL, "cost of the largest width's step", "", 1.06),
    ):
        values, spread = dataset[name].values[:-1], dataset[f"{name}_error"].values[:-1]
        shown = values > 0.0
        if not shown.any():
            continue
        slope = dataset.attrs.get(exponent, np.nan)
        slope_error = dataset.attrs.get(f"{exponent}_error", np.nan)
        text = label if np.isnan(slope) else f"{label}: {power('m', slope, slope_error)}"
        below = np.minimum(np.nan_to_num(spread), 0.9 * np.abs(values))
        bars = np.array([below, np.nan_to_num(spread)])[:, shown]
        ax.errorbar(
            shift * np.array(widths)[shown], values[shown], yerr=bars, fmt=marker, color=colour, capsize=3, label=text
        )
    if ax.containers:
        ax.set_yscale("log")
        ax.set_ylim(bottom=0.1 * ax.get_ylim()[0])  # room for the legend
    _finish_widths(ax, widths, "", f"against the largest width; transfer: {dataset.attrs['verdict']}")


def _finish_widths(ax: Axes, widths: list[int], y: str, title: str) -> None:
    """Finish a panel over the widths, each with a tick of its own."""
    ax.set_xscale("log", base=2)
    finish_panel(ax, "width $m$", y, title)
    ax.set_xticks(widths, [f"{m:g}" for m in widths])
    ax.minorticks_off()
