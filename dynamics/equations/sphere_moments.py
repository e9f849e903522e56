r"""Averages over spheres: the moments of one coordinate, and powers as sums of zonal polynomials.

A neuron w = (a, s ω) has its projections a on the r axes of the teacher, s = √(1 − |a|²), and ω uniform on the sphere
S^(n−1) of the other n = d − r axes. Two neurons see each other through g(a·a' + s s' z), z = ω·ω', of which the mean
over z needs only

.. math:: E z^{2q} = \frac{1\cdot 3 \cdots (2q-1)}{n (n+2) \cdots (n + 2q - 2)},

and for r = 1 is diagonal in the zonal polynomials C_l of R^d (Gegenbauer, C_l(1) = 1): the addition theorem, averaged
over the rotations that keep the axis, is

.. math:: E_z\, C_l(\alpha\alpha' + s s' z) = C_l(\alpha)\, C_l(\alpha').
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermite.arrays import Array


def coordinate_moments(axes: int, count: int) -> Array:
    """Return E z^(2q), q = 0 … count − 1, of one coordinate of the uniform law on the unit sphere in R^axes.

    Examples
    --------
    >>> coordinate_moments(3, 3).tolist()
    [1.0, 0.3333333333333333, 0.2]
    """
    moments = np.ones(count)
    for q in range(1, count):
        moments[q] = moments[q - 1] * (2 * q - 1) / (axes + 2 * q - 2)
    return moments


def zonal_coefficients(powers: Array, dimension: int) -> Array:
    """Return γ of Σ_j p_j s^j = Σ_l γ_l C_l(s), shape (J + 1,), for p_0 … p_J and d ≥ 2.

    s C_l = [(l + d − 2) C_{l+1} + l C_{l−1}] / (2l + d − 2): every weight is positive, so that nothing cancels.

    Examples
    --------
    >>> zonal_coefficients(np.array([0.0, 0.0, 1.0]), 4).tolist()
    [0.25, 0.0, 0.75]
    """
    count = powers.size
    degrees = np.arange(count, dtype=np.float64)
    total = 2.0 * degrees + dimension - 2.0
    # For l = 0 all weight goes up, also at d = 2 where the formula is 0/0.
    up = np.ones(count)
    up[1:] = (degrees[1:] + dimension - 2.0) / total[1:]
    down = np.zeros(count)
    down[1:] = degrees[1:] / total[1:]
    term = np.zeros(count)
    term[0] = 1.0
    found = np.zeros(count)
    for power in powers:
        found += power * term
        term = np.concatenate([[0.0], (up * term)[:-1]]) + np.concatenate([(down * term)[1:], [0.0]])
    return found


def zonal_polynomials(s: Array, dimension: float, count: int) -> Iterator[Array]:
    """Yield C_0(s) … C_(count−1)(s) of R^d, each of the shape of s.

    Examples
    --------
    >>> [float(values[0]) for values in zonal_polynomials(np.array([0.5]), 3.0, 3)]
    [1.0, 0.5, -0.125]
    """
    before, now = np.ones_like(s), np.array(s, dtype=np.float64)
    for degree in range(count):
        if degree == 0:
            yield before
            continue
        yield now
        high = degree + dimension - 2.0
        before, now = now, ((high + degree) * s * now - degree * before) / high


def zonal_powers(dimension: int, count: int) -> Array:
    """Return the coefficients of C_0 … C_(count−1) in powers of s, one row each, shape (count, count).

    Examples
    --------
    >>> zonal_powers(3, 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-0.5, 0.0, 1.5]]
    """
    rows = np.eye(count)
    for degree in range(1, count - 1):
        high = degree + dimension - 2.0
        rows[degree + 1] = ((high + degree) * np.roll(rows[degree], 1) - degree * rows[degree - 1]) / high
    return rows


def multinomial(exponents: tuple[int, ...]) -> float:
    """Return |κ|! / Π κ_i!.

    Examples
    --------
    >>> multinomial((2, 1))
    3.0
    """
    return math.factorial(sum(exponents)) / math.prod(map(math.factorial, exponents))
