"""Studies as functions with one signature for calls and command lines, and durations in words."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr

P = ParamSpec("P")


class Prepared(Protocol):
    """A study whose settings are checked and of which nothing is solved yet."""

    def work(self) -> str:
        """Return what will be done, in a line or two."""

    def run(self) -> xr.Dataset:
        """Do it; an interruption keeps what is computed."""


class Study(Protocol[P]):
    """A function that prepares a study and runs it."""

    #: The same arguments, to be checked before any work.
    prepare: Callable[P, Prepared]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> xr.Dataset:
        """Return what the study computes."""


def study_function(prepare: Callable[P, Prepared]) -> Study[P]:
    """Make a function that prepares a study into one that also runs it; the former is then its attribute `prepare`.

    A study that was interrupted raises SolveInterrupted with what it has computed. Settings are declared and explained
    once, for calls and for command lines, which prepare a study, say how long it will take, and then run it.
    """

    @wraps(prepare)
    def prepare_and_run(*args: P.args, **kwargs: P.kwargs) -> xr.Dataset:
        from dynamics.runs.result import uninterrupted

        return uninterrupted(prepare(*args, **kwargs).run())

    shown = inspect.signature(prepare).replace(return_annotation="xr.Dataset")
    vars(prepare_and_run).update(prepare=prepare, __signature__=shown)
    return cast("Study[P]", prepare_and_run)


def duration(seconds: float) -> str:
    """Return seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
