"""One front door: the answer that fits the student of a problem."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from dynamics.problem.question import check_question
from dynamics.solve.registry import ANSWERS, answer_of
from hermite.text.messages import suggestion

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.problem.question import Question

__all__ = ["solve_problem"]


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
