"""Panels that figures draw on, and checks of what a figure is given: an answer with its variables, and axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hermite.arrays import Array

#: Log axes that span less than the first factor have labels within decades, beyond the second no minor ticks.
SHORT_AXIS, LONG_AXIS = 1e2, 1e4


def new_panels(
    size: tuple[float, float], *shape: int, layout: Any = "constrained", **options: Any
) -> tuple[Figure, Any]:
    """Return a new figure of some inches that no window shows, and its panels, as `Figure.subplots` gives them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout=layout)
    return figure, figure.subplots(*shape, **options)


def one_panel(plot: Callable[..., object], *arguments: Any) -> Figure:
    """Return a new figure of one panel, drawn by a function of some arguments and the axes."""
    figure, ax = new_panels((6.8, 4.4))
    plot(*arguments, ax)
    return figure


def finish_panel(ax: Axes, x: str, y: str, title: str = "", **legend: Any) -> None:
    """Name the axes of a panel, label log axes in plain numbers, and show a legend if there is something to name."""
    ax.set(xlabel=x, ylabel=y)
    if title:
        ax.set_title(title, fontsize="medium")
    plain_log_ticks(ax)
    if ax.get_legend_handles_labels()[1]:
        ax.legend(**{"frameon": False, "fontsize": "small"} | legend)


def plain_log_ticks(ax: Axes) -> None:
    """Label log axes in plain numbers: every decade, or 1, 2 and 5 times each where the axis is short.

    Typeset powers of ten cost half of the drawing time.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() != "log":
            continue
        low, high = axis.get_view_interval()
        short = high < SHORT_AXIS * low
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if short else (1.0,)))
        axis.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
        if high > LONG_AXIS * low:
            axis.set_minor_locator(NullLocator())


def shades(count: int, last: float = 0.92, *, first: float = 0.0) -> Array:
    """Return so many colours, from dark to bright, for curves that have an order; the ends are places in the map."""
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(first, last, count))


def check_drawable(dataset: object, **variables: tuple[str, ...]) -> None:
    """Raise one sentence unless it is an answer that has these variables with these dims."""
    import xarray as xr

    if not isinstance(dataset, xr.Dataset):
        msg = f"Argument `dataset` must be a Dataset, but is of type {type(dataset).__name__}."
        raise TypeError(msg)
    for name, dims in variables.items():
        if name not in dataset:
            msg = f"Argument `dataset` must have the variable `{name}` for this figure, but has not."
            raise ValueError(msg)
        if dataset[name].dims != dims:
            wanted, given = (", ".join(map(str, found)) for found in (dims, dataset[name].dims))
            msg = f"Argument `dataset` must have `{name}({wanted})` for this figure, but has `{name}({given})`."
            raise ValueError(msg)
    if "answer" not in dataset.attrs:
        msg = "Argument `dataset` must be an answer of this program, with the attribute `answer`, but has none."
        raise ValueError(msg)


def check_panels(name: str, panels: object, count: int) -> None:
    """Raise one sentence unless `panels`, if given, are so many axes; one is given as it is."""
    if panels is None:
        return
    from matplotlib.axes import Axes

    several = list(panels) if isinstance(panels, (list, tuple, np.ndarray)) else [panels]
    if not all(isinstance(ax, Axes) for ax in several):
        msg = f"Argument `{name}` must be matplotlib's axes, but is {shown(panels)}."
        raise TypeError(msg)
    if len(several) != count or (count == 1 and several[0] is not panels):
        msg = f"Argument `{name}` must be {count} axes, but has {len(several)}."
        raise ValueError(msg)
