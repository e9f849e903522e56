"""The figure of a study of transfer, of descent or of SGD: losses over step sizes, best steps, gap and drift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.flows import COLOURS, MEASURED, PREDICTED, REFERENCE, plain_log_ticks

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["draw_transfer"]

COST = "#1e8449"


def draw_transfer(dataset: xr.Dataset, axes: Any, unit: float, unit_name: str) -> None:
    """Draw a study of transfer: loss over step sizes for each width; best step and gap against the width.

    Parameters
    ----------
    dataset : Dataset
        With the variables of `dynamics.laws.transfer.transfer_study`.
    axes : sequence of Axes
        Three.
    unit : float
        Step size in whose units step sizes are shown.
    unit_name : str
        What that step size is.
    """
    from matplotlib import colormaps

    loss_ax, rate_ax, gap_ax = axes
    widths, rates = dataset["width"].values.tolist(), dataset["learning_rate"].values / unit
    for m, colour in zip(widths, colormaps[COLOURS](np.linspace(0.0, 0.92, len(widths))), strict=True):
        one = dataset.sel(width=m)
        runs = one["final_loss"].values
        known = ~np.isnan(runs).any(axis=1)
        mean = np.exp(np.log(np.minimum(runs[known], 1.0)).mean(axis=1))
        loss_ax.loglog(rates[known], mean, "o-", color=colour, ms=3, lw=1.1, label=f"m = {m}")
        loss_ax.loglog(float(one["best_rate"]) / unit, float(one["best_loss"]), "*", color=colour, ms=10)
    loss_ax.axvline(1.0, color=REFERENCE, ls=":", lw=1.2)
    loss_ax.set_xlabel(f"step size / {unit_name}")
    loss_ax.set_ylabel("loss at the end")
    loss_ax.set_title("stars: best step; a run that blew up counts as loss 1", fontsize="medium")
    best, error = dataset["best_rate"].values / unit, dataset["best_rate_error"].values
    rate_ax.errorbar(
        widths, best, yerr=np.where(np.isfinite(error), best * error, 0.0), fmt="o", color=MEASURED, capsize=3
    )
    rate_ax.axhline(1.0, color=REFERENCE, ls=":", lw=1.2, label=unit_name)
    rate_ax.set_xscale("log", base=2)
    rate_ax.set_xticks(widths, [f"{m:g}" for m in widths])
    rate_ax.set_ylim(0.0, 1.25 * max(1.0, float(np.nan_to_num(best).max())))
    rate_ax.set_ylabel(f"best step / {unit_name}")
    rate_ax.set_title("bars: standard error over runs", fontsize="medium")
    # The points of one width side by side.
    for name, colour, label, exponent, shift in (
        ("loss_gap", MEASURED, "loss gap", "gap_exponent", 0.94),
        ("rate_drift", PREDICTED, "drift of the best step", "drift_exponent", 1.0),
        ("transfer_cost", COST, "cost of the largest width's step", "", 1.06),
    ):
        values, spread = dataset[name].values[:-1], dataset[f"{name}_error"].values[:-1]
        shown = values > 0.0
        if not shown.any():
            continue
        slope = dataset.attrs.get(exponent, np.nan)
        slope_error = dataset.attrs.get(f"{exponent}_error", np.nan)
        text = label if np.isnan(slope) else f"{label}: m^({slope:.2f} ± {slope_error:.2f})"
        below = np.minimum(np.nan_to_num(spread), 0.9 * np.abs(values))
        bars = np.array([below, np.nan_to_num(spread)])[:, shown]
        gap_ax.errorbar(
            shift * np.array(widths)[:-1][shown], values[shown], yerr=bars, fmt="o", color=colour, capsize=3, label=text
        )
    gap_ax.set_xscale("log", base=2)
    if gap_ax.containers:
        gap_ax.set_yscale("log")
        gap_ax.set_ylim(bottom=0.1 * gap_ax.get_ylim()[0])  # room for the legend
    gap_ax.set_xticks(widths[:-1], [f"{m:g}" for m in widths[:-1]])
    gap_ax.set_title(f"against the largest width; transfer: {dataset.attrs['verdict']}", fontsize="medium")
    plain_log_ticks(loss_ax)
    for ax in (rate_ax, gap_ax):
        ax.minorticks_off()
        ax.set_xlabel("width m")
    for ax in (loss_ax, rate_ax, gap_ax):
        if ax.get_legend_handles_labels()[1]:
            ax.legend(frameon=False, fontsize="small")
