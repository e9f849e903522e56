"""Tells on stderr that functions are compiled before a run can begin: one line, and a bar of functions."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamics.kernels.compilation import FUNCTION, Compilation, listening
from dynamics.runs.trackers import as_interval, bar_settings, open_bar
from hermite.program import say

if TYPE_CHECKING:
    from collections.abc import Iterator


#: A bar of functions, with seconds of compiling instead of those of one bar: it closes whenever nothing is compiled.
FORMAT_OF_FUNCTIONS = "{l_bar}{bar}| {n_fmt}/{total_fmt} functions [{spent}<{left}]"


class Expected(NamedTuple):
    """Number of functions that the first run of an answer compiles, and seconds of a processor that this takes."""

    functions: int
    seconds: float


#: Answer -> what its first run compiles at its default settings (`python -m benchmarks.compilation`).
EXPECTED = {
    "overlaps": Expected(59, 4),
    "overlaps, k <= 2": Expected(94, 8),
    "decoupled": Expected(0, 0),
    "quadratic": Expected(0, 0),
    "network": Expected(69, 5),
    "correlation": Expected(35, 3),
    "mean-field": Expected(50, 4),
    "reused-data": Expected(46, 3),
}
#: Answers of optimizers other than SGD, which compile further functions.
OF_OPTIMIZERS = Expected(119, 10)


def expected_compilation(answer: str, *, has_optimizer: bool = False, decouples: bool = True) -> Expected | None:
    """Return what the first run of an answer compiles, in numbers of functions and seconds; None if unknown.

    Answers with an optimizer other than SGD compile further functions, and so do problems of information exponent below
    3, for which `decouples` is false.
    """
    if has_optimizer:
        return OF_OPTIMIZERS
    return (None if decouples else EXPECTED.get(f"{answer}, k <= 2")) or EXPECTED.get(answer)


class CompilationNotice(Compilation):
    """A notice that functions are compiled: a line at the first of them, and a bar.

    The line goes to stderr if `says` is true or the bar is shown.
    """

    def __init__(self, progress: bool | None, expected: Expected | None, *, says: bool) -> None:
        """Prepare a notice that is silent until the first function is compiled.

        `progress` is whether to show the bar, None for where stderr is a terminal or a notebook; `expected` is how many
        functions and seconds are expected, None if unknown, for the length of the bar; `says` asks for the line without
        a bar.
        """
        super().__init__()
        self._settings, self._says, self.expected = bar_settings(progress), says, expected
        self._bar: Any = None
        self._is_said = False

    @property
    def is_silent(self) -> bool:
        """Whether both the line and the bar are off."""
        return bool(self._settings["disable"]) and not self._says

    def on_start(self, event: object) -> None:
        """Print the line at the first function, and open the bar."""
        super().on_start(event)
        if not self._is_said:
            self._say()
        if self._bar is None and not self._settings["disable"]:
            total = None if self.expected is None else max(self.expected.functions, self.functions)
            bar = {"desc": "compiling", "total": total, "initial": self.functions, "unit": " functions"}
            form = {} if total is None else {"bar_format": FORMAT_OF_FUNCTIONS, **self._clock()}
            self._bar = open_bar(self._settings, **bar, **form)

    def on_end(self, event: Any) -> None:
        """Advance the bar by a function, and close it after the last one."""
        before = self.functions
        super().on_end(event)
        if self._bar is not None and self.functions > before:
            if self._bar.total is not None:
                self._bar.total = max(self._bar.total, self.functions)
            clock = self._clock()
            self._bar.spent, self._bar.left = clock["spent"], clock["left"]
            self._bar.update(self.functions - self._bar.n)
        if not self.is_running and (self.functions > before or event.kind == FUNCTION):
            self.close()

    def seconds_left(self) -> float | None:
        """Return the seconds of compiling that are left, None where nothing is expected.

        A function takes as long as those so far and as many as are expected, at their pace, did together.
        """
        if self.expected is None or not self.expected.functions:
            return None
        left = max(self.expected.functions - self.functions, 0)
        return left * (self.seconds + self.expected.seconds) / (self.functions + self.expected.functions)

    def _clock(self) -> dict[str, str]:
        """Return the seconds of compiling so far and those that are left, as a bar shows them."""
        left = self.seconds_left()
        return {"spent": as_interval(self.seconds), "left": "?" if left is None else as_interval(left)}

    def close(self) -> None:
        """Show the last count, and close the bar if it is shown."""
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()
            self._bar = None

    def _say(self) -> None:
        """Print the line on stderr, or above the bars that are shown."""
        self._is_said = True
        about = (
            "" if self.expected is None or not self.expected.functions else f" (about {self.expected.seconds:.0f} s)"
        )
        line = f"Compiling for this processor, once{about}; `feature-emergence compile` does all of it"
        if not self._settings["disable"]:
            from tqdm import tqdm

            tqdm.write(line, file=sys.stderr)  # above bars that are shown
        elif self._says:
            say(line)


_notice: ContextVar[CompilationNotice | None] = ContextVar("notice", default=None)


@contextmanager
def noticed_compilation(
    progress: bool | None, expected: Expected | None = None, *, says: bool = False
) -> Iterator[None]:
    """Tell of functions that are compiled in the body, once, unless a caller tells of them already.

    `progress` shows the bar as that of a run; with `says` the line is said in any case, as commands do. Where a caller
    has them noticed, it is told what is `expected`.
    """
    outer = _notice.get()
    if outer is not None:
        outer.expected = expected or outer.expected
        yield
        return
    notice = CompilationNotice(progress, expected, says=says)
    token = _notice.set(notice)
    try:
        with nullcontext() if notice.is_silent else listening(notice):
            yield
    finally:
        notice.close()
        _notice.reset(token)
