"""Runs on tokens, alone and with their prediction."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import (
    PREDICTED_AT,
    PROGRESS,
    Drawing,
    Findings,
    Table,
    history_chart,
    progress_figure,
    records,
    recovery_figure,
    run_findings,
)
from sgd_check.report.findings import judged_findings, median_over_runs

if TYPE_CHECKING:
    import xarray as xr

#: Columns of the table of a comparison.
COLUMNS = {
    "component": "component",
    "predicted": "expected_time",
    "log ratio": "mean_log_ratio",
    "error": "standard_error",
    "p": "component_p_value",
    "visible error": "visible_error",
}
#: Columns of one step -> attributes.
ONE_STEP = {"distance": "relative_distance", "error": "relative_error", "p": "p_value"}


def token_comparison_findings(tree: xr.DataTree) -> Findings:
    """Return the findings on a comparison of `sgd_check.tokens.compare`."""
    parts = {name: node.to_dataset(inherit=False) for name, node in tree.children.items()}
    comparison, prediction, simulation = (parts[name] for name in ("comparison", "prediction", "simulation"))
    attrs, note, chart = comparison.attrs, "Visible error: seen with probability 0.8.", None
    if "recovery" in prediction:
        numbers = {title: float(attrs[name]) for title, name in ONE_STEP.items()}
        rows, figure = [{"component": "recovered items", **numbers}], recovery_figure
    else:
        rows, figure = records({title: comparison[name] for title, name in COLUMNS.items()}), progress_figure
        note = f"Log ratio: without the effect of the batch. {note}"
        facts: dict[str, Any] = {"component": prediction["component"], PREDICTED_AT: prediction["learned_time"]}
        facts["runs, median t ="] = median_over_runs(simulation["learned_time"].values)
        chart = history_chart(prediction, records(facts), PROGRESS, PREDICTED_AT)
    draw = partial(figure, prediction, simulation)
    drawing = Drawing(
        draw,
        "Prediction as lines, runs as thin black lines or points.",
        "Prediction and runs. Their distances are in the table above.",
    )
    table = Table(
        caption="Measured against predicted",
        rows=rows,
        note=note,
        errors={"log ratio": "error", "distance": "error"},
        each="components",
    )
    values = {"p_value": float(attrs["p_value"]), "components": rows}
    return judged_findings(
        tree, "runs", ".", tables=[table], drawings=[drawing], chart=chart, values=values, overview=draw
    )


def token_simulation_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on runs of `sgd_check.tokens.simulate`."""
    if "recovery" in dataset:
        counts = dataset["recovered_count"].values
        items = f"{counts.size} draws recover {counts.mean():.4g} items, from {counts.min():.4g} to {counts.max():.4g}."
        return run_findings(dataset, sentences=[items], values={"recovered_counts": counts.tolist()})
    rows: list[dict[str, Any]] = []
    for at, name in enumerate(dataset["component"].values.tolist()):
        times = dataset["learned_time"].values[:, at]
        known = times[np.isfinite(times)]
        mean, low, high = (float(f(known)) for f in (np.mean, np.min, np.max)) if known.size else (np.nan,) * 3
        rows.append({"component": str(name), "runs": known.size, "mean time": mean, "first": low, "last": high})
    return run_findings(
        dataset,
        sentences=[f"{dataset.sizes['seed']} runs at learning rate {dataset.attrs['learning_rate']:g}."],
        tables=[Table(caption="When each component is learned", rows=rows, each="components")],
        values={"stop_reason": dataset.attrs["stop_reason"], "components": rows},
    )
