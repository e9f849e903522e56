"""Claims of the founding paper: sentences on them, tables, and figures."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

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
#: Verdict on a claim -> colour.
TONES = {
    "holds": IDEAL,
    "holds with another constant": MEASURED,
    "not at this size": PREDICTED,
    "does not hold as printed": PREDICTED,
}
#: "~ p^beta" typeset.
TIMES_OF_RANK = r"$\propto p^{\beta}$"


def claim_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on a claim of the founding paper."""
    summary, sentences = CLAIMS[dataset.attrs["answer"]].find(dataset)
    findings = study_findings(dataset, summary, sentences, partial(plot_claim, dataset))
    if dataset.attrs["answer"] != "paper":
        return findings
    short = {name: name for name in ("claim", "measured", "error", "paper", "verdict")}
    return replace(findings, tables=[replace(table, short=short) for table in findings.tables])


def plot_claim(dataset: xr.Dataset, axes: Sequence[Axes] | None = None, *, style: str | None = None) -> Figure:
    """Draw the figure of a claim, on `axes` or as a new figure in a `style`, and return it."""
    return figures.draw_study(dataset, CLAIMS, axes, style)


def _theorem(dataset: xr.Dataset) -> Found:
    """Return the numbers of the check of the theorem on one start, with a row per direction, and sentences on them."""
    columns = {"direction": "direction", "Delta_b": "delta_b_of_direction", "Delta_c": "delta_c_of_direction"}
    columns |= {"irrelevant before": "irrelevant_before", "irrelevant after": "irrelevant_after"}
    names = ("delta_b", "delta_c", "delta_c_resolution", "delta_c_leading_order", "unused_squared_norm")
    numbers = {name: float(dataset[name]) for name in names if name in dataset}
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
    points, starts = [], dataset["start"].size
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
        row: dict[str, object] = {"parameter": str(name).replace("_", " ")}
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
    sentences += [dataset.attrs["notes"]] if dataset.attrs.get("notes") else []
    return {"points": points, "residuals": residuals}, sentences


def _width(dataset: xr.Dataset) -> Found:
    """Return the width by number of first directions, with the measured chance and its interval, and sentences."""
    columns = {"first directions": "top", "neurons": "neurons", "chance": "matched_chance"}
    columns |= {"from": "matched_chance_low", "to": "matched_chance_high"}
    slope, chance = float(dataset.attrs["width_slope"]), float(dataset.attrs["chance"])
    sentences = [
        f"neurons: fewest with which all of the first directions are matched at {chance:.3g} of starts.",
        f"Slope of ln m over the logarithm of that number: {slope:.3g}.",
    ]
    return {"points": rows_of(dataset, columns), "slope": slope}, sentences


def _frontier(dataset: xr.Dataset) -> Found:
    """Return the exponent of every step from the limit to matched pairs, with its window, and sentences on them."""
    columns = {"step": "source", "exponent": "exponent", "standard error": "exponent_error"}
    columns |= {"from": "edge_low", "to": "edge_high"}
    limit = float(dataset.attrs["asymptotic"])
    sentences = [
        f"Exponent of the least loss in compute m x steps (limit {limit:.4g}), one more cause in every row but the "
        "greedy set.",
        "from, to: computes of the window, whose best widths are neither the smallest nor above P^0.75. Errors: a "
        "jackknife over the curve, of greedy matching and pairs the scatter over starts.",
    ]
    return {"points": rows_of(dataset, columns), "asymptotic": limit}, sentences


def _methods(dataset: xr.Dataset) -> Found:
    """Return law, source and number of samples of every method, and sentences on them."""
    columns = {"method": "algorithm", "law": "sample_law", "samples": "samples_needed", "neurons": "neurons"}
    beta, slope = json.loads(dataset.attrs["parameters"])["problem"]["beta"], float(dataset.attrs["minimax_exponent"])
    law = (1.0 - 2.0 * beta) / (2.0 * beta)
    sources = [
        f"{m}: {source}" for m, source in zip(dataset["algorithm"].values, dataset["law_source"].values, strict=True)
    ]
    sentences = [
        "samples: the law with constant 1 at this dimension, until the last wanted direction; of kernel, smoothed and "
        "reused batches for one direction. neurons: for all wanted directions at a chance of 95 %.",
        f"Least loss of any method ~ n^x: x = {slope:.4g} fitted, {law:.4g} by its law.",
        f"Sources: {'; '.join(sources)}.",
    ]
    rows = rows_of(dataset, {**columns, "source": "law_source"})
    shown = [{title: row[title] for title in columns} for row in rows]
    return {"points": shown, "sources": sources, "minimax_exponent": slope}, sentences


def _edges(dataset: xr.Dataset) -> Found:
    """Return the limits of the step size by number of directions, and sentences that define them."""
    columns = {"P": "num_directions", "limit of SGD": "step_limit", "formula": "step_limit_large_dimension"}
    columns |= {"edge of descent": "descent_edge"}
    slope = float(dataset.attrs["limit_slope"])
    sentences = [
        "limit of SGD: learning rate from which on second moments of deviations from the teacher grow, one sample a "
        "step (dynamics.learning_rate_limit); formula: 2 g'(1)/(d lambda_max(M diag a)), M_ii = E sigma'^4, "
        "M_ij = g'(1)^2; edge of descent: 2 over the largest eigenvalue of the Hessian.",
        f"Slope of the logarithm of the limit of SGD over that of P: {slope:.2g}.",
    ]
    return {"points": rows_of(dataset, columns), "slope": slope}, sentences


def _composition(dataset: xr.Dataset) -> Found:
    """Return accuracy and bounds of every construction, samples of hop 1 by size, and sentences on them."""
    columns = {"construction": "size", "accuracy": "accuracy", "weight": "right_weight"}
    columns |= {"descent": "descent_bound", "information": "information_bound", "kernel": "kernel_bound"}
    hops = {"hop 1": "hop_size", "samples": "hop_samples", "law": "hop_law", "bound": "hop_bound"}
    measured = dataset["hop_samples"].values
    sentences = [
        "weight: mean weight on the right symbol. descent: order of the time on hop k alone, (N k)^(2k-1); "
        "information: k ln N!/ln N samples; kernel: order of samples d^k, d = k N^2.",
        f"Hop 1 is right in 95 % of rows after {measured.min():.0f} to {measured.max():.0f} samples, "
        "1 + ln((k - 1)/0.05)/ln N rounded up: a logarithm, not a power. k^4 N^6 is only a bound.",
    ]
    return {"points": rows_of(dataset, columns), "hops": rows_of(dataset, hops)}, sentences


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
        for start in range(dataset["start"].size):
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


def _draw_width(dataset: xr.Dataset, axes: Array) -> None:
    """Draw the width against the number of first directions."""
    (ax,) = axes
    tops, widths, slope = dataset["top"].values, dataset["neurons"].values, float(dataset.attrs["width_slope"])
    ax.loglog(tops, widths, "o", color=MEASURED, ms=5, label=f"chance {float(dataset.attrs['chance']):.3g}")
    if np.isfinite(slope):
        middle = np.exp(np.nanmean(np.log(widths)) - slope * np.log(tops).mean())
        ax.loglog(tops, middle * tops**slope, "--", color=IDEAL, lw=1.3, label=f"slope {slope:.3g}")
    ax.loglog(tops, tops, ":", color=REFERENCE, lw=1.4, label="one neuron for each")
    finish_panel(ax, "top", "width", "", tops)


def _draw_frontier(dataset: xr.Dataset, axes: Array) -> None:
    """Draw the loss against the width at equal computes, with the minima, and the lower edge of every step."""
    left, right = axes
    widths, compute = dataset["width"].values, dataset["isoflop_compute"].values
    colours = figures.shades(compute.size)
    for loss, colour in zip(dataset["isoflop_loss"].values, colours, strict=True):
        left.loglog(widths, np.where(loss > 0.0, loss, np.nan), ".-", color=colour, lw=1.1, ms=4)
        best = int(np.nanargmin(loss))
        left.plot(widths[best], loss[best], "o", color=colour, mec="k", ms=6)
    left.set_ylim(bottom=0.2 * left.get_ylim()[0])  # room for the colours
    figures.colour_bar(left, "compute", [f"{c:.1e}" for c in compute.tolist()], colours, (0.72, 0.04))
    finish_panel(left, "width", "law_loss", "matched pairs at equal compute")
    exponent, error = dataset["exponent"].values, dataset["exponent_error"].values
    lines = zip(dataset["source"].values.tolist(), figures.shades(exponent.size), strict=True)
    for at, (name, colour) in enumerate(lines):
        x, y = dataset["abscissa"].values[at], dataset["ordinate"].values[at]
        inside = (x >= dataset["edge_low"].values[at]) & (x <= dataset["edge_high"].values[at]) & (y > 0.0)
        style = "-" if at in (0, exponent.size - 1) else "--"
        label = f"{figures.formula(exponent[at], error[at])}: {name.replace('~ p^beta', TIMES_OF_RANK)}"
        right.loglog(x[inside], y[inside], style, color=colour, lw=1.5, label=label)
    right.set_ylim(bottom=0.25 * right.get_ylim()[0])  # room for the names
    finish_panel(right, "compute", "least_loss", f"limit ${float(dataset.attrs['asymptotic']):.3g}$", loc="lower left")


def _draw_methods(dataset: xr.Dataset, axes: Array) -> None:
    """Draw the number of samples of every method as bars, and the least loss against samples beside its law."""
    left, right = axes
    names, samples = dataset["algorithm"].values.tolist(), dataset["samples_needed"].values
    places = np.arange(len(names))[::-1]
    shown = np.where(np.isfinite(samples), samples, 1.0)  # no bar for a method that never learns
    left.barh(places, shown, color=MEASURED, height=0.6)
    for place, count, law in zip(places, shown, dataset["sample_law"].values.tolist(), strict=True):
        typeset = re.sub(r"\^(-?[\d.]+)", r"^{\1}", law)
        text = law if law == "never" else f"${typeset}$"
        left.annotate(text, (count, place), (4, 0), textcoords="offset points", va="center")
    left.set(xscale="log", yticks=places, yticklabels=names, xlim=(1.0, 1e3 * shown.max()))
    finish_panel(left, "samples", "", f"$d = {json.loads(dataset.attrs['parameters'])['problem']['dimension']}$")
    n = dataset["samples"].values
    right.loglog(n, dataset["minimax_loss"].values, "-", color=MEASURED, lw=1.6, label=r"$\sum_p \min(a_p^2, 1/n)$")
    right.loglog(n, dataset["minimax_law"].values, ":", color=REFERENCE, lw=1.6, label="its law")
    finish_panel(right, "samples", "law_loss", "least loss of any method")


def _paper(dataset: xr.Dataset) -> Found:
    """Return every claim with its numbers and verdict, and a sentence that counts the verdicts."""
    columns = {"claim": "claim", "measured": "measured", "error": "measured_error", "paper": "claimed"}
    columns |= {"kind": "claim_kind", "verdict": "claim_verdict", "says": "statement", "command": "command"}
    verdicts = dataset["claim_verdict"].values.tolist()
    counted = ", ".join(f"{verdicts.count(word)} {word!r}" for word in dict.fromkeys(verdicts))
    sentences = [
        f"{len(verdicts)} claims: {counted}.",
        "holds: within two standard errors or 5 % of the paper's number, of a bound not above it. A constant that "
        "differs by a factor of 3 at most holds with another constant, any other number not at this size. Dotted: the "
        "paper.",
        "true by construction: it follows from how it is measured, and tests nothing. not resolved: it agrees, but its "
        "error is above a quarter of the claim.",
    ]
    rows = zip(dataset["part"].values.tolist(), dataset["statement"].values.tolist(), strict=True)
    sentences += [f"Part {part} {text}" for part, text in rows if text.startswith("failed: ")]
    return {"points": rows_of(dataset, columns)}, sentences


def _draw_paper(dataset: xr.Dataset, axes: Array) -> None:
    """Draw, for every claim, its curve with the claimed slope or level, or the measured beside the claimed number."""
    for at, ax in enumerate(axes):
        claim = dataset.isel(claim=at)
        value, error, claimed = (float(claim[name]) for name in ("measured", "measured_error", "claimed"))
        x, y = claim["claim_x"].values, claim["claim_y"].values
        is_finite = np.isfinite(x) & np.isfinite(y)
        colour = TONES.get(str(claim["claim_verdict"].values), REFERENCE)
        if is_finite.any():
            x, y = x[is_finite], y[is_finite]
            x_name, y_name = str(claim["claim_axes"].values).split(", ")
            ax.set_xlabel(x_name, fontsize="small")
            ax.set_ylabel(y_name, fontsize="small")
            ax.loglog(x, y, ".-", color=colour, ms=4, lw=1.2)
            if bool(claim["claim_is_slope"]):
                middle = np.exp(np.log(x).mean())
                slope = np.exp(np.log(y).mean()) * (x / middle) ** claimed
                ax.loglog(x, slope, ":", color=REFERENCE, lw=1.4)
            else:
                ax.axhline(claimed, color=REFERENCE, ls=":", lw=1.4)
            low, high = ax.get_ylim()
            ax.set_ylim(low / max(1.0, 3.0 * low / high), high * max(1.0, 3.0 * low / high))  # at least a factor of 3
        else:
            ax.bar([0, 1], [value, claimed], 0.5, color=[colour, REFERENCE])
            ax.set_xticks([0, 1], ["measured", "paper"])
        name, verdict = str(claim["claim"].values), str(claim["claim_verdict"].values)
        text = f"{name}: {figures.formula(value, error)}, paper {figures.formula(claimed)}"
        figures.log_ticks(ax)
        ax.set_title(f"{text}\n{verdict}", fontsize="small", color=colour)
        ax.tick_params(labelsize="x-small")


def _draw_edges(dataset: xr.Dataset, axes: Array) -> None:
    """Draw the limit of SGD against the number of directions, with its formula."""
    (ax,) = axes
    counts = dataset["num_directions"].values
    ax.plot(counts, dataset["step_limit"].values, "o-", color=MEASURED, ms=5, label="limit of SGD")
    formula = dataset["step_limit_large_dimension"].values
    ax.plot(counts, formula, "--", color=PREDICTED, lw=1.4, label=r"$d \to \infty$")
    ax.set(xscale="log", ylim=(0.0, 1.3 * float(np.nanmax(formula))))
    finish_panel(ax, "num_directions", "step_size", "", counts, loc="lower right")


def _draw_composition(dataset: xr.Dataset, axes: Array) -> None:
    """Draw the samples of hop 1 against N and k beside law and bound, and the bounds of the constructions."""
    left, right = axes
    places = np.arange(dataset["hop_size"].size)
    for name, style, colour, label in (
        ("hop_samples", "o", MEASURED, "measured"),
        ("hop_bound", "x", REFERENCE, "bound $k^4 N^6$"),
    ):
        left.plot(places, dataset[name].values, style, color=colour, ms=7, label=label)
    law = r"$1 + \ln((k-1)/0.05)/\ln N$"
    left.plot(places, dataset["hop_law"].values, "_", color=IDEAL, ms=18, mew=1.5, label=law)
    left.set(yscale="log", xticks=places)
    left.set_xticklabels([text.replace(", ", "\n") for text in dataset["hop_size"].values.tolist()], fontsize="x-small")
    finish_panel(left, "", "samples", "hop 1 right in 95 % of rows")
    places = np.arange(dataset["size"].size)
    for shift, name, colour in ((-0.25, "information", MEASURED), (0.0, "kernel", IDEAL), (0.25, "descent", PREDICTED)):
        right.bar(places + shift, dataset[f"{name}_bound"].values, 0.23, color=colour, label=name)
    right.set(yscale="log", xticks=places)
    accuracy = dataset["accuracy"].values
    ticks = [
        f"{text}\naccuracy {share:.3g}" for text, share in zip(dataset["size"].values.tolist(), accuracy, strict=True)
    ]
    right.set_xticklabels(ticks, fontsize="x-small")
    finish_panel(right, "", "", "orders of bounds, constant 1", loc="upper left")


CLAIMS = {
    "theorem": Study(_theorem, _draw_theorem, lambda _: 1, (6.2, 4.2)),
    "theorem-study": Study(_theorem_study, _draw_theorem_study, lambda _: 1, (6.2, 4.2)),
    "decoupling": Study(_decoupling, _draw_decoupling, lambda _: 2, (5.2, 4.0)),
    "width-for": Study(_width, _draw_width, lambda _: 1, (6.2, 4.2)),
    "frontier": Study(_frontier, _draw_frontier, lambda _: 2, (6.2, 4.6)),
    "methods": Study(_methods, _draw_methods, lambda _: 2, (5.8, 4.0)),
    "paper": Study(_paper, _draw_paper, lambda dataset: dataset["claim"].size, (3.3, 2.3)),
    "edges": Study(_edges, _draw_edges, lambda _: 1, (6.2, 4.2)),
    "composition-bounds": Study(_composition, _draw_composition, lambda _: 2, (6.2, 4.2)),
    "surface-fit": Study(_surface, _draw_surface, lambda _: 1, (6.6, 4.6)),
}
