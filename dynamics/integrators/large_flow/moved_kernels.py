"""Compiled change of the field when a few neurons have moved: 12 K m D operations for K of them, in place of 3 m² D.

Executed after the link kernels; compiled apart, since only flows of many neurons need it.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Matrix, Switches, Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.equations.pairs.link_kernels import g0, g1

# Rows that are pulled, and rows whose field is computed anew, together: products of other shapes round differently.
PULLED_BLOCK, MOVED_BLOCK = 128, 16


@entry("void(i8, i8, f8[:,::1], b1[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1])")
def pull_rows(
    begin: int, end: int, U: Matrix, moved: Switches, vectors: Matrix, mass: Vector, F: Matrix, growth: Vector
) -> None:
    """Add what unit vectors of positive or negative mass exert on rows begin … end − 1, but on those that moved."""
    D, K = vectors.shape[1], mass.size
    for first in range(begin, end, PULLED_BLOCK):
        last = min(first + PULLED_BLOCK, end)
        overlap, force = np.empty((last - first, K)), np.empty((last - first, D))
        np.dot(U[first:last], vectors.T, overlap)
        for x in range(last - first):
            total = 0.0
            for j in range(K):
                s = overlap[x, j]
                total += mass[j] * g0(s)
                overlap[x, j] = -mass[j] * g1(s)
            if not moved[first + x]:
                growth[first + x] -= total
        np.dot(overlap, vectors, force)
        for x in range(last - first):
            if not moved[first + x]:
                for k in range(D):
                    F[first + x, k] += force[x, k]


@entry("void(i8, i8, i8[::1], f8[:,::1], f8[::1], f8[::1], f8[:,::1], f8[::1])")
def moved_field(
    begin: int, end: int, moved: Integers, U: Matrix, n: Vector, a: Vector, F: Matrix, growth: Vector
) -> None:
    """Write the whole field of the rows moved[16 b : 16 b + 16] for b = begin … end − 1, in double precision."""
    m, D = U.shape
    for b in range(begin, end):
        rows = moved[b * MOVED_BLOCK : (b + 1) * MOVED_BLOCK]
        u, overlap = np.empty((rows.size, D)), np.empty((rows.size, m))
        for x in range(rows.size):
            for k in range(D):
                u[x, k] = U[rows[x], k]
        np.dot(u, U.T, overlap)
        for x in range(rows.size):
            i = rows[x]
            total = n[i] * (g0(1.0) - g0(overlap[x, i]))
            for j in range(m):
                s = overlap[x, j]
                total += n[j] * g0(s)
                overlap[x, j] = -n[j] * g1(s)
            overlap[x, i] = 0.0
            growth[i] = -total
        np.dot(overlap, U, u)
        for x in range(rows.size):
            i = rows[x]
            total = 0.0
            for k in range(D):
                F[i, k] = u[x, k]
            for p in range(a.size):
                s = U[i, p]
                total += a[p] * g0(s)
                F[i, p] += a[p] * g1(s)
            growth[i] += total
