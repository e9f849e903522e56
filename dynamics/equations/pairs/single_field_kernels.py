"""Compiled field of unit vectors with the products of different neurons in single precision, at twice the speed.

Executed after `field_kernels` and `rounding_kernels`.
A product of unit vectors is wrong by some 1e-8 then, since the sums on the way to it
are as small as it is itself.  Where two neurons are near each other they are not: their part is computed in double.
Learned neurons become so orthogonal to each other that few of the m weights of such a row matter in this precision:
these alone are summed.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Matrix, SingleMatrix, SingleVector, Vector
from dynamics.compiler.compilation import entry, kernel
from dynamics.compiler.numbers import smaller

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix, product
    from dynamics.equations.pairs.field_kernels import FIELD_BLOCK, add_axes, gather_rows, multiply_pairs, weigh_pairs
    from dynamics.equations.pairs.link_kernels import g0, g1
    from dynamics.equations.pairs.rounding_kernels import NEAR, SMALLEST_WEIGHT, rounded_coordinate


# Weights below this part of the teacher's force on a row may be left out, all together 3e-8 of it among 1000 neurons,
# and the part of them that may remain, since products of whole rows take as long as sums of about a tenth.
SMALLEST_PART, LARGEST_SHARE = 1e-9, 1.0 / 16.0


@entry("void(i8, i8, f8[:,::1], f4[:,::1])")
def round_rows(begin: int, end: int, U: Matrix, U_single: SingleMatrix) -> None:
    """Write rows begin … end − 1 in single precision."""
    for i in range(begin, end):
        for k in range(U.shape[1]):
            U_single[i, k] = rounded_coordinate(U[i, k])


@entry("void(i8, i8, f4[:,::1], f4[::1])")
def pair_products_single(begin: int, end: int, U: SingleMatrix, pairs: SingleVector) -> None:
    """Write G = U Uᵀ as `pair_products` does."""
    multiply_pairs(begin, end, U, pairs)


@kernel
def take_near(x: int, i: int, U: Matrix, n: Vector, overlap: SingleMatrix, F: Matrix, growth: Vector) -> bool:
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
            growth[i] -= n[j] * (g0(s) - g0(0.0))
            w = n[j] * (g1(s) - g1(0.0))
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
def limit_of_few(i: int, U: Matrix, n: Vector, a: Vector, weights: SingleVector) -> float:
    """Return the limit below which weights of row i do not matter if few are left, and a negative number if not.

    What a neuron that has learned its direction would exert on itself is as large as the teacher's force, and known.
    """
    limit = SMALLEST_PART * n[i] * g1(1.0)
    if not are_few(weights, limit):
        return -1.0
    square = 0.0
    for p in range(a.size):
        square += (a[p] * g1(U[i, p])) ** 2
    limit = smaller(limit, SMALLEST_PART * np.sqrt(square))
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


@entry("void(i8, i8, f8[:,::1], f4[:,::1], f8[::1], f8[::1], f4[::1], f8[:,::1], f8[::1], f4[::1])")
def field_rows_single(
    begin: int,
    end: int,
    U: Matrix,
    U_single: SingleMatrix,
    n: Vector,
    a: Vector,
    pairs: SingleVector,
    F: Matrix,
    growth: Vector,
    work: SingleVector,
) -> None:
    """Write F and growth as `field_rows` does; `work` has 128 (m + D) numbers.  Directions are the first axes."""
    m, D = U.shape
    for first in range(begin, end, FIELD_BLOCK):
        last = min(first + FIELD_BLOCK, end)
        rows = last - first
        overlap, force = matrix(work, 0, rows, m), matrix(work, rows * m, rows, D)
        gather_rows(first // FIELD_BLOCK, m, pairs, overlap)
        for i in range(first, last):
            growth[i] = 0.0
        near, place, whole = np.empty(rows, dtype=np.bool_), np.empty(rows, dtype=np.int64), 0
        for x in range(rows):
            near[x] = take_near(x, first + x, U, n, overlap, F, growth)
        weigh_pairs(first, n, overlap, growth)
        for x in range(rows):
            for j in range(m):
                if abs(overlap[x, j]) < SMALLEST_WEIGHT:
                    overlap[x, j] = 0.0
        # Rows with many weights move to the front, their forces too; those with few are summed from the end.
        for x in range(rows):
            limit = limit_of_few(first + x, U, n, a, overlap[x])
            place[x] = whole if limit < 0.0 else rows - 1 - (x - whole)
            if limit >= 0.0:
                sum_few(overlap[x], limit, U_single, force[place[x]])
                continue
            for j in range(m if whole < x else 0):
                overlap[whole, j] = overlap[x, j]
            whole += 1
        if whole > 0:
            product(matrix(work, 0, whole, m), U_single, matrix(work, rows * m, whole, D))
        for x in range(rows):
            i, z = first + x, place[x]
            for k in range(D):
                F[i, k] = F[i, k] + force[z, k] if near[x] else force[z, k]
        add_axes(first, last, U, a, F, growth)
