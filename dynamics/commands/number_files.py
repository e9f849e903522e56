"""Files of numbers that options name: text with one row or one column, or an array of numpy.

What could be read in two ways, or would lose something, is refused. Readers raise ValueError with the end of a
sentence, "must …, but …". Nothing heavy is imported but for arrays of numpy.
"""

from __future__ import annotations

import math
from io import BytesIO
from itertools import pairwise
from pathlib import Path

from hermite.text.messages import refuse, require, shown

#: Bytes of a file of numbers; coefficients of a million directions have a fifth.
MOST_BYTES = 10**8
#: The first bytes of an array of numpy, and of text in two bytes a letter.
NUMPY, WIDE = b"\x93NUMPY", (b"\xff\xfe", b"\xfe\xff")
#: What begins a comment, and lines that are one.
COMMENT, COMMENT_LINES = "#", ("%", "//")
QUOTES = "\"'"


def read_numbers(name: str) -> tuple[float, ...]:
    """Return the numbers of a file, whose name stands behind an @.

    Text has one row or one column, separated by semicolons, tabs, commas or spaces, or a list that goes on from line to
    line; a line of names may stand above it, and comments from # on anywhere. Decimals have a point or, where no comma
    separates, a comma.
    """
    content = _read(name)
    found = _of_numpy(content, name) if content.startswith(NUMPY) else _of_text(_decoded(content, name), name)
    require(found, f"must name a file with numbers, but {shown(name)} holds none")
    return tuple(found)


def _read(name: str) -> bytes:
    try:
        with Path(name[1:]).expanduser().open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as error:  # no home, or a name that no file can have
        reason = getattr(error, "strerror", None) or "it is no name of a file"
        refuse(f"must name a file of numbers that can be read, but is {shown(name)}: {reason}")
    require(len(content) <= MOST_BYTES, f"must name a file of at most {MOST_BYTES} bytes, but is {shown(name)}")
    return content


def _of_numpy(content: bytes, name: str) -> list[float]:
    import numpy as np
    from numpy.lib.format import read_array

    from hermite.arrays import real_array

    try:
        values = real_array(read_array(BytesIO(content)), "x")  # objects would be unpickled, and are refused
    except (EOFError, MemoryError, OSError, TypeError, ValueError):
        refuse(f"must name an array of real numbers, but {shown(name)} is another file of numpy")
    need = f"must name an array with one row or column, but that of {shown(name)} has shape {values.shape}"
    require(values.size == max((1, *values.shape)), need)
    require(np.isfinite(values).all(), f"must name an array of finite numbers, but {shown(name)} has others")
    return [float(value) for value in values.ravel()]


def _decoded(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-16" if content.startswith(WIDE) else "utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    msg = f"must name a file of numbers as text, or an array of numpy (.npy), but {shown(name)} is no text"
    require("\0" not in text, msg)
    return text


def _of_text(text: str, name: str) -> list[float]:
    lines = [
        (number, content)
        for number, line in enumerate(text.splitlines(), start=1)
        if (content := line.partition(COMMENT)[0].strip(" \r\n")) and not content.startswith(COMMENT_LINES)
    ]
    separator = next((each for each in ";\t," if any(each in line for _, line in lines)), None)
    rows = [(number, _fields(line, separator)) for number, line in lines]
    if len(rows) > 1 and not any(map(_is_number, rows[0][1])):
        rows = rows[1:]  # names of columns
    for number, fields in rows:
        for field in fields:
            need = f"must name a file of numbers alone, but line {number} of {shown(name)} has {shown(field)}"
            if separator == "," and len(field.split()) > 1:
                need = f"must name a file with commas or spaces between numbers, but {shown(name)} has both"
            require(field, f"must name a file without missing numbers, but line {number} of {shown(name)} lacks one")
            require(_is_number(field), need)
    widths = {len(fields) for _, fields in rows}
    if len(rows) > 1 and widths != {1}:
        decimals = ", or decimals with a comma" if widths == {2} and separator == "," and "." not in text else ""
        need = f"must name a file with one row or one column, but {shown(name)} has {len(rows)} rows of {{}}{decimals}"
        # A list that goes on from line to line has a last line that is shorter.
        is_list = all(len(one) == len(other) for (_, one), (_, other) in pairwise(rows[:-1]))
        is_list = is_list and len(rows[-1][1]) < len(rows[0][1])
        require(is_list, need.format("unlike length" if len(widths) > 1 else f"{widths.pop()} numbers"))
    return [_number(field) for _, fields in rows for field in fields]


def _fields(line: str, separator: str | None) -> list[str]:
    fields = [_unquoted(field.strip()) for field in line.split(separator)]
    return fields[:-1] if len(fields) > 1 and not fields[-1] and separator != "\t" else fields


def _unquoted(field: str) -> str:
    """Return a field without the quotes around it; one that a separator has cut, as in "1,234", keeps its quote."""
    is_quoted = len(field) > 1 and field[0] in QUOTES and field[0] == field[-1]
    return field[1:-1].strip() if is_quoted else field


def _number(field: str) -> float:
    """Return the number that a field is, with a decimal comma or point; NaN for any other text."""
    try:
        return float(field.replace(",", ".") if field.count(",") == 1 and "." not in field else field)
    except ValueError:
        return math.nan


def _is_number(field: str) -> bool:
    return math.isfinite(_number(field))
