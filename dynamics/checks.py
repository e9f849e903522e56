"""Checks of single arguments that every question shares: numbers and choices.

Knows numpy alone.
"""

from __future__ import annotations

import numpy as np

__all__ = ["check_choice", "checked_number"]


def checked_number(value: object, name: str, *, positive: bool) -> float:
    """Return `value` as a finite float, positive or at least 0."""
    need = "positive" if positive else "at least 0"
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        msg = f"Argument `{name}` must be a real number, but is {value!r}."
        raise TypeError(msg)
    if not np.isfinite(value) or value < 0 or (positive and value == 0):
        msg = f"Argument `{name}` must be finite and {need}, but is {value}."
        raise ValueError(msg)
    return float(value)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise one sentence with the menu unless `value` is on it."""
    if value not in choices:
        msg = f"Argument `{name}` must be one of {', '.join(map(repr, choices))}, but is {value!r}."
        raise ValueError(msg)
