"""Findings of a comparison of SGD with a mean field: distances of all widths over time, and their exponents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import Drawing, Table, jsonable
from sgd_check.report.figures.widths import plot_widths

if TYPE_CHECKING:
    import xarray as xr

MOST_TIMES = 10
_EXPONENTS = (
    "function_gap_exponent",
    "function_gap_exponent_error",
    "coupling_exponent",
    "coupling_exponent_error",
)
_MEANING = (
    "D_m: m E(f_m - f)^2 without the noise of SGD, mean over starts; x: exponent of D_m/m in m, theory -1; "
    "y: that of the neurons' squared distance, beside the verdict."
)


def mean_field_values(tree: xr.DataTree) -> dict[str, Any]:
    """Return the verdict and the numbers behind it as plain values."""
    comparison = tree["comparison"].to_dataset()
    simulations = [node.to_dataset() for node in tree["simulation"].children.values()]
    return {
        "exponent": float(comparison["mean_gap_exponent"]),
        "exponent_error": float(comparison["mean_gap_exponent_error"]),
        "z": float(comparison["exponent_z"]),
        "p_value": float(comparison["p_value"]),
        "widths": [int(m) for m in comparison["width"].values],
        "starts": int(comparison.sizes["seed"]),
        "learning_rate": float(simulations[0].attrs["effective_learning_rate"]),
        "batch_sizes": [int(one.attrs["batch_size"]) for one in simulations],
        "steps": int(simulations[0].attrs["steps"]),
        "stop_reason": simulations[-1].attrs["stop_reason"],
        "times": _records(comparison),
    }


def _records(comparison: xr.Dataset) -> list[dict[str, Any]]:
    """Return one record per compared time; numbers that do not exist are None."""
    widths = [int(m) for m in comparison["width"].values]
    means = {name: comparison[name].mean("seed").transpose("time", "width").values for name in ("loss", "function_gap")}
    records = [
        {
            "time": time,
            "mean_field_loss": float(comparison["mean_field_loss"].values[at]),
            **{name: dict(zip(widths, mean[at].tolist(), strict=True)) for name, mean in means.items()},
            **{name: float(comparison[name].values[at]) for name in _EXPONENTS},
        }
        for at, time in enumerate(comparison["time"].values.tolist())
    ]
    found: list[dict[str, Any]] = jsonable(records)
    return found


def distance_table(tree: xr.DataTree) -> Table:
    """Return distances and exponents at positive times, at most ten of them, evenly spread."""
    comparison = tree["comparison"].to_dataset()
    later = [record for record in _records(comparison) if record["time"] > 0.0]
    chosen = np.linspace(0, len(later) - 1, min(len(later), MOST_TIMES)).round().astype(int)
    titles = ("x", "± s.e. of x", "y", "± s.e. of y")
    rows = [
        {
            "t": record["time"],
            "loss": record["mean_field_loss"],
            **{f"D, m = {m}": gap for m, gap in record["function_gap"].items()},
            **{title: record[name] for title, name in zip(titles, _EXPONENTS, strict=True)},
        }
        for record in (later[at] for at in chosen)
    ]
    distances = {f"D, m = {m}": f"D_{m}" for m in comparison["width"].values}
    short = {"t": "t", "loss": "loss", **distances, "x": "x", titles[1]: "± s.e.", "y": "y", titles[3]: "± s.e."}
    caption = "Distances from the mean field over time"
    errors = {"x": titles[1], "y": titles[3]}
    return Table(caption=caption, rows=rows, note=_MEANING, errors=errors, short=short, digits=3)


def width_drawing(tree: xr.DataTree) -> Drawing:
    """Return the figure of losses, distances and exponents."""
    caption = "Losses of all widths, scaled distances from the mean field, and their exponents in the width."
    alt = f"{caption} The tested exponent is {float(tree['comparison']['mean_gap_exponent']):.3g}; theory says −1."
    return Drawing(draw=partial(plot_widths, tree), caption=caption, alt=alt)
