"""What a notebook shows of a value: a caption over two columns, every given text escaped."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from hermite.text.series_text import format_series

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Characters that HTML forbids: those of control, and halves of surrogate pairs.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_LEFT = "text-align:left;vertical-align:top"
#: Entries of a list that are shown.
_MOST_ENTRIES = 12


def clean(text: str) -> str:
    """Return text escaped for HTML."""
    return escape(_FORBIDDEN.sub("\ufffd", text))


def series_as_html(terms: Mapping[int, str], limit: int) -> str:
    """Return printed coefficients by degree as a series with subscripts, cut after `limit` terms.

    Examples
    --------
    >>> series_as_html({4: "-0.8", 10: "2e-07"}, limit=8)
    '−0.8 h<sub>4</sub> + 2·10<sup>−7</sup> h<sub>10</sub>'
    """
    plain = clean(format_series(terms, limit=limit))
    powers = re.sub(r"e\+?(-?)0*([0-9]+)", r"·10<sup>\1\2</sup>", plain)
    return re.sub(r"h([0-9]+)", r"h<sub>\1</sub>", powers).replace("-", "−")


def table_of_pairs(caption: str, rows: Mapping[str, str]) -> str:
    """Return a table with a row per name and value; caption and values are HTML already, and names are not.

    Examples
    --------
    >>> table_of_pairs("<b>Link</b>", {"a < b": "yes"}).count("a &lt; b")
    1
    """
    body = "".join(
        f'<tr><th scope="row" style="{_LEFT}">{clean(name)}</th><td style="{_LEFT}">{value}</td></tr>'
        for name, value in rows.items()
    )
    head = f'<caption style="{_LEFT}">{caption}</caption>'
    return f"<table>{head}<tbody>{body}</tbody></table>"


def first_of(entries: Sequence[object]) -> str:
    """Return the first entries of a list in a line, numbers with four digits; texts are HTML already.

    Examples
    --------
    >>> first_of([1.0, -0.5, None]), first_of(range(30))[-9:]
    ('1, −0.5, None', '10, 11, …')
    """
    few = entries[:_MOST_ENTRIES]
    shown = [f"{entry:.4g}".replace("-", "−") if isinstance(entry, float) else str(entry) for entry in few]
    return ", ".join([*shown, "…"] if len(entries) > len(few) else shown)
