"""Stiff stepper: backward differentiation of order 1 to 5 with variable step, without matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators.bdf.newton_kernels import NOISE_WEIGHT, PRECONDITIONER_AGE, solve_step
from dynamics.integrators.bdf.nordsieck_kernels import BIAS_SAME, add_scaled, choose_next, predict, shift, weighted_norm
from dynamics.integrators.saving_kernels import saving_steps
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
    AGE,
    CONSTANT,
    EVALUATIONS,
    FAILED_ITERATIONS,
    FAILURES,
    FIXED_ORDER,
    FIXED_STEP,
    GROWTH,
    LARGEST_STEP,
    MAX_ORDER,
    NEXT_ORDER,
    ORDER,
    PAST_STEPS,
    PENDING,
    POLYNOMIAL,
    RATE,
    READY,
    REJECTED,
    ROW_CORRECTION,
    ROW_NOISE,
    ROW_NORDSIECK,
    ROW_SLOPE,
    ROW_START,
    ROW_STATE,
    ROW_WEIGHT,
    RTOL,
    SCALE,
    STEP,
    TIME,
    TIME_START,
    UNRESOLVED,
    WAIT,
)
from dynamics.integrators.system_calls import System, normalise, rhs
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import entry, kernel, pasted_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.integrators.saving_kernels import Arrays

# Failures and accepted steps in a row that end a run whose steps are below the resolution of the time. Escapes take up
# to some thousand steps; those of a solution that is infinite at a finite time never end.
MOST_FAILURES, MOST_UNRESOLVED = 50, 50_000


@kernel
def accept(h: float, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Correct the history, put the state back on its constraints, and renew the error weights' base."""
    q = counters[ORDER]
    for j in range(q + 1):
        add_scaled(vectors[ROW_NORDSIECK + j], vectors[ROW_CORRECTION], scalars[POLYNOMIAL + j])
    normalise(vectors[ROW_NORDSIECK], system)
    copy_row(vectors[ROW_START], vectors[ROW_STATE])
    copy_row(vectors[ROW_STATE], vectors[ROW_NORDSIECK])
    for i in range(MAX_ORDER + 1, 1, -1):
        scalars[PAST_STEPS + i] = scalars[PAST_STEPS + i - 1]
    scalars[PAST_STEPS + 1] = h
    if counters[ACCEPTED] == 0:
        for i in range(2, MAX_ORDER + 2):
            scalars[PAST_STEPS + i] = h
    counters[ACCEPTED] += 1
    counters[WAIT] -= 1


@kernel
def reject(vectors: Matrix, scalars: Vector, counters: Integers, error: float) -> None:
    """Restore the history and shorten the step; after three failures lower the order too.

    An `error` that is not finite stands for a nonlinear iteration that did not converge.
    """
    q = counters[ORDER]
    shift(vectors, q, -1.0)
    counters[REJECTED] += 1
    counters[FAILURES] += 1
    factor = 0.25
    if error < np.inf:
        factor = max(0.1, min(0.9, 1.0 / ((BIAS_SAME * error) ** (1.0 / (q + 1)) + 1e-6)))
        if counters[FAILURES] > 1:
            factor = min(factor, 0.2)
        if counters[FAILURES] > 3 and q > 1 and counters[FIXED_ORDER] == 0:
            counters[NEXT_ORDER] = q - 1
    else:
        counters[FAILED_ITERATIONS] += 1
        counters[AGE] = PRECONDITIONER_AGE
    scalars[STEP] = scalars[SCALE] * factor
    scalars[GROWTH] = 1.0


@kernel
def pass_time(h: float, scalars: Vector, counters: Integers) -> None:
    """Move the time on by an accepted step.

    Steps below the resolution of the time are collected until their sum is not: after a wait of 1e13 a neuron escapes
    within a time of order 1.
    """
    scalars[TIME_START] = scalars[TIME]
    scalars[PENDING] += h
    counters[UNRESOLVED] += 1
    if scalars[PENDING] > SMALLEST_STEP * abs(scalars[TIME]):
        scalars[TIME] += scalars[PENDING]
        scalars[PENDING] = 0.0
        counters[UNRESOLVED] = 0


@kernel
def begin(vectors: Matrix, scalars: Vector, counters: Integers, atol: Vector, system: System) -> bool:
    """Start at order 1 with z = (y, h y') and a step that changes the state little; return whether y' is finite."""
    y, f, weight = vectors[ROW_STATE], vectors[ROW_SLOPE], vectors[ROW_WEIGHT]
    rhs(scalars[TIME], y, f, system)
    counters[EVALUATIONS] += 1
    for i in range(y.size):
        weight[i] = 1.0 / (atol[i] + scalars[RTOL] * abs(y[i]))
    speed = weighted_norm(f, weight)
    if not speed < np.inf:
        return False
    size = weighted_norm(y, weight)
    # The first step is of first order: its error is about half the square of the relative change.
    h = np.sqrt(size) / speed if speed > 1e-5 and size > 1e-5 else 1e-6
    h = min(h, scalars[LARGEST_STEP])
    if scalars[FIXED_STEP] > 0.0:
        h = scalars[FIXED_STEP]
    for i in range(y.size):
        vectors[ROW_START, i] = y[i]
        vectors[ROW_NORDSIECK, i] = y[i]
        vectors[ROW_NORDSIECK + 1, i] = h * f[i]
    scalars[SCALE], scalars[STEP], scalars[GROWTH], scalars[RATE] = h, h, 1e4, 1.0
    counters[ORDER], counters[NEXT_ORDER], counters[WAIT], counters[AGE] = 1, 1, 2, PRECONDITIONER_AGE
    counters[READY] = 1
    return True


@pasted_kernel
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
    """Take steps until the time reaches `target`, an event is passed, `max_steps` were tried, or none succeeds."""
    y = vectors[ROW_STATE]
    t, fixed = scalars[TIME], scalars[FIXED_STEP]
    if counters[READY] == 0:
        if not begin(vectors, scalars, counters, atol, system):
            return STATUS_NOT_FINITE
        if events_passed(t, y, events, system):
            return STATUS_EVENT
    status = STATUS_REACHED
    tried = 0
    while t < target and status == STATUS_REACHED:
        if tried >= max_steps:
            return STATUS_MAX_STEPS
        tried += 1
        h = fixed if fixed > 0.0 else min(scalars[STEP], scalars[LARGEST_STEP])
        for i in range(y.size):
            noise = NOISE_WEIGHT * h * vectors[ROW_NOISE, i]
            vectors[ROW_WEIGHT, i] = 1.0 / (atol[i] + scalars[RTOL] * abs(y[i]) + noise)
        predict(vectors, scalars, counters, h)
        error = np.inf
        if solve_step(t + h, h, vectors, scalars, counters, system):
            error = weighted_norm(vectors[ROW_CORRECTION], vectors[ROW_WEIGHT]) * scalars[CONSTANT]
        if error <= 1.0 or (fixed > 0.0 and error < np.inf):
            accept(h, vectors, scalars, counters, system)
            pass_time(h, scalars, counters)
            t = scalars[TIME]
            if counters[UNRESOLVED] >= MOST_UNRESOLVED:
                status = STATUS_STEP_TOO_SMALL
            choose_next(vectors, scalars, counters, error)
            counters[FAILURES] = 0
            if events_passed(t, y, events, system):
                status = STATUS_EVENT
        else:
            finite = bool(np.isfinite(weighted_norm(vectors[ROW_SLOPE], vectors[ROW_WEIGHT])))
            reject(vectors, scalars, counters, error)
            unresolved = scalars[STEP] <= SMALLEST_STEP * abs(t) and counters[FAILURES] >= MOST_FAILURES
            if fixed > 0.0 or unresolved or scalars[STEP] <= SMALLEST_STEP_AT_ZERO:
                status = STATUS_STEP_TOO_SMALL if finite else STATUS_NOT_FINITE
    return status


@kernel
def interpolate(t: float, out: Vector, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Write the state at a time strictly within the last step: Σ_j z_j ((t − t_n)/h)^j."""
    # The time may have moved by several short steps at once, of which this is the last.
    x = max((t - scalars[TIME]) / scalars[SCALE], -1.0)
    q = counters[ORDER]
    for i in range(out.size):
        value = vectors[ROW_NORDSIECK + q, i]
        for j in range(q - 1, -1, -1):
            value = vectors[ROW_NORDSIECK + j, i] + value * x
        out[i] = value
    normalise(out, system)


save_through = saving_steps(advance, interpolate)


@entry
def advance_through(
    targets: Vector,
    max_steps: int,
    states: Matrix,
    arrays: Arrays,
    rhs: Callable[..., None],
    event_values: Callable[..., None],
    normalise: Callable[..., None],
    jacobian_diagonal: Callable[..., None],
    jacobian_product: Callable[..., None],
) -> int:
    """Advance to the last of some increasing times, writing the state at each; return status and number of these."""
    system = (arrays[5], arrays[6], arrays[7], rhs, event_values, normalise, jacobian_diagonal, jacobian_product)
    return save_through(targets, max_steps, states, arrays, system)
