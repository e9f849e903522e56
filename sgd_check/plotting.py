"""Figures of a comparison. Every function takes a DataTree, draws on given or new axes, and never shows anything.

Knows the variables of a comparison; nothing of how they were computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

SIMULATED, PREDICTED, REFERENCE = "#1b4f72", "#c0392b", "#7f8c8d"
MOST_DIRECTIONS = 8


def plot_comparison(tree: xr.DataTree, axes: Sequence[Axes] | None = None) -> Figure:
    """Draw emergence times, overlaps and loss of the runs against the prediction, side by side.

    Parameters
    ----------
    tree : DataTree
        Result of `sgd_check.compare`.
    axes : sequence of three Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        If `axes` are not three.
    """
    if axes is None:
        from matplotlib.figure import Figure as NewFigure

        figure: Any = NewFigure(figsize=(13.5, 4.2), layout="constrained")
        axes = list(figure.subplots(1, 3))
    if len(axes) != 3:
        msg = f"Argument `axes` must be three axes, but has {len(axes)}."
        raise ValueError(msg)
    plot_times(tree, axes[0])
    _plot_overlaps(tree, axes[1])
    _plot_loss(tree, axes[2])
    return axes[0].get_figure()  # type: ignore[return-value]


def plot_times(tree: xr.DataTree, ax: Axes | None = None) -> Axes:
    """Draw simulated against predicted emergence times, one point with error bar per direction.

    Dots are single runs; the error bar is the geometric mean with twice its standard error; the short red line spans
    the band that theory allows, from the flow to twice the expected delay; arrows count runs without emergence, at the
    horizon.

    Parameters
    ----------
    tree : DataTree
        Result of `sgd_check.compare`.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    comparison = tree["comparison"].to_dataset()
    simulation = tree["simulation"].to_dataset()
    ax = _axes(ax)
    flow, ratio = comparison["emergence_time"].values, comparison["emergence_ratio"].values
    mean, error = comparison["mean_log_ratio"].values, comparison["standard_error"].values
    delay, horizon = comparison["expected_delay"].values, float(simulation.attrs["end_time"])
    kept = np.flatnonzero(np.isfinite(flow))
    for p in kept:
        ax.plot(np.full(ratio.shape[0], flow[p]), ratio[:, p] * flow[p], ".", color=SIMULATED, ms=4, alpha=0.35)
        if np.isfinite(delay[p]):
            ax.plot([flow[p]] * 2, [flow[p], flow[p] * (1 + delay[p]) ** 2], color=PREDICTED, lw=5, alpha=0.45)
        if np.isfinite(mean[p]):
            low, mid, high = flow[p] * np.exp(mean[p] + 2 * error[p] * np.array([-1, 0, 1]))
            ax.errorbar(flow[p], mid, yerr=[[mid - low], [high - mid]], fmt="o", color=SIMULATED, ms=5, capsize=3)
        count = int(comparison["censored_count"].values[p])
        if count:
            ax.annotate(
                f"{count}", (flow[p], horizon), (0, 14), textcoords="offset points", ha="center", fontsize="small",
                arrowprops={"arrowstyle": "<-", "color": SIMULATED},
            )  # fmt: skip
    _diagonal(ax, flow[kept])
    blown = int(comparison.attrs["blown_up_count"])
    left_out = f", {blown} blown up" if blown else ""
    ax.set_title(f"{comparison.attrs['verdict']}: {comparison.attrs['usable_runs']} runs{left_out}", fontsize="medium")
    ax.set_xlabel("predicted emergence time")
    ax.set_ylabel("emergence time in SGD")
    return ax


def _diagonal(ax: Axes, flow: NDArray[np.float64]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from dynamics.plotting import plain_log_ticks

    if flow.size:
        span = np.array([flow.min() / 1.3, flow.max() * 1.3])
        ax.plot(span, span, ":", color=REFERENCE, lw=1)
        ax.set_xscale("log")
        ax.set_yscale("log")
        plain_log_ticks(ax)
    ax.legend(
        handles=[
            Line2D([], [], marker="o", color=SIMULATED, label="SGD: mean ± 2 s.e."),
            Patch(color=PREDICTED, alpha=0.45, label="theory: flow to twice the delay"),
        ],
        frameon=False,
        fontsize="small",
    )


def _plot_overlaps(tree: xr.DataTree, ax: Axes) -> None:
    """Draw the largest squared overlap of each direction: thin lines runs, thick lines the flow."""
    from matplotlib import colormaps

    simulation, prediction = tree["simulation"].to_dataset(), tree["prediction"].to_dataset()
    time, overlap = simulation["time"].values, simulation["teacher_overlap"].values
    chosen = np.unique(np.linspace(0, overlap.shape[-1] - 1, MOST_DIRECTIONS).round().astype(int))
    colours = colormaps["viridis"](np.linspace(0.0, 0.85, chosen.size))
    flow = _flow_squared_overlap(prediction)
    squared = _counted_squares(simulation, overlap)
    for p, colour in zip(chosen, colours, strict=True):
        runs = np.max(squared[..., p], axis=2)
        ax.plot(time, runs.T, color=colour, lw=0.5, alpha=0.5)
        if flow is not None:
            ax.plot(prediction["time"].values, flow[:, p], color=colour, lw=2.2, label=f"$p = {p + 1}$")
        else:
            ax.plot([], [], color=colour, label=f"$p = {p + 1}$")
    ax.axhline(0.5, color=REFERENCE, lw=0.8, ls=":")
    _log_time(ax, time)
    ax.set_ylim(-0.02, 1.05)
    odd = int(simulation.attrs["information_exponent"]) % 2
    symbol = r"\max_i \max(C_{ip}, 0)^2" if odd else r"\max_i C_{ip}^2"
    ax.set_ylabel(f"largest squared overlap ${symbol}$")
    ax.set_title("thin: runs, thick: flow" if flow is not None else "runs", fontsize="medium")
    ax.legend(frameon=False, fontsize="small", loc="upper left")


def _flow_squared_overlap(prediction: xr.Dataset) -> NDArray[np.float64] | None:
    """Return max_i C_ip² of the prediction, shape (time, P), or None if it holds no histories."""
    if "teacher_overlap" in prediction:
        squared = _counted_squares(prediction, prediction["teacher_overlap"].values)
        return np.asarray(np.max(squared, axis=1))
    for name in ("max_overlap", "overlap"):
        if name in prediction:
            return _counted_squares(prediction, prediction[name].values)
    return None


def _counted_squares(dataset: xr.Dataset, overlap: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return C² as emergence counts it: for an odd information exponent a neuron opposite to a direction is at 0."""
    odd = int(dataset.attrs["information_exponent"]) % 2
    return np.asarray((np.maximum(overlap, 0.0) if odd else overlap) ** 2)


def _plot_loss(tree: xr.DataTree, ax: Axes) -> None:
    """Draw the loss: median and spread of the runs, and the prediction."""
    simulation, prediction = tree["simulation"].to_dataset(), tree["prediction"].to_dataset()
    time, loss = simulation["time"].values, simulation["loss"].values
    known = np.isfinite(loss).any(axis=0)
    low, middle, high = np.nanquantile(loss[:, known], [0.1, 0.5, 0.9], axis=0)
    ax.fill_between(time[known], low, high, color=SIMULATED, alpha=0.25, lw=0, label="SGD, 10 to 90 %")
    ax.plot(time[known], middle, color=SIMULATED, lw=1.4, label="SGD, median")
    if "loss" in prediction:
        ax.plot(prediction["time"].values, prediction["loss"].values, color=PREDICTED, lw=1.4, label="prediction")
    _log_time(ax, time)
    ax.set_yscale("log")
    ax.set_ylim(max(0.3 * float(low.min()), 1e-12), 2.0 * float(high.max()))
    ax.set_ylabel(r"loss $\mathrm{E}(f-f^*)^2$")
    ax.legend(frameon=False, fontsize="small")


def _log_time(ax: Axes, time: NDArray[np.float64]) -> None:
    later = time[time > 0]
    ax.set_xscale("log")
    ax.set_xlim(max(float(later[0]), 1e-2 * float(later[-1])), float(later[-1]))
    ax.set_xlabel("flow time $t$")


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib.figure import Figure as NewFigure

    new: Axes = NewFigure(figsize=(5, 4.2), layout="constrained").subplots()
    return new
