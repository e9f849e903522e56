"""The number of cores that this process may use: all that it is given, or one where many processes share them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

#: What libraries read, when they are loaded, to know how many threads to start.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)
_held_to_one = 0


def available_cores() -> int:
    """Return the number of cores that the caller may keep busy: 1 inside of `one_core`."""
    if _held_to_one:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold the products of numpy and of compiled kernels to one thread in the body.

    Kernels call the BLAS of scipy, which Numba loads with the first of them; only what is loaded can be held.
    """
    import scipy.linalg.cython_blas  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


@contextmanager
def one_core() -> Iterator[None]:
    """Hold this process to one thread in the body: threads of BLAS, and those of `available_cores`.

    Kernels are compiled for one thread. May be entered from several threads at once.
    """
    global _held_to_one  # noqa: PLW0603 (a property of the process, as the threads of BLAS are)
    _held_to_one += 1
    try:
        with one_blas_thread():
            yield
    finally:
        _held_to_one -= 1
