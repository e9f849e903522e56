"""Claims of the founding paper: sentences on them, tables, and figures."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import figures
from dynamics.report.figures import IDEAL, MEASURED, PREDICTED, REFERENCE, Study, finish_panel
from dynamics.report.findings import Findings, rows_of, study_findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dynamics.report.figures import Found
    from hermite.arrays import Array

#: Most widths whose losses and fits are drawn.
MOST_CURVES = 8


def claim_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on a claim of the founding paper."""
    summary, sentences = CLAIMS[dataset.attrs["answer"]].find(dataset)
    return study_findings(dataset, summary, sentences, partial(plot_claim, dataset))


def plot_claim(dataset: xr.Dataset, axes: Sequence[Axes] | None = None, *, style: str | None = None) -> Figure:
    """Draw the figure of a claim, on `axes` or as a new figure in a `style`, and return it."""
    return figures.draw_study(dataset, CLAIMS, axes, style)


def _theorem(dataset: xr.Dataset) -> Found:
    """Return the numbers of the check of the theorem on one start, with a row per direction, and sentences on them."""
    columns = {"direction": "direction", "Delta_b": "delta_b_of_direction", "Delta_c": "delta_c_of_direction"}
    columns |= {"irrelevant before": "irrelevant_before", "irrelevant after": "irrelevant_after"}
    names = ("delta_b", "delta_c", "delta_c_leading_order", "unused_squared_norm")
    numbers = {name: float(dataset[name]) for name in names}
    sentences = [
        dataset.attrs["sentence"],
        f"Leading order of Delta_c: {numbers['delta_c_leading_order']:.3g}; largest squared norm of an unused neuron: "
        f"{numbers['unused_squared_norm']:.3g}.",
        "irrelevant: largest squared overlap of any other neuron with the direction, until T_p and after it.",
    ]
    return {"points": rows_of(dataset, columns), **numbers}, sentences


def _theorem_study(dataset: xr.Dataset) -> Found:
    """Return the numbers of the check of the theorem by dimension, means over starts, and sentences on them."""
    means = dataset.mean("start")
    columns = {"dimension": "dimension", "Delta_b": "delta_b", "Delta_c": "delta_c"}
    columns |= {"leading order": "delta_c_leading_order", "unused norm": "unused_squared_norm"}
    last = f"At the largest dimension: {dataset.attrs['sentence']}"
    sentences = [last, "Rows are means over starts; the theorem wants Delta below 1."]
    return {"points": rows_of(means, columns)}, sentences


def _decoupling(dataset: xr.Dataset) -> Found:
    """Return measured over predicted times by dimension, with standard errors over starts, and a sentence on them."""
    points, starts = [], dataset.sizes["start"]
    for at, dimension in enumerate(dataset["dimension"].values.tolist()):
        ratio = dataset["time_ratio"].values[at]
        error = float(np.std(ratio, ddof=1) / np.sqrt(starts)) if starts > 1 else np.nan
        shares = {name: float(dataset[f"{name}_share"].values[at].mean()) for name in ("taken", "unlearned")}
        count = int(dataset["directions_at_dimension"].values[at])
        points.append({"d": dimension, "P": count, "ratio": float(ratio.mean()), "error": error, **shares})
    sentences = [
        "ratio: emerged over predicted time, mean over directions and starts; taken: share of directions that another "
        "neuron than the matched one learns; unlearned: share that did not emerge, left out of the ratio."
    ]
    return {"points": points}, sentences


def _surface(dataset: xr.Dataset) -> Found:
    """Return the fitted parameters of every form of the surface of the loss, and sentences on them."""
    by_form = dataset if "form" in dataset.dims else dataset.expand_dims("form")
    forms, points = [str(form) for form in by_form["form"].values], []
    for name in by_form["parameter"].values.tolist():
        row: dict[str, Any] = {"parameter": str(name).replace("_", " ")}
        for form in forms:
            fit = by_form.sel(form=form, parameter=name)
            row |= {form: float(fit["fitted"]), f"{form} error": float(fit["fitted_error"])}
        points.append(row)
    residuals = {form: float(by_form["residual"].sel(form=form)) for form in forms}
    best = min(forms, key=lambda form: residuals[form])
    shown = ", ".join(f"{form} {residual:.3g}" for form, residual in residuals.items())
    sentences = [
        "sum: E + A m^-alpha + B n^-beta; max: E + max(A m^-alpha, B n^-beta), the form of the corollary.",
        f"Root mean square of ln L minus its fit: {shown}. The form {best!r} has the smallest.",
    ]
    return {"points": points, "residuals": residuals}, sentences


def _draw_theorem(dataset: xr.Dataset, axes: Array) -> None:
    """Draw Δ_b and Δ_c of every direction as bars, with the bound of the theorem."""
    (ax,) = axes
    p, width = dataset["direction"].values, 0.35
    for shift, name, colour in ((-0.5, "b", MEASURED), (0.5, "c", PREDICTED)):
        values = dataset[f"delta_{name}_of_direction"].values
        ax.bar(p + shift * width, values, width, color=colour, label=rf"$\Delta_{name}$, part ({name})")
    ax.axhline(1.0, color=REFERENCE, ls=":", lw=1.4, label="the theorem: below 1")
    ax.set_yscale("log")
    finish_panel(ax, "direction", "theorem_delta", "", p)


def _draw_theorem_study(dataset: xr.Dataset, axes: Array) -> None:
    """Draw the largest Δ_b and Δ_c of every start against the dimension, with the bound of the theorem."""
    (ax,) = axes
    d = dataset["dimension"].values
    for name, colour, label in (("delta_c", PREDICTED, "part (c)"), ("delta_b", MEASURED, "part (b)")):
        for start in range(dataset.sizes["start"]):
            ax.loglog(d, dataset[name].values[:, start], "o-", color=colour, ms=4, label=None if start else label)
    leading = dataset["delta_c_leading_order"].mean("start").values
    ax.loglog(d, leading, "--", color=IDEAL, lw=1.3, label="part (c), leading order")
    ax.axhline(1.0, color=REFERENCE, ls=":", lw=1.4, label="the theorem: below 1")
    finish_panel(ax, "dimension", "theorem_delta")


def _draw_decoupling(dataset: xr.Dataset, axes: Array) -> None:
    """Draw the ratio of emerged to predicted times, and shares of directions, against the dimension."""
    left, right = axes
    d = dataset["dimension"].values
    ratio = dataset["time_ratio"].values
    left.plot(np.repeat(d, ratio.shape[1]), ratio.ravel(), "o", color=MEASURED, ms=3.5, label="one start")
    left.plot(d, ratio.mean(axis=1), "-", color=MEASURED, lw=1.4, label="mean")
    left.axhline(1.0, color=REFERENCE, ls=":", lw=1.4, label="matched pairs alone")
    left.set_xscale("log", base=2)
    finish_panel(left, "dimension", "emerged_over_predicted", rf"$P = d^{{{dataset.attrs['gamma']:g}}}$", d)
    for name, colour, label in (
        ("taken_share", PREDICTED, "learned by another neuron"),
        ("unlearned_share", IDEAL, "not learned by the end"),
    ):
        right.plot(d, dataset[name].mean("start").values, "s-", color=colour, ms=4, label=label)
    right.set_xscale("log", base=2)
    right.set_ylim(0.0, 1.0)
    finish_panel(right, "dimension", "direction_share", "", d)


def _draw_surface(dataset: xr.Dataset, axes: Array) -> None:
    """Draw the loss against the number of samples for each width, with the fits of every form."""
    (ax,) = axes
    by_form = dataset if "form" in dataset.dims else dataset.expand_dims("form")
    m, n, loss = (by_form[name].values for name in ("width", "samples", "loss"))
    widths = np.unique(m)
    widths = widths[np.unique(np.linspace(0, widths.size - 1, min(widths.size, MOST_CURVES)).round().astype(int))]
    colours = figures.shades(widths.size)
    styles = {"sum": "--", "max": "-"}
    for width, colour in zip(widths, colours, strict=True):
        rows = np.flatnonzero(m == width)[np.argsort(n[m == width])]
        ax.loglog(n[rows], loss[rows], "o", color=colour, ms=3)
        for form in by_form["form"].values.tolist():
            fitted = by_form["fitted_loss"].sel(form=form).values
            ax.loglog(n[rows], fitted[rows], styles[form], color=colour, lw=1.1)
    for form in by_form["form"].values.tolist():
        residual = float(by_form["residual"].sel(form=form))
        ax.plot([], [], styles[form], color="k", lw=1.1, label=f"fit: {form}, residual {residual:.2g}")
    ax.set_xlim(right=n.max() * (n.max() / n.min()) ** 0.3)  # room for the colours
    figures.colour_bar(ax, "$m$", widths.astype(int).tolist(), colours, (0.88, 0.5))
    finish_panel(ax, "samples", "law_loss", "points: the table", loc="lower left")


CLAIMS = {
    "theorem": Study(_theorem, _draw_theorem, lambda _: 1, (6.2, 4.2)),
    "theorem-study": Study(_theorem_study, _draw_theorem_study, lambda _: 1, (6.2, 4.2)),
    "decoupling": Study(_decoupling, _draw_decoupling, lambda _: 2, (5.2, 4.0)),
    "surface-fit": Study(_surface, _draw_surface, lambda _: 1, (6.6, 4.6)),
}
