"""Findings of a two-layer network: components and axes of the teacher, when each is learned, and the loss."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.explored import AXES as AXES_SHOWN
from dynamics.report.explored import COMPONENTS as COMPONENTS_SHOWN
from dynamics.report.explored import explored
from dynamics.report.figures.flows import plot_loss
from dynamics.report.figures.networks import network_figure, plot_axes, plot_components
from dynamics.report.figures.panels import one_panel
from dynamics.report.findings import Drawing, Findings, Table, end_of_run, renamed
from dynamics.report.flows import RESUME_SOLVE, numerical_errors, remarks

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr

    from dynamics.report.chart import Chart

COMPONENTS = {
    "component": "name",
    "f*": "teacher_component",
    "cost": "cost",
    "predicted": "predicted_component_time",
    "learned": "component_learned_time",
    "f/f* at the end": "ratio",
}
AXES = {"axis": "direction", "emerged": "emergence_time"}
#: What a curve of a component says, and one of an axis; the time that is marked.
PREDICTED = "predicted at t ="
COMPONENT_TOLD = {
    "component": "name",
    "f* =": "teacher_component",
    PREDICTED: "predicted_component_time",
    "learned at t =": "component_learned_time",
}
AXIS_TOLD = {"axis": "direction", "emerged at t =": "emergence_time"}


def network_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `solve_network` shows."""
    values = _values(dataset)
    cautions = _cautions(values)
    tone, verdict = end_of_run(dataset, cautions)
    return Findings(
        tone=tone,
        verdict=verdict,
        cautions=cautions,
        sentences=[_outcome(values), *numerical_errors(dataset, _times(dataset))],
        tables=[*_component_table(values), _axis_table(values)],
        drawings=_drawings(dataset),
        chart=_explored(dataset, values),
        remarks=remarks(values),
        values=values,
        overview=partial(network_figure, dataset),
        go_on=RESUME_SOLVE,
    )


def _times(dataset: xr.Dataset) -> str:
    return "component_learned_time" if "component_learned_time" in dataset else "emergence_time"


def _values(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the result as plain values: components, axes, how the run ended."""
    attrs, loss = dataset.attrs, dataset["loss"].values
    known = np.flatnonzero(np.isfinite(loss))
    end = int(known[-1]) if known.size else None
    return {
        "title": attrs["title"],
        "method": attrs.get("method"),
        "solve_seconds": attrs.get("solve_seconds"),
        "stop_reason": attrs.get("stop_reason", "reached_end"),
        "stop_message": attrs.get("stop_message", ""),
        "end_time": attrs.get("end_time", float(dataset["time"].values[-1])),
        "final_loss": None if end is None else max(float(loss[end]), 0.0),
        "teacher_loss": float(attrs["teacher_loss"]),
        "leap": attrs.get("leap"),
        "components": _components(dataset, end),
        "directions": [
            {"direction": int(a), "emergence_time": float(time)}
            for a, time in zip(dataset["direction"].values, dataset["emergence_time"].values, strict=True)
        ],
        "notes": attrs.get("notes", ""),
        "scaling_notes": "",
    }


def _components(dataset: xr.Dataset, end: int | None) -> list[dict[str, Any]]:
    """Return name, values, cost and times of each component, in the order of learning."""
    from dynamics.problem import Problem

    if "component" not in dataset:
        return []
    costs = {each.name: each.cost for each in Problem.from_dataset(dataset).teacher.components}
    columns = ("teacher_component", "predicted_component_time", "component_learned_time")
    found = []
    for at, name in enumerate(dataset["component_name"].values.tolist()):
        row: dict[str, Any] = {"name": name, "cost": costs[name]}
        row |= {column: float(dataset[column].values[at]) for column in columns}
        last = np.nan if end is None else float(dataset["component"].values[end, at])
        found.append({**row, "ratio": last / row["teacher_component"]})
    return found


def _outcome(values: dict[str, Any]) -> str:
    """Return how much was learned, and the last loss, in a sentence."""
    rows, name, what = values["components"], "component_learned_time", "components"
    if not rows:
        rows, name, what = values["directions"], "emergence_time", "axes"
    done = sum(np.isfinite(row[name]) for row in rows)
    word = "learned" if values["components"] else "emerged"
    text = f"{word}: {done} of {len(rows)} {what} by t = {values['end_time']:.5g}"
    if values["final_loss"] is None:
        return text
    share = f" ({values['final_loss'] / values['teacher_loss']:.2g} of E f*²)" if values["teacher_loss"] > 0 else ""
    return f"{text}; loss at the end: {values['final_loss']:.4g}{share}"


def _cautions(values: dict[str, Any]) -> list[str]:
    late = [row["name"] for row in values["components"] if not np.isfinite(row["component_learned_time"])]
    if late:
        return [f"Not learned by the end: {', '.join(late)}. Their times are unknown (censored)."]
    axes = [f"x{row['direction']}" for row in values["directions"] if not np.isfinite(row["emergence_time"])]
    if axes and not values["components"]:
        return [f"No neuron lies along {', '.join(axes)} by the end: their times are unknown (censored)."]
    return []


def _component_table(values: dict[str, Any]) -> list[Table]:
    if not values["components"]:
        return []
    return [
        Table(
            caption="Components of the teacher in the order of learning",
            rows=renamed(values["components"], COMPONENTS),
            note="Cost: degree on axes new in this order. Learned: half of the teacher's value is first reached.",
            digits=5,
        )
    ]


def _axis_table(values: dict[str, Any]) -> Table:
    return Table(
        caption="Axes of the teacher",
        rows=renamed(values["directions"], AXES),
        note="Emerged: a neuron first lies along the axis, or along the axes of a product of which it is one.",
        each="axes, spread over their number",
        digits=5,
    )


def _explored(dataset: xr.Dataset, values: dict[str, Any]) -> Callable[[], Chart] | None:
    if values["components"]:
        return explored(dataset, renamed(values["components"], COMPONENT_TOLD), COMPONENTS_SHOWN, PREDICTED)
    return explored(dataset, renamed(values["directions"], AXIS_TOLD), AXES_SHOWN)


def _drawings(dataset: xr.Dataset) -> list[Drawing]:
    told: list[tuple[Callable[..., object], str]] = [
        (plot_axes, "Largest squared overlap of a neuron with each axis of the teacher."),
        (partial(plot_loss, fit=False), "Loss against flow time."),
    ]
    if "component" in dataset:
        caption = (
            "Components of the network over those of the teacher; dotted, the level at which they count as learned."
        )
        told.insert(0, (plot_components, caption))
    return [Drawing(draw=partial(one_panel, plot, dataset), caption=text, alt=text) for plot, text in told]
