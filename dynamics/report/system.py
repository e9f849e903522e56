"""Findings of a user's own system: how the run ended, and when its events happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.findings import Findings, Table, end_of_run

if TYPE_CHECKING:
    import xarray as xr


def system_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `dynamics.solve_system` shows."""
    tone, verdict = end_of_run(dataset)
    rows = event_rows(dataset)
    title = str(dataset.attrs["title"])
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=[f"{title}, by method {dataset.attrs['method']}."],
        tables=[Table(caption="When events happened", rows=rows, each="events")] if rows else [],
        values={
            "title": title,
            "stop_reason": dataset.attrs.get("stop_reason"),
            "end_time": dataset.attrs.get("end_time"),
            "solve_seconds": dataset.attrs.get("solve_seconds"),
            "events": rows,
        },
    )


def event_rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return event, time and, where it was estimated, its error as rows."""
    rows: list[dict[str, Any]] = []
    for name in str(dataset.attrs.get("event_times", "")).split():
        times, error = dataset[name], dataset.get(f"{name}_error")
        for place in np.ndindex(times.shape):
            labels = [str(dataset[dim].values[at]) for dim, at in zip(times.dims, place, strict=True)]
            found = {"event": " ".join([name.replace("_", " "), *labels]), "time": float(times.values[place])}
            rows.append(found | ({} if error is None else {"error": float(error.values[place])}))
    return rows
