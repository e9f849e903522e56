"""Figures of single runs and of their distribution: overlaps over time, and survival curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.report import finish_panel
from sgd_check.report.figures.style import (
    REFERENCE,
    THEORY_NAMES,
    axes_or_new,
    compared_parts,
    finish_over_time,
    spread_directions,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

    from hermite.arrays import Array

_CURVE_POINTS = 600


def plot_overlaps(tree: xr.DataTree, ax: Axes | None = None) -> Axes:
    """Draw the largest squared overlap of each direction over time: thin lines runs, thick lines the prediction.

    Parameters
    ----------
    tree : DataTree
        Result of `sgd_check.compare`.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    comparison, simulation, prediction = compared_parts(tree)
    ax = axes_or_new(ax)
    time, overlap = simulation["time"].values, simulation["teacher_overlap"].values
    curves = _predicted_square(prediction)
    squared = _counted_squares(simulation, overlap)
    for p, colour in zip(*spread_directions(overlap.shape[-1]), strict=True):
        runs = np.max(squared[..., p], axis=2)
        ax.plot(time, runs.T, color=colour, lw=0.5, alpha=0.5)
        if curves is not None:
            ax.plot(prediction["time"].values, curves[:, p], color=colour, lw=2.2, label=f"$p = {p + 1}$")
        else:
            ax.plot([], [], color=colour, label=f"$p = {p + 1}$")
    ax.axhline(0.5, color=REFERENCE, lw=0.8, ls=":")
    ax.set_ylim(-0.02, 1.05)
    odd = int(simulation.attrs["information_exponent"]) % 2
    symbol = r"\max_i \max(C_{ip}, 0)^2" if odd else r"\max_i C_{ip}^2"
    title = f"thin: runs, thick: {THEORY_NAMES[comparison.attrs['theory']]}" if curves is not None else "runs"
    finish_over_time(ax, time, f"largest squared overlap ${symbol}$", title, loc="upper left")
    return ax


def plot_survival(tree: xr.DataTree, ax: Axes | None = None) -> Axes:
    """Draw the share of runs in which a direction has not emerged, with 95 % intervals, and what theory expects.

    Steps are Kaplan–Meier estimates with pointwise intervals; dashed lines are the log-normal law with the predicted
    time, delay and scatter, a vertical line where theory gives no scatter, or the estimate of the predicted runs.

    Parameters
    ----------
    tree : DataTree
        Result of `sgd_check.compare`.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    from sgd_check.verdicts.survival import kaplan_meier

    comparison, simulation, _ = compared_parts(tree)
    ax = axes_or_new(ax)
    end = float(simulation.attrs["end_time"])
    sound = simulation["blown_up"].values == 0
    measured = np.asarray(simulation["emergence_time"].values, dtype=np.float64)[sound]
    times = _curve_times(measured, comparison["emergence_time"].values, end)
    chosen, colours = spread_directions(measured.shape[1])
    for p, colour in zip(chosen, colours, strict=True):
        if not np.isfinite(measured[:, p]).any() and not np.isfinite(comparison["emergence_time"].values[p]):
            continue
        curve = kaplan_meier(measured[:, p], end, times)
        ax.plot(times, curve.value, color=colour, lw=1.6, drawstyle="steps-post", label=f"$p = {p + 1}$")
        between = (curve.value > 0.0) & (curve.value < 1.0)
        ax.fill_between(times, curve.low, curve.high, where=between, color=colour, alpha=0.18, lw=0, step="post")
        theory = _predicted_survival(tree, p, times)
        if np.isfinite(theory).any():
            ax.plot(times, theory, color=colour, lw=1.6, ls="--")
        elif np.isfinite(comparison["emergence_time"].values[p]):
            ax.axvline(float(comparison["emergence_time"].values[p]), color=colour, lw=1.2, ls="--")
    if not ax.lines:
        ax.plot([], [], " ", label="no direction emerges")
    ax.set(xscale="log", xlim=(times[0], times[-1]), ylim=(-0.03, 1.03))
    dashed = "predicted runs" if comparison.attrs["theory"] == "sample" else "theory"
    title = f"steps: runs with 95 % interval, dashed: {dashed}"
    finish_panel(ax, "flow time $t$", "share of runs without emergence", title, loc="lower left")
    return ax


def _curve_times(measured: Array, predicted: Array, end: float) -> Array:
    """Return the times at which curves are drawn: around all emergences, up to the end of the runs."""
    known = np.concatenate([measured[np.isfinite(measured)], predicted[np.isfinite(predicted)]])
    known = known[(known > 0) & (known <= end)]
    first = 0.6 * float(known.min()) if known.size else 0.1 * end
    last = min(end, 1.6 * float(known.max())) if known.size else end
    return np.geomspace(first, max(last, 1.01 * first), _CURVE_POINTS)


def _predicted_survival(tree: xr.DataTree, p: int, times: Array) -> Array:
    from sgd_check.verdicts.survival import expected_survival, kaplan_meier

    comparison, _, prediction = compared_parts(tree)
    if comparison.attrs["theory"] == "sample":
        sound = prediction["blown_up"].values == 0
        sample = np.asarray(prediction["emergence_time"].values, dtype=np.float64)[sound, p]
        return kaplan_meier(sample, float(prediction.attrs["end_time"]), times).value
    time, delay, scatter = (
        float(comparison[name].values[p]) for name in ("emergence_time", "expected_delay", "expected_scatter")
    )
    return expected_survival(time, delay, scatter, times)


def _predicted_square(prediction: xr.Dataset) -> Array | None:
    """Return max_i C_ip² of the prediction, shape (time, P), or None if it holds no histories of its own."""
    if "seed" in prediction.dims:
        squares = _counted_squares(prediction, prediction["teacher_overlap"].values)
        sound = prediction["blown_up"].values == 0
        return np.asarray(np.median(np.max(squares[sound], axis=2), axis=0)) if sound.any() else None
    if "teacher_overlap" in prediction:
        squared = _counted_squares(prediction, prediction["teacher_overlap"].values)
        return np.asarray(np.max(squared, axis=1))
    for name in ("max_overlap", "overlap"):
        if name in prediction:
            return _counted_squares(prediction, prediction[name].values)
    return None


def _counted_squares(dataset: xr.Dataset, overlap: Array) -> Array:
    """Return C² as emergence counts it: for an odd information exponent a neuron opposite to a direction is at 0."""
    odd = int(dataset.attrs["information_exponent"]) % 2
    return np.asarray((np.maximum(overlap, 0.0) if odd else overlap) ** 2)
