"""The studies of the scaling laws as text: exponents by source, and what is to be said about them.

Knows the variables of the studies; nothing of how they were computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.study_text import study_json, study_text

if TYPE_CHECKING:
    from pathlib import Path

    import xarray as xr

__all__ = ["as_json", "as_text", "law_title", "sentences", "summarise", "transfer_sentences", "transfer_summary"]

#: What each law says, for people.
TITLES = {
    "loss-time": "L ~ t^x",
    "loss-samples": "L ~ n^x, fixed step",
    "loss-samples-tuned": "L ~ n^x, tuned step",
    "loss-width": "L ~ m^x",
    "loss-compute": "L ~ compute^x",
    "width-compute": "best m ~ compute^x",
    "time-direction": "T_p ~ p^x",
    "time-dimension": "T ~ d^x",
}


def summarise(dataset: xr.Dataset) -> dict[str, Any]:
    """Return what a study found as plain values: `points`, and more where the study has more."""
    return _SUMMARIES[dataset.attrs["answer"]](dataset)


def as_json(dataset: xr.Dataset, output: Path, figure: Path | None) -> str:
    """Return one JSON object; what is not finite becomes null."""
    return study_json(dataset, summarise(dataset), output, figure)


def as_text(dataset: xr.Dataset, output: Path, figure: Path | None) -> str:
    """Return the table of the points, sentences on them, and the names of the files."""
    return study_text(dataset, summarise(dataset), sentences(dataset), output, figure)


def sentences(dataset: xr.Dataset) -> list[str]:
    """Return what is to be said about a study, line by line."""
    return _SENTENCES[dataset.attrs["answer"]](summarise(dataset))


def law_title(name: str) -> str:
    """Return a law in words; what follows a comma in its name says how it was measured."""
    base, comma, how = name.partition(",")
    return TITLES[base] + comma + how


# --- laws -------------------------------------------------------------------------------------------------------------


def _laws(dataset: xr.Dataset) -> dict[str, Any]:
    points = []
    for name in dataset["law"].values.tolist():
        one = dataset.sel(law=name)
        exponent, error = one["exponent"].values, one["exponent_error"].values
        points.append(
            {
                "law": law_title(name),
                "measured": exponent[0],
                "error": error[0],
                "sum_formula": exponent[1],
                "sum_error": error[1],
                "ideal_sum": exponent[2],
                "ideal_error": error[2],
                "asymptotic": exponent[3],
                "from": float(one["window_low"].values),
                "to": float(one["window_high"].values),
            }
        )
    return {"points": points, "scaling_notes": dataset.attrs.get("scaling_notes", "")}


def _law_sentences(summary: dict[str, Any]) -> list[str]:
    lines = [
        "measured and sum formula: same starts, same window (from, to); ideal sum: T_p ~ p^beta exactly, at this P and",
        "window; errors: scatter over starts, or a jackknife over the curve where there is one start.",
    ]
    if summary["scaling_notes"]:
        lines.append(f"note: {summary['scaling_notes']}")
    return lines


# --- finite size ------------------------------------------------------------------------------------------------------


def _finite_size(dataset: xr.Dataset) -> dict[str, Any]:
    points = []
    for beta in dataset["beta"].values.tolist():
        for count in dataset["num_directions"].values.tolist():
            one = dataset.sel(beta=beta, num_directions=count)
            pairs, sums, ideal, law = one["exponent"].values.tolist()
            errors = one["exponent_error"].values.tolist()
            points.append(
                {
                    "beta": beta,
                    "P": count,
                    "pairs": pairs,
                    "error": errors[0],
                    "sum_formula": sums,
                    "sum_error": errors[1],
                    "ideal_sum": ideal,
                    "ideal_error": errors[2],
                    "asymptotic": law,
                    "ideal/asymptotic": ideal / law,
                    "pairs/asymptotic": pairs / law,
                }
            )
    return {"points": points}


def _finite_size_sentences(_: dict[str, Any]) -> list[str]:
    return [
        "Exponents of L ~ t^x. pairs: loss of all matched pairs from random starts; ideal sum: T_p ~ p^beta exactly;",
        "errors: scatter over starts (pairs, sum formula), jackknife over the curve (ideal sum).",
    ]


# --- transfer ---------------------------------------------------------------------------------------------------------


def transfer_summary(dataset: xr.Dataset) -> dict[str, Any]:
    """Return best step, gap and drift of every width, the exponents and the verdict."""
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
    return {"points": points, **found, "edge": dataset.attrs.get("edge"), "verdict": dataset.attrs["verdict"]}


def transfer_sentences(summary: dict[str, Any]) -> list[str]:
    """Return what is to be said of a study of transfer."""
    x, y, excess = (
        f"{summary[name]:.3f} +- {summary[f'{name}_error']:.3f}"
        for name in ("gap_exponent", "drift_exponent", "excess")
    )
    meaning = {
        "fast": "the best step of a narrow network costs nothing beside its width",
        "not fast": "the drift of the best step costs more than the width",
        "undecided": "the drift is too uncertain to tell",
        "no drift": "scatter explains all differences from the largest width's best step (false alarms: 5 %)",
    }[summary["verdict"]]
    return [
        f"loss gap ~ m^x, x = {x}; drift of ln(best step) ~ m^y, y = {y}; y - x/2 = {excess}.",
        f"Transfer: {summary['verdict']}: {meaning}.",
        "No width has a gap that is clear of scatter."
        if np.isnan(summary["cost_share"])
        else f"It costs at most {summary['cost_share']:.2g} of the gap (95 %), where the gap is clear of scatter.",
        "Gap (of the loss) and drift: against the largest width; cost: of its best step here; errors: bootstrap over",
        "runs (that of the best step is relative).",
    ]


def _transfer_sentences(summary: dict[str, Any]) -> list[str]:
    return [
        f"Stability edge 2/(max(4, k) a_1) = {summary['edge']:.4g}, whatever the width.",
        *transfer_sentences(summary),
    ]


_SUMMARIES = {
    "scaling": _laws,
    "compute-frontier": _laws,
    "finite-size": _finite_size,
    "transfer": transfer_summary,
}
_SENTENCES = {
    "scaling": _law_sentences,
    "compute-frontier": _law_sentences,
    "finite-size": _finite_size_sentences,
    "transfer": _transfer_sentences,
}
