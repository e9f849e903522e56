"""What watches a run: progress, steady state, wall-clock budget, callback.

A tracker sees the run between compiled chunks and may ask it to stop; it never changes the solution. Knows nothing of
the system that is solved nor of the integrator that solves it.
"""

from __future__ import annotations

import sys
import time as clock
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from dynamics.problem.checks import check_switch, checked_number
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dynamics.runs.loop import Snapshot


class StopReason(StrEnum):
    """Why a run ended; every member carries one sentence of advice."""

    REACHED_END = "reached_end"
    STEADY_STATE = "steady_state"
    MAX_RUNTIME = "max_runtime"
    CALLBACK = "callback"
    INTERRUPTED = "interrupted"
    STEP_TOO_SMALL = "step_too_small"
    NOT_FINITE = "not_finite"
    OVERLAP_ABOVE_ONE = "overlap_above_one"
    NORM_NOT_POSITIVE = "norm_not_positive"
    NOT_REALISABLE = "not_realisable"
    LOSS_ROSE = "loss_rose"
    UNFINISHED = "unfinished"

    @property
    def advice(self) -> str:
        """One sentence on what happened and what to try."""
        return _ADVICE[self]

    @property
    def failed(self) -> bool:
        """Whether the numerics failed, rather than somebody asking for an end."""
        return self in {
            StopReason.STEP_TOO_SMALL,
            StopReason.NOT_FINITE,
            StopReason.OVERLAP_ABOVE_ONE,
            StopReason.NORM_NOT_POSITIVE,
            StopReason.NOT_REALISABLE,
            StopReason.LOSS_ROSE,
        }

    @property
    def resumable(self) -> bool:
        """Whether the run was ended from outside, or has not ended, and could go on."""
        return self in {StopReason.MAX_RUNTIME, StopReason.CALLBACK, StopReason.INTERRUPTED, StopReason.UNFINISHED}


_ADVICE = {
    StopReason.REACHED_END: "Every requested time was reached.",
    StopReason.STEADY_STATE: "The state stopped moving before the last requested time.",
    StopReason.MAX_RUNTIME: "The wall-clock budget ran out; raise `max_runtime` or save fewer, earlier times.",
    StopReason.CALLBACK: "A callback asked to stop.",
    StopReason.INTERRUPTED: "The run was interrupted; times up to the interruption were kept.",
    StopReason.STEP_TOO_SMALL: (
        "The step size fell to rounding: the tolerance may be below what float64 can give (raise `rtol`), "
        "or the solution may blow up."
    ),
    StopReason.NOT_FINITE: "The state stopped being finite: the start may be too large, or the solution blows up.",
    StopReason.OVERLAP_ABOVE_ONE: (
        "An overlap of unit vectors left [-1, 1]: the errors have grown too large; lower `rtol`, or take 'stiff' or "
        "'bdf', which carry vectors."
    ),
    StopReason.NORM_NOT_POSITIVE: (
        "A squared norm is no longer positive: a neuron has shrunk below the smallest number; save earlier times."
    ),
    StopReason.NOT_REALISABLE: (
        "No vectors have the computed overlaps any more: the errors have grown too large; lower `rtol`, or take "
        "'stiff' or 'bdf', which carry vectors."
    ),
    StopReason.LOSS_ROSE: "The loss rose, which a gradient flow excludes: the errors are too large; lower `rtol`.",
    StopReason.UNFINISHED: "The run had not ended when this was written; times until then were kept.",
}


class RunView(Protocol):
    """What a tracker may look at."""

    @property
    def time(self) -> float:
        """Flow time reached."""
        ...

    @property
    def end(self) -> float:
        """Last requested time."""
        ...

    def state(self) -> NDArray[np.float64]:
        """Return the state at `time`."""
        ...

    def derivative(self) -> NDArray[np.float64]:
        """Return y' at `time`."""
        ...

    def statistics(self) -> dict[str, int]:
        """Return the integrator's counters."""
        ...

    def snapshot(self) -> Snapshot:
        """Return what was recorded, and a copy of the integrator's state, from which a run can go on."""
        ...


class Tracker(Protocol):
    """Anything with these three methods."""

    def start(self, view: RunView) -> None:
        """Prepare; called once, at the start of the run."""
        ...

    def check(self, view: RunView) -> StopReason | None:
        """Look at the run; return a reason to stop, or None. Called after every chunk of steps."""
        ...

    def finish(self, view: RunView) -> None:
        """Clean up; always called."""
        ...


@runtime_checkable
class UrgentTracker(Protocol):
    """A tracker that is asked in the middle of a long step, too."""

    def urgent(self, view: RunView) -> StopReason | None:
        """Return a reason to give the step up, or None; called about every 50 ms, from the thread of the run."""
        ...


class Progress:
    """Progress bar on stderr in log time; silent when stderr is not a terminal unless `force` is set."""

    def __init__(self, *, force: bool = False) -> None:
        self.force = force
        self._bar: Any = None

    def start(self, view: RunView) -> None:
        """Open the bar."""
        from tqdm import tqdm

        self._first = max(view.end * 1e-6, 1e-12)
        self._bar = tqdm(
            total=1.0,
            file=sys.stderr,
            disable=False if self.force else None,
            leave=False,
            bar_format="{l_bar}{bar}| {postfix} [{elapsed}<{remaining}]",
        )

    def check(self, view: RunView) -> StopReason | None:
        """Advance the bar to the fraction of log time that is done."""
        done = np.log1p(view.time / self._first) / np.log1p(view.end / self._first)
        steps = view.statistics().get("steps_accepted", 0)
        self._bar.set_postfix_str(f"t = {view.time:.3g}, {steps} steps", refresh=False)
        self._bar.update(min(done, 1.0) - self._bar.n)
        return None

    def finish(self, view: RunView) -> None:  # noqa: ARG002
        """Show where the run ended, and close the bar."""
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()


class MaxRuntime:
    """Stop after a wall-clock budget in seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = checked_number(seconds, "max_runtime", positive=True)

    def start(self, view: RunView) -> None:  # noqa: ARG002
        """Start the clock."""
        self._deadline = clock.monotonic() + self.seconds

    def check(self, view: RunView) -> StopReason | None:  # noqa: ARG002
        """Stop when the budget is spent."""
        return StopReason.MAX_RUNTIME if clock.monotonic() > self._deadline else None

    urgent = check

    def finish(self, view: RunView) -> None:
        """Do nothing."""


class SteadyState:
    """Stop when, at its present velocity, no component would move by `tolerance` before the end of the run.

    A neuron that waits to escape looks steady on any fixed scale. But one that will emerge before the end has
    C' · (end − t) ≥ C/(k − 2), since its escape is a blow-up: with a tolerance below C ~ 1/√d it is never mistaken.
    Neurons that are left over keep a run from settling: their ln n falls like −ln t for ever.
    """

    def __init__(self, tolerance: float = 1e-6) -> None:
        self.tolerance = checked_number(tolerance, "tolerance", positive=True)

    def start(self, view: RunView) -> None:
        """Do nothing."""

    def check(self, view: RunView) -> StopReason | None:
        """Extrapolate the velocity to the end."""
        still = 0 < view.time < view.end and (view.end - view.time) * np.abs(view.derivative()).max() < self.tolerance
        return StopReason.STEADY_STATE if still else None

    def finish(self, view: RunView) -> None:
        """Do nothing."""


class Callback:
    """Call `function(time, state)`; a true return value, or StopIteration, stops the run."""

    def __init__(self, function: Callable[[float, NDArray[np.float64]], object]) -> None:
        self.function = function

    def start(self, view: RunView) -> None:
        """Do nothing."""

    def check(self, view: RunView) -> StopReason | None:
        """Call the function."""
        try:
            stop = bool(self.function(view.time, view.state()))
        except StopIteration:
            stop = True
        return StopReason.CALLBACK if stop else None

    def finish(self, view: RunView) -> None:
        """Do nothing."""


def all_trackers(trackers: Sequence[Tracker], progress: bool | None, max_runtime: float | None) -> list[Tracker]:
    """Return the caller's trackers with the bar and the budget of every public `solve_*`.

    Parameters
    ----------
    trackers : sequence of Tracker
    progress : bool or None
        Whether to show a progress bar on stderr; None: if stderr is a terminal.
    max_runtime : float or None
        Wall-clock budget in seconds.
    """
    check_switch("progress", progress, optional=True)
    given: object = trackers
    if not isinstance(given, (list, tuple)):
        msg = f"Argument `trackers` must be a list of trackers, but is {shown(given)}."
        raise TypeError(msg)
    for tracker in given:
        if not all(callable(getattr(tracker, name, None)) for name in ("start", "check", "finish")):
            msg = f"Argument `trackers` must have the methods start, check and finish, but {shown(tracker)} has not."
            raise TypeError(msg)
    bar = [] if progress is False else [Progress(force=bool(progress))]
    budget = [] if max_runtime is None else [MaxRuntime(max_runtime)]
    return [*trackers, *bar, *budget]
