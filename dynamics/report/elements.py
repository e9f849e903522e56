"""Elements of a page: text, tables, figures, and an interactive chart of curves over log time with their numbers.

Every character is escaped. Curves are paths of an SVG within the page; `chart.js` draws the axes, finds the curve under
the pointer and zooms. The numbers of a curve are an attribute. Without scripts the chart is hidden: the same curves
stand on the page as a picture.
"""

from __future__ import annotations

import base64
import io
import math
import re
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from dynamics.report.figures import spread_rows
from dynamics.runs.variables import axis_label
from hermite.text.formulas import legal
from hermite.text.messages import require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import xarray as xr
    from matplotlib.figure import Figure

    from hermite.arrays import Array

    Element = ElementTree.Element

#: Standard deviations from the mean path within which 95 % of runs lie.
RUNS = 1.96
#: Bytes of a vector graphic beyond which pixels are smaller.
LARGEST_VECTOR = 200_000
#: Characters of one text that a page shows, and entries of one list.
MOST_CHARACTERS, MOST_ENTRIES = 2000, 12
#: Characters of a text that needs room.
LONG = 40
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


class Rounded(float):
    """A number with the text that its error leaves of it."""

    text: str

    def __new__(cls, value: float, text: str) -> Rounded:
        """Return the number with its text."""
        number = super().__new__(cls, value)
        number.text = text
        return number


def element(tag: str, *children: Element | str, **attributes: str) -> Element:
    """Return an HTML element with children and attributes.

    A trailing underscore of an attribute's name is dropped, and other underscores become hyphens.
    """
    named = {name.rstrip("_").replace("_", "-"): legal(value) for name, value in attributes.items()}
    result = ElementTree.Element(tag, named)
    last: Element | None = None
    for child in children:
        if not isinstance(child, str):
            result.append(child)
            last = child
        elif last is None:
            result.text = (result.text or "") + legal(child)
        else:
            last.tail = (last.tail or "") + legal(child)
    return result


def resource(name: str) -> str:
    """Return the text of a file that lies in the folder of this package."""
    return resources.files("dynamics.report").joinpath(name).read_text(encoding="utf-8")


def table(caption: str, rows: Sequence[Mapping[str, object]], note: str = "") -> list[Element]:
    """Return a table, with its titles as headers of the columns and its first column as headers of the rows."""
    columns = {title: [row[title] for row in rows] for title in (rows[0] if rows else ())}
    texts = {title: list(map(cell_text, values)) for title, values in columns.items()}
    kinds = {title: _kind(values) for title, values in columns.items()}
    head = element("tr", *(element("th", title, scope="col", **kind) for title, kind in kinds.items()))
    body = []
    for first, *cell_texts in zip(*texts.values(), strict=True):
        cells = (element("td", text, **kind) for text, kind in zip(cell_texts, [*kinds.values()][1:], strict=True))
        body.append(element("tr", element("th", first, scope="row"), *cells))
    words = (re.split(r"\s", " ".join([title, *column])) for title, column in texts.items())
    # Each column has a margin of 3 characters; a line of a telephone has 42.
    width = sum(min(max(map(len, lengths)), LONG) + 3 for lengths in words)
    rendered = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    return [scrolling(rendered, caption, wide=width > 42), *([element("p", note, class_="note")] if note else [])]


def figure(drawn: Figure, caption: str, alt: str) -> Element:
    """Return a figure, as a vector graphic if that is small, else as pixels."""
    width, height = drawn.get_size_inches()
    size = {"width": f"{96.0 * width:.0f}", "height": f"{96.0 * height:.0f}"}
    # A wide figure shrinks less on a small screen than others.
    kind = {"class_": "wide"} if width > 9.0 else {}
    buffer, form = io.BytesIO(), "svg+xml"
    drawn.savefig(buffer, format="svg", metadata={"Date": None})  # the same figure gives the same bytes
    if buffer.tell() > LARGEST_VECTOR:
        buffer, form = io.BytesIO(), "png"
        drawn.savefig(buffer, format="png", dpi=160)
    source = f"data:image/{form};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
    image = element("img", src=source, alt=alt, **size, **kind)
    return element("figure", scrolling(image, caption, wide=True), element("figcaption", caption))


def scrolling(content: Element, name: str, *, wide: bool) -> Element:
    """Return a frame that scrolls on a narrow screen, by the keyboard too; a `wide` one is marked as such there."""
    kind = f"scroll{' wide' if wide else ''}"
    return element("div", content, class_=kind, tabindex="0", role="region", aria_label=name)


def verdict_elements(verdict: str, cautions: Sequence[str]) -> list[Element]:
    """Return the verdict and the list of cautions."""
    listed = [element("ul", *(element("li", text) for text in cautions))] if cautions else []
    return [element("p", element("strong", verdict)), *listed]


def cell_text(value: object, digits: int = 5, unknown: str = "–") -> str:
    """Return a value as it is shown: a dash if there is none, "never" for a time that is infinite."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Rounded):
        return value.text
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return unknown
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "never" if math.isinf(value) else f"{value:.{digits}g}"
    if isinstance(value, (list, tuple)):
        entries = [cell_text(entry, digits, unknown) for entry in value[:MOST_ENTRIES]]
        num_more = len(value) - len(entries)
        return ", ".join(entries) + (f", … ({num_more} more)" if num_more else "") or unknown
    text = str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(text)} characters)"


def _kind(values: Sequence[object]) -> dict[str, str]:
    """Return the class of cells with these values: numbers stand below each other, long text needs room."""
    entries = [value for value in values if value is not None and not isinstance(value, bool)]
    if entries and all(isinstance(value, (int, float, np.number)) for value in entries):
        return {"class_": "number"}
    return {"class_": "long"} if any(isinstance(value, str) and len(value) > LONG for value in entries) else {}


class ChartCurve(NamedTuple):
    """A curve over positive times, its facts by name, and the time at which it was predicted to rise."""

    values: Array
    facts: Mapping[str, object]
    predicted: float = float("nan")


class Chart(NamedTuple):
    """Curves over the same positive times, drawn over their logarithm."""

    title: str
    x: str
    y: str
    time: Array
    limits: tuple[float, float]
    curves: Sequence[ChartCurve]


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


def sign_matters(dataset: xr.Dataset) -> bool:
    """Return whether negative overlaps do not count as emerged.

    They do not for an odd information exponent k, except for a network with its own second layer.
    """
    if "second_layer" in dataset:
        return False
    require(
        "information_exponent" in dataset.attrs,
        "Argument `dataset` must have the attribute `information_exponent`, as an answer has, but has none.",
    )
    return bool(dataset.attrs["information_exponent"] % 2)


def counted_squares(dataset: xr.Dataset, overlap: Array) -> Array:
    """Return squared overlaps as emergence counts them: 0 for negative overlaps where signs matter."""
    return np.asarray((np.maximum(overlap, 0.0) if sign_matters(dataset) else overlap) ** 2)


def squared_overlap(dataset: xr.Dataset) -> Array:
    """Return the largest squared overlap of a neuron per time and direction, (times, P), as emergence counts it."""
    history = next((name for name in OVERLAPS.variables if name in dataset), "")
    require(history, "Argument `dataset` must hold an overlap history, but has none.")
    overlap = dataset[history].values.astype(np.float64)
    return counted_squares(dataset, overlap).max(axis=1) if history == "teacher_overlap" else np.square(overlap)


def ends_of_runs(dataset: xr.Dataset) -> tuple[Array, Array] | None:
    """Return the ends of 95 % of runs of what `squared_overlap` returns, (times, P); None of answers without bands.

    They are squares of the overlap of the neuron that has most of a direction, less and more 1.96 deviations.
    """
    if "overlap_sd" in dataset:
        best = counted_squares(dataset, dataset["teacher_overlap"].values).argmax(axis=1)[:, None]
        sizes, deviations = (
            np.take_along_axis(dataset[name].values, best, axis=1)[:, 0] for name in ("teacher_overlap", "overlap_sd")
        )
    elif "max_overlap_sd" in dataset:
        sizes, deviations = dataset["max_overlap"].values, dataset["max_overlap_sd"].values
    else:
        return None
    low, high = np.abs(sizes) - RUNS * deviations, np.abs(sizes) + RUNS * deviations
    return np.maximum(low, 0.0) ** 2, np.minimum(high, 1.0) ** 2


def component_ratio(dataset: xr.Dataset) -> Array:
    """Return the components of the network over those of the teacher, dimensionless, shape (…, time, component)."""
    return np.asarray(dataset["component"].values / dataset["teacher_component"].values)


OVERLAPS = History(
    "Largest squared overlap of a neuron with each direction",
    "squared_overlap",
    ("overlap", "max_overlap", "teacher_overlap"),
    squared_overlap,
)
AXES = OVERLAPS._replace(title="Largest squared overlap of a neuron with each axis of the teacher")
COMPONENTS = History(
    "Components of the network over those of the teacher", "component_share", ("component",), component_ratio
)
ALIGNMENTS = History(
    "Alignment of the span of the neurons with each direction",
    "alignment",
    ("alignment",),
    lambda dataset: dataset["alignment"].values,
)
MASSES = History(
    "Weight that the neurons carry of each direction",
    "mass_share",
    ("learned_mass",),
    lambda dataset: dataset["learned_mass"].values / dataset["teacher_coefficient"].values,
)
PROGRESS = History(
    "Progress of each component", "progress", ("progress",), lambda dataset: dataset["progress"].values, "step_time"
)


def history_chart(
    dataset: xr.Dataset, facts: Sequence[Mapping[str, Any]], history: History = OVERLAPS, marked: str = PREDICTED_TIME
) -> Callable[[], Chart] | None:
    """Return the function that makes the chart of a history; None where a dataset has none.

    `facts` are those of each curve by name; the time under the name `marked` is marked below the curve.
    """
    variables = [name for name in history.variables if name in dataset and "undefined" not in dataset[name].attrs]
    later = dataset["time"].values > 0 if variables else np.zeros(0, dtype=bool)

    def chart() -> Chart:
        """Return the chart of at most `MOST_CURVES` curves."""
        chosen = spread_rows(len(facts), MOST_CURVES)
        values = history.values(dataset)[later][:, chosen]
        curves = [
            ChartCurve(values[:, at], facts[p], float(facts[p].get(marked) or "nan")) for at, p in enumerate(chosen)
        ]
        finite = values[np.isfinite(values)]
        low, high = float(finite.min(initial=0.0)), float(finite.max(initial=1.0))
        limits = low - ROOM * (high - low), high + ROOM * (high - low)
        x, y = (axis_label(name, plain=True) for name in (history.x, history.y))
        return Chart(history.title, x, y, dataset["time"].values[later], limits, curves)

    return chart if later.sum() > 1 else None


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
    # The points that are seen, broken at unknown values.
    low, high = chart.limits
    across = UNITS * (1.0 - (curve.values - low) / (high - low))
    text, last = "", (np.inf, np.inf)
    for x, y, ahead in zip(_places(chart, chart.time), across, np.append(across[1:], np.nan), strict=True):
        if not np.isfinite(y):
            last = (np.inf, np.inf)
        elif abs(x - last[0]) >= STEPS[0] or abs(y - last[1]) >= STEPS[1] or not abs(ahead - y) < STEPS[1]:
            text += f"{'L' if np.isfinite(last[0]) else 'M'}{x:.1f} {y:.1f}"
            last = (x, y)
    path = element("path", class_="curve", d=text, data_facts=facts)
    return element("g", path, element("path", class_="tick", d=mark), style=f"--light: {light}; --dark: {dark}")


def _places(chart: Chart, time: Array) -> Array:
    """Return the places of times along x, in units of a path."""
    first, last = np.log(chart.time[[0, -1]])
    return np.asarray(UNITS * (np.log(time) - first) / max(last - first, 1e-300))
