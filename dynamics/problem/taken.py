"""Whether a theory or an engine takes a problem: its student, and the fields that not all of them know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamics.problem.problem import Problem
from dynamics.problem.problem_checks import CORRELATION, DECLARED_FIELDS, STUDENTS

if TYPE_CHECKING:
    from collections.abc import Collection

#: The function that integrates the overlaps of a `Student`.
SOLVE_NETWORK = "solve_network"


def check_problem(problem: object, student: str = "homogeneous", fields: Collection[str] = ()) -> None:
    """Raise one sentence unless `problem` is a Problem with the student that a theory is about.

    `fields` are those of `DECLARED_FIELDS` that the theory takes; any other must have its usual value.
    """
    if not isinstance(problem, Problem):
        msg = f"Argument `problem` must be a Problem, but is {type(problem).__name__}."
        raise TypeError(msg)
    check_fields(problem, fields, "here")
    if problem.kind != student:
        solve = STUDENTS.get(problem.kind, SOLVE_NETWORK)
        names = [f"the {each} student" if each in STUDENTS else "a Student" for each in (student, problem.kind)]
        msg = (
            f"Argument `problem` must have {names[0]} here, but has {names[1]}, "
            f"whose overlaps `dynamics.{solve}` integrates."
        )
        raise ValueError(msg)


def check_fields(problem: Problem, fields: Collection[str], where: str) -> None:
    """Raise ValueError by the first of `DECLARED_FIELDS` that is not usual and not among the fields that are known."""
    for name, value in problem.declared_fields.items():
        if name not in fields:
            msg = (
                f"Argument `problem` must have `{name}` {DECLARED_FIELDS[name]!r} {where}, but has {value!r}, "
                "which is not known there."
            )
            raise ValueError(msg)


def is_correlation(problem: Problem) -> bool:
    """Return whether a problem descends its correlation, not the squared error."""
    return problem.objective == CORRELATION
