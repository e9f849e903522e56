"""The arguments that every answer that is integrated in time shares, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynamics.integrators import check_method
from dynamics.problem import check_problem
from dynamics.problem.checks import check_choice, check_switch, checked_tolerances
from dynamics.problem.question import KINDS, check_question
from dynamics.problem.schedule import SaveAt, checked_schedule
from dynamics.runs.run_file import as_run_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dynamics.problem import Problem
    from dynamics.runs.run_file import RunFile
    from dynamics.solve.registry import Answer

__all__ = ["Asked", "checked"]

#: Arguments that say how a run is watched; they are neither the answer's own, nor stored with it.
WATCHING = ("trackers", "progress", "max_runtime", "on_failure", "checkpoint")
KEEPS = ("full", "summary")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The arguments that all answers share, checked.

    Parameters
    ----------
    problem : Problem
    save_at : SaveAt or None
        None for the answer's default.
    keep, method : str
    rtol, atol : float
    error_estimate : bool or None
        None: for all methods but the referees.
    file : RunFile
        Where the run is kept and, if it was begun, what it goes on from.
    """

    problem: Problem
    save_at: SaveAt | None
    keep: str
    method: str
    rtol: float
    atol: float
    error_estimate: bool | None
    file: RunFile

    def schedule(self, default: Callable[[], SaveAt]) -> SaveAt:
        """Return the saved times; the default is computed where none are given."""
        return checked_schedule(self.save_at, default() if self.save_at is None else self.save_at)

    def estimates(self, method: str) -> bool:
        """Return whether errors are to be estimated for a method."""
        return not method.startswith("scipy:") if self.error_estimate is None else self.error_estimate


def checked(answer: Answer, problem: Problem, arguments: Mapping[str, Any]) -> tuple[Asked, dict[str, Any]]:
    """Return the arguments that all answers share, checked, and those that are the answer's own."""
    if answer.students[0] in KINDS:
        check_question(problem, answer.students)
    else:
        student = getattr(problem, "kind", None)
        check_problem(problem, student if student in answer.students else answer.students[0], answer.fields)
    own = {name: value for name, value in arguments.items() if name not in ("problem", *WATCHING)}
    method = check_method(own.pop("method", answer.methods[0]), answer.methods)
    keep, estimate = own.pop("keep", KEEPS[0]), own.pop("error_estimate", None)
    check_choice("keep", keep, KEEPS)
    check_switch("error_estimate", estimate, optional=True)
    rtol, atol = checked_tolerances(own.pop("rtol", 1e-8), own.pop("atol", 1e-10))
    return Asked(
        problem=problem,
        save_at=own.pop("save_at", None),
        keep=keep,
        method=method,
        rtol=rtol,
        atol=atol,
        error_estimate=estimate,
        file=as_run_file(arguments.get("checkpoint")),
    ), own
