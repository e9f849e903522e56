"""Hermite coefficients of any function by adaptive quadrature, with an error estimate that stays honest at kinks.

The line is cut at |z| <= L into panels. On each panel, Clenshaw-Curtis rules with 17 and 33 nodes (the first a subset
of the second) integrate σ h_j φ for all j at once, and σ² φ. Panels on which they disagree are halved until they agree
to rounding or are too narrow to halve; the disagreement left over is the reported error. Both rules contain the ends
of the panel, where a jump could hide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hermite import polynomials
from hermite.arrays import Array
from hermite.text.messages import refuse, require, shown

if TYPE_CHECKING:
    Function = Callable[[Array], Array]

_HALF_WIDTHS = (16.0, 24.0, 32.0, 38.0)
_TAIL = 1e-18
_FINE = 32
_CHUNK = 128
_MAX_PANELS = 20_000
#: Enough to close in on a singularity at 0 such as |z|^(-.49); elsewhere floats end after 60.
_MAX_LEVELS = 1000
#: Of the largest value: by how much rounding may change a value with the length of an array, single precision included.
_SAME = 1e-6
#: Points at which a function is looked at first.
POINTS = np.linspace(-8.03, 8.07, 400)


class QuadratureResult(NamedTuple):
    """Coefficients of a function and the points they were computed from."""

    #: Estimates of c_j = E[σ(z) h_j(z)], shape (order + 1,).
    coefficients: Array
    #: Bound on the error of every coefficient, as the two rules see it, rounding included.
    coefficient_error: float
    #: Estimate of E σ(z)² and of its error.
    norm_squared: float
    norm_squared_error: float
    #: Points z, weights in dz, and σ(z) φ(z)^(1/2), shape (n,) each.
    nodes: Array
    weights: Array
    values: Array

    def residual_norm(self, coefficients: Array) -> float:
        """Return the distance (E[(σ − Σ_j c_j h_j)²])^½ of σ from a series with `coefficients` c_j, shape (order + 1,).

        The squared difference is integrated itself, since E σ² − Σ_j c_j² would cancel.
        """
        order = coefficients.size - 1
        # σ φ^(1/2) has died out at the last node, h_j φ^(1/2) not before |z| = 2 sqrt(j).
        reach = 2.0 * math.sqrt(order) + 8.0
        low, high = float(self.nodes.min()), float(self.nodes.max())
        below = np.linspace(min(low, -reach), low, 2 + int(2 * max(reach + low, 0.0)))
        above = np.linspace(high, max(high, reach), 2 + int(2 * max(reach - high, 0.0)))
        tail_nodes, tail_weights = _panel_rule(*(np.append(below[at], above[at]) for at in (slice(-1), slice(1, None))))
        nodes = np.concatenate([self.nodes, tail_nodes.ravel()])
        weights = np.concatenate([self.weights, tail_weights.ravel()])
        values = np.concatenate([self.values, np.zeros(tail_nodes.size)])
        total, size = 0.0, _CHUNK * (_FINE + 1)
        for start in range(0, nodes.size, size):
            part = slice(start, start + size)
            series = coefficients @ polynomials.evaluate_functions(order, nodes[part])
            total += float(weights[part] @ (values[part] - series) ** 2)
        return math.sqrt(total)


def integrate(function: Function, order: int) -> QuadratureResult:
    """Return the coefficients of a vectorised function for h_0 ... h_order under N(0, 1), with norm and errors.

    The function must be finite on the line and of finite second moment, or ValueError is raised. Features narrower than
    the first panels (half a unit, 33 nodes) that no node meets cannot be seen.

    >>> result = integrate(np.abs, 2)
    >>> result.coefficients.round(12).tolist()[0], round(result.norm_squared, 12)
    (0.797884560803, 1.0)
    """
    half_width = _support(function)
    # Irregular ends: no panel boundary falls on a round number, where singular points of formulas live.
    edges = np.linspace(-half_width - 0.0712, half_width + 0.0419, int(4 * half_width) + 1)
    left, right = edges[:-1], edges[1:]
    (total, error), rounding = np.zeros((2, order + 2)), np.zeros(2)
    scale, spent, points = 0.0, 0, list[list[Array]]()
    for level in range(_MAX_LEVELS):
        spent += left.size
        is_last = spent > _MAX_PANELS or level == _MAX_LEVELS - 1
        halved: list[tuple[Array, Array]] = []
        # Batches of panels bound the memory.
        for start in range(0, left.size, _CHUNK):
            a, b = left[start : start + _CHUNK], right[start : start + _CHUNK]
            value, difference, size, noise, rule = _measure(function, a, b, order)
            if level == 0:
                scale += float(value[-1].sum())
            floor = np.maximum(noise, 1e-17 * np.array([[math.sqrt(scale)], [scale]]))
            agreed = (difference[:-1].max(axis=0) <= floor[0]) & (difference[-1] <= floor[1])
            done = agreed | ((b - a) < 8 * np.spacing(np.maximum(np.abs(a), np.abs(b)))) | is_last
            total += value[:, done].sum(axis=1)
            error += difference[:, done].sum(axis=1)
            rounding += noise[:, done].sum(axis=1)
            # Where a panel is given up, both rules may be wrong alike: all it holds is in doubt.
            rounding += size[:, done & ~agreed].sum(axis=1)
            points.append([entries[done].ravel() for entries in rule])
            halved.append((a[~done], b[~done]))
        a, b = (np.concatenate(ends) for ends in zip(*halved, strict=True))
        if a.size == 0:
            break
        middle = 0.5 * (a + b)
        left, right = np.concatenate([a, middle]), np.concatenate([middle, b])
    return QuadratureResult(
        total[:-1],
        float(error[:-1].max() + rounding[0]),
        float(total[-1]),
        float(error[-1] + rounding[1]),
        *(np.concatenate(column) for column in zip(*points, strict=True)),
    )


def _measure(
    function: Function, left: Array, right: Array, order: int
) -> tuple[Array, Array, Array, Array, tuple[Array, Array, Array]]:
    """Return integrals over panels, (order + 2, panels), that of σ² last, and their differences between the two rules.

    Then follow ∫|σ| and ∫σ², (2, panels), their rounding errors, and nodes, weights and values, (panels, 33) each.
    """
    nodes, weights = _panel_rule(left, right)
    coarse = 0.5 * (right - left)[:, None] * _rules()[2]
    flat = nodes.ravel()
    values = (finite_values(function, flat) * polynomials.evaluate_functions(0, flat)[0]).reshape(nodes.shape)
    with np.errstate(over="ignore"):
        square = values**2
    require(
        np.isfinite(square).all(),
        "Argument `x` must be square-integrable under N(0, 1), but its square is beyond float64.",
    )
    table = polynomials.evaluate_functions(order, flat).reshape(-1, *nodes.shape)
    integrand = np.concatenate([table * values, square[None]])
    value = np.einsum("jpn,pn->jp", integrand, weights)
    rough = np.einsum("jpn,pn->jp", integrand[..., ::2], coarse)
    # The recurrence carries an error of about eps sqrt(order); |h_j φ^(1/2)| stays below 0.7.
    noise = 4.0 * np.finfo(np.float64).eps * np.array([math.sqrt(order + 16.0), 4.0])
    size = np.stack([np.sum(weights * np.abs(values), axis=1), np.sum(weights * square, axis=1)])
    return value, np.abs(value - rough), size, noise[:, None] * size, (nodes, weights, values)


def _panel_rule(left: Array, right: Array) -> tuple[Array, Array]:
    """Return nodes and weights of the fine rule, shape (panels, 33)."""
    points, fine, _ = _rules()
    half = 0.5 * (right - left)[:, None]
    return 0.5 * (left + right)[:, None] + half * points, half * fine


@cache
def _rules() -> tuple[Array, Array, Array]:
    """Return 33 Chebyshev points on [-1, 1], their weights, and the weights of every second one."""
    points = np.cos(np.pi * np.arange(_FINE, -1, -1) / _FINE)
    return points, _clenshaw_curtis(_FINE), _clenshaw_curtis(_FINE // 2)


def _clenshaw_curtis(n: int) -> Array:
    """Return the n + 1 weights of the Clenshaw-Curtis rule, n even (Waldvogel 2006, eq. 2.4)."""
    k = np.arange(n + 1)
    weights = np.ones(n + 1)
    for j in range(1, n // 2 + 1):
        weights -= (1.0 if 2 * j == n else 2.0) / (4.0 * j * j - 1.0) * np.cos(2.0 * np.pi * j * k / n)
    weights *= 2.0 / n
    weights[[0, -1]] /= 2.0
    return weights


def _support(function: Function) -> float:
    """Return the half width L of the interval |z| ≤ L outside of which σ(z) φ(z)^½ is below rounding.

    σ is the function and φ the density of N(0, 1).
    ValueError is raised if the function has not decayed at the largest half width that is tried.
    """

    def size_at(z: Array) -> float:
        return float(np.max(np.abs(finite_values(function, z) * polynomials.evaluate_functions(0, z)[0])))

    scale = size_at(POINTS)
    for half_width in _HALF_WIDTHS:
        tail = np.linspace(half_width - 2.0, half_width, 41)
        size = size_at(np.concatenate([-tail, tail]))
        if size <= _TAIL * scale:
            return half_width
        scale = max(scale, size)
    return refuse(
        "Argument `x` must have a finite second moment under N(0, 1), but σ(z) exp(-z²/4) has not decayed at |z| = "
        f"{_HALF_WIDTHS[-1]:g}."
    )


def finite_values(function: Function, z: Array) -> Array:
    """Return the values of the function, or raise ValueError with a point at which it is not finite."""
    with np.errstate(all="ignore"):
        values = function(z)
    bad = ~np.isfinite(values)
    if bad.any():
        place = z[bad][np.argmin(np.abs(z[bad]))]
        refuse(f"Argument `x` must be finite for every real z, but is {values[bad][0]} near z = {place:.4g}.")
    return values


def check_pointwise(function: Function, points: Array, argument: str, name: str) -> None:
    """Raise ValueError for a function of an array if its value at a point depends on other points or on the call.

    It is called twice: with all points, (n,) or in rows (n, r), and with a part of them in another order, which leaves
    out the first tenth and the last three. So what a function takes from all of its array, such as its mean, its
    largest value or its length, is another number. Values count with the weight exp(-|z|²/4).

    >>> points = np.linspace(-8.0, 8.1, 400)
    >>> check_pointwise(np.tanh, points, "x", "tanh")
    >>> check_pointwise(lambda z: z - np.mean(z), points, "x", "σ")
    Traceback (most recent call last):
    ...
    ValueError: Argument `x` must have one value at a point, whatever the other points and in every call, but ...
    """
    n = len(points)
    part = np.arange(n // 10, 7 * n // 10)
    # A stride that has no factor in common with the number of points visits each of them once.
    stride = next(s for s in range(part.size // 3 + 1, part.size + 2) if math.gcd(s, part.size) == 1)
    part = part[np.arange(part.size) * stride % part.size]
    with np.errstate(all="ignore"):
        first, second = function(points), function(points[part])
        weights = np.exp(-0.25 * (points**2).reshape(n, -1).sum(axis=1))
        sizes, change = np.abs(first) * weights, np.abs(second - first[part]) * weights[part]
    # Values that are not finite are refused where they are integrated.
    is_finite = np.isfinite(first[part]), np.isfinite(second)
    change = np.where(is_finite[0] & is_finite[1], change, np.where(is_finite[0] ^ is_finite[1], np.inf, 0.0))
    at, allowed = int(np.argmax(change)), _SAME * float(np.max(sizes, where=np.isfinite(sizes), initial=0.0))
    place = ", ".join(f"{z:.6g}" for z in np.atleast_1d(points[part[at]]))
    require(
        change[at] <= allowed,
        f"Argument `{argument}` must have one value at a point, whatever the other points and in every call, but "
        f"{shown(name)} has {first[part[at]]:.6g} and then {second[at]:.6g} at z = {place}.",
    )
