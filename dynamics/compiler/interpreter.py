"""What CPython does again and again while large libraries are loaded or compile, and need not."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")

#: Values for which the frame of `with_room` has places: 320 KB, for which CPython takes a chunk of 512 KB. The rest of
#: it is room for a thousand frames, or more.
PLACES = 40_000


def with_room(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, called from a frame that is followed by room for all it calls.

    CPython keeps the frames of a thread in chunks of 16 KB. A call for which the last chunk has no room gets a new one
    from the system and gives it back when it returns, so a loop that calls functions at such a depth does so every
    time: that was a tenth of the time in which Numba compiles.
    """
    return work()


with_room.__code__ = with_room.__code__.replace(co_stacksize=PLACES)


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no cycles of garbage in the body, which loads a library: a quarter of its time, and it makes none."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
