"""Findings of estimates of one direction: alone, and held against their law."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import Drawing, Findings, Table, end_of_run, one_panel, recovery_sentence
from sgd_check.report.figures.recovery import plot_estimates, plot_law_test

if TYPE_CHECKING:
    import xarray as xr

_CAPTION = "Squared overlap of every estimate with the direction"


def estimate_findings(dataset: xr.Dataset) -> Findings:
    """Return what `sgd_check.estimate_direction` shows by itself."""
    tone, verdict = end_of_run(dataset)
    overlap = dataset["overlap_squared"].values
    known = overlap[np.isfinite(overlap)]
    shares = (0.25, 0.5, 0.75) if known.size else ()
    row: dict[str, float] = {"samples": int(dataset.attrs["samples"]), "estimates": int(known.size)}
    row |= {"mean": float(known.mean())} if known.size else {}
    row |= {f"quantile {share:g}": float(np.quantile(known, share)) for share in shares}
    draw = partial(one_panel, plot_estimates, dataset, None)
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=[recovery_sentence(dataset)],
        tables=[Table(caption="Squared overlap with the direction", rows=[row])],
        drawings=[Drawing(draw=draw, caption=f"{_CAPTION}.", alt=f"{_CAPTION}.")],
        values={"answer": "direction-estimate", **row},
        overview=draw,
    )


def law_values(tree: xr.DataTree) -> dict[str, Any]:
    """Return the numbers behind the verdict."""
    comparison = tree["comparison"].to_dataset()
    names = ("mean_overlap_squared", "predicted_overlap_squared", "allowed_deviation", "p_value")
    by_direction = ("standard_error", "z_score", "visible_error")
    return {
        "samples": int(tree["simulation"].attrs["samples"]),
        **{name: float(comparison[name]) for name in names},
        **{name: float(comparison[name].values[0]) for name in by_direction},
    }


def law_table(tree: xr.DataTree) -> Table:
    """Return the mean squared overlap beside its law."""
    found = law_values(tree)
    row = {
        "samples": found["samples"],
        "mean": found["mean_overlap_squared"],
        "± s.e.": found["standard_error"],
        "law": found["predicted_overlap_squared"],
        "± allowed": found["allowed_deviation"],
        "z": found["z_score"],
        "seen from": found["visible_error"],
    }
    note = "z: distance of the mean from what a finite d is allowed, in standard errors; seen from: the least error of "
    note += "the law that this check sees with probability 0.8."
    return Table(caption="Squared overlap against its law", rows=[row], note=note, errors={"mean": "± s.e."})


def law_drawing(tree: xr.DataTree) -> Drawing:
    """Return the figure of a comparison with the law."""
    caption = f"{_CAPTION}, the law, and what a finite dimension is allowed."
    return Drawing(draw=partial(plot_law_test, tree), caption=caption, alt=caption)
