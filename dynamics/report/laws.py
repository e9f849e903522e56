"""Scaling laws and laws of recovery: exponents by source, sentences on them, and the figures of studies."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import figures
from dynamics.report.figures import IDEAL, MEASURED, PREDICTED, REFERENCE, Study, finish_panel, formula, power
from dynamics.report.findings import Drawing, Findings, Table, records, rows_of, run_findings, study_findings
from hermite.text.messages import with_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dynamics.report.figures import Found
    from hermite.arrays import Array

#: Sources of an exponent, each with the height, style and colour of its slope; the sum formula is drawn as a curve.
SLOPES = (
    ("fit", 1.0, "--", "k"),
    ("sum formula", np.nan, "-", PREDICTED),
    ("ideal sum", 0.55, "-.", IDEAL),
    ("asymptotic", 0.4, ":", REFERENCE),
)
#: Number of points above which they are drawn as a curve.
MOST_POINTS = 40
#: Law -> itself typeset, and the labels of x and y, or their names in the table of labels.
LAWS = {
    "loss-time": (r"$L \propto t^x$", "time", "law_loss"),
    "loss-samples": (r"$L \propto n^x$, fixed step", "fixed_step_samples", "law_loss"),
    "loss-samples-tuned": (r"$L \propto n^x$, tuned step", "tuned_step_samples", "law_loss"),
    "loss-width": (r"$L \propto m^x$", "width", "final_loss"),
    "loss-compute": (r"$L \propto$ compute$^x$", "compute", "least_loss"),
    "width-compute": (r"best $m \propto$ compute$^x$", "compute", "best_width"),
    "time-direction": (r"$T_p \propto p^x$", "direction", "time_of_direction"),
    "time-dimension": (r"$T \propto d^x$", "dimension", "mean_emergence_time"),
}


def law_findings(dataset: xr.Dataset) -> Findings | None:
    """Return the findings on a study of `python -m dynamics.laws`; None for SGD's study of the same name."""
    answer = dataset.attrs["answer"]
    if answer == "transfer" and "edge" not in dataset.attrs:
        return None
    summary, sentences = STUDIES[answer].find(dataset)
    if answer == "transfer":
        sentences.insert(0, f"Stability edge 2/(max(4, k) a_1) = {summary['edge']:.4g}, whatever the width.")
    return study_findings(dataset, summary, sentences, partial(plot_study, dataset))


def _laws(dataset: xr.Dataset) -> Found:
    """Return exponents and window of every law, and sentences on them."""
    points = []
    for name in dataset["law"].values.tolist():
        law = dataset.sel(law=name)
        window = {"from": float(law["window_low"].values), "to": float(law["window_high"].values)}
        points.append({"law": law_formula(name, typeset=False), **_by_source(law, "measured"), **window})
    notes = dataset.attrs.get("scaling_notes", "")
    sentences = [
        "measured and sum formula: same starts, same window (from, to); ideal sum: T_p ~ p^beta exactly, at this P and "
        "window; errors: scatter over starts, or a jackknife over the curve where there is one start."
    ]
    sentences += [f"note: {notes}"] if notes else []
    return {"points": points, "scaling_notes": notes}, sentences


def _finite_size(dataset: xr.Dataset) -> Found:
    """Return exponents for every β and P, and sentences on them."""
    points = []
    for beta in dataset["beta"].values.tolist():
        for count in dataset["num_directions"].values.tolist():
            x = _by_source(dataset.sel(beta=beta, num_directions=count), "pairs")
            limit = x["asymptotic"]
            ratios = {"ideal/asymptotic": x["ideal_sum"] / limit, "pairs/asymptotic": x["pairs"] / limit}
            points.append({"beta": beta, "P": count, **x, **ratios})
    sentences = [
        "Exponents of L ~ t^x. pairs: loss of all matched pairs from random starts; ideal sum: T_p ~ p^beta exactly; "
        "errors: scatter over starts (pairs, sum formula), jackknife over the curve (ideal sum)."
    ]
    return {"points": points}, sentences


def _by_source(law: xr.Dataset, measured: str) -> dict[str, float]:
    """Return the exponents of one law and their standard errors by name.

    They are measured (under the name `measured`), of the sum formula, of the ideal sum, and asymptotic.
    """
    (fitted, sums, ideal, asymptotic), errors = law["exponent"].values.tolist(), law["exponent_error"].values.tolist()
    exponents = {measured: fitted, "error": errors[0], "sum_formula": sums, "sum_error": errors[1]}
    return exponents | {"ideal_sum": ideal, "ideal_error": errors[2], "asymptotic": asymptotic}


def _transfer(dataset: xr.Dataset) -> Found:
    """Return best step, gap and drift of every width, exponents and verdict; and sentences on them."""
    columns = {"width": "width", "best_rate": "best_rate", "best_loss": "best_loss", "gap": "loss_gap"}
    columns |= {"drift": "rate_drift", "error": "best_rate_error", "gap_error": "loss_gap_error"}
    columns |= {"drift_error": "rate_drift_error", "cost": "transfer_cost", "cost_error": "transfer_cost_error"}
    numbers, verdict = ("gap_exponent", "drift_exponent", "excess"), dataset.attrs["verdict"]
    names = (*numbers, *(f"{name}_error" for name in numbers), "cost_share")
    readings = {name: float(dataset.attrs[name]) for name in names}
    x, y, excess = (with_error(readings[name], readings[f"{name}_error"]) for name in numbers)
    meaning = {
        "fast": "the best step of a narrow network costs nothing beside its width",
        "not fast": "the drift of the best step costs more than the width",
        "undecided": "the drift is too uncertain to tell",
        "no drift": "scatter explains all differences from the largest width's best step (false alarms: 5 %)",
    }[verdict]
    cost = f"It costs at most {readings['cost_share']:.2g} of the gap (95 %), where the gap is clear of scatter."
    sentences = [
        f"loss gap ~ m^x, x = {x}; drift of ln(best step) ~ m^y, y = {y}; y - x/2 = {excess}.",
        f"Transfer: {verdict}: {meaning}.",
        "No width has a gap that is clear of scatter." if np.isnan(readings["cost_share"]) else cost,
        "Gap (of the loss) and drift: against the largest width; cost: of its best step here; errors: bootstrap over "
        "runs (that of the best step is relative).",
    ]
    values = {"points": rows_of(dataset, columns), **readings, "edge": dataset.attrs.get("edge"), "verdict": verdict}
    return values, sentences


def law_formula(name: str, *, typeset: bool) -> str:
    """Return a law as a formula, in plain text or typeset; the part of its name after a comma says how it was found."""
    base, comma, how = name.partition(",")
    law = LAWS[base][0]
    return (law if typeset else law.replace(r"\propto", "~").replace("$", "")) + comma + how


# --- figures of studies -----------------------------------------------------------------------------------------------


def plot_study(dataset: xr.Dataset, axes: Sequence[Axes] | None = None, *, style: str | None = None) -> Figure:
    """Draw the figure of a study of scaling laws, on `axes` or as a new figure in a `style`, and return it.

    The dataset is a result of `scaling_study`, `quadratic_laws`, `finite_size`, `compute_frontier` or `transfer_study`,
    and `axes` are one for each law of `scaling_study`; one for all dimensions and one for each law beside of
    `quadratic_laws`; one for each β of `finite_size`; two of `compute_frontier`, or three with the coupled flow; three
    of `transfer_study`. ValueError is raised for another dataset or number of axes.

    Examples
    --------
    >>> import dynamics
    >>> found = dynamics.compute_frontier(directions=16, dimension=32, widths=(2, 4, 8), starts=1, progress=False)
    >>> figure = plot_study(found)
    >>> [ax.get_xscale() for ax in figure.axes]
    ['log', 'log']
    """
    return figures.draw_study(dataset, STUDIES, axes, style)


def _fitted(law: xr.Dataset) -> tuple[Array, Array, Array, Array]:
    """Return exponents and errors of a law, (sources,) each, the ends of its window (2,), and the fit there (2,)."""
    exponent, window = law["exponent"].values, np.array([law["window_low"].item(), law["window_high"].item()])
    return exponent, law["exponent_error"].values, window, law["prefactor"].values[0] * window ** exponent[0]


def _draw_laws(dataset: xr.Dataset, panels: Array, first: int = 0) -> None:
    """Draw the points of all starts, sum formula, fit and asymptotic slope of the laws from the number `first` on."""
    for name, ax in zip(dataset["law"].values.tolist()[first:], panels, strict=True):
        law = dataset.sel(law=name)
        x, runs = law["abscissa"].values, law["ordinate"].sel(curve="measured").values
        measured, sums = (figures.log_band(law["ordinate"].sel(curve=curve).values)[0] for curve in law["curve"].values)
        ax.loglog(x, sums, "-", color=PREDICTED, lw=1.2, zorder=1)
        _draw_mean(ax, x, runs, MEASURED)
        exponent, error, span, _ = _fitted(law)
        finite = x[np.isfinite(measured)]
        span = np.clip(span, finite.min(), finite.max()) if finite.size else span
        middle = np.exp(np.log(span).mean())
        height, lowest = float(law["prefactor"].values[0]) * middle ** exponent[0], np.inf
        # Slopes are drawn apart from each other, so that each can be seen; that of the sum formula is named alone.
        for x_of, error_of, (source, shift, style, colour) in zip(exponent, error, SLOPES, strict=True):
            if np.isfinite(x_of):
                slope = shift * height * (span / middle) ** x_of
                ax.loglog(span, slope, style, color=colour, lw=1.3, label=f"{source}: {formula(x_of, error_of)}")
                lowest = np.fmin(lowest, slope.min())
        *_, abscissa, ordinate = LAWS[name.partition(",")[0]]
        shown = measured[np.isfinite(measured) & (measured > 0.0)]
        if shown.size and ordinate.endswith("loss"):
            # Points long after the window would hide the law.
            floor = height * (span[1] / middle) ** exponent[0] if np.isfinite(height) else 0.02 * shown.max()
            ax.set_ylim(0.8 * min(max(shown.min(), 0.05 * floor), lowest), 2.0 * shown.max())
        finish_panel(ax, abscissa, ordinate, law_formula(name, typeset=True))


def _draw_mean(ax: Axes, x: Array, runs: Array, colour: str, **style: Any) -> None:
    """Draw the geometric mean over runs (run, x) with two standard errors: as points with bars if few, else a band."""
    mean, low, high = figures.log_band(runs)
    if np.isfinite(x).sum() <= MOST_POINTS:
        ax.errorbar(x, mean, yerr=[mean - low, high - mean], fmt="o", color=colour, ms=3.5, capsize=2, **style)
    else:
        figures.draw_band(ax, x, (mean, low, high), colour, lw=1.6, zorder=2, **style)


def _draw_finite_size(dataset: xr.Dataset, panels: Array) -> None:
    """Draw the exponents against the number of directions, one panel for each β."""
    betas, count = dataset["beta"].values.tolist(), dataset["num_directions"].values.astype(float)
    for beta, ax in zip(betas, panels, strict=True):
        sizes = dataset.sel(beta=beta)
        exponent, error = sizes["exponent"].values, sizes["exponent_error"].values
        law = exponent[np.isfinite(exponent[:, 3]), 3]
        # The points of one P side by side.
        for at, shift, colour, style, label in (
            (2, 0.9, IDEAL, "s-", "ideal sum (bars: jackknife)"),
            (0, 1.1, MEASURED, "o", "matched pairs (bars: starts)"),
        ):
            bars: dict[str, object] = {"yerr": error[:, at], "ms": 4, "capsize": 2}
            ax.errorbar(shift * count, exponent[:, at], fmt=style, color=colour, label=label, **bars)
        if law.size:
            ax.axhline(law[0], color=REFERENCE, ls=":", lw=1.4, label=f"asymptotic {formula(law[0])}")
            ax.axhspan(0.98 * law[0], 1.02 * law[0], color=REFERENCE, alpha=0.15, lw=0.0, label="within 2 %")
        ax.set_xscale("log")
        finish_panel(ax, "num_directions", "time_exponent", rf"$\beta = {beta:g}$")


def _draw_frontier(dataset: xr.Dataset, axes: Array) -> None:
    """Draw loss against compute for all widths with its frontier, and the best width against compute."""
    names = dataset["law"].values.tolist()
    *panels, last = axes
    routes = {"matched pairs": "loss-compute", "coupled flow": "loss-compute, coupled"}
    for (route, law), ax in zip(routes.items(), panels, strict=False):  # of one panel the pairs alone
        rate, time = dataset.attrs["learning_rate"], dataset["time"].values
        losses = dataset["loss"].sel(curve_of=route)
        widths = [m for m in dataset["width"].values.tolist() if np.isfinite(losses.sel(width=m)).any()]
        colours = figures.shades(len(widths))
        for m, colour in zip(widths, colours, strict=True):
            loss = losses.sel(width=m).values
            ax.loglog(m * time / rate, np.where(loss > 0.0, loss, np.nan), color=colour, lw=1.1)
        figures.colour_bar(ax, "$m$", widths, colours, (0.84, 0.58))
        ax.set_ylim(0.5 * float(np.nanmin(losses.values[:, -1][losses.values[:, -1] > 1e-3], initial=1.0)), 1.6)
        _draw_law_lines(dataset.sel(law=law), ax)
        title = rf"{route}, $\eta = {dataset.attrs['learning_rate']:g}$"
        finish_panel(ax, "compute", "law_loss", title, loc="lower left")
    for law, colour in (("width-compute", MEASURED), ("width-compute, coupled", PREDICTED)):
        if law in names:
            widths_law = dataset.sel(law=law)
            x, best = widths_law["abscissa"].values, widths_law["ordinate"].sel(curve="measured").values
            last.set(xscale="log", yscale="log")
            _draw_mean(last, x, best, colour, label="coupled flow" if "coupled" in law else "pairs")
            exponent, error, span, fitted = _fitted(widths_law)
            if np.isfinite(exponent[0]):
                label = f"fit: {formula(exponent[0], error[0])}; asymptotic {formula(exponent[3])}"
                last.loglog(span, fitted, "--", color=colour, lw=1.2, label=label)
    finish_panel(last, "compute", "best_width", "best width: steps from one width to the next")


def _draw_law_lines(law: xr.Dataset, ax: Axes) -> None:
    """Draw the frontier with its error, its fit, and the asymptotic slope below it."""
    exponent, error, span, fitted = _fitted(law)
    if not np.isfinite(exponent[0]):
        return
    x, (mean, low, high) = law["abscissa"].values, figures.log_band(law["ordinate"].sel(curve="measured").values)
    several = bool((high > low).any())
    ax.loglog(x, mean, color="k", lw=3.0, alpha=0.3, label="frontier, two s.e." if several else "frontier")
    ax.fill_between(x, low, high, color=REFERENCE, alpha=0.3, lw=0)
    ax.loglog(span, fitted, "k--", lw=1.6, label=f"its fit: {formula(exponent[0], error[0])}")
    for at, name in ((1, "sum formula"), (2, "ideal sum")):
        if np.isfinite(exponent[at]):
            ax.plot([], [], " ", label=f"{name}: {formula(exponent[at], error[at])}")
    reference = 0.6 * fitted[0] * (span / span[0]) ** exponent[3]
    ax.loglog(span, reference, ":", color=PREDICTED, lw=1.6, label=f"asymptotic: {formula(exponent[3])}")


def _draw_quadratic(dataset: xr.Dataset, axes: Array) -> None:
    """Draw the law in time at all dimensions in one panel, and each other law in its own."""
    # The laws of the loss in time, one for each dimension, come before all others, which have their own panels.
    left, count = axes[0], 1 + dataset.sizes["law"] - len(axes)
    dimensions = dataset["law"].values.tolist()[:count]
    for name, colour in zip(dimensions, figures.shades(len(dimensions), 0.8), strict=True):
        law = dataset.sel(law=name)
        exponent, error, span, fitted = _fitted(law)
        dimension = formula(float(name.partition("d = ")[2]))
        label = f"$d =$ {dimension}: {power('t', exponent[0], error[0])}"
        _draw_mean(left, law["abscissa"].values, law["ordinate"].sel(curve="measured").values, colour, label=label)
        if np.isfinite(exponent[0]):
            left.loglog(span, fitted, "--", color="k", lw=1.0)
    if np.isfinite(exponent[3]):
        slope = 3.0 * fitted[0] * (span / span[0]) ** exponent[3]
        left.loglog(span, slope, ":", color=REFERENCE, lw=1.4, label=f"asymptotic: {power('t', exponent[3])}")
    left.set(xscale="log", yscale="log")
    finish_panel(left, "scaled_time", "quadratic_loss", "dashed: fits")
    _draw_laws(dataset, axes[1:], count)


def transfer_study(unit: str, unit_name: str) -> Study:
    """Return the study of transfer of step sizes between widths, for reports.

    Steps are shown in units of the attribute `unit` of a dataset, which `unit_name` names in words.
    """
    draw = partial(_draw_transfer, unit=unit, unit_name=unit_name)
    return Study(_transfer, draw, lambda _: 3, (14.5 / 3, 4.4))


def _draw_transfer(dataset: xr.Dataset, axes: Array, unit: str, unit_name: str) -> None:
    """Draw the loss over step sizes for each width, and the best step and the gap against the width, in three panels.

    Steps are in units of the attribute `unit`, which `unit_name` names in words.
    """
    loss_ax, rate_ax, gap_ax = axes
    scale = float(dataset.attrs[unit])
    widths, rates = dataset["width"].values.tolist(), dataset["learning_rate"].values / scale
    for m, colour in zip(widths, figures.shades(len(widths)), strict=True):
        of_width, runs = dataset.sel(width=m), dataset["final_loss"].sel(width=m).values
        is_complete = ~np.isnan(runs).any(axis=1)
        band = figures.log_band(np.minimum(runs[is_complete], 1.0).T)
        figures.draw_band(loss_ax, rates[is_complete], band, colour, marker="o", ms=3, lw=1.1, label=f"$m = {m}$")
        loss_ax.loglog(float(of_width["best_rate"]) / scale, float(of_width["best_loss"]), "*", color=colour, ms=10)
    loss_ax.axvline(1.0, color=REFERENCE, ls=":", lw=1.2)
    blown = "stars: best step; a run that blew up counts as loss 1"
    finish_panel(loss_ax, f"step size / {unit_name}", "final_loss", blown)
    best, error = dataset["best_rate"].values / scale, dataset["best_rate_error"].values
    bars = np.where(np.isfinite(error), best * error, 0.0)
    rate_ax.errorbar(widths, best, yerr=bars, fmt="o", color=MEASURED, capsize=3)
    rate_ax.axhline(1.0, color=REFERENCE, ls=":", lw=1.2, label=unit_name)
    rate_ax.set_ylim(0.0, 1.25 * max(1.0, float(np.nan_to_num(best + bars).max())))
    rate_ax.set_xscale("log", base=2)
    finish_panel(rate_ax, "width", f"best step / {unit_name}", "bars: standard error over runs", widths)
    for name, marker, colour, label, exponent, shift in (
        ("loss_gap", "o", MEASURED, "loss gap", "gap_exponent", 0.94),
        ("rate_drift", "s", PREDICTED, "drift of the best step", "drift_exponent", 1.0),
        ("transfer_cost", "^", IDEAL, "cost of the largest width's step", "", 1.06),
    ):
        shown = dataset[name].values[:-1] > 0.0
        if shown.any():
            values, spread = (np.nan_to_num(dataset[key].values[:-1])[shown] for key in (name, f"{name}_error"))
            slope, error = (dataset.attrs.get(key, np.nan) for key in (exponent, f"{exponent}_error"))
            text = label if np.isnan(slope) else f"{label}: {power('m', slope, error)}"
            ends, x = [np.minimum(spread, 0.9 * values), spread], shift * np.array(widths[:-1])[shown]
            gap_ax.errorbar(x, values, yerr=ends, fmt=marker, color=colour, capsize=3, label=text)
    if gap_ax.containers:
        gap_ax.set_yscale("log")
        gap_ax.set_ylim(bottom=0.1 * gap_ax.get_ylim()[0])  # room for the legend
    gap_ax.set_xscale("log", base=2)
    title = f"against the largest width; transfer: {dataset.attrs['verdict']}"
    finish_panel(gap_ax, "width", "", title, widths[:-1])


STUDIES = {
    "scaling": Study(_laws, _draw_laws, lambda dataset: dataset.sizes["law"], (4.2, 3.9)),
    "quadratic-scaling": Study(
        _laws,
        _draw_quadratic,
        lambda dataset: 1 + sum(not name.startswith("loss-time") for name in dataset["law"].values.tolist()),
        (5.25, 4.3),
    ),
    "finite-size": Study(_finite_size, _draw_finite_size, lambda dataset: dataset.sizes["beta"], (4.2, 3.9)),
    "compute-frontier": Study(
        _laws, _draw_frontier, lambda dataset: 2 + ("loss-compute, coupled" in dataset["law"]), (5.2, 4.6)
    ),
    "transfer": transfer_study("edge", "stability edge"),
}


def recovery_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer of `dynamics.predict_recovery`."""
    means = dataset["predicted_overlap_squared"]
    means = means.mean("seed") if "seed" in means.dims else means
    columns = {"samples": np.atleast_1d(dataset["samples"]), "squared overlap": np.atleast_1d(means)}
    rows, draw = records(columns), partial(figures.figure_of, _plot_recovery, dataset)
    attrs = {name: dataset.attrs.get(name) for name in ("degree", "transform", "rho_squared", "threshold_samples")}
    caption = "Squared overlap of the estimate with the direction, by its law."
    return run_findings(
        dataset,
        sentences=[recovery_sentence(dataset)],
        tables=[Table(caption="Predicted recovery", rows=rows, each="numbers of samples")],
        drawings=[Drawing(draw, caption, caption)],
        values={"answer": "recovery", **attrs, "points": rows},
        overview=draw,
    )


def recovery_sentence(dataset: xr.Dataset) -> str:
    """Return a sentence on the degree, transform and signal of an estimator, and its threshold if it has one."""
    attrs = dataset.attrs
    threshold = attrs.get("threshold_samples")
    threshold_text = "" if threshold is None else f"; threshold {float(threshold):.4g} samples"
    signal = f"rho^2 = {float(attrs['rho_squared']):.4g}"
    return f"Degree {attrs['degree']}, T = {attrs['transform']}, {signal}{threshold_text}."


def _plot_recovery(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw the law of recovery against the number of samples, and its threshold as a line.

    Laws of single samples are dots beside their mean.
    """
    samples, law = np.atleast_1d(dataset["samples"].values), dataset["predicted_overlap_squared"]
    order = np.argsort(samples)
    # Of a single number of samples the prediction has no dimension for it.
    rows = law.values.reshape(law.sizes.get("seed", 1), samples.size)[:, order]
    ax.plot(samples[order], rows.mean(axis=0), "o-", color=PREDICTED, ms=4, lw=1.6, label="law")
    if "seed" in law.dims:
        ax.plot(samples[order], rows.T, ".", color=PREDICTED, ms=4, alpha=0.4)
    if np.isfinite(threshold := dataset.attrs.get("threshold_samples", np.nan)):
        ax.axvline(threshold, color=REFERENCE, ls="--", lw=1.0, label=f"threshold, $n = {threshold:.4g}$")
    ax.set(xscale="log", ylim=(-0.03, 1.03))
    transform = dataset.attrs["transform"].replace("$", r"\$")
    title = f"estimator of degree {dataset.attrs['degree']}, $T$ = {transform}"
    finish_panel(ax, "samples", "overlap_squared", title)
