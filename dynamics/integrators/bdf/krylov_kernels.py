"""Matrix-free solution of (1 − γ J) x = b by GMRES, right-preconditioned by a diagonal.

Products with the Jacobian are differences of the right-hand side.  One costs a single evaluation, half of what an
analytic product costs for the overlap equations, and its relative error of 1e-7 is far below what the solve needs,
unless the step exceeds the fastest relaxation by a factor of 1e5 or more: what is slow is then lost in the rounding of
what is fast, and the product of the system is taken instead, if it has one.

References
----------
Y. Saad, Iterative Methods for Sparse Linear Systems, second edition, algorithm 9.5.
P. N. Brown and Y. Saad, Hybrid Krylov methods for nonlinear systems of equations, SIAM J. Sci. Stat. Comput. 11 (1990)
450: length of the difference.
"""

import numpy as np

from dynamics.integrators.slots import (
    EVALUATIONS,
    HESSENBERG,
    MAX_KRYLOV,
    PRODUCTS,
    ROW_DIRECTION,
    ROW_FILTER,
    ROW_KRYLOV,
    ROW_PRODUCT,
    ROW_RESIDUAL,
    ROW_SLOPE,
    ROW_SOLUTION,
    ROW_TRIAL,
    ROW_WEIGHT,
)
from dynamics.integrators.system_calls import System, is_given_up, jacobian_product, rhs
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import matrix


@kernel
def multiply(t: float, y: Vector, k: int, gamma: float, reach: float, vectors: Matrix, system: System) -> None:
    """Set Krylov vector k + 1 to the weighted (1 − γ J) z, z = preconditioned Krylov vector k.

    J z is the difference of f over a vector along z whose weighted 2-norm is `reach`, or the system's product if
    `reach` is 0.
    """
    n = vectors.shape[1]
    direction, product, filtered = vectors[ROW_DIRECTION], vectors[ROW_PRODUCT], vectors[ROW_KRYLOV + k + 1]
    weight, slope, source, factor = (
        vectors[ROW_WEIGHT],
        vectors[ROW_SLOPE],
        vectors[ROW_KRYLOV + k],
        vectors[ROW_FILTER],
    )
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


@kernel
def orthogonalise(vectors: Matrix, h: Matrix, k: int) -> None:
    """Make Krylov vector k + 1 orthonormal to the earlier ones; column k of `h` receives the coefficients."""
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


@kernel
def rotate(h: Matrix, k: int) -> float:
    """Update the QR factors of the Hessenberg matrix by its column k; return the new residual norm.

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


@kernel
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
    """Solve (1 − γ J) x = b for ROW_SOLUTION, J at ROW_TRIAL, and count the products with J.

    GMRES reduces the weighted 2-norm of b − (1 − γ J) x to the share `reduction` of that of b.  If MAX_KRYLOV products
    do not suffice, the nonlinear iteration notices by itself.
    """
    n = vectors.shape[1]
    y, solution, filter_row = vectors[ROW_TRIAL], vectors[ROW_SOLUTION], vectors[ROW_FILTER]
    h = matrix(scalars, HESSENBERG, MAX_KRYLOV + 1, MAX_KRYLOV + 3)
    total = 0.0
    for i in range(n):
        solution[i] = vectors[ROW_WEIGHT, i] * vectors[ROW_RESIDUAL, i]
        total += solution[i] * solution[i]
    residual = np.sqrt(total)
    goal = residual * min(1.0, reduction)
    h[0, MAX_KRYLOV] = residual
    count: int = min(0, n)  # 0, but no literal, for which second copies of what the loop calls would be compiled
    if residual > goal:
        for i in range(n):
            # Without any product the best guess is the preconditioned residual; otherwise the solution starts at 0.
            vectors[ROW_KRYLOV, i] = solution[i] / residual
            solution[i] = 0.0
    while count < MAX_KRYLOV and residual > goal and not is_given_up(system):
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
    counters[EVALUATIONS] += count if reach > 0.0 else 0
