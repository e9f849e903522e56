"""Colours, axes and parts of a comparison that its figures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import BAND, MEASURED, finish_panel, shades

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from hermite.arrays import Array

SIMULATED = MEASURED
MOST_DIRECTIONS = 8
THEORY_NAMES = {"flow": "flow", "finite step": "finite-step equation", "sample": "predicted runs"}


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
    return chosen, shades(chosen.size, 0.85)


def share_bars(share: Array, count: int) -> Array:
    """Return how far 95 % intervals of shares among so many runs reach down and up (Wilson's score)."""
    square = BAND**2 / count
    middle, half = (share + square / 2.0), BAND * np.sqrt(share * (1.0 - share) / count + square / (4.0 * count))
    ends = np.array([middle - half, middle + half]) / (1.0 + square)
    bars: Array = np.maximum([share - ends[0], ends[1] - share], 0.0)
    return bars


def show_last_decades(ax: Axes, time: Array) -> None:
    """Let a panel show the last two decades of flow time."""
    later = time[time > 0]
    ax.set(xscale="log", xlim=(max(float(later[0]), 1e-2 * float(later[-1])), float(later[-1])))


def finish_over_time(ax: Axes, time: Array, y: str, title: str = "", **legend: Any) -> None:
    """Finish a panel over the last two decades of flow time."""
    show_last_decades(ax, time)
    finish_panel(ax, "flow time $t$", y, title, **legend)
