"""Findings of a comparison that is decided by curves: every tested curve and time, where it is farthest from theory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import Table, jsonable, renamed

if TYPE_CHECKING:
    import xarray as xr


def by_curves(tree: xr.DataTree) -> bool:
    """Return whether curves decide what a comparison says."""
    return tree["comparison"].attrs.get("decided_by") == "curves"


def curve_rows(tree: xr.DataTree) -> list[dict[str, Any]]:
    """Return one record per tested curve or time, at the look that is farthest from theory beside its band."""
    comparison, found = tree["comparison"].to_dataset(), []
    for name in comparison["quantity"].values.tolist():
        one = comparison.sel(quantity=name)
        mean, predicted = one["look_mean"].values, one["look_prediction"].values
        at = int(np.nanargmax(np.abs(mean - predicted)))
        record = {"quantity": name, "looks": int(np.isfinite(mean).sum()), "time": one["look_time"].values[at]}
        record |= {"predicted": predicted[at], "measured": mean[at], "z": one["look_z"].values[at]}
        record |= {key: float(one[f"quantity_{key}"].values) for key in ("error", "allowance", "p_value", "power")}
        found.append(record)
    plain: list[dict[str, Any]] = jsonable(found)
    return plain


def curves_table(tree: xr.DataTree) -> Table:
    """Return every tested curve where SGD is farthest from theory, and every tested time."""
    columns = {
        "what": "quantity",
        "at time": "time",
        "predicted": "predicted",
        "SGD": "measured",
        "± s.e.": "error",
        "allowed": "allowance",
        "z": "z",
        "power": "power",
        "looks": "looks",
    }
    step = "SGD is extrapolated to learning rate 0 from runs at two of them. " if "finer" in tree.children else ""
    return Table(
        caption="Curves of SGD against prediction",
        rows=renamed(curve_rows(tree), columns),
        note=f"{step}Shown is, of up to eight times of each curve, the one at which SGD is farthest from theory; z is "
        "the distance from what is allowed in standard errors, power the probability that an error of 30 % in time is "
        "seen. Errors of times are relative.",
        errors={"SGD": "± s.e."},
        each="curves",
        short={title: title for title in columns if title != "looks"},
        digits=3,
    )
