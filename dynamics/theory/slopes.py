"""Slopes in log-log of points that carry their own errors, and of needed samples against the loss."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.theory.fits import fit_power_law
from hermite.arrays import Array

FEWEST_POINTS = 2


class Slope(NamedTuple):
    """Exponent and prefactor of y = b x^s, and the standard error of s; NaN where there are too few points."""

    exponent: float
    standard_error: float
    prefactor: float


def fit_slope(x: ArrayLike, log_y: ArrayLike, errors: ArrayLike | None = None) -> Slope:
    r"""Fit log y = log b + s log x by plain least squares and pass the errors of the points on to s.

    .. math:: s = \sum_i w_i \ln y_i, \quad w_i = \frac{\ln x_i - \overline{\ln x}}{\sum_j (\ln x_j -
       \overline{\ln x})^2}, \qquad \delta s^2 = \sum_i w_i^2\, \delta_i^2

    x is positive; points where ln y or its error δ_i is not finite are left out; without errors these are zero. Equal
    weights keep the fitted exponent of a curve that bends the same for points of any error, so that SGD and the
    equation it is held against are fitted alike.

    Examples
    --------
    >>> fit = fit_slope([1.0, 2.0, 4.0], np.log([3.0, 12.0, 48.0]), [0.1, 0.1, 0.1])
    >>> round(fit.exponent, 12), round(fit.standard_error, 6), round(fit.prefactor, 12)
    (2.0, 0.102014, 3.0)
    """
    values = np.asarray(log_y, dtype=np.float64)
    spread = np.zeros_like(values) if errors is None else np.asarray(errors, dtype=np.float64)
    kept = np.isfinite(values) & np.isfinite(spread)
    if np.count_nonzero(kept) < FEWEST_POINTS:
        return Slope(np.nan, np.nan, np.nan)
    log_x: Array = np.log(np.asarray(x, dtype=np.float64)[kept])
    centre = log_x - log_x.mean()
    weights = centre / np.sum(centre**2)
    exponent = float(weights @ values[kept])
    intercept = float(values[kept].mean() - exponent * log_x.mean())
    return Slope(exponent, float(np.sqrt(weights**2 @ spread[kept] ** 2)), float(np.exp(intercept)))


def inverse_fit(losses: Array, needed: Array) -> tuple[float, float]:
    """Return x of L ∝ n^x and its jackknife error, from a fit of n against L."""
    kept = np.isfinite(needed)
    fit = fit_power_law(losses[kept][::-1], needed[kept][::-1])
    return 1.0 / fit.exponent, fit.standard_error / fit.exponent**2
