"""Compiled field of unit vectors with the products of different neurons in single precision, at twice the speed.

A product of unit vectors is wrong by some 1e-8 then, since the sums on the way to it are as small as it is itself.
Where two neurons are near each other they are not: their part is computed in double. Learned neurons become so
orthogonal to each other that few of the m weights of such a row matter in this precision: these alone are summed.
"""

import numpy as np

from dynamics.equations.pairs.field_kernels import FIELD_BLOCK, SCRATCH, add_axes, gather_rows, weigh_pairs
from dynamics.equations.pairs.link import BLOCK, g0, g1, write_g1
from dynamics.equations.pairs.rounding_kernels import NEAR, SMALLEST_WEIGHT, rounded_coordinate
from dynamics.kernels.arrays import Matrix, SingleMatrix, SingleVector, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.products import product
from dynamics.kernels.views import matrix, row_part, vector

# Weights below this part of the teacher's force on a row may be left out, all together 3e-8 of it among 1000 neurons,
# and the part of them that may remain, since products of whole rows take as long as sums of about a tenth.
SMALLEST_PART, LARGEST_SHARE = 1e-9, 1.0 / 16.0


@entry
def round_rows(begin: int, end: int, U: Matrix, U_single: SingleMatrix) -> None:
    """Write rows begin … end − 1 in single precision."""
    for i in range(begin, end):
        for k in range(U.shape[1]):
            U_single[i, k] = rounded_coordinate(U[i, k])


@kernel
def take_near(
    link: Vector, x: int, i: int, U: Matrix, n: Vector, overlap: SingleMatrix, F: Matrix, growth: Vector
) -> bool:
    """Write the part of the near neurons of row i, from products in double, and set their overlaps to zero.

    Return whether there are any; if not, nothing has been written.
    """
    m, D = U.shape
    found = False
    for j in range(m):
        if abs(overlap[x, j]) > NEAR and j != i:
            if not found:
                for k in range(D):
                    F[i, k] = 0.0
            found = True
            overlap[x, j] = 0.0
            s = 0.0
            for k in range(D):
                s += U[i, k] * U[j, k]
            # What the zero will stand for is added as any other overlap is.
            growth[i] -= n[j] * (g0(link, s) - g0(link, 0.0))
            w = n[j] * (g1(link, s) - g1(link, 0.0))
            for k in range(D):
                F[i, k] -= w * U[j, k]
    return found


@kernel
def are_few(weights: SingleVector, limit: float) -> bool:
    """Return whether few weights are larger than a limit."""
    count = 0
    for j in range(weights.size):
        count += abs(weights[j]) > limit
    return count <= LARGEST_SHARE * weights.size


@kernel
def limit_of_few(
    link: Vector, i: int, U: Matrix, n: Vector, a: Vector, weights: SingleVector, scratch: Vector
) -> float:
    """Return the limit below which weights of row i do not matter if few are left, and a negative number if not.

    What a neuron that has learned its direction would exert on itself is as large as the teacher's force, and known.
    """
    limit = SMALLEST_PART * n[i] * g1(link, 1.0)
    if not are_few(weights, limit):
        return -1.0
    square = 0.0
    for begin in range(0, a.size, BLOCK):
        size = min(BLOCK, a.size - begin)
        slope, coefficients = vector(scratch, 0, size), vector(a, begin, size)
        write_g1(link, row_part(U, i, begin, size), slope)
        for p in range(size):
            square += (coefficients[p] * slope[p]) ** 2
    limit = min(limit, SMALLEST_PART * np.sqrt(square))
    return limit if are_few(weights, limit) else -1.0


@kernel
def sum_few(weights: SingleVector, limit: float, U: SingleMatrix, force: SingleVector) -> None:
    """Set force = Σ_j w_j u_j with the weights that are larger than a limit."""
    for k in range(force.size):
        force[k] = 0.0
    for j in range(weights.size):
        w = weights[j]
        if abs(w) > limit:
            for k in range(force.size):
                force[k] += w * U[j, k]


@entry
def field_rows_single(
    begin: int,
    end: int,
    link: Vector,
    state: tuple[Matrix, SingleMatrix, Vector],
    a: Vector,
    pairs: SingleVector,
    field: tuple[Matrix, Vector],
    work: SingleVector,
) -> None:
    """Write the field (F, growth) as `field_rows` does, its directions being the first axes.

    The state is (U, U in single precision, n); `work` has 128 (m + D) numbers.
    """
    (U, U_single, n), (F, growth) = state, field
    (m, D), scratch = U.shape, np.empty(SCRATCH)
    for first in range(begin, end, FIELD_BLOCK):
        last = min(first + FIELD_BLOCK, end)
        rows = last - first
        overlap, force = matrix(work, 0, rows, m), matrix(work, rows * m, rows, D)
        gather_rows(first // FIELD_BLOCK, m, pairs, overlap)
        for i in range(first, last):
            growth[i] = 0.0
        near, place, whole = np.empty(rows, dtype=np.bool_), np.empty(rows, dtype=np.int64), 0
        for x in range(rows):
            near[x] = take_near(link, x, first + x, U, n, overlap, F, growth)
        weigh_pairs(link, first, n, vector(work, 0, rows * m), SMALLEST_WEIGHT, vector(growth, first, rows), scratch)
        # Rows with many weights move to the front, their forces too; those with few are summed from the end.
        for x in range(rows):
            weights = row_part(overlap, x, 0, m)
            limit = limit_of_few(link, first + x, U, n, a, weights, scratch)
            place[x] = whole if limit < 0.0 else rows - 1 - (x - whole)
            if limit >= 0.0:
                sum_few(weights, limit, U_single, row_part(force, place[x], 0, D))
                continue
            for j in range(m if whole < x else 0):
                overlap[whole, j] = weights[j]
            whole += 1
        if whole > 0:
            product(matrix(work, 0, whole, m), U_single, matrix(work, rows * m, whole, D))
        for x in range(rows):
            i, z = first + x, place[x]
            for k in range(D):
                F[i, k] = F[i, k] + force[z, k] if near[x] else force[z, k]
        add_axes(link, first, last, U, a, F, growth, scratch)
