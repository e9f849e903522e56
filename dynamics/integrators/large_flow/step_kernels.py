"""Compiled steps of the large-flow solver: fields, stages, slowed clusters, exponential steps, corrections at the end.

A row, or a cluster, goes through all stages with what it needs in cache. The fast sources go stage by stage: each of
them feels where all others are at the same stage.

Clusters that hardly move take exponential steps, a tenth of the work of the stages.

Late in a large flow most neurons are alone on their direction and follow their slow manifold. But for its own motion
such a neuron feels a force that is a polynomial in the fraction x of the step, and its slowed velocity v obeys

    h v(x) = h v(0) + θ h Σ_q f_q x^q − κ Δ(x),   Δ' = h v,   κ = θ h λ,   q = 1, 2, 3,

λ being the rate of its mode. It has moved by Δ(1) = h (w_0 v(0) + θ Σ_q w_q f_q) at the end of the step, with
w_q = ∫ e^(−κ (1 − x)) x^q dx = q! φ_(q+1)(−κ), so w_0 = (1 − e^−κ)/κ and w_q = (1 − q w_(q−1))/κ. That holds for the
direction and for ln n. Left out are squares of Δ, and what the rate λ of a neuron that leans from its direction differs
by. Where these could matter, the neuron goes through the stages.

References
----------
M. Hochbruck and A. Ostermann, Exponential integrators, Acta Numerica 19 (2010), section 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynamics.equations.field import (
    SCRATCH,
    SMALLEST_WEIGHT,
    overlaps_of_rows,
    rounded_coordinate,
    sums_of_others,
    weigh,
)
from dynamics.equations.link import BLOCK, g0, g1, write_both
from dynamics.integrators.explicit_kernels import DOP853_C, DOP853_WEIGHTS
from dynamics.integrators.large_flow.division import (
    ACTIVE,
    BY_BLAS,
    CLUSTER,
    DIRECTION,
    LINK,
    ORDER,
    POLE,
    TEACHER,
    Plan,
    add_rest,
    along,
    group_end,
    rest_number,
)
from dynamics.integrators.large_flow.row_kernels import (
    END,
    LEADING,
    Dense,
    Ends,
    Lag,
    Moving,
    Stages,
    State,
    combine,
    combine_number,
    finish_row,
    inverse_length,
    move_inside,
    write_cubic,
)
from dynamics.integrators.step_kernels import copy_row
from dynamics.kernels.jit import cube, entry, kernel, matrix, row_part, vector
from dynamics.kernels.products import product
from hermite.arrays import Cube, Integers, Matrix, Real, Switches, Vector

# Part by which the rate of a mode may be wrong. Of 400 such steps of 128 and 512 neurons half were wrong by less than a
# hundredth of the estimate that follows, the worst by 1.4 times it.
LEAN = 0.1
# Largest error of an exponential step in units of the tolerance. It controls no step, since stages take over beyond it.
LARGEST_ERROR = 0.01
# Error of the dense output in units of h times the change of the velocity: 0.029 for four relaxations.
CUBIC = 0.03


@kernel
def relaxed_weights(relaxations: float) -> tuple[float, float, float, float]:
    """Return w_0 to w_3 of κ relaxations."""
    zero = (1.0 - np.exp(-relaxations)) / relaxations
    one = (1.0 - zero) / relaxations
    two = (1.0 - 2.0 * one) / relaxations
    return zero, one, two, (1.0 - 3.0 * two) / relaxations


@kernel
def move_number(link: Vector, h: float, a: float, share: float, powers: Vector, stages: Matrix) -> float:
    """Replace stages 1 and 12 of ln n by its change and by its rate at the end; return h times what it turned by."""
    relaxations = share * h * 4.0 * a * g0(link, 1.0)
    zero, one, two, three = relaxed_weights(relaxations)
    force = 4.0 * share * (one * powers[1] + two * powers[2] + three * powers[3])
    stages[1, 0] = h * (zero * stages[0, 0] + force)
    turn = 4.0 * share * (powers[1] + powers[2] + powers[3]) - relaxations / h * stages[1, 0]
    stages[END, 0] = stages[0, 0] + turn
    turned: float = abs(h * turn)
    return turned


@kernel
def move(
    link: Vector, h: float, a: float, share: float, u: Vector, powers: Matrix, stages: Cube
) -> tuple[float, float]:
    """Replace stages 1 and 12 of one neuron, at u, by its move and its velocity at the end.

    Returned are the squares of the move and of h times what the velocity turned by.
    """
    relaxations = share * h * a * g1(link, 1.0)
    zero, one, two, three = relaxed_weights(relaxations)
    begin, rise, end = stages[0, 0], stages[1, 0], stages[END, 0]
    b, c, d = powers[1], powers[2], powers[3]
    radial = radial_end = length = 0.0
    for k in range(u.size):
        rise[k] = one * b[k] + two * c[k] + three * d[k]
        end[k] = b[k] + c[k] + d[k]
        radial += u[k] * rise[k]
        radial_end += u[k] * end[k]
        length += u[k] * u[k]
    radial /= length
    radial_end /= length
    moved = turned = 0.0
    for k in range(u.size):
        rise[k] = h * (zero * begin[k] + share * (rise[k] - radial * u[k]))
        turn = share * (end[k] - radial_end * u[k]) - relaxations / h * rise[k]
        end[k] = begin[k] + turn
        moved += rise[k] * rise[k]
        turned += turn * turn
    # A straight move leaves the sphere.
    factor = 1.0 / np.sqrt(1.0 + moved / length)
    for k in range(u.size):
        rise[k] = factor * rise[k] + (factor - 1.0) * u[k]
    return moved, h * h * turned


@kernel
def exponential_step(
    i: int,
    how: tuple[bool, bool, float],
    link: Vector,
    a: float,
    share: Vector,
    start: State,
    powers: tuple[Matrix, Vector],
    all_stages: Stages,
    ends: Ends,
    polynomials: Dense,
) -> float:
    """Write where row i is moved, and its dense output, a cubic, as `finish_row` does; return the error in tolerances.

    `how` says whether the step has been accepted, whether it has a dense output, and its length.
    Stage 0 is its slowed velocity at the beginning; a is the coefficient of its direction in the teacher, and `share`
    holds θ of the direction and of ln n.
    """
    (again, has_dense, h), (U, log_n), (stages, growth_stages) = how, start, all_stages
    (U_new, log_new, error, error_within, tolerance, _), (dense, dense_growth) = ends, polynomials
    D = U.shape[1]
    moved, turned = move(link, h, a, share[0], U[i], powers[0], stages)
    turned_growth = move_number(link, h, a, share[1], powers[1], growth_stages)
    rise, growth_rise = stages[1, 0], growth_stages[1, 0]
    if not again:
        for k in range(D):
            U_new[i, k] = U[i, k] + rise[k]
        log_new[i] = log_n[i] + growth_rise
        error[i] = 0.0
    if has_dense:
        write_cubic(i, 0, h, rise, growth_rise, all_stages, polynomials)
        for q in range(3, dense.shape[0]):
            dense_growth[q, i] = 0.0
            for k in range(D):
                dense[q, i, k] = 0.0
        error_within[i] = CUBIC * (np.sqrt(turned) + turned_growth) / tolerance[1]
    off = (LEAN * np.sqrt(turned) + moved) / tolerance[0]
    off_growth = LEAN * (turned_growth + 4.0 * np.sqrt(moved)) / tolerance[2]
    total: float = (off + off_growth) / np.sqrt(D + 1.0)
    return total


# The field in its two parts, for a block of rows. A row i is a unit vector u_i in R^D with log_n = ln n_i. Its field is
# F_i = Σ_p a_p g'(C_ip) e_p − Σ_{j≠i} n_j g'(G_ij) u_j, its velocity u' = F − (F·u)/(u·u) u, and (ln n)' = 4 growth,
# growth_i = Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij). A neuron's force on itself is radial and therefore never computed.
#
# Rows are multiplied with sources that are not near them in the precision of the given vectors. `scratch` has `SCRATCH`
# numbers (`dynamics.equations.field`).


# Overlap of a row with a source from which on the source acts by itself at every stage, not by the nodes of a step: the
# force grows like a power k − 1 of it, and so do the errors of nodes. With 0.15 they were twice as large.
NEAR_SOURCE = 0.1


@kernel
def add_members(link: Vector, begin: int, end: int, u: Matrix, log_n: Vector, F: Matrix, growth: Vector) -> None:
    """Add the forces of rows begin … end − 1 of a block, a cluster, on each other."""
    D = u.shape[1]
    for x in range(begin, end):
        for z in range(begin, end):
            if z != x:
                s = 0.0
                for k in range(D):
                    s += u[x, k] * u[z, k]
                n = np.exp(log_n[z])
                growth[x] -= n * g0(link, s)
                w = n * g1(link, s)
                for k in range(D):
                    F[x, k] -= w * u[z, k]


@kernel
def add_sources(
    first: int,
    u: Matrix,
    sources: Matrix,
    mass: Vector,
    overlap: Vector,
    F: Matrix,
    growth: Vector,
    scratch: Vector,
    plan: Plan,
) -> None:
    """Write what the fast sources exert on those from number `first` on; a source exerts nothing on itself.

    `overlap` takes a number for each of them and each source.
    """
    R, S = growth.size, mass.size
    products = matrix(overlap, 0, R, S)
    overlaps_of_rows(plan[BY_BLAS], u, sources, products)
    for x in range(R):
        # Where g and g' are 0.
        products[x, first + x] = 0.0
    weigh(plan[LINK], mass, overlap, 0.0, growth, scratch)
    for x in range(R):
        growth[x] = -growth[x]
    sums_of_others(plan[BY_BLAS], products, sources, F)


@kernel
def far_forces(
    rows: Integers,
    vectors: NDArray[Real],
    sources: tuple[NDArray[Any], Vector, Switches],
    decides: bool,
    overlap: NDArray[Real],
    force: NDArray[Real],
    growth: Vector,
    scratch: Vector,
    plan: Plan,
) -> None:
    """Write what sources exert on rows that are none, but for those near them, on which `decides` has it decide.

    The sources are (vectors, masses, which are near each row), and `overlap` takes a number for each row and source.
    """
    distant, mass, near = sources
    R, S = rows.size, mass.size
    products = matrix(overlap, 0, R, S)
    overlaps_of_rows(plan[BY_BLAS], vectors, distant, products)
    for x in range(R):
        i = rows[x]
        for j in range(S):
            if decides:
                near[i, j] = abs(products[x, j]) > NEAR_SOURCE
            # Where g and g' are 0.
            if near[i, j]:
                products[x, j] = 0.0
    weigh(plan[LINK], mass, overlap, SMALLEST_WEIGHT, growth, scratch)
    for x in range(R):
        growth[x] = -growth[x]
    sums_of_others(plan[BY_BLAS], products, distant, force)


@kernel
def add_near(link: Vector, i: int, u: Vector, sources: Matrix, mass: Vector, near: Switches, F: Vector) -> float:
    """Add the force of the sources that are near row i; return what they add to the growth."""
    total = 0.0
    for j in range(mass.size):
        if near[i, j]:
            s = 0.0
            for k in range(u.size):
                s += u[k] * sources[j, k]
            total -= mass[j] * g0(link, s)
            w = mass[j] * g1(link, s)
            for k in range(u.size):
                F[k] -= w * sources[j, k]
    return total


@kernel
def add_clusters(
    rows: Integers,
    u: Matrix,
    log_n: Vector,
    F: Matrix,
    growth: Vector,
    of_rows: Integers,
    clusters: Integers,
    link: Vector,
    peak: float,
) -> None:
    """Add what the other members of their clusters exert on rows, and a row's own −n_i g(1), g(1) being `peak`.

    The tables are those of the plan.
    """
    for x in range(rows.size):
        growth[x] -= np.exp(log_n[x]) * peak
    for x in range(rows.size):
        end = group_end(x, rows, of_rows, clusters)
        if end > x + 1:
            add_members(link, x, end, u, log_n, F, growth)


@kernel
def direction_of(i: int, of_rows: Integers, clusters: Integers) -> int:
    """Return the direction of the cluster of row i, −1 for a row of none."""
    c = of_rows[CLUSTER, i]
    return int(clusters[DIRECTION, c]) if c >= 0 else -1


@kernel
def add_weighted(a: Vector, u: Vector, value: Vector, slope: Vector, F: Vector) -> tuple[float, float, float]:
    """Add a g'(u) to F, for as many numbers as there are in a; return the sums of a g(u), F u and u²."""
    total = radial = length = 0.0
    for p in range(a.size):
        f = F[p] + a[p] * slope[p]
        F[p] = f
        total += a[p] * value[p]
        radial += f * u[p]
        length += u[p] * u[p]
    return total, radial, length


@kernel
def products_with(u: Vector, F: Vector) -> tuple[float, float]:
    """Return F·u and u·u."""
    radial = length = 0.0
    for k in range(u.size):
        radial += F[k] * u[k]
        length += u[k] * u[k]
    return radial, length


@kernel
def add_teacher(link: Vector, u: Vector, own: int, teacher: Matrix, F: Vector, scratch: Vector) -> tuple[float, float]:
    """Add the force of active directions on one row, and of direction `own`, that of its cluster, or −1 for none.

    Return what they add to the growth, and (F·u)/(u·u). The teacher is the table of the plan.
    """
    total = radial = length = 0.0
    P = teacher.shape[1]
    value, slope = vector(scratch, 0, BLOCK), vector(scratch, BLOCK, BLOCK)
    for begin in range(0, P, BLOCK):
        size = min(BLOCK, P - begin)
        s = vector(u, begin, size)
        write_both(link, s, value, slope)
        # In functions of their own loops are vectorised, here they are not.
        sums = add_weighted(row_part(teacher, ACTIVE, begin, size), s, value, slope, vector(F, begin, size))
        total, radial, length = total + sums[0], radial + sums[1], length + sums[2]
        if begin <= own < begin + size:
            f = teacher[TEACHER, own] * slope[own - begin]
            F[own] += f
            total += teacher[TEACHER, own] * value[own - begin]
            radial += f * u[own]
    sums_beyond = products_with(vector(u, P, u.size - P), vector(F, P, u.size - P))
    return total, (radial + sums_beyond[0]) / (length + sums_beyond[1])


@kernel
def write_difference(v: Vector, w: Vector, factor: float, out: Vector) -> None:
    """Write v − factor · w to another vector, in a function of its own so that the loop is vectorised."""
    for k in range(out.size):
        out[k] = v[k] - factor * w[k]


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


# Slow rows do not feel the sources at every stage, but at four nodes of the step (`rows.NODES`), by their dense output,
# and between them a polynomial in time: 16 m D S operations for S sources in place of 48, and products of more rows
# at once. A row is expected to move on evenly until then; what that is wrong by at the end of the step is part of the
# error that is corrected there. Sources near a row are left out: they act at every stage by themselves.


# Coefficients of the polynomials in time: through the four nodes, and through three past states at most.
COEFFICIENTS = 4

# The rest of the field inside a step, as in `rows.Extrapolation`: rest, its growth, slots, powers.
Rests = tuple[Cube, Matrix, Integers, Matrix]


@kernel
def write_even_motion(i: int, c: int, sign: int, U: Matrix, F: Matrix, drift: Matrix, out: NDArray[Real]) -> None:
    """Write the velocity of row i at the beginning of the step, for one of cluster c the mean over the last step."""
    if c >= 0:
        for k in range(out.size):
            out[k] = rounded_coordinate(sign * drift[c, k])
        return
    radial = along(U[i], F[i])
    for k in range(out.size):
        out[k] = rounded_coordinate(F[i, k] - radial * U[i, k])


@kernel
def write_far(
    rows: Integers,
    h: float,
    start: tuple[Matrix, Vector, Matrix],
    nodes: tuple[Vector, NDArray[Any], Matrix, Switches],
    drift: Matrix,
    out: tuple[NDArray[Any], Matrix],
    room: NDArray[Real],
    scratch: Vector,
    plan: Plan,
) -> None:
    """Write what distant sources exert on a block of rows at every node; decide at the first which are near.

    `start` is (U, ln n, F) where the step of length h begins, and `nodes` (times, vectors of the sources, their masses,
    which are near each row); `out` takes forces (K, R, D) and growth (K, R).
    """
    (U, _, F), (times, sources, mass, near), (far, growth), of_rows = start, nodes, out, plan[0]
    R, D, S = rows.size, U.shape[1], mass.shape[1]
    begin, velocity, vectors = matrix(room, 0, R, D), matrix(room, R * D, R, D), matrix(room, 2 * R * D, R, D)
    overlap = vector(room, 3 * R * D, R * S)
    for x in range(R):
        i = rows[x]
        for k in range(D):
            begin[x, k] = rounded_coordinate(U[i, k])
        write_even_motion(i, of_rows[CLUSTER, i], of_rows[POLE, i], U, F, drift, velocity[x])
    for z in range(times.size):
        # In the precision of the vectors, which a number of its own would raise to double.
        overlap[0] = times[z] * h
        passed = overlap[0]
        for x in range(R):
            for k in range(D):
                vectors[x, k] = begin[x, k] + passed * velocity[x, k]
        at_node = sources[z], mass[z], near
        far_forces(rows, vectors, at_node, z == 0, overlap, far[z], growth[z], scratch, plan)


@kernel
def write_powers(
    i: int, x: int, far: tuple[NDArray[Any], Matrix], node_powers: Matrix, rests: Rests, out: Matrix, growth: Vector
) -> None:
    """Write the polynomial in the fraction of the step of the forces that a row feels without its own motion.

    That is the lagged rest of row i, and what distant sources exert at the K nodes on it, row x of their block. The
    coefficient of power q is Σ_s rest_powers[q, s] rest[slots_s] + Σ_z node_powers[q, z] far[z]: vectors in the rows of
    `out`, and numbers in `growth`.
    """
    (force, far_growth), (rest, rest_growth, slots, rest_powers) = far, rests
    for q in range(growth.size):
        power = out[q]
        growth[q] = 0.0
        if force.shape[0] == 0:
            for k in range(power.size):
                power[k] = 0.0
        else:
            a, b, c, d = force[0, x], force[1, x], force[2, x], force[3, x]
            w = node_powers[q]
            for k in range(power.size):
                power[k] = (w[0] * a[k] + w[1] * b[k]) + (w[2] * c[k] + w[3] * d[k])
            for z in range(w.size):
                growth[q] += w[z] * far_growth[z, x]
        if q < slots.size:
            add_rest(i, rest_powers[q], slots, rest, power)
            growth[q] += rest_number(i, rest_powers[q], slots, rest_growth)


@kernel
def write_value(powers: Matrix, time: float, out: Vector) -> None:
    """Write the value of a polynomial at a time, given the vectors of its four coefficients."""
    a, b, c, d = powers[0], powers[1], powers[2], powers[3]
    for k in range(out.size):
        out[k] = a[k] + time * (b[k] + time * (c[k] + time * d[k]))


@kernel
def power_number(powers: Vector, time: float) -> float:
    """Return the value of a polynomial of numbers at a time."""
    total = 0.0
    for q in range(powers.size - 1, -1, -1):
        total = total * time + powers[q]
    return total


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
            place = vectors[z, x]
            change = move_inside(x, time, starts[part, x], (dense[part], dense_growth[part]), place)
            length = inverse_length(place)
            for k in range(place.size):
                place[k] = rounded_coordinate(length * place[k])
            mass[z, x] = np.exp(log_starts[part, x] + change)


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
    slow_together(c, rows, (u, log_n), (du, dl), means, pace, drift, of_rows, link)


# Of the fast sources: vectors and masses at every stage and which are near each row; times of the K nodes, vectors and
# masses there, and the polynomial through them; what distant ones are expected to exert at the end of the step.
AllSources = tuple[Cube, Matrix, Switches, Vector, NDArray[Any], Matrix, Matrix, NDArray[Any], Vector]


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

    Stages before `which` are filled. `given` is (U, ln n) where the step begins, and the first three of `AllSources`;
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
    all_sources: AllSources,
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
        radial, moved_radial, largest = along(U[i], off), along(U[i], correction), 0.0
        for k in range(D):
            largest = max(largest, abs(off[k] - radial * U[i, k]))
            U_end[i, k] = U[i, k] + free * (correction[k] - moved_radial * U[i, k])
        length = inverse_length(U_end[i])
        for k in range(D):
            U_end[i, k] *= length
        log_end[i] = log_n[i] + free * 4.0 * moved_growth
        miss[i, 0], miss[i, 1] = free * largest, free * abs(off_growth)


# What follows changes the field where K neurons have moved, by 10 K m D operations, not 3 m² D. The state (U, n, F,
# growth) has masses n, not their logarithms.

# Rows that are multiplied with the moved ones together: products of other shapes round differently.
PULLED_BLOCK = 128

Whole = tuple[Matrix, Vector, Matrix, Vector]
Pulls = tuple[Cube, Matrix]


@entry
def pull_rows(
    begin: int, end: int, link: Vector, state: Whole, place: Integers, both: tuple[Matrix, Vector], pulls: Pulls
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
