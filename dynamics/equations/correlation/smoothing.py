r"""The correlation of a neuron and one direction, averaged over neurons around it: its signal and its gradient.

With w uniformly smoothed over (w + λz)/√(1 + λ²), z on the unit sphere orthogonal to w, a sample x enters through
a_0 = w·x and r² = |x|² − a_0² alone:

.. math:: \varphi(a_0, r^2) = E_\zeta\, \sigma\Big(\frac{a_0 + \lambda r \zeta}{\sqrt{1+\lambda^2}}\Big), \qquad
   E\zeta^{2j} = \mu_j = \prod_{i<j} \frac{2i+1}{d-1+2i},

ζ one coordinate of z. Where w turns by δ ⊥ w, a_0 changes by δ·x and r² by −2 a_0 δ·x, so that the gradient of φ in w
is ψ x_⊥ with

.. math:: \psi = \frac{\partial\varphi}{\partial a_0} - 2 a_0 \frac{\partial\varphi}{\partial r^2}.

The mean of y φ over samples, y = a σ*(θ·x), is a g_λ(C):

.. math:: g_\lambda(C) = \sum_k c_k c^*_k s_k(C), \qquad
   s_k = (1+\lambda^2)^{-k/2} \sum_j \binom{k}{2j} C^{k-2j} \lambda^{2j} (1-C^2)^j \mu_j.

At λ = 0 this is the kernel Σ c_k c*_k C^k, and ψ = σ'(a_0). (Damian, Nichani, Ge and Lee, arXiv:2305.10633.)
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import polynomial

from dynamics.equations.mean_field.system import link_powers

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Largest degree of a link that is smoothed, or whose steps have exact means: sums in powers lose digits beyond.
LARGEST_DEGREE = 12


def sphere_moments(dimension: int, count: int) -> Array:
    """Return μ_0 … μ_(count − 1), the even moments of a coordinate on the unit sphere of R^(d−1).

    Examples
    --------
    >>> sphere_moments(4, 3).round(12).tolist()
    [1.0, 0.333333333333, 0.2]
    """
    i = np.arange(count - 1, dtype=np.float64)
    return np.cumprod(np.concatenate([[1.0], (2.0 * i + 1.0) / (dimension - 1.0 + 2.0 * i)]))


def signal_powers(problem: Problem) -> Array:
    """Return the coefficients of g_λ in powers of C.

    Raises ValueError where a link beyond `LARGEST_DEGREE` is smoothed.

    Examples
    --------
    >>> from dynamics.problem import Problem, Teacher
    >>> asked = {"activation": "he3", "teacher": Teacher([1.0]), "width": 1, "dimension": 20, "student": "spherical"}
    >>> signal_powers(Problem(**asked, objective="correlation")).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    student, teacher = link_powers(problem)
    products, smoothing = student * teacher, problem.smoothing
    if smoothing == 0.0:
        return products
    check_degree("smoothed", problem)
    moments = sphere_moments(problem.dimension, products.size // 2 + 1)
    across = [polynomial.polypow([1.0, 0.0, -1.0], j) * smoothing ** (2 * j) * mu for j, mu in enumerate(moments)]
    total = np.zeros(1)
    for k in np.flatnonzero(products):
        scale = products[k] * (1.0 + smoothing**2) ** (-0.5 * k)
        for j in range(k // 2 + 1):
            term = scale * comb(k, 2 * j) * across[j]
            total = polynomial.polyadd(total, np.concatenate([np.zeros(k - 2 * j), term]))
    return total


def gradient_table(problem: Problem) -> Array:
    """Return ψ as a table of the coefficients of a_0^i r^(2j), shape (i, j), of a polynomial or truncated link.

    Raises ValueError beyond `LARGEST_DEGREE`.

    Examples
    --------
    >>> from dynamics.problem import Problem, Teacher
    >>> asked = {"activation": "he3", "teacher": Teacher([1.0]), "width": 1, "dimension": 20, "student": "spherical"}
    >>> (gradient_table(Problem(**asked, objective="correlation")) * 6**0.5).round(12).tolist()
    [[-3.0], [0.0], [3.0]]
    """
    check_degree("differentiated as a polynomial", problem)
    powers = np.polynomial.hermite_e.herme2poly(_unscaled(problem.activation))
    smoothing, degree = problem.smoothing, powers.size - 1
    moments = sphere_moments(problem.dimension, degree // 2 + 1)
    value = np.zeros((degree + 1, degree // 2 + 1))
    for p, power in enumerate(powers):
        for j in range(p // 2 + 1):
            spread = comb(p, 2 * j) * smoothing ** (2 * j) * moments[j]
            value[p - 2 * j, j] += power * (1.0 + smoothing**2) ** (-0.5 * p) * spread
    found = np.zeros_like(value)
    found[:-1] += np.arange(1.0, degree + 1)[:, None] * value[1:]
    found[1:, :-1] -= 2.0 * np.arange(1.0, value.shape[1])[None] * value[:-1, 1:]
    used_rows, used_columns = (np.flatnonzero(found.any(axis=axis)) for axis in (1, 0))
    return np.ascontiguousarray(found[: used_rows.max(initial=0) + 1, : used_columns.max(initial=0) + 1])


def check_degree(done: str, problem: Problem) -> None:
    """Refuse links beyond `LARGEST_DEGREE` where they would be summed in powers."""
    for name, link in (("activation", problem.activation), ("teacher_activation", problem.teacher_link)):
        degree = int(np.flatnonzero(link.coefficients).max(initial=0))
        if degree > LARGEST_DEGREE:
            msg = (
                f"Argument `{name}` must have a degree of at most {LARGEST_DEGREE} to be {done}, but has {degree}; "
                f"`order={LARGEST_DEGREE}` cuts its series there."
            )
            raise ValueError(msg)


def _unscaled(link: HermiteExpansion) -> Array:
    """Return the coefficients of He_j = √(j!) h_j of a series, without zeros at the end."""
    c = np.trim_zeros(link.coefficients, "b") if link.coefficients.any() else np.zeros(1)
    return c / np.sqrt(np.cumprod(np.concatenate([[1.0], np.arange(1.0, c.size)])))
