"""Values in sentences: arguments in one line, cut if long, and numbers rounded by their errors."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import NoReturn

#: Characters of a value that a message repeats.
MOST_CHARACTERS = 200
#: Packages whose lines no warning names; the last two have decorators and contexts between lines of the others.
PASSED_OVER = ("hermite", "dynamics", "sgd_check", "numpy", "contextlib")


def require(condition: object, sentence: str, error: type[Exception] = ValueError) -> None:
    """Raise an error with a sentence unless a condition holds."""
    if not condition:
        raise error(sentence)


def refuse(sentence: str, error: type[BaseException] = ValueError, *, cause: BaseException | None = None) -> NoReturn:
    """Raise an error with a sentence; its traceback shows `cause`, and no other error that is being handled."""
    raise error(sentence) from cause


def warn(sentence: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of this project that called it."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PASSED_OVER:
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, category, stacklevel=level)


def shown(value: object) -> str:
    """Return the representation of a value in one line, cut if it is long.

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

    A choice is near if `difflib` finds it so, or if the word, of at least 3 characters, is a part of it; `mark` stands
    around it.

    >>> suggestion("tahn", ["tanh", "relu"]), suggestion("corr", ["overlaps", "correlation"], mark="`")
    (" Did you mean 'tanh'?", ' Did you mean `correlation`?')
    """
    import difflib

    if not isinstance(word, str):
        return ""
    by_lower_case, typed = {choice.lower(): choice for choice in choices}, word.lower()
    near = difflib.get_close_matches(typed, by_lower_case, n=1, cutoff=0.65)
    near += [choice for choice in by_lower_case if typed in choice and len(typed) >= 3]
    return f" Did you mean {mark}{by_lower_case[near[0]]}{mark}?" if near else ""


def not_a_choice(name: str, value: object, choices: Iterable[str], *, quoted: bool = True) -> str:
    """Return the message that a value is none of the choices; it suggests the nearest choice to a misspelt one.

    >>> not_a_choice("Argument `keep`", "ful", ["full", "summary"])
    "Argument `keep` must be one of 'full', 'summary', but is 'ful'. Did you mean 'full'?"
    """
    names = list(choices)
    menu = ", ".join(map(repr, names) if quoted else names)
    return f"{name} must be one of {menu}, but is {shown(value)}.{suggestion(value, names)}"


def renamed(sentence: str, names: Mapping[str, str]) -> str:
    """Return a message about arguments of functions with the names under which the user gave them.

    Words that begin with two dashes are options.

    >>> renamed("Argument `width` must be at most `count`, but is 9.", {"width": "--width", "count": "--directions"})
    'Option --width must be at most --directions, but is 9.'
    >>> renamed("Argument `x` must be a formula.", {"x": "LINK"})
    'Argument LINK must be a formula.'
    """
    text = re.sub(r"`(\w+)`", lambda match: names.get(match[1], match[0]), sentence)
    return re.sub(r"\bArgument(s?) --", r"Option\1 --", text)


def rounded(value: float, error: float) -> tuple[str, str]:
    """Return a value and its standard error as text, with the decimals that the error leaves.

    Two digits of an error are kept from 10 to 35, one elsewhere, as the Particle Data Group does; a value whose error
    is unknown keeps three significant digits.
    """
    if not (math.isfinite(value) and math.isfinite(error) and error > 0.0):
        return f"{value:.3g}".replace("nan", "-"), f"{error:.2g}".replace("nan", "-")
    lead = math.floor(math.log10(error))
    largest = math.floor(math.log10(max(abs(value), error)))
    power = 0 if -4 <= largest <= 5 else largest
    places = power - lead + (error < 3.55 * 10.0**lead)
    exponent = f"e{power:+03d}" if power else ""
    mantissas = (round(number * 10.0**-power, places) for number in (value, error))
    value_text, error_text = (f"{mantissa:.{max(places, 0)}f}{exponent}" for mantissa in mantissas)
    return value_text, error_text


def with_error(value: float, error: float = math.nan) -> str:
    """Return "value ± error", both rounded by the error: 1.0262, 0.039245 -> "1.03 ± 0.04"; see `rounded`."""
    value_text, error_text = rounded(value, error)
    if not (math.isfinite(value) and math.isfinite(error) and error > 0.0):
        return value_text
    mantissa, letter, power = value_text.partition("e")
    return f"({mantissa} ± {error_text.partition('e')[0]})e{power}" if letter else f"{value_text} ± {error_text}"
