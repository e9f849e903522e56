r"""The law of degree 2: how the first eigenvector of D = (1/n) Σ T_i x_i x_iᵀ leans on the direction.

With δ = n/d, l > max T and means over (z, T),

.. math:: F(l) = \frac1\delta + E\frac{T}{l-T} - E\frac{Tz^2}{l-T}, \qquad P(l) = \frac1\delta - E\frac{T^2}{(l-T)^2},
   \qquad P(\bar l) = 0:

if F(l̄) ≥ 0 the eigenvector says nothing; else F(l*) = 0, l* > l̄, and with Q = E[T²z²/(l* − T)²]

.. math:: (\hat\theta\cdot\theta)^2 = \frac{P(l^*)}{P(l^*) + Q}, \qquad \text{eigenvalue } l^* E\frac{Tz^2}{l^*-T}

(Lu and Li 2017; Mondelli and Montanari 2018; real case). The means are those of the law of the labels, or sums over one
sample: then it is the secular equation of that sample, for labels without a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import brentq

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.theory.recovery.labels import LabelLaw
    from hermite.arrays import Array

#: Distances l − max T, in units of the root mean square label, among which roots are looked for.
NEAREST, FARTHEST, TRIED = 1e-10, 1e8, 73


class Outlier(NamedTuple):
    """Squared overlap of the first eigenvector, 0 if it says nothing, and its eigenvalue."""

    overlap_squared: float
    eigenvalue: float


def outlier(law: LabelLaw, ratio: float) -> Outlier:
    """Return what D shows at n/d = `ratio`; the labels are bounded, max T > 0."""
    inverse, (z, T), mean = 1.0 / ratio, (law.z, law.label), law.mean

    def slope(level: float) -> float:
        return inverse - mean((T / (level - T)) ** 2)

    def balance(level: float) -> float:
        return inverse - mean(T * (z**2 - 1.0) / (level - T))

    grid = _grid(law)
    edge = _crossing(slope, law, grid)
    if balance(edge) >= 0.0:
        return Outlier(0.0, edge * (inverse + mean(T / (edge - T))))
    root = _crossing(balance, law, np.concatenate([[edge - law.top], grid[grid > edge - law.top]]))
    rise = slope(root)
    overlap = rise / (rise + mean((T * z / (root - T)) ** 2))
    return Outlier(overlap, root * mean(T * z**2 / (root - T)))


def threshold_ratio(law: LabelLaw) -> float:
    """Return the n/d from which on the first eigenvector leans on the direction; infinite if it never does."""
    z, T, mean = law.z, law.label, law.mean

    def excess(level: float) -> float:
        return mean(T * (z**2 - 1.0) / (level - T) - (T / (level - T)) ** 2)

    grid = _grid(law)
    if not any(excess(law.top + distance) > 0.0 for distance in grid.tolist()):
        return np.inf
    at = _crossing(excess, law, grid)
    return 1.0 / mean(T * (z**2 - 1.0) / (at - T))


def _grid(law: LabelLaw) -> Array:
    """Return the distances from max T, increasing, among which roots are looked for."""
    size = np.sqrt(law.mean(law.label**2))
    found: Array = size * np.geomspace(NEAREST, FARTHEST, TRIED)
    return found


def _crossing(function: Callable[[float], float], law: LabelLaw, distances: Array) -> float:
    """Return the first l = max T + distance at which a function turns positive, the first of all if it is there."""
    before = float(distances[0])
    if function(law.top + before) >= 0.0:
        return law.top + before
    for distance in distances[1:].tolist():
        if function(law.top + distance) > 0.0:
            return law.top + float(brentq(lambda s: function(law.top + s), before, distance, xtol=1e-300, rtol=1e-14))
        before = distance
    return law.top + before
