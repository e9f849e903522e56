"""The full field of unit vectors: the two compiled passes of `equations.pairs.field_kernels`, shared among threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.compiler.workers import Workers
    from hermite.arrays import Array

#: Rows of a block, as in the kernels.
BLOCK = 128


class UnitField:
    """Computes the field of m neurons, for directions in the rows of `teacher`; no row if they are the first P axes."""

    def __init__(self, kernels: Any, workers: Workers, a: Array, teacher: Array, m: int) -> None:
        self._kernels, self._workers = kernels, workers
        self._a, self._teacher = a, teacher
        self.pairs, self.work_size = pair_storage(m), BLOCK * (m + a.size)

    def write(self, U: Array, n: Array, F: Array, growth: Array) -> None:
        """Write F (m, D) and growth (m,) at unit vectors U and squared norms n; 3 m² D operations."""

        def products(begin: int, end: int) -> None:
            self._kernels.pair_products(begin, end, U, self.pairs)

        def rows(begin: int, end: int) -> None:
            work = np.empty(self.work_size)
            self._kernels.field_rows(begin, end, U, n, self._a, self._teacher, self.pairs, F, growth, work)

        self._workers.over_parts(_halves(n.size), products)
        self._workers.over_rows(rows)


class SingleUnitField:
    """Computes it with products of neurons in single precision, twice as fast; directions are the first P axes."""

    def __init__(self, kernels: Any, workers: Workers, a: Array, m: int, columns: int) -> None:
        self._kernels, self._workers, self._a = kernels, workers, a
        self._pairs, self._units = pair_storage(m, np.float32), np.empty((m, columns), dtype=np.float32)
        self._work_size = BLOCK * (m + columns)

    def write(self, U: Array, n: Array, F: Array, growth: Array) -> None:
        """Write F (m, D) and growth (m,) at unit vectors U and squared norms n; 3 m² D operations."""

        def convert(begin: int, end: int) -> None:
            self._kernels.round_rows(begin, end, U, self._units)

        def products(begin: int, end: int) -> None:
            self._kernels.pair_products_single(begin, end, self._units, self._pairs)

        def rows(begin: int, end: int) -> None:
            work = np.empty(self._work_size, dtype=np.float32)
            self._kernels.field_rows_single(
                begin, end, U, self._units, n, self._a, self._pairs, F, growth, work
            )  # fmt: skip

        self._workers.over_rows(convert)
        self._workers.over_parts(_halves(n.size), products)
        self._workers.over_rows(rows)


def _halves(m: int) -> int:
    """Return how many pairs of a long and a short block the stored half of G has."""
    return ((m + BLOCK - 1) // BLOCK + 1) // 2


def pair_storage(m: int, dtype: type[np.floating[Any]] = np.float64) -> NDArray[Any]:
    """Return an array for the half of G = U Uᵀ that `pair_products` writes: blocks of rows from the diagonal on."""
    return np.empty(sum(min(BLOCK, m - first) * (m - first) for first in range(0, m, BLOCK)), dtype)
