"""Which coefficients of an expansion count as zero, and what follows: information exponent and parity.

Where coefficients are known exactly (polynomials and closed forms), zero means zero. Where they come from quadrature,
c_j counts as zero if |c_j| <= max(1e-10 sqrt(E σ²), 10 × error estimate), and `hermite.expand` sets it to exactly 0.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from hermite.arrays import Array

Parity = Literal["even", "odd", "none"]


def zero_tolerance(norm_squared: float, coefficient_error: float) -> float:
    """Return the size up to which a coefficient from quadrature counts as zero: max(1e-10 sqrt(E σ²), 10 × error).

    Examples
    --------
    >>> zero_tolerance(1.0, 1e-15)
    1e-10
    """
    return max(1e-10 * math.sqrt(norm_squared), 10.0 * coefficient_error)


def information_exponent(coefficients: Array, tolerance: float = 0.0) -> int:
    """Return the smallest j >= 1 with |c_j| > tolerance; raise ValueError if there is none.

    Examples
    --------
    >>> information_exponent(np.array([1.0, 0.0, 0.0, 2.0]))
    3
    """
    nonzero = np.nonzero(np.abs(coefficients[1:]) > tolerance)[0]
    if nonzero.size == 0:
        msg = (
            "The information exponent must be the degree of a nonzero coefficient, but every coefficient "
            f"c_1 ... c_{coefficients.size - 1} is zero: the link is constant, or the order is too small."
        )
        raise ValueError(msg)
    return int(nonzero[0]) + 1


def parity(coefficients: Array, tolerance: float = 0.0) -> Parity:
    """Return whether the series is "even", "odd" or "none" of both; the zero series counts as even.

    Examples
    --------
    >>> parity(np.array([0.0, 1.0, 0.0, 2.0]))
    'odd'
    """
    nonzero = np.abs(coefficients) > tolerance
    if not nonzero[1::2].any():
        return "even"
    return "none" if nonzero[::2].any() else "odd"
