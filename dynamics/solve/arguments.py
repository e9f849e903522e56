"""The arguments that answers integrated in time share: types, defaults, and their part of signature and docstring.

A public function `solve_*` is written as ``def solve_*(problem, *, …, **shared: Unpack[Shared])``, which type checkers
and editors read. `integrated` shows the same arguments, one by one, to `inspect.signature` and `help`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import TYPE_CHECKING, ForwardRef, Literal, ParamSpec, TypedDict

from dynamics.problem.hints import check_names
from dynamics.solve.registry import registered
from hermite.text.messages import refuse

if TYPE_CHECKING:
    import os

    import xarray as xr

    from dynamics.problem.optimizers import Optimizer
    from dynamics.problem.rates import Schedule
    from dynamics.problem.saved_times import SaveAt
    from dynamics.runs.run_file import RunFile
    from dynamics.runs.trackers import Tracker

Parameters = ParamSpec("Parameters")


class WatchArguments(TypedDict, total=False):
    """The arguments that watch, bound, end and keep a run."""

    trackers: Sequence[Tracker]
    progress: bool | None
    max_runtime: float | None
    on_failure: Literal["raise", "return"]
    checkpoint: str | os.PathLike[str] | RunFile | None


class AccuracyArguments(TypedDict, total=False):
    """The arguments of method, accuracy and kept observables."""

    keep: Literal["full", "summary"]
    method: str
    rtol: float
    atol: float


class TimedArguments(WatchArguments, total=False):
    """The arguments of an answer without a tolerance."""

    save_at: SaveAt | None
    t_max: float | None


class ParticleArguments(TimedArguments, AccuracyArguments, total=False):
    """The arguments of an answer whose errors are not estimated."""


class Shared(ParticleArguments, total=False):
    """The arguments of all other answers."""

    error_estimate: bool | None


class SystemArguments(WatchArguments, AccuracyArguments, total=False):
    """The arguments of an answer whose saved times are always given."""

    error_estimate: bool | None


class ProblemArguments(Shared, total=False):
    """All arguments of all answers among which `solve_problem` chooses."""

    learning_rate: float | str | Schedule | None
    step_theory: Literal["finite-d", "infinite-d"] | None
    batch_size: int
    optimizer: Optimizer | str | None
    bands: bool | Literal["any size", "uniform start"]
    points: int | None
    device: str | None
    samples: float | str
    steps: int
    batches_per_epoch: int
    reshuffle: bool
    draws: int
    seed: int


#: Defaults of the shared arguments, in the order of signatures.
DEFAULTS: Shared = {
    "save_at": None,
    "t_max": None,
    "keep": "full",
    "method": "auto",
    "rtol": 1e-8,
    "atol": 1e-10,
    "trackers": (),
    "progress": None,
    "max_runtime": None,
    "on_failure": "raise",
    "error_estimate": None,
    "checkpoint": None,
}
#: Text on the shared arguments, for docstrings of answers.
TEXT = """\
t_max : float, optional
    Last saved time, in place of that of the default times; only without `save_at`.
keep : {"full", "summary"}
    Whether all observables are saved at every time, or "summary" leaves out large ones, as said under Returns.
method : {METHODS}
    Of those in the list, "explicit" is of order 8; "bdf" is matrix-free, of order 1 to 5; "sundials" is CVODE (an
    extra); "scipy:<name>" are referees; "map" takes every step of momentum and averages, of which "auto" passes over
    most; of others "auto" is "explicit" while that is cheap, else a method for stiff equations.
rtol, atol : float
    Wanted accuracy of the state, from which each method takes its tolerances per step.
trackers : sequence of Tracker
    Watch the run and may stop it.
progress : bool, optional
    Progress bar on stderr; by default if stderr is a terminal.
max_runtime : float, optional
    Wall-clock budget in seconds. Times after an early stop hold NaN; the attribute `stop_reason` says why it was.
on_failure : {"raise", "return"}
    What to do when the integration fails or is interrupted: raise with the partial dataset attached, or return it.
error_estimate : bool, optional
    Solve once more at ten times the tolerance, in a second thread, and report what that says about the errors of loss
    and times of events, in variables that end in `_error`: two thirds more work. They are inf if the looser run does
    not agree that an event happens. Where cutting the series of a link may change more than the tolerance, solve once
    more with half of its order, for variables that end in `_truncation_error`. By default for all methods but referees.
checkpoint : path or RunFile, optional
    File that holds the result in the end and, every 30 seconds until then, what was computed. `dynamics.resume` goes on
    from it if the run ends early, but for "sundials" and "scipy:<name>"."""
#: Errors of every answer, for docstrings.
RAISES = """\
Raises
------
SolveError
    If the integration fails and `on_failure` is "raise"; `error.dataset` holds what was computed.
SolveInterrupted
    A KeyboardInterrupt with `dataset`, if Ctrl-C was pressed and `on_failure` is "raise".
TypeError, ValueError, ImportError
    For bad arguments or a missing extra, before any work."""


def integrated(
    name: str, shared: type, *, before: str = "trackers", **defaults: object
) -> Callable[[Callable[Parameters, xr.Dataset]], Callable[Parameters, xr.Dataset]]:
    """Return a decorator of the function of an answer: signature and docstring list the shared arguments one by one.

    `shared` is the TypedDict of its last parameter. The answer's further arguments stand before the shared one named
    `before`; `defaults` are those of shared arguments where they differ. A call with a name that is no argument, or
    without one that is needed, is refused by a TypeError with a hint.
    """
    kinds = inspect.get_annotations(shared)
    options = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_text_of(kinds[key]))
        for key, default in {**DEFAULTS, **defaults}.items()
        if key in kinds
    ]
    place = [option.name for option in options].index(before)

    def decorate(solve: Callable[Parameters, xr.Dataset]) -> Callable[Parameters, xr.Dataset]:
        """Return a public function with the shared arguments in its signature and documentation."""
        written = inspect.signature(solve)
        question, *own_parameters, _ = written.parameters.values()
        signature = written.replace(parameters=[question, *options[:place], *own_parameters, *options[place:]])

        @wraps(solve)
        def checked(*arguments: Parameters.args, **named: Parameters.kwargs) -> xr.Dataset:
            """Call the function; TypeError in one sentence for arguments that its signature lacks."""
            check_names(solve.__name__, named, signature.parameters)
            try:
                signature.bind(*arguments, **named)
            except TypeError as error:
                refuse(f"{solve.__name__}() {error}", error=TypeError)
            return solve(*arguments, **named)

        checked.__doc__ = _documented(solve.__doc__ or "", kinds, registered(name).methods)
        vars(checked)["__signature__"] = signature
        return checked

    return decorate


def _text_of(annotation: object) -> object:
    """Return an annotation as text, as other parameters of this package have it."""
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation


def _documented(docstring: str, names: Collection[str], methods: Sequence[str]) -> str:
    """Return the docstring of an answer, with the shared arguments and errors where numpydoc wants them."""
    menu = dict.fromkeys(f'"{re.sub(":.*", ":<name>", method)}"' for method in methods)
    text = TEXT.replace("METHODS", ", ".join(menu))
    entries = [entry for entry in re.split(r"\n(?=\w)", text) if re.split(r"\W", entry, maxsplit=1)[0] in names]
    sections = re.split(r"\n\n(?=[A-Z]\w+\n---)", inspect.cleandoc(docstring))
    later = ("Warns", "Notes", "References", "Examples")
    place = next((i for i, section in enumerate(sections) if section.startswith(later)), len(sections))
    sections[place:place] = ["\n".join(["Other Parameters\n----------------", *entries]), RAISES]
    return "\n\n".join(sections)
