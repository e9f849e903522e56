"""One HTML page that needs nothing beside it: text, tables and figures as elements, every character escaped.

It has no link that leaves it, no resource but data inside it, and no script but one of this program, if any: a policy
in its head enforces it, which names that script by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
from importlib import resources
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from dynamics.report.as_text import Rounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.figure import Figure

    Element = ElementTree.Element

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
#: Bytes of a vector graphic beyond which pixels are smaller.
LARGEST_VECTOR = 200_000
PIXELS_PER_INCH = 160
#: Inches beyond which a figure may shrink less on a small screen than others.
WIDE = 9.0
#: Characters of one text that a page shows, and entries of one list.
MOST_CHARACTERS, MOST_ENTRIES = 2000, 12
LONG = 40
#: Characters of a line on a telephone, and those that the margins of a column take.
NARROW, COLUMN_SPACE = 42, 3
#: What HTML forbids: control characters, halves of surrogate pairs, and code points that are no characters.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def element(tag: str, *children: Element | str, **attributes: str) -> Element:
    """Return an element; a trailing underscore of an attribute's name is dropped, others become hyphens."""
    named = {name.rstrip("_").replace("_", "-"): _clean(value) for name, value in attributes.items()}
    found = ElementTree.Element(tag, named)
    last: Element | None = None
    for child in children:
        if not isinstance(child, str):
            found.append(child)
            last = child
        elif last is None:
            found.text = (found.text or "") + _clean(child)
        else:
            last.tail = (last.tail or "") + _clean(child)
    return found


def page(title: str, header: Iterable[Element], sections: Sequence[Element], footer: str, script: str = "") -> str:
    """Return the document; `sections` are those of `section`, which a list of contents names; "" is no script."""
    style = resources.files("dynamics.report").joinpath("page.css").read_text(encoding="utf-8")
    links = (element("li", element("a", *one[0].itertext(), href=f"#{one.get('id')}")) for one in sections)
    document = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
            element("meta", name="color-scheme", content="light dark"),
            element("title", title),
            element("style", style),
        ),
        element(
            "body",
            element("header", *header, element("nav", element("ul", *links), aria_label="Contents")),
            element("main", *sections),
            element("footer", element("p", footer)),
            *([element("script", script)] if script else []),
        ),
        lang="en",
    )
    return "<!DOCTYPE html>\n" + ElementTree.tostring(document, encoding="unicode", method="html") + "\n"


def _policy(script: str) -> str:
    """Return what the page may do: run this script and no other, wherever it came from."""
    if not script:
        return POLICY
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return f"{POLICY}; script-src 'sha256-{digest}'"


def section(title: str, *children: Element, name: str) -> Element:
    """Return a section with a heading of the second level, which `#name` leads to."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *children, id=name, aria_labelledby=f"{name}-title")


def table(caption: str, rows: Sequence[Mapping[str, Any]], note: str = "") -> list[Element]:
    """Return a table, with its titles as headers of the columns and its first column as headers of the rows."""
    titles = list(rows[0]) if rows else []
    columns = {title: _kind([row[title] for row in rows]) for title in titles}
    head = element("tr", *(element("th", title, scope="col", **kind) for title, kind in columns.items()))
    body = [
        element(
            "tr",
            element("th", cell_text(row[titles[0]]), scope="row"),
            *(element("td", cell_text(row[title]), **columns[title]) for title in titles[1:]),
        )
        for row in rows
    ]
    found = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    return [_scrolling(found, caption, wide=_is_wide(rows)), *([element("p", note, class_="note")] if note else [])]


def figure(drawn: Figure, caption: str, alt: str) -> Element:
    """Return a figure, as a vector graphic where that is small and as pixels elsewhere."""
    width, height = (96.0 * float(inches) for inches in drawn.get_size_inches())
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}"}
    kind = {"class_": "wide"} if width > 96.0 * WIDE else {}
    image = element("img", src=_data(drawn), alt=alt, **size, **kind)
    return element("figure", _scrolling(image, caption, wide=True), element("figcaption", caption))


def cell_text(value: Any) -> str:
    """Return a value as a page shows it: a dash where there is none, "never" for a time that is infinite."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, (list, tuple)):
        entries = [cell_text(entry) for entry in value[:MOST_ENTRIES]]
        rest = len(value) - len(entries)
        return ", ".join(entries) + (f", … ({rest} more)" if rest else "") or "–"
    text = str(value)
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}… ({len(text)} characters)"


def _number(value: float) -> str:
    if isinstance(value, Rounded):
        return value.text
    return "–" if math.isnan(value) else "never" if math.isinf(value) else f"{value:.5g}"


def _scrolling(content: Element, name: str, *, wide: bool) -> Element:
    """Return a frame that scrolls where the screen is narrow, by the keyboard too; what is `wide` says so there."""
    kind = "scroll wide" if wide else "scroll"
    return element("div", content, class_=kind, tabindex="0", role="region", aria_label=name)


def _is_wide(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the columns of a table together are wider than the screen of a telephone."""
    columns = ([title, *(cell_text(row[title]) for row in rows)] for title in (rows[0] if rows else ()))
    longest = [min(max(max(map(len, re.split(r"\s", text)), default=0) for text in column), LONG) for column in columns]
    return sum(longest) + COLUMN_SPACE * len(longest) > NARROW


def _kind(values: Sequence[Any]) -> dict[str, str]:
    """Return the class of cells that hold these values: numbers stand below each other, long text needs room."""
    known = [value for value in values if value is not None and not isinstance(value, bool)]
    if known and all(isinstance(value, (int, float, np.number)) for value in known):
        return {"class_": "number"}
    return {"class_": "long"} if any(isinstance(value, str) and len(value) > LONG for value in known) else {}


def _data(drawn: Figure) -> str:
    """Return a figure as data in an address; the same figure gives the same bytes."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "report"}):
        found, kind = _rendered(drawn, "svg", metadata={"Date": None}), "svg+xml"
    if len(found) > LARGEST_VECTOR:
        found, kind = _rendered(drawn, "png", dpi=PIXELS_PER_INCH), "png"
    return f"data:image/{kind};base64,{base64.b64encode(found).decode('ascii')}"


def _rendered(drawn: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    drawn.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
