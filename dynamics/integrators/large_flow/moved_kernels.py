"""Compiled change of the field when a few neurons have moved: 10 K m D operations for K of them, in place of 3 m² D.

Executed after the link kernels and `array_kernels`; compiled apart, since only flows of many neurons need it.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Cube, Integers, Matrix, Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import product
    from dynamics.equations.pairs.link_kernels import g0, g1

# Rows that are multiplied with the moved ones together: products of other shapes round differently.
PULLED_BLOCK = 128


@entry("void(i8, i8, f8[:,::1], f8[::1], i8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1])")
def pull_rows(
    begin: int,
    end: int,
    U: Matrix,
    n: Vector,
    place: Integers,
    vectors: Matrix,
    mass: Vector,
    F: Matrix,
    growth: Vector,
    forces: Cube,
    growths: Matrix,
) -> None:
    """Add what has changed by K rows that moved to the field of rows begin … end − 1; write what these exert on them.

    `vectors` (2 K, D) holds where the moved rows are, then where they were, `mass` (2 K,) the masses, those of before
    negative, and `place` (m,) which of the K rows each row is, −1 for none. What block b of rows exerts on the moved
    ones goes to forces[b] and growths[b], of shape (K, D) and (K,).
    """
    D, count = vectors.shape[1], mass.size // 2
    for first in range(begin, end, PULLED_BLOCK):
        last, block = min(first + PULLED_BLOCK, end), first // PULLED_BLOCK
        size = last - first
        overlap, weights, force = np.empty((size, 2 * count)), np.empty((count, size)), np.empty((size, D))
        product(U[first:last], vectors.T, overlap)
        for j in range(count):
            growths[block, j] = 0.0
        for x in range(size):
            total, own, i = 0.0, place[first + x], first + x
            for j in range(count):
                s = overlap[x, j]
                weights[j, x] = -n[i] * g1(s) if j != own else 0.0
                growths[block, j] -= n[i] * g0(s if j != own else 1.0)
            for j in range(2 * count):
                s = overlap[x, j]
                total += mass[j] * g0(s)
                overlap[x, j] = -mass[j] * g1(s)
            if own < 0:
                growth[i] -= total
        product(weights, U[first:last], forces[block])
        product(overlap, vectors, force)
        for x in range(size):
            if place[first + x] < 0:
                for k in range(D):
                    F[first + x, k] += force[x, k]


@entry("void(i8[::1], f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], f8[:,::1], f8[::1])")
def renew_moved(
    moved: Integers, U: Matrix, a: Vector, forces: Cube, growths: Matrix, F: Matrix, growth: Vector
) -> None:
    """Write the whole field of the rows that moved: what each block of rows exerts on them, and the teacher."""
    for j in range(moved.size):
        i = moved[j]
        growth[i] = 0.0
        for k in range(F.shape[1]):
            F[i, k] = 0.0
        for b in range(forces.shape[0]):
            growth[i] += growths[b, j]
            for k in range(F.shape[1]):
                F[i, k] += forces[b, j, k]
        for p in range(a.size):
            F[i, p] += a[p] * g1(U[i, p])
            growth[i] += a[p] * g0(U[i, p])
