"""Compiling in a copy of this process, and in one process at a time for each generated file.

A process that compiles shows signs of life: it touches the lock of the file while it uses the processor. Who waits for
it waits as long as they come, however long the work is, and no longer.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Seconds without a sign of life after which a process is taken to be stopped, or to hang.
STILL = 10.0
#: Seconds after which a wait is told.
SILENCE = 2.0
#: Seconds between two signs of life, and those of the processor that must have been used meanwhile.
BEAT, LEAST_WORK = 1.0, 0.01

_LOOK = 0.005


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

    threading.Thread(target=beat, daemon=True, name="signs of life").start()
    try:
        yield
    finally:
        ended.set()


class _Wait:
    """A wait for a process that compiles a generated file, which is told once if it lasts."""

    def __init__(self, path: Path, message: str, *, progress: bool = False) -> None:
        self._lock = lock_of(path)
        #: Progress is for people, as bars are; that another process is in the way belongs into a log as well.
        self._message = "" if progress and not sys.stderr.isatty() else message
        self._waited = self._still = 0.0
        self._last = self._sign()

    def _sign(self) -> tuple[int, int]:
        with suppress(OSError):
            status = self._lock.stat()
            return status.st_ino, status.st_mtime_ns
        return 0, 0

    def goes_on(self) -> bool:
        """Sleep for a moment; return whether the other process has shown a sign of life of late."""
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
def in_another_process(path: Path, work: Callable[[], object]) -> Iterator[None]:
    """Compile a generated file in a copy of this process while the body runs, and wait for its end.

    On Linux; elsewhere, and if it fails, nothing is done. A copy starts in milliseconds, since everything is imported
    already. It has none of the other threads: should it wait for one of them, it is ended.
    """
    child = copy_that_does(work)
    try:
        yield
        wait = _Wait(path, "Compiling kernels, once per machine …\n", progress=True)
        while child is not None and wait.goes_on():
            child = None if _has_ended(child) else child
    finally:
        end_copy(child)


def copy_that_does(work: Callable[[], object]) -> int | None:
    """Return the number of a copy of this process that does work and ends, or None if there can be none."""
    if sys.platform != "linux":
        return None
    with warnings.catch_warnings():
        # Python warns of copies of processes with threads, which the work does not need.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            child = os.fork()
        except OSError:  # the user has as many processes as allowed
            return None
    if child == 0:
        status = 1
        try:
            # The copy ends with its work: nothing need be searched for memory to be freed, a twentieth of the time.
            gc.disable()
            # Nor is it traced: what coverage counts ends with it, and makes it take half as long again.
            sys.settrace(None)
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def _has_ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG) != (0, 0)
    except ChildProcessError:  # where SIGCHLD is ignored, the kernel forgets a process when it ends
        return True


def end_copy(child: int | None) -> None:
    """End a copy of this process, unless it has ended by itself."""
    if child is not None and not _has_ended(child):
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@contextmanager
def compiled_by_one(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Wait until no other process compiles a generated file; what it compiled is then in the cache.

    Processes that start together would each compile it otherwise, and take twice as long. The lock of a process that
    shows no signs of life is taken from it: should it go on, both write the same. Raises TimeoutError if another
    process holds the lock, unless `wait`.
    """
    lock = lock_of(path)
    message = (
        f"Waiting for another process that compiles {path} and holds {lock}; "
        f"if it stands still for {STILL:.0f} seconds this one will compile for itself.\n"
    )
    waiting = _Wait(path, message)
    while (descriptor := _locked(lock)) is None:
        if not wait:
            raise TimeoutError(errno.ETIMEDOUT, f"another process holds {lock}")
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
