"""What is said where functions are compiled before a run can begin: one line, and a bar of functions."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamics.kernels.compilation import Compilation, listening
from dynamics.runs.trackers import bar_settings, open_bar
from hermite.text.command_line import say

if TYPE_CHECKING:
    from collections.abc import Iterator


class Expected(NamedTuple):
    """How many functions the first run of an answer compiles, and how many seconds of a processor that takes."""

    functions: int
    seconds: float


#: Answer -> what its first run compiles at its default settings (`python -m benchmarks.compilation`).
EXPECTED = {
    "overlaps": Expected(58, 12),
    "decoupled": Expected(0, 0),
    "quadratic": Expected(0, 0),
    "network": Expected(123, 27),
    "correlation": Expected(37, 8),
    "mean-field": Expected(65, 15),
}
#: Answers of an optimizer other than SGD, whose steps compile further functions.
OF_OPTIMIZERS = Expected(200, 70)


def expected_compilation(answer: str, *, has_optimizer: bool = False) -> Expected | None:
    """Return what the first run of an answer compiles, None if that is not known."""
    return OF_OPTIMIZERS if has_optimizer else EXPECTED.get(answer)


class CompilationNotice(Compilation):
    """Says at the first function that functions are compiled, and shows a bar of them.

    The line goes to stderr if `says` is true or the bar is shown.
    """

    def __init__(self, progress: bool | None, expected: Expected | None, *, says: bool) -> None:
        super().__init__()
        self._settings, self._expected, self._says = bar_settings(progress), expected, says
        self._bar: Any = None

    def on_start(self, event: Any) -> None:
        """Say the line at the first function, and open the bar."""
        begins = not self.is_running
        super().on_start(event)
        if begins:
            if self.functions == 0:
                self._say()
            if not self._settings["disable"]:
                total = None if self._expected is None else max(self._expected.functions, self.functions)
                bar = {"desc": "compiling", "total": total, "initial": self.functions, "unit": " functions"}
                self._bar = open_bar(self._settings, **bar)

    def on_end(self, event: Any) -> None:
        """Move the bar by a function, and close it after the last one."""
        super().on_end(event)
        if self._bar is not None:
            if self._bar.total is not None:
                self._bar.total = max(self._bar.total, self.functions)
            self._bar.update(self.functions - self._bar.n)
            if not self.is_running:
                self._bar.close()
                self._bar = None

    def _say(self) -> None:
        about = (
            "" if self._expected is None or not self._expected.functions else f" (about {self._expected.seconds:.0f} s)"
        )
        line = f"Compiling for this processor, once{about}; `feature-emergence compile` does all of it"
        if not self._settings["disable"]:
            from tqdm import tqdm

            tqdm.write(line, file=sys.stderr)  # above bars that are shown
        elif self._says:
            say(line)


_noticed: ContextVar[bool] = ContextVar("noticed", default=False)


@contextmanager
def noticed_compilation(
    progress: bool | None, expected: Expected | None = None, *, says: bool = False
) -> Iterator[None]:
    """Have functions that are compiled in the body noticed, once, unless a caller has them noticed already.

    `progress` shows the bar as that of a run; with `says` the line is said in any case, as commands do.
    """
    if _noticed.get():
        yield
        return
    token = _noticed.set(True)
    is_silent = bar_settings(progress)["disable"] and not says
    try:
        with nullcontext() if is_silent else listening(CompilationNotice(progress, expected, says=says)):
            yield
    finally:
        _noticed.reset(token)
