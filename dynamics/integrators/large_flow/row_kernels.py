"""Compiled passes over rows of the large-flow solver: sums of stages, errors, dense output, events, ends of clusters.

`link` is the data of g, and a state is (U, ln n). The dense output is its coefficients for vectors, (7, m, D), and for
ln n, (7, m).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynamics.equations.link import g0, g1, write_g2
from dynamics.equations.vectors import write_events
from dynamics.integrators.explicit_kernels import DOP853_COUNTS, DOP853_DENSE_ERROR, DOP853_PLACES, DOP853_WEIGHTS
from dynamics.integrators.large_flow.division import (
    DIRECTION,
    FIRST,
    ORDER,
    POLE,
    TEACHER,
    Plan,
    add_rest,
    along,
    rest_number,
)
from dynamics.kernels.jit import entry, kernel, pasted_kernel, vector
from hermite.arrays import Cube, Integers, Matrix, Vector

END = 12  # row of the tableau that gives the step, and the stage at its end
ERRORS = 16  # rows of the tableau with the two error estimates

# A state is (U, ln n); stages, and the coefficients of the dense output, are those of vectors and of ln n.
State = tuple[Matrix, Vector]
Stages = tuple[Cube, Matrix]
Dense = tuple[Cube, Matrix]
# Where rows end: U, ln n, their errors and those of the dense output, the tolerances, and what each row leads.
Ends = tuple[Matrix, Vector, Vector, Vector, Vector, Integers]
LEADING = 5


@kernel
def combine(base: Vector, stages: Cube, x: int, row: int, h: float, out: Vector) -> None:
    """Set out = base + h Σ_s w_s k_s for one neuron, with a row of the tableau: its stages are read from level 2."""
    places, count = DOP853_PLACES[row], DOP853_COUNTS[row]
    for k in range(out.size):
        out[k] = base[k]
    # Four stages at a time, so that `out` is read and written a quarter as often; where fewer are left, the first of
    # them takes the place of those missing, with weight 0.
    for j in range(0, count, 4):
        a = places[j]
        b = places[j + 1] if j + 1 < count else a
        c = places[j + 2] if j + 2 < count else a
        d = places[j + 3] if j + 3 < count else a
        w_a = h * DOP853_WEIGHTS[row, a]
        w_b = h * DOP853_WEIGHTS[row, b] if b != a else 0.0
        w_c = h * DOP853_WEIGHTS[row, c] if c != a else 0.0
        w_d = h * DOP853_WEIGHTS[row, d] if d != a else 0.0
        k_a, k_b, k_c, k_d = stages[a, x], stages[b, x], stages[c, x], stages[d, x]
        for k in range(out.size):
            out[k] += (w_a * k_a[k] + w_b * k_b[k]) + (w_c * k_c[k] + w_d * k_d[k])


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
    """Return the error of one row in units of the tolerance: root mean square over its D + 1 numbers, or its overlap p.

    The direction that a neuron is about to learn is one number among many, but decides when it escapes.
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
    """Write where a step takes row i, whose stages are those of row x of `all_stages`, and its dense output.

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
        write_cubic(i, x, h, rise, growth_rise, all_stages, polynomials)
        for q in range(4):
            combine(zero, stages, x, 18 + q, h, dense[3 + q, i])
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
def curvatures(link: Vector, U: Matrix, cluster: Integers, out: Vector) -> None:
    """Write |g''| at the largest |C_ip| of every direction over the rows that are not in its cluster."""
    largest = np.zeros(out.size)
    for i in range(U.shape[0]):
        own = cluster[i]
        for p in range(out.size):
            if p != own:
                largest[p] = max(largest[p], abs(U[i, p]))
    write_g2(link, largest, out)
    for p in range(out.size):
        out[p] = abs(out[p])


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


# Where slowed clusters end a step, once the full field there is known. A state is (U, ln n, F, growth) where the stages
# end. `lag` is (rest, rest_growth, slots, weights, part, part_growth, ahead, ahead_growth): the extrapolated rest of
# the field is Σ_q weights_q rest[slots_q], `part` the partial field at the end of the step, and `ahead`, if it has
# rows, the error of what distant sources were expected to exert there.
Moving = tuple[Matrix, Vector, Matrix, Vector]
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
    modes: tuple[Matrix, Matrix, Matrix, Matrix],
    start: tuple[Matrix, Vector],
    state: Moving,
    lag: Lag,
    out: tuple[Vector, Cube, Matrix],
    plan: Plan,
) -> None:
    """Write the shift of clusters begin … end − 1 at the end of a step of length h from `start`, (U, ln n).

    `modes` is (rates, follows, shares, drift), `drift` (c, D + 1) being the velocity over the last step, and `out` is
    (curvature, shift, size). `shift` (2, c, D + 1) takes the shift b of the mean direction and β of mean ln n, then the
    mean error of the extrapolated rest. `size` (c, 3) takes |b|, |β| and the largest change of another row's velocity
    by them, a |g''(C)| max(|b|, |β|); `curvature` holds |g''(C)|.

    The mean x relaxes as x' = λ (M − x), so its velocity v at the end says how far M is. With Δ its move in this step,
    w its velocity over the last and ρ = h/(h + h_last), the quadratic through three ends of steps moves by
    (1 + ρ) Δ/h − ρ w there, and v − λ b = (1 + ρ)(Δ + b)/h − ρ w gives b: BDF of order 2 for this mode. To the share
    1 − `follows` the mode has been followed by the stages themselves, and gets `shares` times the error of the rest.
    """
    of_rows, clusters, teacher = plan[0], plan[1], plan[2]
    (rates, follows, shares, drift), (U_begin, log_begin), (U, log_n, F, growth) = modes, start, state
    curvature, shift, size = out
    D = U.shape[1]
    velocity, miss = np.empty(D + 1), np.empty(D)
    for c in range(begin, end):
        moved, off = shift[0, c], shift[1, c]
        rho = 0.0
        for k in range(D + 1):
            # The drift of a cluster whose members have just changed is unknown, and 0.
            if drift[c, k] != 0.0:
                rho = ratio
        for k in range(D + 1):
            moved[k] = -rho * drift[c, k]
            off[k] = velocity[k] = 0.0
        forward = (1.0 + rho) / h
        total = 0.0
        for x in range(clusters[FIRST, c], clusters[FIRST, c + 1]):
            total += np.exp(log_n[of_rows[ORDER, x]])
        for x in range(clusters[FIRST, c], clusters[FIRST, c + 1]):
            i = of_rows[ORDER, x]
            share = np.exp(log_n[i]) / total
            w = share * of_rows[POLE, i]
            off[D] += share * miss_of_row(i, U[i], F, growth, lag, miss)
            velocity[D] += share * 4.0 * growth[i]
            moved[D] += share * forward * (log_n[i] - log_begin[i])
            radial = along(U[i], F[i])
            for k in range(D):
                off[k] += w * miss[k]
                velocity[k] += w * (F[i, k] - radial * U[i, k])
                moved[k] += w * forward * (U[i, k] - U_begin[i, k])
        square = 0.0
        for k in range(D + 1):
            mode = 0 if k < D else 1
            followed = follows[c, mode] * (velocity[k] - moved[k]) / (rates[c, mode] + forward)
            moved[k] = followed + (1.0 - follows[c, mode]) * shares[c, mode] * off[k]
            if k < D:
                square += moved[k] * moved[k]
        size[c, 0], size[c, 1] = np.sqrt(square), abs(moved[D])
        p = clusters[DIRECTION, c]
        size[c, 2] = teacher[TEACHER, p] * curvature[p] * max(size[c, 0], size[c, 1])


@entry
def shift_clusters(chosen: Integers, share: float, state: Moving, lag: Lag, shift: Cube, plan: Plan) -> None:
    """Move the members of the `chosen` clusters: all by the shift, each by its own lag besides.

    `shift` is what `weigh_shifts` wrote; the rest of a member differs from that of the mean like a row's outside
    clusters, which moves by `share` times its error.
    """
    of_rows, clusters, (U, log_n, F, growth) = plan[0], plan[1], state
    D = U.shape[1]
    miss = np.empty(D)
    for z in range(chosen.size):
        c = chosen[z]
        b, off = shift[0, c], shift[1, c]
        for x in range(clusters[FIRST, c], clusters[FIRST, c + 1]):
            i = of_rows[ORDER, x]
            s = of_rows[POLE, i]
            own, radial = miss_of_row(i, U[i], F, growth, lag, miss), along(U[i], b[:D])
            for k in range(D):
                U[i, k] += share * (miss[k] - s * off[k]) + s * (b[k] - radial * U[i, k])
            log_n[i] += share * (own - off[D]) + b[D]
