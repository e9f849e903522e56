"""When to save: exactly these times, to which no solver is held, since dense output fills them in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem.checks import (
    check_memory,
    checked_integer,
    checked_number,
    checked_real,
    first_false,
    read_only,
    require,
)
from dynamics.problem.question import Compared
from hermite.arrays import Array, real_column
from hermite.text.messages import refuse, shown

DEFAULT_COUNT = 150
#: Arrays of the size of the saved times that are held while it is made and checked.
ARRAYS_OF_TIMES = 8


@dataclass(frozen=True, eq=False)
class SaveAt(Compared):
    """Times at which a solution is kept, increasing, in flow time (dimensionless).

    Make one with `SaveAt.geometric`, `SaveAt.linear` or `SaveAt.at`. Integration always starts at time 0, whether or
    not 0 is saved.

    Examples
    --------
    >>> SaveAt.geometric(1.0, 100.0, 3).times.tolist()
    [1.0, 10.0, 100.0]
    >>> SaveAt.linear(0.0, 1.0, 3)
    SaveAt(3 times from 0 to 1)
    """

    times: Array

    def __post_init__(self) -> None:
        times = real_column(self.times, "times")
        is_list = times.ndim == 1 and times.size != 0
        require(is_list, f"Argument `times` must be a non-empty list of times, but has shape {times.shape}.")
        if (at := first_false(np.isfinite(times) & (times >= 0.0))) is not None:
            refuse(
                f"Argument `times` must be finite and at least 0, but entry {at + 1} of {times.size} is {times[at]:g}."
            )
        if (at := first_false(np.diff(times) > 0)) is not None:
            refuse(f"Argument `times` must increase, but goes from {times[at]} to {times[at + 1]}.")
        object.__setattr__(self, "times", read_only(times))

    @classmethod
    def geometric(cls, first: float, last: float, count: int) -> SaveAt:
        """Return `count` times from `first` > 0 to `last`, equally spaced in the logarithm, as power laws need them."""
        begin, end, number = _checked_range(first, last, count, "<")
        times = np.geomspace(begin, end, number)
        times[0], times[-1] = begin, end
        return cls(times)

    @classmethod
    def linear(cls, first: float, last: float, count: int) -> SaveAt:
        """Return `count` equally spaced times from `first` ≥ 0 to `last`."""
        return cls(np.linspace(*_checked_range(first, last, count, "<=")))

    @classmethod
    def at(cls, times: ArrayLike) -> SaveAt:
        """Return a SaveAt of exactly these times."""
        return cls(np.atleast_1d(real_column(times, "times")))

    def __len__(self) -> int:
        return int(self.times.size)

    def _identity(self) -> bytes:
        return (self.times + 0.0).tobytes()

    def __repr__(self) -> str:
        return f"SaveAt({self.times.size} times from {self.times[0]:g} to {self.times[-1]:g})"


def _checked_range(first: object, last: object, count: object, above: Literal["<", "<="]) -> tuple[float, float, int]:
    """Return the first and last time and their number; the first is above 0, or at least 0 where `above` is "<="."""
    number = checked_integer(count, "count", minimum=2)
    begin, end = checked_real(first, "first"), checked_real(last, "last")
    is_above = begin > 0 if above == "<" else begin >= 0
    require(
        is_above and begin < end < np.inf,
        f"Arguments `first` and `last` must satisfy 0 {above} `first` < `last`, but are {begin} and {end}.",
    )
    check_memory("count", number, ARRAYS_OF_TIMES * number)
    return begin, end, number


def saved_until(save_at: object, t_max: object, default: SaveAt) -> SaveAt:
    """Return the saved times: those of `save_at`, or else the default ones, which end at `t_max` if that is given."""
    if t_max is None:
        return checked_save_at(save_at, default)
    end = checked_number(t_max, "t_max", positive=True)
    require(save_at is None, f"Argument `t_max` must be None where `save_at` is given, but is {end:g}.")
    return ended_at(default, end)


def ended_at(default: SaveAt, last: float) -> SaveAt:
    """Return as many geometric times as `default` has, from its first one, or `last`/100 if that is less, to `last`."""
    return SaveAt.geometric(min(float(default.times[0]), last / 100.0), last, len(default))


def checked_save_at(save_at: object, default: SaveAt) -> SaveAt:
    """Return `save_at`, or the default when it is None."""
    times = default if save_at is None else save_at
    if not isinstance(times, SaveAt):
        refuse(f"Argument `save_at` must be a SaveAt, such as SaveAt.at([...]), but is {shown(times)}.", TypeError)
    return times
