"""Findings of a two-layer network: when its components are learned and its axes found, and its loss."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.flows import REFERENCE, plot_loss
from dynamics.report.figures.panels import finish_panel, new_panels, one_panel, shades
from dynamics.report.findings import Drawing, Findings, Table, end_of_run, renamed
from dynamics.report.flows import RESUME_SOLVE, remarks

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Title of a column -> variable of the dataset.
COMPONENTS = {
    "component": "component_name",
    "f*": "teacher_component",
    "learned, alone": "predicted_component_time",
    "learned": "component_learned_time",
}
AXES = {"axis": "direction", "found": "emergence_time"}


def network_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `solve_network` shows."""
    tone, verdict = end_of_run(dataset, [])
    values = _values(dataset)
    tables = [Table(caption="Times at which an axis is found", rows=renamed(values["axes"], AXES), digits=5)]
    if values["components"]:
        caption = "Times at which half of a component is learned"
        note = "Alone: by the law of one neuron that leaves the saddle of the monomial, where that holds."
        rows = renamed(values["components"], COMPONENTS)
        tables.insert(0, Table(caption=caption, rows=rows, note=note, each="components", digits=5))
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=[_outcome(values)],
        tables=tables,
        drawings=_drawings(dataset, values),
        remarks=remarks(values),
        values=values,
        overview=partial(network_figure, dataset),
        go_on=RESUME_SOLVE,
    )


def _values(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the result as plain values."""
    attrs, loss = dataset.attrs, dataset["loss"].values
    known = loss[np.isfinite(loss)]
    return {
        "title": attrs["title"],
        "method": attrs["method"],
        "solve_seconds": attrs["solve_seconds"],
        "stop_reason": attrs["stop_reason"],
        "stop_message": attrs["stop_message"],
        "end_time": attrs["end_time"],
        "final_loss": float(known[-1]) if known.size else None,
        "teacher_loss": attrs["teacher_loss"],
        "components": _rows(dataset, COMPONENTS) if "component" in dataset else [],
        "axes": _rows(dataset, AXES),
        "notes": attrs["notes"],
        "scaling_notes": "",
    }


def _rows(dataset: xr.Dataset, columns: dict[str, str]) -> list[dict[str, Any]]:
    names = list(columns.values())
    values = zip(*(dataset[name].values.tolist() for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in values]


def _outcome(values: dict[str, Any]) -> str:
    """Return how much was learned, and the last loss, in a sentence."""
    what, how, key = "axes", "found", "emergence_time"
    if values["components"]:
        what, how, key = "components", "learned", "component_learned_time"
    rows = values[what]
    reached = sum(math.isfinite(row[key]) for row in rows)
    text = f"{how}: {reached} of {len(rows)} {what} by t = {values['end_time']:.5g}"
    if values["final_loss"] is None:
        return text
    return f"{text}; loss at the end: {values['final_loss']:.4g} of {values['teacher_loss']:.4g}"


def _drawings(dataset: xr.Dataset, values: dict[str, Any]) -> list[Drawing]:
    caption = "Loss against flow time."
    drawings = [Drawing(draw=partial(one_panel, _plot_loss, dataset), caption=caption, alt=caption)]
    if values["components"]:
        caption = "Components of the network over those of the teacher; half of one counts as learned."
        alt = f"{caption} {_outcome(values)}."
        drawings.insert(0, Drawing(draw=partial(one_panel, plot_components, dataset), caption=caption, alt=alt))
    return drawings


def network_figure(dataset: xr.Dataset) -> Figure:
    """Draw the components, if the teacher has any, over the loss."""
    plots = [plot_components, _plot_loss] if "component" in dataset else [_plot_loss]
    figure, panels = new_panels((5.2 * len(plots), 4.0), 1, len(plots))
    for plot, ax in zip(plots, np.atleast_1d(panels), strict=True):
        plot(dataset, ax)
    return figure


def _plot_loss(dataset: xr.Dataset, ax: Axes) -> None:
    plot_loss(dataset, ax, fit=False)


def plot_components(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw f_α/f*_α of every component against time."""
    shown = dataset["time"].values > 0
    shares = (dataset["component"] / dataset["teacher_component"]).values[shown]
    names = dataset["component_name"].values.tolist()
    for name, share, colour in zip(names, shares.T, shades(len(names), 0.9), strict=True):
        ax.semilogx(dataset["time"].values[shown], share, color=colour, lw=1.4, label=name)
    ax.axhline(0.5, color=REFERENCE, lw=0.8, ls=":")
    finish_panel(ax, "flow time t", "component over the teacher's")
