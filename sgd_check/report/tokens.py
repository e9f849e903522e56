"""Findings of runs on tokens, alone and beside their prediction."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import Drawing, Findings, Table, end_of_run, progress_figure, recovery_figure
from sgd_check.report.explored import explored_tokens
from sgd_check.report.verdict import said_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr

#: What runs on tokens, and comparisons of them, name as their theory.
TOKENS = "tokens"
#: Columns of the table of a comparison.
COLUMNS = {
    "predicted": "expected_time",
    "log ratio": "mean_log_ratio",
    "error": "standard_error",
    "p": "component_p_value",
    "visible error": "visible_error",
}


def token_comparison_findings(tree: xr.DataTree) -> Findings:
    """Return what `sgd_check.tokens.compare` says, with its numbers and its figure."""
    parts = {name: node.to_dataset(inherit=False) for name, node in tree.children.items()}
    comparison, prediction, simulation = (parts[name] for name in ("comparison", "prediction", "simulation"))
    one_step = "recovery" in prediction
    attrs = comparison.attrs
    word, rate = str(attrs["verdict"]), float(attrs["false_alarm_rate"])
    tone, verdict = said_first(tree, "runs")
    rows = _one_row(attrs) if one_step else _component_rows(comparison)
    draw = partial(recovery_figure if one_step else progress_figure, prediction, simulation)
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=[f"verdict: {word} (false-alarm rate {rate:g}), by {int(attrs['usable_runs'])} runs."],
        tables=[
            Table(
                caption="Measured against predicted",
                rows=rows,
                note=("" if one_step else "Log ratio: without the effect of the batch. ")
                + "Visible error: seen with probability 0.8.",
                errors={"log ratio": "error", "distance": "error"},
                each="components",
            )
        ],
        drawings=[_drawing(draw)],
        chart=None if one_step else explored_tokens(prediction, simulation),
        values={
            "verdict": word,
            "theory": attrs["theory"],
            "reasons": attrs["reasons"],
            "false_alarm_rate": rate,
            "usable_runs": int(attrs["usable_runs"]),
            "p_value": float(attrs["p_value"]),
            "components": rows,
        },
        overview=draw,
    )


def _component_rows(comparison: xr.Dataset) -> list[dict[str, Any]]:
    return [
        {"component": str(name), **{title: float(comparison[key].values[at]) for title, key in COLUMNS.items()}}
        for at, name in enumerate(comparison["component"].values.tolist())
    ]


def _one_row(attrs: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = {"distance": "relative_distance", "error": "relative_error", "p": "p_value"}
    return [{"component": "recovered items", **{title: float(attrs[name]) for title, name in names.items()}}]


def token_simulation_findings(dataset: xr.Dataset) -> Findings:
    """Return what runs of `sgd_check.tokens.simulate` show."""
    tone, verdict = end_of_run(dataset)
    if "recovery" in dataset:
        counts = dataset["recovered_count"].values
        said = f"{counts.size} draws recover {counts.mean():.4g} items, from {counts.min():.4g} to {counts.max():.4g}."
        return Findings(tone=tone, verdict=verdict, sentences=[said], values={"recovered_counts": counts.tolist()})
    rows: list[dict[str, Any]] = []
    for at, name in enumerate(dataset["component"].values.tolist()):
        times = dataset["learned_time"].values[:, at]
        known = times[np.isfinite(times)]
        mean, low, high = (float(f(known)) for f in (np.mean, np.min, np.max)) if known.size else (np.nan,) * 3
        rows.append({"component": str(name), "runs": known.size, "mean time": mean, "first": low, "last": high})
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=[f"{dataset.sizes['seed']} runs at learning rate {dataset.attrs['learning_rate']:g}."],
        tables=[Table(caption="When each component is learned", rows=rows, each="components")],
        values={"stop_reason": dataset.attrs["stop_reason"], "components": rows},
    )


def _drawing(draw: Any) -> Drawing:
    return Drawing(
        draw=draw,
        caption="Prediction as lines, runs as thin black lines or points.",
        alt="Prediction and runs. Their distances are in the table above.",
    )
