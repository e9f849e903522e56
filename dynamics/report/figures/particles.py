"""Figures of a mean field: the law of the neurons' overlaps flowing over log time, the loss below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.flows import LOSS, headline
from dynamics.report.figures.panels import check_drawable, finish_panel, new_panels, panels_or_new, small
from dynamics.report.figures.style import MEASURED, PREDICTED, REFERENCE
from hermite.text.messages import shown as as_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hermite.arrays import Array

#: Densities below this fraction of the largest are drawn as none.
FAINTEST = 1e-4
COLOURS = "magma_r"
#: Losses further below the first one than this are not drawn.
LOSS_DECADES = 1e-8
#: Of the panels for density and loss.
HEIGHTS = (2.2, 1.0)


def plot_particles(
    dataset: xr.Dataset, axes: Sequence[Axes] | None = None, *, direction: int = 1, style: str | None = None
) -> Sequence[Axes]:
    """Draw the density of the overlaps w·θ_p over log time, with its median and quartiles, and the loss below.

    Parameters
    ----------
    dataset : Dataset
        Answer of `solve_mean_field`.
    axes : two Axes, optional
        For the density and for the loss; they should share their time.
    direction : int, default 1
        Number p of the direction.
    style : {"screen", "paper", "talk"}, optional
        Of new axes; see `figure_style`.

    Returns
    -------
    sequence of two Axes

    Raises
    ------
    ValueError
        If the dataset is of another answer, or has no such direction.
    """
    check_drawable(dataset, overlap_density=("time", "direction", "overlap_bin"))
    numbers = dataset["direction"].values.tolist()
    if not (np.isscalar(direction) and direction in numbers):
        msg = f"Argument `direction` must be one of {', '.join(map(str, numbers))}, but is {as_text(direction)}."
        raise ValueError(msg)
    axes = panels_or_new(axes, 2, (7.0, 6.0), 2, style=style, sharex=True, height_ratios=HEIGHTS)
    shown = np.isfinite(dataset["loss"].values) & (dataset["time"].values > 0)
    _draw_density(axes[0], dataset.sel(direction=direction).isel(time=shown))
    draw_loss(axes[1], dataset.isel(time=shown))
    return axes


def one_direction(dataset: xr.Dataset, direction: int) -> Figure:
    """Return the figure of one direction."""
    figure, panels = new_panels((6.8, 6.0), 2, sharex=True, height_ratios=HEIGHTS)
    plot_particles(dataset, panels, direction=direction)
    return figure


def particles_figure(dataset: xr.Dataset) -> Figure:
    """Return the figure, one column per direction, at most four."""
    directions = dataset["direction"].values[:4].tolist()
    columns = len(directions)
    sharing: dict[str, Any] = {"sharex": True, "sharey": "row", "squeeze": False, "height_ratios": HEIGHTS}
    figure, panels = new_panels((3.0 + 4.2 * columns, 6.0), 2, columns, **sharing)
    for column, direction in enumerate(directions):
        plot_particles(dataset, panels[:, column], direction=direction)
    for ax in panels[:, 1:].flat:
        ax.set_ylabel("")
    figure.suptitle(headline(dataset), fontsize="medium")
    return figure


def _draw_density(ax: Axes, dataset: xr.Dataset) -> None:
    from matplotlib.colors import LogNorm

    time, middle = dataset["time"].values, dataset["overlap_bin"].values
    density = dataset["overlap_density"].values
    top = float(density.max())
    mesh = ax.pcolormesh(
        _log_edges(time),
        _edges(middle),
        np.maximum(density, FAINTEST * top).T,
        norm=LogNorm(FAINTEST * top, top),
        cmap=COLOURS,
        rasterized=True,
    )
    quantile = dataset["overlap_quantile"]
    for share, line, label in ((0.25, ":", "quartiles"), (0.5, "-", "median"), (0.75, ":", None)):
        curve = quantile.sel(share=share).values
        ax.plot(time, curve, color="white", lw=2.6)
        ax.plot(time, curve, line, color=MEASURED, lw=1.4, label=label)
    overlap = f"overlap with direction {int(dataset['direction'])}"
    ax.set(xscale="log", xlim=(time[0], time[-1]), ylim=(-1.0, 1.0), ylabel=overlap)
    ax.figure.colorbar(mesh, ax=ax, label="density", pad=0.01)
    ax.legend(framealpha=0.85, fontsize=small(ax), loc="lower left")


def draw_loss(ax: Axes, dataset: xr.Dataset) -> None:
    """Draw the loss of a mean field, the times of its levels, and what the student's link cannot express."""
    time, loss = dataset["time"].values, dataset["loss"].values
    lowest, floor = LOSS_DECADES * float(loss[0]), float(dataset.attrs["loss_floor"])
    ax.loglog(time, np.maximum(loss, lowest), color=MEASURED, lw=1.8, label="loss" if floor > lowest else None)
    if floor > lowest:
        ax.axhline(floor, color=REFERENCE, lw=0.9, ls=":", label="beyond the student's link")
    scale = float(dataset.attrs["teacher_loss"])
    for level, reached in zip(dataset["loss_level"].values, dataset["loss_level_time"].values, strict=True):
        if np.isfinite(reached):
            ax.plot([reached], [level * scale], "o", color=PREDICTED, ms=5)
            # To the left near the end of the axis, where it would be cut off.
            late = reached > time[-1] * (time[0] / time[-1]) ** 0.25
            ax.annotate(
                f"$t = {reached:.4g}$",
                (reached, level * scale),
                xytext=(-6, -3) if late else (6, 3),
                textcoords="offset points",
                fontsize=small(ax),
                ha="right" if late else "left",
                va="top" if late else "bottom",
            )
    finish_panel(ax, "flow time $t$", LOSS, loc="lower left")


def _edges(middle: Array) -> Array:
    step = float(middle[1] - middle[0])
    return np.append(middle - 0.5 * step, middle[-1] + 0.5 * step)


def _log_edges(time: Array) -> Array:
    """Return edges between times, halfway in the logarithm."""
    if time.size == 1:
        return np.array([time[0] / 1.1, time[0] * 1.1])
    inner = np.sqrt(time[1:] * time[:-1])
    return np.concatenate([[time[0] ** 2 / inner[0]], inner, [time[-1] ** 2 / inner[-1]]])
