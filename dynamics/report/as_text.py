"""Plain text of values: numbers rounded by their errors, and rows as a table in aligned columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


class Rounded(float):
    """A number that is shown as its error leaves it."""

    #: What is shown.
    text: str

    def __new__(cls, value: float, text: str) -> Rounded:
        """Return the number with its text."""
        made = super().__new__(cls, value)
        made.text = text
        return made


def table_lines(rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str], digits: int) -> list[str]:
    """Return a head and a line per row, with text at the left and numbers at the right of their columns.

    `titles` are the keys of the rows to show, each with the title of its column; `digits` are significant ones.
    """
    columns = []
    for name, title in titles.items():
        values = [row[name] for row in rows]
        cells = [title, *(number_text(value, digits) for value in values)]
        side = "<" if any(isinstance(value, str) for value in values) else ">"
        width = max(map(len, cells))
        columns.append([f"{cell:{side}{width}}" for cell in cells])
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def number_text(value: Any, digits: int = 5) -> str:
    """Return a value as text: "-" where it is unknown, "never" for a time that is infinite."""
    if isinstance(value, Rounded):
        return value.text
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        return "never" if math.isinf(value) else f"{value:.{digits}g}"
    return str(value)
