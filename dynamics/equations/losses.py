r"""Losses and learned masses of given overlaps, in numpy: for records of SGD, which need no compiled functions.

.. math:: E(f - f^*)^2 = E f^{*2} - 2 \sum_{ip} n_i a_p g(C_{ip}) + \sum_{ij} n_i n_j g(G_{ij})

of the 2-homogeneous student; of a spherical network, all n_i = 1/m. Dimensionless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.emergence import EMERGENCE_LEVEL, LEARNED_SHARE, LearnedPart
from hermite.polynomials import padded, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations.degrees import DegreePart
    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Numbers of an overlap matrix of which the kernel is computed at once.
BLOCK = 1 << 16
#: Numbers of the Gram matrix treated at a time by numpy.
PAIRS = 1 << 20


def link_powers(problem: Problem) -> tuple[Array, Array]:
    """Return c and c* of student and teacher at one length, without zeros at the end."""
    links = [problem.activation.coefficients, problem.teacher_link.coefficients]
    count = max(len(trimmed(c)) for c in links)
    return padded(links[0], count), padded(links[1], count)


def teacher_term(problem: Problem) -> float:
    """Return E f*² = Σ_pq a_p a_q g(T_pq), the loss of f = 0, without ever forming T for an orthonormal teacher."""
    a, link = problem.teacher.coefficients, problem.teacher_link
    if problem.teacher.is_orthonormal:
        squares = float(np.sum(a**2))
        return link.kernel_at_one * squares + float(link.coefficients[0]) ** 2 * (float(a.sum()) ** 2 - squares)
    return float(a @ link.kernel(problem.teacher.gram()) @ a)


def population_loss(
    link: HermiteExpansion | DegreePart, constant: float, a: Array, C: Array, G: Array, n: Array
) -> Any:
    """Return `constant` − 2 Σ_ip n_i a_p g(C_ip) + Σ_ij n_i n_j g(G_ij) of a state, or of each of a stack."""
    own = np.sum(weighed_kernel(n, link, G) * n, axis=-1)
    return constant - 2.0 * np.sum(weighed_kernel(n, link, C) * a, axis=-1) + own


def weighed_kernel(n: Array, link: HermiteExpansion | LearnedPart | DegreePart, overlaps: Array) -> Array:
    """Return Σ_i n_i g(M_ip) of overlaps M of a state, or of each of a stack, by blocks that stay in cache."""
    m, columns = overlaps.shape[-2:]
    sums, size = np.zeros((*overlaps.shape[:-2], columns)), max(BLOCK // columns, 1)
    for rows in (slice(begin, begin + size) for begin in range(0, m, size)):
        sums += np.matmul(n[..., None, rows], link.kernel(overlaps[..., rows, :]))[..., 0, :]
    return sums


def learned_mass(link: HermiteExpansion, C: Array, n: Array) -> Array:
    r"""Return the mass that neurons carry of each direction p, which is learned when that reaches a_p/2.

    .. math:: \sum_i \frac{n_i\, g_3(C_{ip})}{g_3(1)}, \qquad g_3(s) = \sum_{j \ge 3} c_j^2 s^j

    of overlaps C (m, P) and squared norms n (m,), all dimensionless, shape (P,); NaN where the link has no part of
    degree 3 or more.
    """
    return LearnedPart.of(link).mass(C, n)


def largest_overlaps(problem: Problem, C: Array) -> Array:
    """Return max_i |C_ip| of overlaps (…, m, P), of those above 0 alone where the sign matters, shape (…, P)."""
    opposite = 0.0 if problem.information_exponent % 2 else -C.min(axis=-2)
    return np.asarray(np.maximum(C.max(axis=-2), opposite))


def events_of_directions(part: LearnedPart, a: Array, C: Array, n: Array, *, sign_matters: bool) -> tuple[Array, Array]:
    """Return the values of `dynamics.equations.vectors.write_events` of some directions."""
    size = np.maximum(C, 0.0) if sign_matters else C
    return np.max(size**2, axis=0) - EMERGENCE_LEVEL, part.mass(C, n) - LEARNED_SHARE * a


def squared_error(problem: Problem, vectors: Array, overlaps: Array) -> float:
    """Return E(f − f*)² of neurons w (m, D) with overlaps w·θ (m, P)."""
    return error_of_means(problem, mean_of_pairs(vectors, problem.activation.kernel), overlaps)


def error_of_means(problem: Problem, own: float, overlaps: Array) -> float:
    """Return E(f − f*)² of neurons of weight 1/m: `own` is the mean of g(w_i·w_j), `overlaps` are w·θ (m, P)."""
    student, other = link_powers(problem)
    attraction = np.polynomial.polynomial.polyval(overlaps, student * other).mean(axis=0)
    return float(own - 2.0 * attraction @ problem.teacher.coefficients + teacher_term(problem))


def mean_of_pairs(vectors: Array, kernel: Callable[[Array], Array], others: Array | None = None) -> float:
    """Return (1/mn) Σ_ij g(w_i·v_j) for w (m, D) and v (n, D), w itself by default; strips keep memory that of w."""
    second = vectors if others is None else others
    strip, total = max(PAIRS // len(second), 1), 0.0
    for first in range(0, len(vectors), strip):
        total += float(kernel(vectors[first : first + strip] @ second.T).sum())
    return total / (len(vectors) * len(second))
