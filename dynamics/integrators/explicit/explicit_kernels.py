"""Explicit stepper: Dormand-Prince of order 8(5,3).

Executed after `shared_kernels`, `dop853_tableau` and `stage_sum_kernels`.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, sections II.4
(step control), II.5 (the pair) and II.6 (dense output).
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import entry, kernel

if TYPE_CHECKING:
    from dynamics.integrators.explicit.dop853_tableau import *
    from dynamics.integrators.explicit.stage_sum_kernels import *
    from dynamics.integrators.shared_kernels import *
    from dynamics.integrators.slots import *
    from dynamics.integrators.system_calls import *

# Rows of DOP853_WEIGHTS.
WEIGHTS_ERROR_5 = 16

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


@entry("i8(f8, i8, f8[:, ::1], f8[::1], i8[::1], f8[::1], f8[:, ::1], Tuple((i8[::1], f8[::1], i8[::1], f8[::1])))")
def advance(
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
