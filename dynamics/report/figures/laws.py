"""Figures of the studies of scaling laws, one each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.flows import MEASURED, PREDICTED, REFERENCE
from dynamics.report.figures.panels import check_drawable, finish_panel, shades
from dynamics.report.figures.transfer import draw_transfer
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hermite.arrays import Array

IDEAL = "#1e8449"
MANY_DECADES = 1e5
#: Sources of an exponent, each with the height, style and colour of its slope; the sum formula is drawn as a curve.
SLOPES = (
    ("fit", 1.0, "--", "k"),
    ("sum formula", None, "-", PREDICTED),
    ("ideal sum", 0.55, "-.", IDEAL),
    ("asymptotic", 0.4, ":", REFERENCE),
)
#: What each law says, x and y, for people.
LAWS = {
    "loss-time": ("L ~ t^x", "flow time t", "loss"),
    "loss-samples": ("L ~ n^x, fixed step", "samples n, fixed step", "loss"),
    "loss-samples-tuned": ("L ~ n^x, tuned step", "samples n, step tuned to the last direction", "loss"),
    "loss-width": ("L ~ m^x", "width m", "loss at the end"),
    "loss-compute": ("L ~ compute^x", "compute, m · steps", "least loss over widths"),
    "width-compute": ("best m ~ compute^x", "compute, m · steps", "best width"),
    "time-direction": ("T_p ~ p^x", "direction p", "emergence time"),
    "time-dimension": ("T ~ d^x", "dimension d", "mean emergence time"),
}


def plot_study(dataset: xr.Dataset) -> Figure:
    """Return the figure of a study of `python -m dynamics.laws`; raise ValueError for any other dataset."""
    check_drawable(dataset)
    answer = dataset.attrs["answer"]
    if answer not in _DRAWN:
        msg = f"Argument `dataset` must be the result of a study, one of {', '.join(_DRAWN)}, but is {shown(answer)}."
        raise ValueError(msg)
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    _DRAWN[answer](dataset, figure)
    return figure


def law_title(name: str) -> str:
    """Return a law in words; what follows a comma in its name says how it was measured."""
    base, comma, how = name.partition(",")
    return LAWS[base][0] + comma + how


def _fitted(law: xr.Dataset) -> tuple[Array, Array, Array]:
    """Return the exponents of a law and their errors, by source, and the ends of the window of the fit."""
    window = np.array([law["window_low"].item(), law["window_high"].item()])
    return law["exponent"].values, law["exponent_error"].values, window


def _number(value: float, error: float = np.nan) -> str:
    return f"{value:.3f}" + (f" ± {error:.3f}" if np.isfinite(error) else "")


def _draw_laws(dataset: xr.Dataset, figure: Any) -> None:
    """One panel per law: points of all starts, the sum formula, the fit, and the asymptotic slope beside it."""
    names = dataset["law"].values.tolist()
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    figure.set_size_inches(4.2 * columns, 3.9 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for name, ax in zip(names, panels, strict=False):
        _draw_law(dataset.sel(law=name), name, ax)
    for ax in panels[len(names) :]:
        ax.set_axis_off()


def _draw_law(law: xr.Dataset, name: str, ax: Axes) -> None:
    x = law["abscissa"].values
    measured, sums = (_mean(law["ordinate"].sel(curve=curve).values) for curve in law["curve"].values)
    few = np.isfinite(x).sum() <= 40
    ax.loglog(x, sums, "-", color=PREDICTED, lw=1.2, zorder=1)
    ax.loglog(x, measured, "o" if few else "-", color=MEASURED, ms=3.5, lw=1.6, zorder=2)
    exponent, error, span = _fitted(law)
    known = x[np.isfinite(measured)]
    span = np.clip(span, known.min(), known.max()) if known.size else span
    middle = np.exp(np.log(span).mean())
    height = float(law["prefactor"].values[0]) * middle ** exponent[0]
    # Slopes are drawn apart from each other, so that each can be seen.
    for at, (source, shift, style, colour) in enumerate(SLOPES):
        label = f"{source}: {_number(exponent[at], error[at])}"
        if not np.isfinite(exponent[at]):
            continue
        if shift is None:
            ax.plot([], [], style, color=colour, lw=1.2, label=label)
        else:
            slope = shift * height * (span / middle) ** exponent[at]
            ax.loglog(span, slope, style, color=colour, lw=1.3, label=label)
    _, abscissa, ordinate = LAWS[name.partition(",")[0]]
    shown = measured[np.isfinite(measured) & (measured > 0.0)]
    if shown.size and ordinate.startswith(("loss", "least")):
        # What comes long after the window would hide the law.
        floor = height * (span[1] / middle) ** exponent[0] if np.isfinite(height) else shown.min()
        ax.set_ylim(max(shown.min(), 0.05 * floor), 2.0 * shown.max())
    _finish_sparse(ax, abscissa, ordinate, law_title(name))


def _finish_sparse(ax: Axes, x: str, y: str, title: str) -> None:
    """Name the axes and label them in plain numbers, at most five along x: large ones are wide."""
    from matplotlib.ticker import LogLocator

    finish_panel(ax, x, y, title)
    low, high = ax.get_xlim()
    if high > MANY_DECADES * low:
        ax.xaxis.set_major_locator(LogLocator(numticks=5))


def _mean(runs: Array) -> Array:
    """Return the geometric mean over the runs that are known; NaN where none is."""
    known = np.isfinite(runs) & (runs > 0.0)
    count = known.sum(axis=0)
    total = np.log(np.where(known, runs, 1.0)).sum(axis=0)
    mean: Array = np.where(count > 0, np.exp(total / np.maximum(count, 1)), np.nan)
    return mean


def _draw_finite_size(dataset: xr.Dataset, figure: Any) -> None:
    """One panel per β: the fitted exponent against P, by pairs from random starts and by the idealised sum."""
    betas, count = dataset["beta"].values.tolist(), dataset["num_directions"].values.astype(float)
    figure.set_size_inches(4.2 * len(betas), 3.9)
    for beta, ax in zip(betas, figure.subplots(1, len(betas), squeeze=False)[0], strict=True):
        one = dataset.sel(beta=beta)
        exponent, error = one["exponent"].values, one["exponent_error"].values
        law = exponent[np.isfinite(exponent[:, 3]), 3]
        for at, colour, style, label in (
            (2, IDEAL, "s-", "ideal sum (bars: jackknife)"),
            (0, MEASURED, "o", "matched pairs (bars: starts)"),
        ):
            ax.errorbar(
                count, exponent[:, at], yerr=error[:, at], fmt=style, color=colour, ms=4, capsize=2, label=label
            )
        if law.size:
            ax.axhline(law[0], color=REFERENCE, ls=":", lw=1.4, label=f"asymptotic {law[0]:.3f}")
            ax.axhspan(0.98 * law[0], 1.02 * law[0], color=REFERENCE, alpha=0.15, lw=0.0, label="within 2 %")
        ax.set_xscale("log")
        _finish_sparse(ax, "number of directions P", "exponent of L ∝ t^x", f"β = {beta:g}")


def _draw_frontier(dataset: xr.Dataset, figure: Any) -> None:
    """Loss of every width against compute with the frontier, for each route that was taken, and the best width."""
    names = dataset["law"].values.tolist()
    routes = [("matched pairs", "loss-compute")]
    if "loss-compute, coupled" in names:
        routes.append(("coupled flow", "loss-compute, coupled"))
    figure.set_size_inches(5.2 * (len(routes) + 1), 4.6)
    *panels, last = figure.subplots(1, len(routes) + 1)
    for (route, law), ax in zip(routes, panels, strict=True):
        _draw_widths(dataset, route, ax)
        _draw_law_lines(dataset.sel(law=law), ax)
        _finish_sparse(ax, "compute, m · steps", "loss", f"{route}, η = {dataset.attrs['learning_rate']:g}")
    for law, colour in (("width-compute", MEASURED), ("width-compute, coupled", PREDICTED)):
        if law in names:
            one = dataset.sel(law=law)
            x, best = one["abscissa"].values, one["ordinate"].sel(curve="measured").values
            last.loglog(x, _mean(best), color=colour, lw=1.5, label="coupled flow" if "coupled" in law else "pairs")
            exponent, error, span = _fitted(one)
            if np.isfinite(exponent[0]):
                fitted = one["prefactor"].values[0] * span ** exponent[0]
                label = f"fit: {_number(exponent[0], error[0])}; asymptotic {exponent[3]:.3f}"
                last.loglog(span, fitted, "--", color=colour, lw=1.2, label=label)
    _finish_sparse(last, "compute, m · steps", "best width m", "best width: steps from one width to the next")


def _draw_widths(dataset: xr.Dataset, route: str, ax: Axes) -> None:
    rate, time = dataset.attrs["learning_rate"], dataset["time"].values
    losses = dataset["loss"].sel(curve_of=route)
    widths = [m for m in dataset["width"].values.tolist() if np.isfinite(losses.sel(width=m)).any()]
    for m, colour in zip(widths, shades(len(widths)), strict=True):
        loss = losses.sel(width=m).values
        label = f"m = {m}" if m in (widths[0], widths[-1]) else None
        ax.loglog(m * time / rate, np.where(loss > 0.0, loss, np.nan), color=colour, lw=1.1, label=label)
    ax.set_ylim(0.5 * float(np.nanmin(losses.values[:, -1][losses.values[:, -1] > 1e-3], initial=1.0)), 1.6)


def _draw_law_lines(law: xr.Dataset, ax: Axes) -> None:
    """Draw fit and asymptotic slope of the frontier, the latter above it."""
    exponent, error, span = _fitted(law)
    if not np.isfinite(exponent[0]):
        return
    fitted = law["prefactor"].values[0] * span ** exponent[0]
    ax.loglog(span, fitted, "k--", lw=1.6, label=f"frontier: {_number(exponent[0], error[0])}")
    ax.plot([], [], " ", label=f"sum formula {exponent[1]:.3f}, ideal sum {exponent[2]:.3f}")
    reference = 0.6 * fitted[0] * (span / span[0]) ** exponent[3]
    ax.loglog(span, reference, ":", color=PREDICTED, lw=1.6, label=f"asymptotic: {exponent[3]:.3f}")


def _draw_transfer(dataset: xr.Dataset, figure: Any) -> None:
    figure.set_size_inches(14.5, 4.4)
    draw_transfer(dataset, figure.subplots(1, 3), float(dataset.attrs["edge"]), "stability edge")


def _draw_quadratic(dataset: xr.Dataset, figure: Any) -> None:
    """Loss of all dimensions against scaled time, with fits and the asymptotic slope, and the other laws beside it."""
    names = dataset["law"].values.tolist()
    dimensions = [name for name in names if name.startswith("loss-time")]
    others = names[len(dimensions) :]
    figure.set_size_inches(5.25 * (1 + len(others)), 4.3)
    left, *panels = figure.subplots(1, 1 + len(others))
    for name, colour in zip(dimensions, shades(len(dimensions), 0.8), strict=True):
        law = dataset.sel(law=name)
        exponent, error, span = _fitted(law)
        label = f"{name.partition(', ')[2]}: t^({_number(exponent[0], error[0])})"
        left.loglog(law["abscissa"], _mean(law["ordinate"].sel(curve="measured").values), color=colour, label=label)
        if np.isfinite(exponent[0]):
            left.loglog(span, law["prefactor"].values[0] * span ** exponent[0], "--", color="k", lw=1.0)
    if np.isfinite(exponent[3]):
        slope = 3.0 * law["prefactor"].values[0] * span[0] ** exponent[0] * (span / span[0]) ** exponent[3]
        left.loglog(span, slope, ":", color=REFERENCE, lw=1.4, label=f"asymptotic: t^({exponent[3]:.2f})")
    _finish_sparse(left, "scaled time 4 a_1 t / ln(d/m)", "loss |Q − A|²", "dashed: fits")
    for name, ax in zip(others, panels, strict=True):
        _draw_law(dataset.sel(law=name), name, ax)


_DRAWN: dict[str, Callable[[xr.Dataset, Any], None]] = {
    "scaling": _draw_laws,
    "quadratic-scaling": _draw_quadratic,
    "finite-size": _draw_finite_size,
    "compute-frontier": _draw_frontier,
    "transfer": _draw_transfer,
}
