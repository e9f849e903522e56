"""How much work a study is: the seconds it should take, and a bar that shows how far it is.

Knows engines and the clock; nothing of what is studied.
"""

from __future__ import annotations

import sys
import time as clock
from typing import TYPE_CHECKING, Any, Self

from dynamics.commands import duration
from sgd_check.engines.registry import DEFAULT_ENGINE, EngineOptions, make_engine
from sgd_check.verdicts.defaults import measured_seconds_per_step

if TYPE_CHECKING:
    from types import TracebackType

    from dynamics.problem import Problem

BURSTS = 3
LONG_RUN_SECONDS = 660


def seconds_of(problem: Problem, runs: int, steps: float) -> float:
    """Return the seconds that so many steps, of all runs together, take on this machine, from the best short burst."""
    engine = make_engine(DEFAULT_ENGINE, problem, EngineOptions(seeds=tuple(range(runs))))
    # Whatever else the machine does can only make a burst slower.
    return min(measured_seconds_per_step(engine) for _ in range(BURSTS)) / runs * steps


def announcement(seconds: float, steps: float) -> str:
    """Return what a study says before its first step."""
    lines = [f"About {duration(seconds)} for {steps:.2g} steps of all runs together."]
    if seconds > LONG_RUN_SECONDS:
        lines.append("This is a long run: fewer or smaller dimensions, fewer seeds or a larger step size is faster.")
    return "\n".join(lines)


class Meter:
    """A bar on stderr that counts steps, and a clock.

    Parameters
    ----------
    total : float
        Expected number of steps of all runs.
    shown : bool or None
        Whether to show the bar; None if stderr is a terminal.
    """

    def __init__(self, total: float, shown: bool | None) -> None:
        self._total = total
        self._hidden = None if shown is None else not shown
        self._bar: Any = None
        self._started = self._ended = clock.perf_counter()

    def add(self, steps: int) -> None:
        """Count steps."""
        self._bar.update(steps)

    @property
    def seconds(self) -> float:
        """Seconds between begin and end."""
        return self._ended - self._started

    def __enter__(self) -> Self:
        """Show the bar."""
        from tqdm import tqdm

        self._started = clock.perf_counter()
        self._bar = tqdm(
            total=round(self._total), file=sys.stderr, disable=self._hidden, leave=False, unit="step", unit_scale=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        self._bar.close()
        self._ended = clock.perf_counter()
