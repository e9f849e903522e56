r"""The transformation of labels that shows most in degree k, T = ζ_k(y) = E[h_k(z) | y = σ(z)]: ρ² = λ_k².

The line is cut into intervals that σ sends into narrow bins of labels; ζ_k is the ratio of two exact integrals over the
intervals of a bin, ∫ h_k γ and ∫ γ, and constant on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.theory.recovery.labels import LabelLaw, largest_label
from hermite.exponents.generative import THRESHOLD
from hermite.exponents.intervals import interval_moments
from hermite.exponents.pre_images import label_cells

if TYPE_CHECKING:
    from dynamics.theory.recovery.labels import Function
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: The bins reach to |z| = 2√k + 6. ζ_k counts as bounded if it hardly grows beyond this.
NEAR = 6.0
#: Nodes and weights on [−1, 1] of the rule on each interval, of a width of at most 0.005.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(2)


def optimal_labels(link: HermiteExpansion, degree: int) -> tuple[Function, LabelLaw]:
    """Return ζ_k as a function of labels without noise, and the law of ζ_k(y)."""
    cells = label_cells(link.link.value, 2.0 * degree**0.5 + 6.0)
    mass, product = (np.bincount(cells.bins, row) for row in interval_moments(cells.ends, degree)[[0, degree]])
    best = np.divide(product, mass, out=np.zeros_like(mass), where=mass > 0.0)
    middle, half = 0.5 * (cells.ends[1:] + cells.ends[:-1]), 0.5 * np.diff(cells.ends)
    z = (middle[:, None] + half[:, None] * NODES).ravel()
    weights = (half[:, None] * WEIGHTS).ravel() * np.exp(-0.5 * z**2)
    label = np.repeat(best[cells.bins], NODES.size)
    top = largest_label(label[np.abs(z) <= NEAR], label)
    # Bins are in the order of their labels: the edge of two lies between their nearest labels.
    values = link.value(middle)
    lowest, highest = np.full(mass.size, np.inf), np.full(mass.size, -np.inf)
    np.minimum.at(lowest, cells.bins, values)
    np.maximum.at(highest, cells.bins, values)
    edges = 0.5 * (highest[:-1] + lowest[1:])

    def transform(y: Array) -> Array:
        found: Array = best[np.searchsorted(edges, y)]
        return found

    return transform, LabelLaw(z, label, weights / weights.sum(), top, THRESHOLD)
