"""Threads over rows: compiled passes release the interpreter lock, so plain Python threads use all cores.

Responsible for cutting a pass into parts.  Must not know what a pass does.  Parts never share a row, so that the result
does not depend on the number of threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from dynamics.cores import available_cores

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["Workers"]

#: Numbers in the state below which waking a second thread costs more than it saves.
SMALLEST_STATE = 50_000
MOST_THREADS = 16
#: Rows are shared in groups of this many, the blocks of their matrix products: products of other shapes round
#: differently.
GRAIN = 128


class Workers:
    """Run compiled passes over parts of the rows, in as many threads as the size is worth.

    Parameters
    ----------
    rows, columns : int
        Shape of the state.
    threads : int, optional
        Number of threads; by default one per core, and one alone for small states.
    """

    def __init__(self, rows: int, columns: int, threads: int | None = None) -> None:
        wanted = available_cores() if rows * columns >= SMALLEST_STATE else 1
        self.count = max(min(wanted if threads is None else threads, MOST_THREADS, rows), 1)
        self._rows = rows
        self._pool = ThreadPoolExecutor(self.count) if self.count > 1 else None

    def over_rows(self, work: Callable[[int, int], None]) -> None:
        """Call work(begin, end) on consecutive parts that cover all rows, cut at multiples of `GRAIN`."""
        if self._pool is None:
            work(0, self._rows)
            return
        self.over_parts(-(-self._rows // GRAIN), lambda first, last: work(GRAIN * first, min(GRAIN * last, self._rows)))

    def over_parts(self, count: int, work: Callable[[int, int], None]) -> None:
        """Call work(begin, end) on consecutive parts of range(count) of about equal length."""
        if self._pool is None:
            work(0, count)
            return
        marks = np.linspace(0, count, self.count + 1).round().astype(int).tolist()
        list(self._pool.map(work, marks[:-1], marks[1:]))

    def over_blocks(self, cuts: NDArray[np.int64], first: int, work: Callable[[int, int, int], None]) -> None:
        """Call work(first block, last block, thread) on parts of the blocks from `first` on, rows shared evenly."""
        last = cuts.size - 1
        if first == last:
            return
        if self._pool is None or last - first < self.count:
            work(first, last, 0)
            return
        rows = np.linspace(cuts[first], cuts[last], self.count + 1)
        marks = np.maximum(np.searchsorted(cuts, rows), first).tolist()
        list(self._pool.map(work, marks[:-1], marks[1:], range(self.count)))
