"""Exact Gaussian integrals of h_k over intervals: ∫_a^b h_k γ = (h_(k-1) γ(a) - h_(k-1) γ(b)) / √k, γ = N(0, 1)."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from hermite import polynomials
from hermite.arrays import Array


def interval_moments(ends: Array, degree: int) -> Array:
    """Return ∫ h_k γ, k = 0 ... degree, over the intervals between increasing ends, shape (degree + 1, intervals).

    The outermost ends may be infinite. Masses far out keep their relative accuracy.

    Examples
    --------
    >>> interval_moments(np.array([-np.inf, 0.0, np.inf]), 1).round(4).tolist()
    [[0.5, 0.5], [-0.3989, 0.3989]]
    """
    left, right = ends[:-1], ends[1:]
    moments = np.empty((degree + 1, left.size))
    moments[0] = np.where(left > 0.0, ndtr(-left) - ndtr(-right), ndtr(right) - ndtr(left))
    # Where the density is below rounding its product with any h_k is, and infinite ends have a product.
    inner = np.clip(ends, -38.0, 38.0)
    functions = polynomials.evaluate_functions(max(degree - 1, 0), inner)
    density = functions * functions[0]
    moments[1:] = (density[:degree, :-1] - density[:degree, 1:]) / np.sqrt(np.arange(1.0, degree + 1.0))[:, None]
    return moments
