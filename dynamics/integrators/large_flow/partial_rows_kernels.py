"""Compiled pass of the large flow that writes the partial field, or the rest; executed after `partial_kernels`."""

from typing import TYPE_CHECKING

from numpy.typing import NDArray

from dynamics.compiler.arrays import Integers, Matrix, Real, Switches, Vector
from dynamics.compiler.compilation import entry, kernel
from dynamics.compiler.views import row_part, vector

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix
    from dynamics.equations.pairs.rounding_kernels import rounded_coordinate
    from dynamics.integrators.large_flow.partial_kernels import (
        add_active,
        add_clusters,
        add_near,
        add_sources,
        far_forces,
    )
    from dynamics.integrators.large_flow.plan import ACTIVE, ORDER, PLAN, Plan

    REAL = "f8"


@kernel
def force_of_sources(
    rows: Integers,
    u: Matrix,
    sources: Matrix,
    distant: NDArray[Real],
    mass: Vector,
    near: Switches,
    ahead: NDArray[Real],
    ahead_growth: Vector,
    F: Matrix,
    growth: Vector,
    room: NDArray[Real],
) -> None:
    """Write what the fast sources exert on a block of rows that are none; see `partial_rows`."""
    R, D, S = rows.size, u.shape[1], mass.size
    vectors, force, products = matrix(room, 0, R, D), matrix(room, R * D, R, D), matrix(room, 2 * R * D, R, S)
    compares = ahead.shape[0] > 0
    for x in range(R):
        growth[x] = 0.0
        for k in range(D):
            F[x, k] = 0.0
    if S > 0:
        for x in range(R):
            for k in range(D):
                vectors[x, k] = rounded_coordinate(u[x, k])
        far_forces(rows, vectors, distant, mass, near, not compares, products, force, growth)
        for x in range(R):
            for k in range(D):
                F[x, k] = force[x, k]
        for x in range(R if compares else 0):
            i = rows[x]
            ahead_growth[i] = growth[x] - ahead_growth[i]
            for k in range(D):
                ahead[i, k] = force[x, k] - ahead[i, k]
    for x in range(R):
        growth[x] += add_near(rows[x], u[x], sources, mass, near, F[x])


@entry(
    f"void(i8, i8, i8[::1], f8[:,::1], f8[::1], f8[:,::1], {REAL}[:,::1], f8[::1], b1[:,::1],"
    f" {REAL}[:,::1], f8[::1], f8[:,::1], f8[::1], b1,"
    f" f8[:,::1], f8[::1], f8[::1], {REAL}[::1],"
    f" {PLAN})"
)
def partial_rows(
    first_block: int,
    last_block: int,
    cuts: Integers,
    U: Matrix,
    log_n: Vector,
    sources: Matrix,
    distant: NDArray[Real],
    mass: Vector,
    near: Switches,
    ahead: NDArray[Real],
    ahead_growth: Vector,
    field: Matrix,
    field_growth: Vector,
    is_rest: bool,
    out: Matrix,
    out_growth: Vector,
    work: Vector,
    room: NDArray[Real],
    plan: Plan,
) -> None:
    """Write the partial field at one state for the blocks order[cuts[b]:cuts[b + 1]], or what it leaves of the field.

    `distant` holds the sources once more, for rows that are not near them.
    `ahead`, if it has rows, holds what a step expected from distant sources at its end; its error takes the place.
    """
    D, S = U.shape[1], mass.size
    of_rows, _, teacher = plan
    active = row_part(teacher, ACTIVE, 0, teacher.shape[1])
    for b in range(first_block, last_block):
        first, R = cuts[b], cuts[b + 1] - cuts[b]
        rows = row_part(of_rows, ORDER, first, R)
        u, F, overlap = matrix(work, 0, R, D), matrix(work, R * D, R, D), matrix(work, 2 * R * D, R, S)
        o = 2 * R * D + R * S
        logs, growth = vector(work, o, R), vector(work, o + R, R)
        for x in range(R):
            logs[x] = log_n[rows[x]]
            for k in range(D):
                u[x, k] = U[rows[x], k]
        if first < S:
            add_sources(first, u, sources, mass, overlap, F, growth)
        else:
            force_of_sources(rows, u, sources, distant, mass, near, ahead, ahead_growth, F, growth, room)
        add_clusters(rows, u, logs, F, growth, plan)
        for x in range(R):
            i = rows[x]
            growth[x] += add_active(u[x], active, F[x])[0]
            if is_rest:
                out_growth[i] = field_growth[i] - growth[x]
                for k in range(D):
                    out[i, k] = field[i, k] - F[x, k]
            else:
                out_growth[i] = growth[x]
                for k in range(D):
                    out[i, k] = F[x, k]
