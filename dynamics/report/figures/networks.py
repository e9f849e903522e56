"""Figures of two-layer networks: components of the teacher learned one after the other, axes that emerge, loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.report.figures.flows import MOST_CURVES, first_passage, headline, plot_loss
from dynamics.report.figures.panels import NAMED_AT, axes_or_new, check_drawable, finish_panel, name_curves, new_panels
from dynamics.report.figures.style import REFERENCE, component_formula, shades
from dynamics.report.findings import spread_rows

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hermite.arrays import Array

COMPONENT = r"component over the teacher's, $f_\alpha/f^*_\alpha$"
#: Level of f_α/f*_α at which a component counts as learned.
LEARNED = 0.5


def plot_components(dataset: xr.Dataset, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw each component f_α of a network over that of its teacher, f*_α, against time.

    Ticks below mark the predicted times where there are such.

    Parameters
    ----------
    dataset : Dataset
        Answer of `solve_network` about a polynomial teacher.
    ax : Axes, optional
    style : {"screen", "paper", "talk"}, optional
        Of new axes; see `figure_style`.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the dataset has no components.
    """
    check_drawable(dataset, component=("time", "component_name"), teacher_component=("component_name",))
    ax = axes_or_new(ax, style)
    ratio = component_ratio(dataset)
    predicted = dataset["predicted_component_time"].values
    names = [component_formula(name) for name in dataset["component_name"].values.tolist()]
    _draw_curves(ax, dataset["time"].values, ratio, names, predicted)
    ax.axhline(1.0, color=REFERENCE, lw=0.8)
    ax.axhline(LEARNED, color=REFERENCE, lw=0.8, ls=":")
    ticks = " (ticks: predicted)" if np.isfinite(predicted).any() else ""
    finish_panel(ax, f"flow time $t${ticks}", COMPONENT, loc="center left")
    return ax


def plot_axes(dataset: xr.Dataset, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw the largest squared overlap of a neuron with each axis of the teacher against time.

    Parameters
    ----------
    dataset : Dataset
        Answer of `solve_network`.
    ax : Axes, optional
    style : {"screen", "paper", "talk"}, optional
        Of new axes; see `figure_style`.

    Returns
    -------
    Axes
    """
    check_drawable(dataset, emergence_time=("direction",))
    ax = axes_or_new(ax, style)
    squared = squared_axis_overlap(dataset)
    names = [f"$x_{{{a}}}$" for a in dataset["direction"].values.tolist()]
    _draw_curves(ax, dataset["time"].values, squared, names)
    ax.set_ylim(-0.05, 1.05)
    finish_panel(ax, "flow time $t$", "largest squared overlap with an axis", loc="center left")
    return ax


def network_figure(dataset: xr.Dataset) -> Figure:
    """Return one figure with components, if the teacher has some, axes and loss."""
    drawn = [plot_components, plot_axes] if "component" in dataset else [plot_axes]
    margins = {"left": 0.055, "right": 0.985, "bottom": 0.13, "top": 0.9, "wspace": 0.28}
    size = (4.4 * (len(drawn) + 1), 4.2)
    figure, panels = new_panels(size, 1, len(drawn) + 1, margins=margins)
    for plot, panel in zip(drawn, panels, strict=False):
        plot(dataset, panel)
    plot_loss(dataset, panels[-1], fit=False)
    figure.suptitle(headline(dataset), fontsize="medium")
    return figure


def component_ratio(dataset: xr.Dataset) -> Array:
    """Return f_α/f*_α, shape (time, component)."""
    return np.asarray(dataset["component"].values / dataset["teacher_component"].values)


def squared_axis_overlap(dataset: xr.Dataset) -> Array:
    """Return the largest squared overlap of a neuron with each axis of the teacher, shape (time, direction)."""
    if "teacher_overlap" in dataset:
        return np.asarray((dataset["teacher_overlap"].values ** 2).max(axis=1))
    return np.asarray(dataset["max_overlap"].values ** 2)


def _draw_curves(ax: Axes, time: Array, curves: Array, names: list[str], predicted: Array | None = None) -> None:
    """Draw curves (time, curve) on a log axis of time, with a tick below at each predicted time."""
    chosen, shown = spread_rows(curves.shape[1], MOST_CURVES), time > 0
    ax.set_xscale("log")
    if shown.any():
        ax.set_xlim(time[shown][0], time[-1])
    lines, ends = [], []
    for at, colour in zip(chosen, shades(len(chosen), 0.8), strict=True):
        lines += ax.plot(time[shown], curves[shown, at], color=colour, lw=1.5)
        ends.append(first_passage(time[shown], curves[shown, at], NAMED_AT))
        if predicted is not None and np.isfinite(predicted[at]):
            ax.axvline(predicted[at], ymax=0.04, color=colour, lw=2.0)
    name_curves(ax, "", lines, [names[at] for at in chosen], ends)
