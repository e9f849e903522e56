"""Findings of the propagation of chaos: exponents in the width over time, and how often theory's is met."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dynamics.report.figures.chaos import chaos_figure
from dynamics.report.figures.style import BAND
from dynamics.report.studies import study_findings

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.report.findings import Findings

#: Saved times that the table shows.
SHOWN = 8
COLUMNS = {
    "loss": "mean_field_loss",
    "function_gap_exponent": "function_gap_exponent",
    "function_gap_exponent_error": "function_gap_exponent_error",
    "coupling_exponent": "coupling_exponent",
    "coupling_exponent_error": "coupling_exponent_error",
}


def chaos_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `propagation_of_chaos` shows: exponents at some times, how many of all are −1."""
    time = dataset["time"].values
    chosen = np.unique(np.linspace(0, time.size - 1, SHOWN).round().astype(int))
    exponent, error = dataset["function_gap_exponent"].values, dataset["function_gap_exponent_error"].values
    reached = float(dataset["loss_level_time"].values[-1])
    summary = {
        "points": [
            {"time": float(time[at]), **{key: float(dataset[name].values[at]) for key, name in COLUMNS.items()}}
            for at in chosen
        ],
        "times": int(np.isfinite(exponent).sum()),
        "times_as_theory": int(np.sum(np.abs(exponent + 1.0) <= BAND * error)),
        "loss_tenth_time": reached,
    }
    sentences = [
        "Exponents in m of E(f_m - f_inf)^2 and of mean |Delta_i|^2; theory: -1. Errors: bootstrap over the starts.",
        f"The first is -1 within {BAND:g} standard errors at {summary['times_as_theory']} of {summary['times']} times, "
        "which share their starts.",
    ]
    if np.isfinite(reached):
        sentences.append(f"The loss of the mean field falls below a tenth at t = {reached:.5g}.")
    return study_findings(dataset, summary, sentences, partial(chaos_figure, dataset))
