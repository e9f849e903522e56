"""Readers of arguments: text to a checked value, or a ValueError with the end of a sentence, "must …, but is …"."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from hermite.text.messages import cut, shown, suggestion

#: Characters of a file of numbers; coefficients of a million directions have a fifth.
MOST_CHARACTERS = 10**8
#: How saved times are spaced.
SPACINGS = ("geometric", "linear")


def plain(text: str) -> str:
    """Read text as it is."""
    return text


def switch(_: str) -> bool:
    """Read an option that takes no value: it is on where it is given."""
    return True


def real(text: str) -> float:
    """Read a finite number."""
    try:
        value = float(text)
    except ValueError:
        msg = f"must be a number, but is {shown(text)}"
        raise ValueError(msg) from None
    require(math.isfinite(value), f"must be finite, but is {cut(text)}")
    return value


def positive(text: str) -> float:
    """Read a number above 0."""
    value = real(text)
    require(value > 0, f"must be positive, but is {cut(text)}")
    return value


def non_negative(text: str) -> float:
    """Read a number of at least 0."""
    value = real(text)
    require(value >= 0, f"must be at least 0, but is {cut(text)}")
    return value


def fraction(text: str) -> float:
    """Read a number above 0 and below 1."""
    value = real(text)
    require(0 < value < 1, f"must be above 0 and below 1, but is {cut(text)}")
    return value


def tolerance(text: str) -> float:
    """Read a number between 1e-14 and 1, which float64 can honour."""
    value = real(text)
    require(1e-14 <= value < 1, f"must be at least 1e-14 and below 1, but is {cut(text)}")
    return value


def integer(text: str) -> int:
    """Read an integer; 1e6 is one too."""
    try:
        return int(text)
    except ValueError:
        value = real(text)
    require(value == int(value), f"must be an integer, but is {shown(text)}")
    return int(value)


def positive_integer(text: str) -> int:
    """Read an integer of at least 1."""
    value = integer(text)
    require(value >= 1, f"must be at least 1, but is {shown(value)}")
    return value


def natural_number(text: str) -> int:
    """Read an integer of at least 0."""
    value = integer(text)
    require(value >= 0, f"must be at least 0, but is {shown(value)}")
    return value


def integers(text: str) -> tuple[int, ...]:
    """Read integers separated by commas."""
    return tuple(integer(part) for part in text.split(","))


def numbers(text: str) -> tuple[float, ...]:
    """Read numbers separated by commas, or @FILE, numbers separated by commas or lines."""
    if not text.startswith("@"):
        require(not _is_file(text), f"must be numbers, or @ before the name of a file, but is {shown(text)}")
        return tuple(real(part) for part in text.split(","))
    try:
        with Path(text[1:]).open(encoding="utf-8") as file:
            content = file.read(MOST_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        msg = f"must name a file of numbers that can be read, but is {shown(text)}: {reason}"
        raise ValueError(msg) from None
    require(
        len(content) <= MOST_CHARACTERS,
        f"must name a file of at most {MOST_CHARACTERS} characters, but is {shown(text)}",
    )
    parts = [part for part in re.split(r"[,;\s]+", content) if part]
    require(bool(parts), f"must name a file with numbers, but {shown(text)} holds none")
    try:
        return tuple(real(part) for part in parts)
    except ValueError as error:
        msg = f"must name a file of numbers alone, such as a column without its name, but in {shown(text)} one {error}"
        raise ValueError(msg) from None


def _is_file(text: str) -> bool:
    """Return whether a text that is no number names a file."""
    try:
        return not text.replace(".", "").isdigit() and Path(text).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def word_or_numbers(*words: str) -> Callable[[str], str | float | tuple[float, ...]]:
    """Return a reader of one of some words, of a number, or of numbers separated by commas."""

    def read(text: str) -> str | float | tuple[float, ...]:
        if text in words:
            return text
        try:
            found = numbers(text)
        except ValueError:
            if words and "," not in text and not text.startswith("@"):
                refuse_word(f"must be {', '.join(words)} or numbers, but is {shown(text)}", text, words)
            raise
        return found[0] if len(found) == 1 and not text.startswith("@") else found

    return read


def save_schedule(text: str) -> tuple[str, int]:
    """Read `geometric:200`, `linear:50`, or a bare count, which means geometric."""
    kind, _, count = text.rpartition(":")
    kind = kind or ("geometric" if count.isdigit() else count)
    if kind not in SPACINGS:
        refuse_word(f"must be geometric:COUNT or linear:COUNT, but is {shown(text)}", kind, SPACINGS)
    number = integer(count)
    require(number >= 2, f"must ask for at least 2 times, but asks for {number}")
    return kind, number


def refuse_word(need: str, word: str, words: Iterable[str]) -> NoReturn:
    """Raise ValueError with a need that a word does not meet, and with the word that was meant if it was misspelt."""
    hint = suggestion(word, words)
    raise ValueError(f"{need}.{hint}" if hint else need)


def require(holds: bool, need: str) -> None:
    """Raise ValueError with a need that does not hold."""
    if not holds:
        raise ValueError(need)
