"""How a pair of neuron and direction spends its time: in search, in descent, and in learning the norm."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.equations.transit import logit_of_square, transit_table
from dynamics.problem.checks import checked_number, require
from dynamics.problem.emergence import EMERGENCE_LEVEL
from hermite import expand
from hermite.arrays import Array, real_array
from hermite.text.messages import shown

#: Squared overlap at which the search ends.
FOUND_LEVEL = 0.1


class LearningShares(NamedTuple):
    """Shares of the time in which a pair learns its direction; they add up to 1, and are NaN where it never does.

    Examples
    --------
    >>> shares = learning_shares("he4", 0.1)
    >>> [round(float(share), 3) for share in shares]
    [0.757, 0.084, 0.159]
    """

    search: Array
    descent: Array
    learning: Array


def shares_of_times(reached: Array, emerged: Array, learned: Array) -> LearningShares:
    """Return the shares of search, descent and learning, from the times at which each of the three ends.

    The times, of one shape, are those at C² = 0.1, C² = ½ and half of the weight. A search or descent that ends after
    the last counts until then, since the shares add up to 1.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        first, second = (np.minimum(times, learned) / learned for times in (reached, emerged))
    first = np.minimum(first, second)
    return LearningShares(first, second - first, 1.0 - second)


def learning_shares(
    link: object = "he3", overlap: ArrayLike = 0.1, *, squared_norm: float = 1e-4, coefficient: float = 1.0
) -> LearningShares:
    r"""Return the shares of search, descent and learning in the time of one neuron and one direction alone.

    .. math:: C' = a\, g'(C) (1 - C^2), \qquad (\ln n)' = 4\, (a\, g(C) - n\, g(1))

    The search ends at C² = 0.1, the descent at C² = ½, and the learning when the pair carries half of the weight,
    n g(C)/g(1) = a/2. Whether most samples are search depends on the information exponent: at C_0 = 1/√d the search has
    .17, .29, .38 of the time for k = 2, but .43, .75, .91 for k = 3 (d = 100, 1000, 10⁴).

    Parameters
    ----------
    link : link, default "he3"
        Anything that `hermite.expand` takes, with kernel g(C) = Σ_j c_j² C^j over j ≥ 1.
    overlap : array_like
        Overlaps C_0 at the start, above 0 and below 1, of any shape.
    squared_norm, coefficient : float
        n at the start, and the weight a of the direction, both positive. All quantities are dimensionless.

    Returns
    -------
    LearningShares
        `search`, `descent` and `learning` in the shape of `overlap`, NaN where the pair never learns.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> shares = learning_shares("he3", [0.1, 0.01])
    >>> shares.search.round(3).tolist(), shares.learning.round(3).tolist()
    ([0.428, 0.911], [0.433, 0.067])
    """
    start = real_array(overlap, "overlap")
    require(
        bool(((start > 0.0) & (start < 1.0)).all()) and start.size > 0,
        f"Argument `overlap` must be above 0 and below 1, but is {shown(overlap)}.",
    )
    n = checked_number(squared_norm, "squared_norm", positive=True)
    a = checked_number(coefficient, "coefficient", positive=True)
    c = expand(link).coefficients
    require(
        c[0] == 0.0, f"Argument `link` must have c_0 = 0, since norms else grow from the start, but c_0 = {c[0]:g}."
    )
    xi = logit_of_square(start.ravel())
    table = transit_table(c, 1, float(xi.min()))
    reached, emerged = (table.reached_after(xi, level) for level in (FOUND_LEVEL, EMERGENCE_LEVEL))
    shares = shares_of_times(reached, emerged, table.learned_after(xi, np.full_like(xi, a / n)))
    return LearningShares(*(share.reshape(start.shape) for share in shares))
