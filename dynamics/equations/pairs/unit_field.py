"""The full field of unit vectors: the compiled passes of `field_kernels`, shared among threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.equations.pairs.field_kernels import FIELD_BLOCK, field_rows, pair_products
from dynamics.equations.pairs.single_field_kernels import field_rows_single, round_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.threads.workers import Workers
    from hermite.arrays import Array


class UnitField:
    """Computes the field of m neurons, for directions in the rows of `teacher`; no row if they are the first P axes.

    `link` is the data of g (`dynamics.equations.pairs.link`).
    """

    def __init__(self, link: Array, workers: Workers, a: Array, teacher: Array, m: int) -> None:
        self._link, self._workers, self._target = link, workers, (a, teacher)
        self.pairs, self.work_size = pair_storage(m), FIELD_BLOCK * (m + a.size)

    def write(self, U: Array, n: Array, F: Array, growth: Array) -> None:
        """Write F (m, D) and growth (m,) at unit vectors U and squared norms n; 3 m² D operations."""

        def products(begin: int, end: int) -> None:
            pair_products(begin, end, U, self.pairs)

        def rows(begin: int, end: int) -> None:
            work = np.empty(self.work_size)
            field_rows(begin, end, self._link, (U, n), self._target, self.pairs, (F, growth), work)

        self._workers.over_parts(_halves(n.size), products)
        self._workers.over_rows(rows)


class SingleUnitField:
    """Computes it with products of neurons in single precision, twice as fast; directions are the first P axes."""

    def __init__(self, link: Array, workers: Workers, a: Array, m: int, columns: int) -> None:
        self._link, self._workers, self._a = link, workers, a
        self._pairs, self._units = pair_storage(m, np.float32), np.empty((m, columns), dtype=np.float32)
        self._work_size = FIELD_BLOCK * (m + columns)

    def write(self, U: Array, n: Array, F: Array, growth: Array) -> None:
        """Write F (m, D) and growth (m,) at unit vectors U and squared norms n; 3 m² D operations."""

        def convert(begin: int, end: int) -> None:
            round_rows(begin, end, U, self._units)

        def products(begin: int, end: int) -> None:
            pair_products(begin, end, self._units, self._pairs)

        def rows(begin: int, end: int) -> None:
            work = np.empty(self._work_size, dtype=np.float32)
            state = U, self._units, n
            field_rows_single(begin, end, self._link, state, self._a, self._pairs, (F, growth), work)

        self._workers.over_rows(convert)
        self._workers.over_parts(_halves(n.size), products)
        self._workers.over_rows(rows)


def _halves(m: int) -> int:
    """Return how many pairs of a long and a short block the stored half of G has."""
    return (-(-m // FIELD_BLOCK) + 1) // 2


def pair_storage(m: int, dtype: type[np.floating[Any]] = np.float64) -> NDArray[Any]:
    """Return an array for the half of G = U Uᵀ that `pair_products` writes: blocks of rows from the diagonal on."""
    return np.empty(sum(min(FIELD_BLOCK, m - first) * (m - first) for first in range(0, m, FIELD_BLOCK)), dtype)
