"""Compiled pass of the large flow that writes the partial field, or the rest."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dynamics.equations.pairs.field_kernels import SCRATCH
from dynamics.equations.pairs.link import g0
from dynamics.equations.pairs.rounding_kernels import rounded_coordinate
from dynamics.integrators.large_flow.partial_kernels import (
    add_clusters,
    add_near,
    add_sources,
    add_teacher,
    direction_of,
    far_forces,
    write_difference,
)
from dynamics.integrators.large_flow.plan import LINK, ORDER, Plan
from dynamics.integrators.shared_kernels import copy_row
from dynamics.kernels.arrays import Integers, Matrix, Real, Switches, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.views import matrix, row_part, vector

# Vectors of the sources, the same in the precision of rows that are not near them, masses, which are near each row,
# and what a step expected the distant ones to exert at its end: vectors and growth.
Sources = tuple[Matrix, NDArray[Any], Vector, Switches, NDArray[Any], Vector]


@kernel
def force_of_sources(
    rows: Integers,
    u: Matrix,
    all_sources: Sources,
    F: Matrix,
    growth: Vector,
    room: NDArray[Real],
    scratch: Vector,
    plan: Plan,
) -> None:
    """Write what the fast sources exert on a block of rows that are none; see `partial_rows`."""
    sources, distant, mass, near, ahead, ahead_growth = all_sources
    R, D, S = rows.size, u.shape[1], mass.size
    vectors, force, products = matrix(room, 0, R, D), matrix(room, R * D, R, D), vector(room, 2 * R * D, R * S)
    compares = ahead.shape[0] > 0
    for x in range(R):
        growth[x] = 0.0
        for k in range(D):
            F[x, k] = 0.0
    if S > 0:
        for x in range(R):
            for k in range(D):
                vectors[x, k] = rounded_coordinate(u[x, k])
        far_forces(rows, vectors, (distant, mass, near), not compares, products, force, growth, scratch, plan)
        for x in range(R):
            for k in range(D):
                F[x, k] = force[x, k]
        for x in range(R if compares else 0):
            i = rows[x]
            ahead_growth[i] = growth[x] - ahead_growth[i]
            for k in range(D):
                ahead[i, k] = force[x, k] - ahead[i, k]
    for x in range(R):
        growth[x] += add_near(plan[LINK], rows[x], u[x], sources, mass, near, F[x])


@entry
def partial_rows(
    first_block: int,
    last_block: int,
    cuts: Integers,
    state: tuple[Matrix, Vector, Matrix, Vector],
    all_sources: Sources,
    is_rest: bool,
    out: tuple[Matrix, Vector],
    work: tuple[Vector, NDArray[Any]],
    plan: Plan,
) -> None:
    """Write the partial field at one state for the blocks order[cuts[b]:cuts[b + 1]], or what it leaves of the field.

    The state is (U, ln n, F, growth), and `out` takes F and growth. `ahead`, the last but one of the arrays of the
    sources, has no rows, or its error takes its place. `work` is scratch, the first array of which ends with `SCRATCH`
    numbers.
    """
    (U, log_n, field, field_growth), (out_F, out_growth), (numbers, room) = state, out, work
    sources, mass = all_sources[0], all_sources[2]
    D, S = U.shape[1], mass.size
    of_rows, clusters, teacher, link, _ = plan
    peak, scratch = g0(link, 1.0), vector(numbers, numbers.size - SCRATCH, SCRATCH)
    for b in range(first_block, last_block):
        first, R = cuts[b], cuts[b + 1] - cuts[b]
        rows = row_part(of_rows, ORDER, first, R)
        u, F, overlap = matrix(numbers, 0, R, D), matrix(numbers, R * D, R, D), vector(numbers, 2 * R * D, R * S)
        o = 2 * R * D + R * S
        logs, growth = vector(numbers, o, R), vector(numbers, o + R, R)
        for x in range(R):
            logs[x] = log_n[rows[x]]
            copy_row(u[x], U[rows[x]])
        if first < S:
            add_sources(first, u, sources, mass, overlap, F, growth, scratch, plan)
        else:
            force_of_sources(rows, u, all_sources, F, growth, room, scratch, plan)
        add_clusters(rows, u, logs, F, growth, of_rows, clusters, link, peak)
        for x in range(R):
            i = rows[x]
            own = direction_of(i, of_rows, clusters)
            growth[x] += add_teacher(link, u[x], own, teacher, F[x], scratch)[0]
            if is_rest:
                out_growth[i] = field_growth[i] - growth[x]
                write_difference(field[i], F[x], 1.0, out_F[i])
            else:
                out_growth[i] = growth[x]
                copy_row(out_F[i], F[x])
