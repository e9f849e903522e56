"""Panels that figures draw on, and checks of what a figure is given: an answer with its variables, and axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

__all__ = ["check_drawable", "check_panels", "new_panels", "one_panel"]


def new_panels(size: tuple[float, float], *shape: int, layout: Any = "constrained", **options: Any) -> Any:
    """Return the panels of a new figure that no window shows: axes or an array of them, as `Figure.subplots` does.

    Parameters
    ----------
    size : (float, float)
        Inches.
    *shape : int
        Rows and columns.
    layout : str or None, default "constrained"
        Engine that places the panels.
    **options
        Of `Figure.subplots`.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout=layout).subplots(*shape, **options)


def one_panel(plot: Callable[..., object], *arguments: Any) -> Figure:
    """Return a new figure of one panel, drawn by a function of some arguments and the axes."""
    ax = new_panels((6.8, 4.4))
    plot(*arguments, ax)
    figure: Figure = ax.figure
    return figure


def check_drawable(dataset: object, **variables: tuple[str, ...]) -> None:
    """Raise one sentence unless it is an answer that has these variables with these dims.

    Raises
    ------
    TypeError, ValueError
    """
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
    """Raise one sentence unless `panels`, if given, are so many axes; one is given as it is.

    Raises
    ------
    TypeError, ValueError
    """
    if panels is None:
        return
    import numpy as np
    from matplotlib.axes import Axes

    several = list(panels) if isinstance(panels, (list, tuple, np.ndarray)) else [panels]
    if not all(isinstance(ax, Axes) for ax in several):
        msg = f"Argument `{name}` must be matplotlib's axes, but is {shown(panels)}."
        raise TypeError(msg)
    if len(several) != count or (count == 1 and several[0] is not panels):
        msg = f"Argument `{name}` must be {count} axes, but has {len(several)}."
        raise ValueError(msg)
