"""The teachers on which the mean field of spherical networks is studied, as problems in one table.

Single index, misspecified link, a link that is no polynomial, and mixtures over orthogonal and skew directions and over
a circle (Glasgow, Wu, Bruna, arXiv:2504.13110).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics.problem import Problem
from dynamics.problem.checks import check_choice
from dynamics.problem.teacher import Teacher


class Entry(NamedTuple):
    """One teacher: title with mathtext, mixture weights and directions, links of student and teacher."""

    title: str
    activation: object
    teacher: Teacher
    teacher_activation: object | None = None


#: Even angles over half a turn: for even links the other half is the same.
_TURN = np.pi * np.arange(8) / 8
_CIRCLE = np.stack([np.cos(_TURN), np.sin(_TURN)], axis=1)
_SKEW = [[1.0, 0.0], [0.5, np.sqrt(0.75)]]
#: Every teacher by its name.
SPHERICAL_TEACHERS = {
    "he3": Entry("single index, $h_3$", "he3", Teacher([1.0])),
    "he4": Entry("single index, $h_4$", "he4", Teacher([1.0])),
    "misspecified": Entry(
        r"$0.6\,h_4 + 0.3\,h_6$, student $h_4 + h_6$", {4: 1.0, 6: 1.0}, Teacher([1.0]), {4: 0.6, 6: 0.3}
    ),
    "gaussian": Entry("single index, $x^2 e^{-x^2} -$ mean", "x^2 exp(-x^2)", Teacher([1.0])),
    "orthogonal": Entry("three orthogonal directions, $h_4$", "he4", Teacher([0.5, 0.3, 0.2])),
    "skew": Entry("two directions at 60°, $h_3$", "he3", Teacher([0.6, 0.4], directions=_SKEW)),
    "circle": Entry("eight directions on a circle, $h_4$", "he4", Teacher([0.125] * 8, directions=_CIRCLE)),
}


def spherical_problem(name: str, *, dimension: int, width: int = 1, seed: int = 0) -> Problem:
    """Return the problem of a teacher in `SPHERICAL_TEACHERS`; the mean field has no use for its width."""
    check_choice("name", name, tuple(SPHERICAL_TEACHERS))
    _, link, teacher, teacher_link = SPHERICAL_TEACHERS[name]
    return Problem(
        activation=link,
        teacher=teacher,
        teacher_activation=teacher_link,
        student="spherical",
        width=width,
        dimension=dimension,
        seed=seed,
    )
