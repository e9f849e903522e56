r"""Layer-wise training and the width that a teacher asks for, from the law of random starts.

With the second layer frozen and equal, a neuron on the sphere moves by the correlation flow, in which
d ln(C_p/C_q)/dt = k c_k² (a_p C_p^(k−2) − a_q C_q^(k−2)). So the direction of largest a_p |C_p|^(k−2) at the start
wins, exactly; for odd k only those with C_p > 0 count. At large d the overlaps of a uniform start are independent and
normal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem import Teacher
from dynamics.problem.checks import check_type, checked_integer, checked_number, require
from dynamics.theory.pairs import match_greedily
from hermite import HermiteExpansion, expand
from hermite.arrays import Array

#: Nodes of the trapezoidal rule in the logarithm of an overlap, from e^`LOWEST` to `FURTHEST` standard deviations. Its
#: integrand is smooth and vanishes at both ends, so that the rule is exact to rounding.
NODES, LOWEST, FURTHEST = 4000, -38.0, 12.0


def layerwise_chances(teacher: Teacher, link: object = "he4") -> Array:
    r"""Return the chance π_p that a neuron which is trained with a frozen second layer learns direction p, shape (P,).

    .. math:: \pi_p = \int_0^\infty \sqrt{\tfrac{2}{\pi}} e^{-z^2/2} \prod_{q \ne p}
        \operatorname{erf}\Big(\frac{z}{\sqrt 2} \Big(\frac{a_p}{a_q}\Big)^{1/(k-2)}\Big) dz

    for even k. For odd k a neuron can learn directions of positive overlap alone: half the density, and Φ(·) for
    erf(·/√2); the chances then add up to 1 − 2^(−P). A network of m such neurons whose second layer is fitted
    afterwards misses Σ_p a_p² (1 − π_p)^m of the loss on average (`layerwise_loss`).

    Parameters
    ----------
    teacher : Teacher
        Positive coefficients a_p of orthonormal directions.
    link : link, default "he4"
        Of information exponent k ≥ 3; its first degree decides alone.

    Raises
    ------
    ValueError
        If a coefficient is not positive, directions are oblique, or k ≤ 2.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv:2504.19983, for the dynamics; the quadrature is this program's.

    Examples
    --------
    >>> chances = layerwise_chances(Teacher.power_law(16, 1.0), "he4")
    >>> round(float(chances[-1]), 6), round(float(chances.sum()), 12)
    (0.003717, 1.0)
    """
    from scipy.special import erf, log_ndtr

    k = _checked_link(link).information_exponent
    a = _checked_coefficients(teacher)
    # In u = z a_p^(1/(k−2)) the product over directions is one function for all p.
    scale = a ** (-1.0 / (k - 2))
    x, step = np.linspace(LOWEST - np.log(scale.min()), np.log(FURTHEST / scale.min()), NODES, retstep=True)
    z = np.exp(x)[:, None] * scale
    logs = log_ndtr(z) if k % 2 else np.log(erf(z / np.sqrt(2.0)))
    density = np.sqrt((1.0 if k % 2 else 4.0) / (2.0 * np.pi)) * z * np.exp(-0.5 * z**2)
    chances: Array = step * np.sum(density * np.exp(logs.sum(axis=1)[:, None] - logs), axis=0)
    return chances


def layerwise_loss(teacher: Teacher, widths: ArrayLike, link: object = "he4") -> Array:
    r"""Return the mean loss of layer-wise training, Σ_p a_p² (1 − π_p)^m, at each width m, dimensionless.

    The second layer is fitted after every neuron has won its direction, at g(1) = 1.

    Parameters
    ----------
    teacher : Teacher
        As of `layerwise_chances`, which raises ValueError for others.
    widths : array_like of int
        Numbers m ≥ 1 of neurons, any shape.
    link : link, default "he4"
        Of information exponent k ≥ 3.

    Examples
    --------
    >>> teacher = Teacher.power_law(1024, 1.0)
    >>> layerwise_loss(teacher, [16, 256]).round(4).tolist()
    [0.124, 0.0364]
    """
    m = np.asarray(widths)
    require(m.size > 0 and bool((m >= 1).all()), f"Argument `widths` must be at least 1, but are {m.tolist()}.")
    missed = np.log1p(-layerwise_chances(teacher, link))
    loss: Array = np.exp(m[..., None] * missed) @ teacher.coefficients**2
    return loss


class Width(NamedTuple):
    """A number of neurons, and the chance measured at it with the ends of its interval of 95 %."""

    neurons: int
    chance: float
    chance_low: float
    chance_high: float


def width_for(
    teacher: Teacher, *, top: int, chance: float = 0.95, link: object = "he4", draws: int = 1000, seed: int = 0
) -> Width:
    r"""Return the fewest neurons of a random start that greedy matching gives all of the first directions to.

    .. math:: m = \min\{m : P(\text{directions } 1, \dots, \bar p \text{ are all matched}) \ge 1 - \delta\}

    Overlaps are drawn as independent normal numbers, the law of uniform starts at large d. The same draws serve every
    width (the first m rows of each), and bisection finds m, whose error is that of the chance.

    Parameters
    ----------
    teacher : Teacher
        Positive coefficients of orthonormal directions, the largest first.
    top : int
        p̄, the number of first directions that must all be matched.
    chance : float, default 0.95
        1 − δ.
    link : link, default "he4"
        Of information exponent k ≥ 3.
    draws, seed : int
        Number of random starts, and the seed of all of them.

    Returns
    -------
    Width
        `neurons`, and the `chance` measured there with its Wilson interval `chance_low`, `chance_high`.

    Raises
    ------
    ValueError
        If the teacher or link is refused by `layerwise_chances`, `top` exceeds P, or no width up to 64 P is enough.

    Examples
    --------
    >>> width_for(Teacher.power_law(32, 1.0), top=4, draws=200).neurons
    15
    """
    from scipy.stats import binomtest

    k = _checked_link(link).information_exponent
    a = _checked_coefficients(teacher)
    count = checked_integer(top, "top", minimum=1, maximum=a.size)
    share = checked_number(chance, "chance", positive=True)
    require(share < 1.0, f"Argument `chance` must be below 1, but is {share:g}.")
    starts = checked_integer(draws, "draws", minimum=1)
    seeds = np.random.SeedSequence(checked_integer(seed, "seed", minimum=0)).spawn(starts)

    def matched(width: int) -> int:
        """Return the number of starts in which all first directions are matched."""
        overlaps = (np.random.default_rng(child).standard_normal((width, a.size)) for child in seeds)
        return sum(bool((match_greedily(a, C, k)[:count] >= 0).all()) for C in overlaps)

    low, high = 0, count
    while (hits := matched(high)) < share * starts:
        low, high = high, 2 * high
        require(
            high <= 64 * a.size, f"Argument `chance` must be reached below {64 * a.size} neurons, but is {share:g}."
        )
    while high - low > 1:
        middle = (low + high) // 2
        middle_hits = matched(middle)
        if middle_hits >= share * starts:
            high, hits = middle, middle_hits
        else:
            low = middle
    interval = binomtest(hits, starts).proportion_ci(method="wilson")
    return Width(high, hits / starts, float(interval.low), float(interval.high))


def _checked_link(link: object) -> HermiteExpansion:
    """Return the expansion of a link; ValueError unless its information exponent is at least 3."""
    expansion = expand(link)
    k = expansion.information_exponent
    require(k >= 3, f"Argument `link` must have an information exponent of at least 3, but has k = {k}.")
    return expansion


def _checked_coefficients(teacher: Teacher) -> Array:
    """Return the coefficients a_p; ValueError unless they are positive and directions orthonormal."""
    check_type("teacher", teacher, Teacher, "a Teacher")
    require(teacher.is_orthonormal, "Argument `teacher` must have orthonormal directions, but has oblique ones.")
    a = teacher.coefficients
    require(bool((a > 0.0).all()), f"Argument `teacher` must have positive coefficients, but has {a.min():g}.")
    return a
