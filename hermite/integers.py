"""Integers as arguments: Python's, numpy's, and floats without a fraction such as 1e6."""

from __future__ import annotations

import operator

import numpy as np

from hermite.arrays import as_scalar


def as_integer(value: object) -> int | None:
    """Return an integer, or a float without a fraction, as an int; None for anything else, True and False included.

    Examples
    --------
    >>> as_integer(1e6), as_integer(2.5), as_integer(True)
    (1000000, None, None)
    """
    value = as_scalar(value)
    # A tensor with one entry would pass for its entry.
    if isinstance(value, bool | np.bool_) or getattr(value, "ndim", False):
        return None
    if isinstance(value, float | np.floating):
        return int(value) if float(value).is_integer() else None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
