"""Normalised Hermite polynomials h_j = He_j / sqrt(j!): values, series, derivatives, kernels, moments of products.

The recurrences stay finite in float64 up to degree 300. Three identities carry the module (Abramowitz & Stegun
22.7-22.8, rescaled), with z ~ N(0, 1) in the last:

    z h_j = sqrt(j+1) h_(j+1) + sqrt(j) h_(j-1),    h_j' = sqrt(j) h_(j-1),    E[h_i(z) h_j(z)] = 1{i = j}.

Points `z` may have any shape and are dimensionless; `coefficients` are c_0 ... c_N in the orthonormal basis.

*Moments of products.* For correlated z with unit variances and covariances Q, and f̂_k = E f^(k)(z) = sqrt(k!) c_k,
Wick's theorem for He_k(z_1) He_l(z_2) … counts the ways to join all legs of all polynomials between different ones:

    E[f(z_a) g(z_b) φ(z_i) ψ(z_j)] = Σ  f̂_(e+r+s) ĝ_(e+r'+s') φ̂_(r+r'+t) ψ̂_(s+s'+t)
                                        Q_ab^e Q_ai^r Q_aj^s Q_bi^r' Q_bj^s' Q_ij^t / (e! r! s! r'! s'! t!),

a sum over six numbers of edges e, r, s, r', s', t ≥ 0, finite for polynomials; a series f of He_k has the coefficients
f̂_k / k!, which is where the factorials of the degrees go. It is exact, also for coinciding vectors (Q = ±1). The sum
over t depends on r + r', s + s' and Q_ij alone (`contracted_pair`). The rest is a `DiagramTable`, for sums over many
vectors z_a, z_b with z_i and z_j kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hermite.arrays import Array, Integers
from hermite.text.messages import require

#: Largest degree the package accepts; every recurrence is tested up to it.
MAX_DEGREE = 300

_NORM = (2.0 * math.pi) ** -0.25


def evaluate(degree_max: int, z: ArrayLike) -> Array:
    """Return h_0(z) ... h_N(z) in the rows of an array of shape (N + 1, *z.shape).

    Forward recurrence h_(j+1) = (z h_j - sqrt(j) h_(j-1)) / sqrt(j+1), which is stable for every real z.

    >>> evaluate(2, [0.0, 1.0])[2].round(4).tolist()
    [-0.7071, 0.0]
    """
    return _three_term(degree_max, z, np.ones_like)


def evaluate_functions(degree_max: int, z: ArrayLike) -> Array:
    """Return the Hermite functions h_j(z) φ(z)^(1/2), j = 0 ... N, in rows, with φ the standard normal density.

    They are orthonormal in L²(dz) and bounded by 0.7, obey the recurrence of h_j and never overflow: the form that
    quadrature needs.
    """
    return _three_term(degree_max, z, lambda points: _NORM * np.exp(-0.25 * points**2))


def _three_term(degree_max: int, z: ArrayLike, first: Callable[[Array], Array]) -> Array:
    """Return the rows of the recurrence that begin with `first`, a function of the points."""
    points = np.asarray(z, dtype=np.float64)
    table = np.empty((degree_max + 1, *points.shape))
    table[0] = first(points)
    table[1:2] = points * table[0]
    for j in range(1, degree_max):
        table[j + 1] = (points * table[j] - math.sqrt(j) * table[j - 1]) / math.sqrt(j + 1)
    return table


def series_value(coefficients: ArrayLike, z: ArrayLike) -> Array:
    """Return Σ_j c_j h_j(z), in the shape of `z`; a numpy scalar where `z` is a scalar. Overflow gives ±inf.

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
    return np.asarray(total)[()]


def differentiate(coefficients: ArrayLike) -> Array:
    """Return the coefficients of the derivative of a series, sqrt(j+1) c_(j+1), from h_j' = sqrt(j) h_(j-1).

    >>> differentiate([5.0, 0.0, 0.0, 0.0, 1.0]).tolist()
    [0.0, 0.0, 0.0, 2.0]
    """
    c = np.asarray(coefficients, dtype=np.float64)
    return np.zeros(1) if c.size == 1 else np.sqrt(np.arange(1.0, c.size)) * c[1:]


def series_derivative(coefficients: ArrayLike, z: ArrayLike) -> Array:
    """Return the derivative Σ_j c_j sqrt(j) h_(j-1)(z) of a series, in the shape of `z`.

    >>> float(series_derivative([0.0, 2.0], 3.0))
    2.0
    """
    return series_value(differentiate(coefficients), z)


def kernel_value(coefficients: ArrayLike, s: ArrayLike, n: int = 0) -> Array:
    """Return the n-th derivative of the kernel g(s) = Σ_j c_j² s^j, Σ_j c_j² j! / (j-n)! s^(j-n), by Horner's rule.

    g(u·v) = E[σ(u·x) σ(v·x)] for unit vectors u, v and x ~ N(0, I), since E[h_i(u·x) h_j(v·x)] = 1{i = j} (u·v)^j.
    Cosines `s` have |s| <= 1 in every use; this is not checked.

    >>> h4 = [0.0, 0.0, 0.0, 0.0, 1.0]
    >>> float(kernel_value(h4, 0.5)), float(kernel_value(h4, 0.5, n=1))
    (0.0625, 0.5)
    """
    require(n >= 0, f"Argument `n` must be at least 0, but is {n}.")
    weights, points = np.square(coefficients, dtype=np.float64), np.asarray(s, dtype=np.float64)
    value = np.zeros(points.shape)
    # Past n of about 120 the derivative of a series of degree 300 may itself exceed float64: it is then infinite.
    with np.errstate(over="ignore"):
        for _ in range(n):
            weights = np.arange(1.0, weights.size) * weights[1:]
        # A loop: `numpy.polynomial.polynomial.polyval` takes twice as long for the matrices of small networks.
        for weight in weights[::-1].tolist():
            value *= points
            if weight != 0.0:
                value += weight
    result: Array = value[()]
    return result


def trimmed(coefficients: Array) -> tuple[float, ...]:
    """Return the coefficients up to the last nonzero one, at least one.

    >>> trimmed(np.array([0.0, 1.0, 0.0]))
    (0.0, 1.0)
    """
    return tuple(np.trim_zeros(coefficients, "b").tolist()) or (0.0,)


def mean_derivatives(coefficients: ArrayLike) -> Array:
    """Return f̂_k = E f^(k)(z) = sqrt(k!) c_k of a series with coefficients c_k, z ~ N(0, 1), shape (N + 1,).

    >>> mean_derivatives([0.0, 0.0, 0.0, 1.0]).round(4).tolist()
    [0.0, 0.0, 0.0, 2.4495]
    """
    c = np.asarray(coefficients, dtype=np.float64)
    return c * np.sqrt([float(math.factorial(k)) for k in range(c.size)])


def contracted_pair(phi: ArrayLike, psi: ArrayLike, size: int) -> Array:
    r"""Return the coefficients in s^t of E[φ^(R)(z_i) ψ^(S)(z_j)] = Σ_t φ̂_(R+t) ψ̂_(S+t) s^t / t!, s = Q_ij.

    `phi` and `psi` are mean derivatives; R, S and t each run to `size`, at least the lengths of both series for nothing
    to be lost. Entries are [R, S, t].

    >>> contracted_pair([0.0, 0.0, 2.0], [0.0, 0.0, 2.0], 3)[0, 0].tolist()
    [0.0, 0.0, 2.0]
    """
    first, second = (padded(means, 2 * size) for means in (phi, psi))
    index = np.arange(size)
    shifted = index[:, None] + index
    inverse = 1.0 / np.array([float(math.factorial(t)) for t in range(size)])
    return np.asarray(first[shifted][:, None, :] * second[shifted][None, :, :] * inverse)


@dataclass(frozen=True, slots=True, eq=False)
class DiagramTable:
    """Diagrams, one per row, without the factor that depends on Q_ij."""

    #: Numbers of edges e (a–b), r (a–i), s (a–j), r' (b–i), s' (b–j), shape (D, 5).
    edges: Integers
    #: Weights in Σ_ab E[f f φ ψ] and in Σ_ab E[f g φ ψ], shape (D, 2).
    weights: Array


def count_diagrams(f: ArrayLike, g: ArrayLike) -> int:
    """Return an upper bound on the number of rows that `diagrams` goes through, without making the rows."""
    first = _support(f)
    both = {*first, *_support(g)}
    counts = (
        [sum(k - e + 1 for k in degrees if k >= e) for degrees in (first, both)]
        for e in range(max(first, default=-1) + 1)
    )
    return sum(of_first * of_both for of_first, of_both in counts)


def diagrams(f: ArrayLike, g: ArrayLike, allowed: NDArray[np.bool_]) -> DiagramTable:
    r"""Return the diagrams of Σ_ab w_a w_b E[f(z_a) f(z_b) φ ψ] and of Σ_ab w_a w_b E[f(z_a) g(z_b) φ ψ].

    Exchanging a and b leaves such a sum as it is, so of two diagrams that differ by it one is kept, with the weights
    added. The first half-diagram (e, r, s) of each row has f̂_(e+r+s) ≠ 0, and r s = 0 wherever there is a choice: then
    Σ_a w_a Q_ab^e Q_ai^r Q_aj^s belongs to one of i, j instead of to the pair, which is cheaper.

    `f` and `g` are mean derivatives. `allowed` says whether the factor of φ and ψ can differ from 0 at
    [r + r', s + s']; beyond it, it is 0.

    >>> table = diagrams([0.0, 1.0], [0.0, 0.0], np.array([[True]]))
    >>> table.edges.tolist(), table.weights.tolist()
    ([[1, 0, 0, 0, 0]], [[1.0, 0.0]])
    """
    size = max(np.size(f), np.size(g))
    hat = np.stack([padded(f, size), padded(g, size)])
    top = max(_support(f), default=-1)
    factorials = np.array([float(math.factorial(n)) for n in range(size)])
    edges, weights = [np.zeros((0, 5), dtype=np.int64)], [np.zeros((0, 2))]
    for e in range(top + 1):
        # The (r, s) for which f̂ or ĝ is not 0 at e + r + s, those with r s = 0 first.
        degrees = [k - e for k in np.flatnonzero(hat.any(axis=0)) if k >= e]
        pairs = [(r, int(q) - r) for q in degrees for r in range(int(q) + 1)]
        pairs.sort(key=lambda pair: (pair[0] * pair[1] > 0, sum(pair), pair[0]))
        r, s = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        scale = 1.0 / (factorials[r] * factorials[s])
        of_f, of_g = hat[:, e + r + s] * scale
        left, right = np.nonzero(np.repeat((of_f != 0.0)[:, None], r.size, axis=1))
        R, S = r[left] + r[right], s[left] + s[right]
        inside = np.maximum(R, S) < allowed.shape[0]
        inside[inside] = allowed[R[inside], S[inside]]
        # Half-diagrams are sorted with the cheap ones first; of two that f gives both, the later one is on the right.
        inside &= (of_f[right] == 0.0) | (left <= right)
        left, right = left[inside], right[inside]
        twice = np.where((of_f[right] != 0.0) & (left != right), 2.0, 1.0)
        of_ff = twice * of_f[left] * of_f[right]
        of_fg = of_f[left] * of_g[right] + np.where(twice == 2.0, of_g[left] * of_f[right], 0.0)
        part = np.stack([of_ff, of_fg], axis=1) / math.factorial(e)
        kept = part.any(axis=1)
        edges.append(np.stack([np.full(left.size, e), r[left], s[left], r[right], s[right]], axis=1)[kept])
        weights.append(part[kept])
    return DiagramTable(np.concatenate(edges), np.concatenate(weights))


def padded(means: ArrayLike, size: int) -> Array:
    """Return the first `size` entries, filled up with zeros."""
    entries = np.asarray(means, dtype=np.float64)[:size]
    return np.concatenate([entries, np.zeros(size - entries.size)])


def _support(means: ArrayLike) -> list[int]:
    """Return the degrees at which a series does not vanish."""
    return [int(k) for k in np.flatnonzero(np.asarray(means, dtype=np.float64))]
