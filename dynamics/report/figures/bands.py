"""Means over runs with two standard errors, as figures draw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.report.figures.style import BAND

if TYPE_CHECKING:
    from hermite.arrays import Array


def log_band(runs: Array) -> tuple[Array, Array, Array]:
    """Return the geometric mean over the runs (run, x) that are known, and two standard errors below and above it.

    The band ends where the runs do: of few runs, one of which has learned all, the error says less than they. NaN where
    no run is known; the mean alone where there is but one.
    """
    known = np.isfinite(runs) & (runs > 0.0)
    count = known.sum(axis=0)
    logs = np.where(known, np.log(np.where(known, runs, 1.0)), 0.0)
    mean = logs.sum(axis=0) / np.maximum(count, 1)
    square = (np.where(known, logs - mean, 0.0) ** 2).sum(axis=0)
    error = BAND * np.sqrt(square / np.maximum(count - 1, 1) / np.maximum(count, 1))
    ends = np.where(known, logs, np.inf).min(axis=0), np.where(known, logs, -np.inf).max(axis=0)
    curves = mean, np.maximum(mean - error, ends[0]), np.minimum(mean + error, ends[1])
    middle, low, high = (np.where(count > 0, np.exp(np.where(count > 0, curve, 0.0)), np.nan) for curve in curves)
    return middle, low, high
