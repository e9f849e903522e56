"""The number of threads that the matrix products of a run use.

Small products lose more to waking a second thread than they gain from it: at m = P = 64 a right-hand side takes three
times as long with two threads as with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dynamics.threads.cores import one_blas_thread

#: Matrices of at least this many rows are worth more than one thread.
THREADED_ROWS = 256
OWN_THREADS = ("stiff", "gradient-descent")


@contextmanager
def blas_threads_for(rows: int, method: str = "") -> Iterator[None]:
    """Hold BLAS to one thread in the body if the matrices have fewer than `THREADED_ROWS` rows.

    Also for "stiff" and "gradient-descent", which share rows among threads of their own.
    """
    if rows >= THREADED_ROWS and method not in OWN_THREADS:
        yield
        return
    with one_blas_thread():
        yield
