"""A teacher f* as data, and the compiled function that writes the labels of many samples, which no step changes.

The data are (a, β, θ, groups, links) with the coefficients a (units,), biases β (units,) and directions θ (units, r) of
units that are sorted by their links; θ has no row where unit p looks at axis p. Row l of `groups` holds the first unit
of link l and the place of that link in `links`, the last row the numbers of units and of entries of `links`. Of a
polynomial there are no units, and `links` is its program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.kernels.jit import entry, kernel, vector
from hermite.arrays import Integers, Matrix, Vector
from sgd_check.engines.projected.links import sampled_link, sampled_link_anywhere, scratch_size, write_values
from sgd_check.engines.projected.programs import FIRST, REGISTERS, polynomial_program, run_program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.problem import Problem
    from hermite.arrays import Array

Teacher = tuple[Vector, Vector, Matrix, Integers, Vector]

# Samples that are labelled at a time.
CHUNK = 256


def homogeneous_teacher(problem: Problem) -> Teacher:
    """Return the teacher Σ_p a_p σ(θ_p·x), σ being the student's own link."""
    teacher = problem.teacher
    directions = np.empty((0, teacher.span)) if teacher.directions is None else np.array(teacher.directions)
    a = np.array(teacher.coefficients)
    return _of_units(a, np.zeros(a.size), directions, [0], [sampled_link(problem.activation)[0]])


def network_teacher(problem: Problem) -> Teacher:
    """Return the teacher of a network: Σ_p a_p σ_p(θ_p·x + β_p), or a polynomial."""
    polynomial = problem.teacher.target
    if polynomial is not None:
        none, program = np.empty(0), np.array(polynomial_program(polynomial.exponents, polynomial.powers))
        return none, none.copy(), np.empty((0, problem.teacher.span)), np.zeros((0, 2), dtype=np.int64), program
    given = problem.teacher.units(problem.teacher_link)
    links = list(dict.fromkeys(unit.link for unit in given))
    units = sorted(given, key=lambda unit: links.index(unit.link))
    first = [[unit.link for unit in units].index(link) for link in links]
    data = [sampled_link_anywhere(link, slope=False)[0] for link in links]
    a, biases = np.array([(unit.coefficient, unit.bias) for unit in units]).T.copy()
    return _of_units(a, biases, np.array([unit.direction for unit in units]), first, data)


def _of_units(a: Array, biases: Array, directions: Array, first: list[int], links: Sequence[Array]) -> Teacher:
    places = np.cumsum([0, *(link.size for link in links)])
    groups = np.stack([[*first, a.size], places], axis=1).astype(np.int64)
    return a, biases, directions, groups, np.concatenate(links)


def label_scratch(teacher: Teacher, batch: int) -> int:
    """Return how many numbers of scratch `write_labels` takes."""
    _, _, _, groups, links = teacher
    size = max(CHUNK // batch, 1) * batch
    if len(groups) == 0:
        return int(links[REGISTERS]) * size
    return 2 * size + max(scratch_size(links[start:], size) for start in groups[:-1, 1].tolist())


def write_labels(teacher: Teacher, axes: int, samples: Matrix, noise: Matrix, labels: Matrix, scratch: Vector) -> None:
    """Write f*(x) + noise of all samples: sample b of row t begins in column b · axes of `samples`."""
    write = write_labels_of_polynomial if teacher[0].size == 0 else write_labels_of_units
    write(teacher, axes, samples, noise, labels, scratch)


@entry
def write_labels_of_polynomial(
    teacher: Teacher, axes: int, samples: Matrix, noise: Matrix, labels: Matrix, scratch: Vector
) -> None:
    """Run the program of a polynomial for so many samples at a time."""
    program, r = teacher[4], teacher[2].shape[1]
    steps, batch = noise.shape
    rows = max(CHUNK // batch, 1)
    for first in range(0, steps, rows):
        last = min(first + rows, steps)
        size = (last - first) * batch
        for t in range(first, last):
            for b in range(batch):
                for c in range(r):
                    scratch[c * size + (t - first) * batch + b] = samples[t, b * axes + c]
        run_program(program, 0, scratch, size)
        found = size * int(program[FIRST])
        for t in range(first, last):
            for b in range(batch):
                labels[t, b] = noise[t, b] + scratch[found + (t - first) * batch + b]


@entry
def write_labels_of_units(
    teacher: Teacher, axes: int, samples: Matrix, noise: Matrix, labels: Matrix, scratch: Vector
) -> None:
    """Add unit by unit for so many samples at a time."""
    a, _, _, groups, links = teacher
    steps, batch = noise.shape
    rows = max(CHUNK // batch, 1)
    for first in range(0, steps, rows):
        last = min(first + rows, steps)
        size = (last - first) * batch
        z, values = vector(scratch, 0, size), vector(scratch, size, size)
        rest = vector(scratch, 2 * size, scratch.size - 2 * size)
        for t in range(first, last):
            for b in range(batch):
                labels[t, b] = noise[t, b]
        for g in range(groups.shape[0] - 1):
            link = vector(links, groups[g, 1], groups[g + 1, 1] - groups[g, 1])
            for p in range(groups[g, 0], groups[g + 1, 0]):
                project(teacher, p, axes, samples, first, last, batch, z)
                write_values(link, z, values, rest)
                for t in range(first, last):
                    for b in range(batch):
                        labels[t, b] += a[p] * values[(t - first) * batch + b]


@kernel
def project(
    teacher: Teacher, p: int, axes: int, samples: Matrix, first: int, last: int, batch: int, out: Vector
) -> None:
    """Write θ_p·x + β_p of the samples in rows `first` to `last`."""
    _, biases, directions, _, _ = teacher
    for t in range(first, last):
        for b in range(batch):
            along = biases[p]
            if directions.shape[0] == 0:
                along += samples[t, b * axes + p]
            else:
                for c in range(directions.shape[1]):
                    along += directions[p, c] * samples[t, b * axes + c]
            out[(t - first) * batch + b] = along
