"""Links as the kernels of pairs know them: by family, with their numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import hermite

if TYPE_CHECKING:
    from dynamics.equations.network.series import SeriesTable
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Families by their number in the kernels.
RELU, SIGN, ERF, POLYNOMIAL, TABLE = range(5)
_THRESHOLDS = {"relu": RELU, "sign": SIGN, "erf": ERF}
#: |h_j(x)| φ(x) <= CRAMER e^(-x²/4) (Cramér's inequality).
CRAMER = 1.0865 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class Link:
    """A link's family, and its Hermite coefficients or its table."""

    family: int
    coefficients: Array
    table: SeriesTable | None = None

    @property
    def numbers(self) -> Array:
        """What the kernels read."""
        return self.coefficients if self.table is None else self.table.numbers

    def tails(self, terms: int, q: Array, b: Array) -> Array:
        """Return bounds on what a series of so many terms leaves out of σ and of σ', shape (2, units).

        Terms of relu, erf and sign are bounded one by one. Those of the slope of sign do not fall: its row holds their
        bound. Infinity stands for what is outside the range of a table.
        """
        if self.family == POLYNOMIAL:
            return np.zeros((2, q.size))
        length = np.sqrt(q)
        if self.table is not None:
            bound: Array = np.where(self.table.covers(length, b), self.table.tails(length, b), np.inf)
            return bound
        T = q + 1.0 if self.family == ERF else q
        size = CRAMER * np.exp(-0.25 * b * b / T)
        if self.family == RELU:
            return np.stack([length * size / math.sqrt(terms - 1.0), np.ones_like(q)])
        if self.family == SIGN:
            return np.stack([np.ones_like(q), 2.0 * size / length])
        power = 2.0 * size * np.sqrt((q / T) ** terms * T)
        return np.stack([power / math.sqrt(terms), power / np.sqrt(T)])


def family_of(link: HermiteExpansion) -> int:
    """Return the family of a link."""
    if link.is_polynomial:
        return POLYNOMIAL
    known = (family for name, family in _THRESHOLDS.items() if link == hermite.expand(name, order=link.order))
    return next(known, TABLE)
