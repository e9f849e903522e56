"""What the answers along teacher directions show: times against prediction, exponents, overlaps and loss over time.

Knows the variables of overlap flows, pairs, committees and spherical networks; nothing of pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.flows import plot_emergence, plot_emergence_times, plot_loss
from dynamics.report.findings import Drawing, Findings, Table, Tone, drawing_of, end_of_run, new_axes
from dynamics.report.tables import spread_rows, summarise, time_ratio
from dynamics.solve.overlaps import GRAM_WARNING

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["RESUME_SOLVE", "flow_findings", "level_table"]

RESUME_SOLVE = "python -m dynamics.solve --resume {file}"
#: Directions that a page lists.
MOST_DIRECTIONS = 48
HISTORIES = ("teacher_overlap", "max_overlap", "overlap")


def flow_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `solve_overlaps` and its relatives shows."""
    tone, verdict = end_of_run(dataset)
    cautions = _cautions(dataset)
    summary = summarise(dataset)
    tables = [_directions(dataset, summary), *_exponents(summary), *level_table(summary)]
    return Findings(
        tone=Tone.CAUTION if cautions and tone is Tone.GOOD else tone,
        verdict=verdict,
        cautions=cautions,
        sentences=_sentences(dataset, summary),
        tables=tables,
        drawings=_drawings(dataset),
        go_on=RESUME_SOLVE if dataset.attrs["answer"] == "overlaps" else "",
    )


def level_table(summary: dict[str, Any]) -> list[Table]:
    """Return the table of when the loss fell below each level, where it was looked for."""
    levels = [{"loss over E f*²": row["level"], "t": row["time"]} for row in summary["loss_levels"]]
    return [Table(caption="When the loss falls below a fraction", rows=levels)] if levels else []


def _cautions(dataset: xr.Dataset) -> list[str]:
    attrs, found = dataset.attrs, []
    count = dataset.sizes["direction"]
    late = count - _finite(dataset, "emergence_time")
    if late:
        found.append(f"{late} of {count} directions did not emerge by the end: their times are unknown (censored).")
    rate, limit = attrs.get("learning_rate", 0.0), attrs.get("learning_rate_limit", np.inf)
    if rate > limit:
        found.append(f"The learning rate {rate:.3g} exceeds {limit:.3g}, the limit of stability.")
    margin = attrs.get("smallest_gram_margin", 0.0)
    if margin < -GRAM_WARNING * attrs.get("rtol", 0.0):
        found.append(
            f"The run left its tolerance: no vectors have the computed overlaps (an eigenvalue reached {margin:.2g})."
        )
    return found


def _sentences(dataset: xr.Dataset, summary: dict[str, Any]) -> list[str]:
    learned, count = _finite(dataset, "learned_time"), dataset.sizes["direction"]
    text = f"{learned} of {count} directions were learned by t = {summary['end_time']:.5g}"
    text += "." if summary["final_loss"] is None else f", where the loss is {summary['final_loss']:.4g}."
    return [text, *_numerical_errors(dataset)]


def _numerical_errors(dataset: xr.Dataset) -> list[str]:
    """Say how large the errors are, where a looser run beside the run has told."""
    found = []
    for name, what in (("loss_error", "of the loss"), ("emergence_time_error", "of an emergence time, relative,")):
        if name not in dataset or not np.isfinite(dataset[name].values).any():
            continue
        error = dataset[name].values
        if name == "emergence_time_error":
            error = error / dataset["emergence_time"].values
        found.append(f"{what} {np.nanmax(error):.2g}")
    if not found:
        return []
    return [f"Largest estimated numerical error {' and '.join(found)} at rtol = {dataset.attrs.get('rtol', np.nan):g}."]


def _directions(dataset: xr.Dataset, summary: dict[str, Any]) -> Table:
    """Return emergence against T_p per direction."""
    listed = summary["directions"]
    chosen = spread_rows(len(listed), MOST_DIRECTIONS)
    rows = [
        {
            "p": row["direction"],
            "a_p": row["teacher_coefficient"],
            "T_p, leading order": row["leading_order_time"],
            "T_p, exact pair": row["predicted_emergence_time"],
            "emerged": row["emergence_time"],
            "emerged / pair": time_ratio(row),
            "learned, pair": row["predicted_learned_time"],
            "learned": row["learned_time"],
        }
        for row in (listed[at] for at in chosen)
    ]
    note = "Emerged: a neuron first has squared overlap 1/2. Learned: the neurons first carry half the weight."
    if len(chosen) < len(listed):
        note += f" Shown: {len(chosen)} of {len(listed)} directions, spread over p."
    title = "Predicted times" if dataset.attrs["answer"] == "prediction" else "Emergence times against prediction"
    return Table(caption=title, rows=rows, note=note)


def _exponents(summary: dict[str, Any]) -> list[Table]:
    rows = [
        {
            "law": law["what"],
            "x, fitted": law["fitted"],
            "standard error": law["standard_error"],
            "from": law["window"][0],
            "to": law["window"][1],
            "x, sum formula at this size": law["sum_formula"],
            "x, asymptotic": law["asymptotic"],
        }
        for law in summary["exponents"]
    ]
    note = "The fit uses the window alone; the asymptotic exponent stands beside it and is no part of it."
    return [Table(caption="Exponents", rows=rows, note=note)] if rows else []


def _drawings(dataset: xr.Dataset) -> list[Drawing]:
    drawings = []
    count, emerged = dataset.sizes["direction"], _finite(dataset, "emergence_time")
    if any(name in dataset for name in HISTORIES):
        caption = "Largest squared overlap of a neuron with each direction; ticks mark the predicted times."
        more = f"{emerged} of {count} curves pass one half by t = {float(dataset['time'][-1]):.4g}."
        drawings.append(drawing_of(plot_emergence(dataset, new_axes()), caption, more))
    drawings.append(_loss_drawing(dataset))
    predicted = np.isfinite(dataset["predicted_emergence_time"].values)
    if (predicted & np.isfinite(dataset["emergence_time"].values)).any():
        caption = "Measured against predicted emergence times; the line is equality."
        more = f"{int(predicted.sum())} directions have a prediction, {emerged} of {count} emerged."
        drawings.append(drawing_of(plot_emergence_times(dataset, new_axes()), caption, more))
    return drawings


def _loss_drawing(dataset: xr.Dataset) -> Drawing:
    loss = dataset["loss"].values
    known = loss[np.isfinite(loss)]
    caption = "Loss against flow time, with the sum formula and the fitted exponent where there are such."
    more = f"It goes from {known[0]:.3g} to {known[-1]:.3g}." if known.size else ""
    return drawing_of(plot_loss(dataset, new_axes()), caption, more)


def _finite(dataset: xr.Dataset, name: str) -> int:
    return int(np.isfinite(dataset[name].values).sum())
