"""The nonlinear equation of one step of the stiff stepper.

References
----------
P. N. Brown and A. C. Hindmarsh, Reduced storage matrix methods in stiff ODE systems, J. Appl. Math. Comput. 31 (1989)
40: inexact Newton iteration with GMRES, and its tolerances.
"""

import numpy as np

from dynamics.integrators.bdf.krylov_kernels import solve_linear
from dynamics.integrators.bdf.nordsieck_kernels import add_scaled, weighted_norm
from dynamics.integrators.slots import (
    AGE,
    CONSTANT,
    DIAGONALS,
    EVALUATIONS,
    HAS_PRODUCT,
    ITERATIONS,
    POLYNOMIAL,
    RATE,
    ROW_CORRECTION,
    ROW_DIAGONAL,
    ROW_FILTER,
    ROW_NOISE,
    ROW_NORDSIECK,
    ROW_RESIDUAL,
    ROW_SLOPE,
    ROW_SOLUTION,
    ROW_TRIAL,
    ROW_WEIGHT,
    RTOL,
)
from dynamics.integrators.system_calls import System, jacobian_diagonal, rhs
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel

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


@kernel
def set_filter(vectors: Matrix, gamma: float) -> float:
    """Set 1 / (weight_i (1 − γ J_ii)) and return the largest 1 − γ J_ii.

    Growing components are left alone, so that the divisor is never below 1.
    """
    largest = 1.0
    for i in range(vectors.shape[1]):
        divisor = 1.0 + max(0.0, -gamma * vectors[ROW_DIAGONAL, i])
        largest = max(largest, divisor)
        vectors[ROW_FILTER, i] = 1.0 / (vectors[ROW_WEIGHT, i] * divisor)
    return largest


@kernel
def solve_step(t: float, h: float, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> bool:
    """Solve y = y_p + e, e = γ f(y) − z_1/l_1 by inexact Newton iteration; return whether it converged.

    It also has when nothing is left but rounding: that of a rate, 1e-15, is a million tolerances of 1e-12 if γ = 1e9.
    """
    n = vectors.shape[1]
    y, e, f = vectors[ROW_TRIAL], vectors[ROW_CORRECTION], vectors[ROW_SLOPE]
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
    noise = set_filter(vectors, gamma) * ROUNDING / scalars[RTOL]
    reach = max(1.0, SMALLEST_DIFFERENCE / scalars[RTOL])
    if noise > LARGEST_NOISE * reach and counters[HAS_PRODUCT] == 1:
        reach = 0.0
    # Differences are less accurate than the right-hand side, so that what they leave is no sign of its rounding.
    rounding = min(ROUNDINGS * noise, LARGEST_ROUNDING / scalars[RTOL]) if reach == 0.0 else 0.0
    previous = largest = 0.0
    smallest = np.inf
    for iteration in range(MAX_ITERATIONS):
        rhs(t, y, f, system)
        counters[EVALUATIONS] += 1
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
