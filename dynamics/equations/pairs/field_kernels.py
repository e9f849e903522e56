"""Compiled field of unit vectors, the coordinates in which large flows and gradient descent are computed.

Executed after the rendered link kernels g0 = g and g1 = g' and `array_kernels`. Row i is a unit vector u_i in R^D, n_i
its squared norm:

    F_i = Σ_p a_p g'(u_i·θ_p) θ_p − Σ_{j≠i} n_j g'(u_i·u_j) u_j,   growth_i = Σ_p a_p g(u_i·θ_p) − Σ_j n_j g(u_i·u_j)

The overlap flow is u' = F − (F·u) u, (ln n)' = 4 growth; a neuron's force on itself is radial and left out of F. Two
passes: `pair_products` writes G = U Uᵀ, one half of it since it is symmetric, m² D operations; `field_rows` multiplies
it with all neurons, 2 m² D. G is stored in blocks of rows: block b holds the columns from its own first row on.
"""

from typing import TYPE_CHECKING

from numpy.typing import NDArray

from dynamics.compiler.arrays import Matrix, Real, Vector
from dynamics.compiler.compilation import counting_kernel, entry, kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix, product
    from dynamics.equations.pairs.link_kernels import g0, g1

FIELD_BLOCK = 128  # rows whose overlaps stay in cache


@counting_kernel
def stored_block(pairs: NDArray[Real], b: int, m: int) -> NDArray[Real]:
    """Return block b of the stored half of G: its rows, and the columns from its first row on."""
    first = b * FIELD_BLOCK
    # Block c holds FIELD_BLOCK rows of m − c · FIELD_BLOCK numbers.
    offset = first * m - FIELD_BLOCK * FIELD_BLOCK * (b * (b - 1) // 2)
    return matrix(pairs, offset, min(FIELD_BLOCK, m - first), m - first)


@kernel
def multiply_pairs(begin: int, end: int, U: NDArray[Real], pairs: NDArray[Real]) -> None:
    """Write the products of all neurons, blocks b and B − 1 − b for b = begin … end − 1, of B blocks: equal shares."""
    m = U.shape[0]
    count = (m + FIELD_BLOCK - 1) // FIELD_BLOCK
    for low in range(begin, end):
        high = count - 1 - low
        for b in range(low, high + 1, max(high - low, 1)):
            first = b * FIELD_BLOCK
            product(U[first : min(first + FIELD_BLOCK, m)], U[first:].T, stored_block(pairs, b, m))


@entry("void(i8, i8, f8[:,::1], f8[::1])")
def pair_products(begin: int, end: int, U: Matrix, pairs: Vector) -> None:
    """Write G = U Uᵀ to `pairs`, which has m (m + 128) / 2 numbers, rounded up to whole blocks."""
    multiply_pairs(begin, end, U, pairs)


@kernel
def gather_rows(b: int, m: int, pairs: NDArray[Real], overlap: NDArray[Real]) -> None:
    """Write the rows of G in block b: the stored half, and the transpose of what earlier blocks hold."""
    first = b * FIELD_BLOCK
    own = stored_block(pairs, b, m)
    for x in range(overlap.shape[0]):
        for j in range(first, m):
            overlap[x, j] = own[x, j - first]
    for c in range(b):
        other, shift = stored_block(pairs, c, m), first - c * FIELD_BLOCK
        for x in range(overlap.shape[0]):
            for y in range(FIELD_BLOCK):
                overlap[x, c * FIELD_BLOCK + y] = other[y, shift + x]


@kernel
def weigh_pairs(first: int, n: Vector, overlap: NDArray[Real], growth: Vector) -> None:
    """Replace the overlaps of rows first, … with all neurons by −n_j g', and subtract their part of the growth.

    A row's own part is that of a unit vector, also where the row is not quite one yet.
    """
    for x in range(overlap.shape[0]):
        total = n[first + x] * (g0(1.0) - g0(float(overlap[x, first + x])))
        # Apart from each other, since a loop with a sum is not vectorised.
        for j in range(overlap.shape[1]):
            total += n[j] * g0(float(overlap[x, j]))
        for j in range(overlap.shape[1]):
            overlap[x, j] = -n[j] * g1(float(overlap[x, j]))
        overlap[x, first + x] = 0.0
        growth[first + x] -= total


@kernel
def add_axes(first: int, last: int, U: Matrix, a: Vector, F: Matrix, growth: Vector) -> None:
    """Add the teacher of rows first … last − 1, its directions being the first axes."""
    for i in range(first, last):
        # A sum in memory could be any of the arrays, for all the compiler knows.
        total = 0.0
        for p in range(a.size):
            total += a[p] * g0(U[i, p])
        for p in range(a.size):
            F[i, p] += a[p] * g1(U[i, p])
        growth[i] += total


@entry("void(i8, i8, f8[:,::1], f8[::1], f8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[::1])")
def field_rows(
    begin: int,
    end: int,
    U: Matrix,
    n: Vector,
    a: Vector,
    teacher: Matrix,
    pairs: Vector,
    F: Matrix,
    growth: Vector,
    work: Vector,
) -> None:
    """Write F and growth of rows begin … end − 1, begin a multiple of 128, from what `pair_products` wrote.

    `teacher` (P, D) holds the directions, or no row if they are the first P axes; `work` has 128 (m + P) numbers.
    """
    m, P, D = U.shape[0], a.size, U.shape[1]
    for first in range(begin, end, FIELD_BLOCK):
        last = min(first + FIELD_BLOCK, end)
        rows = last - first
        overlap = matrix(work, 0, rows, m)
        gather_rows(first // FIELD_BLOCK, m, pairs, overlap)
        for i in range(first, last):
            growth[i] = 0.0
        weigh_pairs(first, n, overlap, growth)
        product(overlap, U, F[first:last])
        if teacher.shape[0] > 0:
            pull = matrix(work, rows * m, rows, P)
            product(U[first:last], teacher.T, pull)
            for x in range(rows):
                for p in range(P):
                    growth[first + x] += a[p] * g0(pull[x, p])
                    pull[x, p] = a[p] * g1(pull[x, p])
            for x in range(rows):
                for p in range(P):
                    for k in range(D):
                        F[first + x, k] += pull[x, p] * teacher[p, k]
        else:
            add_axes(first, last, U, a, F, growth)
