"""Parts that all figures share: colours, styles, formulas, panels with their ticks and names, error bands, studies."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakSet

import numpy as np

from dynamics.problem.checks import check_choice
from dynamics.runs.variables import axis_label
from dynamics.theory.bands import CLOSE, FAR
from hermite.text.messages import require, shown, with_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from hermite.arrays import Array

#: Colours for all kinds of colour vision (Okabe and Ito); compared curves differ in shape as well.
MEASURED, PREDICTED, IDEAL, REFERENCE = "#0072b2", "#d55e00", "#009e73", "#6f7780"
#: Colours of curves without an order.
COLOURS = (MEASURED, PREDICTED, IDEAL, "#cc79a7", "#e69f00", "#56b4e9")
#: Half-width of error bars and bands in standard errors.
BAND = 2.0
#: Inches of a figure with one panel.
ONE_PANEL = (6.8, 4.4)
#: Range of the numbers on log axes that are written without powers of ten.
PLAIN_NUMBERS = (1e-3, 1e4)
#: Size of letters in titles, legends and notes over that of the names of axes.
SMALL = 0.85
#: Height at which a curve that rises from 0 to 1 is named.
NAMED_AT = 0.62
#: Number of curves above which a colour bar names them.
MOST_NAMED = 8
#: Curves that a panel has room for.
MOST_CURVES = 24
#: Arguments of a function of matplotlib by name.
Arguments: TypeAlias = dict[str, Any]
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Style(NamedTuple):
    """Sizes and fonts for one place."""

    #: Inches of a figure of one column and of one across the page; None: as on the screen.
    widths: tuple[float, float] | None
    #: Factor of the widths of lines and the sizes of markers.
    stroke: float
    #: Settings of matplotlib that `COMMON` lacks.
    settings: Mapping[str, object]


#: Settings of all styles; fonts are Type 42 in PDF and paths in SVG; the salt makes their names the same every time.
COMMON = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "report",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": f"cycler('color', {COLOURS})",
}
STYLES = {
    "screen": Style(None, 1.0, {}),
    # Columns of the usual two-column journal.
    "paper": Style((3.4, 7.0), 0.6, {"font.size": 7.5, "axes.linewidth": 0.6, "savefig.dpi": 300}),
    # Half of a slide: letters and lines double when it fills one.
    "talk": Style((5.2, 8.6), 1.0, {"font.size": 11.0, "axes.linewidth": 1.0, "savefig.dpi": 250}),
}
_CURRENT = ContextVar("style", default="screen")


@contextmanager
def figure_style(style: str | None = "screen") -> Iterator[None]:
    """Draw figures in a style within a `with` block.

    Parameters
    ----------
    style : {"screen", "paper", "talk"} or None
        "paper" has the widths of one column (3.4 in) and of a page (7 in) with letters of 7.5 points; "talk" has half
        the size of a slide, with letters of 11 points. None leaves the style that holds around the block. ValueError is
        raised for another one.

    Notes
    -----
    Fonts are embedded in PDF as Type 42, and drawn as paths in SVG. Figures keep the style in which they were made. A
    file `matplotlibrc` of the user has no effect in the block.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=8, dimension=64)
    >>> with figure_style("paper"):
    ...     ax = dynamics.plot_loss(dynamics.solve_decoupled(problem))
    >>> round(float(ax.figure.get_size_inches()[0]), 2)
    3.4
    """
    from matplotlib import style as styles

    name = _CURRENT.get() if style is None else style
    check_choice("style", name, tuple(STYLES))
    before = _CURRENT.set(name)
    settings: Any = {**COMMON, **STYLES[name].settings}
    try:
        with styles.context(settings, after_reset=True):
            yield
    finally:
        _CURRENT.reset(before)


@cache
def _figure_class() -> type[Figure]:
    """Return the class of figures that are written in the style in which they were made."""
    from matplotlib.artist import Artist, getp, setp
    from matplotlib.figure import Figure

    class StyledFigure(Figure):
        """A figure that keeps its style."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.style, self.drawn = _CURRENT.get(), WeakSet[Artist]()

        def savefig(self, *arguments: Any, **options: Any) -> None:
            """Write the figure, with its style's fonts and resolution; see `Figure.savefig`."""
            with figure_style(self.style):
                super().savefig(*arguments, **options)

        def draw(self, renderer: Any) -> None:
            """Draw the figure, with lines and markers in the sizes of its style; see `Figure.draw`."""
            stroke = STYLES[self.style].stroke
            owners = [owner for ax in self.axes for owner in (ax, ax.get_legend()) if owner is not None]
            for line in {line for owner in owners for line in owner.get_lines()} - set(self.drawn):
                for name in ("linewidth", "markersize", "markeredgewidth"):
                    setp(line, name, stroke * getp(line, name))
                self.drawn.add(line)
            super().draw(renderer)

    return StyledFigure


def power(base: str, exponent: float, error: float = np.nan) -> str:
    """Return a power as a typeset formula, its exponent rounded by its standard error where that is known."""
    return rf"${base}^{{{formula(exponent, error)[1:-1]}}}$"


def formula(value: float, error: float = np.nan) -> str:
    """Return a number as mathtext, rounded by its standard error where that is known: 2.0e-7 becomes 2.0·10⁻⁷."""
    text = re.sub(r"e([+-])0*(\d+)", lambda m: rf"\cdot 10^{{{m[1].strip('+')}{m[2]}}}", with_error(value, error))
    text = re.sub(r"^(-?)1\\cdot ", r"\1", text).replace("±", r"\pm")
    return f"${text}$"


def component_formula(name: str) -> str:
    """Return the name of a component of a polynomial, "x1*x2" or "h2(x1)", as a typeset formula."""
    return "$" + re.sub(r"([a-z])(\d+)", r"\1_{\2}", name).replace("*", r"\,") + "$"


def spread_rows(count: int, most: int) -> list[int]:
    """Return the indices of the shown rows or curves: all, or at most `most` of `count`, evenly in the logarithm."""
    if count <= most:
        return list(range(count))
    return sorted({round(x) - 1 for x in np.geomspace(1, count, most)})


def spread_times(count: int, most: int) -> list[int]:
    """Return the indices of at most `most` of `count` times, evenly spread, with the first and the last."""
    return sorted(set(np.linspace(0, count - 1, most).round().astype(int).tolist()))


def shades(count: int, last: float = 0.92, *, first: float = 0.0) -> Array:
    """Return RGBA colours (count, 4) from dark to bright for ordered curves.

    `first` and `last`, from 0 to 1, are the ends of the part of the colour map "viridis" that is used.
    """
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(first, last, count))


def new_figure(size: tuple[float, float], layout: Any = "constrained", *, shown: bool = False) -> Figure:
    """Return a new figure in the current style; pyplot knows it if it is `shown`.

    `size` is width and height in inches on a screen; styles for print change them.
    """
    inches, widths = size, STYLES[_CURRENT.get()].widths
    if widths is not None:
        width = widths[size[0] > 8.0]  # a figure that is wide on a screen takes the page, not a column
        inches = width, size[1] * (width / size[0]) ** 0.7  # letters shrink less than the width
    if not shown:
        return _figure_class()(figsize=inches, layout=layout)
    from matplotlib import pyplot

    return pyplot.figure(FigureClass=_figure_class(), figsize=inches, layout=layout)


def new_panels(
    size: tuple[float, float], *shape: int, layout: object = "constrained", shown: bool = False, **options: Any
) -> tuple[Figure, Any]:
    """Return a new figure, as `new_figure` does, and its panels, as `Figure.subplots` gives them."""
    figure = new_figure(size, layout, shown=shown)
    with figure_style(None):
        return figure, figure.subplots(*shape, **options)


def figure_of(
    plot: Callable[..., object], *arguments: Any, size: tuple[float, float] = ONE_PANEL, shape: Sequence[int] = ()
) -> Figure:
    """Return a new figure of `size` inches that `plot` draws, called with the arguments and the axes.

    `shape` are rows and columns of panels, one panel by default; panels in one column share their x.
    """
    options: Arguments = {"sharex": True, "height_ratios": (2.2, 1.0)} if len(shape) == 1 else {}
    figure, panels = new_panels(size, *shape, **options)
    plot(*arguments, panels)
    return figure


#: Inches that the labels of a y-axis take on a screen.
LABEL_INCHES = 0.85


def row_of(dataset: xr.Dataset, plots: Sequence[Callable[..., object]], size: tuple[float, float]) -> Figure:
    """Return a new figure with a row of panels, each drawn by a function of the dataset and the axes, and a title."""
    fixed: Arguments = {}
    if _CURRENT.get() == "screen":  # a layout engine draws everything twice, which is half of the time of such a figure
        width, count = size[0], len(plots)
        margins = {"left": LABEL_INCHES / width, "right": 1.0 - 0.2 / width, "bottom": 0.13, "top": 0.86}
        # Between panels there is room for the labels of the next one, in units of the width of a panel.
        panel = (width - 0.2 - count * LABEL_INCHES) / count
        margins["wspace"] = LABEL_INCHES / panel
        fixed = {"layout": None, "gridspec_kw": margins}
    figure, panels = new_panels(size, 1, len(plots), squeeze=False, **fixed)
    for plot, ax in zip(plots, panels[0], strict=True):
        plot(dataset, ax)
    figure.suptitle(headline(dataset), fontsize="medium")
    return figure


def axes_or_new(ax: Axes | None, style: str | None = None) -> Axes:
    """Return the given axes, or new ones of pyplot in a style."""
    with figure_style(style):
        axes: Axes = new_panels(ONE_PANEL, shown=True)[1] if ax is None else given_panels("ax", ax, 1)[0]
        return axes


def axes_for(dataset: object, ax: Axes | None, style: str | None, **variables: tuple[str, ...]) -> Axes:
    """Return the given axes, or new ones in a style, for a dataset that `check_drawable` lets pass."""
    check_drawable(dataset, **variables)
    return axes_or_new(ax, style)


def panels_or_new(
    panels: Any,
    count: int,
    size: tuple[float, float],
    *shape: int,
    style: str | None = None,
    shown: bool = True,
    **options: Any,
) -> Any:
    """Return `count` given axes, or new ones in a style, which pyplot knows if they are `shown`."""
    with figure_style(style):
        if panels is not None:
            return given_panels("axes", panels, count)
        return new_panels(size, *shape, shown=shown, squeeze=False, **options)[1].ravel()


def given_panels(name: str, panels: object, count: int) -> Array:
    """Return one or several axes of matplotlib as an array of `count`; TypeError or ValueError for anything else."""
    from matplotlib.axes import Axes

    several = np.ravel(np.array(panels, dtype=object))
    are_axes = all(isinstance(ax, Axes) for ax in several)
    require(are_axes, f"Argument `{name}` must be matplotlib's axes, but is {shown(panels)}.", TypeError)
    require(several.size == count, f"Argument `{name}` must be {count} axes, but has {several.size}.")
    return several


def check_drawable(dataset: Any, **variables: tuple[str, ...]) -> None:
    """Raise TypeError or ValueError unless `dataset` is an answer that has these variables with these dims."""
    import xarray as xr

    require(
        isinstance(dataset, xr.Dataset),
        f"Argument `dataset` must be a Dataset, but is of type {type(dataset).__name__}.",
        TypeError,
    )
    for name, dims in variables.items():
        require(name in dataset, f"Argument `dataset` must have the variable `{name}` for this figure, but has not.")
        expected, actual = (", ".join(map(str, names)) for names in (dims, dataset[name].dims))
        require(
            dataset[name].dims == dims,
            f"Argument `dataset` must have `{name}({expected})` for this figure, but has `{name}({actual})`.",
        )
        require(
            dataset[name].size,
            f"Argument `dataset` must have a value of `{name}` at least for this figure, but has none.",
        )
    require(
        "answer" in dataset.attrs,
        "Argument `dataset` must be an answer of this program, with the attribute `answer`, but has none.",
    )


def small(ax: Axes, part: float = SMALL) -> float:
    """Return the size of small letters in a panel, in points: `part` times that of the label of the x axis."""
    return part * float(ax.xaxis.label.get_fontsize())


def finish_panel(
    ax: Axes, x: str, y: str, title: str = "", ticks: Sequence[float] | Array | None = None, **legend: Any
) -> None:
    """Label the axes of a panel, `x` and `y` as `axis_label` does, and its ticks; name the curves in a legend.

    `ticks` are the places along x that are labelled, by default those of the scale.
    """
    ax.set(xlabel=axis_label(x), ylabel=axis_label(y))
    if title:
        ax.set_title(title, fontsize=small(ax, 1.0))
    log_ticks(ax)
    if ticks is not None:
        ax.set_xticks(ticks, [f"{value:g}" for value in ticks])
        ax.minorticks_off()
    if ax.get_legend_handles_labels()[1]:
        ax.legend(**{"frameon": False, "fontsize": small(ax), "title_fontsize": small(ax)} | legend)


def log_ticks(ax: Axes) -> None:
    """Label log axes at decades, or within each of a short axis; at most five of a long one."""
    from matplotlib.ticker import AutoLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

    class LogFormatter(FuncFormatter):
        """Plain numbers where all of an axis are short, else powers of ten."""

        def format_ticks(self, values: Any) -> list[str]:
            """Return one text per tick, all of one kind."""
            axis: Any = self.axis
            low, high = sorted(axis.get_view_interval())
            seen = [value for value in values if low <= value <= high]
            if not all(PLAIN_NUMBERS[0] <= value < PLAIN_NUMBERS[1] for value in seen):
                return [_power_of_ten(value) if value > 0.0 else "" for value in values]
            digits = next(n for n in range(1, 18) if len({f"{value:.{n}g}" for value in seen}) == len(seen))
            return [f"{value:.{max(digits, 4)}g}" for value in values]

    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() != "log":
            continue
        low, high = sorted(axis.get_view_interval())  # an axis may run backwards
        narrow = high < 3.0 * low  # labelled as a linear one
        # Two of these are on any axis that is not narrow.
        places = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high < 5.0 * low else (1.0, 2.0, 5.0) if high < 1e2 * low else (1.0,)
        most = 5 if high > 1e5 * low else None
        axis.set_major_locator(AutoLocator() if narrow else LogLocator(subs=places, numticks=most))
        axis.set_major_formatter(LogFormatter(lambda value, _position: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
        if narrow or high > 1e4 * low:
            axis.set_minor_locator(NullLocator())


def _power_of_ten(value: float) -> str:
    """Return a positive number as 10ⁿ or a multiple of it, in letters, which are drawn faster than formulas."""
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    typeset = f"10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    return typeset if mantissa == "1" else f"{mantissa}·{typeset}"


def name_curves(ax: Axes, what: str, lines: Sequence[Line2D], names: Sequence[object], ends: Sequence[float]) -> None:
    """Name rising curves: each at its side if there is room, else in the legend, and many by a colour bar.

    `what` is the symbol of the quantity that differs, `names` are its values, and `ends` the places along x where the
    curves have risen, NaN where they have not. Scale and limits of the panel must be set before.
    """
    texts = [f"{what} = {name}" if what else str(name) for name in names]
    along = ax.transAxes.inverted().transform(ax.transData.transform([(x, 0.5) for x in ends]))[:, 0]
    room = np.diff(np.sort(along), prepend=0.0).min() > 0.026 * max(map(len, texts))
    if len(lines) > MOST_NAMED:
        colour_bar(ax, what, names, [line.get_color() for line in lines], (0.05, 0.56))
        return
    for line, text, x in zip(lines, texts, ends, strict=True):
        if room:
            style: Arguments = {"ha": "right", "fontsize": small(ax), "color": line.get_color()}
            ax.annotate(text, (x, NAMED_AT), (-4, 0), textcoords="offset points", **style)
        else:
            line.set_label(text)


def colour_bar(ax: Axes, what: str, values: Sequence[object], colours: Any, place: tuple[float, float]) -> None:
    """Draw the colours of curves as a bar within a panel, with the first, a middle and the last value at its side.

    `place` is its lower left corner, from 0 to 1 across the panel.
    """
    bar = ax.inset_axes((*place, 0.035, 0.34))
    bar.imshow(np.asarray(colours)[:, None], aspect="auto", origin="lower", interpolation="nearest")
    named = sorted({0, (len(values) - 1) // 2, len(values) - 1}) if len(values) > MOST_NAMED else range(len(values))
    bar.set_yticks(list(named), [str(values[at]) for at in named], fontsize=small(ax))
    bar.yaxis.tick_right()
    bar.tick_params(length=2, pad=2)
    bar.set_xticks([])
    bar.set_frame_on(False)
    bar.set_title(what, fontsize=small(ax), pad=3)


#: Name of bands of single runs in legends.
OF_RUNS = "95 % of runs"


def draw_histories(
    ax: Axes, time: Array, curves: Array, names: tuple[str, Sequence[object]], predicted: Array | None = None,
    runs: tuple[Array, Array, Array] | None = None,
) -> None:  # fmt: skip
    """Draw rising curves (time, curve) over log time, named by `name_curves`, with ticks below at predicted times.

    `names` are the symbol of the quantity in which the curves differ, "" if none, and a name for each of them. `runs`
    are the ends of bands of single runs, each like `curves`, and R (time,), see `draw_runs`.
    """
    chosen, later = spread_rows(curves.shape[1], MOST_CURVES), time > 0
    time, curves = time[later], curves[later]
    ax.set_xscale("log")
    if time.size:
        ax.set_xlim(time[0], time[-1])
    lines, ends = [], []
    for at, colour in zip(chosen, shades(len(chosen), 0.8), strict=True):
        lines += ax.plot(time, curves[:, at], color=colour, lw=1.4)
        if runs is not None:
            low, high, ratio = (part[later] for part in runs)
            band = (low[:, at], high[:, at])
            draw_runs(ax, time, band, ratio, colour, OF_RUNS if at == chosen[0] else "_")
        ends.append(np.exp(first_passage(np.log(time), curves[:, at], NAMED_AT)))
        if predicted is not None and np.isfinite(predicted[at]):
            # Within the panel: another figure shows times after its end.
            ax.plot([predicted[at]], [0.035], "|", color=colour, ms=9, mew=1.6, transform=ax.get_xaxis_transform())
    name_curves(ax, names[0], lines, [names[1][at] for at in chosen], ends)


def draw_threshold(ax: Axes, level: float, word: str) -> None:
    """Draw a dotted line across a panel at a level, with `word` for it in the legend, such as "emerged"."""
    ax.axhline(level, color=REFERENCE, lw=0.8, ls=":", label=word)


def first_passage(x: Array, curve: Array, level: float) -> float:
    """Return the first x at which a curve is at a level or above it, interpolated linearly; NaN if it never is."""
    above = np.flatnonzero(curve >= level)
    if not above.size or not above[0]:
        return float(x[0]) if above.size else np.nan
    ends = slice(above[0] - 1, above[0] + 1)
    return float(np.interp(level, curve[ends], x[ends]))


def headline(dataset: xr.Dataset) -> str:
    """Return title, link and sizes of a dataset in one line, with mathtext."""
    stored = json.loads(dataset.attrs["parameters"])["problem"]
    spectrum = "" if stored["beta"] is None else rf", $a_p \propto p^{{-{stored['beta']:g}}}$"
    width = f"{dataset.attrs['particles']} particles" if "particles" in dataset.attrs else f"$m = {stored['width']}$"
    polynomial = stored.get("teacher", {}).get("polynomial")
    # Text that is shown as it is, without formulas.
    names = (dataset.attrs["title"], stored["activation"]["name"], polynomial or "")
    title, link, polynomial = (text.replace("$", r"\$") for text in names)
    teacher = f"$f^* =$ {polynomial}" if polynomial else f"$P = {stored['num_directions']}$"
    steps = steps_in_words(dataset.attrs)
    return f"{title}: {link}{spectrum}, {teacher}, {width}, $d = {stored['dimension']}${f', {steps}' if steps else ''}"


def steps_in_words(attrs: Mapping[object, object]) -> str:
    """Return optimizer and learning rate of an answer of finite steps, "" for a flow."""
    rate, method = attrs.get("learning_rate"), attrs.get("method")
    if not isinstance(rate, float) or not ("step_theory" in attrs or method == "gradient-descent"):
        return ""
    batch = attrs.get("batch_size", 1)
    name = attrs.get("optimizer", "gradient descent" if method == "gradient-descent" else "SGD")
    return rf"{name}, $\eta = {rate:.3g}$" + (f", $B = {batch}$" if batch != 1 else "")


def mean_band(runs: Array, axis: int = 0) -> tuple[Array, Array]:
    """Return the mean over an axis of runs, and two standard errors of it, which are 0 for one run."""
    error = runs.std(axis=axis) / np.sqrt(max(runs.shape[axis] - 1, 1))
    return runs.mean(axis=axis), BAND * error


def draw_band(ax: Axes, x: Array, curves: Sequence[Array], colour: object, alpha: float = 0.2, **line: Any) -> None:
    """Draw a curve with a band around it.

    `curves` are the curve, the lower and the upper end of the band, each like x.
    """
    middle, low, high = curves
    ax.plot(x, middle, color=colour, **line)
    ax.fill_between(x, low, high, color=colour, alpha=alpha, lw=0)


def draw_runs(
    ax: Axes, x: Array, ends: tuple[Array, Array], ratio: Array, colour: object, label: str = OF_RUNS
) -> None:  # fmt: skip
    """Fill the band of 95 % of single runs between its `ends`, each like x, where theory knows it.

    `ratio` is R of `dynamics.theory.bands`: up to 0.15 the band is drawn as it is; up to 0.3 fainter, since runs
    scatter at least so far; and not beyond. The legend names it by `label`, unless that begins with "_".
    """
    for largest, alpha, name in ((FAR, 0.1, "_"), (CLOSE, 0.17, label)):
        ax.fill_between(x, *ends, where=(ratio <= largest).tolist(), color=colour, alpha=alpha, lw=0, label=name)


def log_band(runs: Array) -> tuple[Array, Array, Array]:
    """Return the geometric mean (x,) over positive runs (run, x), and the lower and upper ends of two standard errors.

    They are NaN where no run is positive. The band ends where the runs do, since the error of few runs may exceed their
    range.
    """
    is_positive = np.isfinite(runs) & (runs > 0.0)
    logs = np.ma.masked_array(np.log(np.where(is_positive, runs, 1.0)), ~is_positive)
    mean, count = logs.mean(axis=0), logs.count(axis=0)
    error = BAND * logs.std(axis=0) / np.sqrt(np.maximum(count - 1, 1))
    curves = mean, np.maximum(mean - error, logs.min(axis=0)), np.minimum(mean + error, logs.max(axis=0))
    middle, low, high = (np.exp(np.ma.filled(curve, np.nan)) for curve in curves)
    return middle, low, high


def share_bars(share: Array, count: int) -> Array:
    """Return the lengths of 95 % intervals below and above shares of `count` runs, by Wilson's score, shape (2, …).

    `share` holds numbers from 0 to 1.
    """
    square = BAND**2 / count
    middle, half = (share + square / 2.0), BAND * np.sqrt(share * (1.0 - share) / count + square / (4.0 * count))
    ends = np.array([middle - half, middle + half]) / (1.0 + square)
    return np.asarray(np.maximum([share - ends[0], ends[1] - share], 0.0))


#: The numbers that a study found, and sentences on them.
Found = tuple[dict[str, object], list[str]]


class Study(NamedTuple):
    """How the numbers of a study and its figure are found; panels and their size in inches, arguments of `subplots`."""

    find: Callable[[xr.Dataset], Found]
    draw: Callable[[xr.Dataset, Array], None]
    panels: Callable[[xr.Dataset], int]
    size: tuple[float, float]
    columns: int = 4
    options: Mapping[str, Any] = MappingProxyType({})


def draw_study(
    dataset: xr.Dataset, studies: Mapping[str, Study], axes: Sequence[Axes] | None, style: str | None
) -> Figure:
    """Return the figure of a study, one of `studies` by name, on given axes or as a new figure in a style."""
    check_drawable(dataset)
    answer, menu = dataset.attrs["answer"], ", ".join(studies)
    require(
        answer in studies, f"Argument `dataset` must be the result of a study, one of {menu}, but is {shown(answer)}."
    )
    _, draw, panels_of, (width, height), most, options = studies[answer]
    count = panels_of(dataset)
    columns = min(count, most)
    rows = -(-count // columns)
    with figure_style(style):
        size = width * columns, height * rows
        panels = panels_or_new(axes, count, size, rows, columns, shown=False, **options)
        for unused in panels[count:]:
            unused.remove()
        draw(dataset, panels[:count])
    figure: Figure = panels[0].get_figure()
    return figure
