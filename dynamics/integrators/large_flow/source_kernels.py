"""Compiled steps of the fast sources, stage by stage: each of them feels where all others are at the same stage.

A step may have several equal parts. Executed after `partial_kernels`, the tableau, and `row_kernels`.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.arrays import Cube, Integers, Matrix, Vector
from dynamics.compiler.compilation import entry, kernel
from dynamics.compiler.views import row_part

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix
    from dynamics.equations.pairs.link_kernels import g0
    from dynamics.equations.pairs.rounding_kernels import rounded_coordinate
    from dynamics.integrators.explicit.dop853_tableau import DOP853_C, DOP853_WEIGHTS
    from dynamics.integrators.large_flow.partial_kernels import add_active, add_sources
    from dynamics.integrators.large_flow.plan import ACTIVE, ORDER, PLAN, Plan
    from dynamics.integrators.large_flow.plan_kernels import add_rest, rest_number
    from dynamics.integrators.large_flow.row_kernels import combine, combine_number, finish_row

# Sources whose forces are computed together: products of other shapes round differently.
TOGETHER = 8
LAST_STAGE = 15


@kernel
def stage_of_sources(
    s: int,
    first: int,
    last: int,
    h: float,
    part: int,
    parts: int,
    U: Matrix,
    log_n: Vector,
    rest: Cube,
    rest_growth: Matrix,
    slots: Integers,
    rest_powers: Matrix,
    sources: Cube,
    mass: Matrix,
    stages: Cube,
    growth_stages: Matrix,
    weights: Vector,
    room: Vector,
    plan: Plan,
) -> None:
    """Fill stage s of the sources `first` to `last` in a part of the step, and write where they are at the next."""
    of_rows, _, teacher = plan
    active = row_part(teacher, ACTIVE, 0, teacher.shape[1])
    u, velocity = sources[s, first:last], stages[s, first:last]
    overlap, growth = matrix(room, 0, last - first, mass.shape[1]), growth_stages[s, first:last]
    add_sources(first, u, sources[s], mass[s], overlap, velocity, growth)
    x = (part + DOP853_C[s]) / parts
    for q in range(slots.size):
        weights[q] = 0.0
        for p in range(slots.size - 1, -1, -1):
            weights[q] = weights[q] * x + rest_powers[p, q]
    for y in range(last - first):
        z = first + y
        i = of_rows[ORDER, z]
        add_rest(i, weights, slots, rest, velocity[y])
        total, radial = add_active(u[y], active, velocity[y])
        total += growth[y] - mass[s, z] * g0(1.0) + rest_number(i, weights, slots, rest_growth)
        growth[y] = 4.0 * total
        for k in range(u.shape[1]):
            velocity[y, k] -= radial * u[y, k]
        if s < LAST_STAGE:
            combine(U[z], stages, z, s + 1, h, sources[s + 1, z])
            log_next = log_n[z] + combine_number(growth_stages, z, DOP853_WEIGHTS[s + 1, : s + 1], h)
            mass[s + 1, z] = np.exp(log_next)


@entry(
    "void(i8, i8, i8, i8, f8, i8, i8, f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], i8[::1], f8[:,::1],"
    " f8[:,:,::1], f8[:,::1], f8[:,:,::1], f8[:,::1], f8[:,::1], f8[::1],"
    f" f8[::1], f8[::1], f8[::1], i8[::1], f8[:,:,::1], f8[:,::1], {PLAN})"
)
def step_sources(
    first_stage: int,
    last_stage: int,
    first_group: int,
    last_group: int,
    h: float,
    part: int,
    parts: int,
    U: Matrix,
    log_n: Vector,
    rest: Cube,
    rest_growth: Matrix,
    slots: Integers,
    rest_powers: Matrix,
    sources: Cube,
    mass: Matrix,
    stages: Cube,
    growth_stages: Matrix,
    U_new: Matrix,
    log_new: Vector,
    error: Vector,
    error_within: Vector,
    tolerance: Vector,
    leading: Integers,
    dense: Cube,
    dense_growth: Matrix,
    plan: Plan,
) -> None:
    """Take the stages `first_stage` to `last_stage` of a part of a step, of length h, of some groups of eight sources.

    Where all sources are at a stage stands in `sources` and `mass` before any group takes it, and a group leaves there
    where it is at the next. After the last stage see `finish_row`. All arrays but the rest of the field hold
    sources alone.
    """
    D, S = U.shape[1], mass.shape[1]
    weights, work, room = np.empty(slots.size), np.empty(4 * D), np.empty(TOGETHER * S)
    for s in range(first_stage, last_stage + 1):
        for first in range(TOGETHER * first_group, min(TOGETHER * last_group, S), TOGETHER):
            last = min(first + TOGETHER, S)
            stage_of_sources(
                s, first, last, h, part, parts, U, log_n, rest, rest_growth, slots, rest_powers, sources, mass, stages,
                growth_stages, weights, room, plan,
            )  # fmt: skip
            for x in range(first if s == LAST_STAGE else last, last):
                finish_row(
                    x, x, False, s == LAST_STAGE, h, U, log_n, stages, growth_stages, U_new, log_new, error,
                    error_within, tolerance, leading, dense, dense_growth, work,
                )  # fmt: skip


@entry("void(i8, i8, f8[::1], f8[:,:,::1], f8[:,::1], f8[:,:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,::1])")
def place_sources(
    begin: int,
    end: int,
    times: Vector,
    ends: Cube,
    log_ends: Matrix,
    dense: NDArray[np.float64],
    dense_growth: Cube,
    vectors: Cube,
    mass: Matrix,
) -> None:
    """Write unit vectors and masses of sources begin … end − 1 at some fractions of a step, by the dense output."""
    parts = dense.shape[0]
    for x in range(begin, end):
        for z in range(times.size):
            part = min(int(times[z] * parts), parts - 1)
            time = times[z] * parts - part
            u, polynomial, out = ends[part, x], dense[part], vectors[z, x]
            total = dense_growth[part, 6, x]
            for k in range(out.size):
                out[k] = polynomial[6, x, k]
            for q in range(5, -1, -1):
                factor = time if q % 2 == 1 else 1.0 - time
                total = dense_growth[part, q, x] + factor * total
                for k in range(out.size):
                    out[k] = polynomial[q, x, k] + factor * out[k]
            length = 0.0
            for k in range(out.size):
                out[k] = u[k] + time * out[k]
                length += out[k] * out[k]
            length = 1.0 / np.sqrt(length)
            for k in range(out.size):
                out[k] = rounded_coordinate(length * out[k])
            mass[z, x] = np.exp(log_ends[part, x] + time * total)
