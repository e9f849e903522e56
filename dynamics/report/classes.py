"""Networks under any loss and labels: loss above its floor, test error above that of Bayes, and regions of decision."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np

from dynamics.problem import Problem, Student
from dynamics.report import elements, figures, flows
from dynamics.report.figures import MEASURED, PREDICTED, REFERENCE, finish_panel, row_of
from dynamics.report.findings import Findings, Table, drawing_of, renamed, rows_of, run_findings
from dynamics.report.flows import RESUME_SOLVE, finite_part

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr
    from matplotlib.axes import Axes

    from dynamics.problem.checks import JsonObject
    from dynamics.report.findings import Rows
    from hermite.arrays import Array

#: Row -> variable over time, its least value, and the time half-way there.
QUANTITIES = {
    "mean loss": ("loss", "loss_floor", "half_loss_time"),
    "test error": ("test_error", "bayes_error", "half_error_time"),
}
#: Points along each side of a figure of regions, and how far it reaches.
SIDE, REACH = 161, 3.0


def class_findings(dataset: xr.Dataset, plot_axes: Callable[..., Axes]) -> Findings:
    """Return the findings on an answer of `solve_network` by means over points."""
    rows = [_row(dataset, name, *parts) for name, parts in QUANTITIES.items() if parts[0] in dataset]
    axes = rows_of(dataset, {"direction": "direction", "emergence_time": "emergence_time"})
    values = flows.run_values(dataset, directions=axes, quantities=rows)
    values["final_loss"] = rows[0]["end"]
    emerged = sum(math.isfinite(row["emergence_time"]) for row in axes)
    plots: dict[Callable[..., object], str] = {
        _plot_excess: "Mean loss above its floor and test error above that of Bayes, with their errors by points.",
        plot_axes: "Largest squared overlap of a neuron with each axis.",
    }
    if "teacher_overlap" in dataset and dataset["direction"].size >= 2:
        plots[_plot_regions] = "Classes that the network decides for on the plane of the first two axes, at the end."
    table = Table(
        caption="What is learned",
        rows=rows,
        note="best: the least of any function of the inputs. half-way: first time half-way from the start to the best.",
        errors={"end": "end ±"},
        digits=5,
    )
    of_axes = Table(
        caption="Axes",
        rows=renamed(axes, {"axis": "direction", "emerged": "emergence_time"}),
        note="emerged: a neuron first lies along the axis.",
        each="axes, spread over their number",
        digits=5,
    )
    return run_findings(
        dataset,
        sentences=[
            f"{_sentence(rows)}; emerged: {emerged} of {len(axes)} axes by t = {values['end_time']:.5g}",
            *flows.optimizer_in_words(dataset),
            *flows.bands_in_words(dataset),
        ],
        tables=[table, of_axes],
        drawings=[drawing_of(plot, dataset, caption=caption) for plot, caption in plots.items()],
        chart=elements.history_chart(
            dataset, renamed(axes, {"axis": "direction", "emerged at t =": "emergence_time"}), elements.AXES
        ),
        remarks=flows.remarks(values),
        values=values,
        overview=partial(row_of, dataset, list(plots), (4.4 * len(plots), 4.2)),
        go_on=RESUME_SOLVE,
    )


def _row(dataset: xr.Dataset, name: str, variable: str, best: str, half: str) -> JsonObject:
    """Return start, end with its error, least value and half-way time of a quantity."""
    saved = finite_part(dataset[variable].values)
    errors = finite_part(dataset[f"{variable}_error"].values)
    start, end, error = (
        float(part[at]) if part.size else math.nan for part, at in ((saved, 0), (saved, -1), (errors, -1))
    )
    return {
        "quantity": name, "start": start, "end": end, "end ±": error, "best": float(dataset[best]),
        "half-way": float(dataset[half]),
    }  # fmt: skip


def _sentence(rows: Rows) -> str:
    """Return a sentence on where loss and test error end."""
    parts = []
    for row in rows:
        best = f", best {row['best']:.4g}" if math.isfinite(row["best"]) else ", without a least value"
        half = f"half-way at t = {row['half-way']:.4g}" if math.isfinite(row["half-way"]) else "not half-way by the end"
        parts.append(f"{row['quantity']} {row['end']:.4g} ± {row['end ±']:.1g}{best}, {half}")
    return "; ".join(parts)


def _plot_excess(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw mean loss above its floor and test error above that of Bayes, against time, or samples of steps."""
    rate = dataset.attrs.get("learning_rate")
    x, unit = "time", 1.0
    if isinstance(rate, float) and dataset.attrs.get("step_theory"):
        x, unit = "samples", int(dataset.attrs.get("batch_size", 1)) / rate
    later = dataset["time"].values > 0.0
    along = dataset["time"].values[later] * unit
    ax.set_xscale("log")
    lowest: list[float] = []
    for (variable, best, _), colour in zip(QUANTITIES.values(), (MEASURED, PREDICTED), strict=True):
        if variable not in dataset:
            continue
        floor = float(dataset[best])
        value = dataset[variable].values[later] - (floor if math.isfinite(floor) else 0.0)
        error = dataset[f"{variable}_error"].values[later]
        label = {"loss": "mean loss above its floor", "test_error": "test error above that of Bayes"}[variable]
        figures.draw_band(ax, along, (value, value - error, value + error), colour, 0.25, label=label)
        if f"{variable}_sd" in dataset:
            width, ratio = (dataset[name].values[later] for name in (f"{variable}_sd", "band_ratio"))
            ends = value - elements.RUNS * width, value + elements.RUNS * width
            figures.draw_runs(ax, along, ends, ratio, colour)
        lowest.append(float(np.nanmin(value, initial=0.0)))
    ax.set_ylim(bottom=min(0.0, *lowest))
    finish_panel(ax, x, "excess")


def _plot_regions(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw the class that the network decides for at points of the plane of the first two axes."""
    problem = Problem.from_dataset(dataset)
    last = np.flatnonzero(np.isfinite(dataset["loss"].values))[-1]
    side = np.linspace(-REACH, REACH, SIDE)
    x = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    decided = outputs_at(dataset, int(last), x)
    if len(decided) == 1:
        classes, shown = [-1, 1], np.sign(decided[0])
    else:
        classes, shown = list(range(len(decided))), decided.argmax(axis=0).astype(np.float64)
    levels = np.array([classes[0] - 0.5, *(0.5 * (a + b) for a, b in pairwise(classes)), classes[-1] + 0.5])
    colours = list(figures.shades(len(classes), 0.85))
    ax.contourf(side, side, shown.reshape(SIDE, SIDE), levels=levels, colors=colours, alpha=0.45)
    for label, colour in zip(classes, colours, strict=True):
        ax.fill_between([], [], [], color=colour, alpha=0.45, lw=0.0, label=f"decides for ${label}$")
    ax.axhline(0.0, color=REFERENCE, lw=0.6)
    ax.axvline(0.0, color=REFERENCE, lw=0.6)
    if problem.mixture is not None and problem.mixture.span >= 2:
        ax.plot(*problem.mixture.means[:, :2].T, "ko", ms=4, label="mean of a cluster")
    ax.set_aspect("equal")
    finish_panel(ax, "first_axis", "second_axis", loc="upper center", bbox_to_anchor=(0.5, 1.0), frameon=True)


def outputs_at(dataset: xr.Dataset, place: int, x: Array) -> Array:
    """Return the outputs (C, N) of the network at a saved time, at points x (N, 2) on the first two axes, 0 on others.

    The answer has all overlaps.
    """
    problem = Problem.from_dataset(dataset)
    student = cast("Student", problem.student)
    C, n = dataset["teacher_overlap"].values[place], dataset["squared_norm"].values[place]
    name = "output_layer" if "output_layer" in dataset else "second_layer"
    V = np.atleast_2d(dataset[name].values[place])
    h = x @ (C[:, :2] * np.sqrt(n)[:, None]).T + dataset["bias"].values[place]
    return np.asarray(student.output_scale * V @ problem.activation.value(h).T)
