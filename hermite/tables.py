"""Links that are known at points alone, such as a measured response: interpolated, with the error of that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hermite.arrays import Array, real_array
from hermite.expansion import HermiteExpansion, expand
from hermite.text.messages import not_a_choice, refuse, require, shown

#: Kinds of interpolation.
MONOTONE, SPLINE = "monotone", "spline"
#: Fewest points, and the |z| to which they must reach: z ~ N(0, 1) is beyond with a probability of 6e-5.
FEWEST_POINTS, REACH = 8, 4.0


class InterpolatedLink:
    """A function through points (z, σ), z increasing; beyond the ends it goes on along its tangents."""

    def __init__(self, z: Array, values: Array, kind: str) -> None:
        from scipy.interpolate import PchipInterpolator, make_interp_spline

        self._inside: Any = PchipInterpolator(z, values) if kind == MONOTONE else make_interp_spline(z, values, k=3)
        self._ends, slope = (float(z[0]), float(z[-1])), self._inside.derivative()
        self._tangents = [(float(self._inside(end)), float(slope(end))) for end in self._ends]

    def __call__(self, z: Array) -> Array:
        """Return σ at points of any shape."""
        z = np.asarray(z, dtype=np.float64)
        (low, high), (first, last) = self._ends, self._tangents
        inside = np.asarray(self._inside(np.clip(z, low, high)), dtype=np.float64)
        return inside + first[1] * np.minimum(z - low, 0.0) + last[1] * np.maximum(z - high, 0.0)


def from_table(z: object, values: object, *, kind: str = MONOTONE, order: int | None = None) -> HermiteExpansion:
    """Return the expansion of a link that is known at points, by interpolation between them.

    Parameters
    ----------
    z, values : array_like
        At least 8 points, in any order but each once, and σ at them, (n,). Points must reach from −4 to 4; beyond the
        first and the last the link goes on along its tangents.
    kind : {"monotone", "spline"}
        Piecewise cubic Hermite interpolation without overshoots (PCHIP), or a cubic spline, which is more accurate for
        a smooth link.
    order : int, optional
        As in `expand`.

    Returns
    -------
    HermiteExpansion
        Its name states the number of points and an estimate of the interpolation's error, the root of the mean square
        over z ~ N(0, 1): that of every second point by the others, which is larger than that of all. Coefficients
        below it are 0: the table does not tell them.

    Raises
    ------
    TypeError, ValueError
        If points are not real and finite numbers, too few or not distinct, or do not reach that far.

    Examples
    --------
    >>> z = np.linspace(-6.0, 6.0, 241)
    >>> link = from_table(z, np.tanh(z), kind="spline")
    >>> link.name
    'table of 241 points, error 6e-07'
    >>> bool(abs(link.coefficients[1] - expand("tanh").coefficients[1]) < 1e-6)
    True
    """
    x, y = real_array(z, "z"), real_array(values, "values")
    fits = x.ndim == 1 and x.shape == y.shape and x.size >= FEWEST_POINTS
    require(
        fits,
        f"Arguments `z` and `values` must be of one length of at least {FEWEST_POINTS}, but have shapes {x.shape} and "
        f"{y.shape}.",
    )
    if kind not in (MONOTONE, SPLINE):
        refuse(not_a_choice("Argument `kind`", kind, (MONOTONE, SPLINE)))
    require(np.isfinite(x).all() and np.isfinite(y).all(), "Arguments `z` and `values` must be finite, but are not.")
    at = np.argsort(x)
    x, y = x[at], y[at]
    twice = np.flatnonzero(np.diff(x) == 0.0)
    if twice.size:
        refuse(f"Argument `z` must have each point once, but has {shown(float(x[twice[0]]))} twice.")
    reaches = x[0] <= -REACH and x[-1] >= REACH
    require(reaches, f"Argument `z` must reach from -{REACH:g} to {REACH:g}, but goes from {x[0]:.3g} to {x[-1]:.3g}.")
    error = _error_of(x, y, kind)
    expansion = expand(InterpolatedLink(x, y, kind), order=order)
    coefficients = np.where(np.abs(expansion.coefficients) < error, 0.0, expansion.coefficients)
    require(coefficients.any(), f"Arguments `z` and `values` must tell a coefficient, but their error is {error:.1g}.")
    return replace(expansion, name=f"table of {x.size} points, error {error:.0e}", coefficients=coefficients)


def _error_of(x: Array, y: Array, kind: str) -> float:
    """Return the root mean square error over z ~ N(0, 1) of every second point if the others interpolate it."""
    left_out = np.arange(1, x.size - 1, 2)
    kept = np.setdiff1d(np.arange(x.size), left_out)
    weights = np.exp(-0.5 * x[left_out] ** 2) * (x[left_out + 1] - x[left_out - 1])
    difference = InterpolatedLink(x[kept], y[kept], kind)(x[left_out]) - y[left_out]
    return float(np.sqrt(np.sum(weights * difference**2) / np.sum(weights)))
