"""Seconds in which the functions of a run were compiled, found without Numba, which runs of SGD do not load."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class Timer(Protocol):
    """An object that knows for how long functions have been compiled."""

    @property
    def seconds(self) -> float:
        """Seconds so far in which functions were compiled."""


#: The timer of the run that goes on, None outside of runs.
TIMER_OF_RUN: ContextVar[Timer | None] = ContextVar("timer_of_run", default=None)


def compiled_seconds() -> float:
    """Return the seconds in which functions were compiled since this run began, 0 outside of runs."""
    timer = TIMER_OF_RUN.get()
    return 0.0 if timer is None else timer.seconds
