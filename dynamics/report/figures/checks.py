"""What figures are given: an answer with the variables that they draw, and axes to draw on.

Knows datasets and that matplotlib has axes; nothing of what is drawn.
"""

from __future__ import annotations

from hermite.text.messages import shown

__all__ = ["check_drawable", "check_panels"]


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
