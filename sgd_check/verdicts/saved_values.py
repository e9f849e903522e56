"""Values at times between those that were saved: only where the saved neighbours are near enough for a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hermite.arrays import Array

#: Relative distance of two times that count as one.
SAME_TIME = 1e-9


def value_between(times: Array, values: Array, at: float, tolerance: float) -> float:
    """Return one of values (times,) at another time, linear between saved times; NaN where it is not known.

    That is outside the saved times, and where the two neighbours differ by the tolerance or more.

    Examples
    --------
    >>> times, values = np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.1, 5.0])
    >>> value_between(times, values, 0.5, 0.2), value_between(times, values, 1.5, 0.2)
    (0.05, nan)
    >>> value_between(times, values, 2.0, 0.2)
    5.0
    """
    after = int(np.searchsorted(times, at * (1.0 - SAME_TIME)))
    if after == times.size:
        return np.nan
    if times[after] <= at * (1.0 + SAME_TIME):
        return float(values[after])
    if after == 0 or not abs(values[after] - values[after - 1]) < tolerance:
        return np.nan
    share = (at - times[after - 1]) / (times[after] - times[after - 1])
    return float(values[after - 1] + share * (values[after] - values[after - 1]))


def interpolated(times: Array, losses: Array, at: Array) -> Array:
    """Return losses, shape (..., times), at other times, interpolated in ln t by monotone cubics; NaN outside.

    Between time 0 and the first positive time the interpolation is linear.
    """
    from scipy.interpolate import PchipInterpolator

    known = np.isfinite(losses).reshape(-1, times.size).all(axis=0)
    times, losses = times[known], losses[..., known]
    positive = times > 0
    found = np.full((*losses.shape[:-1], *at.shape), np.nan)
    if np.count_nonzero(positive) >= 2:
        first, last = times[positive][0], times[positive][-1]
        inside = (at >= first * (1 - 1e-9)) & (at <= last * (1 + 1e-9))
        curve = PchipInterpolator(np.log(times[positive]), losses[..., positive], axis=-1)
        found[..., inside] = curve(np.log(np.clip(at[inside], first, last)))
        if not positive.all():
            early = (at >= 0) & (at < first)
            share = at[early] / first
            zero, one = losses[..., ~positive][..., -1:], losses[..., positive][..., :1]
            found[..., early] = zero + share * (one - zero)
    return found


def known_between(times: Array, values: Array, at: Array, tolerance: Array | float) -> NDArray[np.bool_]:
    """Return at which of the times `at` (…) values (times,) are known to a tolerance, by what `interpolated` gives.

    That is at saved times, and where every other saved value gives the same, to the tolerance, as those between them:
    leaving out the nearest neighbour would not matter. `tolerance` is one number, or one for each of `at`.

    Examples
    --------
    >>> times = np.geomspace(1.0, 4.0, 9)
    >>> smooth, jumps = np.log(times), np.where(times > 2.5, 1.0, 0.0)
    >>> at = np.array([1.0, 1.9, 2.45])
    >>> known_between(times, smooth, at, 0.02).tolist(), known_between(times, jumps, at, 0.02).tolist()
    ([True, True, True], [True, True, False])
    """
    saved = np.isfinite(values)
    times, values = times[saved], values[saved]
    if times.size == 0:
        return np.zeros(at.shape, dtype=bool)
    after = np.minimum(np.searchsorted(times, at * (1.0 - SAME_TIME)), times.size - 1)
    same = np.abs(times[after] - at) <= SAME_TIME * np.abs(at)
    one, other = (interpolated(times[first::2], values[first::2], at) for first in (0, 1))
    with np.errstate(invalid="ignore"):
        return np.asarray(same | (np.abs(one - other) < tolerance))
