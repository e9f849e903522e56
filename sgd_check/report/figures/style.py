"""Colours, axes and parts of a comparison that its figures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import check_panels, finish_panel, new_panels

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from hermite.arrays import Array

SIMULATED, PREDICTED, REFERENCE = "#1b4f72", "#c0392b", "#7f8c8d"
MOST_DIRECTIONS = 8
THEORY_NAMES = {"flow": "flow", "finite step": "finite-step equation", "sample": "predicted runs"}


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes, or those of a new figure that pyplot does not know."""
    check_panels("ax", ax, 1)
    if ax is not None:
        return ax
    new: Axes = new_panels((5.0, 4.2))[1]
    return new


def compared_parts(tree: object) -> tuple[xr.Dataset, xr.Dataset, xr.Dataset]:
    """Return comparison, simulation and prediction; raise one sentence unless it is what `sgd_check.compare` returns.

    Of a mean field the simulation is empty, since every width has one of its own.
    """
    from xarray import DataTree

    if not isinstance(tree, DataTree):
        msg = f"Argument `tree` must be a DataTree of `sgd_check.compare`, but is of type {type(tree).__name__}."
        raise TypeError(msg)
    missing = {"comparison", "simulation", "prediction"} - set(tree.children)
    if missing:
        msg = f"Argument `tree` must be a result of `sgd_check.compare`, but has no group `{min(missing)}`."
        raise ValueError(msg)
    return tree["comparison"].to_dataset(), tree["simulation"].to_dataset(), tree["prediction"].to_dataset()


def spread_directions(count: int) -> tuple[NDArray[np.intp], Any]:
    """Return at most eight directions, evenly spread, and a colour for each."""
    chosen = np.unique(np.linspace(0, count - 1, MOST_DIRECTIONS).round().astype(np.intp))
    return chosen, spread_colours(chosen.size)


def spread_colours(count: int) -> Any:
    """Return so many colours, from dark to light."""
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0.0, 0.85, count))


def finish_over_time(ax: Axes, time: Array, y: str, title: str = "", **legend: Any) -> None:
    """Finish a panel over the last two decades of flow time."""
    later = time[time > 0]
    ax.set(xscale="log", xlim=(max(float(later[0]), 1e-2 * float(later[-1])), float(later[-1])))
    finish_panel(ax, "flow time $t$", y, title, **legend)
