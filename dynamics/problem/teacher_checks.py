"""Checks of a teacher's directions, links and biases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem.checks import checked_link, float_array, read_only
from hermite.text.messages import shown

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Sizes of coefficients for which rates and times, which hold powers of them, stay within float64.
SMALLEST_COEFFICIENT, LARGEST_COEFFICIENT = 1e-200, 1e30
#: How far from 1 the length of a direction may be, and that of one in single precision.
UNIT_LENGTH_TOLERANCE, SINGLE_TOLERANCE = 1e-9, 1e-6
ROUNDED_LENGTH = 1e-13


def check_coefficients(a: Array) -> None:
    """Refuse coefficients with which rates or times would leave float64."""
    bad = ~((np.abs(a) >= SMALLEST_COEFFICIENT) & (np.abs(a) <= LARGEST_COEFFICIENT))
    if bad.any():
        p, ends = int(np.argmax(bad)), f"{SMALLEST_COEFFICIENT:g} to {LARGEST_COEFFICIENT:g}"
        msg = f"Argument `coefficients` must have sizes from {ends}, but entry {p} is {a[p]:g}."
        raise ValueError(msg)


def checked_links(links: Iterable[object], count: int) -> tuple[HermiteExpansion, ...]:
    """Return one expansion per unit."""
    if isinstance(links, (str, bytes, dict)) or not isinstance(links, Iterable):
        msg = f"Argument `links` must be a list with one link per unit, but is {shown(links)}."
        raise TypeError(msg)
    found = tuple(checked_link(link, "links") for link in links)
    if len(found) != count:
        msg = f"Argument `links` must hold one link for each of {count} units, but holds {len(found)}."
        raise ValueError(msg)
    return found


def checked_biases(biases: ArrayLike, count: int) -> Array:
    """Return biases (P,), all finite."""
    values = float_array(biases, "biases")
    if values.shape != (count,) or not np.isfinite(values).all():
        msg = f"Argument `biases` must hold one finite number for each of {count} units, but is {shown(biases)}."
        raise ValueError(msg)
    return read_only(values)


def checked_rows(directions: ArrayLike, count: int) -> Array:
    """Return directions (P, r) of unit length; rows of length 1 up to 10^-9 (10^-6 if single) are normalised."""
    is_single = str(getattr(directions, "dtype", "")).endswith("float32")
    rows = float_array(directions, "directions")
    if rows.ndim != 2 or rows.shape[0] != count:
        msg = f"Argument `directions` must have shape (num_directions, r) = ({count}, r), but has shape {rows.shape}."
        raise ValueError(msg)
    lengths = np.sqrt(np.sum(rows**2, axis=1))
    off = ~(np.abs(lengths - 1.0) <= (SINGLE_TOLERANCE if is_single else UNIT_LENGTH_TOLERANCE))
    if off.any():
        p = int(np.argmax(off))
        msg = f"Argument `directions` must have rows of unit length, but row {p} has length {lengths[p]:.6g}."
        raise ValueError(msg)
    # Rows of length 1 up to rounding stay as they are, bit for bit, so that a teacher comes back from its file.
    off_by_more = np.abs(lengths - 1.0) > ROUNDED_LENGTH
    return read_only(rows / np.where(off_by_more, lengths, 1.0)[:, None])
