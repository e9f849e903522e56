"""Stiff stepper: backward differentiation of order 1 to 5 with variable step, without matrices.

Responsible for: one step, its nonlinear equation, and the polynomial inside it.  Must not know the system, which it
reaches through `system_calls`.  Executed after `nordsieck_kernels`.

References
----------
P. N. Brown and A. C. Hindmarsh, Reduced storage matrix methods in stiff ODE systems, J. Appl. Math. Comput. 31 (1989)
40: inexact Newton iteration with GMRES, and its tolerances.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compilation import entry, kernel

if TYPE_CHECKING:
    from dynamics.integrators.krylov_kernels import (
        MAX_KRYLOV,
        ROW_DIAGONAL,
        ROW_RESIDUAL,
        ROW_SLOPE,
        ROW_SOLUTION,
        ROW_WEIGHT,
        set_filter,
        solve_linear,
        weighted_norm,
    )
    from dynamics.integrators.nordsieck_kernels import (
        AGE,
        BIAS_SAME,
        CONSTANT,
        DIAGONALS,
        FAILED_ITERATIONS,
        FIXED_ORDER,
        GROWTH,
        HESSENBERG,
        ITERATIONS,
        MAX_ORDER,
        NEXT_ORDER,
        ORDER,
        PAST_STEPS,
        POLYNOMIAL,
        PRODUCTS,
        RATE,
        ROW_CORRECTION,
        ROW_NORDSIECK,
        SCALE,
        WAIT,
        add_scaled,
        choose_next,
        predict,
        shift,
    )
    from dynamics.integrators.shared_kernels import (
        ACCEPTED,
        EVALUATIONS,
        FAILURES,
        FIXED_STEP,
        LARGEST_STEP,
        READY,
        REJECTED,
        ROW_START,
        ROW_STATE,
        ROW_TRIAL,
        RTOL,
        SMALLEST_STEP,
        SMALLEST_STEP_AT_ZERO,
        STATUS_EVENT,
        STATUS_MAX_STEPS,
        STATUS_NOT_FINITE,
        STATUS_REACHED,
        STATUS_STEP_TOO_SMALL,
        STEP,
        TIME,
        TIME_START,
        copy_row,
        events_passed,
    )
    from dynamics.integrators.system_calls import (
        FloatMatrix,
        FloatVector,
        IntVector,
        System,
        jacobian_diagonal,
        normalise,
        rhs,
    )

# Bounds of the nonlinear iteration, as in CVODE.
MAX_ITERATIONS, NONLINEAR_FACTOR, LINEAR_FACTOR, DIVERGENCE = 4, 0.1, 0.05, 2.0
# Steps after which the preconditioner is made anew.
PRECONDITIONER_AGE = 10
# Smallest relative length of a difference of the right-hand side, well above rounding.
SMALLEST_DIFFERENCE = 1e-9


@kernel
def solve_step(
    t: float,
    h: float,
    vectors: FloatMatrix,
    scalars: FloatVector,
    counters: IntVector,
    system: System,
) -> bool:
    """Solve y = y_p + e, e = γ f(y) − z_1/l_1 by inexact Newton iteration; return whether it converged."""
    n = vectors.shape[1]
    y, e, f = vectors[ROW_TRIAL], vectors[ROW_CORRECTION], vectors[ROW_SLOPE]
    weight, step, residual = vectors[ROW_WEIGHT], vectors[ROW_SOLUTION], vectors[ROW_RESIDUAL]
    inverse = 1.0 / scalars[POLYNOMIAL + 1]
    gamma = h * inverse
    goal = NONLINEAR_FACTOR / scalars[CONSTANT]
    hessenberg = scalars[HESSENBERG:].reshape(MAX_KRYLOV + 1, MAX_KRYLOV + 3)
    for i in range(n):
        e[i] = 0.0
        y[i] = vectors[ROW_NORDSIECK, i]
    if counters[AGE] >= PRECONDITIONER_AGE:
        jacobian_diagonal(t, y, vectors[ROW_DIAGONAL], system)
        counters[DIAGONALS] += 1
        counters[AGE] = 0
        scalars[RATE] = 1.0
    counters[AGE] += 1
    set_filter(vectors, gamma)
    reach = max(1.0, SMALLEST_DIFFERENCE / scalars[RTOL])
    previous = 0.0
    for iteration in range(MAX_ITERATIONS):
        rhs(t, y, f, system)
        counters[EVALUATIONS] += 1
        counters[ITERATIONS] += 1
        for i in range(n):
            residual[i] = gamma * f[i] - inverse * vectors[ROW_NORDSIECK + 1, i] - e[i]
        products = solve_linear(t, y, gamma, LINEAR_FACTOR * goal, reach, vectors, hessenberg, system)
        counters[PRODUCTS] += products
        counters[EVALUATIONS] += products
        size = weighted_norm(step, weight)
        for i in range(n):
            e[i] += step[i]
            y[i] = vectors[ROW_NORDSIECK, i] + e[i]
        if iteration > 0:
            scalars[RATE] = max(0.3 * scalars[RATE], size / previous)
        if size * min(1.0, scalars[RATE]) <= goal:
            return True
        if not size < np.inf or (iteration > 0 and size > DIVERGENCE * previous):
            return False
        previous = size
    return False


@kernel
def accept(
    h: float,
    vectors: FloatMatrix,
    scalars: FloatVector,
    counters: IntVector,
    system: System,
) -> None:
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
def reject(vectors: FloatMatrix, scalars: FloatVector, counters: IntVector, error: float) -> None:
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
def begin(
    vectors: FloatMatrix,
    scalars: FloatVector,
    counters: IntVector,
    atol: FloatVector,
    system: System,
) -> bool:
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


@entry("i8(f8, i8, f8[:, ::1], f8[::1], i8[::1], f8[::1], f8[:, ::1], Tuple((i8[::1], f8[::1], i8[::1], f8[::1])))")
def advance(
    target: float,
    max_steps: int,
    vectors: FloatMatrix,
    scalars: FloatVector,
    counters: IntVector,
    atol: FloatVector,
    events: FloatMatrix,
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
            vectors[ROW_WEIGHT, i] = 1.0 / (atol[i] + scalars[RTOL] * abs(y[i]))
        predict(vectors, scalars, counters, h)
        error = np.inf
        if solve_step(t + h, h, vectors, scalars, counters, system):
            error = weighted_norm(vectors[ROW_CORRECTION], vectors[ROW_WEIGHT]) * scalars[CONSTANT]
        if error <= 1.0 or (fixed > 0.0 and error < np.inf):
            accept(h, vectors, scalars, counters, system)
            scalars[TIME_START], scalars[TIME] = t, t + h
            t += h
            choose_next(vectors, scalars, counters, error)
            counters[FAILURES] = 0
            if events_passed(t, y, events, system):
                status = STATUS_EVENT
        else:
            finite = bool(np.isfinite(weighted_norm(vectors[ROW_SLOPE], vectors[ROW_WEIGHT])))
            reject(vectors, scalars, counters, error)
            if fixed > 0.0 or scalars[STEP] <= SMALLEST_STEP * abs(t) + SMALLEST_STEP_AT_ZERO:
                status = STATUS_STEP_TOO_SMALL if finite else STATUS_NOT_FINITE
    return status


@entry("void(f8, f8[::1], f8[:, ::1], f8[::1], i8[::1], Tuple((i8[::1], f8[::1], i8[::1], f8[::1])))")
def interpolate(
    t: float,
    out: FloatVector,
    vectors: FloatMatrix,
    scalars: FloatVector,
    counters: IntVector,
    system: System,
) -> None:
    """Write the state at a time strictly within the last step: Σ_j z_j ((t − t_n)/h)^j."""
    x = (t - scalars[TIME]) / scalars[SCALE]
    q = counters[ORDER]
    for i in range(out.size):
        value = vectors[ROW_NORDSIECK + q, i]
        for j in range(q - 1, -1, -1):
            value = vectors[ROW_NORDSIECK + j, i] + value * x
        out[i] = value
    normalise(out, system)
