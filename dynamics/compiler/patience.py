"""Work in a second thread, so that its caller can interrupt it, and leave it behind if it does not stop.

While compiled code or BLAS runs, no signal reaches Python, and one evaluation of a large field takes many seconds. So
work that may take long runs beside its caller, who looks for reasons to stop. Work that is given up ends where it next
calls `give_way`; if it does not do so in time it is left behind, and ends by itself.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, NoReturn, TypeVar

from dynamics.compiler.interpreter import with_room

Result = TypeVar("Result")

#: Seconds between two looks around, and those that work has to give way before it is left behind.
LOOK, PATIENCE = 0.05, 0.3

_given_up: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("given_up", default=None)
_left_behind: list[threading.Thread] = []


class GivenUp(BaseException):
    """Ends work that was given up; no Exception, so that nothing on the way catches it."""


class Stopped(Exception):
    """Work was given up, for the reason that its caller found."""

    def __init__(self, reason: Any) -> None:
        super().__init__(reason)
        self.reason = reason


def whether_given_up() -> threading.Event | None:
    """Return the event that is set when the caller's work is given up, for threads that share it, or None."""
    return _given_up.get()


def give_way(given_up: threading.Event | None) -> None:
    """End work here if it has been given up."""
    if given_up is not None and given_up.is_set():
        raise GivenUp


def beside(work: Callable[[], Result], reason_to_stop: Callable[[], object | None]) -> Result:
    """Return what `work` returns in a second thread, while this one asks for a reason to stop every `LOOK` seconds.

    Raises Stopped if there was a reason to stop before the work was done; it may still be running then.
    """
    outcome: Future[Result] = Future()
    given_up, context = threading.Event(), contextvars.copy_context()

    def body() -> None:
        _given_up.set(given_up)
        try:
            outcome.set_result(work())
        except BaseException as error:  # raised below, in the caller's thread
            outcome.set_exception(error)

    thread = threading.Thread(target=context.run, args=(with_room, body), name="beside")
    thread.start()
    reason = None
    try:
        while reason is None and not outcome.done():
            wait((outcome,), LOOK)
            reason = None if outcome.done() else reason_to_stop()
    finally:
        given_up.set()
        wait((outcome,), PATIENCE)
        if not outcome.done():
            _left_behind.append(thread)
    if not outcome.done() or isinstance(outcome.exception(), GivenUp):
        assert reason is not None
        raise Stopped(reason)
    return outcome.result()


def leave(code: int) -> NoReturn:
    """End the process; at once if work was left behind, for which the interpreter would wait."""
    if any(thread.is_alive() for thread in _left_behind):
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        os._exit(code)
    sys.exit(code)
