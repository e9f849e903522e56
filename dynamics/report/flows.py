"""Findings of the answers along teacher directions: emergence against prediction, exponents, overlaps and loss."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.as_text import number_text
from dynamics.report.explored import PREDICTED_TIME, explored
from dynamics.report.exponents import WINDOW_ALONE, exponent_table, exponents, limits_in_words
from dynamics.report.figures.flows import (
    HISTORIES,
    plot_emergence,
    plot_emergence_times,
    plot_loss,
    summary_figure,
)
from dynamics.report.figures.panels import one_panel
from dynamics.report.findings import Drawing, Findings, Table, end_of_run, renamed
from dynamics.report.samples import samples_in_words
from dynamics.solve.overlaps import GRAM_WARNING

if TYPE_CHECKING:
    import xarray as xr


RESUME_SOLVE = "python -m dynamics.solve --resume {file}"
#: Columns of the table of times, and those that a terminal has room for.
COLUMNS = {
    "p": "direction",
    "a_p": "teacher_coefficient",
    "T_p, leading order": "leading_order_time",
    "T_p, exact pair": "predicted_emergence_time",
    "emerged": "emergence_time",
    "emerged / pair": "ratio",
    "learned, pair": "predicted_learned_time",
    "learned": "learned_time",
}
#: Titles of predicted times that are not of matched pairs, but of the linearised flow (k <= 2).
LINEARISED = {
    "T_p, exact pair": "T_p, linearised",
    "emerged / pair": "emerged / linearised",
    "learned, pair": "learned, linearised",
}
SHORT = {
    "p": "p",
    "a_p": "a_p",
    "T_p, leading order": "T_p leading",
    "T_p, exact pair": "predicted",
    "emerged": "emerged",
    "emerged / pair": "ratio",
    "learned": "learned",
}
#: What the predicted times and their ratio mean: of matched pairs, and of the linearised flow.
PAIRS = """\
Predicted: one neuron and one direction alone, exactly; leading: to leading order in the starting overlap.
Ratio: emerged / predicted; far above 1 where another direction took or delayed that neuron.
"""
LINEAR = "Predicted: of the flow linearised at its start. Ratio: emerged / predicted.\n"
#: What a curve says.
EXPLORED = {
    "direction": "direction",
    "a_p =": "teacher_coefficient",
    PREDICTED_TIME: "predicted_emergence_time",
    "emerged at t =": "emergence_time",
    "learned at t =": "learned_time",
}
#: What tables say of learned times where the link defines none.
NOT_DEFINED = "not defined"
TIMES = (
    "teacher_coefficient",
    "matched_neuron",
    "leading_order_time",
    "predicted_emergence_time",
    "predicted_learned_time",
    "emergence_time",
    "learned_time",
)


def flow_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `solve_overlaps` and its relatives shows."""
    cautions = _cautions(dataset)
    tone, verdict = end_of_run(dataset, cautions)
    values = flow_values(dataset)
    laws = values["exponents"]
    limits = limits_in_words(laws, dataset.sizes["direction"])
    in_words = [*(f"{law['what']}: {law['text']}" for law in laws), *limits]
    return Findings(
        tone=tone,
        verdict=verdict,
        cautions=cautions,
        sentences=[
            outcome(values),
            *_learned_before(values),
            *_at_the_far_side(dataset, values),
            *numerical_errors(dataset),
            *samples_in_words(dataset),
        ],
        tables=[
            _times(dataset, values),
            *exponent_table(laws, in_words, note=" ".join([WINDOW_ALONE, *limits])),
            *level_table(values),
        ],
        drawings=_drawings(dataset),
        chart=explored(dataset, renamed(told_directions(values), EXPLORED)),
        remarks=remarks(values),
        values=values,
        overview=partial(summary_figure, dataset),
        go_on=RESUME_SOLVE if dataset.attrs["answer"] == "overlaps" else "",
    )


def flow_values(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the result as plain values: times per direction, exponents, how the run ended."""
    attrs = dataset.attrs
    loss = dataset["loss"].values
    finite = loss[np.isfinite(loss)]
    columns = {name: dataset[name].values.tolist() for name in TIMES}
    numbers = dataset["direction"].values.tolist()
    return {
        "title": attrs["title"],
        "information_exponent": int(attrs["information_exponent"]),
        "method": attrs.get("method"),
        "solve_seconds": attrs.get("solve_seconds"),
        "stop_reason": attrs.get("stop_reason", "reached_end"),
        "stop_message": attrs.get("stop_message", ""),
        "end_time": attrs.get("end_time", float(dataset["time"].values[-1])),
        # A difference of two sums, which rounding can take below 0.
        "final_loss": max(float(finite[-1]), 0.0) if finite.size else None,
        "directions": [{"direction": p, **{name: columns[name][at] for name in TIMES}} for at, p in enumerate(numbers)],
        "learned_undefined": dataset["learned_time"].attrs.get("undefined", ""),
        "exponents": exponents(dataset),
        "loss_levels": _loss_levels(dataset),
        "notes": attrs.get("notes", ""),
        "scaling_notes": attrs.get("scaling_notes", ""),
    }


def outcome(values: dict[str, Any]) -> str:
    """Return how many directions were learned, or why that is not defined, and the last loss, in a sentence."""
    rows = values["directions"]
    learned = sum(math.isfinite(row["learned_time"]) for row in rows)
    text = f"learned: {learned} of {len(rows)} directions by t = {values['end_time']:.5g}"
    if values["learned_undefined"]:
        text = f"learned: {NOT_DEFINED}, since {values['learned_undefined']}"
    return text if values["final_loss"] is None else f"{text}; loss at the end: {values['final_loss']:.4g}"


def told_directions(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the times by direction as tables say them: "not defined" where the link defines no learned times."""
    rows: list[dict[str, Any]] = values["directions"]
    unsaid = {"predicted_learned_time", "learned_time"} if values["learned_undefined"] else set()
    return [row | dict.fromkeys(unsaid & set(row), NOT_DEFINED) for row in rows]


def _learned_before(values: dict[str, Any]) -> list[str]:
    """Say which directions are learned before they emerge, and what that means."""
    early = [row["direction"] for row in values["directions"] if row["learned_time"] < row["emergence_time"]]
    if not early:
        return []
    return [
        f"Learned before emerged: direction {', '.join(map(str, early))}. Neurons that point only partly along it "
        "carry half of its weight together before one of them has squared overlap 1/2; there the loss and the "
        "learned mass say more than emergence."
    ]


def _at_the_far_side(dataset: xr.Dataset, values: dict[str, Any]) -> list[str]:
    """Say which directions emerged without being learned where a neuron at −θ has a part of a direction alone."""
    share, rows = dataset.attrs.get("far_side_share"), values["directions"]
    here = [r["direction"] for r in rows if math.isfinite(r["emergence_time"]) and not math.isfinite(r["learned_time"])]
    if share is None or not here:
        return []
    return [
        f"Emerged, but not learned: direction {', '.join(map(str, here))}. The link has no parity: a neuron at -theta "
        f"has {share:.2g} of the direction and leaves {1.0 - share**2:.2g} of its loss, until another "
        "comes to theta."
    ]


def remarks(values: dict[str, Any]) -> list[str]:
    """Return notes, method and seconds, line by line."""
    leads = {"notes": "note", "scaling_notes": "scaling laws"}
    found = [f"{lead}: {values[name]}" for name, lead in leads.items() if values[name]]
    return found + ([f"method: {values['method']}, {values['solve_seconds']:.2f} s"] if values["method"] else [])


def level_table(values: dict[str, Any]) -> list[Table]:
    """Return the table of when the loss fell below each level, where it was looked for."""
    levels = values["loss_levels"]
    if not levels:
        return []
    return [
        Table(
            caption="When the loss falls below a fraction",
            rows=renamed(levels, {"loss over E f*²": "level", "t": "time"}),
            in_words=[f"loss below {row['level']:g} E f*^2: t = {number_text(row['time'])}" for row in levels],
        )
    ]


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


def numerical_errors(dataset: xr.Dataset, times: str = "emergence_time") -> list[str]:
    """Say how large errors of the loss and of some times are, by integration and by a cut series, where known."""
    rtol = dataset.attrs.get("rtol", np.nan)
    ends = {
        "error": ("Largest estimated numerical error", f" at rtol = {rtol:g}."),
        "truncation_error": (
            "Largest estimated error by cutting the series of the link",
            ", beside that of integration.",
        ),
    }
    return [
        f"{lead} {' and '.join(found)}{end}"
        for kind, (lead, end) in ends.items()
        if (found := _errors(dataset, times, kind))
    ]


def _errors(dataset: xr.Dataset, times: str, kind: str) -> list[str]:
    """Return the largest known error of one kind of the loss, and that of some times, in words."""
    found = []
    of_time = f"of {'an emergence' if times == 'emergence_time' else 'a learned'} time, relative,"
    for name, what in ((f"loss_{kind}", "of the loss"), (f"{times}_{kind}", of_time)):
        error = dataset[name].values if name in dataset else np.empty(0)
        if what != "of the loss" and error.size:
            late = dataset[times].values > 0  # what is there at the start has no relative error
            error = error[late] / dataset[times].values[late]
        if np.isfinite(error).any():
            found.append(f"{what} {np.nanmax(error):.2g}")
    return found


# --- tables -----------------------------------------------------------------------------------------------------------


def _times(dataset: xr.Dataset, values: dict[str, Any]) -> Table:
    """Return emergence against T_p per direction."""
    directions = [
        {**row, "ratio": row["emergence_time"] / (row["predicted_emergence_time"] or math.nan)}
        for row in told_directions(values)
    ]
    linear = "prediction_theory" in dataset.attrs
    titles = LINEARISED if linear else {}
    return Table(
        caption="Predicted times" if dataset.attrs["answer"] == "prediction" else "Emergence times against prediction",
        rows=renamed(directions, {titles.get(title, title): name for title, name in COLUMNS.items()}),
        note=(LINEAR if linear else PAIRS)
        + "Emerged: a neuron first has squared overlap 1/2. Learned: the neurons first carry half the weight.",
        each="directions, spread over p",
        short={titles.get(title, title): short for title, short in SHORT.items()},
        digits=5,
    )


def _loss_levels(dataset: xr.Dataset) -> list[dict[str, float]]:
    """Return when the loss fell below each level; nothing where that was not looked for."""
    if "loss_level_time" not in dataset:
        return []
    levels, times = dataset["loss_level"].values.tolist(), dataset["loss_level_time"].values.tolist()
    return [{"level": level, "time": time} for level, time in zip(levels, times, strict=True)]


# --- drawings ---------------------------------------------------------------------------------------------------------


def _drawings(dataset: xr.Dataset) -> list[Drawing]:
    drawings = []
    count, emerged = dataset.sizes["direction"], _finite(dataset, "emergence_time")
    if any(name in dataset for name in HISTORIES):
        caption = "Largest squared overlap of a neuron with each direction; ticks mark the predicted times."
        more = f"{emerged} of {count} curves pass one half by t = {float(dataset['time'][-1]):.4g}."
        drawings.append(_drawing(plot_emergence, dataset, caption, more))
    loss = dataset["loss"].values
    known = loss[np.isfinite(loss)]
    caption = "Loss against flow time, with the sum formula and the fitted exponent where there are such."
    more = f"It goes from {known[0]:.3g} to {known[-1]:.3g}." if known.size else ""
    drawings.append(_drawing(plot_loss, dataset, caption, more))
    predicted = np.isfinite(dataset["predicted_emergence_time"].values)
    if (predicted & np.isfinite(dataset["emergence_time"].values)).any():
        caption = "Measured against predicted emergence times; the line is equality."
        more = f"{int(predicted.sum())} directions have a prediction, {emerged} of {count} emerged."
        drawings.append(_drawing(plot_emergence_times, dataset, caption, more))
    return drawings


def _drawing(plot: Any, dataset: xr.Dataset, caption: str, more: str) -> Drawing:
    return Drawing(draw=partial(one_panel, plot, dataset), caption=caption, alt=f"{caption} {more}".rstrip())


def _finite(dataset: xr.Dataset, name: str) -> int:
    return int(np.isfinite(dataset[name].values).sum())
