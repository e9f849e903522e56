"""The result of a check of a mean field as text: one line per time, the exponents and the verdict, or one JSON object.

Knows the variables of such a comparison; nothing of how they were computed, and writes to nowhere.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from sgd_check.report.table import number_or_none, short

if TYPE_CHECKING:
    from pathlib import Path

    import xarray as xr

MOST_LINES = 10
MEANING = (
    "D_m: m E(f_m - f)^2 without the noise of SGD, mean over starts; x: exponent of D_m/m in m, theory -1; "
    "y: that of the neurons' squared distance, beside the verdict."
)


def rows(tree: xr.DataTree) -> list[dict[str, Any]]:
    """Return one record per compared time; numbers that do not exist are None."""
    comparison = tree["comparison"].to_dataset()
    gap, loss = (comparison[name].mean("seed") for name in ("function_gap", "loss"))
    records = []
    for t, time in enumerate(comparison["time"].values.tolist()):
        of_time = comparison.isel(time=t)
        records.append(
            {
                "time": time,
                "mean_field_loss": number_or_none(of_time["mean_field_loss"]),
                "loss": {int(m): number_or_none(loss.sel(width=m)[t]) for m in comparison["width"].values},
                "function_gap": {int(m): number_or_none(gap.sel(width=m)[t]) for m in comparison["width"].values},
                "function_gap_exponent": number_or_none(of_time["function_gap_exponent"]),
                "function_gap_exponent_error": number_or_none(of_time["function_gap_exponent_error"]),
                "coupling_exponent": number_or_none(of_time["coupling_exponent"]),
                "coupling_exponent_error": number_or_none(of_time["coupling_exponent_error"]),
            }
        )
    return records


def as_text(tree: xr.DataTree, output: Path, figure: Path | None) -> str:
    """Return the table, the verdict line and the names of the files."""
    comparison = tree["comparison"].to_dataset()
    attrs, widths = comparison.attrs, [int(m) for m in comparison["width"].values]
    columns = ["t", "loss", *(f"D_{m}" for m in widths), "x", "± s.e.", "y", "± s.e."]
    lines = [" ".join(f"{name:>8}" for name in columns)]
    for record in shown_rows(rows(tree)):
        numbers = [record["time"], record["mean_field_loss"], *(record["function_gap"][m] for m in widths)]
        numbers += [record[f"{name}_exponent{end}"] for name in ("function_gap", "coupling") for end in ("", "_error")]
        lines.append(" ".join(short(number, 8, 3) for number in numbers))
    lines += [f"verdict: {attrs['verdict']} (false-alarm rate {attrs['false_alarm_rate']:g})", attrs["reasons"]]
    lines.append(MEANING)
    lines.append(f"written: {output}" + (f", {figure}" if figure is not None else ""))
    return "\n".join(lines)


def shown_rows(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return at most ten records of positive time, evenly spread."""
    later = [record for record in records if record["time"] > 0.0]
    chosen = np.linspace(0, len(later) - 1, min(len(later), MOST_LINES)).round().astype(int)
    return [later[at] for at in chosen.tolist()]


def as_json(tree: xr.DataTree, output: Path, figure: Path | None) -> str:
    """Return the same as one JSON object."""
    comparison = tree["comparison"].to_dataset()
    simulations = [node.to_dataset() for node in tree["simulation"].children.values()]
    found = {
        "verdict": comparison.attrs["verdict"],
        "theory": comparison.attrs["theory"],
        "reasons": comparison.attrs["reasons"],
        "exponent": number_or_none(comparison["mean_gap_exponent"]),
        "exponent_error": number_or_none(comparison["mean_gap_exponent_error"]),
        "z": number_or_none(comparison["exponent_z"]),
        "p_value": number_or_none(comparison["p_value"]),
        "false_alarm_rate": comparison.attrs["false_alarm_rate"],
        "usable_runs": int(comparison.attrs["usable_runs"]),
        "blown_up_count": int(comparison.attrs["blown_up_count"]),
        "widths": [int(m) for m in comparison["width"].values],
        "starts": int(comparison.sizes["seed"]),
        "learning_rate": float(simulations[0].attrs["effective_learning_rate"]),
        "batch_sizes": [int(one.attrs["batch_size"]) for one in simulations],
        "steps": int(simulations[0].attrs["steps"]),
        "stop_reason": simulations[-1].attrs["stop_reason"],
        "times": rows(tree),
        "output": str(output),
        "plot": None if figure is None else str(figure),
    }
    return json.dumps(found)
