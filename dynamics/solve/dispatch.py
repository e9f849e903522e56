"""`solve_problem` asks the answer of a problem's student, `resume` goes on with a file, `estimate` tells the work."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from math import comb
from typing import TYPE_CHECKING, Literal, Unpack

from dynamics.problem.problem import flow_numbers_of, is_network
from dynamics.problem.question import OWN, Question, check_question
from dynamics.problem.saved_times import DEFAULT_COUNT, SaveAt
from dynamics.runs.run_file import DEFAULT_SECONDS, RunFile, reopened
from dynamics.runs.storage import StorageError
from dynamics.solve.registry import ANSWERS, answer_of, registered
from hermite.text.messages import refuse, suggestion

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.problem import Problem
    from dynamics.runs.trackers import Tracker
    from dynamics.solve.arguments import ProblemArguments
    from dynamics.solve.system import System


def solve_problem(problem: Question, **arguments: Unpack[ProblemArguments]) -> xr.Dataset:
    """Integrate the flow of a problem's own student, at its own width and dimension.

    Parameters
    ----------
    problem : Problem
        The student decides: "homogeneous" is given to `solve_overlaps`, "committee" to `solve_committee`, "spherical"
        to `solve_spherical`, and with the objective "correlation" to `solve_correlation`, "stiefel" to
        `solve_quadratic`, a `Student` to `solve_network`, and where `samples` are given to `solve_reused_data`. The
        limit of infinite width has a function of its own, `solve_mean_field`.
    **arguments
        Keyword arguments of that function, such as `save_at`, `rtol`, `keep` or `checkpoint`.

    Returns
    -------
    Dataset
        As of that function; its name is in the attribute `answer`.

    Raises
    ------
    SolveError, SolveInterrupted, TypeError, ValueError
        As that function; TypeError too for an argument that it lacks.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> problem = Problem(activation="erf", teacher=Teacher([1.0]), width=2, dimension=16, student="committee")
    >>> solve_problem(problem, save_at=SaveAt.at([0.0, 1.0]), progress=False).attrs["answer"]
    'committee'
    """
    check_question(problem, [kind for answer in ANSWERS for kind in answer.students])
    reused = is_network(problem) and "samples" in arguments
    solve = (registered("reused-data") if reused else answer_of(problem)).solve()
    argument_names = list(inspect.signature(solve).parameters)[1:]
    if name := next((name for name in arguments if name not in argument_names), None):
        refuse(
            f"Argument `{name}` must be one of `{solve.__name__}`, but that takes {', '.join(argument_names)}."
            f"{suggestion(name, argument_names, mark='`')}",
            error=TypeError,
        )
    return solve(problem, **arguments)


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
    trackers, progress, max_runtime, on_failure
        As in `solve_overlaps`, for this part alone.
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

    Examples
    --------
    >>> import tempfile
    >>> from dynamics import Callback, Problem, Teacher, solve_overlaps
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stop, file = Callback(lambda time, state: time > 1.0), f"{folder}/run.nc"
    ...     begun = solve_overlaps(problem, trackers=[stop], checkpoint=file, progress=False)
    ...     whole = resume(file, progress=False)
    >>> begun.attrs["stop_reason"], whole.attrs["stop_reason"]
    ('callback', 'reached_end')
    """
    file = path if isinstance(path, RunFile) else reopened(path, every=every)
    begun, file_name = file.begun, str(file.target)
    resumable = {answer.name: answer for answer in ANSWERS if answer.resumes}
    if begun is None or begun.answer not in resumable:
        answer_name = None if begun is None else begun.answer
        refuse(
            f"File {file_name!r} must hold a run of {' or '.join(resumable)}, but its answer is {answer_name!r}.",
            error=StorageError,
        )
    problem = begun.problem
    if begun.answer == OWN:
        from dynamics.solve.system import stored_again

        problem = stored_again(system, problem, file_name)
    elif system is not None:
        refuse(
            f"Argument `system` must be None for a run of {begun.answer}, whose problem is in its file, but is given."
        )
    solve = resumable[begun.answer].solve()
    try:
        return solve(
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
        refuse(
            f"File {file_name!r} must hold a run that can be resumed, but does not: {error}",
            error=StorageError,
            cause=error,
        )


#: Floating-point operations per second measured on one core for m = P = 64.
ASSUMED_SPEED = 1.0e10
#: The same for the particles of a mean field, on whose few products the integrator's own sums weigh.
MEAN_FIELD_SPEED = 2.0e9


def estimate(problem: Problem, model: str, keep: str, save_at: SaveAt | None, particles: int | None = None) -> str:
    """Return memory and work of a run in one line each, from counted operations, without running it."""
    m, P = problem.width, problem.num_directions
    if model == "quadratic":
        from dynamics.equations.quadratic import jumps_needed
        from dynamics.solve.quadratic import default_quadratic_times, quadratic_numbers

        times = (save_at or default_quadratic_times(problem)).times
        jumps = max(jumps_needed(times, float(problem.teacher.coefficients.max())), float(times.size))
        # Three Gram matrices and as many triangular solves a jump, some ten Gram matrices a direction that is reached.
        operations = (9.0 * jumps + 20.0 * min(2 * m, P)) * (P + m) * m * m
        return (
            f"memory: {8e-6 * sum(quadratic_numbers(problem, times.size)):.3g} MB\n"
            f"time: about {operations / ASSUMED_SPEED:.2g} s ({jumps:.0f} jumps, no time stepping)"
        )
    count = DEFAULT_COUNT if save_at is None else len(save_at)
    if model == "decoupled":
        bytes_needed = 8.0 * (12 * P + count * (2 * P if P <= 10_000 else 1))
        return f"memory: {bytes_needed / 1e6:.3g} MB\ntime: about {1e-8 * P * count + 0.5:.2g} s (no time stepping)"
    if model == "mean-field":
        from dynamics.equations.mean_field import DEFAULT_PARTICLES, OVERLAP_BINS, SHARES

        N, r = particles or DEFAULT_PARTICLES, problem.teacher.span
        degree = max(problem.activation.order, problem.teacher_link.order)
        kept = P * (OVERLAP_BINS + len(SHARES)) + (N * (r + 4) if keep == "full" else 0)
        state, numbers, runs = N * r, 30 * N * r + count * kept, "runs take thousands of evaluations"
        operations = float(N) * ((10 * degree if r == 1 else 6 * comb(r + degree, degree)) + 10 * r)
        speed = MEAN_FIELD_SPEED
    else:
        axes = problem.input_axes()
        kept = P + m if axes is None else axes.places.size
        state = m * kept + m * (2 if model == "network" else 1)
        numbers = flow_numbers_of(problem, keep=keep, times=count)
        operations = m * m * (4.0 * P + 2.0 * m if axes is None else 4.0 * kept) + 40.0 * state
        speed, runs = ASSUMED_SPEED, "runs take from a thousand evaluations per learned direction"
    return (
        f"memory: {8.0 * numbers / 1e6:.3g} MB (state {state} numbers, history {count} times)\n"
        f"time: {operations:.3g} operations an evaluation, about {operations / speed * 1e3:.2g} s per thousand "
        f"evaluations; {runs}"
    )
