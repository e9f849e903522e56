"""Work in a second thread that its caller can stop, and always waits for; threads that share the rows of a pass.

While compiled code or BLAS runs, no signal reaches Python. So work that may take long runs in a thread of its own,
which its caller asks to stop by a flag, and joins. Work looks at the flag between two evaluations, in Python by
`give_way`, in compiled code at a slot (`stopping_at`). Parts of a shared pass never share a row, so that the result
does not depend on the number of threads.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np

from dynamics.cores import available_cores, runs_at_once
from dynamics.signals import heard
from hermite.arrays import Integers

Result = TypeVar("Result")

#: Number that compiled code finds in its slot once it must stop; no size has this value.
STOP = -(2**62)
#: Seconds between two looks of a caller for a reason to stop, and between two of the main thread for the end of work.
LOOK, WAIT = 0.05, 0.5

_given_up: contextvars.ContextVar[StopFlag | None] = contextvars.ContextVar("given_up", default=None)
_asked: contextvars.ContextVar[StopFlag | None] = contextvars.ContextVar("asked", default=None)


class GivenUp(BaseException):
    """Raised to end work that was given up; a BaseException, so that no `except Exception` catches it."""


class Stopped(Exception):
    """Work was given up, for the reason that its caller found."""

    def __init__(self, reason: Any) -> None:
        super().__init__(reason)
        self.reason = reason


class StopFlag:
    """A flag that one thread sets to have another one stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_set = False
        self._slot: Integers | None = None
        #: Whether the work has seen the flag, and ends for it.
        self.seen = False

    def set(self) -> None:
        """Set the flag, and the slot that it reaches now."""
        with self._lock:
            self.is_set = True
            if self._slot is not None:
                self._slot[:] = STOP

    def reach(self, slot: Integers | None) -> None:
        """Write STOP to a slot, (1,), that compiled code reads, once the flag is set; write 0 to the slot before it."""
        with self._lock:
            if self._slot is not None:
                self._slot[:] = 0
            self._slot = slot
            if slot is not None and self.is_set:
                slot[:] = STOP


def whether_given_up() -> StopFlag | None:
    """Return the flag that is set when the caller's work is given up, for threads that share it, or None."""
    return _given_up.get()


def give_way(given_up: StopFlag | None) -> None:
    """Raise GivenUp if the work has been given up."""
    if given_up is not None and given_up.is_set:
        raise GivenUp


@contextmanager
def stopping_at(slot: Integers) -> Iterator[None]:
    """Have compiled code that looks at a slot, (1,), stop if this thread's work is given up; raise GivenUp then."""
    given_up = _given_up.get()
    if given_up is None:
        yield
        return
    given_up.reach(slot)
    try:
        yield
    finally:
        given_up.reach(None)
    give_way(given_up)


def interruption() -> Callable[[], bool]:
    """Return a function, for any thread, that returns whether the caller or a signal asked this run to end."""
    asked = _asked.get()

    def is_interrupted() -> bool:
        """Return whether this run was asked to end."""
        if asked is not None and asked.is_set:
            asked.seen = True
            return True
        return heard()

    return is_interrupted


def beside(work: Callable[[], Result], reason_to_stop: Callable[[], object | None]) -> Result:
    """Return the result of `work` in a second thread, while this one asks for a reason to stop every `LOOK` seconds."""
    given_up, reason = StopFlag(), None
    thread = _Worker(work, _given_up, given_up)
    try:
        thread.start()
        while reason is None and not thread.ended_within(LOOK):
            reason = reason_to_stop()
    finally:
        given_up.set()
        thread.end()
    if thread.is_given_up:
        raise Stopped(reason)
    return thread.result()


def in_worker(work: Callable[[], Result]) -> Result:
    """Return the result of `work` in a second thread, for which the main thread waits; other threads do it themselves.

    So what a signal's handler raises comes while the main thread waits, never inside the work, which is then asked to
    stop (`interruption`) and joined. Its result is returned if it stopped for KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    asked = StopFlag()
    thread = _Worker(work, _asked, asked)
    try:
        thread.start()
        while not thread.ended_within(WAIT):
            pass
    except BaseException as error:
        try:
            asked.set()
        finally:  # another signal may raise in between
            thread.end()
        if not (isinstance(error, KeyboardInterrupt) and asked.seen and thread.has_result):
            raise
    else:
        thread.join()
    return thread.result()


class _Worker(threading.Thread, Generic[Result]):
    """A thread that does work; a variable of its context holds the flag that stops the work.

    The thread that waits for it may be the main one, where the handler of a signal can raise between any two lines,
    also of the standard library's Python code, whose locks then stay taken. So it waits on one lock of the interpreter,
    never without end (a signal that comes as a wait begins is handled after it), and reads plain attributes.
    """

    error: BaseException | None = None

    def __init__(
        self, work: Callable[[], Result], variable: contextvars.ContextVar[StopFlag | None], flag: StopFlag
    ) -> None:
        """Prepare a thread that calls `work()`; `variable` is set to `flag` in a copy of the present context."""
        super().__init__(name="worker")
        self._work, self._flag = work, flag
        self._results: list[Result] = []
        self._begun = self._ended = False
        self._busy = threading.Lock()
        self._busy.acquire()  # released by the thread as it ends
        self._context_of_work = contextvars.copy_context()
        self._context_of_work.run(variable.set, flag)

    def run(self) -> None:
        """Do the work unless the flag is set, and keep its result or exception."""
        self._begun = True
        try:
            if not self._flag.is_set:
                self._results.append(self._context_of_work.run(self._work))
        except BaseException as error:  # raised in the caller's thread
            self.error = error
        finally:
            self._ended = True
            self._busy.release()

    @property
    def has_result(self) -> bool:
        """Whether the work has returned."""
        return bool(self._results)

    @property
    def is_given_up(self) -> bool:
        """Whether the work was given up before its end, or before it began."""
        return not self._results and (self.error is None or isinstance(self.error, GivenUp))

    def result(self) -> Result:
        """Return the result of the work, or raise its exception."""
        if self.error is not None:
            raise self.error
        return self._results[0]

    def ended_within(self, seconds: float) -> bool:
        """Return whether the work has ended; wait for that at most `seconds`."""
        if not self._ended and self._busy.acquire(timeout=seconds):
            self._busy.release()
        return self._ended

    def end(self) -> None:
        """Wait for the end of work that was asked to stop; work that has not begun does not begin.

        An exception from a signal's handler is raised afterwards, but for a further KeyboardInterrupt.
        """
        raised: BaseException | None = None
        while True:
            try:
                self._flag.set()  # again, where a signal came while it was set
                if not self._begun:  # work that begins after this sees the flag
                    break
                if self.ended_within(WAIT):
                    self.join()
                    break
            except KeyboardInterrupt:
                continue
            except BaseException as error:
                raised = error
        if raised is not None:
            raise raised


#: Numbers in the state below which waking a second thread costs more than it saves.
SMALLEST_STATE = 50_000
MOST_THREADS = 16
#: Rows are shared in groups of this many, the blocks of their matrix products: products of other shapes round
#: differently.
GRAIN = 128


class Workers:
    """Runs compiled passes over parts of the rows of a state (rows, columns), by default in one thread per core.

    States of fewer than `smallest` numbers, in long passes than `smallest_of_long`, have one thread. Runs that share
    the cores share the threads.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        threads: int | None = None,
        *,
        smallest: int = SMALLEST_STATE,
        smallest_of_long: int = SMALLEST_STATE,
    ) -> None:
        """Decide how many threads share a state of `rows` rows and `columns` columns, at most one per row.

        `threads` is the number for large states, by default one per core. States of fewer than `smallest` numbers have
        one thread, in long passes those of fewer than `smallest_of_long`.
        """

        def worth(least: int) -> int:
            """Return the number of threads for states of at least so many numbers."""
            wanted = available_cores() if rows * columns >= least else 1
            return max(min(wanted if threads is None else threads, MOST_THREADS, rows), 1)

        self._few, self.count = worth(smallest), worth(min(smallest, smallest_of_long))
        self._rows = rows
        self._pool = ThreadPoolExecutor(self.count - 1) if self.count > 1 else None

    def close(self) -> None:
        """End the threads; passes that follow are taken by their callers alone."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def over_rows(self, work: Callable[[int, int], None]) -> None:
        """Call work(begin, end) on consecutive parts that cover all rows, cut at multiples of `GRAIN`."""
        self.over_parts(-(-self._rows // GRAIN), lambda first, last: work(GRAIN * first, min(GRAIN * last, self._rows)))

    def over_parts(self, count: int, work: Callable[[int, int], None]) -> None:
        """Call work(begin, end) on consecutive parts of range(count), of about equal length for each thread."""
        self._share(_even(0, count, _now(self._few)), lambda begin, end, _thread: work(begin, end))

    def over_blocks(
        self, cuts: Integers, first: int, work: Callable[[Integers, int], None], *, is_long: bool = False
    ) -> None:
        """Call work(blocks, thread) on parts of the blocks from `first` on, rows shared evenly.

        The block `first` is part of what thread 0 gets.
        """
        last, marks = cuts.size - 1, [first, cuts.size - 1]
        threads = min(_now(self.count if is_long else self._few), last - first)
        if threads > 1:
            rows = _even(int(cuts[first]), int(cuts[last]), threads)
            marks[1:] = np.maximum(np.searchsorted(cuts, rows[1:]), first).tolist()
        self._share(marks, lambda begin, end, thread: work(np.arange(begin, end), thread))

    def over_some(self, blocks: Integers, work: Callable[[Integers, int], None]) -> None:
        """Call work(blocks, thread) on parts of the blocks with these numbers, about equally many in each thread."""
        marks = _even(0, blocks.size, _now(self._few))
        self._share(marks, lambda begin, end, thread: work(blocks[begin:end], thread))

    def _share(self, marks: list[int], work: Callable[[int, int, int], None]) -> None:
        """Call work(begin, end, thread) on the range between each two marks, in several threads.

        The calling thread, of number 0, takes the first part, and then every part that no other thread has begun, so
        that it does not wait for threads that are still asleep.
        """
        parts = deque((begin, end) for begin, end in pairwise(marks) if begin < end)
        if not parts:
            return
        give_way(whether_given_up())
        first_part = parts.popleft()
        if not parts:
            work(*first_part, 0)
            return

        def take(thread: int) -> None:
            """Do every part that no thread has begun."""
            while True:
                try:
                    part = parts.popleft()
                except IndexError:
                    return
                work(*part, thread)

        helpers = [] if self._pool is None else [self._pool.submit(take, n + 1) for n in range(len(parts))]
        try:
            work(*first_part, 0)
            take(0)
        finally:
            parts.clear()
            begun = [helper for helper in helpers if not helper.cancel()]
            wait(begun)
        for helper in begun:
            helper.result()


def _even(first: int, last: int, parts: int) -> list[int]:
    """Return parts + 1 integers from `first` to `last`, which cut the range into parts of about the same length."""
    return [first + round((last - first) * part / parts) for part in range(parts + 1)]


def _now(threads: int) -> int:
    """Return the number of threads that one run may use while others share the cores."""
    return max(threads // runs_at_once(), 1)
