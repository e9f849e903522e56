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

from dynamics.equations import field
from dynamics.equations.field import SCRATCH, rounded_coordinate
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
from dynamics.integrators.large_flow.division import CLUSTER, DIRECTION, FIRST, LINK, ORDER, POLE, TEACHER, Plan
from dynamics.integrators.step_kernels import copy_row
from dynamics.kernels.jit import cube, entry, kernel, matrix, pasted_kernel, row_part, vector
from dynamics.kernels.products import product
from hermite.arrays import Cube, Integers, Matrix, Real, Switches, Vector

END = 12  # row of the tableau that gives the step, and the stage at its end
ERRORS = 16  # rows of the tableau with the two error estimates

# Stages, and the coefficients of the dense output, are those of vectors and of ln n.
Stages = tuple[Cube, Matrix]
Dense = tuple[Cube, Matrix]
# Where rows end: U, ln n, their errors and those of the dense output, the tolerances, and what each row leads.
Ends = tuple[Matrix, Vector, Vector, Vector, Vector, Integers]
LEADING = 5


@kernel
def group_end(x: int, rows: Integers, of_rows: Integers, clusters: Integers) -> int:
    """Return where the cluster of row x of a block ends, x + 1 for a row of none, and x if it began before."""
    c = of_rows[CLUSTER, rows[x]]
    if c < 0:
        return x + 1
    if x > 0 and of_rows[CLUSTER, rows[x - 1]] == c:
        return x
    count: int = clusters[FIRST, c + 1] - clusters[FIRST, c]
    return x + count


@kernel
def add_rest(i: int, weights: Vector, slots: Integers, rest: Cube, out: Vector) -> None:
    """Add Σ_q weights_q rest[slots_q] of row i: a pass per value, since a loop over values inside is not vectorised."""
    for q in range(slots.size):
        w, slot = weights[q], slots[q]
        for k in range(out.size):
            out[k] += w * rest[slot, i, k]


@kernel
def rest_number(i: int, weights: Vector, slots: Integers, rest_growth: Matrix) -> float:
    """Return Σ_q weights_q rest_growth[slots_q] of row i."""
    total = 0.0
    for q in range(slots.size):
        total += weights[q] * rest_growth[slots[q], i]
    return total


@kernel
def end_sums(base: Vector, stages: Cube, x: int, count: int, h: float, new: Vector, e5: Vector, e3: Vector) -> None:
    """Write the state at the end of a step and both error estimates of one neuron, of the same `count` stages."""
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
    """Return h Σ_s w_s k_s for the number of one row."""
    total = 0.0
    for s in range(weights.size):
        if weights[s] != 0.0:
            total += weights[s] * stages[s, x]
    return h * total


@pasted_kernel
def combined_error(five: float, three: float, h: float, count: float) -> float:
    """Return h |e_5|²/√(count (|e_5|² + 0.01 |e_3|²)) of the squares of both errors, infinity if not finite."""
    total = five + 0.01 * three
    if not total < np.inf:
        return np.inf
    return float(h * five / np.sqrt(total * count)) if total > 0.0 else 0.0


@kernel
def row_error(
    y: Vector, new: Vector, growth_stages: Matrix, x: int, h: float, e5: Vector, e3: Vector, tolerance: Vector, p: int
) -> float:
    """Return the error of one row in tolerances: root mean square over its D + 1 numbers, or that of its overlap p."""
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
    """Write the three lowest coefficients of the dense output of one row: the cubic by both ends and their rates."""
    (stages, growth_stages), (dense, dense_growth) = all_stages, polynomials
    for k in range(rise.size):
        dense[0, i, k] = rise[k]
        dense[1, i, k] = h * stages[0, x, k] - rise[k]
        dense[2, i, k] = 2.0 * rise[k] - h * (stages[END, x, k] + stages[0, x, k])
    dense_growth[0, i] = growth_rise
    dense_growth[1, i] = h * growth_stages[0, x] - growth_rise
    dense_growth[2, i] = 2.0 * growth_rise - h * (growth_stages[END, x] + growth_stages[0, x])


@kernel
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
    """Write the events: max_i C_ip² − ½ (C > 0 only, if the sign matters), then Σ_i n_i g(C_ip)/g(1) − a_p/2."""
    C = np.ascontiguousarray(U[:, : a.size]).reshape(a.size * log_n.size)
    write_events(C, np.exp(log_n), a, link, int(sign_matters), np.empty(C.size), out)


@entry
def mass_of_rest(
    link: Vector, rows: Integers, p: int, state: tuple[Matrix, Vector, Matrix, Vector], out: Vector
) -> None:
    """Write Σ_i n_i g(C_ip)/g(1) over some rows, and its rate of change; the state has its F and growth."""
    U, log_n, F, growth = state
    whole = g0(link, 1.0)
    out[0] = out[1] = 0.0
    for x in range(rows.size):
        i = rows[x]
        c = U[i, p]
        share, value = np.exp(log_n[i]) / whole, g0(link, c)
        out[0] += share * value
        out[1] += share * (4.0 * growth[i] * value + g1(link, c) * (F[i, p] - along(U[i], F[i]) * c))


@kernel
def number_inside(dense: Vector, x: float, start: float, end: float) -> float:
    """Return one number at the fraction x of a step, given its seven coefficients; see `stepper.inside`."""
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
    """Write max C_ip² and Σ n g(C_ip)/g(1) over some rows at the fraction x of a step."""
    (U, log_n), (U_end, log_end), (dense, dense_growth) = begin, end, polynomials
    whole = g0(link, 1.0)
    out[0] = out[1] = 0.0
    for z in range(rows.size):
        i = rows[z]
        c = number_inside(dense[:, i, p], x, U[i, p], U_end[i, p])
        n = np.exp(number_inside(dense_growth[:, i], x, log_n[i], log_end[i]))
        if c > 0.0 or not sign_matters:
            out[0] = max(out[0], c * c)
        out[1] += n * g0(link, c) / whole


@kernel
def move_inside(i: int, x: float, u: Vector, polynomials: Dense, out: Vector) -> float:
    """Write where row i, at u where a step begins, is at its fraction x; return by how much ln n has changed."""
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
    """Return 1/|u|."""
    square = 0.0
    for k in range(u.size):
        square += u[k] * u[k]
    return float(1.0 / np.sqrt(square))


# Where slowed clusters end a step, once the full field there is known. `lag` is (rest, rest_growth, slots, weights,
# part, part_growth, ahead, ahead_growth): the extrapolated rest of the field is Σ_q weights_q rest[slots_q], `part` the
# partial field at the end of the step, and `ahead`, if it has rows, the error of what distant sources were expected to
# exert there.
Lag = tuple[Cube, Matrix, Integers, Vector, Matrix, Vector, NDArray[Any], Vector]


@kernel
def miss_of_row(i: int, u: Vector, F: Matrix, growth: Vector, lag: Lag, miss: Vector) -> float:
    """Write the tangential error of the extrapolated rest of row i; return the error of its (ln n)'."""
    rest, rest_growth, slots, weights, part, part_growth, ahead, ahead_growth = lag
    D = u.size
    for k in range(D):
        miss[k] = 0.0
    add_rest(i, weights, slots, rest, miss)
    if ahead.shape[0] > 0:
        for k in range(D):
            miss[k] -= ahead[i, k]
    for k in range(D):
        miss[k] = F[i, k] - part[i, k] - miss[k]
    radial = along(u, miss)
    for k in range(D):
        miss[k] -= radial * u[k]
    off: float = growth[i] - part_growth[i] - rest_number(i, weights, slots, rest_growth)
    if ahead.shape[0] > 0:
        off += ahead_growth[i]
    return 4.0 * off


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
    """Write the shift of clusters begin … end − 1 at the end of a step of length h from `start`; see `weigh_shift`.

    `modes` is (rates, shares, drift, direction of the cluster of each row), and `out` (shift, size). `shift` (2, c, D +
    1) takes the shift b of the mean direction and β of mean ln n, then the mean error of the extrapolated rest, of
    which modes that the stages follow get `shares`; `size` (c, 3) |b|, |β| and the largest change of another row's
    velocity by them.
    """
    (rates, shares, drift, cluster), (U, log_n, F, growth), (shift, size) = modes, state, out
    order, pole, first, direction = plan[0][ORDER], plan[0][POLE], plan[1][FIRST], plan[1][DIRECTION]
    D = U.shape[1]
    miss, velocity = np.empty(D), np.empty(D + 1)
    for c in range(begin, end):
        moved, off, members, p = shift[0, c], shift[1, c], order[first[c] : first[c + 1]], direction[c]
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
        for k in range(D + 1):
            mode = 0 if k < D else 1
            off[k] /= total
            moved[k] += np.exp(-max(h * rates[c, mode] - of_clusters.KAPPA, 0.0)) * shares[c, mode] * off[k]
        size[c, 0], size[c, 1] = of_clusters.size_of_shift(moved)
        size[c, 2] = of_clusters.force_on_others(p, plan[2][TEACHER, p], plan[LINK], U, cluster) * max(
            size[c, 0], size[c, 1]
        )


@entry
def shift_clusters(chosen: Integers, share: float, state: Whole, lag: Lag, shift: Cube, plan: Plan) -> None:
    """Move the members of the `chosen` clusters: all by `shift`, each by `share` times the error of its own rest."""
    of_rows, clusters, (U, log_n, F, growth) = plan[0], plan[1], state
    D = U.shape[1]
    miss = np.empty(D)
    for z in range(chosen.size):
        c = chosen[z]
        b, off = shift[0, c], shift[1, c]
        for x in range(clusters[FIRST, c], clusters[FIRST, c + 1]):
            i = of_rows[ORDER, x]
            s, own = of_rows[POLE, i], miss_of_row(i, U[i], F, growth, lag, miss)
            of_clusters.shift_row(s, b[:D], U[i])
            for k in range(D):
                U[i, k] += share * (miss[k] - s * off[k])
            log_n[i] += share * (own - off[D]) + b[D]


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
    """Replace stages 1 and 12 of ln n by its change and by its rate at the end; return h times that of its rate."""
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

    Stage 0 is its slowed velocity at the beginning, a the coefficient of its direction, `share` θ of direction and ln
    n.
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
    """Write what the fast sources exert on those from number `first` on; `overlap` takes a number for each pair."""
    R, S = growth.size, mass.size
    products = matrix(overlap, 0, R, S)
    product(u, sources.T, products)
    for x in range(R):
        # Where g and g' are 0.
        products[x, first + x] = 0.0
    field.weigh(plan[LINK], mass, overlap, 0.0, growth, scratch)
    for x in range(R):
        growth[x] = -growth[x]
    product(products, sources, F)


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
    product(vectors, distant.T, products)
    for x in range(R):
        i = rows[x]
        for j in range(S):
            if decides:
                near[i, j] = abs(products[x, j]) > NEAR_SOURCE
            # Where g and g' are 0.
            if near[i, j]:
                products[x, j] = 0.0
    field.weigh(plan[LINK], mass, overlap, field.SMALLEST_WEIGHT, growth, scratch)
    for x in range(R):
        growth[x] = -growth[x]
    product(products, distant, force)


@kernel
def add_near(link: Vector, i: int, u: Vector, sources: Matrix, mass: Vector, near: Switches, F: Vector) -> float:
    """Add the force of the sources that are near row i; return their part of the growth."""
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
    """Add the forces of the other members of their clusters on rows, and a row's own −n_i g(1), g(1) = `peak`."""
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
    """Add the force of active directions, and of `own`, that of its cluster (−1 for none), on one row.

    Returned are what they add to the growth, and (F·u)/(u·u).
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
def write_difference(v: Vector, w: Vector, factor: float, out: Vector) -> None:
    """Write v − factor · w to another vector; a separate function, so that the loop is vectorised."""
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
    """Write the forces of the fast sources on a block of slow rows; see `partial_rows`."""
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
    state: Whole,
    all_sources: Sources,
    is_rest: bool,
    out: tuple[Matrix, Vector],
    work: tuple[Vector, NDArray[Any]],
    plan: Plan,
) -> None:
    """Write the partial field at one state for blocks first … last − 1, or the field less it.

    `out` takes F and growth. `ahead`, the last but one of the arrays of the sources, has no rows, or its error replaces
    it.
    """
    (U, log_n, field, field_growth), (out_F, out_growth), (numbers, room) = state, out, work
    sources, mass = all_sources[0], all_sources[2]
    D, S = U.shape[1], mass.size
    of_rows, clusters, teacher, link = plan
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
# and between them a polynomial in time: 16 m D S operations for S sources, not 48, and products of more rows
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

    `start` is (U, ln n, F) where the step begins, and `nodes` (times, vectors of the sources, their masses, which are
    near each row); `out` takes forces (K, R, D) and growth (K, R).
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
        # In the precision of the vectors; a Python number would raise it to double.
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

    That is the lagged rest of row i, and what distant sources exert at K nodes on row x of their block. The coefficient
    of power q is Σ_s rest_powers[q, s] rest[slots_s] + Σ_z node_powers[q, z] far[z]: in the rows of `out` and in
    `growth`.
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
    of_rows, teacher, link, D = plan[0], plan[2], plan[LINK], U.shape[1]
    flat = matrix(stages, 0, stages.shape[0], U.size)
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

    `span` is (first stage, last stage, first group, end of groups). A group finds in `path` where all sources are at a
    stage, and leaves there where it is at the next. All arrays but the rest of the field hold sources alone.
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
    """Fill the stages `which` of rows that need nothing of any other within the step: one alone, or a cluster.

    `given` is (U, ln n) where the step begins, and the first three of `AllSources`; `powers` see `write_powers`.
    """
    (U, log_n, sources, mass, near), (stages, growth_stages) = given, all_stages
    (pace, drift), (of_rows, clusters, teacher, link) = slowing, plan
    R, D = rows.size, U.shape[1]
    peak, own, c = g0(link, 1.0), direction_of(rows[0], of_rows, clusters), of_rows[CLUSTER, rows[0]]
    held, held_norm = (1.0 - pace[c, 0], 1.0 - pace[c, 1]) if c >= 0 else (0.0, 0.0)
    lever = 0.25 * g1(link, 1.0) / peak
    pole, places = row_part(of_rows, POLE, 0, of_rows.shape[1]), row_part(of_rows, plans.PLACE, 0, R)
    scratch = vector(work, work.size - SCRATCH, SCRATCH)
    u, F, flat = matrix(work, 0, R, D), matrix(work, R * D, R, D), matrix(stages, 0, stages.shape[0], R * D)
    o = 2 * R * D
    means = vector(work, o, D), vector(work, o + D, D)
    o += 2 * D
    logs, growth = vector(work, o, R), vector(work, o + R, R)
    for s in which:
        for x in range(R):
            i = rows[x]
            add_stages(U[i], flat, s, h, D, u[x], x * D)
            logs[x] = log_n[i] + combine_number(growth_stages, x, DOP853_WEIGHTS[s, :s], h)
            write_value(powers[0][x], DOP853_C[s], F[x])
            growth[x] = add_near(link, i, u[x], sources[s], mass[s], near, F[x])
        add_clusters(rows, u, logs, F, growth, of_rows, clusters, link, peak)
        for x in range(R):
            total, radial = add_teacher(link, u[x], own, teacher, F[x], scratch)
            growth_stages[s, x] = 4.0 * (growth[x] + total + power_number(powers[1][x], DOP853_C[s]))
            write_difference(F[x], u[x], radial, stages[s, x])
        if held > 0.0 or held_norm > 0.0:
            velocity = stages[s], growth_stages[s]
            of_clusters.slow_cluster(held, held_norm, lever, places, rows, pole, (u, logs), velocity, drift[c], means)


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
    There are no nodes if there are no sources. The rest of the field at the fraction x of the step is Σ_qs x^q
    powers[q, s] rest[slots_s].
    """
    (first_block, last_block, cuts), (again, has_dense, h), (work, room) = blocks, how, all_work
    sources, mass, near, times, nodes, node_mass, node_powers, ahead, ahead_growth = all_sources
    state, given = (start[0], start[1]), (start[0], start[1], sources, mass, near)
    of_rows, clusters, teacher, link = plan
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
            if R == 1 and c >= 0 and ends[LEADING][i] < 0 and not near[i].any():
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
    state: Whole,
    lag: Lag,
    settled: tuple[Matrix, Vector],
    miss: Matrix,
) -> None:
    """Compare the rest of the field at the end of a step with its extrapolation; write the corrected state.

    On return `part` and `part_growth` of the lag hold the rest. `settled` takes (U, ln n), and `miss` (m, 2) the
    largest component of the extrapolation's error and that of the growth. Rows outside clusters move by `share` and
    `share_ahead` times these two errors.
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


# The kernels below change the field where K neurons have moved, by 10 K m D operations, not 3 m² D. The state (U, n, F,
# growth) has masses n, not their logarithms.

# Rows that are multiplied with the moved ones together: products of other shapes round differently.
PULLED_BLOCK = 128

Pulls = tuple[Cube, Matrix]


@entry
def pull_rows(
    begin: int, end: int, link: Vector, state: Whole, place: Integers, both: tuple[Matrix, Vector], pulls: Pulls
) -> None:
    """Add what has changed by K rows that moved to the field of rows begin … end − 1; write what these exert on them.

    `both` is (vectors, mass): where the moved rows are, then where they were (2 K, D), and the masses, those of before
    negative. `place` (m,) says which of the K rows each row is, −1 for none. The force of block b of rows on the moved
    ones goes to forces[b] and growths[b] of `pulls`, of shape (K, D) and (K,).
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
    """Write the whole field of the rows that moved: the forces of each block of rows on them, and the teacher."""
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
