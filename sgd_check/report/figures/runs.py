"""Figures of runs: overlaps over time and survival curves beside a prediction; losses and emergence times alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import PREDICTED, REFERENCE, axes_or_new, component_formula, finish_panel
from sgd_check.report.figures.style import (
    SIMULATED,
    THEORY_NAMES,
    compared_parts,
    finish_over_time,
    spread_directions,
)
from sgd_check.verdicts.alignment import event_of, of_sound_runs

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

    from hermite.arrays import Array

_CURVE_POINTS = 600
RUN_TIME = r"flow time $t = \Sigma\,\eta$"


def plot_overlaps(tree: xr.DataTree, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw the largest squared overlap of each direction over time: thin lines runs, thick lines the prediction.

    Of a frame of orthogonal neurons it is the alignment of the direction with their span.

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
    comparison, simulation, prediction = compared_parts(tree)
    ax = axes_or_new(ax, style)
    time, curves = simulation["time"].values, _predicted_square(prediction)
    of_span = "alignment" in simulation
    if of_span:
        squared = simulation["alignment"].values
    else:
        squared = np.max(_counted_squares(simulation, simulation["teacher_overlap"].values), axis=2)
    for p, colour in zip(*spread_directions(squared.shape[-1]), strict=True):
        ax.plot(time, squared[..., p].T, color=colour, lw=0.5, alpha=0.5)
        curve: tuple[Any, Any] = ([], []) if curves is None else (prediction["time"].values, curves[:, p])
        ax.plot(*curve, color=colour, lw=2.2, label=f"$p = {p + 1}$")
    ax.axhline(0.5, color=REFERENCE, lw=0.8, ls=":")
    ax.set_ylim(-0.02, 1.05)
    odd = _sign_matters(simulation)
    symbol = r"\max_i \max(C_{ip}, 0)^2" if odd else r"\max_i C_{ip}^2"
    title = f"thin: runs, thick: {THEORY_NAMES[comparison.attrs['theory']]}" if curves is not None else "runs"
    name = "alignment $A_p$" if of_span else f"largest squared overlap ${symbol}$"
    finish_over_time(ax, time, name, title, loc="upper left")
    return ax


def plot_survival(tree: xr.DataTree, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw the share of runs in which a direction has not emerged, with 95 % intervals, and what theory expects.

    Steps are Kaplan–Meier estimates with pointwise intervals; dashed lines are the log-normal law with the predicted
    time, delay and scatter, a vertical line where theory gives no scatter, or the estimate of the predicted runs.

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
    from sgd_check.verdicts.survival import kaplan_meier

    comparison, simulation, _ = compared_parts(tree)
    ax = axes_or_new(ax, style)
    end = float(simulation.attrs["end_time"])
    measured = of_sound_runs(simulation, "emergence_time")
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
        ax.plot([], [], " ", label=f"no direction {event_of(simulation).present}")
    ax.set(xscale="log", xlim=(times[0], times[-1]), ylim=(-0.03, 1.03))
    dashed = "predicted runs" if comparison.attrs["theory"] == "sample" else "theory"
    title = f"steps: runs with 95 % interval, dashed: {dashed}"
    finish_panel(ax, "flow time $t$", f"share of runs without {event_of(simulation).noun}", title, loc="lower left")
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
        sample = of_sound_runs(prediction, "emergence_time")[:, p]
        return kaplan_meier(sample, float(prediction.attrs["end_time"]), times).value
    # Comparisons of earlier versions have what is beyond the predicted time as their delay.
    late = "expected_lateness" if "expected_lateness" in comparison else "expected_delay"
    time, lateness, scatter = (
        float(comparison[name].values[p]) for name in ("emergence_time", late, "expected_scatter")
    )
    return expected_survival(time, lateness, scatter, times)


def _predicted_square(prediction: xr.Dataset) -> Array | None:
    """Return max_i C_ip² of the prediction, shape (time, P), or None if it holds no histories of its own.

    Of a frame it is A_p.
    """
    if "alignment" in prediction:
        aligned = prediction["alignment"]
        return np.asarray(aligned.median("seed") if "seed" in aligned.dims else aligned)
    if "seed" in prediction.dims:
        squares = _counted_squares(prediction, of_sound_runs(prediction, "teacher_overlap"))
        return np.asarray(np.median(np.max(squares, axis=2), axis=0)) if squares.size else None
    if "teacher_overlap" in prediction:
        squared = _counted_squares(prediction, prediction["teacher_overlap"].values)
        return np.asarray(np.max(squared, axis=1))
    for name in ("max_overlap", "overlap"):
        if name in prediction:
            return _counted_squares(prediction, prediction[name].values)
    return None


def _counted_squares(dataset: xr.Dataset, overlap: Array) -> Array:
    """Return C² as emergence counts it: for an odd information exponent a neuron opposite to a direction is at 0."""
    return np.asarray((np.maximum(overlap, 0.0) if _sign_matters(dataset) else overlap) ** 2)


def _sign_matters(dataset: xr.Dataset) -> bool:
    """Return whether a neuron opposite to a direction has not found it; either sign of a network's axis will do."""
    return "second_layer" not in dataset and bool(int(dataset.attrs["information_exponent"]) % 2)


def plot_run_losses(simulation: xr.Dataset, ax: Axes) -> None:
    """Draw the loss of each run over time, and the median of the runs that are left."""
    loss = simulation["loss"].values
    shown = (simulation["time"].values > 0) & np.isfinite(loss).any(axis=0)
    time, loss = simulation["time"].values[shown], loss[:, shown]
    ax.loglog(time, np.where(loss > 0, loss, np.nan).T, color=SIMULATED, lw=0.6, alpha=0.5)
    if time.size:
        ax.loglog(time, np.nanmedian(loss, axis=0), color=SIMULATED, lw=2.0, label="median of the runs that are left")
    finish_panel(ax, RUN_TIME, r"loss $\mathrm{E}(f-f^*)^2$")


def plot_run_times(simulation: xr.Dataset, ax: Axes) -> None:
    """Draw the emergence times of the runs by direction, with the predicted time of the pair where there is one."""
    from matplotlib.ticker import MaxNLocator

    number, times = simulation["direction"].values, simulation["emergence_time"].values
    ax.plot(np.broadcast_to(number, times.shape).ravel(), times.ravel(), "o", color=SIMULATED, ms=4, alpha=0.4)
    predicted = simulation.get("predicted_emergence_time")
    known = np.zeros(number.size, dtype=bool) if predicted is None else np.isfinite(predicted.values)
    if predicted is not None and known.any():
        ax.plot(number[known], predicted.values[known], "x", color=PREDICTED, ms=8, label="predicted")
    if (times > 0).any() or known.any():
        ax.set_yscale("log")
    else:
        ax.text(0.5, 0.5, f"no direction {event_of(simulation).past}", ha="center", transform=ax.transAxes)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlim(number[0] - 0.5, number[-1] + 0.5)
    finish_panel(ax, "direction $p$", f"{event_of(simulation).noun} time")


def plot_run_components(simulation: xr.Dataset, ax: Axes) -> None:
    """Draw the components of a network over its teacher's, f_α/f*_α: median and quartiles of the runs that are left."""
    share = simulation["component"].values / simulation["teacher_component"].values
    shown = (simulation["time"].values > 0) & np.isfinite(share).any(axis=(0, 2))
    time, names = simulation["time"].values[shown], simulation["component_name"].values.tolist()
    for c, colour in zip(*spread_directions(len(names)), strict=True):
        low, middle, high = np.nanquantile(share[:, shown, c], (0.25, 0.5, 0.75), axis=0)
        ax.fill_between(time, low, high, color=colour, alpha=0.2, lw=0)
        ax.semilogx(time, middle, color=colour, lw=1.6, label=component_formula(names[c]))
    ax.axhline(1.0, color=REFERENCE, lw=0.8)
    ax.axhline(0.5, color=REFERENCE, lw=0.8, ls=":")
    finish_panel(ax, RUN_TIME, r"component over the teacher's, $f_\alpha/f^*_\alpha$")
