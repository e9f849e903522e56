"""The interactive figure of a page: curves over log time of which each says what it is, with a script of its own.

Curves are paths of an SVG within the page; `chart.js` draws the axes, finds the curve under the pointer and zooms. What
a curve says is an attribute, escaped like all text of a page, and shown as text alone. Without scripts nothing of it is
seen: the same figure stands on the page as a picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.page import cell_text, element

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from xml.etree.ElementTree import Element

    from hermite.arrays import Array

#: Units of a path along each side of the plot, and the steps below which its points are left out.
UNITS, STEPS = 1000.0, (4.0, 2.0)
#: Inner size of the figure and the margins for its axes: left, top, right, below.
SIZE, MARGINS = (760, 420), (56, 14, 14, 44)
HINT = (
    "Point at a curve, or choose one by the arrow keys, to read its numbers. Drag over a part, or use the buttons or "
    "+ and −, to zoom; double click or Escape shows all again."
)
BUTTONS = {"in": "Zoom in", "out": "Zoom out", "all": "Show all", "next": "Next curve"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A curve over positive times, what it is in names and values, and the time at which it was predicted to rise."""

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


def chart_element(chart: Chart) -> Element:
    """Return the chart, hidden until its script runs."""
    left, top, right, below = MARGINS
    size = SIZE[0] - left - right, SIZE[1] - top - below
    place = {"x": left, "y": top, "width": size[0], "height": size[1]}
    named = {name: f"{value:g}" for name, value in place.items()}
    plot = element(
        "svg",
        element("rect", width=f"{UNITS:g}", height=f"{UNITS:g}", class_="paper"),
        *(_curve(chart, at) for at in range(len(chart.curves))),
        element("rect", class_="chosen-part", visibility="hidden"),
        class_="plot",
        viewBox=f"0 0 {UNITS:g} {UNITS:g}",
        preserveAspectRatio="none",
        **named,
    )
    axes = element("g", class_="axes")
    names = (
        element("text", chart.x, x=f"{left + size[0] / 2:g}", y=f"{SIZE[1] - 6}", text_anchor="middle"),
        element("text", chart.y, transform=f"translate(14 {top + size[1] / 2:g}) rotate(-90)", text_anchor="middle"),
    )
    view = f"0 0 {SIZE[0]} {SIZE[1]}"
    picture = element("svg", plot, axes, *names, viewBox=view, role="img", aria_label=f"{chart.title}. {HINT}")
    buttons = (element("button", word, type="button", data_does=name) for name, word in BUTTONS.items())
    ends = [float(np.log10(chart.time[0])), float(np.log10(chart.time[-1])), *chart.limits]
    return element(
        "div",
        element("p", HINT, class_="note"),
        element("div", picture, class_="scroll wide", tabindex="0", role="region", aria_label=chart.title),
        element("p", "No curve is chosen.", class_="said", aria_live="polite"),
        element("p", *buttons, class_="buttons"),
        class_="chart",
        data_limits=" ".join(f"{end:.10g}" for end in ends),
        hidden="hidden",
    )


def chart_script() -> str:
    """Return the script of all charts."""
    return resources.files("dynamics.report").joinpath("chart.js").read_text(encoding="utf-8")


def _curve(chart: Chart, at: int) -> Element:
    """Return a curve with its colours on light and on dark paper, and a tick at its predicted time."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    curve, share = chart.curves[at], at / max(len(chart.curves) - 1, 1)
    light, dark = (to_hex(colormaps["viridis"](low + (high - low) * share)) for low, high in ((0.0, 0.8), (0.45, 1.0)))
    facts = "; ".join(f"{name} {cell_text(value)}" for name, value in curve.facts.items())
    path = element("path", class_="curve", d=_path(chart, curve.values), data_facts=facts)
    tick = element("path", class_="tick", d=_tick(chart, curve.predicted))
    return element("g", path, tick, style=f"--light: {light}; --dark: {dark}")


def _places(chart: Chart, time: Array) -> Array:
    """Return where times are along x, in units of a path."""
    ends = np.log([chart.time[0], chart.time[-1]])
    places: Array = UNITS * (np.log(time) - ends[0]) / max(ends[1] - ends[0], 1e-300)
    return places


def _path(chart: Chart, values: Array) -> str:
    """Return a curve as an SVG path of the points that are seen, broken where nothing is known."""
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


def _tick(chart: Chart, time: float) -> str:
    """Return the mark of a predicted time below the curves, "" where it is not within the figure."""
    if not chart.time[0] <= time <= chart.time[-1]:
        return ""
    return f"M{_places(chart, np.array([time]))[0]:.1f} {UNITS:g}V{0.965 * UNITS:g}"
