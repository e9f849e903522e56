"""Matched overlaps of random starts, drawn from the law of greedy matching without the matrix of all overlaps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hermite.arrays import Array, Integers

#: Knots of the spline that links overlaps to normal numbers.
_QUANTILE_KNOTS = 1000


def draw_matched_overlaps(
    coefficients: Array, width: int, dimension: int, information_exponent: int, seed: int
) -> tuple[Integers, Array]:
    r"""Return neurons and overlaps (P,) that greedy matching finds at a random start, without the matrix of overlaps.

    Directions choose in order of decreasing a_p, the r-th among the N = m − r neurons still free, and overlaps count as
    independent:

    .. math:: C_p^2 = F^{-1}\left(U_p^{1/N}\right), \quad F \text{ the distribution } \mathrm{Beta}(1/2, (d-1)/2)

    For odd k the largest signed overlap is drawn; directions without a positive one stay unmatched, −1 and NaN. The
    rank of a direction stands for its neuron.
    """
    from scipy.special import ndtri

    count = min(coefficients.size, width)
    order = np.argsort(-coefficients, kind="stable")[:count]
    free = width - np.arange(count, dtype=np.float64)
    rng = np.random.default_rng(seed)
    tail = -np.expm1(-rng.standard_exponential(count) / free)
    odd = bool(information_exponent % 2)
    # The normal variable of the same tail probability: a smooth function links its square to C².
    normal = -ndtri(tail if odd else 0.5 * tail)
    is_matched = normal > 0.0
    neuron, overlap = np.full(coefficients.size, -1, dtype=np.int64), np.full(coefficients.size, np.nan)
    neuron[order[is_matched]] = np.flatnonzero(is_matched)
    size = _overlap_from_normal(normal[is_matched], dimension)
    overlap[order[is_matched]] = size if odd else np.where(rng.integers(2, size=size.size) == 1, size, -size)
    return neuron, overlap


def draw_on_both_sides(
    coefficients: Array, width: int, dimension: int, equivalent: Callable[[Array], Array], learns: bool, seed: int
) -> tuple[tuple[Integers, Array], tuple[Integers, Array]]:
    """Draw the outcome of greedy matching at a random start, for a link that treats θ and −θ differently.

    Directions are matched in the order of decreasing `coefficients` (P,), out of `width` neurons in `dimension`
    dimensions. Of the neurons still free, the largest positive and the largest negative overlap with the direction are
    drawn, as if independent (see `draw_matched_overlaps`). `equivalent` maps negative overlaps to the positive ones
    that take as long to emerge; the neuron of larger such overlap emerges first. `learns` says whether a neuron of
    negative overlap learns the direction. If not, the neuron of largest positive overlap, if there is one, learns it
    later, and the direction uses up two neurons.

    The result is two pairs (neurons, overlaps) of arrays (P,), of the neuron that emerges first at each direction and
    of the neuron that learns it. The neuron is −1 and the overlap NaN for directions without one.
    """
    from scipy.special import ndtri

    order = np.argsort(-coefficients, kind="stable")
    waits = np.random.default_rng(seed).standard_exponential((2, coefficients.size))
    taken = np.arange(coefficients.size)
    for _ in range(2):
        free = np.maximum(width - taken, 0.0)
        with np.errstate(divide="ignore"):
            normal = np.maximum(-ndtri(-np.expm1(-waits / free)), 0.0)
        near, far = _overlap_from_normal(normal.ravel(), dimension).reshape(2, -1) * (normal > 0.0)
        worth = equivalent(-far)
        second = (worth > near) & (not learns) & (near > 0.0) & (free > 1)
        taken = np.append(0, np.cumsum(1 + second)[:-1])
    neuron, overlap = (np.full((2, coefficients.size), value) for value in (-1, np.nan))
    ahead = np.where(worth > near, -far, near)
    for row, overlaps in enumerate((ahead, np.where(second, near, ahead))):
        place = np.flatnonzero(np.maximum(worth, near) > 0.0)
        neuron[row, order[place]], overlap[row, order[place]] = place, overlaps[place]
    return (neuron[0], overlap[0]), (neuron[1], overlap[1])


def _overlap_from_normal(normal: Array, dimension: int) -> Array:
    """Return |C|, the overlaps of random unit vectors in `dimension`, of the same tail probability as |z| (n,).

    `normal` holds absolute values z of standard normal numbers. A cubic spline of ln(C² / z²) in z maps one to the
    other.
    """
    from scipy.interpolate import CubicSpline
    from scipy.special import betainccinv, betaincinv, erf, erfc

    if dimension == 1:
        return np.ones_like(normal)
    half = 0.5 * (dimension - 1)
    z = np.linspace(0.0, float(normal.max(initial=1.0)) + 0.5, _QUANTILE_KNOTS)[1:]
    square = np.where(
        z < 1.0, betaincinv(0.5, half, erf(z / np.sqrt(2.0))), betainccinv(0.5, half, erfc(z / np.sqrt(2.0)))
    )
    return np.asarray(normal * np.exp(0.5 * CubicSpline(z, np.log(square) - 2.0 * np.log(z))(normal)))
