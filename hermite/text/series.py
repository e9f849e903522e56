"""Hermite series as text, such as "0.8 h4 + 0.6 h6" and "4/5*h4(z) + 3/5*h6(z)": printed, read back, and in notebooks.

A notebook shows a value as a caption over two columns, with every given text escaped.
"""

from __future__ import annotations

import re
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING

from hermite.text.formulas import MAX_LENGTH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermite.arrays import Array

#: Characters that HTML forbids: those of control, and halves of surrogate pairs.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_LEFT = "text-align:left;vertical-align:top"
#: Entries of a list that are shown.
_MOST_ENTRIES = 12
_TERM = re.compile(
    r"\s*(?P<sign>[+-]?)\s*(?:(?P<number>[0-9]+(?:/[0-9]+|(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?))\s*(?:\*\s*)?)?"
    # A capital names a classical polynomial, which is no term of the series; h4^2 and h4(2*z) are none either.
    r"(?:he?(?P<degree>[0-9]{1,9})(?:\([zxZX]\))?)?\s*(?=[+-]|$)"
)


def format_series(terms: Mapping[int, object], *, formal: bool = False, limit: int | None = None) -> str:
    """Return Σ c_j h_j as text, "0" without terms.

    Nonzero coefficients by degree print as their `str`. `formal` writes "0.8*h4(z)", which can be read back, instead of
    "0.8 h4"; `limit` is the number of terms before "…".

    Examples
    --------
    >>> format_series({0: 2.0, 4: 0.8, 6: -1.0})
    '2 + 0.8 h4 - h6'
    >>> format_series({0: 2.0, 4: 0.8}, formal=True)
    '2*h0(z) + 0.8*h4(z)'
    """
    pieces: list[str] = []
    for count, degree in enumerate(sorted(terms)):
        if count == limit:
            pieces.append(" + …")
            break
        number = str(terms[degree]).removesuffix(".0")
        compound = any(mark in number[1:] for mark in "+- ") and "e" not in number
        negative = number.startswith("-") and not compound
        number = f"({number})" if compound else number.removeprefix("-") if negative else number
        sign = (" - " if negative else " + ") if pieces else ("-" if negative else "")
        pieces.append(sign + _one(number, degree, formal=formal))
    return "".join(pieces) or "0"


def _one(number: str, degree: int, *, formal: bool) -> str:
    """Return one term without its sign."""
    if degree == 0 and not formal:
        return number
    symbol = f"h{degree}(z)" if formal else f"h{degree}"
    if number == "1":
        return symbol
    return f"{number}*{symbol}" if formal else f"{number} {symbol}"


def read_series(text: str) -> dict[int, Fraction] | None:
    """Return the exact coefficients by degree of a sum of numbers times h_k(z), or h_k as printed; None for other text.

    A short cut past the general parser: it needs no sympy and does not multiply polynomials out.

    Examples
    --------
    >>> read_series("0.8*h4(z) - h6(z)")
    {4: Fraction(4, 5), 6: Fraction(-1, 1)}
    >>> read_series("2 + 4/5 h4")
    {0: Fraction(2, 1), 4: Fraction(4, 5)}
    >>> read_series("tanh(z)") is None
    True
    """
    terms: dict[int, Fraction] = {}
    position = 0
    while position < len(text.rstrip()):
        match = _TERM.match(text, position)
        if match is None or match["number"] is match["degree"] is None or (position > 0 and not match["sign"]):
            return None
        try:
            number = Fraction(match["number"] or 1)
        except ZeroDivisionError:
            return None
        degree = int(match["degree"] or 0)
        terms[degree] = terms.get(degree, Fraction(0)) + (-number if match["sign"] == "-" else number)
        position = match.end()
    return terms if "h" in text else None


def latex_series(terms: dict[int, str], limit: int) -> str:
    r"""Return printed coefficients by degree as a series in LaTeX without dollar signs, cut after `limit` terms.

    Examples
    --------
    >>> latex_series({4: "0.8", 10: "1"}, limit=8)
    '0.8\\,h_{4} + h_{10}'
    """
    plain = format_series(terms, limit=limit).replace("…", r"\dots")
    powers = re.sub(r"e([+-])0*([0-9]+)", lambda m: rf"\cdot10^{{{m[1].strip('+')}{m[2]}}}", plain)
    spaced = re.sub(r"([0-9}]) h", r"\1\\,h", powers)
    return re.sub(r"h([0-9]+)", r"h_{\1}", spaced)


def series_as_text(coefficients: Array) -> str | None:
    """Return text that reads back to exactly these floats, or None where it would be too long.

    Examples
    --------
    >>> import numpy as np
    >>> series_as_text(np.array([0.0, 0.1]))
    '0.1*h1(z)'
    """
    terms = {j: repr(float(c)) for j, c in enumerate(coefficients) if c != 0.0}
    text = format_series(terms, formal=True)
    return text if terms and len(text) <= MAX_LENGTH else None


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
