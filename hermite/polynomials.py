"""Normalised Hermite polynomials h_j = He_j / sqrt(j!): values, series, derivatives and kernels.

The recurrences stay finite in float64 up to degree 300. Three identities carry the module (Abramowitz & Stegun
22.7-22.8, rescaled), with z ~ N(0, 1) in the last:

    z h_j = sqrt(j+1) h_(j+1) + sqrt(j) h_(j-1),    h_j' = sqrt(j) h_(j-1),    E[h_i(z) h_j(z)] = 1{i = j}.

Points `z` may have any shape and are dimensionless; `coefficients` are c_0 ... c_N in the orthonormal basis.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from hermite.arrays import Array

MAX_DEGREE = 300
"""Largest degree the package accepts; every recurrence is tested up to it."""

_NORM = (2.0 * math.pi) ** -0.25


def evaluate(degree_max: int, z: ArrayLike) -> Array:
    """Return h_0(z) ... h_N(z) in the rows of an array of shape (N + 1, *z.shape).

    Forward recurrence h_(j+1) = (z h_j - sqrt(j) h_(j-1)) / sqrt(j+1), which is stable for every real z.

    Examples
    --------
    >>> evaluate(2, [0.0, 1.0])[2].round(4).tolist()
    [-0.7071, 0.0]
    """
    points = np.asarray(z, dtype=np.float64)
    return _three_term(degree_max, points, np.ones_like(points))


def evaluate_functions(degree_max: int, z: ArrayLike) -> Array:
    """Return the Hermite functions h_j(z) φ(z)^(1/2), j = 0 ... N, in rows, with φ the standard normal density.

    They are orthonormal in L²(dz) and bounded by 0.7, obey the recurrence of h_j and never overflow: the form that
    quadrature needs.
    """
    points = np.asarray(z, dtype=np.float64)
    return _three_term(degree_max, points, _NORM * np.exp(-0.25 * points**2))


def _three_term(degree_max: int, z: Array, first: Array) -> Array:
    """Return the rows of the recurrence that begin with `first`."""
    table = np.empty((degree_max + 1, *z.shape))
    table[0] = first
    if degree_max >= 1:
        table[1] = z * first
    for j in range(1, degree_max):
        table[j + 1] = (z * table[j] - math.sqrt(j) * table[j - 1]) / math.sqrt(j + 1)
    return table


def series_value(coefficients: ArrayLike, z: ArrayLike) -> Array:
    """Return Σ_j c_j h_j(z), in the shape of `z`; a numpy scalar where `z` is a scalar. What overflows is ±inf.

    Examples
    --------
    >>> float(series_value([1.0, 2.0], 3.0))
    7.0
    """
    c = np.asarray(coefficients, dtype=np.float64)
    points = np.asarray(z, dtype=np.float64)
    total = np.full_like(points, c[0])
    before, now = np.zeros_like(points), np.ones_like(points)
    # Stop at the last nonzero coefficient: beyond it h_j may overflow although the sum is representable.
    degree = int(np.max(np.nonzero(c)[0], initial=0))
    with np.errstate(all="ignore"):
        for j in range(degree):
            before, now = now, (points * now - math.sqrt(j) * before) / math.sqrt(j + 1)
            if c[j + 1] != 0.0:
                total = total + c[j + 1] * now
        # After an overflow the recurrence subtracts infinities. So far out the term of the highest degree decides.
        lost = np.isnan(total) & ~np.isnan(points)
        total = np.where(lost, np.copysign(np.inf, c[degree] * np.sign(points) ** degree), total)
    value: Array = total[()]
    return value


def differentiate(coefficients: ArrayLike) -> Array:
    """Return the coefficients of the derivative of a series, sqrt(j+1) c_(j+1), from h_j' = sqrt(j) h_(j-1).

    Examples
    --------
    >>> differentiate([5.0, 0.0, 0.0, 0.0, 1.0]).tolist()
    [0.0, 0.0, 0.0, 2.0]
    """
    c = np.asarray(coefficients, dtype=np.float64)
    if c.size == 1:
        return np.zeros(1)
    slopes: Array = np.sqrt(np.arange(1.0, c.size)) * c[1:]
    return slopes


def series_derivative(coefficients: ArrayLike, z: ArrayLike) -> Array:
    """Return the derivative Σ_j c_j sqrt(j) h_(j-1)(z) of a series, in the shape of `z`.

    Examples
    --------
    >>> float(series_derivative([0.0, 2.0], 3.0))
    2.0
    """
    return series_value(differentiate(coefficients), z)


def kernel_value(coefficients: ArrayLike, s: ArrayLike, n: int = 0) -> Array:
    """Return the n-th derivative of the kernel g(s) = Σ_j c_j² s^j, Σ_j c_j² j! / (j-n)! s^(j-n), by Horner's rule.

    g(u·v) = E[σ(u·x) σ(v·x)] for unit vectors u, v and x ~ N(0, I), since E[h_i(u·x) h_j(v·x)] = 1{i = j} (u·v)^j.
    Cosines `s` have |s| <= 1 in every use; this is not checked.

    Examples
    --------
    >>> h4 = [0.0, 0.0, 0.0, 0.0, 1.0]
    >>> float(kernel_value(h4, 0.5)), float(kernel_value(h4, 0.5, n=1))
    (0.0625, 0.5)
    """
    c = np.asarray(coefficients, dtype=np.float64)
    points = np.asarray(s, dtype=np.float64)
    weights = c[n:] ** 2
    if n == 0:
        return _horner(weights, points)
    degrees = np.arange(n, n + weights.size, dtype=np.float64)
    # Past n of about 120 the derivative of a series of degree 300 may itself exceed float64: it is then infinite.
    with np.errstate(over="ignore"):
        for r in range(min(n, c.size)):
            weights = weights * (degrees - r)
        return _horner(weights, points)


def _horner(weights: Array, points: Array) -> Array:
    """Return Σ_j w_j s^j, a number where `points` is one."""
    *lower, highest = weights.tolist() or [0.0]
    total = np.full(points.shape, highest)
    for weight in reversed(lower):
        total *= points
        if weight != 0.0:
            total += weight
    value: Array = total[()]
    return value


def trimmed(coefficients: Array) -> tuple[float, ...]:
    """Return the coefficients up to the last nonzero one, at least one.

    Examples
    --------
    >>> trimmed(np.array([0.0, 1.0, 0.0]))
    (0.0, 1.0)
    """
    nonzero = np.nonzero(coefficients)[0]
    return tuple(coefficients[: int(nonzero[-1]) + 1 if nonzero.size else 1].tolist())
