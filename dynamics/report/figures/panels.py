"""Panels that figures draw on, their ticks and names, and checks of what a figure is given: an answer, and axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dynamics.report.figures.style import current_style, figure_style, new_figure
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import Formatter

    from hermite.arrays import Array

#: Log axes that span less than the first factor are labelled as linear ones, less than the next two within decades;
#: beyond the fourth they have no minor ticks, and beyond the fifth fewer labels than decades.
NARROW_AXIS, HALF_DECADE, SHORT_AXIS, LONG_AXIS, MANY_DECADES = 3.0, 5.0, 1e2, 1e4, 1e5
#: Numbers on log axes without powers of ten.
PLAIN_NUMBERS = (1e-3, 1e4)
#: Letters of titles, legends and notes, as parts of those of the axes' names.
SMALL = 0.85
#: Height at which a curve that rises from 0 to 1 is named.
NAMED_AT = 0.62
#: Curves that are named one by one; more have a colour bar.
MOST_NAMED = 8
#: Parts of an axis that a name beside its curve needs.
ROOM_FOR_NAME = 0.13
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Drawer = TypeVar("Drawer")


def new_panels(
    size: tuple[float, float], *shape: int, margins: dict[str, float] | None = None, shown: bool = False, **options: Any
) -> tuple[Figure, Any]:
    """Return a new figure of some inches on a screen, and its panels, as `Figure.subplots` gives them.

    On a screen fixed margins, parts of the figure, stand in place of a layout engine. A window may show the figure if
    it is to be `shown`.
    """
    fixed: dict[str, Any] = {} if margins is None or current_style() != "screen" else {"gridspec_kw": margins}
    figure = new_figure(size, None if fixed else "constrained", shown=shown)
    with figure_style(None):
        panels: Any = figure.subplots(*shape, **(fixed | options))
        return figure, panels


def one_panel(plot: Callable[..., object], *arguments: Any) -> Figure:
    """Return a new figure of one panel, drawn by a function of some arguments and the axes."""
    figure, ax = new_panels((6.8, 4.4))
    plot(*arguments, ax)
    return figure


def axes_or_new(ax: Axes | None, style: str | None = None) -> Axes:
    """Return the given axes, or new ones of pyplot in a style."""
    found: Axes = panels_or_new(ax, 1, (6.8, 4.4), style=style, name="ax")[0]
    return found


def panels_or_new(
    panels: Any,
    count: int,
    size: tuple[float, float],
    *shape: int,
    style: str | None = None,
    name: str = "axes",
    **options: Any,
) -> Any:
    """Return the given axes, which must be so many, or new ones of pyplot in a style."""
    with figure_style(style):
        if panels is not None:
            return given_panels(name, panels, count)
        return new_panels(size, *shape, shown=True, squeeze=False, **options)[1].ravel()


def small(ax: Axes, part: float = SMALL) -> float:
    """Return the size of small letters in a panel, in points, whose style may have ended since it was made."""
    return part * float(ax.xaxis.label.get_fontsize())


def finish_panel(ax: Axes, x: str, y: str, title: str = "", **legend: Any) -> None:
    """Name the axes of a panel, label log axes, and show a legend if there is something to name."""
    ax.set(xlabel=x, ylabel=y)
    if title:
        ax.set_title(title, fontsize=small(ax, 1.0))
    log_ticks(ax)
    if ax.get_legend_handles_labels()[1]:
        ax.legend(**{"frameon": False, "fontsize": small(ax), "title_fontsize": small(ax)} | legend)


def log_ticks(ax: Axes) -> None:
    """Label log axes at decades, or within each where the axis is short; at most five where it is long."""
    from matplotlib.ticker import AutoLocator, LogLocator, NullFormatter, NullLocator

    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() != "log":
            continue
        low, high = sorted(axis.get_view_interval())  # an axis may run backwards
        short, many = high < SHORT_AXIS * low, high > MANY_DECADES * low
        # Two of these are on any axis that is not narrow.
        places = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high < HALF_DECADE * low else (1.0, 2.0, 5.0) if short else (1.0,)
        narrow = high < NARROW_AXIS * low
        axis.set_major_locator(AutoLocator() if narrow else LogLocator(subs=places, numticks=5 if many else None))
        axis.set_major_formatter(_log_formatter())
        axis.set_minor_formatter(NullFormatter())
        if narrow or high > LONG_AXIS * low:
            axis.set_minor_locator(NullLocator())


def _log_formatter() -> Formatter:
    from matplotlib.ticker import FuncFormatter

    class LogFormatter(FuncFormatter):
        """Plain numbers where all of an axis are short, else powers of ten."""

        def format_ticks(self, values: Any) -> list[str]:
            """Return one text per tick, all of one kind."""
            low, high = PLAIN_NUMBERS
            axis: Any = self.axis
            ends = sorted(axis.get_view_interval())
            seen = [value for value in values if ends[0] <= value <= ends[1]]
            if not all(low <= value < high for value in seen):
                return [_power_of_ten(value) if value > 0.0 else "" for value in values]
            digits = next(n for n in range(1, 18) if len({f"{value:.{n}g}" for value in seen}) == len(seen))
            return [f"{value:.{max(digits, 4)}g}" for value in values]

    return LogFormatter(lambda value, _position: f"{value:g}")


def _power_of_ten(value: float) -> str:
    """Return a positive number as 10ⁿ or a multiple of it, in letters, which are drawn faster than formulas."""
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    typeset = f"10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    return typeset if mantissa == "1" else f"{mantissa}·{typeset}"


def name_curves(ax: Axes, what: str, lines: Sequence[Line2D], names: Sequence[Any], ends: Sequence[float]) -> None:
    """Name curves that rise one after the other: each beside itself where there is room, else in the legend.

    Many are named by a colour bar. `what` is the typeset symbol of what they differ in, `names` are its values, and
    `ends` where along x each curve has risen, NaN where that is not seen; scale and limits of the panel must be set.
    """
    texts = [f"{what} = {name}" if what else str(name) for name in names]
    along = ax.transAxes.inverted().transform(ax.transData.transform([(x, 0.5) for x in ends]))[:, 0]
    room = np.diff(np.sort(along), prepend=0.0).min() > ROOM_FOR_NAME * max(map(len, texts)) / 5.0
    if len(lines) > MOST_NAMED:
        colour_bar(ax, what, names, [line.get_color() for line in lines], (0.05, 0.56))
        return
    for line, text, x in zip(lines, texts, ends, strict=True):
        if room:
            style: dict[str, Any] = {"ha": "right", "fontsize": small(ax), "color": line.get_color()}
            ax.annotate(text, (x, NAMED_AT), (-4, 0), textcoords="offset points", **style)
        else:
            line.set_label(text)


def colour_bar(ax: Axes, what: str, values: Sequence[Any], colours: Any, place: tuple[float, float]) -> None:
    """Draw the colours of curves as a bar within a panel, with the first, a middle and the last value beside it."""
    bar = ax.inset_axes((*place, 0.035, 0.34))
    bar.imshow(np.asarray(colours)[:, None], aspect="auto", origin="lower", interpolation="nearest")
    shown = sorted({0, (len(values) - 1) // 2, len(values) - 1}) if len(values) > MOST_NAMED else range(len(values))
    bar.set_yticks(list(shown), [str(values[at]) for at in shown], fontsize=small(ax))
    bar.yaxis.tick_right()
    bar.tick_params(length=2, pad=2)
    bar.set_xticks([])
    bar.set_frame_on(False)
    bar.set_title(what, fontsize=small(ax), pad=3)


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


def drawer_of(dataset: xr.Dataset, drawers: Mapping[str, Drawer]) -> Drawer:
    """Return what draws a study, of those that are known by the name of their answer, or raise one sentence."""
    check_drawable(dataset)
    answer = dataset.attrs["answer"]
    if answer not in drawers:
        msg = f"Argument `dataset` must be the result of a study, one of {', '.join(drawers)}, but is {shown(answer)}."
        raise ValueError(msg)
    return drawers[answer]


def given_panels(name: str, panels: object, count: int) -> Array:
    """Return given axes, one alone or several in any shape, as an array of so many, or raise one sentence."""
    from matplotlib.axes import Axes

    several = np.ravel(np.array(panels, dtype=object))
    if not all(isinstance(ax, Axes) for ax in several):
        msg = f"Argument `{name}` must be matplotlib's axes, but is {shown(panels)}."
        raise TypeError(msg)
    if several.size != count:
        msg = f"Argument `{name}` must be {count} axes, but has {several.size}."
        raise ValueError(msg)
    return several
