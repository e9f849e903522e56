"""Figures of flows: losses, overlaps and emergence times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.checks import check_switch
from dynamics.report.figures.panels import (
    NAMED_AT,
    axes_or_new,
    check_drawable,
    finish_panel,
    name_curves,
    new_panels,
)
from dynamics.report.figures.style import BAND, MEASURED, PREDICTED, REFERENCE, plain_text, power, shades
from dynamics.report.findings import spread_rows
from dynamics.report.samples import count_text, samples_of_one
from dynamics.runs.dataset import stored_exponents
from dynamics.theory.fits import default_window, fit_power_law

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hermite.arrays import Array

#: What is beside a fit, which is of one start and finitely many directions.
LIMIT = "asymptotic (P, d → ∞)"
#: At most this many directions are drawn as separate curves, spread evenly in log p.
MOST_CURVES = 24
MOST_POINTS = 2000
LOSS = r"loss $\mathrm{E}(f-f^*)^2$"
#: Relative errors of times below this are smaller than the points.
VISIBLE_ERROR = 0.01
SQUARED_OVERLAP = "largest squared overlap $C^2$"
#: Variables that hold overlaps over time, by answer.
HISTORIES = ("overlap", "max_overlap", "teacher_overlap")
PAIRED_TIMES = ("predicted_emergence_time", "leading_order_time", "emergence_time")


def plot_loss(dataset: xr.Dataset, ax: Axes | None = None, *, fit: bool = True, style: str | None = None) -> Axes:
    """Draw loss against time on log axes, with the sum formula, the fitted exponent and the asymptotic slope.

    The fit is drawn dashed over its window only; the asymptotic exponent, where there is one, is a dotted reference
    line beside it and never part of the fit.

    Parameters
    ----------
    dataset : Dataset
        Any answer with `loss(time)`.
    ax : Axes, optional
    fit : bool, default True
        Draw the fitted power law.
    style : {"screen", "paper", "talk"}, optional
        Of new axes; see `figure_style`.

    Returns
    -------
    Axes
    """
    check_switch("fit", fit)
    check_drawable(dataset, loss=("time",))
    ax = axes_or_new(ax, style)
    time, loss = dataset["time"].values, dataset["loss"].values
    shown = np.isfinite(loss) & (time > 0)
    is_sum = dataset.attrs["answer"] == "prediction"
    ax.loglog(
        time[shown], np.maximum(loss[shown], 1e-300), color=MEASURED, lw=1.8, label="sum formula" if is_sum else "flow"
    )
    sums = predicted_loss(dataset)
    if sums is not None:
        positive = sums > 0
        ax.loglog(time[positive], sums[positive], color=PREDICTED, lw=1.0, drawstyle="steps-post", label="sum formula")
    window = default_window(dataset) if fit else None
    if window is not None:
        law = fit_power_law(time[shown], loss[shown], window=window)
        span = np.array(law.window)
        label = f"fit: {power('t', law.exponent, law.standard_error)}"
        ax.loglog(span, law.prefactor * span**law.exponent, "k--", lw=1.2, label=label)
        slope = stored_exponents(dataset).loss_time
        if np.isfinite(slope):
            middle = np.exp(np.log(span).mean())
            height = 2.5 * law.prefactor * middle**law.exponent
            reference = f"{LIMIT}: {power('t', slope)}"
            ax.loglog(span, height * (span / middle) ** slope, ":", color=REFERENCE, lw=1.4, label=reference)
    positive_loss = loss[shown][loss[shown] > 0]
    if positive_loss.size:
        ax.set_ylim(max(positive_loss.min() * 0.5, 1e-7 * positive_loss.max()), 2.0 * positive_loss.max())
    finish_panel(ax, "flow time $t$", LOSS)
    return ax


def plot_emergence(dataset: xr.Dataset, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw the squared overlap of each direction against time; ticks below mark the predicted emergence times.

    Parameters
    ----------
    dataset : Dataset
        Answer with overlap histories: `teacher_overlap`, `max_overlap` or `overlap`.
    ax : Axes, optional
    style : {"screen", "paper", "talk"}, optional
        Of new axes; see `figure_style`.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the dataset holds no overlap history.
    """
    check_drawable(dataset, predicted_emergence_time=("direction",))
    squared = squared_overlap(dataset)
    ax = axes_or_new(ax, style)
    time = dataset["time"].values
    chosen = spread_rows(squared.shape[1], MOST_CURVES)
    predicted = dataset["predicted_emergence_time"].values
    shown = time > 0
    ax.set(xscale="log", xlim=(time[shown][0], time[-1]), ylim=(-0.08, 1.05))
    lines, ends = [], []
    for p, colour in zip(chosen, shades(len(chosen), 0.8), strict=True):
        lines += ax.plot(time[shown], squared[shown, p], color=colour, lw=1.3)
        ends.append(first_passage(time[shown], squared[shown, p], NAMED_AT))
        if np.isfinite(predicted[p]):
            # Within the panel: times after its end are told by the next figure.
            ax.plot([predicted[p]], [-0.04], "|", color=colour, ms=9, mew=1.6)
    ax.axhline(0.5, color=REFERENCE, lw=0.8, ls=":")
    name_curves(ax, "$p$", lines, [p + 1 for p in chosen], ends)
    finish_panel(ax, "flow time $t$ (ticks: predicted)", SQUARED_OVERLAP, loc="center left")
    return ax


def plot_emergence_times(dataset: xr.Dataset, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw measured emergence times against the predicted ones, with the diagonal; unlearned directions as arrows.

    Parameters
    ----------
    dataset : Dataset
        Answer with `emergence_time` and the predictions.
    ax : Axes, optional
    style : {"screen", "paper", "talk"}, optional
        Of new axes; see `figure_style`.

    Returns
    -------
    Axes
    """
    check_drawable(dataset, **dict.fromkeys(PAIRED_TIMES, ("direction",)))
    ax = axes_or_new(ax, style)
    exact = dataset["predicted_emergence_time"].values
    leading = dataset["leading_order_time"].values
    measured = dataset["emergence_time"].values
    both = has_both_times(dataset)
    if not both.any():
        ax.text(0.5, 0.5, "no direction has both times", ha="center", transform=ax.transAxes)
        return ax
    points = np.flatnonzero(both)[spread_rows(int(both.sum()), MOST_POINTS)]
    ax.loglog(leading[points], measured[points], "s", mfc="none", color=REFERENCE, ms=5, label="leading order")
    ax.loglog(exact[points], measured[points], "o", color=MEASURED, ms=5, label="exact transit of the pair")
    _draw_errors(ax, dataset, points)
    times = np.concatenate([exact[points], measured[points]])
    ends = np.array([0.7 * times.min(), 1.4 * times.max()])
    ax.loglog(ends, ends, "-", color=REFERENCE, lw=0.8, zorder=1)
    late = np.isfinite(exact) & ~np.isfinite(measured)
    end = float(dataset["time"].values[-1])
    if late.any():
        ax.loglog(exact[late], np.full(late.sum(), end), "^", color=PREDICTED, ms=6, label="not emerged by the end")
    finish_panel(ax, "predicted emergence time", "measured emergence time")
    return ax


def first_passage(time: Array, curve: Array, level: float) -> float:
    """Return when a curve first is above a level, interpolated over the logarithm of time; NaN if never."""
    above = np.flatnonzero(curve >= level)
    if not above.size or not above[0]:
        return float(time[0]) if above.size else np.nan
    ends = slice(above[0] - 1, above[0] + 1)
    return float(np.exp(np.interp(level, curve[ends], np.log(time[ends]))))


def has_both_times(dataset: xr.Dataset) -> Array:
    """Return which directions have a predicted and a measured emergence time, both after the start."""
    exact, measured = dataset["predicted_emergence_time"].values, dataset["emergence_time"].values
    both: Array = np.isfinite(exact) & np.isfinite(measured) & (exact > 0) & (measured > 0)
    return both


def _draw_errors(ax: Axes, dataset: xr.Dataset, points: Any) -> None:
    """Draw numerical errors of emergence times as bars, where they can be seen."""
    if "emergence_time_error" not in dataset:
        return
    times, errors = dataset["emergence_time"].values[points], dataset["emergence_time_error"].values[points]
    seen = errors > VISIBLE_ERROR * times
    exact = dataset["predicted_emergence_time"].values[points]
    ax.errorbar(exact[seen], times[seen], yerr=BAND * errors[seen], fmt="none", color=MEASURED, capsize=2)


def summary_figure(dataset: xr.Dataset) -> Figure:
    """Return one figure with overlaps, loss and emergence times."""
    plots: list[Callable[[xr.Dataset, Axes], Axes]] = [plot_loss]
    if any(name in dataset for name in HISTORIES):
        plots.insert(0, plot_emergence)
    if has_both_times(dataset).any():
        plots.append(plot_emergence_times)
    # Fixed margins: a layout engine draws everything twice, which is half of the time of this figure.
    margins = {"left": 0.055, "right": 0.985, "bottom": 0.13, "top": 0.86, "wspace": 0.28}
    size = (13.0 if len(plots) > 1 else 6.8, 4.2)
    figure, panels = new_panels(size, 1, len(plots), margins=margins, squeeze=False)
    for plot, ax in zip(plots, panels[0], strict=True):
        plot(dataset, ax)
    one = samples_of_one(dataset)
    meaning = "" if one is None else f"\nflow time $t = 1$ is {count_text(one[0])} samples of SGD at {one[1]}"
    figure.suptitle(headline(dataset) + meaning, fontsize="medium")
    return figure


def headline(dataset: xr.Dataset) -> str:
    """Return title, link and sizes of a dataset in one line."""
    import json

    stored = json.loads(dataset.attrs["parameters"])["problem"]
    spectrum = "" if stored["beta"] is None else rf", $a_p \propto p^{{-{stored['beta']:g}}}$"
    width = f"{dataset.attrs['particles']} particles" if "particles" in dataset.attrs else f"$m = {stored['width']}$"
    polynomial = stored.get("teacher", {}).get("polynomial")
    teacher = f"$P = {stored['num_directions']}$" if polynomial is None else f"$f^* =$ {plain_text(polynomial)}"
    sizes = f"{teacher}, {width}, $d = {stored['dimension']}$"
    return f"{plain_text(dataset.attrs['title'])}: {plain_text(stored['activation']['name'])}{spectrum}, {sizes}"


def predicted_loss(dataset: xr.Dataset) -> Array | None:
    """Return the sum-formula loss of a result, or None where there is none."""
    if "predicted_loss" not in dataset:
        return None
    loss: Array = dataset["predicted_loss"].values
    return loss if np.isfinite(loss).all() else None


def squared_overlap(dataset: xr.Dataset) -> Array:
    """Return the largest squared overlap per time and direction; for odd k of positive overlaps only."""
    for name in ("overlap", "max_overlap"):
        if name in dataset:
            size: Array = np.asarray(dataset[name].values, dtype=np.float64)
            return size**2
    if "teacher_overlap" not in dataset:
        msg = "Argument `dataset` must hold an overlap history, but has none."
        raise ValueError(msg)
    overlap = np.asarray(dataset["teacher_overlap"].values)
    if dataset.attrs["information_exponent"] % 2:
        overlap = np.maximum(overlap, 0.0)
    largest: Array = (overlap**2).max(axis=1)
    return largest
