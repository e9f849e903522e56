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
from dynamics.problem.emergence import LEARNED_SHARE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.equations.transit.transit import TransitTable
    from dynamics.problem import Problem
    from hermite.arrays import Array

#: ξ of the largest C below 1 that float64 tells from 1, and how far the other side's equivalent may lie below.
_LARGEST, _LOWER = 36.0, 20.0
#: Times the interval of a time is halved: to rounding.
_HALVINGS = 53
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
        return self.emerges and self.share**2 > LEARNED_SHARE

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

    def half_learned(self, overlap: Array, ratio: Array) -> Array:
        """Return τ = a t until neurons of negative overlap have half of what they end with, n g(C) = r² a g(1) / 2.

        `ratio` is a / n_0 at the start; shape of both.

        Examples
        --------
        >>> import numpy as np
        >>> side = FarSide(np.array([0.0, 0, 0, 0, 0.8, 0.6]))
        >>> side.half_learned(np.array([-0.3]), np.array([1e4])).round(3).tolist()
        [10.695]
        """
        xi = np.minimum(logit_of_square(overlap), _LARGEST)
        table = self._table(-1, float(xi.min()))
        origin = table.remaining(xi)

        def has_half(tau: Array) -> NDArray[np.bool_]:
            there = table.logit_at(origin - tau)
            inverse = table.scaled_inverse_norm(xi, ratio, tau, there)
            return table.signal(there) >= LEARNED_SHARE * self.share**2 * table.norm * inverse

        low, high = np.zeros_like(xi), np.ones_like(xi)
        while not (late := has_half(high)).all():
            high = np.where(late, high, 2.0 * high)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            late = has_half(middle)
            low, high = np.where(late, low, middle), np.where(late, middle, high)
        return high
