"""Which neuron learns which direction, decided by the start alone: greedy matching, and draws of its outcome."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hermite.arrays import Array, Integers

_QUANTILE_KNOTS = 1000


def match_greedily(coefficients: ArrayLike, overlap: ArrayLike, information_exponent: int) -> Integers:
    r"""Return the neuron matched with each direction, the strongest pair first, −1 where there is none.

    .. math:: \text{score}_{ip} = a_p\, |C_{ip}|^{k-2}

    The pair of largest score is matched and its neuron and direction are struck out, until no score is left. For odd k
    only positive overlaps count. Equal scores go to the smaller neuron, then to the smaller direction.

    One sort, O(m P log(m P)); the sorted list is thinned as rows and columns are struck out. ValueError is raised for
    k < 3, or if the shapes of `coefficients` (P,) and `overlap` (m, P) disagree.

    Examples
    --------
    >>> match_greedily([2.0, 1.0], [[0.1, 0.3], [-0.2, 0.1]], 4).tolist()
    [1, 0]
    """
    a = np.asarray(coefficients, dtype=np.float64)
    C = np.asarray(overlap, dtype=np.float64)
    if C.ndim != 2 or a.shape != C.shape[1:]:
        msg = f"Argument `overlap` must have shape (width, {a.size}), but has shape {C.shape}."
        raise ValueError(msg)
    if information_exponent < 3:
        msg = f"Argument `information_exponent` must be at least 3, but is {information_exponent}."
        raise ValueError(msg)
    strength = np.maximum(C, 0.0) if information_exponent % 2 else np.abs(C)
    return match_by_strength(a, strength, np.ones(C.shape, dtype=bool), information_exponent)[0]


def match_by_strength(
    a: Array, strength: Array, learns: NDArray[np.bool_], information_exponent: int
) -> tuple[Integers, Integers]:
    """Return the neurons (P,) that come to each direction first, and those that learn it; −1 where there is none.

    The score is a_p S_ip^(k−2), with strengths S ≥ 0, shape (m, P), that do not count where they are 0. A direction
    whose first neuron does not learn it is learned by the next one that does (`learns`, shape (m, P)).
    """
    # The logarithm keeps the order where the power would underflow.
    with np.errstate(divide="ignore"):
        score = (np.log(a) + (information_exponent - 2) * np.log(strength)).ravel()
    order = np.argsort(-score, kind="stable")
    order = order[: np.count_nonzero(strength)]
    first, learning = np.full(a.size, -1, dtype=np.int64), np.full(a.size, -1, dtype=np.int64)
    # Of bytes, which the loop reads faster, as arrays they are for the rest.
    neuron_free, direction_free = bytearray(b"\1" * strength.shape[0]), bytearray(b"\1" * a.size)
    rows, columns = (np.frombuffer(free, dtype=bool) for free in (neuron_free, direction_free))
    while order.size:
        head = 4 * int(min(rows.sum(), columns.sum())) + 64
        for entry in order[:head].tolist():
            i, p = divmod(entry, a.size)
            if not (neuron_free[i] and direction_free[p]) or (first[p] >= 0 and not learns[i, p]):
                continue
            first[p] = i if first[p] < 0 else first[p]
            neuron_free[i] = False
            if learns[i, p]:
                learning[p], direction_free[p] = i, False
        if not (rows.any() and columns.any()):
            break
        order = order[head:]
        order = order[rows[order // a.size] & columns[order % a.size]]
    return first, learning


def draw_matched_overlaps(
    coefficients: Array, width: int, dimension: int, information_exponent: int, seed: int
) -> tuple[Integers, Array]:
    r"""Return neurons and overlaps (P,) that greedy matching finds at a random start, without the matrix of overlaps.

    Directions choose in order of decreasing a_p, the r-th among the N = m − r neurons still free (r = 0, 1, …), and
    overlaps count as independent:

    .. math:: C_p^2 = F^{-1}\left(U_p^{1/N}\right), \quad F \text{ the distribution } \mathrm{Beta}(1/2, (d-1)/2)

    For odd k the largest signed overlap is drawn, and directions whose overlaps are all negative stay unmatched. The
    rank of a direction stands for its neuron; where there is none it is −1, and the overlap NaN.
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
    found = normal > 0.0
    matched_neuron = np.full(coefficients.size, -1, dtype=np.int64)
    matched_overlap = np.full(coefficients.size, np.nan)
    matched_neuron[order[found]] = np.flatnonzero(found)
    size = _overlap_from_normal(normal[found], dimension)
    matched_overlap[order[found]] = size if odd else np.where(rng.integers(2, size=size.size) == 1, size, -size)
    return matched_neuron, matched_overlap


def draw_on_both_sides(
    coefficients: Array, width: int, dimension: int, equivalent: Callable[[Array], Array], learns: bool, seed: int
) -> tuple[tuple[Integers, Array], tuple[Integers, Array]]:
    """Return what `draw_matched_overlaps` returns for a link with two unlike sides: who comes first, and who learns.

    Of the N neurons still free the largest overlap of each sign is drawn, the two as if independent; `equivalent` says
    which overlap with θ one of either sign is worth. Where the first one does not learn, the largest positive one does,
    and two neurons are taken; N counts them as they come out with N = m − r.
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
    found, overlap = (np.full((2, coefficients.size), value) for value in (-1, np.nan))
    ahead = np.where(worth > near, -far, near)
    for row, which in enumerate((ahead, np.where(second, near, ahead))):
        there = np.flatnonzero(np.maximum(worth, near) > 0.0)
        found[row, order[there]], overlap[row, order[there]] = there, which[there]
    return (found[0], overlap[0]), (found[1], overlap[1])


def _overlap_from_normal(normal: Array, dimension: int) -> Array:
    """Return |C| with P(|C| > c) = P(|Z| > z), from a spline of ln(C² / z²) in z."""
    from scipy.interpolate import CubicSpline
    from scipy.special import betainccinv, betaincinv, erf, erfc

    if dimension == 1:
        return np.ones_like(normal)
    half = 0.5 * (dimension - 1)
    z = np.linspace(0.0, float(normal.max(initial=1.0)) + 0.5, _QUANTILE_KNOTS)[1:]
    square = np.where(
        z < 1.0,
        betaincinv(0.5, half, erf(z / np.sqrt(2.0))),
        betainccinv(0.5, half, erfc(z / np.sqrt(2.0))),
    )
    spline = CubicSpline(z, np.log(square) - 2.0 * np.log(z))
    overlap: Array = np.empty_like(normal)
    for begin in range(0, normal.size, 1 << 18):
        part = normal[begin : begin + (1 << 18)]
        overlap[begin : begin + (1 << 18)] = part * np.exp(0.5 * spline(part))
    return overlap
