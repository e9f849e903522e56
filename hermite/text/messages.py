"""How error messages show what was given: in one line, cut where it is long."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Characters of a value that a message repeats.
MOST_CHARACTERS = 200


def shown(value: object) -> str:
    """Return the representation of a value in one line, cut where it is long.

    Examples
    --------
    >>> shown("four"), shown([1.0, 2.0])
    ("'four'", '[1.0, 2.0]')
    >>> shown(10**5000)
    'an int that is too long to show'
    """
    try:
        text = repr(value)
    except Exception:  # of integers beyond Python's limit of digits, and of objects that fail to show themselves
        kind = type(value).__name__
        return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} that is too long to show"
    return cut(" ".join(text.split()) if "\n" in text else text)


def cut(text: str) -> str:
    """Return the beginning of a text that is too long for a message."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def renamed(sentence: str, names: Mapping[str, str]) -> str:
    """Return a message about arguments of functions with the names under which the user gave them.

    What begins with two dashes is an option.

    Examples
    --------
    >>> renamed("Argument `width` must be at most `count`, but is 9.", {"width": "--width", "count": "--directions"})
    'Option --width must be at most --directions, but is 9.'
    >>> renamed("Argument `x` must be a formula.", {"x": "LINK"})
    'Argument LINK must be a formula.'
    """
    found = re.sub(r"`(\w+)`", lambda match: names.get(match[1], match[0]), sentence)
    return re.sub(r"\bArgument --", "Option --", found)
