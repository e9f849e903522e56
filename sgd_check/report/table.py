"""The result of a check as text: one line per direction and the verdict, or one JSON object.

Knows the variables of a comparison; nothing of how they were computed, and writes to nowhere.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    import xarray as xr

MOST_LINES = 32


def rows(tree: xr.DataTree) -> list[dict[str, Any]]:
    """Return one record per direction; numbers that do not exist are None."""
    comparison, simulation = tree["comparison"].to_dataset(), tree["simulation"].to_dataset()
    predicted, ratio = comparison["emergence_time"].values, comparison["emergence_ratio"].values
    mean, error = comparison["mean_log_ratio"].values, comparison["standard_error"].values
    given = tree["given"].to_dataset()["emergence_time"].values if "given" in tree.children else predicted
    records = []
    for p in range(predicted.size):
        # Runs without emergence count as late, so the median stays a median of all runs.
        sound = simulation["blown_up"].values == 0
        median = (
            float(np.median(np.where(np.isnan(ratio[sound, p]), np.inf, ratio[sound, p]))) if sound.any() else np.nan
        )
        records.append(
            {
                "direction": p + 1,
                "teacher_coefficient": number_or_none(comparison["teacher_coefficient"].values[p]),
                "given": number_or_none(given[p]),
                "predicted": number_or_none(predicted[p]),
                "sgd_median": number_or_none(median * predicted[p]),
                "ratio": number_or_none(np.exp(mean[p])),
                "standard_error": number_or_none(np.exp(mean[p]) * error[p]),
                "expected_delay": number_or_none(comparison["expected_delay"].values[p]),
                "z": number_or_none(comparison["z_score"].values[p]),
                "censored": int(comparison["censored_count"].values[p]),
            }
        )
    return records


def as_text(tree: xr.DataTree, output: Path, figure: Path | None) -> str:
    """Return the table, the verdict line and the names of the files."""
    attrs = tree["comparison"].attrs
    records = rows(tree)
    both = "given" in tree.children
    times = [(_GIVEN.get(str(tree["given"].attrs.get("answer")), "given"), 10)] if both else []
    times += [("finite step" if both else "predicted", 11)]
    columns = (("p", 4), ("a_p", 8), *times, ("SGD median", 10), ("ratio", 7), ("± s.e.", 7))
    head = " ".join(f"{name:>{width}}" for name, width in (*columns, ("delay", 7), ("z", 6), ("censored", 8)))
    lines = [head]
    for r in records[:MOST_LINES]:
        given = f"{short(r['given'], 10)} " if both else ""
        lines.append(
            f"{r['direction']:>4} {short(r['teacher_coefficient'], 8)} {given}{short(r['predicted'], 11)} "
            f"{short(r['sgd_median'], 10)} {short(r['ratio'], 7, 3)} {short(r['standard_error'], 7, 2)} "
            f"{_delay(r, both=both):>7} {short(r['z'], 6, 2)} {r['censored']:>8}"
        )
    if len(records) > MOST_LINES:
        lines.append(f"     … and {len(records) - MOST_LINES} more directions in the file")
    lines += [f"verdict: {attrs['verdict']} (false-alarm rate {attrs['false_alarm_rate']:g})", attrs["reasons"]]
    lines += [MEANING[attrs["theory"]], attrs["loss_statement"]]
    lines.append(f"written: {output}" + (f", {figure}" if figure is not None else ""))
    return "\n".join(lines)


_GIVEN = {"overlaps": "flow", "decoupled": "decoupled", "prediction": "pairs"}
MEANING = {
    "flow": "The mean of ln(ratio) may lie between the flow and twice the expected delay; "
    "z is its distance from there.",
    "finite step": "ratio: SGD over finite step. The mean of ln(ratio) may lie where the scatter of runs can move it, "
    "at second order; z is its distance from there.",
    "sample": "ratio: SGD over the predicted runs; z is the log-rank statistic, positive if SGD is late.",
}


def _delay(record: dict[str, Any], *, both: bool) -> str:
    """Return the delay by the step size: computed where both times are there, expected otherwise."""
    if not both:
        return "-" if record["expected_delay"] is None else f"{record['expected_delay']:.1%}"
    if record["given"] is None or record["predicted"] is None:
        return "-"
    return f"{record['predicted'] / record['given'] - 1.0:.1%}"


def as_json(tree: xr.DataTree, output: Path, figure: Path | None) -> str:
    """Return the same as one JSON object."""
    comparison, simulation = tree["comparison"].to_dataset(), tree["simulation"].to_dataset()
    found = {
        "verdict": comparison.attrs["verdict"],
        "theory": comparison.attrs["theory"],
        "reasons": comparison.attrs["reasons"],
        "p_value": number_or_none(comparison["p_value"].values),
        "loss": comparison.attrs["loss_statement"],
        "false_alarm_rate": comparison.attrs["false_alarm_rate"],
        "usable_runs": int(comparison.attrs["usable_runs"]),
        "blown_up_count": int(comparison.attrs["blown_up_count"]),
        "learning_rate": float(simulation.attrs["effective_learning_rate"]),
        "steps": int(simulation.attrs["steps"]),
        "stop_reason": simulation.attrs["stop_reason"],
        "directions": rows(tree),
        "output": str(output),
        "plot": None if figure is None else str(figure),
    }
    return json.dumps(found)


def number_or_none(value: Any) -> float | None:
    """Return a finite number as such, anything else as None."""
    number = float(value)
    return number if np.isfinite(number) else None


def short(value: float | None, width: int, digits: int = 4) -> str:
    """Return a number right-aligned, a dash where there is none."""
    return f"{'-' if value is None else format(value, f'.{digits}g'):>{width}}"
