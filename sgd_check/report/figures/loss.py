"""Figure of the loss: mean of the runs with band, prediction, and the residual below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.report import PREDICTED, REFERENCE, panels_or_new
from sgd_check.report.figures.style import (
    SIMULATED,
    THEORY_NAMES,
    compared_parts,
    finish_over_time,
)
from sgd_check.verdicts.alignment import of_sound_runs
from sgd_check.verdicts.path_tests import critical_score

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

# The axis goes to so many times the critical score for residuals, and further for what is allowed alone.
_FARTHEST = 3.0


def plot_loss_band(
    tree: xr.DataTree, axes: tuple[Axes, Axes] | None = None, *, style: str | None = None
) -> tuple[Axes, Axes]:
    """Draw the mean loss of the runs with its band and the predicted loss; below, the residual in standard errors.

    The band is simultaneous over the times compared, at the rate of false alarms of the comparison; elsewhere, where
    the mean of early and late runs means little, the residual is left out.

    Parameters
    ----------
    tree : DataTree
        Result of `sgd_check.compare`.
    axes : (Axes, Axes), optional
        For the loss and for the residual.
    style : {"screen", "paper", "talk"}, optional
        Of new axes; see `figure_style`.

    Returns
    -------
    (Axes, Axes)
    """
    comparison, simulation, _ = compared_parts(tree)
    upper, lower = panels_or_new(axes, 2, (6.8, 5.4), 2, style=style, sharex=True, height_ratios=[2.4, 1])
    _draw_loss(upper, tree)
    if "loss_z" in comparison:
        _draw_residual(lower, comparison)
    else:
        lower.text(0.5, 0.5, "the prediction has no loss", ha="center", va="center", transform=lower.transAxes)
        lower.set_yticks([])
    finish_over_time(lower, simulation["time"].values, "residual / s.e.")
    upper.tick_params(labelbottom=False)
    upper.set_xlabel("")
    return upper, lower


def _draw_loss(ax: Axes, tree: xr.DataTree) -> None:
    comparison, simulation, prediction = compared_parts(tree)
    time, loss = simulation["time"].values, of_sound_runs(simulation, "loss")
    lowest, largest = np.inf, 0.0
    if loss.size:
        known = np.isfinite(loss).any(axis=0)
        low, high = np.nanquantile(loss[:, known], [0.1, 0.9], axis=0)
        lowest, largest = float(low.min()), float(high.max())
        ax.fill_between(time[known], low, high, color=SIMULATED, alpha=0.16, lw=0, label="runs, 10 to 90 %")
    if "mean_loss" in comparison:
        mean, error = comparison["mean_loss"].values, comparison["loss_standard_error"].values
        compared = comparison["loss_compared"].values != 0
        width = _critical(comparison) * error
        theory = comparison.attrs["theory"]
        label = "predicted runs, mean" if theory == "sample" else THEORY_NAMES[theory]
        ax.plot(time, mean, color=SIMULATED, lw=1.4, label="runs, mean")
        ax.fill_between(
            time,
            mean - width,
            mean + width,
            where=compared,
            color=SIMULATED,
            alpha=0.5,
            lw=0,
            label="its band where compared",
        )
        ax.plot(time, comparison["expected_loss"].values, color=PREDICTED, lw=1.2, label=label)
    elif "loss" in prediction and "seed" not in prediction.dims:
        ax.plot(prediction["time"].values, prediction["loss"].values, color=PREDICTED, lw=1.2, label="prediction")
    ax.set_yscale("log")
    if largest > 0:
        ax.set_ylim(max(0.3 * lowest, 1e-12), 2.0 * largest)
    blown = int(comparison.attrs["blown_up_count"])
    title = f"loss of {loss.shape[0]} runs" + (f", {blown} blown up" if blown else "")
    finish_over_time(ax, time, r"loss $\mathrm{E}(f-f^*)^2$", title, loc="lower left")


def _draw_residual(ax: Axes, comparison: xr.Dataset) -> None:
    """Draw the residual where the loss is compared; in the shade is what theory and the rate of false alarms allow."""
    time, z, expected = (comparison[name].values for name in ("time", "loss_z", "expected_loss"))
    shown = comparison["loss_compared"].values != 0
    time, z, expected = time[shown], z[shown], expected[shown]
    critical = _critical(comparison)
    if comparison.attrs["theory"] == "sample":
        residual, low, high = z, np.full(z.size, -critical), np.full(z.size, critical)
    else:
        error = comparison["loss_standard_error"].values[shown]
        residual, low, high = (
            (comparison[name].values[shown] - expected) / error
            for name in ("mean_loss", "expected_loss_low", "expected_loss_high")
        )
        low, high = low - critical, high + critical
    # All of the shade is shown; residuals far beyond it are arrows at the edge.
    allowed = 1.15 * np.abs([low, high]).max(initial=critical)
    edge = max(allowed, min(1.2 * np.abs(residual).max(initial=0.0), _FARTHEST * critical))
    colours = np.where(np.abs(z) > critical, PREDICTED, SIMULATED)
    # A gap between plateaus is no plateau: the shade is drawn time by time.
    ax.vlines(time, low, high, color=SIMULATED, alpha=0.18, lw=4)
    for marker, part in (("o", np.abs(residual) <= edge), ("^", residual > edge), ("v", residual < -edge)):
        ax.scatter(
            time[part],
            np.clip(residual[part], -0.95 * edge, 0.95 * edge),
            s=9,
            c=colours[part],
            marker=marker,
            zorder=3,
        )
    ax.axhline(0.0, color=REFERENCE, lw=0.8)
    ax.set_ylim(-edge, edge)


def _critical(comparison: xr.Dataset) -> float:
    return critical_score(int(comparison.attrs["loss_compared_times"]), float(comparison.attrs["false_alarm_rate"]))
