"""Findings of the studies of scaling laws: exponents by source, and what is to be said about them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.laws import law_title, plot_study
from dynamics.report.studies import study_findings
from hermite.text.messages import with_error

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.report.findings import Findings

    #: What a study found, as plain values, and what is to be said about it.
    Told = tuple[dict[str, Any], list[str]]


def law_findings(dataset: xr.Dataset) -> Findings | None:
    """Return what a study of `python -m dynamics.laws` shows; None for SGD's study of transfer, of the same name."""
    if dataset.attrs["answer"] == "transfer" and "edge" not in dataset.attrs:
        return None
    summary, sentences = _TOLD[dataset.attrs["answer"]](dataset)
    return study_findings(dataset, summary, sentences, partial(plot_study, dataset))


def _laws(dataset: xr.Dataset) -> Told:
    points = []
    for name in dataset["law"].values.tolist():
        one = dataset.sel(law=name)
        window = {"from": float(one["window_low"].values), "to": float(one["window_high"].values)}
        points.append({"law": law_title(name), **_by_source(one, "measured"), **window})
    notes = dataset.attrs.get("scaling_notes", "")
    sentences = [
        "measured and sum formula: same starts, same window (from, to); ideal sum: T_p ~ p^beta exactly, at this P and "
        "window; errors: scatter over starts, or a jackknife over the curve where there is one start.",
        *([f"note: {notes}"] if notes else []),
    ]
    return {"points": points, "scaling_notes": notes}, sentences


def _finite_size(dataset: xr.Dataset) -> Told:
    points = []
    for beta in dataset["beta"].values.tolist():
        for count in dataset["num_directions"].values.tolist():
            one = dataset.sel(beta=beta, num_directions=count)
            found = _by_source(one, "pairs")
            law = found["asymptotic"]
            ratios = {"ideal/asymptotic": found["ideal_sum"] / law, "pairs/asymptotic": found["pairs"] / law}
            points.append({"beta": beta, "P": count, **found, **ratios})
    sentences = [
        "Exponents of L ~ t^x. pairs: loss of all matched pairs from random starts; ideal sum: T_p ~ p^beta exactly; "
        "errors: scatter over starts (pairs, sum formula), jackknife over the curve (ideal sum)."
    ]
    return {"points": points}, sentences


def _by_source(law: xr.Dataset, measured: str) -> dict[str, float]:
    """Return the exponents of one law and their errors: measured, of the sum formula, of the ideal sum, asymptotic."""
    (fitted, sums, ideal, asymptotic), errors = law["exponent"].values.tolist(), law["exponent_error"].values.tolist()
    return {
        measured: fitted,
        "error": errors[0],
        "sum_formula": sums,
        "sum_error": errors[1],
        "ideal_sum": ideal,
        "ideal_error": errors[2],
        "asymptotic": asymptotic,
    }


def _transfer(dataset: xr.Dataset) -> Told:
    summary, sentences = transfer_told(dataset)
    edge = f"Stability edge 2/(max(4, k) a_1) = {summary['edge']:.4g}, whatever the width."
    return summary, [edge, *sentences]


def transfer_told(dataset: xr.Dataset) -> Told:
    """Return best step, gap and drift of every width, exponents and verdict; and what is to be said of them."""
    names = {"best_rate": "best_rate", "best_loss": "best_loss", "loss_gap": "gap", "rate_drift": "drift"}
    errors = {"best_rate_error": "error", "loss_gap_error": "gap_error", "rate_drift_error": "drift_error"}
    columns = names | errors | {"transfer_cost": "cost", "transfer_cost_error": "cost_error"}
    points = [
        {"width": m, **{title: float(dataset[name].values[at]) for name, title in columns.items()}}
        for at, m in enumerate(dataset["width"].values.tolist())
    ]
    numbers = ("gap_exponent", "drift_exponent", "excess")
    every = (*numbers, *(f"{name}_error" for name in numbers), "cost_share")
    found = {name: float(dataset.attrs[name]) for name in every}
    verdict = dataset.attrs["verdict"]
    x, y, excess = (with_error(found[name], found[f"{name}_error"]) for name in numbers)
    meaning = {
        "fast": "the best step of a narrow network costs nothing beside its width",
        "not fast": "the drift of the best step costs more than the width",
        "undecided": "the drift is too uncertain to tell",
        "no drift": "scatter explains all differences from the largest width's best step (false alarms: 5 %)",
    }[verdict]
    cost = found["cost_share"]
    sentences = [
        f"loss gap ~ m^x, x = {x}; drift of ln(best step) ~ m^y, y = {y}; y - x/2 = {excess}.",
        f"Transfer: {verdict}: {meaning}.",
        "No width has a gap that is clear of scatter."
        if np.isnan(cost)
        else f"It costs at most {cost:.2g} of the gap (95 %), where the gap is clear of scatter.",
        "Gap (of the loss) and drift: against the largest width; cost: of its best step here; errors: bootstrap over "
        "runs (that of the best step is relative).",
    ]
    return {"points": points, **found, "edge": dataset.attrs.get("edge"), "verdict": verdict}, sentences


_TOLD = {
    "scaling": _laws,
    "quadratic-scaling": _laws,
    "compute-frontier": _laws,
    "finite-size": _finite_size,
    "transfer": _transfer,
}
