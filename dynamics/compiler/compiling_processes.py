"""Compiling in a copy of this process, and in one process at a time for each generated file."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Seconds after which a copy of the process, or one that holds a lock, is taken to hang; the slowest file takes ten.
PATIENCE = 300.0
#: Seconds after which a process that waits for another one says so.
SILENCE = 2.0


@contextmanager
def in_another_process(work: Callable[[], object]) -> Iterator[None]:
    """Do work, whose results are files, in a copy of this process while the body runs, and wait for its end.

    On Linux; elsewhere, and if it fails, nothing is done. A copy starts in milliseconds, since everything is imported
    already. It has none of the other threads: should it wait for one of them, it is ended.
    """
    child = _copy_that_does(work)
    try:
        yield
        patience = time.monotonic() + PATIENCE
        while child is not None and time.monotonic() < patience:
            if _has_ended(child):
                child = None
            else:
                time.sleep(0.005)
    finally:
        if child is not None and not _has_ended(child):
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _copy_that_does(work: Callable[[], object]) -> int | None:
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


@contextmanager
def compiled_by_one(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Wait until no other process compiles a generated file; what it compiled is then in the cache.

    Processes that start together would each compile it otherwise, and take twice as long. Raises TimeoutError if
    another process holds the lock for longer than any compilation takes, such as one that was stopped; at once unless
    `wait`.
    """
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # no such locks on Windows
        yield
        return
    lock = path.with_suffix(".lock")
    # A link is not followed, and nothing is emptied: what it names is not ours.
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    began, told = time.monotonic(), False
    try:
        while True:
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
                break
            except BlockingIOError:
                waited = time.monotonic() - began
            if not wait or waited > PATIENCE:
                raise TimeoutError(errno.ETIMEDOUT, f"another process holds {lock}")
            if waited > SILENCE and not told:
                sys.stderr.write(
                    f"Waiting for another process that compiles {path} and holds {lock}; "
                    f"after {PATIENCE:.0f} seconds this one will compile for itself.\n"
                )
                told = True
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
