"""Compiled slowing of clusters within a step of the large-flow solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dynamics.equations.field import SCRATCH
from dynamics.equations.link import g0, g1, write_both
from dynamics.integrators.explicit_kernels import DOP853_C, DOP853_WEIGHTS
from dynamics.integrators.large_flow.division import (
    CLUSTER,
    DIRECTION,
    ORDER,
    POLE,
    TEACHER,
    Plan,
    add_rest,
    group_end,
    rest_number,
)
from dynamics.integrators.large_flow.row_kernels import (
    LEADING,
    Dense,
    Ends,
    Stages,
    State,
    combine,
    combine_number,
    finish_row,
)
from dynamics.integrators.large_flow.source_kernels import (
    COEFFICIENTS,
    LARGEST_ERROR,
    Rests,
    add_clusters,
    add_near,
    add_teacher,
    direction_of,
    exponential_step,
    power_number,
    write_difference,
    write_far,
    write_powers,
    write_value,
)
from dynamics.integrators.step_kernels import copy_row
from dynamics.kernels.jit import cube, entry, kernel, matrix, row_part, vector
from dynamics.kernels.products import product
from hermite.arrays import Cube, Integers, Matrix, Switches, Vector

if TYPE_CHECKING:
    from dynamics.integrators.large_flow.row_kernels import Lag, Moving


@kernel
def along(u: Vector, v: Vector) -> float:
    """Return (u·v)/(u·u)."""
    product = length = 0.0
    for k in range(u.size):
        product += u[k] * v[k]
        length += u[k] * u[k]
    return product / length


@kernel
def slow_alone(u: Vector, du: Vector, sign: int, held: float, drift: Vector) -> None:
    """Slow the direction of the only neuron of a cluster, as `slow_together` does that of several."""
    product = length = 0.0
    for k in range(u.size):
        product += u[k] * (sign * du[k] - drift[k])
        length += u[k] * u[k]
    radial = product / length
    for k in range(u.size):
        du[k] -= sign * held * (sign * du[k] - drift[k] - radial * u[k])


@kernel
def slow_together(
    c: int,
    rows: Integers,
    state: State,
    velocity: State,
    means: tuple[Vector, Vector],
    pace: Matrix,
    drift: Matrix,
    of_rows: Integers,
    link: Vector,
) -> None:
    """Slow cluster c, all rows of a block: b of the mean direction and β of mean ln n are taken away.

    That is what the cluster would lose if it sat b/λ and β/λ' farther, λ = a g'(1) and λ' = 4 a g(1). Members that lean
    by δ_i from the mean, s_i u_i = ū + δ_i, then have other velocities: 4 δ_i·b less of ln n, β (λ/λ') δ_i more of the
    direction. Without that the lag of their mean would drive them apart at h λ δ ~ 1. Every row moves tangentially, by
    T_i = 1 − u_i u_iᵀ; the x whose mean Σ n T x / Σ n is b is b + Σ n u (u·b) / Σ n up to fourth order in δ.
    The state is (u, ln n) of these rows, the velocity (u', (ln n)'); `means` takes two vectors.
    """
    (u, log_n), (du, dl), (mean, shift) = state, velocity, means
    D = mean.size
    total = mean_growth = mean_lean = 0.0
    for k in range(D):
        mean[k] = 0.0
    for z in range(rows.size):
        n = np.exp(log_n[z])
        total += n
        mean_growth += n * dl[z]
        w = n * of_rows[POLE, rows[z]]
        for k in range(D):
            mean[k] += w * du[z, k]
    for k in range(D):
        mean[k] = (1.0 - pace[c, 0]) * (mean[k] / total - drift[c, k])
        shift[k] = mean[k]
    mean_growth = (1.0 - pace[c, 1]) * (mean_growth / total - drift[c, D])
    turn = 0.25 * g1(link, 1.0) / g0(link, 1.0) * mean_growth
    for z in range(rows.size):
        share, s = np.exp(log_n[z]) / total, of_rows[POLE, rows[z]]
        lean = s * along(u[z], mean)
        mean_lean += share * lean
        dl[z] -= mean_growth + 4.0 * lean
        # T_i δ_i is −T_i ū.
        w = share * s * (lean + turn)
        for k in range(D):
            shift[k] += w * u[z, k]
    for z in range(rows.size):
        dl[z] += 4.0 * mean_lean
        s = of_rows[POLE, rows[z]]
        for k in range(D):
            du[z, k] -= s * shift[k]
        # Tangential once more: of a radial rounding of 1e-16 the stages of a long step make errors of ln n of 1e-6.
        w = along(u[z], du[z])
        for k in range(D):
            du[z, k] -= w * u[z, k]


@kernel
def slow_cluster(
    rows: Integers,
    u: Matrix,
    log_n: Vector,
    du: Matrix,
    dl: Vector,
    means: tuple[Vector, Vector],
    pace: Matrix,
    drift: Matrix,
    of_rows: Integers,
    link: Vector,
) -> None:
    """Replace the mean velocity v of rows, if they are a cluster, by θ v + (1 − θ) drift: its only stiff modes.

    `pace` (c, 2) holds θ of the direction and of the norm, `drift` (c, D + 1) the mean velocity over the last step.
    """
    c = of_rows[CLUSTER, rows[0]]
    if c < 0 or (pace[c, 0] >= 1.0 and pace[c, 1] >= 1.0):
        return
    if rows.size > 1:
        slow_together(c, rows, (u, log_n), (du, dl), means, pace, drift, of_rows, link)
    else:
        slow_alone(u[0], du[0], of_rows[POLE, rows[0]], 1.0 - pace[c, 0], drift[c])
        dl[0] -= (1.0 - pace[c, 1]) * (dl[0] - drift[c, drift.shape[1] - 1])


# Compiled steps of the large-flow solver: a row, or a cluster, goes through all stages with what it needs in cache.


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


# Compiled correction of rows at the end of a step of the large-flow solver.


@entry
def settle_rows(
    begin: int,
    end: int,
    share: float,
    share_ahead: float,
    cluster: Integers,
    state: Moving,
    lag: Lag,
    settled: tuple[Matrix, Vector],
    miss: Matrix,
) -> None:
    """Compare the rest of the field where a step ends with what was extrapolated; write the state, corrected.

    The state and the lag are as in `row_kernels`; on return `part` and `part_growth` of the lag hold the rest.
    `settled` takes (U, ln n), and `miss` (m, 2) the largest component of the extrapolation's error and that of the
    growth. Rows outside clusters move by `share` and `share_ahead` times these two errors.
    """
    (U, log_n, F, growth), (U_end, log_end) = state, settled
    rest, rest_growth, slots, weights, part, part_growth, ahead, ahead_growth = lag
    D = U.shape[1]
    off, correction = np.empty(D), np.empty(D)
    for i in range(begin, end):
        for k in range(D):
            off[k] = 0.0
        add_rest(i, weights, slots, rest, off)
        left = growth[i] - part_growth[i]
        off_growth = left - rest_number(i, weights, slots, rest_growth)
        moved_growth = share * off_growth
        part_growth[i] = left
        for k in range(D):
            left = F[i, k] - part[i, k]
            part[i, k] = left
            off[k] = left - off[k]
            correction[k] = share * off[k]
        if ahead.shape[0] > 0:
            off_growth += ahead_growth[i]
            moved_growth += share_ahead * ahead_growth[i]
            for k in range(D):
                off[k] += ahead[i, k]
                correction[k] += share_ahead * ahead[i, k]
        free = 1.0 if cluster[i] < 0 else 0.0
        radial = moved_radial = largest = length = 0.0
        for k in range(D):
            radial += off[k] * U[i, k]
            moved_radial += correction[k] * U[i, k]
        for k in range(D):
            largest = max(largest, abs(off[k] - radial * U[i, k]))
            u = U[i, k] + free * (correction[k] - moved_radial * U[i, k])
            U_end[i, k] = u
            length += u * u
        length = 1.0 / np.sqrt(length)
        for k in range(D):
            U_end[i, k] *= length
        log_end[i] = log_n[i] + free * 4.0 * moved_growth
        miss[i, 0], miss[i, 1] = free * largest, free * abs(off_growth)


# Compiled change of the field when a few neurons have moved: 10 K m D operations for K of them, in place of 3 m² D.
#
# `link` is the data of g, and the state (U, n, F, growth) has masses n, not their logarithms.


# Rows that are multiplied with the moved ones together: products of other shapes round differently.
PULLED_BLOCK = 128

Whole = tuple[Matrix, Vector, Matrix, Vector]
Pulls = tuple[Cube, Matrix]


@entry
def pull_rows(
    begin: int,
    end: int,
    link: Vector,
    state: Whole,
    place: Integers,
    both: tuple[Matrix, Vector],
    pulls: Pulls,
) -> None:
    """Add what has changed by K rows that moved to the field of rows begin … end − 1; write what these exert on them.

    `both` is (vectors, mass): `vectors` (2 K, D) holds where the moved rows are, then where they were, `mass` (2 K,)
    the masses, those of before negative, and `place` (m,) which of the K rows each row is, −1 for none. What block b of
    rows exerts on the moved ones goes to forces[b] and growths[b] of `pulls`, of shape (K, D) and (K,).
    """
    (U, n, F, growth), (vectors, mass), (forces, growths) = state, both, pulls
    D, count = vectors.shape[1], mass.size // 2
    whole, value, slope = g0(link, 1.0), np.empty(mass.size), np.empty(mass.size)
    for first in range(begin, end, PULLED_BLOCK):
        last, block = min(first + PULLED_BLOCK, end), first // PULLED_BLOCK
        size = last - first
        overlap, weights, force = np.empty((size, 2 * count)), np.empty((count, size)), np.empty((size, D))
        product(U[first:last], vectors.T, overlap)
        for j in range(count):
            growths[block, j] = 0.0
        for x in range(size):
            total, own, i = 0.0, place[first + x], first + x
            write_both(link, row_part(overlap, x, 0, 2 * count), value, slope)
            for j in range(count):
                weights[j, x] = -n[i] * slope[j] if j != own else 0.0
                growths[block, j] -= n[i] * (value[j] if j != own else whole)
            for j in range(2 * count):
                total += mass[j] * value[j]
                overlap[x, j] = -mass[j] * slope[j]
            if own < 0:
                growth[i] -= total
        product(weights, U[first:last], forces[block])
        product(overlap, vectors, force)
        for x in range(size):
            if place[first + x] < 0:
                for k in range(D):
                    F[first + x, k] += force[x, k]


@entry
def renew_moved(link: Vector, moved: Integers, a: Vector, pulls: Pulls, state: Whole) -> None:
    """Write the whole field of the rows that moved: what each block of rows exerts on them, and the teacher."""
    (U, _, F, growth), (forces, growths) = state, pulls
    for j in range(moved.size):
        i = moved[j]
        growth[i] = 0.0
        for k in range(F.shape[1]):
            F[i, k] = 0.0
        for b in range(forces.shape[0]):
            growth[i] += growths[b, j]
            for k in range(F.shape[1]):
                F[i, k] += forces[b, j, k]
        for p in range(a.size):
            F[i, p] += a[p] * g1(link, U[i, p])
            growth[i] += a[p] * g0(link, U[i, p])
