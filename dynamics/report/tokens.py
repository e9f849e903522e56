"""Findings of what is learned from tokens: times of all components beside their closed forms."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.explored import PROGRESS, explored
from dynamics.report.figures.tokens import progress_figure, recovery_figure
from dynamics.report.findings import Drawing, Findings, Table, end_of_run, renamed

if TYPE_CHECKING:
    import xarray as xr


#: What a curve says, the time in closed form among it.
CLOSED = "closed form t ="
EXPLORED = {"component": "component", CLOSED: "closed", "learned at t =": "learned"}


def token_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `dynamics.tokens.solve` shows."""
    if "recovery" in dataset:
        return _recovery_findings(dataset)
    tone, verdict = end_of_run(dataset)
    rows = component_rows(dataset)
    rate = dataset.attrs.get("learning_rate")
    how = "the flow" if rate is None else f"gradient descent at learning rate {rate:g}"
    never = [row["component"] for row in rows if row["learned"] is None or not np.isfinite(row["learned"])]
    sentences = [f"{dataset.attrs['title']}, by {how}; closed forms are of the flow."]
    if never:
        sentences.append(f"Not learned within the run: {', '.join(never)}.")
    draw = partial(progress_figure, dataset)
    notes = str(dataset.attrs.get("notes", ""))
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=sentences,
        tables=[Table(caption="When each component is learned", rows=rows, each="components")],
        drawings=[
            Drawing(
                draw=draw,
                caption="Progress of every component, with its time in closed form as a tick, and the loss.",
                alt="Progress and loss over time. The times are in the table above.",
            )
        ],
        chart=explored(dataset, renamed(rows, EXPLORED), PROGRESS, CLOSED),
        remarks=[f"note: {notes}"] if notes else [],
        values={
            "title": dataset.attrs["title"],
            "learning_rate": rate,
            "stop_reason": dataset.attrs.get("stop_reason"),
            "end_time": dataset.attrs.get("end_time"),
            "solve_seconds": dataset.attrs.get("solve_seconds"),
            "components": rows,
            "notes": notes,
        },
        overview=draw,
        go_on="python -m dynamics.solve --resume {file}",
    )


def _recovery_findings(dataset: xr.Dataset) -> Findings:
    """Return what one step with Gaussian embeddings shows: the recovery of every rank."""
    tone, verdict = end_of_run(dataset)
    count, draw = float(dataset["recovered_count"]), partial(recovery_figure, dataset)
    columns = {"rank": "rank", "items": "rank_count", "recovered": "recovery"}
    values = [dataset[name].values.tolist() for name in columns.values()]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
    caption = "Share of items that are recovered after one step, by rank."
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=[f"{dataset.attrs['title']}: {count:.4g} items are recovered."],
        tables=[Table(caption="Recovery by rank", rows=rows, each="ranks")],
        drawings=[Drawing(draw=draw, caption=caption, alt=f"{caption} The numbers are in the table above.")],
        remarks=[f"note: {dataset.attrs['notes']}"],
        values={"title": dataset.attrs["title"], "recovered_count": count, "ranks": rows},
        overview=draw,
    )


def component_rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return component, learned time, closed form, their ratio, and plateau, as rows."""
    learned, closed = dataset["learned_time"].values, dataset["predicted_learned_time"].values
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = learned / closed
    columns = {"learned": learned, "closed": closed, "ratio": ratio, "plateau": dataset["plateau"].values}
    return [
        {"component": str(name), **{title: float(values[at]) for title, values in columns.items()}}
        for at, name in enumerate(dataset["component"].values.tolist())
    ]
