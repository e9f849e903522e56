"""Explicit stepper: Dormand-Prince of order 8(5,3).

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, sections II.4
(step control), II.5 (the pair) and II.6 (dense output).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators.explicit.dop853_tableau import DOP853_C
from dynamics.integrators.explicit.stage_sum_kernels import add_stages, largest_ratio
from dynamics.integrators.shared_kernels import (
    SMALLEST_STEP,
    SMALLEST_STEP_AT_ZERO,
    STATUS_EVENT,
    STATUS_MAX_STEPS,
    STATUS_NOT_FINITE,
    STATUS_REACHED,
    STATUS_STEP_TOO_SMALL,
    copy_row,
    events_passed,
)
from dynamics.integrators.slots import (
    ACCEPTED,
    DENSE_READY,
    EVALUATIONS,
    FAILURES,
    FIXED_STEP,
    LARGEST_STEP,
    READY,
    REJECTED,
    ROW_DENSE,
    ROW_END,
    ROW_NEW,
    ROW_STAGES,
    ROW_START,
    ROW_STATE,
    ROW_TRIAL,
    ROW_ZERO,
    RTOL,
    STABILITY_LIMITED,
    STEP,
    TIME,
    TIME_START,
)
from dynamics.integrators.system_calls import System, is_given_up, normalise, rhs
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import entry, kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.integrators.saving_kernels import Arrays

# Rows of DOP853_WEIGHTS.
WEIGHTS_ERROR_5, WEIGHTS_DENSE = 16, 18

SAFETY, SMALLEST_FACTOR, LARGEST_FACTOR, NOT_FINITE_FACTOR = 0.9, 1.0 / 3.0, 6.0, 0.2
# The estimate is multiplied by this: where stability limits the step it misses most of the error of the stiff modes
# (without it, errors of 400 times the tolerance were measured), and at order 8 the caution costs a fifth more steps.
CAUTION = 20.0
# |h λ| on the negative real axis above which the step counts as limited by stability (DOP853, NSTIFF test).
STABILITY_BOUND = 6.1


@kernel
def attempt(t: float, h: float, vectors: Matrix, atol: Vector, rtol: float, system: System) -> float:
    """Compute the state at t + h into ROW_NEW and return the error in units of the tolerance.

    The first stage is in place already.  The estimate |e_5|² / √(|e_5|² + 0.01 |e_3|²) combines both embedded
    formulas in the largest-component norm.
    """
    y, new, error = vectors[ROW_STATE], vectors[ROW_NEW], vectors[ROW_END]
    stages = vectors[ROW_STAGES:ROW_DENSE]
    for s in range(1, 13):
        # The twelfth sum is the step itself; ROW_NEW follows ROW_TRIAL.
        add_stages(y, stages, s, h, y.size, vectors[ROW_TRIAL + s // 12])
        if s < 12:
            rhs(t + DOP853_C[s] * h, vectors[ROW_TRIAL], vectors[ROW_STAGES + s], system)
            if is_given_up(system):
                return np.inf
    five = three = 0.0
    for row in range(WEIGHTS_ERROR_5, WEIGHTS_ERROR_5 + 2):
        # The row of the derivative at the end is free until the step is accepted.
        add_stages(vectors[ROW_ZERO], stages, row, h, y.size, error)
        five = three
        three = CAUTION * largest_ratio(error, y, new, atol, rtol, y.size)
    # Far below, the squares are zero and their ratio is not a number.
    if five < 1e-100 or not five + three < np.inf:
        return five + three
    return float(five * five / np.sqrt(five * five + 0.01 * three * three))


@kernel
def stability_product(vectors: Matrix, h: float) -> float:
    """Return h |f(y_1) − f(Y_12)| / |y_1 − Y_12|, an estimate of |h λ|; infinity if f(y_1) is not finite."""
    change = distance = 0.0
    for i in range(vectors.shape[1]):
        change += (vectors[ROW_END, i] - vectors[ROW_STAGES + 11, i]) ** 2
        distance += (vectors[ROW_NEW, i] - vectors[ROW_TRIAL, i]) ** 2
    if not change < np.inf:
        return np.inf
    return float(h * np.sqrt(change / distance)) if distance > 0.0 else 0.0


@kernel
def take_steps(
    target: float,
    max_steps: int,
    vectors: Matrix,
    scalars: Vector,
    counters: Integers,
    atol: Vector,
    events: Matrix,
    system: System,
) -> int:
    """Take steps until the time reaches `target`, an event is passed, `max_steps` were tried, or none succeeds.

    The derivative at the end of a step is taken after the state is back on its constraints, so that it serves as
    the first stage of the next step.
    """
    y, new, end = vectors[ROW_STATE], vectors[ROW_NEW], vectors[ROW_END]
    t, rtol, fixed = scalars[TIME], scalars[RTOL], scalars[FIXED_STEP]
    if counters[READY] == 0:
        rhs(t, y, end, system)
        counters[EVALUATIONS] += 1
        speed = largest_ratio(end, y, y, atol, rtol, y.size)
        if not speed < np.inf:
            return STATUS_NOT_FINITE
        copy_row(vectors[ROW_START], y)
        # A step that changes the state by a hundredth; the growth factor corrects a careful guess in a few steps.
        size = largest_ratio(y, y, y, atol, rtol, y.size)
        scalars[STEP] = 0.01 * size / speed if size > 1e-5 and speed > 1e-5 else 1e-6
        counters[READY] = 1
        if events_passed(t, y, events, system):
            return STATUS_EVENT
    status = STATUS_REACHED
    tried = 0
    while t < target and status == STATUS_REACHED:
        if tried >= max_steps:
            return STATUS_MAX_STEPS
        tried += 1
        h = fixed if fixed > 0.0 else min(scalars[STEP], scalars[LARGEST_STEP])
        if counters[FAILURES] == 0:
            copy_row(vectors[ROW_STAGES], end)
        error = attempt(t, h, vectors, atol, rtol, system)
        counters[EVALUATIONS] += 11
        product = np.inf
        if error <= 1.0 or (fixed > 0.0 and error < np.inf):
            normalise(new, system)
            rhs(t + h, new, end, system)
            counters[EVALUATIONS] += 1
            product = stability_product(vectors, h)
        factor = NOT_FINITE_FACTOR
        if error < np.inf:
            factor = min(LARGEST_FACTOR, max(SMALLEST_FACTOR, SAFETY * (error + 1e-300) ** -0.125))
        if product < np.inf:
            copy_row(vectors[ROW_START], y)
            copy_row(y, new)
            scalars[TIME_START], scalars[TIME] = t, t + h
            t += h
            scalars[STEP] = h * (factor if counters[FAILURES] == 0 else min(factor, 1.0))
            counters[FAILURES] = 0
            counters[DENSE_READY] = 0
            counters[ACCEPTED] += 1
            counters[STABILITY_LIMITED] += 1 if product > STABILITY_BOUND else 0
            if events_passed(t, y, events, system):
                status = STATUS_EVENT
        else:
            counters[FAILURES] += 1
            counters[REJECTED] += 1
            scalars[STEP] = h * min(factor, NOT_FINITE_FACTOR if error <= 1.0 else 1.0)
            if fixed > 0.0 or scalars[STEP] <= SMALLEST_STEP * abs(t) + SMALLEST_STEP_AT_ZERO:
                status = STATUS_STEP_TOO_SMALL if 1.0 < error < np.inf else STATUS_NOT_FINITE
    return status


@entry
def advance(
    target: float,
    max_steps: int,
    arrays: Arrays,
    rhs: Callable[..., None],
    event_values: Callable[..., None],
    normalise: Callable[..., None],
) -> int:
    """Take steps as `take_steps` does; return its status."""
    vectors, scalars, counters, atol, events = arrays[:5]
    system = (arrays[5], arrays[6], arrays[7], rhs, event_values, normalise)
    return take_steps(target, max_steps, vectors, scalars, counters, atol, events, system)


@kernel
def prepare_dense(vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Compute the coefficients of the dense output of the last step, with three more evaluations."""
    t, start, trial = scalars[TIME_START], vectors[ROW_START], vectors[ROW_TRIAL]
    stages, dense, h = vectors[ROW_STAGES:ROW_DENSE], vectors[ROW_DENSE:ROW_ZERO], scalars[TIME] - t
    for s in range(13, 16):
        add_stages(start, stages, s, h, start.size, trial)
        rhs(t + DOP853_C[s] * h, trial, stages[s], system)
    for i in range(start.size):
        change = vectors[ROW_STATE, i] - start[i]
        dense[0, i] = change
        dense[1, i] = h * stages[0, i] - change
        dense[2, i] = 2.0 * change - h * (stages[12, i] + stages[0, i])
    for row in range(3, 7):
        add_stages(vectors[ROW_ZERO], stages, WEIGHTS_DENSE + row - 3, h, start.size, dense[row])
    counters[DENSE_READY] = 1
    counters[EVALUATIONS] += 3


@kernel
def write_inside(t: float, out: Vector, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Write the state at a time strictly within the last step.

    With Δ = y_1 − y_0 it is y_0 + x (Δ + (1−x)(b_1 + x (b_2 + (1−x)(b_3 + …)))), x = (t − t_0)/h.
    """
    if counters[DENSE_READY] == 0:
        prepare_dense(vectors, scalars, counters, system)
    x = (t - scalars[TIME_START]) / (scalars[TIME] - scalars[TIME_START])
    for i in range(out.size):
        value = vectors[ROW_DENSE + 6, i]
        for row in range(5, -1, -1):
            value = value * (x if row % 2 == 1 else 1.0 - x) + vectors[ROW_DENSE + row, i]
        out[i] = value * x + vectors[ROW_START, i]
    normalise(out, system)


@entry
def interpolate(
    t: float,
    out: Vector,
    arrays: Arrays,
    rhs: Callable[..., None],
    event_values: Callable[..., None],
    normalise: Callable[..., None],
) -> None:
    """Write the state at a time strictly within the last step."""
    vectors, scalars, counters = arrays[:3]
    write_inside(t, out, vectors, scalars, counters, (arrays[5], arrays[6], arrays[7], rhs, event_values, normalise))
