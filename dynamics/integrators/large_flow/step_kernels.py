"""Compiled steps of the large-flow solver: a row, or a cluster, goes through all stages with what it needs in cache."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dynamics.equations.pairs.field_kernels import SCRATCH
from dynamics.equations.pairs.link import g0
from dynamics.integrators.explicit.dop853_tableau import DOP853_C, DOP853_WEIGHTS
from dynamics.integrators.large_flow.exponential_kernels import LARGEST_ERROR, exponential_step
from dynamics.integrators.large_flow.node_kernels import (
    COEFFICIENTS,
    Rests,
    power_number,
    write_far,
    write_powers,
    write_value,
)
from dynamics.integrators.large_flow.partial_kernels import (
    add_clusters,
    add_near,
    add_teacher,
    direction_of,
    write_difference,
)
from dynamics.integrators.large_flow.plan import CLUSTER, DIRECTION, ORDER, TEACHER, Plan
from dynamics.integrators.large_flow.plan_kernels import group_end
from dynamics.integrators.large_flow.row_kernels import (
    LEADING,
    Dense,
    Ends,
    Stages,
    combine,
    combine_number,
    finish_row,
)
from dynamics.integrators.large_flow.slowing_kernels import slow_cluster
from dynamics.integrators.shared_kernels import copy_row
from dynamics.kernels.arrays import Cube, Integers, Matrix, Switches, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.views import cube, matrix, row_part, vector

# Of the fast sources: vectors and masses at every stage and which are near each row; times of the K nodes, vectors and
# masses there, and the polynomial through them; what distant ones are expected to exert at the end of the step.
Sources = tuple[Cube, Matrix, Switches, Vector, NDArray[Any], Matrix, Matrix, NDArray[Any], Vector]


@kernel
def step_group(
    rows: Integers,
    which: range,
    h: float,
    given: tuple[Matrix, Vector, Cube, Matrix, Switches],
    slowing: tuple[Matrix, Matrix],
    powers: tuple[Cube, Matrix],
    all_stages: Stages,
    work: Vector,
    plan: Plan,
) -> None:
    """Fill some stages of rows that need nothing of any other within the step: one alone, or a cluster.

    Stages before `which` are filled. `given` is (U, ln n) where the step begins, and the first three of `Sources`;
    `powers` is what every row feels without its own motion (see `write_powers`). `work` ends with `SCRATCH` numbers.
    """
    (U, log_n, sources, mass, near), (stages, growth_stages) = given, all_stages
    (pace, drift), (of_rows, clusters, teacher, link, _) = slowing, plan
    R, D = rows.size, U.shape[1]
    peak, own = g0(link, 1.0), direction_of(rows[0], of_rows, clusters)
    scratch = vector(work, work.size - SCRATCH, SCRATCH)
    u, F = matrix(work, 0, R, D), matrix(work, R * D, R, D)
    o = 2 * R * D
    means = vector(work, o, D), vector(work, o + D, D)
    o += 2 * D
    logs, growth = vector(work, o, R), vector(work, o + R, R)
    for s in which:
        for x in range(R):
            i = rows[x]
            combine(U[i], stages, x, s, h, u[x])
            logs[x] = log_n[i] + combine_number(growth_stages, x, DOP853_WEIGHTS[s, :s], h)
            write_value(powers[0][x], DOP853_C[s], F[x])
            growth[x] = add_near(link, i, u[x], sources[s], mass[s], near, F[x])
        add_clusters(rows, u, logs, F, growth, of_rows, clusters, link, peak)
        for x in range(R):
            total, radial = add_teacher(link, u[x], own, teacher, F[x], scratch)
            growth_stages[s, x] = 4.0 * (growth[x] + total + power_number(powers[1][x], DOP853_C[s]))
            write_difference(F[x], u[x], radial, stages[s, x])
        slow_cluster(rows, u, logs, stages[s], growth_stages[s], means, pace, drift, of_rows, link)


@kernel
def has_near_source(i: int, near: Switches) -> bool:
    """Return whether any fast source acts on row i by itself, and so at every stage."""
    found = False
    for j in range(near.shape[1]):
        found |= near[i, j]
    return found


@entry
def step_rows(
    blocks: tuple[int, int, Integers],
    how: tuple[bool, bool, float],
    start: tuple[Matrix, Vector, Matrix],
    rests: Rests,
    all_sources: Sources,
    slowing: tuple[Matrix, Matrix],
    ends: Ends,
    polynomials: Dense,
    all_work: tuple[Vector, NDArray[Any]],
    plan: Plan,
) -> None:
    """Take one step of some blocks, which hold no source; see `finish_row`.

    `blocks` is (first, end, cuts): block b is order[cuts[b]:cuts[b + 1]]. `how` says whether the step has been
    accepted, whether its dense output is wanted, and its length. `start` is (U, ln n, F) where the step begins. A
    cluster of one neuron takes an exponential step, or goes through the stages where the error of that is too large.
    There are no nodes if there are no sources. The rest of the field at the fraction x of the step is
    Σ_qs x^q powers[q, s] rest[slots_s], a polynomial through its past values. The first array of `all_work` ends with
    `SCRATCH` numbers.
    """
    (first_block, last_block, cuts), (again, has_dense, h), (work, room) = blocks, how, all_work
    sources, mass, near, times, nodes, node_mass, node_powers, ahead, ahead_growth = all_sources
    state, given = (start[0], start[1]), (start[0], start[1], sources, mass, near)
    of_rows, clusters, teacher, link, _ = plan
    D, K, last_stage = start[0].shape[1], times.size, 15 if has_dense else 11
    scratch = vector(work, work.size - SCRATCH, SCRATCH)
    for b in range(first_block, last_block):
        rows = row_part(of_rows, ORDER, cuts[b], cuts[b + 1] - cuts[b])
        size = K * rows.size
        o = 4 * D + size
        far, far_growth = cube(room, 0, K, rows.size, D), matrix(work, 4 * D, K, rows.size)
        if K > 0:
            others = vector(room, size * D, room.size - size * D)
            at_nodes = times, nodes, node_mass, near
            write_far(rows, h, start, at_nodes, slowing[1], (far, far_growth), others, scratch, plan)
        for x in range(rows.size if K > 0 and not again else 0):
            ahead_growth[rows[x]] = far_growth[K - 1, x]
            copy_row(ahead[rows[x]], far[K - 1, x])
        for begin in range(rows.size):
            R = group_end(begin, rows, of_rows, clusters) - begin
            if R == 0:
                continue
            group, i, c = vector(rows, begin, R), rows[begin], of_rows[CLUSTER, rows[begin]]
            all_stages = cube(work, o, 16, R, D), matrix(work, o + 16 * R * D, 16, R)
            place = o + 16 * R * (D + 1)
            powers = (
                cube(work, place, R, COEFFICIENTS, D),
                matrix(work, place + R * COEFFICIENTS * D, R, COEFFICIENTS),
            )
            place += R * COEFFICIENTS * (D + 1)
            rest_of_work = vector(work, place, work.size - place)
            for x in range(R):
                write_powers(
                    rows[begin + x], begin + x, (far, far_growth), node_powers, rests, powers[0][x], powers[1][x]
                )
            first_stage = 0
            if R == 1 and c >= 0 and ends[LEADING][i] < 0 and not has_near_source(i, near):
                step_group(group, range(1), h, given, slowing, powers, all_stages, rest_of_work, plan)
                off = exponential_step(
                    i, how, link, teacher[TEACHER, clusters[DIRECTION, c]], slowing[0][c], state,
                    (powers[0][0], powers[1][0]), all_stages, ends, polynomials,
                )  # fmt: skip
                if off <= LARGEST_ERROR:
                    continue
                first_stage = 1
            step_group(
                group, range(first_stage, last_stage + 1), h, given, slowing, powers, all_stages, rest_of_work, plan
            )
            for x in range(R):
                finish_row(
                    group[x], x, again, has_dense, h, state, all_stages, ends, polynomials, vector(work, 0, 4 * D)
                )
