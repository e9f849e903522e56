"""Generative exponent of a link: the first degree in which the label tells something about z."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hermite.arrays import Array
from hermite.conversion import expand
from hermite.expansion import HermiteExpansion
from hermite.exponents.intervals import interval_moments
from hermite.exponents.pre_images import label_cells
from hermite.integers import as_integer
from hermite.text.messages import shown

HIGHEST_DEGREE = 24
"""Largest degree looked at: 2√24 + 6, as far as h_24 must be followed, is within what `expand` has looked at."""

THRESHOLD = 1e-6
"""λ_k² up to this size counts as zero."""


class GenerativeExponent(NamedTuple):
    """Generative exponent k* and λ_k*², dimensionless."""

    exponent: int
    lambda_squared: float


def label_correlations(link: object, degree: int = 8) -> Array:
    r"""Return λ_k² = E ζ_k(Y)², ζ_k(y) = E[h_k(Z) | Y = y], for Y = σ(Z), Z ~ N(0, 1), and k = 0 ... `degree`.

    λ_k² is the squared correlation of h_k(Z) with the best function of the label, ζ_k, so that 0 <= λ_k² <= 1, λ_k² = 1
    where the label determines h_k, and λ_k² >= c_k² / E σ². Computed from bins of Y whose pre-images are exact
    intervals: a lower bound that grows with the number of bins, here within some 1e-5 k of its limit for links of a
    few branches, and zero to rounding wherever λ_k is. Atoms of Y (relu at 0, sign) are bins of their own.

    Parameters
    ----------
    link : str, mapping, sympy expression, callable or HermiteExpansion
        Whatever `hermite.expand` takes.
    degree : int, default 8
        Largest k, from 1 to 24.

    Returns
    -------
    ndarray, shape (degree + 1,)
        λ_0² = 1, λ_1² ... λ_degree², dimensionless.

    Raises
    ------
    TypeError, ValueError
        If `expand` refuses the link, or `degree` is no integer from 1 to 24.

    References
    ----------
    Damian, Pillaud-Vivien, Lee, Bruna, arXiv:2403.05529, definition 1.

    Examples
    --------
    >>> label_correlations("sign", 3).round(4).tolist()
    [1.0, 0.6366, 0.0, 0.1061]
    """
    return _correlations(expand(link), _checked_degree(degree))


def generative_exponent(link: object) -> GenerativeExponent:
    r"""Return the generative exponent k* of a link, the first k >= 1 with λ_k² > 1e-6, and λ_k*².

    With λ_k² = E ζ_k(Y)² as in `label_correlations`. Direction u is found from d^max(1, k*/2) samples of
    y = σ(u·x), up to a constant over λ_k*², by transforming labels; the information exponent k >= k* rules what SGD
    sees of them as they are. k* is 1 or 2 for every polynomial, and the same for any one-to-one function of y and for
    y with independent noise.

    Parameters
    ----------
    link : str, mapping, sympy expression, callable or HermiteExpansion
        Whatever `hermite.expand` takes.

    Returns
    -------
    GenerativeExponent
        The pair (exponent, lambda_squared).

    Raises
    ------
    TypeError, ValueError
        If `expand` refuses the link, it is constant, or λ_1² ... λ_24² all count as zero.

    References
    ----------
    Damian, Pillaud-Vivien, Lee, Bruna, arXiv:2403.05529.

    Examples
    --------
    >>> exponent, lambda_squared = generative_exponent("x^2 exp(-x^2)")
    >>> exponent, round(lambda_squared, 4)
    (4, 0.23)
    >>> generative_exponent("he3").exponent
    1
    """
    expansion = expand(link)
    for degree in (4, 12, HIGHEST_DEGREE):
        squares = _correlations(expansion, degree)
        found = np.flatnonzero(squares[1:] > THRESHOLD)
        if found.size:
            exponent = int(found[0]) + 1
            return GenerativeExponent(exponent, float(squares[exponent]))
    msg = (
        f"Argument `link` must have a generative exponent of at most {HIGHEST_DEGREE}, but λ_k² of {expansion.name!r} "
        f"is at most {THRESHOLD:g} up to there: it is constant, or its labels tell next to nothing."
    )
    raise ValueError(msg)


def coefficient_shares(expansion: HermiteExpansion) -> Array:
    """Return c_j² / Var σ, j = 0 ... order, the entry of j = 0 set to 0; the variance without cancellation."""
    squares = np.square(expansion.coefficients)
    squares[0] = 0.0
    shares: Array = squares / (float(np.sum(squares)) + expansion.truncation_error**2)
    return shares


def _correlations(expansion: HermiteExpansion, degree: int) -> Array:
    """Return λ_0² ... λ_degree², from the intervals that carry all but rounding of h_degree² γ."""
    cells = label_cells(expansion.link.value, 2.0 * degree**0.5 + 6.0)
    moments = np.stack([np.bincount(cells.bins, row) for row in interval_moments(cells.ends, degree)])
    seen = moments[0] > 0.0
    squares: Array = np.sum(moments[:, seen] ** 2 / moments[0, seen], axis=1)
    return np.minimum(squares, 1.0)


def _checked_degree(degree: int) -> int:
    rule = f"Argument `degree` must be an integer from 1 to {HIGHEST_DEGREE}, but is {shown(degree)}."
    value = as_integer(degree)
    if value is None and not isinstance(degree, bool):
        raise TypeError(rule)
    if value is None or not 1 <= value <= HIGHEST_DEGREE:
        raise ValueError(rule)
    return value
