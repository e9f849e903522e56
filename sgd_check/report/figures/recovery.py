"""Figures of estimates of one direction: every estimate, and the law that they are held against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.report import BAND, PREDICTED, finish_panel, given_panels, one_panel
from sgd_check.report.figures.style import SIMULATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_law_test(tree: xr.DataTree, axes: Sequence[Axes] | None = None) -> Figure:
    """Draw the estimates of a comparison with their law, on one panel."""
    parts = tree["simulation"].to_dataset(), tree["comparison"].to_dataset()
    if axes is None:
        return one_panel(plot_estimates, *parts)
    return plot_estimates(*parts, given_panels("axes", axes, 1)[0]).get_figure()  # type: ignore[return-value]


def plot_estimates(estimates: xr.Dataset, comparison: xr.Dataset | None, ax: Axes) -> Axes:
    """Draw the squared overlaps in increasing order, with their mean, the law and its band where there is one."""
    overlap = np.sort(estimates["overlap_squared"].values)
    rank = (np.arange(overlap.size) + 0.5) / overlap.size
    ax.plot(rank, overlap, "o", color=SIMULATED, ms=4, label="estimates, sorted")
    known = overlap[np.isfinite(overlap)]
    mean, error = known.mean(), BAND * known.std() / np.sqrt(max(known.size - 1, 1))
    ax.axhline(mean, color=SIMULATED, lw=1.2, label="mean, two s.e.")
    ax.axhspan(mean - error, mean + error, color=SIMULATED, alpha=0.2, lw=0)
    if comparison is not None:
        law, allowed = float(comparison["predicted_overlap_squared"]), float(comparison["allowed_deviation"])
        ax.axhline(law, color=PREDICTED, lw=1.6, label="law")
        ax.axhspan(law - allowed, law + allowed, color=PREDICTED, alpha=0.15, lw=0, label="allowed at this d")
    ax.set_ylim(-0.03, 1.03)
    finish_panel(ax, "share of the estimates", "squared overlap", f"$n = {estimates.attrs['samples']}$ samples")
    return ax
