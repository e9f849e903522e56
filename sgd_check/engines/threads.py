"""Threads over which an engine spreads its runs while it takes steps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Share = TypeVar("Share")
    Result = TypeVar("Result")


class RunThreads:
    """So many threads, which live while the engine is running; one thread is the caller's own."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return the context in which the threads live."""
        pool = ThreadPoolExecutor(self.count, thread_name_prefix="sgd") if self.count > 1 else nullcontext()
        try:
            with pool as self._pool:
                yield
        finally:
            self._pool = None

    @property
    def shared(self) -> bool:
        """Whether there are threads to share work with."""
        return self._pool is not None

    def each(self, work: Callable[[Share], Result], shares: Iterable[Share]) -> list[Result]:
        """Return the results of the work on every share, in order."""
        return list(map(work, shares) if self._pool is None else self._pool.map(work, shares))
