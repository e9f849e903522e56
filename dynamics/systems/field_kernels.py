"""Compiled field of unit vectors, the coordinates in which large flows and gradient descent are computed.

Executed after the rendered link kernels g0 = g and g1 = g' and `array_kernels`. Row i is a unit vector u_i in R^D, n_i
its squared norm:

    F_i = Σ_p a_p g'(u_i·θ_p) θ_p − Σ_{j≠i} n_j g'(u_i·u_j) u_j,   growth_i = Σ_p a_p g(u_i·θ_p) − Σ_j n_j g(u_i·u_j)

The overlap flow is u' = F − (F·u) u, (ln n)' = 4 growth; a neuron's force on itself is radial and left out of F. Two
products with all neurons, 4 m² D operations; overlaps of a block of rows stay in cache and are never stored.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compilation import entry

if TYPE_CHECKING:
    from dynamics.systems.array_kernels import FloatMatrix, FloatVector, cube
    from dynamics.systems.link_kernels import g0, g1

FIELD_BLOCK = 64  # rows whose overlaps stay in cache


@entry("void(i8, i8, f8[:,::1], f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[::1], f8[::1])")
def field_rows(
    begin: int,
    end: int,
    U: FloatMatrix,
    n: FloatVector,
    a: FloatVector,
    teacher: FloatMatrix,
    F: FloatMatrix,
    growth: FloatVector,
    work: FloatVector,
) -> None:
    """Write F and growth of rows begin … end − 1.

    `teacher` (P, D) holds the directions, or no row at all if they are the first P axes; `work` has 64 (m + P) numbers.
    """
    m, P, D = U.shape[0], a.size, U.shape[1]
    for first in range(begin, end, FIELD_BLOCK):
        last = min(first + FIELD_BLOCK, end)
        rows = last - first
        overlap = cube(work, 0, 1, rows, m)[0]
        np.dot(U[first:last], U.T, overlap)
        for x in range(rows):
            length = overlap[x, first + x]
            # Its own part is that of a unit vector, also where the row is not quite one yet.
            total = n[first + x] * (g0(1.0) - g0(length))
            for j in range(m):
                s = overlap[x, j]
                total += n[j] * g0(s)
                overlap[x, j] = -n[j] * g1(s)
            overlap[x, first + x] = 0.0
            growth[first + x] = -total
        np.dot(overlap, U, F[first:last])
        if teacher.shape[0] > 0:
            pull = cube(work, rows * m, 1, rows, P)[0]
            np.dot(U[first:last], teacher.T, pull)
            for x in range(rows):
                for p in range(P):
                    growth[first + x] += a[p] * g0(pull[x, p])
                    pull[x, p] = a[p] * g1(pull[x, p])
            for x in range(rows):
                for p in range(P):
                    for k in range(D):
                        F[first + x, k] += pull[x, p] * teacher[p, k]
        else:
            for i in range(first, last):
                for p in range(P):
                    growth[i] += a[p] * g0(U[i, p])
                    F[i, p] += a[p] * g1(U[i, p])
