"""Figures of runs without a prediction beside them: losses over time, and emergence times by direction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.report import finish_panel
from sgd_check.report.figures.style import PREDICTED, SIMULATED

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


def plot_run_losses(simulation: xr.Dataset, ax: Axes) -> None:
    """Draw the loss of each run over time, and the median of the runs that are left."""
    loss = simulation["loss"].values
    shown = (simulation["time"].values > 0) & np.isfinite(loss).any(axis=0)
    time, loss = simulation["time"].values[shown], loss[:, shown]
    ax.loglog(time, np.where(loss > 0, loss, np.nan).T, color=SIMULATED, lw=0.6, alpha=0.5)
    if time.size:
        ax.loglog(time, np.nanmedian(loss, axis=0), color=SIMULATED, lw=2.0, label="median of the runs that are left")
    finish_panel(ax, "flow time t = Σ η", "loss E(f − f*)²")


def plot_run_times(simulation: xr.Dataset, ax: Axes) -> None:
    """Draw the emergence times of the runs by direction, with the predicted time of the pair where there is one."""
    from matplotlib.ticker import MaxNLocator

    number, times = simulation["direction"].values, simulation["emergence_time"].values
    ax.plot(np.broadcast_to(number, times.shape).ravel(), times.ravel(), "o", color=SIMULATED, ms=4, alpha=0.4)
    predicted = simulation.get("predicted_emergence_time", simulation["teacher_coefficient"] * np.nan).values
    known = np.isfinite(predicted)
    if known.any():
        ax.plot(number[known], predicted[known], "x", color=PREDICTED, ms=8, label="predicted")
    if (times > 0).any() or known.any():
        ax.set_yscale("log")
    else:
        ax.text(0.5, 0.5, "no direction emerged", ha="center", transform=ax.transAxes)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    finish_panel(ax, "direction p", "emergence time")
