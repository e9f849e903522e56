"""How error messages show what was given: in one line, cut where it is long."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

#: Characters of a value that a message repeats.
MOST_CHARACTERS = 200
#: Characters of a word from which on it is taken for a part of another.
FEWEST_CHARACTERS = 3
#: Likeness, of at most 1, from which on another word is taken for the one that was meant.
NEAR = 0.65


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


def suggestion(word: object, choices: Iterable[str], mark: str = "'") -> str:
    """Return the end of an error sentence: " Did you mean …?" with the choice nearest to a word, or nothing.

    A choice is near if `difflib` finds it so, or if the word is a part of it; `mark` stands around it.

    Examples
    --------
    >>> suggestion("tahn", ["tanh", "relu"]), suggestion("corr", ["overlaps", "correlation"], mark="`")
    (" Did you mean 'tanh'?", ' Did you mean `correlation`?')
    """
    import difflib

    if not isinstance(word, str):
        return ""
    known, typed = {choice.lower(): choice for choice in choices}, word.lower()
    near = difflib.get_close_matches(typed, known, n=1, cutoff=NEAR)
    near += [choice for choice in known if typed in choice and len(typed) >= FEWEST_CHARACTERS]
    return f" Did you mean {mark}{known[near[0]]}{mark}?" if near else ""


def not_a_choice(name: str, value: object, choices: Iterable[str], *, quoted: bool = True) -> str:
    """Return the sentence that a value is none of the choices, with the one that was meant where it was misspelt.

    Examples
    --------
    >>> not_a_choice("Argument `keep`", "ful", ["full", "summary"])
    "Argument `keep` must be one of 'full', 'summary', but is 'ful'. Did you mean 'full'?"
    """
    known = list(choices)
    menu = ", ".join(map(repr, known) if quoted else known)
    return f"{name} must be one of {menu}, but is {shown(value)}.{suggestion(value, known)}"


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
