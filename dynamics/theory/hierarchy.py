r"""Hierarchical targets: how much of the quadratic form p inside y = g(p(x)) a first stage finds in n samples.

p = ⟨A, xxᵀ − 1⟩/√2 with |A|_F = 1 and a flat spectrum, eigenvalues ±1/√d in equal numbers. The first stage is one step
of any layer that is flat on degree 2, Â = (1/(n√2)) Σ y (xxᵀ − 1), whose mean lies in the plane of A and 1. With

.. math:: c = E[y p], \qquad c_1 = \frac{E[y (|x|^2 - d)]}{\sqrt{2d}}, \qquad
   V = \tfrac12 E\big[y^2 (|x|^4 - 2|x|^2 + d)\big], \qquad
   \rho^2 = \frac{c^2}{c^2 + c_1^2 + (V - c^2 - c_1^2)/n}

is the squared overlap ⟨Â, A⟩²/|Â|², exact up to the scatter of |Â|², which is small for large n. Since p = R b/√(2d),
with R ~ χ²_d and (1 + b)/2 ~ Beta(d/4, d/4) independent, means are double sums. The best function of p̂ then leaves
Σ g_k² (1 − ρ^{2k}) of the labels, if p counts as normal, which is good enough for bounded links alone
(arXiv:2311.13774).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import hermite
from dynamics.problem.checks import check_that, checked_integer, require
from dynamics.theory.recovery import FAR, NEAR, largest_label
from hermite import HermiteExpansion
from hermite.arrays import Array

#: Standard deviations that rules reach to, nodes in √R, and panels in b of eight nodes each.
REACH, RADII, PANELS = 9.0, 161, 200


class HierarchyRecovery(NamedTuple):
    """Squared overlap of the first stage, and error of the best second stage, at each number of samples."""

    samples: Array
    overlap_squared: Array
    #: Mean squared error of the best function of p̂; NaN for links without a bound, for which there is no law.
    second_stage_loss: Array


def predict_hierarchy(link: object, *, dimension: int, samples: Sequence[int]) -> HierarchyRecovery:
    r"""Predict how much of a quadratic form the first stage of a hierarchical target finds, and what is left then.

    .. math:: y = g\Big(\frac{\langle A, xx^T - 1\rangle}{\sqrt2}\Big), \qquad
       \rho^2 = \frac{c^2}{c^2 + c_1^2 + (V - c^2 - c_1^2)/n}, \qquad \sum_k g_k^2 (1 - \rho^{2k})

    with the constants of `dynamics.theory.hierarchy`; n ~ d² samples are needed.

    Parameters
    ----------
    link : str, dict, sympy expression, callable or HermiteExpansion
        g, with a component of degree 1: for others the mean of the first stage points along A², not along A.
    dimension : int
        Even d ≥ 4. A has the eigenvalues ±1/√d in equal numbers.
    samples : sequence of int
        Numbers n of samples.

    Returns
    -------
    HierarchyRecovery
        Named tuple of `samples`, `overlap_squared` and `second_stage_loss`, one number per n each, dimensionless. The
        last is NaN for links without a bound: their labels feel that p is not normal.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    References
    ----------
    arXiv:2311.13774.

    Examples
    --------
    >>> found = predict_hierarchy("sign(z)", dimension=60, samples=[900, 3600, 14400])
    >>> found.overlap_squared.round(3).tolist(), found.second_stage_loss.round(3).tolist()
    ([0.235, 0.552, 0.831], [0.849, 0.628, 0.375])
    """
    g, d, counts = checked_hierarchy(link, dimension, samples)
    p, square, weights = _law(d)
    y = g.value(p)
    c, along_one = float(weights @ (y * p)), float(weights @ (y * (square - d))) / np.sqrt(2.0 * d)
    variance = 0.5 * float(weights @ (y**2 * (square**2 - 2.0 * square + d)))
    n, mean = np.array(counts, dtype=np.float64), c**2 + along_one**2
    found = c**2 / (mean + (variance - mean) / n)
    left = g.norm_squared - g.kernel(found) if is_bounded(g) else np.full(n.size, np.nan)
    return HierarchyRecovery(n, found, left)


def checked_hierarchy(
    link: object, dimension: object, samples: Sequence[int]
) -> tuple[HermiteExpansion, int, list[int]]:
    """Return g, d and the numbers of samples, or say in one sentence what is wrong."""
    g, d = hermite.expand(link), checked_integer(dimension, "dimension", minimum=4)
    check_that(d % 2 == 0, "dimension", "be even, for eigenvalues of both signs in equal numbers", f"is {d}")
    has_first = g.order >= 1 and bool(g.coefficients[1] != 0.0)
    why = "without which the first stage points along A², not A"
    require(has_first, f"Argument `link` must have a component of degree 1, {why}, but {g.name} has none.")
    counts = [checked_integer(n, "samples", minimum=1) for n in samples]
    check_that(counts, "samples", "hold at least one number of samples", "is empty")
    return g, d, counts


def is_bounded(link: HermiteExpansion) -> bool:
    """Return whether a link does not grow beyond |z| = 8."""
    near, far = (link.value(np.linspace(-reach, reach, 4001)) for reach in (NEAR, FAR))
    return bool(np.isfinite(max(largest_label(near, far), largest_label(-near, -far))))


def _law(d: int) -> tuple[Array, Array, Array]:
    """Return p and |x|² at the points of a rule, and its weights, whose sum is 1."""
    v = np.sqrt(d) + np.linspace(-REACH, REACH, RADII) / np.sqrt(2.0)
    v = v[v > 0.0]
    radial = (d - 1.0) * np.log(v / np.sqrt(d)) - 0.5 * (v**2 - d)
    # Panels on both sides of 0, at which odd links may jump.
    ends = np.linspace(-1.0, 1.0, PANELS + 1) * min(1.0, REACH * np.sqrt(2.0 / (d + 2.0)))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = 0.5 * np.diff(ends)
    b = (0.5 * (ends[1:] + ends[:-1])[:, None] + half[:, None] * nodes).ravel()
    angular = (half[:, None] * weights).ravel() * (1.0 - b**2) ** (0.25 * d - 1.0)
    found = np.outer(np.exp(radial), angular)
    square = np.repeat(v**2, b.size)
    return square * np.tile(b, v.size) / np.sqrt(2.0 * d), square, found.ravel() / found.sum()
