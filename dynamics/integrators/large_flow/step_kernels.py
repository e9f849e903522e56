"""Compiled steps of the large-flow solver: a row, or a cluster, goes through all stages with what it needs in cache.

Executed after `partial_kernels`, `node_kernels`, the tableau, `row_kernels`, `slowing_kernels` and
`exponential_kernels`; compiled apart from the other passes.
"""

from typing import TYPE_CHECKING

from numpy.typing import NDArray

from dynamics.compiler.arrays import Cube, Integers, Matrix, Real, Switches, Vector
from dynamics.compiler.compilation import entry, kernel
from dynamics.compiler.views import row_part, vector

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import cube, matrix
    from dynamics.integrators.explicit.dop853_tableau import DOP853_C, DOP853_WEIGHTS
    from dynamics.integrators.large_flow.exponential_kernels import LARGEST_ERROR, exponential_step
    from dynamics.integrators.large_flow.node_kernels import (
        COEFFICIENTS,
        power_number,
        write_far,
        write_powers,
        write_value,
    )
    from dynamics.integrators.large_flow.partial_kernels import add_active, add_clusters, add_near
    from dynamics.integrators.large_flow.plan import ACTIVE, CLUSTER, DIRECTION, ORDER, PLAN, TEACHER, Plan
    from dynamics.integrators.large_flow.plan_kernels import group_end
    from dynamics.integrators.large_flow.row_kernels import combine, combine_number, finish_row
    from dynamics.integrators.large_flow.slowing_kernels import slow_cluster

    REAL = "f8"


@kernel
def step_group(
    rows: Integers,
    first_stage: int,
    last_stage: int,
    h: float,
    U: Matrix,
    log_n: Vector,
    sources: Cube,
    mass: Matrix,
    near: Switches,
    pace: Matrix,
    drift: Matrix,
    powers: Cube,
    growth_powers: Matrix,
    stages: Cube,
    growth_stages: Matrix,
    work: Vector,
    plan: Plan,
) -> None:
    """Fill the stages of rows that need nothing of any other within the step: one alone, or a cluster.

    `powers` is what every row feels without its own motion (see `write_powers`). Earlier stages have been filled.
    """
    R, D, teacher = rows.size, U.shape[1], plan[2]
    active = row_part(teacher, ACTIVE, 0, teacher.shape[1])
    u, F = matrix(work, 0, R, D), matrix(work, R * D, R, D)
    o = 2 * R * D
    mean, shift = vector(work, o, D), vector(work, o + D, D)
    o += 2 * D
    logs, growth = vector(work, o, R), vector(work, o + R, R)
    for s in range(first_stage, last_stage + 1):
        for x in range(R):
            i = rows[x]
            combine(U[i], stages, x, s, h, u[x])
            logs[x] = log_n[i] + combine_number(growth_stages, x, DOP853_WEIGHTS[s, :s], h)
            write_value(powers[x], DOP853_C[s], F[x])
            growth[x] = add_near(i, u[x], sources[s], mass[s], near, F[x])
        add_clusters(rows, u, logs, F, growth, plan)
        for x in range(R):
            total, radial = add_active(u[x], active, F[x])
            growth_stages[s, x] = 4.0 * (growth[x] + total + power_number(growth_powers[x], DOP853_C[s]))
            for k in range(D):
                stages[s, x, k] = F[x, k] - radial * u[x, k]
        slow_cluster(rows, u, logs, stages[s], growth_stages[s], mean, shift, pace, drift, plan[0])


@kernel
def has_near_source(i: int, near: Switches) -> bool:
    """Return whether any fast source acts on row i by itself, and so at every stage."""
    found = False
    for j in range(near.shape[1]):
        found |= near[i, j]
    return found


@entry(
    "void(i8, i8, i8[::1], b1, b1, f8, f8[:,::1], f8[::1], f8[:,::1], f8[:,:,::1], f8[:,::1], i8[::1], f8[:,::1],"
    f" f8[:,:,::1], f8[:,::1], f8[::1], {REAL}[:,:,::1], f8[:,::1], f8[:,::1], b1[:,::1], {REAL}[:,::1], f8[::1],"
    " f8[:,::1], f8[:,::1], f8[:,::1], f8[::1], f8[::1], f8[::1], f8[::1], i8[::1], f8[:,:,::1], f8[:,::1], f8[::1],"
    f" {REAL}[::1], {PLAN})"
)
def step_rows(
    first_block: int,
    last_block: int,
    cuts: Integers,
    again: bool,
    has_dense: bool,
    h: float,
    U: Matrix,
    log_n: Vector,
    F: Matrix,
    rest: Cube,
    rest_growth: Matrix,
    slots: Integers,
    rest_powers: Matrix,
    sources: Cube,
    mass: Matrix,
    times: Vector,
    nodes: NDArray[Real],
    node_mass: Matrix,
    node_powers: Matrix,
    near: Switches,
    ahead: NDArray[Real],
    ahead_growth: Vector,
    pace: Matrix,
    drift: Matrix,
    U_new: Matrix,
    log_new: Vector,
    error: Vector,
    error_within: Vector,
    tolerance: Vector,
    leading: Integers,
    dense: Cube,
    dense_growth: Matrix,
    work: Vector,
    room: NDArray[Real],
    plan: Plan,
) -> None:
    """Take one step of the blocks order[cuts[b]:cuts[b + 1]], which hold no source; see `finish_row`.

    A cluster of one neuron takes an exponential step, or goes through the stages where the error of that is too large.
    `sources` and `mass` are those of the fast sources at every stage, `nodes` and `node_mass` at the K `times` of the
    nodes; K = 0 if there are none. `F` is the field where the step begins. `ahead` takes what distant sources are
    expected to exert at its end. The rest of the field at the fraction x of the step is
    Σ_qs x^q rest_powers[q, s] rest[slots_s], a polynomial through its past values; `node_powers` (K, K) gives that
    through the nodes.
    """
    D, K, last_stage = U.shape[1], times.size, 15 if has_dense else 11
    for b in range(first_block, last_block):
        rows = row_part(plan[0], ORDER, cuts[b], cuts[b + 1] - cuts[b])
        size = K * rows.size
        o = 4 * D + size
        far, far_growth = cube(room, 0, K, rows.size, D), matrix(work, 4 * D, K, rows.size)
        if K > 0:
            others = vector(room, size * D, room.size - size * D)
            write_far(rows, h, U, F, times, nodes, node_mass, near, drift, far, far_growth, others, plan[0])
        for x in range(rows.size if K > 0 and not again else 0):
            ahead_growth[rows[x]] = far_growth[K - 1, x]
            for k in range(D):
                ahead[rows[x], k] = far[K - 1, x, k]
        for begin in range(rows.size):
            R = group_end(begin, rows, plan) - begin
            if R == 0:
                continue
            group, i, c = vector(rows, begin, R), rows[begin], plan[0][CLUSTER, rows[begin]]
            stages, growth_stages = cube(work, o, 16, R, D), matrix(work, o + 16 * R * D, 16, R)
            place = o + 16 * R * (D + 1)
            powers = cube(work, place, R, COEFFICIENTS, D)
            growth_powers = matrix(work, place + R * COEFFICIENTS * D, R, COEFFICIENTS)
            place += R * COEFFICIENTS * (D + 1)
            rest_of_work = vector(work, place, work.size - place)
            for x in range(R):
                write_powers(
                    rows[begin + x], begin + x, far, far_growth, node_powers, slots, rest, rest_growth, rest_powers,
                    powers[x], growth_powers[x],
                )  # fmt: skip
            first_stage = 0
            if R == 1 and c >= 0 and leading[i] < 0 and not has_near_source(i, near):
                step_group(
                    group, 0, 0, h, U, log_n, sources, mass, near, pace, drift, powers, growth_powers, stages,
                    growth_stages, rest_of_work, plan,
                )  # fmt: skip
                off = exponential_step(
                    i, again, has_dense, h, plan[2][TEACHER, plan[1][DIRECTION, c]], pace[c], U, log_n, powers[0],
                    growth_powers[0], stages, growth_stages, U_new, log_new, error, error_within, tolerance, dense,
                    dense_growth,
                )  # fmt: skip
                if off <= LARGEST_ERROR:
                    continue
                first_stage = 1
            step_group(
                group, first_stage, last_stage, h, U, log_n, sources, mass, near, pace, drift, powers, growth_powers,
                stages, growth_stages, rest_of_work, plan,
            )  # fmt: skip
            for x in range(R):
                finish_row(
                    group[x], x, again, has_dense, h, U, log_n, stages, growth_stages, U_new, log_new, error,
                    error_within, tolerance, leading, dense, dense_growth, vector(work, 0, 4 * D),
                )  # fmt: skip
