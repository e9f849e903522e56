"""Findings of a mean field, and of the linearised distance of a network from it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.explored import MASSES, explored
from dynamics.report.figures.panels import finish_panel, one_panel
from dynamics.report.figures.particles import one_direction, particles_figure
from dynamics.report.figures.style import MEASURED, PREDICTED, REFERENCE
from dynamics.report.findings import Drawing, Findings, Table, end_of_run, renamed
from dynamics.report.flows import RESUME_SOLVE, flow_values, level_table, outcome, remarks, told_directions

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

#: Directions whose law is drawn, and rows of the table of a history.
MOST_DRAWN, MOST_ROWS = 4, 12
#: What a curve says.
EXPLORED = {"direction": "direction", "a_p =": "teacher_coefficient", "learned at t =": "learned_time"}
DISTANCES = {"linear_error": "√m · rms |Δ|", "linear_error_bound": "its bound", "noise_size": "√m · rms |ε|"}


def mean_field_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `solve_mean_field` shows."""
    cautions = []
    if not dataset.attrs["loss_is_monotone"]:
        rise = dataset.attrs["largest_loss_rise"]
        cautions.append(f"The loss rose by {rise:.2g}, which a gradient flow excludes: the run left its tolerance.")
    tone, verdict = end_of_run(dataset, cautions)
    values = flow_values(dataset)
    told = told_directions(values)
    rows = renamed(told, {"p": "direction", "a_p": "teacher_coefficient", "learned": "learned_time"})
    return Findings(
        tone=tone,
        verdict=verdict,
        cautions=cautions,
        sentences=[f"{outcome(values)}; {dataset.attrs['particles']} particles"],
        tables=[*level_table(values), Table(caption="Times at which half the weight is carried", rows=rows, digits=5)],
        drawings=[_law_drawing(dataset, p) for p in dataset["direction"].values[:MOST_DRAWN].tolist()],
        chart=explored(dataset, renamed(told, EXPLORED), MASSES),
        remarks=remarks(values),
        values=values,
        overview=partial(particles_figure, dataset),
        go_on=RESUME_SOLVE,
    )


def _law_drawing(dataset: xr.Dataset, direction: int) -> Drawing:
    caption = f"Density of the neurons' overlaps with direction {direction} over log time; below, the loss."
    median = dataset["overlap_quantile"].sel(direction=direction, share=0.5).values
    known = median[np.isfinite(median)]
    more = f" The median goes from {known[0]:.3g} to {known[-1]:.3g}." if known.size else ""
    return Drawing(draw=partial(one_direction, dataset, direction), caption=caption, alt=caption + more)


def coupling_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `solve_coupling` shows."""
    tone, verdict = end_of_run(dataset)
    time = dataset["time"].values
    chosen = np.unique(np.linspace(0, time.size - 1, MOST_ROWS).round().astype(int))
    rows: list[dict[str, Any]] = [
        {"t": time[at], **{label: dataset[name].values[at] for name, label in DISTANCES.items()}} for at in chosen
    ]
    caption = "Linearised distance of the neurons from their followers, its bound, and the noise that drives it."
    alt = f"{caption} At the end the distance is {rows[-1]['√m · rms |Δ|']:.3g}."
    return Findings(
        tone=tone,
        verdict=verdict,
        tables=[Table(caption="Distances over time", rows=rows)],
        drawings=[Drawing(draw=partial(one_panel, _plot_distances, dataset), caption=caption, alt=alt)],
    )


def _plot_distances(dataset: xr.Dataset, ax: Axes) -> None:
    time = dataset["time"].values
    labels = (r"$\sqrt{m}\,\cdot$ rms $|\Delta|$", "its bound", r"$\sqrt{m}\,\cdot$ rms $|\epsilon|$")
    for name, label, style, colour in zip(
        DISTANCES, labels, ("-", "--", ":"), (MEASURED, PREDICTED, REFERENCE), strict=True
    ):
        shown = (time > 0) & (dataset[name].values > 0)
        ax.loglog(time[shown], dataset[name].values[shown], color=colour, ls=style, lw=1.6, label=label)
    finish_panel(ax, "flow time $t$", "linearised distance from the mean field")
