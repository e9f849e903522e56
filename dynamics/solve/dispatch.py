"""The two functions for any problem: `solve_problem` asks the answer of its student, `resume` goes on with a file."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal

from dynamics.problem.question import OWN, check_question
from dynamics.runs.run_file import DEFAULT_SECONDS, RunFile, reopened
from dynamics.runs.storage import StorageError
from dynamics.solve.registry import ANSWERS, answer_of, answers_that
from hermite.text.messages import suggestion

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.problem.question import Question
    from dynamics.runs.trackers import Tracker
    from dynamics.solve.system import System

__all__ = ["resume", "solve_problem"]


def solve_problem(problem: Question, **arguments: Any) -> xr.Dataset:
    """Integrate the flow of a problem's own student, at its own width and dimension.

    Parameters
    ----------
    problem : Problem
        The student decides: "homogeneous" is given to `solve_overlaps`, "committee" to `solve_committee`, "spherical"
        to `solve_spherical`, and with the objective "correlation" to `solve_correlation`, "stiefel" to
        `solve_quadratic`, a `Student` to `solve_network`. The limit of infinite width has a function of its own,
        `solve_mean_field`.
    **arguments
        Keyword arguments of that function, such as `save_at`, `rtol`, `keep` or `checkpoint`.

    Returns
    -------
    Dataset
        As of that function; its name is in the attribute `answer`.

    Raises
    ------
    SolveError, SolveInterrupted
        If the integration fails or is interrupted, and `on_failure` is "raise".
    TypeError, ValueError
        For bad arguments, before any work.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> problem = Problem(activation="erf", teacher=Teacher([1.0]), width=2, dimension=16, student="committee")
    >>> solve_problem(problem, save_at=SaveAt.at([0.0, 1.0]), progress=False).attrs["answer"]
    'committee'
    """
    check_question(problem, [kind for answer in ANSWERS for kind in answer.students])
    solve = answer_of(problem).solve()
    known = list(inspect.signature(solve).parameters)[1:]
    for name in arguments:
        if name not in known:
            hint = suggestion(name, known, mark="`")
            msg = f"Argument `{name}` must be one of `{solve.__name__}`, but that takes {', '.join(known)}.{hint}"
            raise TypeError(msg)
    dataset: xr.Dataset = solve(problem, **arguments)
    return dataset


def resume(
    path: str | os.PathLike[str] | RunFile,
    *,
    system: System | None = None,
    trackers: Sequence[Tracker] = (),
    progress: bool | None = None,
    max_runtime: float | None = None,
    on_failure: Literal["raise", "return"] = "raise",
    every: float = DEFAULT_SECONDS,
) -> xr.Dataset:
    """Go on with a run that was interrupted, killed or out of time, to its end, and complete its file.

    Problem, schedule, method and tolerances are those in the file, as are the records before the stop. At the same
    number of threads the values are, bit for bit, those of a run that was never stopped. Resume only files that you
    trust: what is read is never executed, but compiled code goes on with the arrays as they are.

    Parameters
    ----------
    path : path
        File that a solve with `checkpoint`, or `python -m dynamics.solve`, left unfinished.
    system : System, optional
        For a run of `solve_system`: the system that began it, since files hold no code. Its fields are compared with
        those in the file, its equations are taken as they are now.
    trackers : sequence of Tracker
        Watch the run and may stop it again; those of the first call are not in the file.
    progress : bool, optional
        Progress bar on stderr; by default if stderr is a terminal.
    max_runtime : float, optional
        Wall-clock budget in seconds, of this part alone.
    on_failure : {"raise", "return"}
        What to do when the integration fails or is interrupted: raise with the partial dataset attached, or return it.
    every : float, default 30
        Seconds between two checkpoints.

    Returns
    -------
    Dataset
        As of the solve. `solve_seconds` counts all parts.

    Raises
    ------
    StorageError
        If the file cannot be read, or holds no run that can be continued.
    SolveError, SolveInterrupted
        As the solve does.
    """
    file = path if isinstance(path, RunFile) else reopened(path, every=every)
    begun = file.begun
    resumable = {answer.name: answer for answer in answers_that("resume")}
    if begun is None or begun.answer not in resumable:
        found = None if begun is None else begun.answer
        msg = f"File {str(file.target)!r} must hold a run of {' or '.join(resumable)}, but its answer is {found!r}."
        raise StorageError(msg)
    problem = begun.problem
    if begun.answer == OWN:
        from dynamics.solve.system import stored_again

        problem = stored_again(system, problem, str(file.target))
    elif system is not None:
        msg = f"Argument `system` must be None for a run of {begun.answer}, whose problem is in its file, but is given."
        raise ValueError(msg)
    try:
        dataset: xr.Dataset = resumable[begun.answer].solve()(
            problem,
            save_at=begun.save_at,
            **begun.settings,
            trackers=trackers,
            progress=progress,
            max_runtime=max_runtime,
            on_failure=on_failure,
            checkpoint=file,
        )
    except (TypeError, ValueError) as error:
        msg = f"File {str(file.target)!r} must hold a run that can be resumed, but does not: {error}"
        raise StorageError(msg) from error
    return dataset
