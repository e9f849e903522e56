"""Findings of a law of recovery: squared overlap by number of samples, and the threshold."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dynamics.report.figures.panels import one_panel
from dynamics.report.figures.recovery import plot_recovery
from dynamics.report.findings import Drawing, Findings, Table, end_of_run

if TYPE_CHECKING:
    import xarray as xr

_CAPTION = "Squared overlap of the estimate with the direction, by its law."


def recovery_findings(dataset: xr.Dataset) -> Findings:
    """Return what `dynamics.predict_recovery` shows."""
    tone, verdict = end_of_run(dataset)
    draw = partial(one_panel, plot_recovery, dataset)
    means = dataset["predicted_overlap_squared"]
    means = means.mean("seed") if "seed" in means.dims else means
    rows = [
        {"samples": int(n), "squared overlap": float(q)}
        for n, q in zip(np.atleast_1d(dataset["samples"].values), np.atleast_1d(means.values), strict=True)
    ]
    attrs = {name: dataset.attrs.get(name) for name in ("degree", "transform", "rho_squared", "threshold_samples")}
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=[recovery_sentence(dataset)],
        tables=[Table(caption="Predicted recovery", rows=rows, each="numbers of samples")],
        drawings=[Drawing(draw=draw, caption=_CAPTION, alt=_CAPTION)],
        values={"answer": "recovery", **attrs, "points": rows},
        overview=draw,
    )


def recovery_sentence(dataset: xr.Dataset) -> str:
    """Return which estimator it is, and its threshold if it has one."""
    attrs = dataset.attrs
    threshold = attrs.get("threshold_samples")
    where = "" if threshold is None else f"; threshold {float(threshold):.4g} samples"
    return f"Degree {attrs['degree']}, T = {attrs['transform']}, rho^2 = {float(attrs['rho_squared']):.4g}{where}."
