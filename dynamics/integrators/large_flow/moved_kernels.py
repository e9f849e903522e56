"""Compiled change of the field when a few neurons have moved: 10 K m D operations for K of them, in place of 3 m² D.

`link` is the data of g, and the state (U, n, F, growth) has masses n, not their logarithms.
"""

from __future__ import annotations

import numpy as np

from dynamics.equations.pairs.link import g0, g1, write_both
from dynamics.kernels.arrays import Cube, Integers, Matrix, Vector
from dynamics.kernels.jit import entry
from dynamics.kernels.products import product
from dynamics.kernels.views import row_part

# Rows that are multiplied with the moved ones together: products of other shapes round differently.
PULLED_BLOCK = 128

Whole = tuple[Matrix, Vector, Matrix, Vector]
Pulls = tuple[Cube, Matrix]


@entry
def pull_rows(
    begin: int,
    end: int,
    link: Vector,
    state: Whole,
    place: Integers,
    both: tuple[Matrix, Vector],
    pulls: Pulls,
) -> None:
    """Add what has changed by K rows that moved to the field of rows begin … end − 1; write what these exert on them.

    `both` is (vectors, mass): `vectors` (2 K, D) holds where the moved rows are, then where they were, `mass` (2 K,)
    the masses, those of before negative, and `place` (m,) which of the K rows each row is, −1 for none. What block b of
    rows exerts on the moved ones goes to forces[b] and growths[b] of `pulls`, of shape (K, D) and (K,).
    """
    (U, n, F, growth), (vectors, mass), (forces, growths) = state, both, pulls
    D, count = vectors.shape[1], mass.size // 2
    whole, value, slope = g0(link, 1.0), np.empty(mass.size), np.empty(mass.size)
    for first in range(begin, end, PULLED_BLOCK):
        last, block = min(first + PULLED_BLOCK, end), first // PULLED_BLOCK
        size = last - first
        overlap, weights, force = np.empty((size, 2 * count)), np.empty((count, size)), np.empty((size, D))
        product(U[first:last], vectors.T, overlap)
        for j in range(count):
            growths[block, j] = 0.0
        for x in range(size):
            total, own, i = 0.0, place[first + x], first + x
            write_both(link, row_part(overlap, x, 0, 2 * count), value, slope)
            for j in range(count):
                weights[j, x] = -n[i] * slope[j] if j != own else 0.0
                growths[block, j] -= n[i] * (value[j] if j != own else whole)
            for j in range(2 * count):
                total += mass[j] * value[j]
                overlap[x, j] = -mass[j] * slope[j]
            if own < 0:
                growth[i] -= total
        product(weights, U[first:last], forces[block])
        product(overlap, vectors, force)
        for x in range(size):
            if place[first + x] < 0:
                for k in range(D):
                    F[first + x, k] += force[x, k]


@entry
def renew_moved(link: Vector, moved: Integers, a: Vector, pulls: Pulls, state: Whole) -> None:
    """Write the whole field of the rows that moved: what each block of rows exerts on them, and the teacher."""
    (U, _, F, growth), (forces, growths) = state, pulls
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
            F[i, p] += a[p] * g1(link, U[i, p])
            growth[i] += a[p] * g0(link, U[i, p])
