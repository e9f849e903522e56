"""Errors and warnings of SUNDIALS, kept off the standard output, which carries results.

The status of a step tells of them as well.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

# Read by SUNDIALS when it makes a context: the file that its warnings go to.
WARNINGS = "SUNLOGGER_WARNING_FILENAME"


class SilentThreads:
    """Stand in for the standard output, which carries results, while CVODE prints its errors there.

    Only what the entered threads write is dropped; what others write passes. Steppers on several threads share it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[int] = []
        self._output: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._threads:
                self._output, sys.stdout = sys.stdout, cast("TextIO", self)
            self._threads.append(threading.get_ident())

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._threads.remove(threading.get_ident())
            if not self._threads:
                sys.stdout = self._output

    def write(self, text: str) -> int:
        """Pass `text` on unless the writing thread is silent."""
        return len(text) if threading.get_ident() in self._threads else int(self._output.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


silence = SilentThreads()


@contextmanager
def warnings_off() -> Iterator[None]:
    """Keep a context of SUNDIALS that is made in the body from writing warnings to the standard output of the process.

    It warns of steps below rounding, which end a run here anyway. A file that the user chose for warnings is kept.
    """
    if WARNINGS in os.environ:
        yield
        return
    os.environ[WARNINGS] = os.devnull
    try:
        yield
    finally:
        os.environ.pop(WARNINGS, None)
