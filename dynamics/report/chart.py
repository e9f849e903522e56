"""The interactive figure of a page: curves over log time, each with its numbers, and the script that shows them.

Curves are paths of an SVG within the page; `chart.js` draws the axes, finds the curve under the pointer and zooms. The
numbers of a curve are an attribute, escaped like all text of a page. Without scripts the figure is hidden: the same
curves stand on the page as a picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dynamics.report.figures import spread_rows
from dynamics.report.page import cell_text, element, scrolling
from dynamics.runs.variables import axis_label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from xml.etree.ElementTree import Element

    import xarray as xr

    from hermite.arrays import Array

#: Units of a path along each side of the plot, and the steps below which its points are left out.
UNITS, STEPS = 1000.0, (4.0, 2.0)
#: Inner size of the figure and the margins for its axes: left, top, right, below.
SIZE, MARGINS = (760, 420), (56, 14, 14, 44)
#: Curves that a page has room for, and the free room above and below them as a part of their range.
MOST_CURVES, ROOM = 64, 0.04
#: Names of marked times among the facts of a curve.
PREDICTED_TIME, PREDICTED_AT = "predicted T_p =", "predicted at t ="
#: First facts of a curve of a direction -> their variables.
DIRECTION_FACTS = {"direction": "direction", "a_p =": "teacher_coefficient"}
HINT = (
    "Point at a curve, or choose one by the arrow keys, to read its numbers. Drag over a part, or use the buttons or "
    "+ and −, to zoom; double click or Escape shows all again."
)
BUTTONS = {"in": "Zoom in", "out": "Zoom out", "all": "Show all", "next": "Next curve"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A curve over positive times, its facts by name, and the time at which it was predicted to rise."""

    values: Array
    facts: Mapping[str, Any]
    predicted: float = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves over the same positive times, drawn over their logarithm."""

    title: str
    x: str
    y: str
    time: Array
    limits: tuple[float, float]
    curves: Sequence[Curve]


# --- curves of answers ------------------------------------------------------------------------------------------------


class History(NamedTuple):
    """A quantity of a family of answers over time."""

    title: str
    #: Name of the vertical axis in the table of labels.
    y: str
    #: One of these variables must be there.
    variables: tuple[str, ...]
    #: (dataset) -> values (time, curve), 1 where all is learned.
    values: Callable[[xr.Dataset], Array]
    x: str = "time"


def squared_overlap(dataset: xr.Dataset) -> Array:
    """Return the largest squared overlap per time and direction; for odd k of positive overlaps only."""
    for name in ("overlap", "max_overlap"):
        if name in dataset:
            return np.asarray(np.asarray(dataset[name].values, dtype=np.float64) ** 2)
    if "teacher_overlap" not in dataset:
        msg = "Argument `dataset` must hold an overlap history, but has none."
        raise ValueError(msg)
    overlap = np.asarray(dataset["teacher_overlap"].values)
    if dataset.attrs["information_exponent"] % 2:
        overlap = np.maximum(overlap, 0.0)
    return np.asarray((overlap**2).max(axis=1))


def squared_axis_overlap(dataset: xr.Dataset) -> Array:
    """Return the largest squared overlap of a neuron with each axis of the teacher, shape (time, direction)."""
    if "teacher_overlap" in dataset:
        return np.asarray((dataset["teacher_overlap"].values ** 2).max(axis=1))
    return np.asarray(dataset["max_overlap"].values ** 2)


def component_ratio(dataset: xr.Dataset) -> Array:
    """Return f_α/f*_α, shape (…, time, component)."""
    return np.asarray(dataset["component"].values / dataset["teacher_component"].values)


def _learned_share(dataset: xr.Dataset) -> Array:
    return np.asarray(dataset["learned_mass"].values / dataset["teacher_coefficient"].values)


_OF_DIRECTION = "Largest squared overlap of a neuron with each direction"
_OF_AXIS = "Largest squared overlap of a neuron with each axis of the teacher"
_OF_TEACHER = "Components of the network over those of the teacher"
_OF_SPAN = "Alignment of the span of the neurons with each direction"
_MASS = "Weight that the neurons carry of each direction"
OVERLAPS = History(_OF_DIRECTION, "squared_overlap", ("overlap", "max_overlap", "teacher_overlap"), squared_overlap)
AXES = History(_OF_AXIS, "squared_overlap", ("max_overlap", "teacher_overlap"), squared_axis_overlap)
COMPONENTS = History(_OF_TEACHER, "component_share", ("component",), component_ratio)
ALIGNMENTS = History(_OF_SPAN, "alignment", ("alignment",), lambda found: np.asarray(found["alignment"].values))
MASSES = History(_MASS, "mass_share", ("learned_mass",), _learned_share)
PROGRESS = History(
    "Progress of each component",
    "progress",
    ("progress",),
    lambda found: np.asarray(found["progress"].values),
    x="step_time",
)


def history_chart(
    dataset: xr.Dataset,
    facts: Sequence[Mapping[str, Any]],
    history: History = OVERLAPS,
    marked: str = PREDICTED_TIME,
) -> Callable[[], Chart] | None:
    """Return the function that makes the chart of a history; None where a dataset has none.

    `facts` are those of each curve by name; the time under the name `marked` is marked below the curve.
    """
    known = [name for name in history.variables if name in dataset and "undefined" not in dataset[name].attrs]
    has_history = bool(known) and (dataset["time"].values > 0).sum() > 1
    return partial(_chart, dataset, facts, history, marked) if has_history else None


def _chart(dataset: xr.Dataset, facts: Sequence[Mapping[str, Any]], history: History, marked: str) -> Chart:
    later = dataset["time"].values > 0
    chosen = spread_rows(len(facts), MOST_CURVES)
    values = history.values(dataset)[later][:, chosen]
    curves = [
        Curve(values=values[:, at], facts=facts[p], predicted=float(facts[p].get(marked) or "nan"))
        for at, p in enumerate(chosen)
    ]
    known = values[np.isfinite(values)]
    low, high = float(known.min(initial=0.0)), float(known.max(initial=1.0))
    room = ROOM * (high - low)
    return Chart(
        title=history.title,
        x=axis_label(history.x, plain=True),
        y=axis_label(history.y, plain=True),
        time=dataset["time"].values[later],
        limits=(low - room, high + room),
        curves=curves,
    )


# --- elements ---------------------------------------------------------------------------------------------------------


def chart_element(chart: Chart) -> Element:
    """Return the chart, hidden until its script runs."""
    left, top, right, below = MARGINS
    size = SIZE[0] - left - right, SIZE[1] - top - below
    place = {"x": left, "y": top, "width": size[0], "height": size[1]}
    plot = element(
        "svg",
        element("rect", width=f"{UNITS:g}", height=f"{UNITS:g}", class_="paper"),
        *(_curve(chart, at) for at in range(len(chart.curves))),
        element("rect", class_="chosen-part", visibility="hidden"),
        class_="plot",
        viewBox=f"0 0 {UNITS:g} {UNITS:g}",
        preserveAspectRatio="none",
        **{name: f"{value:g}" for name, value in place.items()},
    )
    names = (
        element("text", chart.x, x=f"{left + size[0] / 2:g}", y=f"{SIZE[1] - 6}", text_anchor="middle"),
        element("text", chart.y, transform=f"translate(14 {top + size[1] / 2:g}) rotate(-90)", text_anchor="middle"),
    )
    view = {"viewBox": f"0 0 {SIZE[0]} {SIZE[1]}", "role": "img", "aria_label": f"{chart.title}. {HINT}"}
    buttons = (element("button", word, type="button", data_does=name) for name, word in BUTTONS.items())
    ends = [float(np.log10(chart.time[0])), float(np.log10(chart.time[-1])), *chart.limits]
    return element(
        "div",
        element("p", HINT, class_="note"),
        scrolling(element("svg", plot, element("g", class_="axes"), *names, **view), chart.title, wide=True),
        element("p", "No curve is chosen.", class_="said", aria_live="polite"),
        element("p", *buttons, class_="buttons"),
        class_="chart",
        data_limits=" ".join(f"{end:.10g}" for end in ends),
        hidden="hidden",
    )


def _curve(chart: Chart, at: int) -> Element:
    """Return a curve with its colours on light and on dark paper, and a tick at its predicted time."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    curve, share = chart.curves[at], at / max(len(chart.curves) - 1, 1)
    light, dark = (to_hex(colormaps["viridis"](low + (high - low) * share)) for low, high in ((0.0, 0.8), (0.45, 1.0)))
    facts = "; ".join(f"{name} {cell_text(value)}" for name, value in curve.facts.items())
    seen = chart.time[0] <= curve.predicted <= chart.time[-1]
    mark = f"M{_places(chart, np.array([curve.predicted]))[0]:.1f} {UNITS:g}V{0.965 * UNITS:g}" if seen else ""
    path = element("path", class_="curve", d=_path(chart, curve.values), data_facts=facts)
    return element("g", path, element("path", class_="tick", d=mark), style=f"--light: {light}; --dark: {dark}")


def _places(chart: Chart, time: Array) -> Array:
    """Return the places of times along x, in units of a path."""
    ends = np.log([chart.time[0], chart.time[-1]])
    places: Array = UNITS * (np.log(time) - ends[0]) / max(ends[1] - ends[0], 1e-300)
    return places


def _path(chart: Chart, values: Array) -> str:
    """Return a curve as an SVG path of the points that are seen, broken at unknown values."""
    low, high = chart.limits
    across = UNITS * (1.0 - (values - low) / (high - low))
    words, last = [], (np.inf, np.inf)
    for x, y, ahead in zip(_places(chart, chart.time), across, np.append(across[1:], np.nan), strict=True):
        if not np.isfinite(y):
            last = (np.inf, np.inf)
            continue
        near = abs(x - last[0]) < STEPS[0] and abs(y - last[1]) < STEPS[1] and abs(ahead - y) < STEPS[1]
        if not near:
            words.append(f"{'L' if np.isfinite(last[0]) else 'M'}{x:.1f} {y:.1f}")
            last = (x, y)
    return "".join(words)
