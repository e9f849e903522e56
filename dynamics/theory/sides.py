"""What an overlap with −θ is worth beside one with θ: nothing for odd k, the same for even links, else in between.

A link with even k and odd coefficients too draws a neuron of negative overlap to −θ, at a speed of its own. There it
reproduces the share r = g(−1)/g(1) of the direction alone, with n → r a: the mass is r² a, and (1 − r²) a² g(1) of the
loss stays, until a neuron of positive overlap arrives. A strong odd part stops it before −θ; then r = g(−s)/g(1) at the
overlap −s where it rests, and it never emerges if s² < ½.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.transit.transit import logit_of_square, transit_table

if TYPE_CHECKING:
    from dynamics.equations.transit.transit import TransitTable
    from dynamics.problem import Problem
    from hermite.arrays import Array

#: ξ of the largest C below 1 that float64 tells from 1, and how far the other side's equivalent may lie below.
_LARGEST, _LOWER = 36.0, 20.0
#: What an overlap that never emerges is worth.
_NEVER = 1e-100


@dataclass(frozen=True, slots=True)
class FarSide:
    """The side of −θ of a link with even k that has odd coefficients too."""

    coefficients: Array

    @classmethod
    def of(cls, problem: Problem) -> FarSide | None:
        """Return the far side of a problem's link; None if both sides are alike, or only θ counts (odd k), or k ≤ 2."""
        link = problem.activation
        mixed = link.parity == "none" and link.information_exponent in range(4, link.order, 2)
        return cls(link.coefficients) if mixed else None

    def _table(self, sign: int, lowest: float = 0.0) -> TransitTable:
        return transit_table(self.coefficients, sign, lowest)

    @property
    def share(self) -> float:
        """r: what a neuron at rest on this side has of the direction, in units of g(1)."""
        table = self._table(-1)
        return max(float(table.end_signal / table.norm), 0.0)

    @property
    def emerges(self) -> bool:
        """Whether a neuron on this side reaches C² = ½."""
        return bool(self._table(-1).barrier > 0.0)

    @property
    def learns(self) -> bool:
        """Whether a neuron on this side ends with half of the direction's weight, r² > ½."""
        return self.emerges and self.share**2 > 0.5

    def equivalent(self, overlap: Array) -> Array:
        """Return the overlaps with θ from which C² = ½ is as far in time, shape of `overlap`.

        What never emerges keeps its order far below all others: such a neuron is taken where no other is left.

        Examples
        --------
        >>> import numpy as np
        >>> FarSide(np.array([0.0, 0, 0, 0, 0.8, 0.6])).equivalent(np.array([0.2, -0.2])).round(4).tolist()
        [0.2, 0.1596]
        """
        found = np.maximum(overlap, 0.0)
        there = overlap < 0.0
        if not self.emerges:
            found[there] = -_NEVER * overlap[there]
        elif there.any():
            xi = np.minimum(logit_of_square(overlap[there]), _LARGEST)
            far, near = self._table(-1, float(xi.min())), self._table(1, float(xi.min()) - _LOWER)
            same = near.logit_at(far.remaining(xi))
            # From beyond the place of rest it returns to that, and has emerged all along.
            found[there] = np.where(xi < far.barrier, np.exp(-0.5 * np.logaddexp(0.0, -same)), -overlap[there])
        return found
