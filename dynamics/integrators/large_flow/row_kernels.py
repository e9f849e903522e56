"""Compiled sums of the stages of one neuron in the large-flow solver, the error of its step, and its dense output."""

from __future__ import annotations

import numpy as np

from dynamics.integrators.explicit_kernels import (
    DOP853_COUNTS,
    DOP853_DENSE_ERROR,
    DOP853_PLACES,
    DOP853_WEIGHTS,
)
from dynamics.kernels.arrays import Cube, Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import vector

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
    total = q5 + 0.01 * q3
    if not total < np.inf:
        return np.inf
    error = abs(h) * q5 / np.sqrt(total * (D + 1.0)) if total > 0.0 else 0.0
    if p >= 0:
        scale = 1.0 / (atol + rtol * max(abs(y[p]), abs(new[p])))
        q5 = (e5[p] * scale) ** 2
        total = q5 + 0.01 * (e3[p] * scale) ** 2
        if total > 0.0:
            error = max(error, abs(h) * q5 / np.sqrt(total))
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
def write_dense(
    i: int, x: int, h: float, rise: Vector, growth_rise: float, all_stages: Stages, zero: Vector, polynomials: Dense
) -> None:
    """Write the seven coefficients of the dense output of one row, given how far the step took it."""
    (stages, growth_stages), (dense, dense_growth) = all_stages, polynomials
    write_cubic(i, x, h, rise, growth_rise, all_stages, polynomials)
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
        write_dense(i, x, h, rise, growth_rise, all_stages, zero, polynomials)
        error_within[i] = dense_error(i, polynomials[0], polynomials[1]) / tolerance[1]
