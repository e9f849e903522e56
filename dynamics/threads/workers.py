"""Threads that share the rows of a compiled pass, which releases the interpreter lock.

Parts never share a row, so that the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np

from dynamics.threads.cores import available_cores, runs_at_once
from dynamics.threads.stopping import give_way, whether_given_up
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

    By default that is one thread per core, and one alone for states of fewer than `smallest` numbers. Passes that are
    long, such as all stages of a step, may be worth it from `smallest_of_long` on. While several runs share the cores,
    such as the one whose error is estimated and the looser one beside it, each has its part of the threads.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        threads: int | None = None,
        *,
        smallest: int = SMALLEST_STATE,
        smallest_of_long: int = SMALLEST_STATE,
    ) -> None:
        def worth(least: int) -> int:
            wanted = available_cores() if rows * columns >= least else 1
            return max(min(wanted if threads is None else threads, MOST_THREADS, rows), 1)

        #: Threads of a pass, and those of a long one.
        self._few, self.count = worth(smallest), worth(min(smallest, smallest_of_long))
        self._rows = rows
        #: Groups of rows, or parts and blocks of about that size, between two looks whether the pass is still wanted.
        self._groups = max(int(PIECE / (GRAIN * rows * columns)), 1)
        self._pool = ThreadPoolExecutor(self.count - 1) if self.count > 1 else None

    def close(self) -> None:
        """End the threads; passes that follow are taken by their callers alone."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def over_rows(self, work: Callable[[int, int], None]) -> None:
        """Call work(begin, end) on consecutive parts that cover all rows, cut at multiples of `GRAIN`."""
        self.over_parts(-(-self._rows // GRAIN), lambda first, last: work(GRAIN * first, min(GRAIN * last, self._rows)))

    def over_parts(self, count: int, work: Callable[[int, int], None]) -> None:
        """Call work(begin, end) on consecutive parts of range(count), of about equal length for each thread."""
        threads = _now(self._few)
        if threads == 1 and count <= self._groups:
            work(0, count)
            return
        self._share(_even(0, count, threads), lambda begin, end, _thread: work(begin, end))

    def over_blocks(
        self, cuts: Integers, first: int, work: Callable[[int, int, int], None], *, is_long: bool = False
    ) -> None:
        """Call work(first block, last block, thread) on parts of the blocks from `first` on, rows shared evenly.

        The block `first` is part of what thread 0 gets.
        """
        last, threads = cuts.size - 1, _now(self.count if is_long else self._few)
        if first == last:
            return
        if threads == 1 and last - first <= self._groups:
            work(first, last, 0)
            return
        rows = _even(int(cuts[first]), int(cuts[last]), min(threads, last - first))
        self._share([first, *np.maximum(np.searchsorted(cuts, rows[1:]), first).tolist()], work)

    def over_some(self, blocks: Integers, work: Callable[[int, int, int], None]) -> None:
        """Call work(block, block + 1, thread) on some blocks, of which each thread takes about as many."""
        chosen = blocks.tolist()

        def each(begin: int, end: int, thread: int) -> None:
            for block in chosen[begin:end]:
                work(block, block + 1, thread)

        self._share(_even(0, len(chosen), _now(self._few)), each)

    def _share(self, marks: list[int], work: Callable[[int, int, int], None]) -> None:
        """Call work(begin, end, thread) on the range between each two marks, piece by piece, in several threads.

        This one, of number 0, takes the first part, and then what no other thread has begun: it waits for none that is
        still asleep.
        """
        given_up = whether_given_up()
        parts = deque((begin, end) for begin, end in pairwise(marks) if begin < end)

        def take(part: tuple[int, int], thread: int) -> None:
            for first in range(*part, self._groups):
                give_way(given_up)
                work(first, min(first + self._groups, part[1]), thread)

        def take_all(thread: int) -> None:
            while True:
                try:
                    part = parts.popleft()
                except IndexError:
                    return
                take(part, thread)

        if not parts:
            return
        own = parts.popleft()
        others = [] if self._pool is None else [self._pool.submit(take_all, n + 1) for n in range(len(parts))]
        try:
            take(own, 0)
            take_all(0)
        finally:
            parts.clear()
            begun = [other for other in others if not other.cancel()]
            wait(begun)
        for other in begun:
            other.result()


def _even(first: int, last: int, parts: int) -> list[int]:
    """Return where parts of about the same length begin, and where the last one ends."""
    return [first + round((last - first) * part / parts) for part in range(parts + 1)]


def _now(threads: int) -> int:
    """Return what one run has of its threads as long as others share the cores."""
    return max(threads // runs_at_once(), 1)
