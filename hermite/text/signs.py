"""Signs of printed mathematics, as a PDF gives them, such as − × · ÷ ², in the characters of a keyboard."""

from __future__ import annotations

import re
import unicodedata

_SIGNS = str.maketrans(
    dict.fromkeys("−–‐‑‒﹣－", "-")
    | dict.fromkeys("×·⋅∙∗⨯", "*")
    | dict.fromkeys("÷∕⁄", "/")
    | dict.fromkeys("\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
    | dict.fromkeys("\u00ad\u200b\u2060\u2061\u2062\ufeff", "")
    | {"＋": "+", "（": "(", "）": ")", "π": "pi", "√": "sqrt"}
)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾", "0123456789+-()")
_POWER = re.compile("[⁺⁻⁽]*[⁰¹²³⁴⁵⁶⁷⁸⁹]+⁾?")
_FRACTION = re.compile("[¼½¾⅐-⅞]")
_ROOT = re.compile(r"√\s*([0-9]+(?:\.[0-9]+)?|[A-Za-z]\w*(?![\w(]))")
_SCIENTIFIC = re.compile(r"\s*\*\s*10\^\(?([+-]?[0-9]{1,4})\)?\s*$")


def keyboard_text(text: str) -> str:
    """Return a formula or a number in characters of a keyboard; text in such characters is returned as it is.

    >>> keyboard_text("z² − 2×√3·z⁻¹"), keyboard_text("½·tanh(π z)")
    ('z^2 - 2*sqrt(3)*z^(-1)', '(1/2)*tanh(pi z)')
    """
    if text.isascii():
        return text
    text = _POWER.sub(lambda match: _exponent(match[0].translate(_RAISED)), text)
    text = _FRACTION.sub(lambda match: f"({unicodedata.normalize('NFKC', match[0])})", text)
    return _ROOT.sub(r"sqrt(\1)", text).translate(_SIGNS)


def _exponent(digits: str) -> str:
    return f"^{digits}" if digits.isdigit() else f"^({digits.strip('()')})"


def number_text(text: str) -> str:
    """Return a number as Python reads it, that of "−1.5×10⁻³" included.

    >>> number_text("−1.5×10⁻³"), number_text("0.5")
    ('-1.5e-3', '0.5')
    """
    return text if text.isascii() else _SCIENTIFIC.sub(r"e\1", keyboard_text(text))


def odd_character(text: str) -> str:
    """Return the end of a message that names the first character that no keyboard writes, "" if there is none."""
    sign = next((character for character in keyboard_text(text) if not character.isascii()), "")
    return (
        f"; its character {sign!r} ({unicodedata.name(sign, 'without a name')}) is none of a formula." if sign else ""
    )
