r"""Particles that stand for the isotropic law of neurons at t = 0: projections on the teacher's axes, and weights.

One projection α of a uniform w on the sphere in R^d has α² ~ Beta(½, (d − 1)/2); in the angle φ, α = sin φ, its density
is ∝ cos^(d−2) φ.

"graded" is the trapezoidal rule in x, φ = Φ sinh(x)/sinh(x_max): its error falls exponentially in N as soon as the map
from α(0) to α(t) is resolved. That map has a front, at the neurons that are just escaping, which moves to the equator
and steepens with time, so that nodes are drawn to the equator. "quantiles" are midpoint quantiles of equal weight:
their error falls as a power of N, because the quantile function is singular at the poles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import is_homogeneous

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array

QUADRATURES = ("auto", "graded", "quantiles", "random", "neurons")
#: The rule "graded" ends where the density has fallen to exp(−LAST_SPREAD²/2) of that at the equator.
LAST_SPREAD = 8.5
#: x_max: nodes lie closer at the equator than at an even spacing in φ by sinh(x_max)/x_max, 15 times.
GRADING = 5.0


def halves_are_alike(problem: Problem, count: int, quadrature: str) -> bool:
    """Return whether α and −α move as mirror images, so that particles of the upper half stand for all.

    The field of an even link is even, and the deterministic rules are symmetric.
    """
    is_even = not problem.activation.coefficients[1::2].any()
    return is_even and count % 2 == 0 and quadrature in ("graded", "quantiles")


def start_particles(problem: Problem, count: int, quadrature: str) -> tuple[Array, Array]:
    """Return projections (N, r) and masses (N,), which sum to 1, or to m σ0² for the homogeneous student.

    For r = 1 the particles are in increasing order of α, except "neurons", which keep theirs.
    """
    axes, dimension, grows = problem.teacher.span, problem.dimension, is_homogeneous(problem)
    if quadrature == "neurons":
        neurons = problem.reduced_weights()
        squared_norm = np.sum(neurons**2, axis=1)
        on_axes = neurons[:, :axes] / np.sqrt(squared_norm)[:, None]
        return on_axes, squared_norm if grows else np.full(problem.width, 1.0 / problem.width)
    total = problem.width * problem.initial_norm**2 if grows else 1.0
    if quadrature == "random":
        projections = _random(np.random.default_rng(problem.seed), count, axes, dimension)
        if axes == 1:
            projections.sort(axis=0)
        return projections, np.full(count, total / count)
    alpha, weights = (_graded if quadrature == "graded" else _quantiles)(count, dimension)
    return alpha[:, None], total * weights


def _random(rng: np.random.Generator, count: int, axes: int, dimension: int) -> Array:
    """Draw r coordinates of uniform points on the sphere: normals, divided by the length of all d normals."""
    normal = rng.standard_normal((count, axes))
    rest = rng.chisquare(dimension - axes, count)
    projections: Array = normal / np.sqrt(np.sum(normal**2, axis=1) + rest)[:, None]
    return projections


def _quantiles(count: int, dimension: int) -> tuple[Array, Array]:
    from scipy.special import betaincinv

    # |α| of the upper half, from the equator outwards; the lower half is its mirror image.
    upper = (np.arange(count // 2) + 0.5 * (1 + count % 2)) * (2.0 / count)
    size = np.sqrt(betaincinv(0.5, 0.5 * (dimension - 1.0), upper))
    middle = np.zeros(count % 2)
    return np.concatenate([-size[::-1], middle, size]), np.full(count, 1.0 / count)


def _graded(count: int, dimension: int) -> tuple[Array, Array]:
    # Exactly antisymmetric, also in rounding.
    x = (np.arange(count) - 0.5 * (count - 1)) * (2.0 * GRADING / count)
    last = min(0.5 * np.pi, LAST_SPREAD / np.sqrt(dimension))
    angle = last * np.sinh(x) / np.sinh(GRADING)
    # Logarithms: the density spans more than the range of floats in large dimensions.
    log_density = 0.5 * (dimension - 2.0) * np.log1p(-(np.sin(angle) ** 2))
    weights = np.cosh(x) * np.exp(log_density - log_density.max())
    return np.sin(angle), weights / weights.sum()
