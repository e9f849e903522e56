"""The one look of all figures: colours, styles for screen, paper and talk, formulas and numbers as they are typeset."""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import numpy as np

from dynamics.problem.checks import check_choice
from hermite.text.messages import with_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from hermite.arrays import Array

#: Told apart by readers of every kind of colour vision (Okabe and Ito); what is compared has shapes of its own, too.
MEASURED, PREDICTED, IDEAL, REFERENCE = "#0072b2", "#d55e00", "#009e73", "#6f7780"
#: One after the other, for what has no order and no part of its own.
COLOURS = (MEASURED, PREDICTED, IDEAL, "#cc79a7", "#e69f00", "#56b4e9")
#: Of error bars and bands, in standard errors.
BAND = 2.0
#: A figure wider than this many inches on a screen takes the width of the page, else that of a column.
ONE_COLUMN = 8.0


class Style(NamedTuple):
    """Sizes for one place."""

    #: Inches of a figure of one column and of one across the page; None: as on the screen.
    widths: tuple[float, float] | None
    #: Factor of the widths of lines and the sizes of markers.
    stroke: float
    #: Settings of matplotlib beside `COMMON`.
    settings: Mapping[str, Any]

    def size(self, on_screen: tuple[float, float]) -> tuple[float, float]:
        """Return the inches of a figure; where it shrinks, letters shrink less, so that it stays higher."""
        if self.widths is None:
            return on_screen
        width = self.widths[on_screen[0] > ONE_COLUMN]
        return width, on_screen[1] * (width / on_screen[0]) ** 0.7


#: Fonts are embedded as outlines that editors and printers take: Type 42 in PDF, paths in SVG.
COMMON = MappingProxyType(
    {
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
        "svg.fonttype": "path",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": f"cycler('color', {COLOURS})",
        "axes.unicode_minus": True,
        "mathtext.fontset": "dejavusans",
    }
)
STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "screen": Style(None, 1.0, {}),
        # Columns of the usual two-column journal.
        "paper": Style((3.4, 7.0), 0.6, {"font.size": 7.5, "axes.linewidth": 0.6, "savefig.dpi": 300}),
        # Half of a slide: letters and lines double where it fills one.
        "talk": Style((5.2, 8.6), 1.0, {"font.size": 11.0, "axes.linewidth": 1.0, "savefig.dpi": 250}),
    }
)
_CURRENT = ContextVar("style", default="screen")


@contextmanager
def figure_style(style: str | None = "screen") -> Iterator[None]:
    """Draw figures in a style within a `with` block.

    Parameters
    ----------
    style : {"screen", "paper", "talk"} or None
        "paper" has the widths of one column (3.4 in) and of a page (7 in) with letters of 7.5 points; "talk" has half
        the size of a slide, with letters of 11 points. None leaves the style that holds around the block.

    Raises
    ------
    ValueError
        If there is no such style.

    Notes
    -----
    Fonts are embedded in PDF as Type 42, and drawn as paths in SVG. Figures that are made in the block keep its style
    when they are written after it.
    """
    from matplotlib import rc_context

    name = current_style() if style is None else style
    check_choice("style", name, tuple(STYLES))
    before = _CURRENT.set(name)
    settings: Any = {**COMMON, **STYLES[name].settings}
    try:
        with rc_context(settings):
            yield
    finally:
        _CURRENT.reset(before)


def current_style() -> str:
    """Return the name of the style that holds here."""
    return _CURRENT.get()


def new_figure(size: tuple[float, float], layout: Any = "constrained", *, shown: bool = False) -> Figure:
    """Return a new figure of some inches on a screen, in the style that holds; pyplot knows it if it is `shown`."""
    inches = STYLES[current_style()].size(size)
    if not shown:
        return _figure_class()(figsize=inches, layout=layout)
    from matplotlib import pyplot

    return pyplot.figure(FigureClass=_figure_class(), figsize=inches, layout=layout)


@cache
def _figure_class() -> type[Figure]:
    """Return the class of figures that are written in the style in which they were made."""
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

    class StyledFigure(Figure):
        """A figure that keeps its style."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.style, self.drawn = current_style(), WeakSet[Artist]()

        def savefig(self, *arguments: Any, **options: Any) -> None:
            """Write the figure, with its style's fonts and resolution; see `Figure.savefig`."""
            with figure_style(self.style):
                super().savefig(*arguments, **options)

        def draw(self, renderer: Any) -> None:
            """Draw the figure, lines and markers in the sizes of its style; see `Figure.draw`."""
            for line in self._new_lines() if STYLES[self.style].stroke != 1.0 else ():
                line.set_linewidth(STYLES[self.style].stroke * line.get_linewidth())
                line.set_markersize(STYLES[self.style].stroke * line.get_markersize())
                line.set_markeredgewidth(STYLES[self.style].stroke * line.get_markeredgewidth())
                self.drawn.add(line)
            super().draw(renderer)

        def _new_lines(self) -> list[Line2D]:
            """Return the lines of panels and of their legends that were not there when the figure was last drawn."""
            legends = filter(None, (ax.get_legend() for ax in self.axes))
            owners = [*(ax.get_lines() for ax in self.axes), *(legend.get_lines() for legend in legends)]
            return [line for lines in owners for line in lines if line not in self.drawn]

    return StyledFigure


def shades(count: int, last: float = 0.92, *, first: float = 0.0) -> Array:
    """Return so many colours, from dark to bright, for curves that have an order; the ends are places in the map."""
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(first, last, count))


def power(base: str, exponent: float, error: float = np.nan) -> str:
    """Return a power as a typeset formula, its exponent rounded by its standard error where that is known."""
    return rf"${base}^{{{_typeset(exponent, error)}}}$"


def formula(value: float, error: float = np.nan) -> str:
    """Return a number as it is typeset, rounded by its standard error where that is known."""
    return f"${_typeset(value, error)}$"


def _typeset(value: float, error: float) -> str:
    """Return a number with its error as mathtext, 2.0e-7 as a multiple of a power of ten."""
    text = re.sub(r"e([+-])0*(\d+)", lambda m: rf"\cdot 10^{{{m[1].strip('+')}{m[2]}}}", with_error(value, error))
    return re.sub(r"^(-?)1\\cdot ", r"\1", text).replace("±", r"\pm")


def component_formula(name: str) -> str:
    """Return the name of a component of a polynomial, "x1*x2" or "h2(x1)", as a typeset formula."""
    return "$" + re.sub(r"([a-z])(\d+)", r"\1_{\2}", name).replace("*", r"\,") + "$"


def plain_text(text: str) -> str:
    """Return text that stands beside formulas as it is, whatever signs it holds."""
    return text.replace("$", r"\$")
