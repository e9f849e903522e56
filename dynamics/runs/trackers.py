"""A run in chunks of steps, trackers, which see it between them and may stop it, and checks of every recorded state."""

from __future__ import annotations

import contextvars
import io
import os
import sys
import time as clock
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from dynamics.kernels.compile_time import compiled_seconds
from dynamics.problem.checks import check_switch, check_type, checked_number, require
from dynamics.runs.result import StopReason
from dynamics.threads import Stopped, interruption
from hermite.text.messages import shown, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from dynamics.runs.result import Records
    from hermite.arrays import Array


CHUNK_SECONDS = 0.1
#: Steps of the first chunk: one, which may be long, unless the state has few numbers; then so many numbers are stepped.
FIRST_CHUNK_STEPS, FIRST_QUICK_WORK = 1, 1 << 18
LARGEST_CHUNK_STEPS = 1 << 20
#: Seconds after which a notebook, which keeps all output, shows a bar that was not asked for.
NOTEBOOK_DELAY = 1.0
#: Columns of a bar on a terminal that does not tell how many it has.
USUAL_COLUMNS = 80
#: The last times, up to this factor, from which the cost of the next is told, and the largest power of time that it is.
OCTAVES, MOST_GROWTH = 4.0, 2.0
#: Seconds left over those so far beyond which they are not known.
FURTHEST = 100.0
FORMAT_OF_FLOWS = "{l_bar}{bar}| {state} [{spent}<{left}]"


#: Name of a run on its bar, and the steps of SGD that other runs take before and after it.
_part: contextvars.ContextVar[tuple[str, float, float]] = contextvars.ContextVar("part", default=("", 0.0, 0.0))


@contextmanager
def part_of_work(name: str, before: float = 0.0, after: float = 0.0) -> Iterator[None]:
    """Give the bars of runs in the body a name; `before` and `after` are steps of SGD of other runs around them."""
    token = _part.set((name, before, after))
    try:
        yield
    finally:
        _part.reset(token)


def bar_settings(progress: bool | None) -> dict[str, object]:
    """Return arguments of tqdm; `progress` None shows bars where stderr is a terminal or that of a notebook.

    Nothing is shown, after a warning, where tqdm fails with the variables TQDM_… of the environment.
    """
    in_notebook = type(sys.stderr).__module__.startswith("ipykernel")
    is_open = hasattr(sys.stderr, "write") and not getattr(sys.stderr, "closed", False)
    delay = NOTEBOOK_DELAY if in_notebook and progress is None else 0.0
    if progress is None:
        progress = is_open and (_is_terminal(sys.stderr) or in_notebook) and not os.environ.get("TQDM_DISABLE")
    return {
        "file": sys.stderr,
        "disable": not (is_open and progress and _kind_of_bar()),
        "leave": False,
        "delay": delay,
        "ncols": None if _tells_columns() else USUAL_COLUMNS,
    }


def _is_terminal(stream: object) -> bool:
    """Return whether a stream is a terminal; streams without `isatty`, as of programs that capture output, are not."""
    ask = getattr(stream, "isatty", None)
    return callable(ask) and bool(ask())


def _tells_columns() -> bool:
    """Return whether stderr is no terminal, or a terminal with a known number of columns."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (AttributeError, OSError, TypeError, ValueError):
        return True


def open_bar(settings: dict[str, object], **options: object) -> Any:
    """Return a bar of tqdm with the settings of `bar_settings` and further arguments, such as `total` and `unit`.

    Its attributes `state`, `spent` and `left`, texts, are `{state}`, `{spent}` and `{left}` in a `bar_format`. One that
    is not shown counts nothing.
    """
    if settings["disable"]:
        return NoBar()
    return _kind_of_bar()(**{"desc": _part.get()[0] or None, **options, **settings})


def as_interval(seconds: float) -> str:
    """Return seconds as bars show them, such as 01:05."""
    from tqdm import tqdm

    return str(tqdm.format_interval(seconds))


class NoBar(AbstractContextManager["NoBar"]):
    """A bar that shows nothing, with the methods of those of tqdm."""

    n = 0

    def update(self, count: float = 1) -> None:
        """Count nothing."""

    def set_postfix_str(self, text: str = "", *, refresh: bool = True) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


@cache
def _kind_of_bar() -> Any:
    """Return the class of progress bars, derived from that of tqdm.

    If tqdm fails because of variables TQDM_… in the environment, a warning names them, and None is returned.
    """
    try:
        from tqdm import tqdm

        class Bar(tqdm):  # type: ignore[type-arg]
            #: Without the thread that refreshes bars of loops that stand still, and that would outlive them.
            monitor_interval = 0
            state = ""

            def __init__(self, *arguments: Any, spent: str = "00:00", left: str = "?", **options: Any) -> None:
                self.spent, self.left = spent, left  # the first are shown at once
                super().__init__(*arguments, **options)

            @property
            def format_dict(self) -> dict[str, object]:
                return {**super().format_dict, "state": self.state, "spent": self.spent, "left": self.left}

            def close(self) -> None:
                """Close the bar; the cursor goes back to the start of its line."""
                is_below = not self.disable and self.pos != 0
                super().close()
                if is_below:
                    self.fp.write("\r")  # a bar below another one leaves the cursor at the end of a line

        with Bar(total=2.0, file=io.StringIO(), disable=False) as tried:
            tried.update()
            tried.refresh()
    except Exception as error:
        names = " and ".join(sorted(name for name in os.environ if name.startswith("TQDM_")))
        if not names:
            raise
        warn(f"No progress bar is shown, since tqdm does not take {names} of the environment: {error!r}.")
        return None
    return Bar


class Run(ABC):
    """A run, of a flow or of SGD, that `follow` takes from record to record, with the values that trackers may read."""

    #: Last time asked for, in the unit of `time`.
    end: float
    #: Whether the run stands between two steps, so that it can be kept.
    intact = True
    #: The first reason that was found to stop without waiting for the end of a step.
    urgent: StopReason | None = None
    tracker_seconds = 0.0

    def __init__(self, quick_size: int = 0, stopping: Callable[[], object] = lambda: None) -> None:
        #: Steps of a chunk, adapted so that one takes about `CHUNK_SECONDS`; a state of `quick_size` numbers is quick.
        self.steps = min(FIRST_QUICK_WORK // quick_size, LARGEST_CHUNK_STEPS) if quick_size else FIRST_CHUNK_STEPS
        self._started, self._stopping = clock.perf_counter(), stopping
        self._watchers: Sequence[Tracker] = ()
        self._is_interrupted: Callable[[], bool] = bool

    @property
    @abstractmethod
    def time(self) -> float:
        """Time that the run has reached."""

    @property
    def settles(self) -> bool:
        """Whether the same equations hold to the end, so that a run at rest stays there."""
        return True

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether all records are made."""

    @property
    @abstractmethod
    def at_record(self) -> bool:
        """Whether the run has reached the time of the next record."""

    @abstractmethod
    def take(self) -> StopReason | None:
        """Take at most `steps` steps towards the next record; return a reason if the run cannot continue, or None."""

    @abstractmethod
    def record(self) -> str | None:
        """Make the record that was reached; return a reason to stop, or None."""

    @abstractmethod
    def snapshot(self) -> Any:
        """Return a snapshot of the run, from which it can continue."""

    def begin(self) -> None:  # noqa: B027 (nothing to do is a good beginning)
        """Prepare for the first step."""

    def state(self) -> Array:
        """Return the state at `time`; runs of SGD have none that a tracker could look at."""
        raise NotImplementedError

    def derivative(self) -> Array:
        """Return the rates y' of the state at `time`; runs of SGD have none."""
        raise NotImplementedError

    def statistics(self) -> dict[str, int]:
        """Return the counters of steps."""
        return {}

    def follow(self, trackers: Sequence[Tracker]) -> str:
        """Take the run to its end or until it must stop, with the trackers told, and return the reason.

        Trackers are started before the first step and finished after the last, also when the run fails. `intact` says
        afterwards whether the state is that after a whole step.
        """
        self._watchers, self._is_interrupted = trackers, interruption()
        reason: StopReason | str | None = None
        try:
            for tracker in trackers:
                tracker.start(self)
            self.intact = False
            self.begin()
            self.intact = True
            reason = self.urgent
            while reason is None and not self.over:
                reason = None if self.at_record else self._take_chunk()
                if self.at_record and not (reason and reason.failed):
                    # A wrong record is the reason that says most. Millions of records may lie within one step.
                    reason = self.record() or reason or self.asked_to_stop()
        except Stopped as stopped:
            reason, self.intact = stopped.reason, True
        except KeyboardInterrupt:
            reason = StopReason.INTERRUPTED
        finally:
            for tracker in trackers:
                tracker.finish(self)
        return reason or StopReason.REACHED_END

    def asked_to_stop(self) -> StopReason | None:
        """Return a reason to stop during a step, or None; the first reason is kept."""
        if self.urgent is None:
            self.urgent = self._asked("urgent")
            if self.urgent is not None:
                self._stopping()
        return self.urgent

    def _asked(self, method: str) -> StopReason | None:
        """Return the first reason to stop that a method of a tracker gives, or an interruption."""
        reasons = (getattr(watcher, method)(self) for watcher in self._watchers if hasattr(watcher, method))
        return next(filter(None, reasons), None) or (StopReason.INTERRUPTED if self._is_interrupted() else None)

    def _take_chunk(self) -> StopReason | None:
        """Take a chunk of steps, then ask the trackers; return a reason to stop, or None."""
        self.intact = False
        if (failure := self.take()) is not None:
            return failure
        self.intact, began = True, clock.perf_counter()
        reason = self.urgent or self._asked("check")
        self.tracker_seconds += clock.perf_counter() - began
        return reason

    def adapt(self, seconds: float, *, full: bool) -> None:
        """Adapt `steps` to the seconds of a chunk, which had all the steps that were allowed if `full`."""
        if seconds < 0.5 * CHUNK_SECONDS and (full or self.steps == 1):
            self.steps = min(2 * self.steps, LARGEST_CHUNK_STEPS)
        elif seconds > 2.0 * CHUNK_SECONDS:
            self.steps = max(self.steps // 2, 1)


@runtime_checkable
class Tracker(Protocol):
    """An object that watches a run with these three methods; a subclass must define `check` alone.

    With a true attribute `patient` it may miss saved times: many of a small flow may lie in one chunk of steps. With a
    method `urgent`, as `check`, it is asked in the middle of a long step too, about every 50 ms.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, StopReason, Teacher, solve_overlaps
    >>> class UntilAligned(Tracker):
    ...     def check(self, view):
    ...         return StopReason.CALLBACK if view.state()[0] > 0.9 else None
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16)
    >>> save_at = SaveAt.linear(0.0, 1000.0, 1001)
    >>> flow = solve_overlaps(problem, save_at=save_at, trackers=[UntilAligned()], progress=False)
    >>> flow.attrs["stop_reason"]
    'callback'
    """

    def start(self, view: Run) -> None:
        """Prepare; called once, at the start of the run."""
        del view

    def check(self, view: Run) -> StopReason | None:
        """Look at the run; return a reason to stop, or None. Called after every chunk of steps."""
        ...

    def finish(self, view: Run) -> None:
        """Clean up; always called."""
        del view


class SecondsLeft:
    """Forecast of the seconds that a run still takes, if its cost grows as over the last octaves of time."""

    def __init__(self, time: float) -> None:
        self._times, self._seconds = [time], [0.0]

    def after(self, time: float, seconds: float, end: float) -> float | None:
        """Return the seconds until `end` after `time` was reached in so many `seconds`; None if that is unknown.

        It is unknown where it would be above `FURTHEST` times the seconds so far.
        """
        self._times.append(time)
        self._seconds.append(seconds)
        first = max(self._times[0], time / OCTAVES)
        if not first < time < end:
            return 0.0 if time >= end else None
        middle = float(np.sqrt(first * time))
        before, half = np.interp([first, middle], self._times, self._seconds)
        last, ratio = seconds - half, time / middle
        if not 0.0 < half - before < seconds:
            return None
        growth = float(np.clip(last / (half - before), ratio**-MOST_GROWTH, ratio**MOST_GROWTH))
        count = float(np.log(end / time) / np.log(ratio))
        parts = count if abs(growth - 1.0) < 1e-6 else growth * (growth**count - 1.0) / (growth - 1.0)
        return float(last * parts) if parts * last < FURTHEST * seconds else None


class Progress(Tracker):
    """Progress bar on stderr in log time; by default where that is a terminal or a notebook's."""

    patient = True
    _bar: Any = None
    _name = ""

    def __init__(self, *, force: bool = False) -> None:
        self._settings = bar_settings(progress=True if force else None)

    def start(self, view: Run) -> None:
        """Open the bar if it is shown."""
        self.open(view.time, view.end)

    def check(self, view: Run) -> StopReason | None:
        """Advance the bar to the fraction of log time that is done."""
        self.show(view.time, f", {view.statistics().get('steps_accepted', 0)} steps")
        return None

    def open(self, time: float, end: float, name: str = "") -> None:
        """Open a bar of the way from a time to the end, with a name, if it is shown."""
        self._name = name
        if not self._settings["disable"]:
            self._first, self._end, self._left = max(end * 1e-6, 1e-12), end, SecondsLeft(time)
            self._compiled = compiled_seconds()
            named = {"desc": name} if name else {}
            self._bar = open_bar(self._settings, total=1.0, bar_format=FORMAT_OF_FLOWS, **named)

    def show(self, time: float, state: str = "") -> None:
        """Advance the bar to a flow time, with `state`, text behind the time."""
        if self._bar is not None:
            done = np.log1p(time / self._first) / np.log1p(self._end / self._first)
            stepping = self._bar.format_dict["elapsed"] - (compiled_seconds() - self._compiled)
            left = self._left.after(time, max(stepping, 0.0), self._end)
            self._bar.state, self._bar.spent = f"t = {time:.3g}{state}", as_interval(max(stepping, 0.0))
            self._bar.left = "?" if left is None else as_interval(left)
            self._bar.update(min(done, 1.0) - self._bar.n)

    def show_other(self, name: str, time: float, end: float) -> None:
        """Advance the bar of another run `name`, and open it before if needed; `finish` closes it."""
        if name != self._name:
            self.finish()
            self.open(time, end, name)
        self.show(time)

    def finish(self, view: Run | None = None) -> None:  # noqa: ARG002
        """Show where the run ended, and close the bar."""
        if self._bar is not None:
            if self._bar.format_dict["elapsed"] >= self._settings["delay"]:
                self._bar.refresh()
            self._bar.close()
            self._bar = None


class StepProgress(Progress):
    """Progress bar that counts the steps of SGD, with those that others take before and after them."""

    def start(self, view: Run) -> None:
        """Open the bar if it is shown."""
        if not self._settings["disable"]:
            self._before, after = _part.get()[1:]
            counted = {"total": self._before + view.end + after, "initial": self._before + view.time}
            self._bar = open_bar(self._settings, **counted, unit="step")

    def check(self, view: Run) -> StopReason | None:
        """Advance the bar to the step that was reached."""
        if self._bar is not None:
            self._bar.update(self._before + view.time - self._bar.n)
        return None


class MaxRuntime(Tracker):
    """Tracker that stops a run after a wall-clock budget in seconds."""

    patient = True

    def __init__(self, seconds: float) -> None:
        self.seconds = checked_number(seconds, "max_runtime", positive=True)

    def start(self, view: Run) -> None:  # noqa: ARG002
        """Start the clock."""
        self._deadline = clock.monotonic() + self.seconds

    def check(self, view: Run) -> StopReason | None:  # noqa: ARG002
        """Stop when the budget is spent."""
        return StopReason.MAX_RUNTIME if clock.monotonic() > self._deadline else None

    urgent = check


class SteadyState(Tracker):
    """Stop when, at its present velocity, no component would move by `tolerance` before the end of the run.

    A neuron that will emerge before the end has C' · (end − t) ≥ C/(k − 2), since its escape is a blow-up: with a
    tolerance below C ~ 1/√d it is never mistaken. Neurons that are left over keep a run from settling: their ln n falls
    like −ln t.

    Parameters
    ----------
    tolerance : float, default 1e-6
        Largest change of a component of the state until the end.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher, solve_overlaps
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16)
    >>> given = {"save_at": SaveAt.at([0.0, 200.0, 1000.0]), "progress": False}
    >>> flow = solve_overlaps(problem, trackers=[SteadyState(1e-4)], **given)
    >>> flow.attrs["stop_reason"], flow.loss.values.round(3).tolist()
    ('steady_state', [1.0, 0.0, nan])
    """

    def __init__(self, tolerance: float = 1e-6) -> None:
        self.tolerance = checked_number(tolerance, "tolerance", positive=True)

    def check(self, view: Run) -> StopReason | None:
        """Extrapolate the velocity to the end."""
        if not (view.settles and 0 < view.time < view.end):
            return None
        still = (view.end - view.time) * np.abs(view.derivative()).max() < self.tolerance
        return StopReason.STEADY_STATE if still else None


class Callback(Tracker):
    """Call `function(time, state)` about ten times a second; a true return value, or StopIteration, stops the run.

    Parameters
    ----------
    function : callable
        (flow time, state as one array) -> anything.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher, solve_overlaps
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=2, dimension=16)
    >>> stop = Callback(lambda time, state: time > 1.0)
    >>> flow = solve_overlaps(problem, save_at=SaveAt.linear(0.0, 50.0, 51), trackers=[stop], progress=False)
    >>> flow.attrs["stop_reason"]
    'callback'
    """

    def __init__(self, function: Callable[[float, Array], object]) -> None:
        self.function = function

    def check(self, view: Run) -> StopReason | None:
        """Call the function."""
        with suppress(StopIteration):
            return StopReason.CALLBACK if self.function(view.time, view.state()) else None
        return StopReason.CALLBACK


def all_trackers(trackers: Sequence[Tracker], progress: bool | None, max_runtime: float | None) -> list[Tracker]:
    """Return the caller's trackers, then a progress bar unless `progress` is False, then a budget of time if given.

    `progress` True shows the bar always, and None where it suits; `max_runtime` is in seconds. TypeError is raised for
    trackers that are none.
    """
    check_switch("progress", progress, optional=True)
    check_type("trackers", trackers, (list, tuple), "a list of trackers")
    for tracker in trackers:
        require(
            isinstance(tracker, Tracker),
            f"Argument `trackers` must have the methods start, check and finish, but {shown(tracker)} has not.",
            error=TypeError,
        )
    bar = [] if progress is False else [Progress(force=bool(progress))]
    budget = [] if max_runtime is None else [MaxRuntime(max_runtime)]
    return [*trackers, *bar, *budget]


#: Violations in units of `rtol` beyond which a run is wrong rather than inaccurate. Overlaps that are integrated drift
#: from those of vectors by far more than the error of a step, so the margin has more room.
TOLERATED, TOLERATED_MARGIN = 1e4, 1e6
OVERLAPS = {"teacher_overlap", "max_overlap", "alpha", "projection"}
#: A series whose means may have a larger error than this stands for another link.
LARGEST_SERIES_ERROR = 1e-6
MASSES = {"squared_norm", "particle_mass"}


@dataclass(frozen=True)
class Soundness:
    r"""Conditions that every record must satisfy; a call returns a reason to stop if one does not, or None.

    .. math:: |C_{ip}| \le 1, \quad n_i > 0, \quad G - C T^{-1} C^T \succeq 0, \quad
       E(f - f^*)^2 \text{ does not rise under a gradient flow}

    each up to a multiple of the tolerance; and a series that stands for a link must be accurate.
    """

    #: Accuracy that was asked for (0 for a method without), and the size of a loss, such as E f*².
    rtol: float
    scale: float
    #: Whether the loss may not rise: it may under steps of finite size.
    falls: bool
    #: Whether a squared norm may be 0: where n itself is integrated, not ln n, a neuron can shrink to nothing.
    dies: bool = False

    def __call__(self, records: Records, begin: int = -1) -> StopReason | None:
        """Check the records from number `begin` on, by default the last; return the reason to stop, or None.

        A record is wrong if an overlap is above 1, a norm is not positive, no vectors have its Gram matrix, a series is
        too short or the loss has risen, each beyond a tolerance. All records after the first wrong one are dropped.
        """
        count, slack = len(records), TOLERATED * self.rtol + 1e-9
        begin = range(count)[begin]
        new = {name: column[begin:count] for name, column in records.columns.items()}
        #: For each reason, whether it holds of each new record; the reason that tells most comes first.
        tests: list[tuple[NDArray[np.bool_], StopReason]] = []
        for name in new.keys() & OVERLAPS:
            overlaps = new[name].reshape(len(new[name]), -1)
            tests.append((np.max(np.abs(overlaps), axis=1, initial=0.0) > 1.0 + slack, StopReason.OVERLAP_ABOVE_ONE))
        for name in new.keys() & MASSES:
            least = np.min(new[name].reshape(len(new[name]), -1), axis=1, initial=1.0)
            tests.append(((least < 0.0) | ((least == 0.0) & (not self.dies)), StopReason.NORM_NOT_POSITIVE))
        if "gram_margin" in new:
            tests.append((new["gram_margin"] < -TOLERATED_MARGIN * self.rtol - 1e-9, StopReason.NOT_REALISABLE))
        if "series_error" in new:
            tests.append((~(new["series_error"] <= LARGEST_SERIES_ERROR), StopReason.SERIES_TOO_SHORT))
        if self.falls:
            with np.errstate(invalid="ignore"):  # an infinite loss is found by itself
                rise = np.diff(records.columns["loss"][max(begin - 1, 0) : count], prepend=np.inf)[begin - count :]
            tests.append((rise > slack * self.scale, StopReason.LOSS_ROSE))
        wrong = [(int(np.argmax(holds)), reason) for holds, reason in tests if holds.any()]
        if not wrong:
            return None
        place, reason = min(wrong, key=lambda pair: pair[0])
        records.drop_after(begin + place + 1)
        return reason


def outgrown(series_error: float) -> StopReason | None:
    """Return the reason to stop a run if the error of its means, `series_error`, is too large, else None."""
    return None if series_error <= LARGEST_SERIES_ERROR else StopReason.SERIES_TOO_SHORT
