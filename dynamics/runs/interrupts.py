"""Signals that end a run: heard between two steps, and held back while a file is written."""

from __future__ import annotations

import signal
import threading
import time as clock
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dynamics.runs.result import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dynamics.runs.trackers import RunView

#: The signals of Ctrl-C, of a scheduler or `kill`, and, on POSIX, of a terminal that is closed.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
#: Seconds after the first signal from which on another one raises, since the run seems to hang.
IMPATIENCE = 5.0


class Interrupts:
    """Notes Ctrl-C, SIGTERM and SIGHUP until the run looks: an exception may be lost in a callback of some library.

    A signal that comes `IMPATIENCE` after the first raises at once, since somebody's tracker does not return. Outside
    the main thread, where Python allows no handlers, signals are left as they are. This is a tracker of the run loop,
    and a context for any other loop. With `tears` the first signal raises too, in a loop that does not look.
    """

    patient = True

    def __init__(self, *, tears: bool = False) -> None:
        self._tears = tears
        #: Whether one has arrived.
        self.heard = False
        self._first = 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        """Listen."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # A process that ignores one, such as a worker of a pool or what `nohup` starts, has a reason.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_error: object) -> None:
        """Put back the handlers that were there before."""
        for number, handler in self._previous.items():
            if handler is not None:
                signal.signal(number, handler)

    def start(self, view: RunView) -> None:  # noqa: ARG002
        """Listen."""
        self.__enter__()

    def check(self, view: RunView) -> StopReason | None:  # noqa: ARG002
        """Stop if one has arrived."""
        return StopReason.INTERRUPTED if self.heard else None

    urgent = check

    def finish(self, view: RunView) -> None:  # noqa: ARG002
        """Put back the handlers that were there before."""
        self.__exit__()

    def _hear(self, *_signal: object) -> None:
        now = clock.monotonic()
        if not self.heard:
            self.heard, self._first = True, now
            if self._tears:
                raise KeyboardInterrupt
        elif now - self._first > IMPATIENCE:
            raise KeyboardInterrupt


@contextmanager
def sheltered() -> Iterator[None]:
    """Hold signals back until the body has ended, then pass them on.

    An exception that a handler raises between two instructions of a library can leave its lock taken for ever, and
    what it writes half written. What has no handler in Python is left as it is.
    """
    held: list[int] = []
    previous: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if callable(signal.getsignal(number)):
                    previous[number] = signal.signal(number, lambda number, _frame: held.append(number))
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(held):
            signal.raise_signal(number)
