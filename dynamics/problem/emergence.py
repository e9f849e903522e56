r"""When a direction has emerged and when it is learned, in every system, and what counts in its learned mass.

A direction has emerged once one neuron has squared overlap `EMERGENCE_LEVEL` with it, and it is learned once the
neurons carry the share `LEARNED_SHARE` of its weight together.

The parts of degree 0, 1 and 2 of Σ_i n_i σ(u_i·x) are a number, a vector and a matrix, which all neurons make together:
neurons that share them out in any way have the same ones. From degree 3 on the directions follow from the sum, so that

.. math:: \sum_i \frac{n_i\, g_3(C_{ip})}{g_3(1)}, \qquad g_3(s) = \sum_{j \ge 3} c_j^2 s^j,

is the mass that neurons carry of direction p.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hermite.arrays import Array
from hermite.polynomials import kernel_value

if TYPE_CHECKING:  # compiled functions use constants of this module, and nothing of expansions
    from hermite import HermiteExpansion

#: Squared overlap, between 0 and 1, at which a direction has emerged.
EMERGENCE_LEVEL = 0.5
#: Share of its weight a_p that neurons carry of a direction that is learned.
LEARNED_SHARE = 0.5
#: Which degrees of the link count in a learned mass, as problems and files say it; files that say nothing count all.
IDENTIFYING, ALL_DEGREES = "degrees 3 and above", "all degrees"
DEFINITIONS = (IDENTIFYING, ALL_DEGREES)
#: Lowest degree that tells directions apart.
LOWEST_DEGREE = 3
#: A coefficient whose square is below this part of E σ² counts as 0.
NEGLIGIBLE = 1e-12
#: Why a link without such a part has no learned times.
UNDEFINED = "the link has no part of degree 3 or more, and parts of lower degree do not tell directions apart"


@dataclass(frozen=True, eq=False)
class LearnedPart:
    """The coefficients c_j of a link that count in the learned mass, and their kernel; NaN if no coefficient counts."""

    #: Which degrees count, one of `DEFINITIONS`.
    definition: str
    #: c_0 … c_N, 0 where one does not count; all NaN where none does.
    coefficients: Array

    @classmethod
    def of(cls, link: HermiteExpansion, definition: str = IDENTIFYING) -> LearnedPart:
        """Return the coefficients of a link that count by a definition; others become 0."""
        c = link.coefficients
        if definition == ALL_DEGREES:
            return cls(definition, c)
        counts = (np.arange(c.size) >= LOWEST_DEGREE) & (c**2 >= NEGLIGIBLE * link.norm_squared) & (c != 0.0)
        return cls(definition, np.where(counts, c, 0.0) if counts.any() else np.full(c.size, np.nan))

    @property
    def is_defined(self) -> bool:
        """Whether some coefficient of the link counts."""
        return not bool(np.isnan(self.coefficients).any())

    @property
    def first_degree(self) -> int:
        """Lowest degree that counts by the definition, for any link."""
        return 0 if self.definition == ALL_DEGREES else LOWEST_DEGREE

    def kernel(self, s: ArrayLike) -> Array:
        """Return Σ_j c_j² s^j of the coefficients that count, shape of `s`."""
        return kernel_value(self.coefficients, np.asarray(s, dtype=np.float64))

    @cached_property
    def kernel_at_one(self) -> float:
        """Σ_j c_j² of the coefficients that count."""
        return float(self.kernel(1.0))

    def mass(self, C: Array, n: Array) -> Array:
        """Return Σ_i n_i g_3(C_ip)/g_3(1) of overlaps C (…, m, P) and squared norms n (…, m), shape (…, P)."""
        return np.asarray(n @ self.kernel(C) / self.kernel_at_one)
