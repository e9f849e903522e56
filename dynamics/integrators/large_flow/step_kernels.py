"""Compiled steps of the large-flow solver: fields, stages, slowed clusters, corrections at the end.

A block of rows goes through all stages with what it needs in cache. The fast sources go stage by stage: each of them
feels where all others are at the same stage.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dynamics.equations import field
from dynamics.equations.field import FIELD_BLOCK, SCRATCH
from dynamics.equations.link import BLOCK, g0, g1, write_both
from dynamics.equations.vectors import write_events
from dynamics.integrators import clusters as of_clusters
from dynamics.integrators.clusters import State, Whole, along
from dynamics.integrators.explicit_kernels import (
    DOP853_C,
    DOP853_COUNTS,
    DOP853_DENSE_ERROR,
    DOP853_PLACES,
    DOP853_WEIGHTS,
    add_stages,
)
from dynamics.integrators.large_flow import division as plans
from dynamics.integrators.large_flow.division import CLUSTER, COUNT, DIRECTION, FIRST, LINK, ORDER, POLE, TEACHER, Plan
from dynamics.integrators.step_kernels import copy_row
from dynamics.kernels.jit import cube, entry, kernel, matrix, pasted_kernel, row_part, unowned, vector
from dynamics.kernels.products import product
from dynamics.kernels.units import CUBE, INTEGERS, MATRIX, VECTOR, tuple_of, unit
from hermite.arrays import Cube, Integers, Matrix, Switches, Vector

END = 12  # row of the tableau that gives the step, and the stage at its end
ERRORS = 16  # rows of the tableau with the two error estimates

# Stages, and the coefficients of the dense output, are those of vectors and of ln n.
Stages = tuple[Cube, Matrix]
Dense = tuple[Cube, Matrix]
# Ends of rows: U, ln n, their errors and those of the dense output, tolerances, and the leading direction of each row.
Ends = tuple[Matrix, Vector, Vector, Vector, Vector, Integers]
STAGES, ENDS = tuple_of(CUBE, MATRIX), tuple_of(MATRIX, VECTOR, VECTOR, VECTOR, VECTOR, INTEGERS)


@kernel
def add_rest(i: int, weights: Vector, slots: Integers, rest: Cube, out: Vector) -> None:
    """Add Σ_q weights_q rest[slots_q, i] to `out` (D,): the extrapolated rest of the field of neuron i.

    `rest` (slots, m, D) holds past values of the rest of the field, at most three of which have a weight.
    """
    last = slots.size - 1
    v, w, x = weights[0], weights[1] if last > 0 else 0.0, weights[2] if last > 1 else 0.0
    m, D = rest.shape[1], out.size
    a, b = vector(rest, (slots[0] * m + i) * D, D), vector(rest, (slots[min(1, last)] * m + i) * D, D)
    c = vector(rest, (slots[last] * m + i) * D, D)
    for k in range(D):
        out[k] += v * a[k] + w * b[k] + x * c[k]


@kernel
def rest_number(i: int, weights: Vector, slots: Integers, rest_growth: Matrix) -> float:
    """Return Σ_q weights_q rest_growth[slots_q, i], the extrapolated rest of the growth of neuron i."""
    total = 0.0
    for q in range(slots.size):
        total += weights[q] * rest_growth[slots[q], i]
    return total


@kernel
def end_sums(base: Vector, stages: Cube, x: int, count: int, h: float, new: Vector, e5: Vector, e3: Vector) -> None:
    """Write the end of a step of one neuron and both error estimates, (D,) each, from its stages.

    `base` is its state at the start and `stages` (stages, rows, D), of which row x is read; h is the length of the step
    and `count` the number of stages with a weight. The errors of order 5 and 3, `e5` and `e3`, are per unit of h.
    """
    places = DOP853_PLACES[END]  # `count` is an argument lest the compiler write the loop over stages out
    for k in range(new.size):
        new[k] = base[k]
        e5[k] = e3[k] = 0.0
    for j in range(0, count, 2):
        a, b = places[j], places[j + 1]
        w_a, w_b = h * DOP853_WEIGHTS[END, a], h * DOP853_WEIGHTS[END, b]
        five_a, five_b = DOP853_WEIGHTS[ERRORS, a], DOP853_WEIGHTS[ERRORS, b]
        three_a, three_b = DOP853_WEIGHTS[ERRORS + 1, a], DOP853_WEIGHTS[ERRORS + 1, b]
        k_a, k_b = stages[a, x], stages[b, x]
        for k in range(new.size):
            new[k] += w_a * k_a[k] + w_b * k_b[k]
            e5[k] += five_a * k_a[k] + five_b * k_b[k]
            e3[k] += three_a * k_a[k] + three_b * k_b[k]


@kernel
def combine_number(stages: Matrix, x: int, weights: Vector, h: float) -> float:
    """Return h Σ_s w_s k_s for row x of the stages k (stages, rows) of ln n, with weights w."""
    total = 0.0
    for s in range(weights.size):
        if weights[s] != 0.0:
            total += weights[s] * stages[s, x]
    return h * total


@pasted_kernel
def combined_error(five: float, three: float, h: float, count: float) -> float:
    """Return h |e_5|²/√(count (|e_5|² + 0.01 |e_3|²)), the error of a step, infinity if not finite.

    `five` and `three` are the squares of the errors of order 5 and 3 in tolerances, summed over `count` numbers.
    """
    total = five + 0.01 * three
    if not total < np.inf:
        return np.inf
    return float(h * five / np.sqrt(total * count)) if total > 0.0 else 0.0


@kernel
def row_error(
    y: Vector, new: Vector, growth_stages: Matrix, x: int, h: float, e5: Vector, e3: Vector, tolerance: Vector, p: int
) -> float:
    """Return the error of one neuron in units of the tolerance: root mean square over its D + 1 numbers.

    Where the overlap with direction p ≥ 0 has a larger error by itself, that is returned. `y` and `new` (D,) are its
    unit vector at both ends, `growth_stages` (stages, rows) the stages of ln n, of which row x is read, `e5` and `e3`
    (D,) the errors of order 5 and 3 per unit of h, and `tolerance` the absolute and relative one of coordinates, and
    that of ln n.
    """
    D = y.size
    atol, rtol, atol_norm = tolerance[0], tolerance[1], tolerance[2]
    q5 = (combine_number(growth_stages, x, DOP853_WEIGHTS[ERRORS, :END], 1.0) / atol_norm) ** 2
    q3 = (combine_number(growth_stages, x, DOP853_WEIGHTS[ERRORS + 1, :END], 1.0) / atol_norm) ** 2
    for k in range(D):
        scale = 1.0 / (atol + rtol * max(abs(y[k]), abs(new[k])))
        q5 += (e5[k] * scale) ** 2
        q3 += (e3[k] * scale) ** 2
    error = combined_error(q5, q3, h, D + 1.0)
    if p >= 0:
        scale = 1.0 / (atol + rtol * max(abs(y[p]), abs(new[p])))
        error = max(error, combined_error((e5[p] * scale) ** 2, (e3[p] * scale) ** 2, h, 1.0))
    return error


@kernel
def write_cubic(
    i: int, x: int, h: float, rise: Vector, growth_rise: float, all_stages: Stages, polynomials: Dense
) -> None:
    """Write the three lowest coefficients of the dense output of neuron i: the cubic by both ends and their rates.

    `rise` (D,) and `growth_rise` are the changes of its vector and of ln n in the step of length h; its stages are row
    x of `all_stages`.
    """
    (stages, growth_stages), (dense, dense_growth) = all_stages, polynomials
    for k in range(rise.size):
        dense[0, i, k] = rise[k]
        dense[1, i, k] = h * stages[0, x, k] - rise[k]
        dense[2, i, k] = 2.0 * rise[k] - h * (stages[END, x, k] + stages[0, x, k])
    dense_growth[0, i] = growth_rise
    dense_growth[1, i] = h * growth_stages[0, x] - growth_rise
    dense_growth[2, i] = 2.0 * growth_rise - h * (growth_stages[END, x] + growth_stages[0, x])


@unit(State=of_clusters.KINDS["State"], Stages=STAGES, Dense=STAGES, Ends=ENDS)
def finish_row(
    i: int,
    x: int,
    again: bool,
    has_dense: bool,
    h: float,
    start: State,
    all_stages: Stages,
    ends: Ends,
    polynomials: Dense,
    work: Vector,
) -> None:
    """Write row i after a step, and its dense output; its stages are row x of `all_stages`.

    With `again` the step has been accepted, and its end is left alone; `work` has 4 D numbers.
    """
    (U, log_n), (stages, growth_stages) = start, all_stages
    U_new, log_new, error, error_within, tolerance, leading = ends
    D = U.shape[1]
    zero, rise, e5, e3 = vector(work, 0, D), vector(work, D, D), vector(work, 2 * D, D), vector(work, 3 * D, D)
    end_sums(U[i], stages, x, DOP853_COUNTS[END], h, rise, e5, e3)
    growth_rise = combine_number(growth_stages, x, DOP853_WEIGHTS[END, :END], h)
    if not again:
        for k in range(D):
            U_new[i, k] = rise[k]
        log_new[i] = log_n[i] + growth_rise
        error[i] = row_error(U[i], rise, growth_stages, x, h, e5, e3, tolerance, leading[i])
    if has_dense:
        for k in range(D):
            rise[k] -= U[i, k]
            zero[k] = 0.0
        dense, dense_growth = polynomials
        flat = matrix(stages, 0, stages.shape[0], stages.shape[1] * D)
        write_cubic(i, x, h, rise, growth_rise, all_stages, polynomials)
        for q in range(4):
            add_stages(zero, flat, 18 + q, h, D, dense[3 + q, i], x * D)
            dense_growth[3 + q, i] = combine_number(growth_stages, x, DOP853_WEIGHTS[18 + q], h)
        square = dense_growth[6, i] ** 2
        for k in range(D):
            square += dense[6, i, k] ** 2
        error_within[i] = DOP853_DENSE_ERROR * np.sqrt(square) / tolerance[1]


@entry
def events_of_rows(link: Vector, U: Matrix, log_n: Vector, a: Vector, sign_matters: bool, out: Vector) -> None:
    """Write the events of a state to `out` (2 P,), which are positive once they have passed.

    The first P are max_i C_ip² minus the level of emergence, with C > 0 only if the sign matters; the others are Σ_i
    n_i g(C_ip)/g(1) − a_p/2. C_ip are overlaps, n_i squared norms, a_p coefficients and g the kernel of the link.
    """
    C = np.ascontiguousarray(U[:, : a.size]).reshape(a.size * log_n.size)
    write_events(C, np.exp(log_n), a, link, int(sign_matters), np.empty(C.size), out)


@entry
def mass_of_rest(
    link: Vector, rows: Integers, p: int, state: tuple[Matrix, Vector, Matrix, Vector], out: Vector
) -> None:
    """Write Σ_i n_i g(C_ip)/g(1) over the neurons `rows`, and its rate of change, to `out` (2,).

    C_ip are overlaps with direction p, n_i squared norms and g the kernel of the link. The state is (U, ln n, field,
    growth).
    """
    U, log_n, F, growth = state
    kernel_at_one = g0(link, 1.0)
    out[0] = out[1] = 0.0
    for x in range(rows.size):
        i = rows[x]
        c = U[i, p]
        share, value = np.exp(log_n[i]) / kernel_at_one, g0(link, c)
        out[0] += share * value
        out[1] += share * (4.0 * growth[i] * value + g1(link, c) * (F[i, p] - along(U[i], F[i]) * c))


@kernel
def number_inside(dense: Vector, x: float, start: float, end: float) -> float:
    """Return one number at the fraction x, from 0 to 1, of a step, from the seven coefficients `dense`.

    `start` and `end` are its values at the ends; a correction of the end comes in as x² (3 − 2 x).
    """
    value = dense[6]
    for q in range(5, -1, -1):
        value = dense[q] + (x if q % 2 == 1 else 1.0 - x) * value
    y: float = start + x * value + x * x * (3.0 - 2.0 * x) * (end - start - dense[0])
    return y


@entry
def events_inside(
    link: Vector,
    rows: Integers,
    p: int,
    x: float,
    sign_matters: bool,
    begin: State,
    end: State,
    polynomials: Dense,
    out: Vector,
) -> None:
    """Write max C_ip² and Σ n g(C_ip)/g(1) over the neurons `rows` at the fraction x of a step to `out` (2,).

    C_ip are overlaps with direction p, n squared norms and g the kernel of the link. With `sign_matters` only C > 0
    counts for the maximum. `begin` and `end` are the states at the ends, `polynomials` the dense output between them.
    """
    (U, log_n), (U_end, log_end), (dense, dense_growth) = begin, end, polynomials
    kernel_at_one = g0(link, 1.0)
    out[0] = out[1] = 0.0
    for z in range(rows.size):
        i = rows[z]
        c = number_inside(dense[:, i, p], x, U[i, p], U_end[i, p])
        n = np.exp(number_inside(dense_growth[:, i], x, log_n[i], log_end[i]))
        if c > 0.0 or not sign_matters:
            out[0] = max(out[0], c * c)
        out[1] += n * g0(link, c) / kernel_at_one


@kernel
def move_inside(i: int, x: float, u: Vector, polynomials: Dense, out: Vector) -> float:
    """Write the vector (D,) of neuron i at the fraction x of a step to `out`; return the change of its ln n.

    The step begins at the vector u (D,). `polynomials` are the seven coefficients of the dense output of all rows, of
    vectors (7, rows, D) and of ln n (7, rows).
    """
    dense, dense_growth = polynomials
    total = dense_growth[6, i]
    for k in range(out.size):
        out[k] = dense[6, i, k]
    for q in range(5, -1, -1):
        factor = x if q % 2 == 1 else 1.0 - x
        total = dense_growth[q, i] + factor * total
        for k in range(out.size):
            out[k] = dense[q, i, k] + factor * out[k]
    for k in range(out.size):
        out[k] = u[k] + x * out[k]
    change: float = x * total
    return change


@kernel
def inverse_length(u: Vector) -> float:
    """Return 1/|u| of a vector."""
    square = 0.0
    for k in range(u.size):
        square += u[k] * u[k]
    return float(1.0 / np.sqrt(square))


@entry
def rows_inside(x: float, begin: State, end: State, polynomials: Dense, out: State) -> None:
    """Write unit vectors and ln n of all neurons at the fraction x, from 0 to 1, of a step to `out`.

    `begin` and `end` are the states at the ends, `polynomials` the dense output between them. A correction of the end
    comes in as x² (3 − 2 x).
    """
    (U, log_n), (U_end, log_end), (dense, dense_growth), (vectors, log_out) = begin, end, polynomials, out
    late = x * x * (3.0 - 2.0 * x)
    for i in range(log_n.size):
        rise, u = move_inside(i, x, U[i], polynomials, vectors[i]), vectors[i]
        log_out[i] = log_n[i] + rise + late * (log_end[i] - log_n[i] - dense_growth[0, i])
        for k in range(u.size):
            u[k] += late * (U_end[i, k] - U[i, k] - dense[0, i, k])
        length = inverse_length(u)
        for k in range(u.size):
            u[k] *= length


# Where slowed clusters end a step, once the full field there is known. `lag` is (rest, rest_growth, slots, weights,
# part, part_growth): the extrapolated rest of the field is Σ_q weights_q rest[slots_q], and `part` the partial field at
# the end of the step.
Lag = tuple[Cube, Matrix, Integers, Vector, Matrix, Vector]


@kernel
def miss_of_row(i: int, u: Vector, F: Matrix, growth: Vector, lag: Lag, miss: Vector) -> float:
    """Write the tangential error of the extrapolated rest of the field of neuron i to `miss` (D,).

    Return the error of its (ln n)'. `F` and `growth` are the whole field at the end of the step, where its unit vector
    is u.
    """
    rest, rest_growth, slots, weights, part, part_growth = lag
    D = u.size
    for k in range(D):
        miss[k] = 0.0
    add_rest(i, weights, slots, rest, miss)
    for k in range(D):
        miss[k] = F[i, k] - part[i, k] - miss[k]
    radial = along(u, miss)
    for k in range(D):
        miss[k] -= radial * u[k]
    return 4.0 * float(growth[i] - part_growth[i] - rest_number(i, weights, slots, rest_growth))


@entry
def weigh_shifts(
    begin: int,
    end: int,
    h: float,
    ratio: float,
    modes: tuple[Matrix, Matrix, Matrix, Integers],
    start: State,
    state: Whole,
    lag: Lag,
    out: tuple[Cube, Matrix],
    plan: Plan,
) -> None:
    """Write by how much clusters begin … end − 1 miss their place at the end of a step of length h from `start`.

    `out` is (shift, size). `shift` (2, c, D + 1) takes the shift b of the mean direction and β of mean ln n, as
    `clusters.weigh_shift` computes them, then the mean error of the extrapolated rest of the field. `size` (c, 3) takes
    |b|, |β| and the largest change of another neuron's velocity by them. `ratio` is h over the sum of this step's and
    the last step's length. `modes` is (rates, shares, drift, direction of the cluster of each neuron): rates of
    relaxation and shares of the error of the rest that a mode feels, (c, 2) for direction and norm, and mean velocities
    over the last step, (c, D + 1).
    """
    (rates, shares, drift, cluster), (U, log_n, F, growth), (shift, size) = modes, state, out
    order, pole, first, direction = plan[0][ORDER], plan[0][POLE], plan[1][FIRST], plan[1][DIRECTION]
    D = U.shape[1]
    miss, velocity, forces = np.empty(D), np.empty(D + 1), np.empty(plan[2].shape[1])
    of_clusters.write_forces_on_others(plan[2][TEACHER], plan[LINK], U, cluster, forces)
    for c in range(begin, end):
        moved, off, members = shift[0, c], shift[1, c], order[first[c] : first[c + 1]]
        of_means = rates[c, 0], rates[c, 1]
        of_clusters.weigh_shift(h, ratio, of_means, members, pole, start, state, drift[c], moved, velocity)
        total = 0.0
        for k in range(D + 1):
            off[k] = 0.0
        for x in range(members.size):
            i = members[x]
            n = np.exp(log_n[i])
            w = n * pole[i]
            total += n
            off[D] += n * miss_of_row(i, U[i], F, growth, lag, miss)
            for k in range(D):
                off[k] += w * miss[k]
        for mode in range(2):
            follows = np.exp(-max(h * rates[c, mode] - of_clusters.KAPPA, 0.0)) * shares[c, mode]
            for k in range(mode * D, D + mode):
                off[k] /= total
                moved[k] += follows * off[k]
        size[c, 0], size[c, 1] = of_clusters.size_of_shift(moved)
        size[c, 2] = forces[direction[c]] * max(size[c, 0], size[c, 1])


@entry
def shift_clusters(chosen: Integers, share: float, state: Whole, lag: Lag, shift: Cube, plan: Plan) -> None:
    """Move the members of the clusters numbered in `chosen` by `shift`, in place in the state.

    They also move by `share` times the difference of the error of their rest of the field from its mean. `shift` is
    that of `weigh_shifts`.
    """
    of_rows, clusters, (U, log_n, F, growth) = plan[0], plan[1], state
    D = U.shape[1]
    miss = np.empty(D)
    for c in chosen:
        b, off = shift[0, c], shift[1, c]
        for x in range(clusters[FIRST, c], clusters[FIRST, c + 1]):
            i = of_rows[ORDER, x]
            s, growth_error = of_rows[POLE, i], miss_of_row(i, U[i], F, growth, lag, miss)
            of_clusters.shift_row(s, b[:D], U[i])
            for k in range(D):
                U[i, k] += share * (miss[k] - s * off[k])
            log_n[i] += share * (growth_error - off[D]) + b[D]


# The field in its two parts, for a block of rows. A row i is a unit vector u_i in R^D with log_n = ln n_i. Its field is
# F_i = Σ_p a_p g'(C_ip) e_p − Σ_{j≠i} n_j g'(G_ij) u_j, its velocity u' = F − (F·u)/(u·u) u, and (ln n)' = 4 growth,
# growth_i = Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij). A neuron's force on itself is radial and therefore never computed.
# `scratch` has `SCRATCH` numbers (`dynamics.equations.field`).


@kernel
def add_members(link: Vector, begin: int, end: int, u: Matrix, log_n: Vector, F: Matrix, growth: Vector) -> None:
    """Add the forces of the neurons begin … end − 1 of a block, all members of one cluster, on each other.

    For neuron i this is −Σ_j n_j g'(s_ij) u_j to the field F (rows, D) and −Σ_j n_j g(s_ij) to growth (rows,), over the
    other members j, with s_ij = u_i·u_j, the kernel g of the `link`, unit vectors u (rows, D) and ln n = `log_n`.
    """
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
def force_of_sources(
    own: int,
    u: Matrix,
    sources: Matrix,
    mass: Vector,
    overlap: Vector,
    F: Matrix,
    growth: Vector,
    scratch: Vector,
    plan: Plan,
) -> None:
    """Write the force of the S fast sources on R neurons to their field F (R, D) and growth (R,).

    The neurons, unit vectors u (R, D), are the sources from number `own` on, or no sources if `own` is negative; no
    source has a force on itself. `sources` (S, D) and `mass` (S,) are unit vectors and squared norms, and `overlap`
    scratch, a number per pair.
    """
    R, S = growth.size, mass.size
    if S == 0:
        growth.fill(0.0)
        F.fill(0.0)
        return
    products = matrix(overlap, 0, R, S)
    product(u, sources.T, products)
    for x in range(R if own >= 0 else 0):
        # Where g and g' are 0.
        products[x, own + x] = 0.0
    field.weigh(plan[LINK], mass, overlap, 0.0, growth, scratch)
    for x in range(R):
        growth[x] = -growth[x]
    product(products, sources, F)


@kernel
def add_clusters(
    counts: Integers, u: Matrix, log_n: Vector, F: Matrix, growth: Vector, link: Vector, peak: float
) -> None:
    """Add the forces between members of clusters to the field of a block, and −n_i g(1) to each growth.

    `counts` holds the size of the cluster that begins at each place of the block, 1 for a neuron of none and 0 inside
    one; `peak` is g(1), of the kernel g of the link.
    """
    for x in range(counts.size):
        growth[x] -= np.exp(log_n[x]) * peak
    for x in range(counts.size):
        if counts[x] > 1:
            add_members(link, x, x + counts[x], u, log_n, F, growth)


@kernel
def direction_of(i: int, of_rows: Integers, clusters: Integers) -> int:
    """Return the direction of the cluster of neuron i, −1 if it is in none."""
    c = of_rows[CLUSTER, i]
    return int(clusters[DIRECTION, c]) if c >= 0 else -1


@kernel
def add_weighted(a: Vector, u: Vector, value: Vector, slope: Vector, F: Vector) -> tuple[float, float, float]:
    """Add a g'(u) to F, in place, for the entries of a; return the sums of a g(u), F u and u².

    `value` and `slope` hold g(u) and g'(u); a are coefficients, u overlaps with the directions.
    """
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
    """Return the products F·u and u·u of two vectors."""
    radial = length = 0.0
    for k in range(u.size):
        radial += F[k] * u[k]
        length += u[k] * u[k]
    return radial, length


@kernel
def add_teacher(link: Vector, u: Vector, own: int, teacher: Matrix, F: Vector, scratch: Vector) -> tuple[float, float]:
    """Add to the field F (D,) of one neuron the force of directions without a cluster and of its own direction.

    `own` is the direction of its cluster, −1 for none. Return the share of these directions in its growth, and
    (F·u)/(u·u), with its unit vector u.
    """
    total = radial = length = 0.0
    P = teacher.shape[1]
    value, slope = vector(scratch, 0, BLOCK), vector(scratch, BLOCK, BLOCK)
    for begin in range(0, P, BLOCK):
        size = min(BLOCK, P - begin)
        s = vector(u, begin, size)
        write_both(link, s, value, slope)
        # In functions of their own loops are vectorised, here they are not.
        sums = add_weighted(row_part(teacher, plans.ACTIVE, begin, size), s, value, slope, vector(F, begin, size))
        total, radial, length = total + sums[0], radial + sums[1], length + sums[2]
        if begin <= own < begin + size:
            f = teacher[TEACHER, own] * slope[own - begin]
            F[own] += f
            total += teacher[TEACHER, own] * value[own - begin]
            radial += f * u[own]
    sums_beyond = products_with(vector(u, P, u.size - P), vector(F, P, u.size - P))
    return total, (radial + sums_beyond[0]) / (length + sums_beyond[1])


@kernel
def write_difference(v: Vector, w: Vector, out: Vector) -> None:
    """Write v − w to `out`; a separate function, so that the loop is vectorised."""
    for k in range(out.size):
        out[k] = v[k] - w[k]


@entry
def partial_rows(
    blocks: Integers,
    cuts: Integers,
    state: Whole,
    sources: tuple[Matrix, Vector],
    is_rest: bool,
    out: tuple[Matrix, Vector],
    numbers: Vector,
    plan: Plan,
) -> None:
    """Write a part of the field of some blocks, and of their growth, to `out`; with `is_rest` the whole less it.

    The part is the force of fast sources, of directions without a cluster, and of a neuron's own cluster and its
    direction. `state` is (U, ln n, field, growth), `sources` the unit vectors and squared norms of the sources, and
    `numbers` scratch. Block b holds the places cuts[b] … cuts[b + 1] − 1 in the order of the plan.
    """
    (U, log_n, field, field_growth), (out_F, out_growth), (vectors, mass) = state, out, sources
    D, S = U.shape[1], mass.size
    of_rows, clusters, teacher, link = plan
    peak, scratch = g0(link, 1.0), np.empty(SCRATCH)
    for b in blocks:
        first, R = cuts[b], cuts[b + 1] - cuts[b]
        rows, counts = row_part(of_rows, ORDER, first, R), row_part(of_rows, COUNT, first, R)
        u, F, overlap = matrix(numbers, 0, R, D), matrix(numbers, R * D, R, D), vector(numbers, 2 * R * D, R * S)
        o = 2 * R * D + R * S
        logs, growth = vector(numbers, o, R), vector(numbers, o + R, R)
        for x in range(R):
            logs[x] = log_n[rows[x]]
            copy_row(u[x], U[rows[x]])
        force_of_sources(first if first < S else -1, u, vectors, mass, overlap, F, growth, scratch, plan)
        add_clusters(counts, u, logs, F, growth, link, peak)
        for x in range(R):
            i = rows[x]
            direction = direction_of(i, of_rows, clusters)
            growth[x] += add_teacher(link, u[x], direction, teacher, F[x], scratch)[0]
            if is_rest:
                out_growth[i] = field_growth[i] - growth[x]
                write_difference(field[i], F[x], out_F[i])
            else:
                out_growth[i] = growth[x]
                copy_row(out_F[i], F[x])


# The rest of the field is its part without fast sources, directions that have no cluster, and a neuron's own cluster.
# It is extrapolated from past steps, as in `rows.Extrapolation`: past values (slots, m, D), those of the growth
# (slots, m), the slots in use, and powers of time for their weights.
Rests = tuple[Cube, Matrix, Integers, Matrix]


@kernel
def write_weights(x: float, powers: Matrix, weights: Vector) -> None:
    """Write the weights of the past rests of the field at the fraction x of the step, Σ_p x^p powers[p], (q,)."""
    for q in range(weights.size):
        weights[q] = 0.0
        for p in range(weights.size - 1, -1, -1):
            weights[q] = weights[q] * x + powers[p, q]


# Sources whose forces are computed together: products of other shapes round differently.
TOGETHER = 8
LAST_STAGE = 15

# Sources take a step in equal parts: length of one, its number, and that of all.
Part = tuple[float, int, int]
# Of all S sources, by stage: vectors (16, S, D), masses (16, S), and the stages of vectors and of ln n (rates of both).
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
    """Compute stage s of the sources `first` … `last` − 1 in a part of the step, and their state at the next.

    `part` is the length of the part, its number and how many there are; `path` holds vectors and masses of all sources
    at the stages, and the stages.
    """
    (h, number, parts), (rest, rest_growth, slots, rest_powers), (weights, room, scratch) = part, rests, work
    U, log_n, sources, mass, stages = unowned(start[0]), start[1], unowned(path[0]), unowned(path[1]), unowned(path[2])
    growth_stages, of_rows, teacher, link, D = unowned(path[3]), plan[0], unowned(plan[2]), plan[LINK], U.shape[1]
    flat = matrix(stages, 0, stages.shape[0], U.size)
    u, velocity = sources[s, first:last], stages[s, first:last]
    overlap, growth = vector(room, 0, (last - first) * mass.shape[1]), growth_stages[s, first:last]
    force_of_sources(first, u, sources[s], mass[s], overlap, velocity, growth, scratch, plan)
    write_weights((number + DOP853_C[s]) / parts, rest_powers, weights)
    # No source is in a cluster. A constant would have `add_teacher` compiled once more.
    peak, no_direction = g0(link, 1.0), min(first, 0) - 1
    for y in range(last - first):
        z = first + y
        i = of_rows[ORDER, z]
        add_rest(i, weights, slots, rest, velocity[y])
        total, radial = add_teacher(link, u[y], no_direction, teacher, velocity[y], scratch)
        total += growth[y] - mass[s, z] * peak + rest_number(i, weights, slots, rest_growth)
        growth[y] = 4.0 * total
        for k in range(D):
            velocity[y, k] -= radial * u[y, k]
        if s < LAST_STAGE:
            add_stages(U[z], flat, s + 1, h, D, sources[s + 1, z], z * D)
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
    """Take some stages of a part of a step of some groups of eight sources; after the last see `finish_row`.

    Sources are the neurons near a direction and in no cluster, which move fast, and D is their number of columns; all
    arrays but the rest of the field hold S sources alone. `span` is (first stage, last stage, first group, end of
    groups), and `part` (length of the part of the step, its number, number of parts). `start` is (U, ln n) at the start
    of the part. `rests`, as of `Rests`, extrapolate the rest of the field. `path` is (vectors, masses, stages of
    vectors, stages of ln n), each with the stage first: a group reads where all sources are at a stage, and leaves
    there its own velocity, and where it is at the next. After the last stage `ends` and the dense output,
    `polynomials`, of each source are written. `plan` is that of the division.
    """
    (first_stage, last_stage, first_group, last_group), h = span, part[0]
    D, S = start[0].shape[1], path[1].shape[1]
    weights, room = np.empty(rests[2].size), np.empty(TOGETHER * S)
    scratch, work = np.empty(SCRATCH), np.empty(4 * D)
    for s in range(first_stage, last_stage + 1):
        for first in range(TOGETHER * first_group, min(TOGETHER * last_group, S), TOGETHER):
            last = min(first + TOGETHER, S)
            stage_of_sources(s, first, last, part, start, rests, path, (weights, room, scratch), plan)
            # With a constant for `is_last` Numba would compile `finish_row` once more.
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
    """Write unit vectors and squared norms of sources begin … end − 1 at fractions `times` of a step to `out`.

    They come from the dense output of its parts: `ends` holds the vectors and ln n where these begin, and `polynomials`
    the dense output of each.
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
                place[k] *= length
            mass[z, x] = np.exp(log_starts[part, x] + change)


@entry
def step_rows(
    blocks: tuple[Integers, Integers],
    how: tuple[bool, bool, float],
    start: State,
    rests: Rests,
    sources: tuple[Cube, Matrix],
    slowing: tuple[Matrix, Matrix],
    ends: Ends,
    polynomials: Dense,
    work: Vector,
    plan: Plan,
) -> None:
    """Take one step of some blocks of neurons, which hold no source, and write their ends; see `finish_row`.

    `blocks` is (numbers of blocks, cuts): block b is order[cuts[b]:cuts[b + 1]]. `how` says whether the step has been
    accepted, whether its dense output is wanted, and its length. `start` is (U, ln n) at its beginning. `rests`, as of
    `Rests`, extrapolate the rest of the field, and `sources` are the vectors and masses of the fast sources at every
    stage, (stages, S, D) and (stages, S). `slowing` is (pace, drift): by cluster the share θ that is left of the
    velocities of direction and norm, and the mean velocity over the last step. `ends` and the dense output,
    `polynomials`, are written; `work` is scratch and `plan` that of the division.
    """
    (numbers, cuts), (again, has_dense, h) = blocks, how
    (rest, rest_growth, slots, rest_powers), pace, drift = rests, slowing[0], unowned(slowing[1])
    U, log_n, rest, vectors, mass = unowned(start[0]), start[1], unowned(rest), unowned(sources[0]), unowned(sources[1])
    of_rows, clusters, teacher, link = unowned(plan[0]), unowned(plan[1]), unowned(plan[2]), unowned(plan[3])
    plan = of_rows, clusters, teacher, link
    D, S, pole = U.shape[1], mass.shape[1], row_part(of_rows, POLE, 0, of_rows.shape[1])
    peak = g0(link, 1.0)
    lever = 0.25 * g1(link, 1.0) / peak
    weights, scratch, means, ending = np.empty(slots.size), np.empty(SCRATCH), np.empty((2, D)), np.empty(4 * D)
    for b in numbers:
        R = cuts[b + 1] - cuts[b]
        rows, counts = row_part(of_rows, ORDER, cuts[b], R), row_part(of_rows, COUNT, cuts[b], R)
        places = row_part(of_rows, plans.PLACE, 0, R)
        stages, u, flat = cube(work, 0, 16, R, D), matrix(work, 16 * R * D, R, D), matrix(work, 0, 16, R * D)
        o = 17 * R * D
        growth_stages, logs = matrix(work, o, 16, R), vector(work, o + 16 * R, R)
        log_begin, overlap = vector(work, o + 17 * R, R), vector(work, o + 18 * R, R * S)
        for x in range(R):
            log_begin[x] = log_n[rows[x]]
        for s in range(16 if has_dense else END):
            velocity, growth = stages[s], growth_stages[s]
            add_stages(log_begin, growth_stages, s, h, R, logs, 0)
            for x in range(R):
                add_stages(U[rows[x]], flat, s, h, D, u[x], x * D)
            force_of_sources(-1, u, vectors[s], mass[s], overlap, velocity, growth, scratch, plan)
            add_clusters(counts, u, logs, velocity, growth, link, peak)
            write_weights(DOP853_C[s], rest_powers, weights)
            for x in range(R):
                i = rows[x]
                add_rest(i, weights, slots, rest, velocity[x])
                total, radial = add_teacher(
                    link, u[x], direction_of(i, of_rows, clusters), teacher, velocity[x], scratch
                )
                growth[x] = 4.0 * (growth[x] + total + rest_number(i, weights, slots, rest_growth))
                for k in range(D):
                    velocity[x, k] -= radial * u[x, k]
            for x in range(R):
                c, count = of_rows[CLUSTER, rows[x]], counts[x]
                if c >= 0 and count > 0 and min(pace[c, 0], pace[c, 1]) < 1.0:
                    of_clusters.slow_cluster(
                        1.0 - pace[c, 0], 1.0 - pace[c, 1], lever, vector(places, x, count), vector(rows, x, count),
                        pole, (u, logs), (velocity, growth), drift[c], (means[0], means[1]),
                    )  # fmt: skip
        for x in range(R):
            finish_row(rows[x], x, again, has_dense, h, start, (stages, growth_stages), ends, polynomials, ending)


@entry
def settle_rows(
    begin: int,
    end: int,
    share: float,
    cluster: Integers,
    state: Whole,
    lag: Lag,
    settled: tuple[Matrix, Vector],
    miss: Matrix,
) -> None:
    """Compare the rest of the field at the end of a step with its extrapolation; write the corrected state.

    On return `part` and `part_growth` of the lag hold the rest. `settled` takes (U, ln n), and `miss` (m, 2) the
    largest component of the error of velocity and that of (ln n)', by `share` of which rows outside clusters move.
    """
    (U, log_n, F, growth), (U_end, log_end), D = state, settled, state[0].shape[1]
    part, part_growth, off = lag[4], lag[5], np.empty(state[0].shape[1])
    for i in range(begin, end):
        free, largest = 1.0 if cluster[i] < 0 else 0.0, 0.0
        off_growth = miss_of_row(i, U[i], F, growth, lag, off)
        part_growth[i] = growth[i] - part_growth[i]
        for k in range(D):
            part[i, k] = F[i, k] - part[i, k]
            largest = max(largest, abs(off[k]))
            U_end[i, k] = U[i, k] + free * share * off[k]
        length = inverse_length(U_end[i])
        for k in range(D):
            U_end[i, k] *= length
        log_end[i] = log_n[i] + free * share * off_growth
        miss[i, 0], miss[i, 1] = free * largest, free * abs(off_growth)


# Where K of m rows have moved, both kernels below bring the field up to date by 9 K m D operations, not 3 m² D.


@entry
def add_moves(begin: int, end: int, moves: tuple[Matrix, Vector], still: Switches, state: Whole, plan: Plan) -> None:
    """Add the change of the field by K neurons that moved to the neurons begin … end − 1 that stood `still`.

    `moves` holds the unit vectors of the K neurons after and before, (2 K, D), and their squared norms, negative
    before. Field and growth of the state change in place.
    """
    (U, _, F, growth), (vectors, mass), scratch = state, moves, np.empty(SCRATCH)
    for first in range(begin, end, FIELD_BLOCK):
        R = min(FIELD_BLOCK, end - first)
        force, change, overlap = np.empty((R, U.shape[1])), np.empty(R), np.empty(R * mass.size)
        force_of_sources(-1, U[first : first + R], vectors, mass, overlap, force, change, scratch, plan)
        for x in range(R):
            if still[first + x]:
                growth[first + x] += change[x]
                for k in range(U.shape[1]):
                    F[first + x, k] += force[x, k]


@entry
def renew_rows(begin: int, end: int, rows: Integers, mass: Vector, state: Whole, plan: Plan) -> None:
    """Compute field and growth of chosen neurons anew, from the forces of all m neurons and of the teacher.

    `rows` lists the chosen neurons, taken in groups of `TOGETHER`; this call does the groups begin … end − 1. `mass`
    (m,) holds the squared norms n of all neurons, and `state` is (U, ln n, F, growth): unit vectors U (m, D) are read,
    and the chosen rows of the field F (m, D) and of growth (m,) are overwritten. The radial force −n_i g'(1) u_i of
    neuron i on itself, with the kernel g of the link, is left out of F.
    """
    (U, _, F, growth), (_, _, teacher, link), scratch = state, plan, np.empty(SCRATCH)
    for first in range(TOGETHER * begin, min(TOGETHER * end, rows.size), TOGETHER):
        group = rows[first : first + TOGETHER]
        R = group.size
        u, force, change, overlap = U[group], np.empty((R, U.shape[1])), np.empty(R), np.empty(R * mass.size)
        force_of_sources(-1, u, U, mass, overlap, force, change, scratch, plan)
        for x in range(R):
            i = group[x]
            radial_force = mass[i] * g1(link, 1.0)
            growth[i] = change[x]
            for k in range(U.shape[1]):
                F[i, k] = force[x, k] + radial_force * u[x, k]
            for p in range(teacher.shape[1]):
                F[i, p] += teacher[TEACHER, p] * g1(link, u[x, p])
                growth[i] += teacher[TEACHER, p] * g0(link, u[x, p])
