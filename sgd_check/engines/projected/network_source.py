"""A network's links and its teacher f* as generated source for `network_kernels`.

Links are text, and so are the exponents of a polynomial; coefficients, directions and biases are numbers, so that one
compiled file serves all teachers of one form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sgd_check.engines.projected.links import link_piece, render_anywhere

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.compiler import Piece
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

_HEAD = ["", "", "@kernel", "def target(samples, t, first, teacher, ends):"]


class Source(NamedTuple):
    """Source of `sigma_and_slope` and `target`, what link it is, and the numbers that `target` takes."""

    piece: Piece
    link_name: str
    teacher: Array
    ends: Integers


def target(samples: Array, t: int, first: int, teacher: Array, ends: Integers) -> float:
    """f* of the sample in row t whose coordinates on the teacher's axes begin in column `first`."""
    raise NotImplementedError


def network_source(problem: Problem) -> Source:
    """Return the source for a network and its teacher.

    Units are sorted by their links: row p of `teacher` has a_p, β_p and θ_p, and those of link l are the rows from
    ends[l] to ends[l + 1]. Of a polynomial `teacher` is one row, the coefficients of its terms.
    """
    student, name = render_anywhere(problem.activation)
    polynomial = problem.teacher.target
    if polynomial is not None:
        value = horner_text(polynomial.exponents, "teacher[0, {}]", "samples[t, first + {}]")
        piece = link_piece([*student, *_HEAD, f"    return {value}"])
        return Source(piece, name, polynomial.powers[None], np.zeros(0, dtype=np.int64))
    units = problem.teacher.units(problem.teacher_link)
    links = list(dict.fromkeys(unit.link for unit in units))
    sorted_units = sorted(units, key=lambda unit: links.index(unit.link))
    body, total = student, [*_HEAD, "    total = 0.0"]
    for number, link in enumerate(links):
        suffix = "" if link == problem.activation else f"_of_unit_{number}"
        if suffix:
            body = [*body, "", *render_anywhere(link, suffix, slope=False)[0]]
        total += [
            f"    for p in range(ends[{number}], ends[{number + 1}]):",
            "        along = teacher[p, 1]",
            "        for c in range(teacher.shape[1] - 2):",
            "            along += teacher[p, 2 + c] * samples[t, first + c]",
            f"        total += teacher[p, 0] * sigma{suffix}(along)",
        ]
    rows = np.array([[unit.coefficient, unit.bias, *unit.direction] for unit in sorted_units])
    ends = np.searchsorted([links.index(unit.link) for unit in sorted_units], np.arange(len(links) + 1))
    return Source(link_piece([*body, *total, "    return total"]), name, rows, ends.astype(np.int64))


def horner_text(exponents: NDArray[np.int64], coefficient: str, variable: str) -> str:
    """Return the expression of Σ_t c_t Π_a x_a^exponents_ta by Horner's rule, one variable after the other.

    Examples
    --------
    >>> horner_text(np.array([[1, 0], [1, 1], [3, 0]]), "c{}", "x{}")
    'x0 * (c0 + x1 * c1 + x0 * x0 * c2)'
    """

    def nested(terms: list[tuple[int, tuple[int, ...]]], axis: int) -> str:
        if axis == exponents.shape[1]:
            return coefficient.format(terms[0][0])
        degrees = sorted({powers[axis] for _, powers in terms}, reverse=True)
        text = ""
        for degree, following in zip(degrees, [*degrees[1:], 0], strict=True):
            part = nested([term for term in terms if term[1][axis] == degree], axis + 1)
            text = f"{part} + {text}" if text else part
            if degree > following:
                factors = [variable.format(axis)] * (degree - following)
                text = " * ".join([*factors, f"({text})" if " + " in text else text])
        return text

    return nested(list(enumerate(map(tuple, exponents.tolist()))), 0)
