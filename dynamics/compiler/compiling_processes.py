"""Compiling in one process at a time for each generated file.

A process that compiles shows signs of life: it touches the lock of the file while it uses the processor. Who waits for
it waits as long as they come, however long the work is, and no longer.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hermite.text.signals import stop_if_heard

#: Seconds without a sign of life after which a process is taken to be stopped, or to hang.
STILL = 10.0
#: Seconds after which a wait is told.
SILENCE = 2.0
#: Seconds between two signs of life, and those of the processor that must have been used meanwhile.
BEAT, LEAST_WORK = 1.0, 0.01

_LOOK = 0.005
_told = False


def tell_once() -> None:
    """Say on a terminal that kernels are compiled, once per process."""
    global _told  # noqa: PLW0603 (a property of the process)
    if not _told and sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("Compiling kernels, once per machine …\n")
        _told = True


def lock_of(path: Path) -> Path:
    """Return the lock of a generated file."""
    return path.with_suffix(".lock")


@contextmanager
def signs_of_life(path: Path) -> Iterator[None]:
    """Touch the lock of a generated file every second in which this process has worked, until the body ends."""
    ended = threading.Event()

    def beat() -> None:
        # Of all threads but this one, whose looks add up.
        used = time.process_time() - time.thread_time()
        while not ended.wait(BEAT):
            now = time.process_time() - time.thread_time()
            # A stopped process uses none of the processor, nor does one that waits for a lock for ever.
            if now - used > LEAST_WORK:
                used = now
                with suppress(OSError):
                    os.utime(lock_of(path))

    thread = threading.Thread(target=beat, daemon=True, name="signs of life")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _Wait:
    """A wait for a process that compiles a generated file, which is told once if it lasts."""

    def __init__(self, path: Path, message: str) -> None:
        self._lock = lock_of(path)
        self._message = message
        self._waited = self._still = 0.0
        self._last = self._sign()

    def _sign(self) -> tuple[int, int]:
        with suppress(OSError):
            status = self._lock.stat()
            return status.st_ino, status.st_mtime_ns
        return 0, 0

    def goes_on(self) -> bool:
        """Sleep for a moment; return whether the other process has shown a sign of life of late."""
        stop_if_heard()
        time.sleep(_LOOK)
        # The clock runs on while this process is stopped, so it is not asked.
        self._waited += _LOOK
        if self._waited > SILENCE and self._message:
            sys.stderr.write(self._message)
            self._message = ""
        sign = self._sign()
        self._still = self._still + _LOOK if sign == self._last else 0.0
        self._last = sign
        return self._still < STILL


@contextmanager
def compiled_by_one(path: Path) -> Iterator[None]:
    """Wait until no other process compiles a generated file; what it compiled is then in the cache.

    Processes that start together would each compile it otherwise, and take twice as long. The lock of a process that
    shows no signs of life is taken from it: should it go on, both write the same.
    """
    lock = lock_of(path)
    message = (
        f"Waiting for another process that compiles {path} and holds {lock}; "
        f"if it stands still for {STILL:.0f} seconds this one will compile for itself.\n"
    )
    waiting = _Wait(path, message)
    while (descriptor := _locked(lock)) is None:
        if not waiting.goes_on():
            lock.unlink(missing_ok=True)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(lock: Path) -> int | None:
    """Return a descriptor that holds a lock while it is open; None if another process holds it."""
    # A link is not followed, and nothing is emptied: what it names is not ours.
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock

        flock(descriptor, LOCK_EX | LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), lock.lstat()):  # not taken away since it was opened
            return descriptor
    except ImportError:  # no such locks on Windows
        return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
