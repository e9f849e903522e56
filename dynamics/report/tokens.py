"""Findings of what is learned from tokens: times of all components beside their closed forms."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.tokens import progress_figure
from dynamics.report.findings import Drawing, Findings, Table, end_of_run

if TYPE_CHECKING:
    import xarray as xr


def token_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `dynamics.tokens.solve` shows."""
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
