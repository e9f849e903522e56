"""How many threads the matrix products of a run use.

Small products lose more to waking a second thread than they gain from it: at m = P = 64 a right-hand side takes three
times as long with two threads as with one.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Matrices of at least this many rows are worth more than one thread.
THREADED_ROWS = 256


@contextmanager
def blas_threads_for(rows: int) -> Iterator[None]:
    """Hold BLAS to one thread in the body if the matrices have fewer than `THREADED_ROWS` rows."""
    if rows >= THREADED_ROWS:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
