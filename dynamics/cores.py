"""The number of cores that this process may use: all that it is given, or one where many processes share them.

Processes that this one starts look for modules where it does.

Small products lose more to waking a second thread than they gain from it: at m = P = 64 a right-hand side takes three
times as long with two threads as with one.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

#: Variables that libraries read as they load, for their number of threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)
#: How often the bodies of "runs", "one core", "one thread" and "starts" are entered now.
_entered: Counter[str] = Counter()
_limit: Any = None
#: Environment variables as they were before the bodies of "starts".
_variables: dict[str, str | None] = {}
_counting = threading.Lock()


def available_cores() -> int:
    """Return the number of cores that the caller may keep busy: 1 inside of `one_core`."""
    if _entered["one core"]:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _counted(body: str) -> Iterator[None]:
    """Count the threads that are in a body of this name."""
    with _counting:
        _entered[body] += 1
    try:
        yield
    finally:
        with _counting:
            _entered[body] -= 1


def module_path() -> dict[str, str]:
    """Return environment variables that give another process of Python the module path of this one.

    Without them ``python -c`` and ``python -m``, which is how processes are started, look in the current directory
    first, and run a file `random.py` that lies there.
    """
    folders = [folder for folder in sys.path if isinstance(folder, str) and os.pathsep not in folder]
    with suppress(FileNotFoundError):  # the current directory was removed
        folders = [folder or str(Path.cwd()) for folder in folders]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, folders))}


@contextmanager
def starts_processes() -> Iterator[None]:
    """Give processes that start in the body the module path of this one; `multiprocessing` has no argument for it."""
    with _counting:
        if not _entered["starts"]:
            _variables.update({name: os.environ.get(name) for name in module_path()})
            os.environ.update(module_path())
        _entered["starts"] += 1
    try:
        yield
    finally:
        with _counting:
            _entered["starts"] -= 1
            if not _entered["starts"]:
                set_variables(_variables)


def variables_of_user() -> dict[str, str | None]:
    """Return the environment variables that `starts_processes` sets, as they are outside of its bodies."""
    with _counting:
        return dict(_variables) if _entered["starts"] else {name: os.environ.get(name) for name in module_path()}


def set_variables(values: Mapping[str, str | None]) -> None:
    """Set environment variables; None removes one."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


#: Context that counts its body among the runs that this process follows at once, each in a thread.
one_of_the_runs = partial(_counted, "runs")


def runs_at_once() -> int:
    """Return how many runs share the cores now, 1 at least."""
    return max(_entered["runs"], 1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold all products of this process, by numpy and by compiled kernels, to one thread in the body.

    Of several threads in such bodies the first sets the limit, and the last restores what was before.
    """
    global _limit  # noqa: PLW0603 (a property of the process)
    libraries = find_blas()
    with _counting:
        if not _entered["one thread"]:
            _free(libraries)
            _limit = libraries.limit(limits=1, user_api="blas")
        _entered["one thread"] += 1
    try:
        yield
    finally:
        with _counting:
            _entered["one thread"] -= 1
            if not _entered["one thread"]:
                _free(libraries)
                _limit.restore_original_limits()
                _free(libraries)


def _free(libraries: ThreadpoolController) -> None:
    """Let any thread set the number of threads of OpenBLAS; from 3.8 on threadpoolctl obeys the first one that did."""
    for library in libraries.lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


def find_blas() -> ThreadpoolController:
    """Load the BLAS that kernels call, scipy's, and return the libraries that have threads.

    No other thread may load libraries during the first call: before 3.7, threadpoolctl would wait for it without end.
    """
    importlib.import_module("scipy.linalg.cython_blas")
    return _libraries("torch" in sys.modules, "sksundae" in sys.modules)  # both load further libraries of threads


@lru_cache
def _libraries(_with_torch: bool, _with_sundials: bool, /) -> ThreadpoolController:
    """Return the libraries of threads that are loaded; to find them takes longer than to solve a small flow."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_core() -> Iterator[None]:
    """Hold this process to one thread in the body: threads of BLAS, and those of `available_cores`."""
    with _counted("one core"), one_blas_thread():
        yield


#: Matrices of at least this many rows are worth more than one thread.
THREADED_ROWS = 256
OWN_THREADS = ("stiff", "gradient-descent")


def blas_threads_for(rows: int, method: str = "") -> AbstractContextManager[None]:
    """Return a context that holds BLAS to one thread for fewer than 256 rows, or for a method of `OWN_THREADS`."""
    return nullcontext() if rows >= THREADED_ROWS and method not in OWN_THREADS else one_blas_thread()
