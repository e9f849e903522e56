"""Compiled steps of the fast sources, stage by stage: each of them feels where all others are at the same stage.

A step may have several equal parts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dynamics.equations.pairs.field_kernels import SCRATCH
from dynamics.equations.pairs.link import g0
from dynamics.equations.pairs.rounding_kernels import rounded_coordinate
from dynamics.integrators.explicit.dop853_tableau import DOP853_C, DOP853_WEIGHTS
from dynamics.integrators.large_flow.node_kernels import Rests
from dynamics.integrators.large_flow.partial_kernels import add_sources, add_teacher
from dynamics.integrators.large_flow.plan import LINK, ORDER, Plan
from dynamics.integrators.large_flow.plan_kernels import add_rest, rest_number
from dynamics.integrators.large_flow.row_kernels import Dense, Ends, State, combine, combine_number, finish_row
from dynamics.kernels.arrays import Cube, Matrix, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.views import vector

# Sources whose forces are computed together: products of other shapes round differently.
TOGETHER = 8
LAST_STAGE = 15

# Length of a part of the step, its number, and that of all.
Part = tuple[float, int, int]
# Vectors and masses at the stages, and the stages of vectors and of ln n.
Path = tuple[Cube, Matrix, Cube, Matrix]


@kernel
def stage_of_sources(
    s: int,
    first: int,
    last: int,
    part: Part,
    start: State,
    rests: Rests,
    path: Path,
    work: tuple[Vector, Vector, Vector],
    plan: Plan,
) -> None:
    """Fill stage s of the sources `first` to `last` in a part of the step, and write where they are at the next."""
    (h, number, parts), (U, log_n), (rest, rest_growth, slots, rest_powers) = part, start, rests
    (sources, mass, stages, growth_stages), (weights, room, scratch) = path, work
    of_rows, teacher, link = plan[0], plan[2], plan[LINK]
    u, velocity = sources[s, first:last], stages[s, first:last]
    overlap, growth = vector(room, 0, (last - first) * mass.shape[1]), growth_stages[s, first:last]
    add_sources(first, u, sources[s], mass[s], overlap, velocity, growth, scratch, plan)
    x = (number + DOP853_C[s]) / parts
    for q in range(slots.size):
        weights[q] = 0.0
        for p in range(slots.size - 1, -1, -1):
            weights[q] = weights[q] * x + rest_powers[p, q]
    # No source is in a cluster. A constant would have `add_teacher` compiled once more.
    peak, own = g0(link, 1.0), min(first, 0) - 1
    for y in range(last - first):
        z = first + y
        i = of_rows[ORDER, z]
        add_rest(i, weights, slots, rest, velocity[y])
        total, radial = add_teacher(link, u[y], own, teacher, velocity[y], scratch)
        total += growth[y] - mass[s, z] * peak + rest_number(i, weights, slots, rest_growth)
        growth[y] = 4.0 * total
        for k in range(u.shape[1]):
            velocity[y, k] -= radial * u[y, k]
        if s < LAST_STAGE:
            combine(U[z], stages, z, s + 1, h, sources[s + 1, z])
            log_next = log_n[z] + combine_number(growth_stages, z, DOP853_WEIGHTS[s + 1, : s + 1], h)
            mass[s + 1, z] = np.exp(log_next)


@entry
def step_sources(
    span: tuple[int, int, int, int],
    part: Part,
    start: State,
    rests: Rests,
    path: Path,
    ends: Ends,
    polynomials: Dense,
    plan: Plan,
) -> None:
    """Take some stages of a part of a step of some groups of eight sources.

    `span` is (first stage, last stage, first group, end of groups). Where all sources are at a stage stands in `path`
    before any group takes it, and a group leaves there where it is at the next. After the last stage see `finish_row`.
    All arrays but the rest of the field hold sources alone.
    """
    (first_stage, last_stage, first_group, last_group), h = span, part[0]
    D, S = start[0].shape[1], path[1].shape[1]
    weights, room = np.empty(rests[2].size), np.empty(TOGETHER * S)
    scratch, work = np.empty(SCRATCH), np.empty(4 * D)
    for s in range(first_stage, last_stage + 1):
        for first in range(TOGETHER * first_group, min(TOGETHER * last_group, S), TOGETHER):
            last = min(first + TOGETHER, S)
            stage_of_sources(s, first, last, part, start, rests, path, (weights, room, scratch), plan)
            # Constants in place of `is_last` would have `finish_row` compiled once more.
            is_last = s == LAST_STAGE
            for x in range(first if is_last else last, last):
                finish_row(x, x, not is_last, is_last, h, start, (path[2], path[3]), ends, polynomials, work)


@entry
def place_sources(
    begin: int,
    end: int,
    times: Vector,
    ends: tuple[Cube, Matrix],
    polynomials: tuple[NDArray[np.float64], Cube],
    out: tuple[Cube, Matrix],
) -> None:
    """Write unit vectors and masses of sources begin … end − 1 at some fractions of a step, by the dense output.

    `ends` holds the vectors and ln n where its parts begin, and `polynomials` the dense output of each.
    """
    (starts, log_starts), (dense, dense_growth), (vectors, mass) = ends, polynomials, out
    parts = dense.shape[0]
    for x in range(begin, end):
        for z in range(times.size):
            part = min(int(times[z] * parts), parts - 1)
            time = times[z] * parts - part
            u, polynomial, place = starts[part, x], dense[part], vectors[z, x]
            total = dense_growth[part, 6, x]
            for k in range(place.size):
                place[k] = polynomial[6, x, k]
            for q in range(5, -1, -1):
                factor = time if q % 2 == 1 else 1.0 - time
                total = dense_growth[part, q, x] + factor * total
                for k in range(place.size):
                    place[k] = polynomial[q, x, k] + factor * place[k]
            length = 0.0
            for k in range(place.size):
                place[k] = u[k] + time * place[k]
                length += place[k] * place[k]
            length = 1.0 / np.sqrt(length)
            for k in range(place.size):
                place[k] = rounded_coordinate(length * place[k])
            mass[z, x] = np.exp(log_starts[part, x] + time * total)
