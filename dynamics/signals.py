"""Signals that end a command: the first one is noted, and the command ends where it can do so in good order.

Handlers in Python never run while the main thread is in compiled code, so a watchdog thread reads the pipe that
`signal.set_wakeup_fd` fills at once. It ends the process if no code looks at the note for `ANSWER_SECONDS`, or at a
second signal. No handler raises an exception: one that is raised inside an import can be dropped and leave the import
lock taken.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time as clock
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from hermite.program import EXIT_INTERRUPTED, STDERR

#: The signals of Ctrl-C, of a scheduler or `kill`, and of a terminal that is closed, on Windows SIGBREAK.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name))
#: Seconds in which a command must look at a signal before its process is ended.
ANSWER_SECONDS = 10.0
#: Seconds in which several signals count as one: a shell and its terminal both send SIGHUP.
SAME_SECONDS = 0.25


@dataclass
class _Note:
    """Whether a signal came, whether code asked for it since, and whether signals are listened to."""

    heard: bool = False
    answered: bool = False
    listening: bool = False


_note = _Note()


def listen() -> None:
    """Note the first signal until the process ends; call it in the main thread of a command.

    A signal that the process has inherited as ignored, as with `nohup`, stays ignored.
    """
    if _note.listening:
        return
    _note.listening = True
    reader, writer = os.pipe()
    if hasattr(os, "set_blocking"):  # Windows, which does not ask for it, has it from Python 3.12 on
        os.set_blocking(writer, False)
    threading.Thread(target=_watch, args=(reader,), name="signals", daemon=True).start()
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _assign)
    # atexit calls functions in reverse order: these come last, and signals are ignored after them.
    for number in SIGNALS:
        atexit.register(signal.signal, number, signal.SIG_IGN)


def heard() -> bool:
    """Return whether a signal asks this command to end; who asks promises to end it. False outside of commands."""
    _note.answered |= _note.heard
    return _note.heard


def stop_if_heard() -> None:
    """Raise KeyboardInterrupt if a signal asks this command to end."""
    if heard():
        raise KeyboardInterrupt


def _assign(_number: int, _frame: object) -> None:
    _note.heard = True


def _watch(reader: int) -> None:
    """Wait for a signal, and end the process if no code looks at it in time or another one follows."""
    _await_signal(reader)
    _note.heard, first = True, clock.monotonic()
    deadline = threading.Timer(ANSWER_SECONDS, _end_unanswered)
    deadline.daemon = True
    deadline.start()
    while True:
        _await_signal(reader)
        if clock.monotonic() - first > SAME_SECONDS:
            _end_process("a second signal came")


def _await_signal(reader: int) -> None:
    while os.read(reader, 1)[0] not in SIGNALS:
        pass


def _end_unanswered() -> None:
    if not _note.answered:
        _end_process(f"the command did not answer a signal for {ANSWER_SECONDS:g} seconds")


def _end_process(reason: str) -> NoReturn:
    """Write the reason to stderr and end the process at once, with the exit code of an interruption."""
    with suppress(OSError):  # stderr may be closed
        os.write(STDERR, f"Ended at once: {reason}. Files keep what was last written.\n".encode())
    os._exit(EXIT_INTERRUPTED)
