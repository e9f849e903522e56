"""Compiled steps of the fast sources, stage by stage: each of them feels where all others are at the same stage.

Executed after `node_kernels`, the tableau, and `row_kernels`.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.arrays import Cube, Integers, Matrix, Real, Vector
from dynamics.compiler.compilation import entry, kernel
from dynamics.compiler.views import row_part, vector

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix
    from dynamics.equations.pairs.link_kernels import g0
    from dynamics.integrators.explicit.dop853_tableau import DOP853_C, DOP853_WEIGHTS
    from dynamics.integrators.large_flow.node_kernels import write_node
    from dynamics.integrators.large_flow.partial_kernels import add_active, add_sources
    from dynamics.integrators.large_flow.plan import ACTIVE, ORDER, PLAN, Plan
    from dynamics.integrators.large_flow.plan_kernels import add_rest, rest_number
    from dynamics.integrators.large_flow.row_kernels import combine, combine_number, finish_row

    REAL = "f8"

# Sources whose forces are computed together: products of other shapes round differently.
TOGETHER = 8
LAST_STAGE = 15


@kernel
def stage_of_sources(
    s: int,
    first: int,
    last: int,
    h: float,
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
    """Fill stage s of the sources `first` to `last`, and write where they are at the next."""
    of_rows, _, teacher = plan
    active = row_part(teacher, ACTIVE, 0, teacher.shape[1])
    u, velocity = sources[s, first:last], stages[s, first:last]
    overlap, growth = matrix(room, 0, last - first, mass.shape[1]), growth_stages[s, first:last]
    add_sources(first, u, sources[s], mass[s], overlap, velocity, growth)
    for q in range(slots.size):
        weights[q] = 0.0
        for p in range(slots.size - 1, -1, -1):
            weights[q] = weights[q] * DOP853_C[s] + rest_powers[p, q]
    for x in range(last - first):
        z = first + x
        i = of_rows[ORDER, z]
        add_rest(i, weights, slots, rest, velocity[x])
        total, radial = add_active(u[x], active, velocity[x])
        total += growth[x] - mass[s, z] * g0(1.0) + rest_number(i, weights, slots, rest_growth)
        growth[x] = 4.0 * total
        for k in range(u.shape[1]):
            velocity[x, k] -= radial * u[x, k]
        if s < LAST_STAGE:
            combine(U[i], stages, z, s + 1, h, sources[s + 1, z])
            log_next = log_n[i] + combine_number(growth_stages, z, DOP853_WEIGHTS[s + 1, : s + 1], h)
            mass[s + 1, z] = np.exp(log_next)


@entry(
    "void(i8, i8, i8, i8, b1, f8, f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], i8[::1], f8[:,::1],"
    f" f8[:,:,::1], f8[:,::1], f8[:,:,::1], f8[:,::1], f8[::1], {REAL}[:,:,::1], f8[:,::1], {REAL}[:,::1], f8[::1],"
    " f8[:,::1], f8[::1], f8[::1], f8[::1], f8[::1], i8[::1], f8[:,:,::1], f8[:,::1],"
    f" {PLAN})"
)
def step_sources(
    first_stage: int,
    last_stage: int,
    first_group: int,
    last_group: int,
    again: bool,
    h: float,
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
    times: Vector,
    nodes: NDArray[Real],
    node_mass: Matrix,
    ahead: NDArray[Real],
    ahead_growth: Vector,
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
    """Take the stages `first_stage` to `last_stage` of a step of some groups of eight sources; see `finish_row`.

    Where all sources are at a stage stands in `sources` and `mass` before any group takes it, and a group leaves there
    where it is at the next. After the last stage `nodes` and `node_mass` take where it is at the times of the nodes.
    """
    D, S = U.shape[1], mass.shape[1]
    weights, work, room = np.empty(slots.size), np.empty(4 * D), np.empty(TOGETHER * S)
    for s in range(first_stage, last_stage + 1):
        for first in range(TOGETHER * first_group, min(TOGETHER * last_group, S), TOGETHER):
            last = min(first + TOGETHER, S)
            stage_of_sources(
                s, first, last, h, U, log_n, rest, rest_growth, slots, rest_powers, sources, mass, stages,
                growth_stages, weights, room, plan,
            )  # fmt: skip
            for x in range(first if s == LAST_STAGE else last, last):
                i = plan[0][ORDER, x]
                finish_row(
                    i, x, again, s == LAST_STAGE, h, U, log_n, stages, growth_stages, U_new, log_new, error,
                    error_within, tolerance, leading, dense, dense_growth, work,
                )  # fmt: skip
                for z in range(times.size):
                    node_mass[z, x] = write_node(
                        i, times[z], U, log_n, dense, dense_growth, vector(work, 0, D), nodes[z, x]
                    )
                if ahead.shape[0] > 0 and not again:
                    # Sources feel each other at every stage.
                    ahead_growth[i] = 0.0
                    for k in range(D):
                        ahead[i, k] = 0.0
