"""Compiled field of unit vectors with the products of different neurons in single precision, at twice the speed.

Executed after `field_kernels` and `rounding_kernels`.
A product of unit vectors is wrong by some 1e-8 then, since the sums on the way to it
are as small as it is itself.  Where two neurons are near each other they are not: their part is computed in double.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Matrix, SingleMatrix, SingleVector, Vector
from dynamics.compiler.compilation import entry, kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix, product
    from dynamics.equations.pairs.field_kernels import FIELD_BLOCK, add_axes, gather_rows, multiply_pairs, weigh_pairs
    from dynamics.equations.pairs.link_kernels import g0, g1
    from dynamics.equations.pairs.rounding_kernels import NEAR, SMALLEST_WEIGHT, rounded_coordinate


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
        near = np.empty(rows, dtype=np.bool_)
        for x in range(rows):
            near[x] = take_near(x, first + x, U, n, overlap, F, growth)
        weigh_pairs(first, n, overlap, growth)
        for x in range(rows):
            for j in range(m):
                if abs(overlap[x, j]) < SMALLEST_WEIGHT:
                    overlap[x, j] = 0.0
        product(overlap, U_single, force)
        for x in range(rows):
            i = first + x
            for k in range(D):
                F[i, k] = F[i, k] + force[x, k] if near[x] else force[x, k]
        add_axes(first, last, U, a, F, growth)
