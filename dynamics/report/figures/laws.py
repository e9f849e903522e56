"""Figures of the studies of scaling laws, one each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.bands import log_band
from dynamics.report.figures.panels import colour_bar, drawer_of, finish_panel, given_panels, new_panels
from dynamics.report.figures.style import (
    IDEAL,
    MEASURED,
    PREDICTED,
    REFERENCE,
    figure_style,
    formula,
    power,
    shades,
)
from dynamics.report.figures.transfer import draw_transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hermite.arrays import Array

#: Sources of an exponent, each with the height, style and colour of its slope; the sum formula is drawn as a curve.
SLOPES = (
    ("fit", 1.0, "--", "k"),
    ("sum formula", None, "-", PREDICTED),
    ("ideal sum", 0.55, "-.", IDEAL),
    ("asymptotic", 0.4, ":", REFERENCE),
)
#: Panels side by side.
MOST_COLUMNS = 4
#: Points that are drawn one by one; more are a curve.
MOST_POINTS = 40
COMPUTE = r"compute, $m\times$ steps"
#: What each law says, in words and typeset, x and y.
LAWS = {
    "loss-time": ("L ~ t^x", r"$L \propto t^x$", "flow time $t$", "loss"),
    "loss-samples": ("L ~ n^x, fixed step", r"$L \propto n^x$, fixed step", "samples $n$, fixed step", "loss"),
    "loss-samples-tuned": (
        "L ~ n^x, tuned step",
        r"$L \propto n^x$, tuned step",
        "samples $n$, step tuned to the last direction",
        "loss",
    ),
    "loss-width": ("L ~ m^x", r"$L \propto m^x$", "width $m$", "loss at the end"),
    "loss-compute": ("L ~ compute^x", r"$L \propto$ compute$^x$", COMPUTE, "least loss over widths"),
    "width-compute": ("best m ~ compute^x", r"best $m \propto$ compute$^x$", COMPUTE, "best width $m$"),
    "time-direction": ("T_p ~ p^x", r"$T_p \propto p^x$", "direction $p$", "emergence time $T_p$"),
    "time-dimension": ("T ~ d^x", r"$T \propto d^x$", "dimension $d$", "mean emergence time"),
}


def plot_study(dataset: xr.Dataset, axes: Sequence[Axes] | None = None, *, style: str | None = None) -> Figure:
    """Draw the figure of a study of scaling laws.

    Parameters
    ----------
    dataset : Dataset
        Result of `scaling_study`, `quadratic_laws`, `finite_size`, `compute_frontier` or `transfer_study`.
    axes : sequence of Axes, optional
        Where to draw: one for each law of `scaling_study`; one for all dimensions and one for each law beside of
        `quadratic_laws`; one for each β of `finite_size`; two of `compute_frontier`, or three with the coupled flow;
        three of `transfer_study`. By default a new figure.
    style : {"screen", "paper", "talk"}, optional
        Of a new figure; see `figure_style`.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        If the dataset is no such study's, or `axes` are not so many.
    """
    draw, panels_of, (width, height) = drawer_of(dataset, _DRAWN)
    count = panels_of(dataset)
    with figure_style(style):
        if axes is None:
            columns = min(count, MOST_COLUMNS)
            rows = -(-count // columns)
            _, grid = new_panels((width * columns, height * rows), rows, columns, squeeze=False)
            panels, unused = np.split(grid.ravel(), [count])
            for ax in unused:
                ax.remove()
        else:
            panels = given_panels("axes", axes, count)
        draw(dataset, panels)
    figure: Figure = panels[0].get_figure()
    return figure


def law_title(name: str) -> str:
    """Return a law in words; what follows a comma in its name says how it was measured."""
    base, comma, how = name.partition(",")
    return LAWS[base][0] + comma + how


def _fitted(law: xr.Dataset) -> tuple[Array, Array, Array]:
    """Return the exponents of a law and their errors, by source, and the ends of the window of the fit."""
    window = np.array([law["window_low"].item(), law["window_high"].item()])
    return law["exponent"].values, law["exponent_error"].values, window


def typeset_law(name: str) -> str:
    """Return a law as its typeset formula."""
    base, comma, how = name.partition(",")
    return LAWS[base][1] + comma + how


def _draw_laws(dataset: xr.Dataset, panels: Array) -> None:
    """One panel per law: points of all starts, the sum formula, the fit, and the asymptotic slope beside it."""
    for name, ax in zip(dataset["law"].values.tolist(), panels, strict=True):
        _draw_law(dataset.sel(law=name), name, ax)


def _draw_law(law: xr.Dataset, name: str, ax: Axes) -> None:
    x = law["abscissa"].values
    runs = law["ordinate"].sel(curve="measured").values
    measured, sums = (log_band(law["ordinate"].sel(curve=curve).values)[0] for curve in law["curve"].values)
    ax.loglog(x, sums, "-", color=PREDICTED, lw=1.2, zorder=1)
    _draw_mean(ax, x, runs, MEASURED)
    exponent, error, span = _fitted(law)
    known = x[np.isfinite(measured)]
    span = np.clip(span, known.min(), known.max()) if known.size else span
    middle = np.exp(np.log(span).mean())
    height, lowest = float(law["prefactor"].values[0]) * middle ** exponent[0], np.inf
    # Slopes are drawn apart from each other, so that each can be seen.
    for at, (source, shift, style, colour) in enumerate(SLOPES):
        label = f"{source}: {formula(exponent[at], error[at])}"
        if not np.isfinite(exponent[at]):
            continue
        if shift is None:
            ax.plot([], [], style, color=colour, lw=1.2, label=label)
        else:
            slope = shift * height * (span / middle) ** exponent[at]
            ax.loglog(span, slope, style, color=colour, lw=1.3, label=label)
            lowest = min(lowest, slope.min())
    *_, abscissa, ordinate = LAWS[name.partition(",")[0]]
    shown = measured[np.isfinite(measured) & (measured > 0.0)]
    if shown.size and ordinate.startswith(("loss", "least")):
        # What comes long after the window would hide the law.
        floor = height * (span[1] / middle) ** exponent[0] if np.isfinite(height) else 0.02 * shown.max()
        ax.set_ylim(0.8 * min(max(shown.min(), 0.05 * floor), lowest), 2.0 * shown.max())
    finish_panel(ax, abscissa, ordinate, typeset_law(name))


def _draw_mean(ax: Axes, x: Array, runs: Array, colour: str, **style: Any) -> None:
    """Draw the geometric mean over runs (run, x) with two standard errors: as points with bars if few, else a band."""
    mean, low, high = log_band(runs)
    if np.isfinite(x).sum() <= MOST_POINTS:
        ax.errorbar(x, mean, yerr=[mean - low, high - mean], fmt="o", color=colour, ms=3.5, capsize=2, **style)
        return
    ax.plot(x, mean, "-", color=colour, lw=1.6, zorder=2, **style)
    ax.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)


def _draw_finite_size(dataset: xr.Dataset, panels: Array) -> None:
    """One panel per β: the fitted exponent against P, by pairs from random starts and by the idealised sum."""
    betas, count = dataset["beta"].values.tolist(), dataset["num_directions"].values.astype(float)
    for beta, ax in zip(betas, panels, strict=True):
        one = dataset.sel(beta=beta)
        exponent, error = one["exponent"].values, one["exponent_error"].values
        law = exponent[np.isfinite(exponent[:, 3]), 3]
        # The points of one P side by side.
        for at, shift, colour, style, label in (
            (2, 0.9, IDEAL, "s-", "ideal sum (bars: jackknife)"),
            (0, 1.1, MEASURED, "o", "matched pairs (bars: starts)"),
        ):
            bars: dict[str, Any] = {"yerr": error[:, at], "ms": 4, "capsize": 2}
            ax.errorbar(shift * count, exponent[:, at], fmt=style, color=colour, label=label, **bars)
        if law.size:
            ax.axhline(law[0], color=REFERENCE, ls=":", lw=1.4, label=f"asymptotic {formula(law[0])}")
            ax.axhspan(0.98 * law[0], 1.02 * law[0], color=REFERENCE, alpha=0.15, lw=0.0, label="within 2 %")
        ax.set_xscale("log")
        finish_panel(ax, "number of directions $P$", r"exponent $x$ of $L \propto t^x$", rf"$\beta = {beta:g}$")


def _routes(dataset: xr.Dataset) -> list[tuple[str, str]]:
    """Return how the losses of a frontier were computed, each with the name of its law."""
    routes = [("matched pairs", "loss-compute"), ("coupled flow", "loss-compute, coupled")]
    return [(route, law) for route, law in routes if law in dataset["law"].values]


def _draw_frontier(dataset: xr.Dataset, axes: Array) -> None:
    """Loss of every width against compute with the frontier, for each route that was taken, and the best width."""
    names = dataset["law"].values.tolist()
    *panels, last = axes
    for (route, law), ax in zip(_routes(dataset), panels, strict=True):
        _draw_widths(dataset, route, ax)
        _draw_law_lines(dataset.sel(law=law), ax)
        title = rf"{route}, $\eta = {dataset.attrs['learning_rate']:g}$"
        finish_panel(ax, COMPUTE, "loss", title, loc="lower left")
    for law, colour in (("width-compute", MEASURED), ("width-compute, coupled", PREDICTED)):
        if law in names:
            one = dataset.sel(law=law)
            x, best = one["abscissa"].values, one["ordinate"].sel(curve="measured").values
            last.set(xscale="log", yscale="log")
            _draw_mean(last, x, best, colour, label="coupled flow" if "coupled" in law else "pairs")
            exponent, error, span = _fitted(one)
            if np.isfinite(exponent[0]):
                fitted = one["prefactor"].values[0] * span ** exponent[0]
                label = f"fit: {formula(exponent[0], error[0])}; asymptotic {formula(exponent[3])}"
                last.loglog(span, fitted, "--", color=colour, lw=1.2, label=label)
    finish_panel(last, COMPUTE, "best width $m$", "best width: steps from one width to the next")


def _draw_widths(dataset: xr.Dataset, route: str, ax: Axes) -> None:
    rate, time = dataset.attrs["learning_rate"], dataset["time"].values
    losses = dataset["loss"].sel(curve_of=route)
    widths = [m for m in dataset["width"].values.tolist() if np.isfinite(losses.sel(width=m)).any()]
    colours = shades(len(widths))
    for m, colour in zip(widths, colours, strict=True):
        loss = losses.sel(width=m).values
        ax.loglog(m * time / rate, np.where(loss > 0.0, loss, np.nan), color=colour, lw=1.1)
    colour_bar(ax, "$m$", widths, colours, (0.84, 0.58))
    ax.set_ylim(0.5 * float(np.nanmin(losses.values[:, -1][losses.values[:, -1] > 1e-3], initial=1.0)), 1.6)


def _draw_law_lines(law: xr.Dataset, ax: Axes) -> None:
    """Draw the frontier with its error, its fit, and the asymptotic slope below it."""
    exponent, error, span = _fitted(law)
    if not np.isfinite(exponent[0]):
        return
    fitted = law["prefactor"].values[0] * span ** exponent[0]
    x, (mean, low, high) = law["abscissa"].values, log_band(law["ordinate"].sel(curve="measured").values)
    several = bool((high > low).any())
    ax.loglog(x, mean, color="k", lw=3.0, alpha=0.3, label="frontier, two s.e." if several else "frontier")
    ax.fill_between(x, low, high, color=REFERENCE, alpha=0.3, lw=0)
    ax.loglog(span, fitted, "k--", lw=1.6, label=f"its fit: {formula(exponent[0], error[0])}")
    for at, name in ((1, "sum formula"), (2, "ideal sum")):
        if np.isfinite(exponent[at]):
            ax.plot([], [], " ", label=f"{name}: {formula(exponent[at], error[at])}")
    reference = 0.6 * fitted[0] * (span / span[0]) ** exponent[3]
    ax.loglog(span, reference, ":", color=PREDICTED, lw=1.6, label=f"asymptotic: {formula(exponent[3])}")


def _draw_transfer(dataset: xr.Dataset, panels: Array) -> None:
    draw_transfer(dataset, panels, float(dataset.attrs["edge"]), "stability edge")


def _laws_in_time(dataset: xr.Dataset) -> tuple[list[str], list[str]]:
    """Return the laws of the loss in time, one for each dimension, and all others."""
    names = dataset["law"].values.tolist()
    in_time = [name for name in names if name.startswith("loss-time")]
    return in_time, names[len(in_time) :]


def _draw_quadratic(dataset: xr.Dataset, axes: Array) -> None:
    """Loss of all dimensions against scaled time, with fits and the asymptotic slope, and the other laws beside it."""
    dimensions, others = _laws_in_time(dataset)
    left, *panels = axes
    for name, colour in zip(dimensions, shades(len(dimensions), 0.8), strict=True):
        law = dataset.sel(law=name)
        exponent, error, span = _fitted(law)
        dimension = formula(float(name.partition("d = ")[2]))
        label = f"$d =$ {dimension}: {power('t', exponent[0], error[0])}"
        _draw_mean(left, law["abscissa"].values, law["ordinate"].sel(curve="measured").values, colour, label=label)
        if np.isfinite(exponent[0]):
            left.loglog(span, law["prefactor"].values[0] * span ** exponent[0], "--", color="k", lw=1.0)
    if np.isfinite(exponent[3]):
        slope = 3.0 * law["prefactor"].values[0] * span[0] ** exponent[0] * (span / span[0]) ** exponent[3]
        left.loglog(span, slope, ":", color=REFERENCE, lw=1.4, label=f"asymptotic: {power('t', exponent[3])}")
    left.set(xscale="log", yscale="log")
    finish_panel(left, r"scaled time $4 a_1 t / \ln(d/m)$", "loss $|Q - A|^2$", "dashed: fits")
    for name, ax in zip(others, panels, strict=True):
        _draw_law(dataset.sel(law=name), name, ax)


#: Study -> what draws it on panels, how many it needs, and their width and height in inches.
_DRAWN: dict[str, tuple[Callable[[xr.Dataset, Array], None], Callable[[xr.Dataset], int], tuple[float, float]]] = {
    "scaling": (_draw_laws, lambda found: found.sizes["law"], (4.2, 3.9)),
    "quadratic-scaling": (_draw_quadratic, lambda found: 1 + len(_laws_in_time(found)[1]), (5.25, 4.3)),
    "finite-size": (_draw_finite_size, lambda found: found.sizes["beta"], (4.2, 3.9)),
    "compute-frontier": (_draw_frontier, lambda found: 1 + len(_routes(found)), (5.2, 4.6)),
    "transfer": (_draw_transfer, lambda _: 3, (14.5 / 3, 4.4)),
}
