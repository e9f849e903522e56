"""Threads that share the rows of a compiled pass, which releases the interpreter lock.

Parts never share a row, so that the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from dynamics.compiler.cores import available_cores
from dynamics.compiler.patience import give_way, whether_given_up
from hermite.arrays import Integers

#: Numbers in the state below which waking a second thread costs more than it saves.
SMALLEST_STATE = 50_000
MOST_THREADS = 16
#: Products of numbers, about a quarter of a second, after which a pass of all rows over all rows gives way. How a pass
#: is cut changes no bit of it.
PIECE = 2e9
#: Rows are shared in groups of this many, the blocks of their matrix products: products of other shapes round
#: differently.
GRAIN = 128


class Workers:
    """Runs compiled passes over parts of the rows of a state (rows, columns), in as many threads as its size is worth.

    By default that is one thread per core, and one alone for small states.
    """

    def __init__(self, rows: int, columns: int, threads: int | None = None) -> None:
        wanted = available_cores() if rows * columns >= SMALLEST_STATE else 1
        self.count = max(min(wanted if threads is None else threads, MOST_THREADS, rows), 1)
        self._rows = rows
        #: Groups of rows, or parts and blocks of about that size, between two looks whether the pass is still wanted.
        self._groups = max(int(PIECE / (GRAIN * rows * columns)), 1)
        self._pool = ThreadPoolExecutor(self.count) if self.count > 1 else None

    def over_rows(self, work: Callable[[int, int], None]) -> None:
        """Call work(begin, end) on consecutive parts that cover all rows, cut at multiples of `GRAIN`."""
        self.over_parts(-(-self._rows // GRAIN), lambda first, last: work(GRAIN * first, min(GRAIN * last, self._rows)))

    def over_parts(self, count: int, work: Callable[[int, int], None]) -> None:
        """Call work(begin, end) on consecutive parts of range(count), of about equal length for each thread."""
        if self._pool is None and count <= self._groups:
            work(0, count)
            return
        marks = [0, count] if self._pool is None else np.linspace(0, count, self.count + 1).round().astype(int).tolist()
        self._share(marks, lambda begin, end, _thread: work(begin, end))

    def over_blocks(self, cuts: Integers, first: int, work: Callable[[int, int, int], None]) -> None:
        """Call work(first block, last block, thread) on parts of the blocks from `first` on, rows shared evenly."""
        last = cuts.size - 1
        if first == last:
            return
        if self._pool is None and last - first <= self._groups:
            work(first, last, 0)
            return
        if self._pool is None or last - first < self.count:
            self._share([first, last], work)
            return
        rows = np.linspace(cuts[first], cuts[last], self.count + 1)
        self._share(np.maximum(np.searchsorted(cuts, rows), first).tolist(), work)

    def over_some(self, blocks: Integers, work: Callable[[int, int, int], None]) -> None:
        """Call work(block, block + 1, thread) on some blocks, of which each thread takes about as many."""
        chosen = blocks.tolist()

        def each(begin: int, end: int, thread: int) -> None:
            for block in chosen[begin:end]:
                work(block, block + 1, thread)

        marks = [0, len(chosen)]
        if self._pool is not None and len(chosen) >= self.count:
            marks = np.linspace(0, len(chosen), self.count + 1).round().astype(int).tolist()
        self._share(marks, each)

    def _share(self, marks: list[int], work: Callable[[int, int, int], None]) -> None:
        """Call work(begin, end, thread) on the range between each two marks, piece by piece, in a thread of its own."""
        given_up = whether_given_up()

        def pieces(begin: int, end: int, thread: int) -> None:
            for first in range(begin, end, self._groups):
                give_way(given_up)
                work(first, min(first + self._groups, end), thread)

        if self._pool is None or len(marks) == 2:
            pieces(marks[0], marks[1], 0)
        else:
            list(self._pool.map(pieces, marks[:-1], marks[1:], range(self.count)))
