"""The teachers on which the mean field of spherical networks is studied, as problems in one table.

Single index, misspecified link, a link that is no polynomial, and mixtures over orthogonal and skew directions and over
a circle (Glasgow, Wu, Bruna, arXiv:2504.13110).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dynamics.problem import Problem
from dynamics.problem.checks import check_choice
from dynamics.problem.teacher import Teacher
from hermite.arrays import Array


class Entry(NamedTuple):
    """One teacher: title with mathtext, links of student and teacher, mixture weights and directions."""

    title: str
    activation: object
    teacher_activation: object | None
    coefficients: tuple[float, ...]
    directions: Array | None


#: Even angles over half a turn: for even links the other half is the same.
_TURN = np.pi * np.arange(8) / 8
_CIRCLE = np.stack([np.cos(_TURN), np.sin(_TURN)], axis=1)
#: Every teacher by its name.
SPHERICAL_TEACHERS = {
    "he3": Entry("single index, $h_3$", "he3", None, (1.0,), None),
    "he4": Entry("single index, $h_4$", "he4", None, (1.0,), None),
    "misspecified": Entry(
        r"$0.6\,h_4 + 0.3\,h_6$, student $h_4 + h_6$", {4: 1.0, 6: 1.0}, {4: 0.6, 6: 0.3}, (1.0,), None
    ),
    "gaussian": Entry("single index, $x^2 e^{-x^2} -$ mean", "x^2 exp(-x^2)", None, (1.0,), None),
    "orthogonal": Entry("three orthogonal directions, $h_4$", "he4", None, (0.5, 0.3, 0.2), None),
    "skew": Entry(
        "two directions at 60°, $h_3$", "he3", None, (0.6, 0.4), np.array([[1.0, 0.0], [0.5, np.sqrt(0.75)]])
    ),
    "circle": Entry("eight directions on a circle, $h_4$", "he4", None, (0.125,) * 8, _CIRCLE),
}


def spherical_problem(name: str, *, dimension: int, width: int = 1, seed: int = 0) -> Problem:
    """Return the problem of a teacher in `SPHERICAL_TEACHERS`; the mean field has no use for its width."""
    check_choice("name", name, tuple(SPHERICAL_TEACHERS))
    entry = SPHERICAL_TEACHERS[name]
    sizes: dict[str, Any] = {"width": width, "dimension": dimension, "seed": seed}
    links: dict[str, Any] = {"activation": entry.activation, "teacher_activation": entry.teacher_activation}
    teacher = Teacher(entry.coefficients, directions=entry.directions)
    return Problem(**links, teacher=teacher, student="spherical", **sizes)
