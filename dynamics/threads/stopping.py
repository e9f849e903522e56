"""Work in a second thread that its caller can stop, and always waits for.

While compiled code or BLAS runs, no signal reaches Python, and one evaluation of a large field takes seconds. So work
that may take long runs in a thread of its own. Its caller looks for reasons to stop, sets a flag, and joins the thread.
Work looks at the flag between blocks that take at most about 0.2 s each, in Python by `give_way`, in compiled code at a
slot that `StopFlag.reaching` sets with the flag.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np

from hermite.arrays import Integers
from hermite.text.signals import heard

Result = TypeVar("Result")

#: What compiled code finds in its slot once it is to stop: no size of anything.
STOP = -(2**62)
#: Seconds between two looks of a caller for a reason to stop.
LOOK = 0.05

_given_up: contextvars.ContextVar[StopFlag | None] = contextvars.ContextVar("given_up", default=None)
_asked: contextvars.ContextVar[StopFlag | None] = contextvars.ContextVar("asked", default=None)


class GivenUp(BaseException):
    """Ends work that was given up; no Exception, so that nothing on the way catches it."""


class Stopped(Exception):
    """Work was given up, for the reason that its caller found."""

    def __init__(self, reason: Any) -> None:
        super().__init__(reason)
        self.reason = reason


class StopFlag:
    """A flag that one thread sets to have another one stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._slots: list[Integers] = []
        #: Whether the work has seen the flag, and ends for it.
        self.seen = False

    def set(self) -> None:
        """Set the flag, and the slots that it reaches now."""
        with self._lock:
            self._set = True
            for slot in self._slots:
                slot[:] = STOP

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._set

    @contextmanager
    def reaching(self, slot: Integers) -> Iterator[None]:
        """Have a slot, (1,), where compiled code looks, hold STOP in the body once the flag is set, and 0 after it."""
        with self._lock:
            self._slots.append(slot)
            slot[:] = STOP if self._set else 0
        try:
            yield
        finally:
            with self._lock:
                # By identity: arrays are equal by their elements.
                self._slots = [other for other in self._slots if other is not slot]
                slot[:] = 0


def with_slot(sizes: Integers) -> Integers:
    """Return the sizes of a system with a slot behind them, where its functions look for STOP."""
    return np.append(sizes, 0)


def whether_given_up() -> StopFlag | None:
    """Return the flag that is set when the caller's work is given up, for threads that share it, or None."""
    return _given_up.get()


def give_way(given_up: StopFlag | None) -> None:
    """End work here if it has been given up."""
    if given_up is not None and given_up.is_set():
        raise GivenUp


@contextmanager
def stopping_at(slot: Integers) -> Iterator[None]:
    """Have compiled code that looks at a slot, (1,), stop if this thread's work is given up; raise GivenUp then."""
    given_up = _given_up.get()
    if given_up is None:
        yield
        return
    with given_up.reaching(slot):
        yield
    give_way(given_up)


def interruption() -> Callable[[], bool]:
    """Return what tells, in any thread, whether this run is to end.

    That is so if its caller was interrupted, or if a signal asks the command to end.
    """
    asked = _asked.get()

    def is_interrupted() -> bool:
        if asked is not None and asked.is_set():
            asked.seen = True
            return True
        return heard()

    return is_interrupted


def is_interrupted() -> bool:
    """Return whether the run of this thread is to end; see `interruption`."""
    return interruption()()


def beside(work: Callable[[], Result], reason_to_stop: Callable[[], object | None]) -> Result:
    """Return what `work` returns in a second thread, while this one asks for a reason to stop every `LOOK` seconds.

    Raises Stopped if there was a reason to stop and the work gave way to it.
    """
    given_up, reason = StopFlag(), None
    thread = _Worker(work, _given_up, given_up)
    try:
        thread.start()
        while reason is None and not wait((thread.outcome,), LOOK).done:
            reason = reason_to_stop()
    finally:
        given_up.set()
        thread.end()
    if isinstance(thread.outcome.exception(), GivenUp):
        raise Stopped(reason)
    return thread.outcome.result()


def in_worker(work: Callable[[], Result]) -> Result:
    """Return what `work` returns in a second thread, for which the main thread waits; other threads do it themselves.

    An exception that a handler of a signal raises, such as KeyboardInterrupt, comes in the main thread, so it comes
    while that waits, never inside the work. The work is then asked to stop (`interruption`) and joined. What it returns
    is returned if it stopped for KeyboardInterrupt; else the exception goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    asked = StopFlag()
    thread = _Worker(work, _asked, asked)
    try:
        thread.start()
        while not wait((thread.outcome,), 10.0 * LOOK).done:  # Windows hears no signal in a wait without end
            pass
    except BaseException as error:
        try:
            asked.set()
        finally:  # another signal may raise in between
            thread.end()
        stopped = asked.seen and not thread.outcome.cancelled() and thread.outcome.exception() is None
        if not (isinstance(error, KeyboardInterrupt) and stopped):
            raise
    else:
        thread.join()
    return thread.outcome.result()


class _Worker(threading.Thread, Generic[Result]):
    """A thread that does work, in whose context a variable holds a flag."""

    def __init__(
        self, work: Callable[[], Result], variable: contextvars.ContextVar[StopFlag | None], flag: StopFlag
    ) -> None:
        super().__init__(name="worker")
        self.outcome: Future[Result] = Future()
        self._work, self._variable, self._flag = work, variable, flag
        self._context_of_caller = contextvars.copy_context()

    def run(self) -> None:
        """Do the work, unless `end` came before."""
        if self.outcome.set_running_or_notify_cancel():
            self._context_of_caller.run(self._do)

    def _do(self) -> None:
        self._variable.set(self._flag)
        try:
            self.outcome.set_result(self._work())
        except BaseException as error:  # raised in the caller's thread
            self.outcome.set_exception(error)

    def end(self) -> None:
        """Wait for the end of work that was asked to stop; work that has not begun never will.

        What a handler of a signal raises meanwhile is raised afterwards, but for a further KeyboardInterrupt.
        """
        if self.outcome.cancel():
            return
        late: BaseException | None = None
        # Not by `join`: CPython takes a thread for ended whose `join` was interrupted.
        while not self.outcome.done():
            try:
                wait((self.outcome,))
            except KeyboardInterrupt:
                continue
            except BaseException as error:
                late = error
        self.join()
        if late is not None:
            raise late
