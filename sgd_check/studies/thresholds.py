"""Numbers read off many runs: when a loss is reached, and up to which step size something holds."""

from __future__ import annotations

import numpy as np

from hermite.arrays import Array, Integers
from sgd_check.runs.recording import CrossingTracker

TOLERANCE = 0.1
# Ratios beyond this are as good as infinite.
LARGEST_RATIO = 1e3


def first_below(samples: Integers, loss: Array, level: float) -> Array:
    """Return, per run, after how many samples the loss (runs, samples) first was at most `level`; NaN if never.

    Examples
    --------
    >>> first_below(np.array([1, 100]), np.array([[1.0, 0.0], [1.0, 0.9]]), 0.5).round(6).tolist()
    [10.0, nan]
    """
    tracker = CrossingTracker(np.array(-level), (loss.shape[0],))
    for number, values in zip(samples.tolist(), loss.T, strict=True):
        tracker.look(float(number), -values)
    return tracker.time


def shown_direction(flow: Array) -> int:
    """Return the direction that table and figure are about: of those that emerge in the flow the last."""
    return int(np.argmax(np.where(np.isfinite(flow), flow, -1.0)))


def median_ratio(time: Array, blown: Array, flow: float) -> Array:
    """Return the median over runs of T_SGD / T_flow per step size, made monotone; late and lost runs count as infinite.

    Noise only delays, so that a median that falls with η is scatter: least squares in log under that condition.
    """
    from scipy.optimize import isotonic_regression

    ratio = np.full(time.shape[0], np.nan)
    known = np.isfinite(blown).all(axis=1)
    if known.any():
        raw = np.median(np.where(np.isnan(time[known]), np.inf, time[known]), axis=1) / flow
        ratio[known] = np.exp(isotonic_regression(np.log(np.minimum(raw, LARGEST_RATIO))).x)
    return ratio


def reach(rates: Array, ratio: Array) -> float:
    """Return the largest step size up to which a ratio stays within 10 % of 1, interpolated in log η; NaN if none.

    Examples
    --------
    >>> round(reach(np.array([1.0, 10.0, 100.0]), np.array([1.0, 1.05, 1.15])), 6)
    31.622777
    """
    off = ~(np.abs(ratio - 1.0) <= TOLERANCE)
    known = np.isfinite(ratio) | np.isposinf(ratio)
    inside = known & ~off
    if not inside.any():
        return float("nan")
    first = int(np.argmax(inside))
    later = np.flatnonzero(off[first:])
    if later.size == 0:
        return float(rates[-1])
    at = first + int(later[0])
    edge = 1.0 + np.sign(ratio[at] - 1.0) * TOLERANCE
    step = (edge - ratio[at - 1]) / (ratio[at] - ratio[at - 1]) if np.isfinite(ratio[at]) else 0.0
    return float(rates[at - 1] * (rates[at] / rates[at - 1]) ** step)


def half_blown(rates: Array, blown: Array) -> float:
    """Return the step size from which on half of the runs blow up, interpolated in log η; NaN if they never do.

    Examples
    --------
    >>> round(half_blown(np.array([1.0, 100.0]), np.array([[0.0, 0.0], [1.0, 1.0]])), 6)
    10.0
    """
    share = blown.mean(axis=1)
    above = np.flatnonzero(share >= 0.5)
    if above.size == 0 or not np.isfinite(share[max(above[0] - 1, 0)]):
        return float("nan")
    at = int(above[0])
    if at == 0:
        return float(rates[0])
    step = (0.5 - share[at - 1]) / (share[at] - share[at - 1])
    return float(rates[at - 1] * (rates[at] / rates[at - 1]) ** step)
