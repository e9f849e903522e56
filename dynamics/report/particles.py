"""What a mean field, and the linearised distance of a network from it, show.

Knows the variables of both; nothing of pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.flows import MEASURED, PREDICTED, REFERENCE, plain_log_ticks
from dynamics.report.figures.particles import plot_particles
from dynamics.report.findings import Drawing, Findings, Table, Tone, drawing_of, end_of_run, new_axes
from dynamics.report.flows import RESUME_SOLVE, level_table
from dynamics.report.tables import summarise

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["coupling_findings", "mean_field_findings"]

#: Directions whose law is drawn, and rows of the table of a history.
MOST_DRAWN, MOST_ROWS = 4, 12


def mean_field_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `solve_mean_field` shows."""
    tone, verdict = end_of_run(dataset)
    cautions = []
    if not dataset.attrs["loss_is_monotone"]:
        rise = dataset.attrs["largest_loss_rise"]
        cautions.append(f"The loss rose by {rise:.2g}, which a gradient flow excludes: the run left its tolerance.")
    summary = summarise(dataset)
    rows = [
        {"p": row["direction"], "a_p": row["teacher_coefficient"], "learned": row["learned_time"]}
        for row in summary["directions"]
    ]
    loss = "" if summary["final_loss"] is None else f"The loss is {summary['final_loss']:.4g} "
    end = f"{loss}at t = {summary['end_time']:.5g}, with {dataset.attrs['particles']} particles."
    return Findings(
        tone=Tone.CAUTION if cautions and tone is Tone.GOOD else tone,
        verdict=verdict,
        cautions=cautions,
        sentences=[end],
        tables=[*level_table(summary), Table(caption="Times at which half the weight is carried", rows=rows)],
        drawings=[_law_drawing(dataset, p) for p in dataset["direction"].values[:MOST_DRAWN].tolist()],
        go_on=RESUME_SOLVE,
    )


def _law_drawing(dataset: xr.Dataset, direction: int) -> Drawing:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.8, 6.0), layout="constrained")
    axes: Any = figure.subplots(2, sharex=True, height_ratios=[2.2, 1.0])
    plot_particles(dataset, axes, direction=direction)
    caption = f"Density of the neurons' overlaps with direction {direction} over log time; below, the loss."
    median = dataset["overlap_quantile"].sel(direction=direction, share=0.5).values
    known = median[np.isfinite(median)]
    more = f"The median goes from {known[0]:.3g} to {known[-1]:.3g}." if known.size else ""
    return drawing_of(axes[0], caption, more)


def coupling_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `solve_coupling` shows."""
    tone, verdict = end_of_run(dataset)
    columns = {"linear_error": "√m · rms |Δ|", "linear_error_bound": "its bound", "noise_size": "√m · rms |ε|"}
    time = dataset["time"].values
    ax = new_axes()
    for (name, label), colour in zip(columns.items(), (MEASURED, PREDICTED, REFERENCE), strict=True):
        shown = (time > 0) & (dataset[name].values > 0)
        ax.loglog(time[shown], dataset[name].values[shown], color=colour, lw=1.6, label=label)
    ax.set_xlabel("flow time t")
    ax.set_ylabel("linearised distance from the mean field")
    plain_log_ticks(ax)
    ax.legend(frameon=False, fontsize="small")
    chosen = np.unique(np.linspace(0, time.size - 1, MOST_ROWS).round().astype(int))
    rows = [{"t": time[at], **{label: dataset[name].values[at] for name, label in columns.items()}} for at in chosen]
    caption = "Linearised distance of the neurons from their followers, its bound, and the noise that drives it."
    more = f"At the end the distance is {rows[-1]['√m · rms |Δ|']:.3g}."
    return Findings(
        tone=tone,
        verdict=verdict,
        tables=[Table(caption="Distances over time", rows=rows)],
        drawings=[drawing_of(ax, caption, more)],
    )
