"""Counts the functions that Numba compiles while somebody waits, and the seconds."""

from __future__ import annotations

import functools
import hashlib
import time as clock
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numba
from llvmlite.binding import get_host_cpu_name
from numba.core.event import Listener, install_listener

from dynamics.kernels.cache import PACKAGES, ROOT, is_interpreted
from dynamics.kernels.compile_time import TIMER_OF_RUN
from dynamics.kernels.options import Untyped

#: Kinds of questions of which this process has noted that their functions are compiled.
_noted: set[str] = set()


#: Numba's events: a function that Python calls is compiled, a pass runs over any function, and the last of its passes.
FUNCTION, PASS, LAST_PASS = "numba:compile", "numba:run_pass", "nopython_backend"


class Compilation(Listener):
    """Counts the functions that are compiled while it listens, in whatever thread, and the wall-clock seconds.

    Functions that are loaded from disk do not count. Numba compiles one function at a time in a process, and those that
    it calls within it. It tells of functions that Python calls, and of each pass over any function: the last pass
    makes the machine code.
    """

    def __init__(self) -> None:
        self.functions = 0
        self._depth, self._began, self._before = 0, 0.0, 0.0

    @property
    def is_running(self) -> bool:
        """Whether a function is being compiled."""
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """Seconds so far in which functions were compiled."""
        return self._before + (clock.perf_counter() - self._began if self.is_running else 0.0)

    def on_start(self, event: Untyped) -> None:  # noqa: ARG002
        """Note that a function begins to be compiled; Numba calls this."""
        if not self.is_running:
            self._began = clock.perf_counter()
        self._depth += 1

    def on_end(self, event: Untyped) -> None:
        """Note that a pass or a function has ended; Numba calls this."""
        if self._depth == 1:
            self._before = self.seconds
        self._depth = max(self._depth - 1, 0)  # it began before this listened
        self.functions += event.kind == PASS and LAST_PASS in event.data["name"]


@contextmanager
def listening(listener: Compilation) -> Iterator[None]:
    """Have a listener count the functions that are compiled in the body."""
    with install_listener(FUNCTION, listener), install_listener(PASS, listener):
        yield


@contextmanager
def compilation_of_run() -> Iterator[Compilation]:
    """Count what is compiled in the body, which is one run, for `compiled_seconds`."""
    compilation = Compilation()
    token = TIMER_OF_RUN.set(compilation)
    try:
        with listening(compilation):
            yield compilation
    finally:
        TIMER_OF_RUN.reset(token)


def _directory() -> Path:
    """Return the directory in which Numba keeps the machine code of this module's functions."""
    place: Untyped = numba.njit(cache=True)(_directory).stats.cache_path
    return Path(place)


@functools.cache
def _code_state() -> str:
    """Return a text that changes with any source of the packages, the version of Numba, and the processor."""
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    states = ((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return repr((numba.__version__, get_host_cpu_name(), *states))


def _note(question: str) -> Path:
    """Return the path of the note that all functions of a kind of question are compiled."""
    digest = hashlib.sha256(f"{_code_state()}{question}".encode()).hexdigest()[:24]
    return _directory() / f"{digest}.compiled"


def note_compiled(question: str) -> None:
    """Write a note, beside the machine code, that all functions of a kind of question are compiled."""
    if question in _noted or is_interpreted():
        return
    _noted.add(question)
    with suppress(OSError, RuntimeError):  # no place to write to: machine code is not kept either
        _note(question).touch()


def is_compiled(question: str) -> bool:
    """Return whether a run of this kind of question has ended with the present sources on this processor."""
    with suppress(OSError, RuntimeError):
        return _note(question).is_file()
    return False
