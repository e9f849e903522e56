"""One direction of y = min(z², M): a small neuron on a sample that is reused, and one that meets every sample once."""

from __future__ import annotations

import numpy as np

from dynamics.problem import Problem, Teacher

#: |w| at the start of descent; overlap at the start of online SGD, in units of 1/√d.
SMALL_START, LEAD = 1e-3, 2.0


def cut_square(cut: float) -> str:
    """Return the link min(z², M) as text."""
    return f"min(z**2, {cut!r})"


def descent_problem(link: str, d: int) -> Problem:
    """Return the problem of one small neuron that descends the squared error."""
    return Problem(
        activation=link, teacher=Teacher([1.0]), width=1, dimension=d, student="committee", initial_norm=SMALL_START
    )


def online_problem(link: str, d: int) -> Problem:
    """Return the problem of one spherical neuron that starts at C = 2/√d and descends its correlation."""
    return Problem(
        activation=link,
        teacher=Teacher([1.0]),
        width=1,
        dimension=d,
        student="spherical",
        objective="correlation",
        initial_overlaps=([[LEAD / np.sqrt(d)]], [[1.0]], [1.0]),
    )


def online_slope(link: str, rate: float) -> float:
    """Return the slope of n/d in ln d at η = c/d for a link with c_1 = 0, inf where noise outweighs the drift.

    Examples
    --------
    >>> round(online_slope("z**2", 0.02), 3), round(online_slope("min(z**2, 4)", 0.02), 3)
    (6.443, 11.791)
    """
    import hermite
    from hermite.quadrature import integrate

    expansion = hermite.expand(link)
    slope_squared = integrate(expansion.derivative, 0).norm_squared
    drift = 2.0 * float(expansion.coefficients[2]) ** 2
    growth = drift * rate - 0.5 * expansion.norm_squared * slope_squared * rate**2
    return float(0.5 / growth) if growth > 0.0 else np.inf
