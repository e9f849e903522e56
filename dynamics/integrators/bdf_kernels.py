"""The stiff method: backward differentiation of order 1 to 5 with variable step, without matrices.

Its history is z_j = h^j y^(j)/j!. It keeps the leading coefficient of the formula with equal steps (fixed leading
coefficient), so that a change of step needs no interpolation.

References
----------
K. R. Jackson and R. Sacks-Davis, ACM Trans. Math. Software 6 (1980) 295.
P. N. Brown, G. D. Byrne and A. C. Hindmarsh, VODE, SIAM J. Sci. Stat. Comput. 10 (1989) 1038: coefficients, error
constants, and the choice of step and order.
P. N. Brown and A. C. Hindmarsh, Reduced storage matrix methods in stiff ODE systems, J. Appl. Math. Comput. 31 (1989)
40: inexact Newton iteration with GMRES, and its tolerances.
Y. Saad, Iterative Methods for Sparse Linear Systems, second edition, algorithm 9.5: GMRES, here right-preconditioned by
a diagonal.
P. N. Brown and Y. Saad, Hybrid Krylov methods for nonlinear systems of equations, SIAM J. Sci. Stat. Comput. 11 (1990)
450: length of the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators import step_kernels as slots
from dynamics.integrators.explicit_kernels import bits_of, number_of
from dynamics.integrators.step_kernels import (
    STATISTICS,
    Layout,
    copy_row,
    event_recorder,
    events_passed,
    saving_steps,
    unowned_arrays,
)
from dynamics.integrators.system_calls import (
    IMPLICIT,
    System,
    jacobian_diagonal,
    jacobian_product,
    normalise,
    rhs,
)
from dynamics.kernels.jit import entry, exact_kernel, kernel, matrix, pasted_kernel, vector
from dynamics.kernels.options import AnyFunction
from dynamics.kernels.units import unit

if TYPE_CHECKING:
    from dynamics.integrators.step_kernels import Arrays
    from hermite.arrays import Integers, Matrix, Vector


# Rows for the linear solve: residual b, solution x, diagonal of J, error weights, weighted inverse of the
# preconditioner, f(y), J z, z, and the Krylov basis.
ROW_RESIDUAL, ROW_SOLUTION, ROW_DIAGONAL, ROW_WEIGHT, ROW_FILTER, ROW_SLOPE, ROW_PRODUCT, ROW_DIRECTION = range(3, 11)
ROW_KRYLOV, MAX_KRYLOV, MAX_ORDER = 11, 16, 5
# Rows after that: correction y − y_predicted, the correction before a choice of order, what rounding does to the
# solution of a step per unit of its length, and the Nordsieck array.
ROW_CORRECTION, ROW_SAVED, ROW_NOISE, ROW_NORDSIECK = range(ROW_KRYLOV + MAX_KRYLOV + 1, ROW_KRYLOV + MAX_KRYLOV + 5)
# Slots of `scalars`: step length in the Nordsieck array, rate of convergence, error constant of the saved correction,
# error constants (lower order, this order, higher order, saved correction), largest growth, past step lengths,
# coefficients of the correction polynomial, time of steps too short for the resolution of `TIME`, and the Hessenberg
# matrix.
SCALE, RATE, SAVED_CONSTANT, CONSTANT_DOWN, CONSTANT, CONSTANT_UP, CONSTANT_SAVED, GROWTH = range(6, 14)
PAST_STEPS, POLYNOMIAL, PENDING, HESSENBERG = 14, 22, 30, 31
# Slots of `counters`; UNRESOLVED counts accepted steps since the time last moved.
ORDER, NEXT_ORDER, WAIT, PRODUCTS, ITERATIONS, FAILED_ITERATIONS, DIAGONALS, AGE, UNRESOLVED, FIXED_ORDER = range(6, 16)
# Behind those that are stored: whether the system has a product with its Jacobian, and `least_stiff` of `Functions`.
HAS_PRODUCT, LEAST_STIFF = 16, 17
LAYOUT = Layout(
    rows=ROW_NORDSIECK + MAX_ORDER + 1,
    scalars=HESSENBERG + (MAX_KRYLOV + 1) * (MAX_KRYLOV + 3),
    kept_scalars=HESSENBERG,
    counters=16,
    kept=(slots.ROW_STATE, slots.ROW_START, ROW_DIAGONAL, *range(ROW_SAVED, ROW_NORDSIECK + MAX_ORDER + 1)),
    statistics=STATISTICS
    | {
        "linear_iterations": PRODUCTS,
        "nonlinear_iterations": ITERATIONS,
        "nonlinear_failures": FAILED_ITERATIONS,
        "diagonal_evaluations": DIAGONALS,
        "order": ORDER,
    },
)

# Bias of the error estimates of lower or same and of higher order, and the bounds of a growth worth a change of step.
BIAS_SAME, BIAS_UP, SMALLEST_GROWTH, LARGEST_GROWTH = 6.0, 10.0, 1.5, 10.0


@kernel
def weighted_norm(v: Vector, weight: Vector) -> float:
    """Return the largest weight_i |v_i| of two vectors of one size; infinity if any is not finite."""
    worst = 0
    for i in range(v.size):
        worst = max(worst, bits_of(abs(v[i]) * weight[i]))
    return number_of(worst) if worst < bits_of(np.inf) else np.inf


@kernel
def add_scaled(out: Vector, source: Vector, factor: float) -> None:
    """Add `factor` times a vector to `out`, in place; both are rows, since no loop on a matrix is vectorised."""
    for i in range(out.size):
        out[i] += factor * source[i]


@kernel
def shift(vectors: Matrix, order: int, sign: float) -> None:
    """Move the history one step ahead (`sign` 1), or back (−1), by Pascal's triangle, in place.

    The history is the Nordsieck array z_j = h^j y^(j)/j!, j = 0 … `order`, in the rows of `vectors` from ROW_NORDSIECK
    on.
    """
    for k in range(1, order + 1):
        for j in range(order, k - 1, -1):
            add_scaled(vectors[ROW_NORDSIECK + j - 1], vectors[ROW_NORDSIECK + j], sign)


@pasted_kernel
def set_coefficients(scalars: Vector, h: float, order: int) -> None:
    """Write the coefficients of the correction polynomial Λ(x) = Σ l_j x^j, and the error constants, to `scalars`.

    Λ(x) = Π_{i<q} (1 + x/ξ_i) (1 + x/ξ*_q) with the order q, the step length h, distances of past times in steps, ξ_i =
    (t_n − t_{n−i})/h, and ξ*_q from the fixed leading coefficient. After the step the history z_j gains l_j times the
    correction.
    """
    lam = vector(scalars, POLYNOMIAL, MAX_ORDER + 2)
    past = vector(scalars, PAST_STEPS, MAX_ORDER + 2)
    for i in range(lam.size):
        lam[i] = 1.0 if i < 2 else 0.0
    alpha, alpha_hat, xi, xi_star, total = -1.0, -1.0, 1.0, 1.0, h
    for j in range(2, order + 1):
        total += past[j - 1]
        xi = h / total
        alpha -= 1.0 / j
        factor = xi
        if j == order:
            factor = xi_star = -lam[1] - alpha
            alpha_hat = -lam[1] - xi
        for i in range(j, 0, -1):
            lam[i] += lam[i - 1] * factor
    a_1 = 1.0 - alpha_hat + alpha
    a_2 = 1.0 + order * a_1
    scalars[CONSTANT] = abs(a_1 / (alpha * a_2))
    scalars[CONSTANT_SAVED] = abs(a_2 * xi_star / (lam[order] * xi))
    scalars[CONSTANT_DOWN] = 1.0
    if order > 1:
        a_3, a_4 = alpha + 1.0 / order, alpha_hat + xi
        scalars[CONSTANT_DOWN] = abs(xi_star / lam[order] * (1.0 - a_4 + a_3) / a_3)
    xi = h / (total + past[order])
    a_5, a_6 = alpha - 1.0 / (order + 1), alpha_hat - xi
    scalars[CONSTANT_UP] = abs((1.0 - a_6 + a_5) / (a_2 * xi * (order + 2) * a_5))


@pasted_kernel
def change_order(vectors: Matrix, scalars: Vector, order: int, new_order: int) -> None:
    """Lower or raise the degree of the history in `vectors` by one, in place, keeping its values at the past points."""
    past = vector(scalars, PAST_STEPS, MAX_ORDER + 2)
    lam = vector(scalars, POLYNOMIAL, MAX_ORDER + 2)
    for i in range(lam.size):
        lam[i] = 1.0 if i == 2 else 0.0
    raising = new_order > order
    alpha_0, alpha_1, product, previous = -1.0, 1.0, 1.0, 1.0
    total = scalars[SCALE] if raising else 0.0
    for j in range(1, order if raising else order - 1):
        total += past[j + 1] if raising else past[j]
        xi = total / scalars[SCALE]
        product *= xi
        alpha_0 -= 1.0 / (j + 1)
        alpha_1 += 1.0 / xi
        for i in range(j + 2, 1, -1):
            lam[i] = lam[i] * (previous if raising else xi) + lam[i - 1]
        previous = xi
    source = ROW_NORDSIECK + order
    factor = -1.0
    if raising:
        source = ROW_NORDSIECK + new_order
        factor = 1.0
        for i in range(vectors.shape[1]):
            vectors[source, i] = -(alpha_0 + alpha_1) / product * vectors[ROW_SAVED, i]
    for j in range(2, order + 1 if raising else order):
        add_scaled(vectors[ROW_NORDSIECK + j], vectors[source], factor * lam[j])


@unit(**IMPLICIT)
def predict(vectors: Matrix, scalars: Vector, counters: Integers, h: float) -> None:
    """Apply the chosen order and the step length h to the history, and move it to the end of the step, in place.

    Afterwards the history in `vectors` holds the predicted state, and `scalars` the coefficients of the step.
    """
    q = counters[ORDER]
    if counters[NEXT_ORDER] != q:
        change_order(vectors, scalars, q, counters[NEXT_ORDER])
        q = counters[NEXT_ORDER]
        counters[ORDER] = q
        counters[WAIT] = q + 1
    ratio = h / scalars[SCALE]
    if ratio != 1.0:
        power = 1.0
        for j in range(1, q + 1):
            power *= ratio
            for i in range(vectors.shape[1]):
                vectors[ROW_NORDSIECK + j, i] *= power
    scalars[SCALE] = h
    shift(vectors, q, 1.0)
    set_coefficients(scalars, h, q)


@unit(**IMPLICIT)
def choose_next(vectors: Matrix, scalars: Vector, counters: Integers, error: float) -> None:
    """Write order and length of the next step, from the error estimates of three orders.

    `error` is that of the step that was accepted, in units of the tolerance. The order is that of the longest next
    step.
    """
    n, q, weight = vectors.shape[1], counters[ORDER], vectors[ROW_WEIGHT]
    if scalars[GROWTH] <= 1.0:
        # The step before was rejected: try the same length once more.
        counters[WAIT] = max(counters[WAIT], 2)
    best, order = 1.0 / ((BIAS_SAME * error) ** (1.0 / (q + 1)) + 1e-6), q
    if counters[WAIT] <= 0 and counters[FIXED_ORDER] == 0:
        counters[WAIT] = 2
        if q > 1:
            down = weighted_norm(vectors[ROW_NORDSIECK + q], weight) * scalars[CONSTANT_DOWN]
            growth = 1.0 / ((BIAS_SAME * down) ** (1.0 / q) + 1e-6)
            if growth > best:
                best, order = growth, q - 1
        if q < MAX_ORDER and counters[slots.ACCEPTED] > q:
            quotient = scalars[CONSTANT_SAVED] / scalars[SAVED_CONSTANT]
            quotient *= (scalars[SCALE] / scalars[PAST_STEPS + 2]) ** (q + 1.0)
            trial = vectors[slots.ROW_TRIAL]
            for i in range(n):
                trial[i] = vectors[ROW_CORRECTION, i] - quotient * vectors[ROW_SAVED, i]
            up = weighted_norm(trial, weight) * scalars[CONSTANT_UP]
            growth = 1.0 / ((BIAS_UP * up) ** (1.0 / (q + 2)) + 1e-6)
            if growth > best:
                best, order = growth, q + 1
    if best < SMALLEST_GROWTH:
        best, order = 1.0, q
    if counters[WAIT] <= 0 and q < counters[FIXED_ORDER]:
        order = q + 1
    if order > q or counters[WAIT] == 1:
        copy_row(vectors[ROW_SAVED], vectors[ROW_CORRECTION])
        scalars[SAVED_CONSTANT] = scalars[CONSTANT_SAVED]
    counters[NEXT_ORDER] = order
    scalars[slots.STEP] = scalars[SCALE] * min(best, scalars[GROWTH])
    scalars[GROWTH] = LARGEST_GROWTH


# Products with the Jacobian are differences of the right-hand side. One costs a single evaluation, half of what an
# analytic product costs for the overlap equations, and its relative error of 1e-7 is far below what the solve needs,
# unless the step exceeds the fastest relaxation by a factor of 1e5 or more: what is slow is then lost in the rounding
# of what is fast, and the product of the system is taken instead, if it has one.


@pasted_kernel
def multiply(t: float, y: Vector, k: int, gamma: float, reach: float, vectors: Matrix, system: System) -> None:
    """Set Krylov vector k + 1 to the weighted (1 − γ J) z, z being the preconditioned Krylov vector k.

    J is the Jacobian at the state `y`. J z is a difference of the right-hand side along z, over the weighted length
    `reach`, or the system's own product if that is 0. Vectors are rows of `vectors`.
    """
    n = vectors.shape[1]
    direction, product, filtered = vectors[ROW_DIRECTION], vectors[ROW_PRODUCT], vectors[ROW_KRYLOV + k + 1]
    weight, slope = vectors[ROW_WEIGHT], vectors[ROW_SLOPE]
    source, factor = vectors[ROW_KRYLOV + k], vectors[ROW_FILTER]
    total = 0.0
    for i in range(n):
        filtered[i] = factor[i] * source[i]
    if reach == 0.0:
        jacobian_product(t, y, filtered, product, system)
        for i in range(n):
            filtered[i] = weight[i] * (filtered[i] - gamma * product[i])
        return
    for i in range(n):
        size = weight[i] * filtered[i]
        total += size * size
    sigma = reach / np.sqrt(total) if total > 0.0 else 1.0
    for i in range(n):
        direction[i] = y[i] + sigma * filtered[i]
    rhs(t, direction, product, system)
    ratio = gamma / sigma
    for i in range(n):
        filtered[i] = weight[i] * (filtered[i] - ratio * (product[i] - slope[i]))


@pasted_kernel
def orthogonalise(vectors: Matrix, h: Matrix, k: int) -> None:
    """Make Krylov vector k + 1 orthonormal to those before it, in place; column k of `h` takes the coefficients."""
    new = vectors[ROW_KRYLOV + k + 1]
    for j in range(k + 1):
        old = vectors[ROW_KRYLOV + j]
        total = 0.0
        for i in range(new.size):
            total += new[i] * old[i]
        h[j, k] = total
        for i in range(new.size):
            new[i] -= total * old[i]
    total = 0.0
    for i in range(new.size):
        total += new[i] * new[i]
    h[k + 1, k] = np.sqrt(total)
    scale = 1.0 / h[k + 1, k] if total > 0.0 else 0.0
    for i in range(new.size):
        new[i] *= scale


@pasted_kernel
def rotate(h: Matrix, k: int) -> float:
    """Update the QR factors of the Hessenberg matrix `h` by its column k; return the norm of the new residual.

    Column MAX_KRYLOV of `h` holds the right-hand side, columns MAX_KRYLOV + 1 and + 2 the cosines and sines.
    """
    b, c, s = MAX_KRYLOV, MAX_KRYLOV + 1, MAX_KRYLOV + 2
    for j in range(k):
        upper, lower = h[j, k], h[j + 1, k]
        h[j, k] = h[j, c] * upper + h[j, s] * lower
        h[j + 1, k] = h[j, c] * lower - h[j, s] * upper
    length = np.sqrt(h[k, k] * h[k, k] + h[k + 1, k] * h[k + 1, k])
    if length == 0.0:
        return float(abs(h[k, b]))
    h[k, c], h[k, s] = h[k, k] / length, h[k + 1, k] / length
    h[k, k] = length
    h[k + 1, b] = -h[k, s] * h[k, b]
    h[k, b] *= h[k, c]
    return float(abs(h[k + 1, b]))


@unit(**IMPLICIT)
def solve_linear(
    t: float,
    gamma: float,
    reduction: float,
    reach: float,
    vectors: Matrix,
    scalars: Vector,
    counters: Integers,
    system: System,
) -> None:
    """Write the solution x of (1 − γ J) x = b to ROW_SOLUTION of `vectors`, and count the products with J.

    J is the Jacobian at the state in ROW_TRIAL and b the row ROW_RESIDUAL. GMRES reduces the weighted 2-norm of b − (1
    − γ J) x to the share `reduction` of that of b. Products are differences over the length `reach`, or those of the
    system if it is 0. If MAX_KRYLOV products do not suffice, the nonlinear iteration notices by itself.
    """
    n = vectors.shape[1]
    y, solution, filter_row = vectors[slots.ROW_TRIAL], vectors[ROW_SOLUTION], vectors[ROW_FILTER]
    h = matrix(scalars, HESSENBERG, MAX_KRYLOV + 1, MAX_KRYLOV + 3)
    total = 0.0
    for i in range(n):
        solution[i] = vectors[ROW_WEIGHT, i] * vectors[ROW_RESIDUAL, i]
        total += solution[i] * solution[i]
    residual = np.sqrt(total)
    goal = residual * min(1.0, reduction)
    h[0, MAX_KRYLOV] = residual
    count: int = min(0, n)  # 0, but no literal: for a literal Numba compiles second copies of the loop's callees
    if residual > goal:
        for i in range(n):
            # Without any product the best guess is the preconditioned residual; otherwise the solution starts at 0.
            vectors[ROW_KRYLOV, i] = solution[i] / residual
            solution[i] = 0.0
    while count < MAX_KRYLOV and residual > goal:
        multiply(t, y, count, gamma, reach, vectors, system)
        orthogonalise(vectors, h, count)
        residual = rotate(h, count)
        if h[count, count] == 0.0:
            # 1 − γ J takes the new direction to nothing that earlier ones do not reach: it cannot lessen the residual.
            break
        count += 1
    for k in range(count - 1, -1, -1):
        for j in range(k + 1, count):
            h[k, MAX_KRYLOV] -= h[k, j] * h[j, MAX_KRYLOV]
        h[k, MAX_KRYLOV] /= h[k, k]
        basis = vectors[ROW_KRYLOV + k]
        for i in range(n):
            solution[i] += h[k, MAX_KRYLOV] * basis[i]
    for i in range(n):
        solution[i] *= filter_row[i]
    counters[PRODUCTS] += count
    counters[slots.EVALUATIONS] += count if reach > 0.0 else 0


# Bounds of the nonlinear iteration, as in CVODE but for the linear one, 0.05 there. What the linear solver leaves of a
# fast component is no part of the solution, and the prediction of the next step multiplies it by up to 30: with 0.05 it
# is the error of which the step is chosen, and steps are half as long.
MAX_ITERATIONS, NONLINEAR_FACTOR, LINEAR_FACTOR, DIVERGENCE = 4, 0.1, 0.01, 2.0
# Steps after which the preconditioner is made anew.
PRECONDITIONER_AGE = 10
# Smallest relative length of a difference of the right-hand side, well above rounding.
SMALLEST_DIFFERENCE = 1e-9
# Rounding of such a difference, times γ, above which the product of the system is taken.
LARGEST_NOISE = 0.01
ROUNDING = 2.220446049250313e-16
# Corrections that stay alike within the first factor to the last are rounding, if they are below the second times what
# rounding may do and, relatively, below the third. The tolerance is then the fourth times that, component by component.
ALIKE, ROUNDINGS, LARGEST_ROUNDING, NOISE_WEIGHT = 3.0, 10.0, 1e-4, 20.0


@pasted_kernel
def set_filter(vectors: Matrix, gamma: float, least: int) -> float:
    """Write the weighted inverse of the preconditioner to ROW_FILTER; return the largest 1 − γ J_ii.

    It is 1 / (weight_i (1 − γ J_ii)), with the diagonal J_ii of the Jacobian, or 1 / weight_i if all 1 − γ J_ii are
    below `least`. Growing components are left alone, so that the divisor is never below 1.
    """
    largest = 1.0
    for i in range(vectors.shape[1]):
        divisor = 1.0 + max(0.0, -gamma * vectors[ROW_DIAGONAL, i])
        largest = max(largest, divisor)
        vectors[ROW_FILTER, i] = 1.0 / (vectors[ROW_WEIGHT, i] * divisor)
    if largest < least:
        for i in range(vectors.shape[1]):
            vectors[ROW_FILTER, i] = 1.0 / vectors[ROW_WEIGHT, i]
    return largest


@unit(**IMPLICIT)
def solve_step(t: float, h: float, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> bool:
    """Solve y = y_p + e, e = γ f(y) − z_1/l_1 for the state y at time t by inexact Newton iteration.

    Return whether it converged; y is written to ROW_TRIAL and the correction e to ROW_CORRECTION. y_p is the predicted
    state, z_1 = h y' that of its rate, l_1 the coefficient of the formula and γ = h/l_1 for the step length h. It
    counts as converged too when nothing is left but rounding: that of a rate, 1e-15, is a million tolerances of 1e-12
    if γ = 1e9.
    """
    n = vectors.shape[1]
    y, e, f = vectors[slots.ROW_TRIAL], vectors[ROW_CORRECTION], vectors[ROW_SLOPE]
    weight, step, residual = vectors[ROW_WEIGHT], vectors[ROW_SOLUTION], vectors[ROW_RESIDUAL]
    inverse = 1.0 / scalars[POLYNOMIAL + 1]
    gamma = h * inverse
    goal = NONLINEAR_FACTOR / scalars[CONSTANT]
    for i in range(n):
        e[i] = 0.0
        y[i] = vectors[ROW_NORDSIECK, i]
    if counters[AGE] >= PRECONDITIONER_AGE:
        jacobian_diagonal(t, y, vectors[ROW_DIAGONAL], system)
        counters[DIAGONALS] += 1
        counters[AGE] = 0
        scalars[RATE] = 1.0
        add_scaled(vectors[ROW_NOISE], vectors[ROW_NOISE], -0.5)
    counters[AGE] += 1
    noise = set_filter(vectors, gamma, counters[LEAST_STIFF]) * ROUNDING / scalars[slots.RTOL]
    reach = max(1.0, SMALLEST_DIFFERENCE / scalars[slots.RTOL])
    if noise > LARGEST_NOISE * reach and counters[HAS_PRODUCT] == 1:
        reach = 0.0
    # Differences are less accurate than the right-hand side, so that their residual is no sign of its rounding.
    rounding = min(ROUNDINGS * noise, LARGEST_ROUNDING / scalars[slots.RTOL]) if reach == 0.0 else 0.0
    previous = largest = 0.0
    smallest = np.inf
    for iteration in range(MAX_ITERATIONS):
        rhs(t, y, f, system)
        counters[slots.EVALUATIONS] += 1
        counters[ITERATIONS] += 1
        for i in range(n):
            residual[i] = gamma * f[i] - inverse * vectors[ROW_NORDSIECK + 1, i] - e[i]
        # The largest component must shrink to the tolerance of the linear equations: the 2-norm is made to do as much.
        reduction = LINEAR_FACTOR * goal / max(weighted_norm(residual, weight), 1e-300)
        solve_linear(t, gamma, reduction, reach, vectors, scalars, counters, system)
        size = weighted_norm(step, weight)
        for i in range(n):
            e[i] += step[i]
            y[i] = vectors[ROW_NORDSIECK, i] + e[i]
        if iteration > 0:
            scalars[RATE] = max(0.3 * scalars[RATE], size / previous)
        if size * min(1.0, scalars[RATE]) <= goal:
            return True
        if not size < np.inf or (iteration > 0 and size > max(DIVERGENCE * previous, rounding)):
            return False
        if iteration > 0:
            largest, smallest = max(largest, size), min(smallest, size)
        previous = size
    if largest > min(rounding, ALIKE * smallest):
        return False
    for i in range(n):
        vectors[ROW_NOISE, i] = max(vectors[ROW_NOISE, i], abs(step[i]) / h)
    return True


# Failures and accepted steps in a row that end a run whose steps are below the resolution of the time. Escapes take up
# to some thousand steps; those of a solution that is infinite at a finite time never end.
MOST_FAILURES, MOST_UNRESOLVED = 50, 50_000


@pasted_kernel
def accept(h: float, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Correct the history, make its state the current one, put back on its constraints, and record the length h."""
    q = counters[ORDER]
    for j in range(q + 1):
        add_scaled(vectors[ROW_NORDSIECK + j], vectors[ROW_CORRECTION], scalars[POLYNOMIAL + j])
    normalise(vectors[ROW_NORDSIECK], system)
    copy_row(vectors[slots.ROW_START], vectors[slots.ROW_STATE])
    copy_row(vectors[slots.ROW_STATE], vectors[ROW_NORDSIECK])
    for i in range(MAX_ORDER + 1, 1, -1):
        scalars[PAST_STEPS + i] = scalars[PAST_STEPS + i - 1]
    scalars[PAST_STEPS + 1] = h
    if counters[slots.ACCEPTED] == 0:
        for i in range(2, MAX_ORDER + 2):
            scalars[PAST_STEPS + i] = h
    counters[slots.ACCEPTED] += 1
    counters[WAIT] -= 1


@pasted_kernel
def reject(vectors: Matrix, scalars: Vector, counters: Integers, error: float) -> None:
    """Restore the history of before the step and shorten the next try; after three failures lower the order too.

    `error` is in units of the tolerance; one that is not finite stands for a nonlinear iteration that did not converge.
    """
    q = counters[ORDER]
    shift(vectors, q, -1.0)
    counters[slots.REJECTED] += 1
    counters[slots.FAILURES] += 1
    factor = 0.25
    if error < np.inf:
        factor = max(0.1, min(0.9, 1.0 / ((BIAS_SAME * error) ** (1.0 / (q + 1)) + 1e-6)))
        if counters[slots.FAILURES] > 1:
            factor = min(factor, 0.2)
        if counters[slots.FAILURES] > 3 and q > 1 and counters[FIXED_ORDER] == 0:
            counters[NEXT_ORDER] = q - 1
    else:
        counters[FAILED_ITERATIONS] += 1
        counters[AGE] = PRECONDITIONER_AGE
    scalars[slots.STEP] = scalars[SCALE] * factor
    scalars[GROWTH] = 1.0


@pasted_kernel
def pass_time(h: float, scalars: Vector, counters: Integers) -> None:
    """Move the time in `scalars` on by an accepted step of length h.

    Steps below the resolution of the time are collected until their sum is not: after a wait of 1e13 a neuron escapes
    within a time of order 1.
    """
    scalars[slots.TIME_START] = scalars[slots.TIME]
    scalars[PENDING] += h
    counters[UNRESOLVED] += 1
    if scalars[PENDING] > slots.SMALLEST_STEP * abs(scalars[slots.TIME]):
        scalars[slots.TIME] += scalars[PENDING]
        scalars[PENDING] = 0.0
        counters[UNRESOLVED] = 0


@unit(**IMPLICIT)
def begin(vectors: Matrix, scalars: Vector, counters: Integers, atol: Vector, system: System) -> bool:
    """Start at order 1 with z = (y, h y') and a step that changes the state little; return whether y' is finite."""
    y, f, weight = vectors[slots.ROW_STATE], vectors[ROW_SLOPE], vectors[ROW_WEIGHT]
    rhs(scalars[slots.TIME], y, f, system)
    counters[slots.EVALUATIONS] += 1
    for i in range(y.size):
        weight[i] = 1.0 / (atol[i] + scalars[slots.RTOL] * abs(y[i]))
    speed = weighted_norm(f, weight)
    if not speed < np.inf:
        return False
    size = weighted_norm(y, weight)
    # The first step is of first order: its error is about half the square of the relative change.
    h = np.sqrt(size) / speed if speed > 1e-5 and size > 1e-5 else 1e-6
    h = min(h, scalars[slots.LARGEST_STEP])
    if scalars[slots.FIXED_STEP] > 0.0:
        h = scalars[slots.FIXED_STEP]
    for i in range(y.size):
        vectors[slots.ROW_START, i] = y[i]
        vectors[ROW_NORDSIECK, i] = y[i]
        vectors[ROW_NORDSIECK + 1, i] = h * f[i]
    scalars[SCALE], scalars[slots.STEP], scalars[GROWTH], scalars[RATE] = h, h, 1e4, 1.0
    counters[ORDER], counters[NEXT_ORDER], counters[WAIT], counters[AGE] = 1, 1, 2, PRECONDITIONER_AGE
    counters[slots.READY] = 1
    return True


@unit(**IMPLICIT)
def advance(target: float, max_steps: int, arrays: Arrays, system: System) -> int:
    """Take steps until the time reaches `target`, an event is passed, `max_steps` were tried, or none succeeds.

    Return the status, one of `STATUS_…` of the module `step_kernels`.
    """
    vectors, scalars, counters, atol, events = arrays
    y = vectors[slots.ROW_STATE]
    t, fixed = scalars[slots.TIME], scalars[slots.FIXED_STEP]
    if counters[slots.READY] == 0:
        if not begin(vectors, scalars, counters, atol, system):
            return slots.STATUS_NOT_FINITE
        if events_passed(t, y, events, system):
            return slots.STATUS_EVENT
    status = slots.STATUS_REACHED
    tried = 0
    while t < target and status == slots.STATUS_REACHED:
        if tried >= max_steps:
            return slots.STATUS_MAX_STEPS
        tried += 1
        h = fixed if fixed > 0.0 else min(scalars[slots.STEP], scalars[slots.LARGEST_STEP])
        for i in range(y.size):
            noise = NOISE_WEIGHT * h * vectors[ROW_NOISE, i]
            vectors[ROW_WEIGHT, i] = 1.0 / (atol[i] + scalars[slots.RTOL] * abs(y[i]) + noise)
        predict(vectors, scalars, counters, h)
        error = np.inf
        if solve_step(t + h, h, vectors, scalars, counters, system):
            error = weighted_norm(vectors[ROW_CORRECTION], vectors[ROW_WEIGHT]) * scalars[CONSTANT]
        if error <= 1.0 or (fixed > 0.0 and error < np.inf):
            accept(h, vectors, scalars, counters, system)
            pass_time(h, scalars, counters)
            t = scalars[slots.TIME]
            if counters[UNRESOLVED] >= MOST_UNRESOLVED:
                status = slots.STATUS_STEP_TOO_SMALL
            choose_next(vectors, scalars, counters, error)
            counters[slots.FAILURES] = 0
            if events_passed(t, y, events, system):
                status = slots.STATUS_EVENT
        else:
            finite = bool(np.isfinite(weighted_norm(vectors[ROW_SLOPE], vectors[ROW_WEIGHT])))
            reject(vectors, scalars, counters, error)
            unresolved = (
                scalars[slots.STEP] <= slots.SMALLEST_STEP * abs(t) and counters[slots.FAILURES] >= MOST_FAILURES
            )
            if fixed > 0.0 or unresolved or scalars[slots.STEP] <= slots.SMALLEST_STEP_AT_ZERO:
                status = slots.STATUS_STEP_TOO_SMALL if finite else slots.STATUS_NOT_FINITE
    return status


@exact_kernel
def interpolate_exactly(
    t: float, out: Vector, vectors: Matrix, scalars: Vector, counters: Integers, system: System
) -> None:
    """Write the state at a time t strictly within the last step to `out`: Σ_j z_j ((t − t_n)/h)^j.

    The history z_j belongs to the end t_n of the step, of length h.
    """
    # The time may have moved by several short steps at once, of which this is the last.
    x = max((t - scalars[slots.TIME]) / scalars[SCALE], -1.0)
    q = counters[ORDER]
    for i in range(out.size):
        value = vectors[ROW_NORDSIECK + q, i]
        for j in range(q - 1, -1, -1):
            value = vectors[ROW_NORDSIECK + j, i] + value * x
        out[i] = value
    normalise(out, system)


@unit(**IMPLICIT)
def interpolate(t: float, out: Vector, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Write the state at a time t strictly within the last step to `out`."""
    interpolate_exactly(t, out, vectors, scalars, counters, system)


_record_events = event_recorder(interpolate)


@unit(**IMPLICIT)
def record_events(arrays: Arrays, system: System) -> None:
    """Write the times of the events that the last step passed to their row of the events."""
    _record_events(arrays, system)


save_through = saving_steps(advance, interpolate, record_events)


@entry
def advance_through(
    targets: Vector,
    max_steps: int,
    states: Matrix,
    arrays: Arrays,
    rhs: AnyFunction,
    event_values: AnyFunction,
    normalise: AnyFunction,
    jacobian_diagonal: AnyFunction,
    jacobian_product: AnyFunction,
) -> int:
    """Advance to the last of some increasing `targets`, writing the state at each to a row of `states`.

    Return status + 8 · number of targets passed, the status being one of `STATUS_…` of the module `step_kernels`.
    `max_steps` bounds the steps of the whole call.

    `arrays` are, in this order, five of the method, changed in place: vectors (rows, n), whose rows 0 and 1 are the
    states now and at the start of the last step, scalars, counters, absolute tolerances (n,) and events (3, events),
    rows being time of passing, value now and value at the start of the step; then three of the system: `parameters`,
    `sizes` and `work`. The functions that follow are the system's.
    """
    arrays = unowned_arrays(arrays)
    system = (arrays[5], arrays[6], arrays[7], rhs, event_values, normalise, jacobian_diagonal, jacobian_product)
    return save_through(targets, max_steps, states, arrays[:5], system)
