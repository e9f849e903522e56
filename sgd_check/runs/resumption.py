"""`sgd_check.resume`: go on with a simulation from the file that it left."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from dynamics.problem import Problem
from dynamics.runs import DEFAULT_SECONDS, RunFile, StorageError, reopened
from hermite.text.messages import shown
from sgd_check.runs.plan import make_plan
from sgd_check.runs.simulation import simulate

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Any

    import xarray as xr

    from sgd_check.runs.plan import LearningRate, Plan

#: What trains models on tokens, in a room above this one.
TOKEN_SIMULATION = "sgd_check.tokens.simulation:simulate"
#: Settings in the file that say what was done rather than what was asked.
DERIVED = ("effective_learning_rate", "schedule_digest", "save_at")


def resume(
    path: str | os.PathLike[str] | RunFile,
    *,
    learning_rate: LearningRate | None = None,
    progress: bool | None = None,
    max_runtime: float | None = None,
    every: float = DEFAULT_SECONDS,
) -> xr.Dataset:
    """Go on with a simulation that was interrupted, killed or out of time, to its end, and complete its file.

    The states of the random generators are in the file, so the values are, bit for bit, those of a simulation that was
    never stopped.

    Parameters
    ----------
    path : path
        File that `simulate`, here or in `sgd_check.tokens`, with `checkpoint` left unfinished.
    learning_rate : callable, optional
        The function of the step that was given to `simulate`, which a file cannot hold; absent for a number.
    progress : bool, optional
        Show a bar on stderr; by default if it is a terminal or a notebook.
    max_runtime : float, optional
        Wall-clock budget in seconds, of this part alone.
    every : float, default 30
        Seconds between two checkpoints.

    Returns
    -------
    Dataset
        As of `simulate`. `wall_seconds` counts all parts.

    Raises
    ------
    StorageError
        If the file cannot be read, or holds no simulation that can be continued.
    ValueError
        If the learning rate is missing, or is not that of the file.
    """
    file = path if isinstance(path, RunFile) else reopened(path, every=every)
    begun = file.begun
    if begun is None or begun.answer != "simulation":
        answer = None if begun is None else begun.answer
        msg = f"File {str(file.target)!r} must hold a simulation, but its answer is {answer!r}."
        raise StorageError(msg)
    settings = {name: value for name, value in begun.settings.items() if name not in DERIVED}
    varies = settings["learning_rate"] == "schedule"
    if varies != (learning_rate is not None):
        need = "the function given to `simulate`" if varies else "absent, since the file holds a number"
        msg = f"Argument `learning_rate` must be {need}, but is {shown(learning_rate)}."
        raise ValueError(msg)
    if varies:
        _check_same_rates(make_plan(learning_rate, settings["steps"], None), begun.settings)
        settings["learning_rate"] = learning_rate
    try:
        if not isinstance(begun.problem, Problem):
            found: xr.Dataset = resolve_name(TOKEN_SIMULATION)(
                begun.problem, **settings, progress=progress, max_runtime=max_runtime, checkpoint=file
            )
            return found
        return simulate(
            begun.problem,
            save_at=begun.save_at,
            **settings,
            progress=progress,
            max_runtime=max_runtime,
            checkpoint=file,
        )
    except (TypeError, ValueError) as error:
        msg = f"File {str(file.target)!r} must hold a simulation that can be resumed, but does not: {error}"
        raise StorageError(msg) from error


def _check_same_rates(plan: Plan, stored: Mapping[str, Any]) -> None:
    """Refuse learning rates that are not those with which a simulation began; older files know their mean alone."""
    mean = stored["effective_learning_rate"]
    if plan.effective_rate != mean:
        msg = f"Argument `learning_rate` must have the mean {mean} over flow time, but has {plan.effective_rate}."
        raise ValueError(msg)
    if stored.get("schedule_digest", plan.digest) != plan.digest:
        msg = "Argument `learning_rate` must be that of `simulate` at every step, but is another one of the same mean."
        raise ValueError(msg)
