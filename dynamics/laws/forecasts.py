"""Forecasts of the last third of a curve: by similar draws, by a power law with a floor, by the larger of the two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares

from dynamics.laws.curves import LossCurve, Reading
from dynamics.laws.surface import FEWEST, fit_surface
from hermite.arrays import Array

METHODS = ("draws", "power law", "laws fit")
CANNOT_TELL = "cannot tell"
#: Fewest curves for a test of paired differences; factor between errors of fewer curves that is told.
FEWEST_PAIRED, TOLD = 4, 2.0
#: Exponents from which a power law is fitted.
EXPONENTS = (0.3, 0.8, 2.0)


def law_forecasts(
    curves: Sequence[LossCurve], readings: Sequence[Reading], cuts: Sequence[float]
) -> dict[str, list[Array]]:
    """Return, by method, ln of the loss over the plateau at the times of every reading, from times before its cut.

    "power law" is E + B t^(−b) of each curve alone. "laws fit" is E + max(A m^(−α), B t^(−b)) over three widths or
    more, and max(E, B t^(−b)) of each curve otherwise. Points on the plateau are left out.
    """
    windows = [(r.log_time >= r.crossing[0]) & (r.log_time <= cut) for r, cut in zip(readings, cuts, strict=True)]
    pairs = list(zip(readings, windows, strict=True))
    forecasts = {
        "power law": [_single(reading, window, sharp=False) for reading, window in pairs],
        "laws fit": [_single(reading, window, sharp=True) for reading, window in pairs],
    }
    widths = np.array([curve.width for curve in curves])
    if np.unique(widths[widths > 0.0]).size >= FEWEST:
        columns = [
            (np.full(window.sum(), width), np.exp(r.log_time[window]), np.exp(r.log_loss[window]))
            for (r, window), width in zip(pairs, widths, strict=True)
        ]
        m, t, loss = (np.concatenate(column) for column in zip(*columns, strict=True))
        fit = fit_surface({"width": m, "samples": t, "loss": loss}, "max", bootstrap=0, progress=False)
        E, A, alpha, B, b = fit["fitted"].values
        forecasts["laws fit"] = [
            np.log(E + np.maximum(A * width**-alpha, B * np.exp(-b * r.log_time)))
            for r, width in zip(readings, widths, strict=True)
        ]
    return forecasts


def _single(reading: Reading, window: Array, *, sharp: bool) -> Array:
    """Return ln of the fitted loss at all times: of E + B t^(−b), or, if sharp, of max(E, B t^(−b))."""
    x, y = reading.log_time - reading.crossing[0], reading.log_loss
    low = float(y[window].min())
    join = np.maximum if sharp else np.logaddexp

    def law(q: Array) -> Array:
        return np.asarray(join(q[0], q[1] - q[2] * x))

    def misfit(q: Array) -> Array:
        return np.asarray((law(q) - y)[window])

    fits = [
        least_squares(misfit, start, bounds=([-30.0, -30.0, 0.0], [max(low, -29.0), 30.0, 50.0]))
        for b in EXPONENTS
        for start in ([min(low, 0.0) - 1.0, 0.0, b], [max(low, -29.0) - 1e-3, 0.0, b])
    ]
    return law(min(fits, key=lambda fit: fit.cost).x)


def compare(errors: Array) -> str:
    """Return which method has the least error (M, C) of its forecasts, or "cannot tell".

    With four curves or more the mean difference of ln errors to each rival must be beyond its 97.5 % quantile by
    Student; with fewer the largest error of a method must be less than half of the least error of its rivals.
    """
    from scipy.stats import t

    logs = np.log(np.maximum(errors[:, np.isfinite(errors).all(axis=0)], 1e-6))
    if not logs.size:
        return CANNOT_TELL
    best = int(np.argmin(logs.mean(axis=1)))
    excess = np.delete(logs, best, axis=0) - logs[best]
    if excess.shape[1] >= FEWEST_PAIRED:
        error = excess.std(axis=1, ddof=1) / np.sqrt(excess.shape[1])
        is_better = bool((excess.mean(axis=1) > t.ppf(0.975, excess.shape[1] - 1) * error).all())
    else:
        is_better = bool((excess > np.log(TOLD)).all())
    return METHODS[best] if is_better else CANNOT_TELL
