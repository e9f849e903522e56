"""Compiled steps of the large-flow solver: a block of rows goes through all stages with what it needs in cache.

Executed after `partial_kernels`, the tableau and `row_kernels`; compiled apart from the other passes.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Cube, Integers, Matrix, SingleCube, Vector
from dynamics.compiler.compilation import entry, kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix
    from dynamics.equations.pairs.link_kernels import g0, g1
    from dynamics.integrators.explicit.dop853_tableau import DOP853_DENSE_ERROR, DOP853_WEIGHTS
    from dynamics.integrators.large_flow.partial_kernels import partial_field
    from dynamics.integrators.large_flow.plan_kernels import Plan, add_rest, rest_number
    from dynamics.integrators.large_flow.row_kernels import END, combine, combine_number, end_sums, row_error


@kernel
def along(u: Vector, v: Vector) -> float:
    """Return (u·v)/(u·u)."""
    product = length = 0.0
    for k in range(u.size):
        product += u[k] * v[k]
        length += u[k] * u[k]
    return product / length


@kernel
def slow_alone(u: Vector, du: Vector, sign: float, held: float, drift: Vector) -> None:
    """Slow the direction of the only neuron of a cluster, as `slow_clusters` does for several."""
    product = length = 0.0
    for k in range(u.size):
        product += u[k] * (sign * du[k] - drift[k])
        length += u[k] * u[k]
    radial = product / length
    for k in range(u.size):
        du[k] -= sign * held * (sign * du[k] - drift[k] - radial * u[k])


@kernel
def slow_together(
    x: int,
    end: int,
    c: int,
    rows: Integers,
    u: Matrix,
    log_n: Vector,
    du: Matrix,
    dl: Vector,
    mean: Vector,
    shift: Vector,
    pace: Matrix,
    drift: Matrix,
    plan: Plan,
) -> None:
    """Slow cluster c, the rows x to `end` of a block: b of the mean direction and β of mean ln n are taken away.

    That is what the cluster would lose if it sat b/λ and β/λ' farther, λ = a g'(1) and λ' = 4 a g(1). Members that lean
    by δ_i from the mean, s_i u_i = ū + δ_i, then have other velocities: 4 δ_i·b less of ln n, β (λ/λ') δ_i more of the
    direction. Without that the lag of their mean would drive them apart at h λ δ ~ 1. Every row moves tangentially, by
    T_i = 1 − u_i u_iᵀ; the x whose mean Σ n T x / Σ n is b is b + Σ n u (u·b) / Σ n up to fourth order in δ.
    """
    sign = plan[5]
    D = mean.size
    total = mean_growth = mean_lean = 0.0
    for k in range(D):
        mean[k] = 0.0
    for z in range(x, end):
        n = np.exp(log_n[z])
        total += n
        mean_growth += n * dl[z]
        w = n * sign[rows[z]]
        for k in range(D):
            mean[k] += w * du[z, k]
    for k in range(D):
        mean[k] = (1.0 - pace[c, 0]) * (mean[k] / total - drift[c, k])
        shift[k] = mean[k]
    mean_growth = (1.0 - pace[c, 1]) * (mean_growth / total - drift[c, D])
    turn = 0.25 * g1(1.0) / g0(1.0) * mean_growth
    for z in range(x, end):
        share, s = np.exp(log_n[z]) / total, sign[rows[z]]
        lean = s * along(u[z], mean)
        mean_lean += share * lean
        dl[z] -= mean_growth + 4.0 * lean
        # T_i δ_i is −T_i ū.
        w = share * s * (lean + turn)
        for k in range(D):
            shift[k] += w * u[z, k]
    for z in range(x, end):
        dl[z] += 4.0 * mean_lean
        for k in range(D):
            du[z, k] -= sign[rows[z]] * shift[k]
        # Tangential once more: of a radial rounding of 1e-16 the stages of a long step make errors of ln n of 1e-6.
        w = along(u[z], du[z])
        for k in range(D):
            du[z, k] -= w * u[z, k]


@kernel
def slow_clusters(
    rows: Integers,
    u: Matrix,
    log_n: Vector,
    du: Matrix,
    dl: Vector,
    mean: Vector,
    shift: Vector,
    pace: Matrix,
    drift: Matrix,
    plan: Plan,
) -> None:
    """Replace the mean velocity v of every cluster by θ v + (1 − θ) drift: its only stiff modes.

    `pace` (c, 2) holds θ of the direction and of the norm, `drift` (c, D + 1) the mean velocity over the last step.
    """
    cluster, first, sign = plan[1], plan[3], plan[5]
    x = min(0, rows.size)  # 0, but no literal, for which a second copy of `slow_together` would be compiled
    while x < rows.size:
        c = cluster[rows[x]]
        if c < 0:
            x += 1
            continue
        end = x + first[c + 1] - first[c]
        held, held_norm = 1.0 - pace[c, 0], 1.0 - pace[c, 1]
        if held > 0.0 or held_norm > 0.0:
            if end == x + 1:
                slow_alone(u[x], du[x], sign[rows[x]], held, drift[c])
                dl[x] -= held_norm * (dl[x] - drift[c, drift.shape[1] - 1])
            else:
                slow_together(x, end, c, rows, u, log_n, du, dl, mean, shift, pace, drift, plan)
        x = end


@kernel
def move(i: int, weights: Vector, slots: Integers, rest: Cube, u: Vector, force: Vector, velocity: Vector) -> None:
    """Add the lagged rest of row i to its force, and write u' = F − (F·u)/(u·u) u."""
    D = u.size
    radial = length = 0.0
    if slots.size == 3:
        # The usual number of past values in one pass.
        w, w_one, w_two, slot, one, two = weights[0], weights[1], weights[2], slots[0], slots[1], slots[2]
        for k in range(D):
            f = force[k] + w * rest[slot, i, k] + w_one * rest[one, i, k] + w_two * rest[two, i, k]
            force[k] = f
            radial += f * u[k]
            length += u[k] * u[k]
    else:
        add_rest(i, weights, slots, rest, force)
        for k in range(D):
            radial += force[k] * u[k]
            length += u[k] * u[k]
    radial /= length
    for k in range(D):
        velocity[k] = force[k] - radial * u[k]


@kernel
def step_block(
    rows: Integers,
    last_stage: int,
    is_source: bool,
    h: float,
    U: Matrix,
    log_n: Vector,
    rest: Cube,
    rest_growth: Matrix,
    slots: Integers,
    weights: Matrix,
    sources: Cube,
    rounded: SingleCube,
    mass: Matrix,
    pace: Matrix,
    drift: Matrix,
    stages: Cube,
    growth_stages: Matrix,
    work: Vector,
    plan: Plan,
) -> None:
    """Fill the stages of a block of rows."""
    R, D, S = rows.size, U.shape[1], mass.shape[1]
    u, F, overlap = matrix(work, 0, R, D), matrix(work, R * D, R, D), matrix(work, 2 * R * D, R, S)
    o = 2 * R * D + R * S
    mean, shift = work[o : o + D], work[o + D : o + 2 * D]
    o += 2 * D
    logs, growth = work[o : o + R], work[o + R : o + 2 * R]
    for s in range(last_stage + 1):
        for x in range(R):
            i = rows[x]
            combine(U[i], stages, x, s, h, u[x])
            logs[x] = log_n[i] + combine_number(growth_stages, x, DOP853_WEIGHTS[s, :s], h)
        if is_source:
            for x in range(R):
                mass[s, x] = np.exp(logs[x])
                for k in range(D):
                    sources[s, x, k] = u[x, k]
        partial_field(rows, u, logs, sources[s], rounded[s], mass[s], overlap, F, growth, plan)
        for x in range(R):
            move(rows[x], weights[s], slots, rest, u[x], F[x], stages[s, x])
            growth_stages[s, x] = 4.0 * (growth[x] + rest_number(rows[x], weights[s], slots, rest_growth))
        slow_clusters(rows, u, logs, stages[s], growth_stages[s], mean, shift, pace, drift, plan)


@kernel
def write_dense(
    i: int,
    x: int,
    h: float,
    rise: Vector,
    growth_rise: float,
    stages: Cube,
    growth_stages: Matrix,
    zero: Vector,
    dense: Cube,
    dense_growth: Matrix,
) -> None:
    """Write the seven coefficients of the dense output of one row, given how far the step took it."""
    for k in range(rise.size):
        dense[0, i, k] = rise[k]
        dense[1, i, k] = h * stages[0, x, k] - rise[k]
        dense[2, i, k] = 2.0 * rise[k] - h * (stages[END, x, k] + stages[0, x, k])
    dense_growth[0, i] = growth_rise
    dense_growth[1, i] = h * growth_stages[0, x] - growth_rise
    dense_growth[2, i] = 2.0 * growth_rise - h * (growth_stages[END, x] + growth_stages[0, x])
    for q in range(4):
        combine(zero, stages, x, 18 + q, h, dense[3 + q, i])
        dense_growth[3 + q, i] = combine_number(growth_stages, x, DOP853_WEIGHTS[18 + q], h)


@kernel
def dense_error(i: int, dense: Cube, dense_growth: Matrix) -> float:
    """Return the error of the dense output of one row, as a length in R^(D + 1)."""
    square = dense_growth[6, i] ** 2
    for k in range(dense.shape[2]):
        square += dense[6, i, k] ** 2
    error: float = DOP853_DENSE_ERROR * np.sqrt(square)
    return error


@entry(
    "void(i8, i8, i8[::1], i8, b1, b1, f8, f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], i8[::1], f8[:,::1],"
    " f8[:,:,::1], f4[:,:,::1], f8[:,::1],"
    " f8[:,::1], f8[:,::1], f8[:,::1], f8[::1], f8[::1], f8[::1], f8[::1], i8[::1], f8[:,:,::1], f8[:,::1], f8[::1],"
    " Tuple((i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], f8[::1])))"
)
def step_rows(
    first_block: int,
    last_block: int,
    cuts: Integers,
    last_stage: int,
    is_source: bool,
    again: bool,
    h: float,
    U: Matrix,
    log_n: Vector,
    rest: Cube,
    rest_growth: Matrix,
    slots: Integers,
    weights: Matrix,
    sources: Cube,
    rounded: SingleCube,
    mass: Matrix,
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
    plan: Plan,
) -> None:
    """Take one step of the blocks order[cuts[b]:cuts[b + 1]]; with last_stage = 15 write its dense output as well.

    With `again` the step has been accepted, and its end is left alone.
    With `is_source` the rows are the fast sources themselves and leave their stages in `sources` for all others, which
    may be asked to read them in single precision, from `rounded`, else of shape (16, 0, D).
    `error` is that of the end of the step, `error_within` that of its dense output.
    The rest of the field at stage s is Σ_q weights[s, q] rest[slots_q], a polynomial through its past values.
    """
    D = U.shape[1]
    zero, rise, e5, e3 = work[:D], work[D : 2 * D], work[2 * D : 3 * D], work[3 * D : 4 * D]
    for k in range(D):
        zero[k] = 0.0
    for b in range(first_block, last_block):
        rows = plan[0][cuts[b] : cuts[b + 1]]
        R = rows.size
        o = 4 * D + 16 * R * D
        stages, growth_stages = work[4 * D : o].reshape(16, R, D), matrix(work, o, 16, R)
        step_block(
            rows, last_stage, is_source, h, U, log_n, rest, rest_growth, slots, weights, sources, rounded, mass,
            pace, drift,            stages, growth_stages, work[o + 16 * R :], plan,
        )  # fmt: skip
        for x in range(R):
            i = rows[x]
            end_sums(U[i], stages, x, h, rise, e5, e3)
            growth_rise = combine_number(growth_stages, x, DOP853_WEIGHTS[END, :END], h)
            if not again:
                for k in range(D):
                    U_new[i, k] = rise[k]
                log_new[i] = log_n[i] + growth_rise
                error[i] = row_error(U[i], rise, growth_stages, x, h, e5, e3, tolerance, leading[i])
            if last_stage > END:
                for k in range(D):
                    rise[k] -= U[i, k]
                write_dense(i, x, h, rise, growth_rise, stages, growth_stages, zero, dense, dense_growth)
                error_within[i] = dense_error(i, dense, dense_growth) / tolerance[1]
