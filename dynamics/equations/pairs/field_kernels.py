"""Compiled field of unit vectors, the coordinates in which large flows and gradient descent are computed.

Row i is a unit vector u_i in R^D, n_i its squared norm, and `link` is the data of g (`link`):

    F_i = Σ_p a_p g'(u_i·θ_p) θ_p − Σ_{j≠i} n_j g'(u_i·u_j) u_j,   growth_i = Σ_p a_p g(u_i·θ_p) − Σ_j n_j g(u_i·u_j)

The overlap flow is u' = F − (F·u) u, (ln n)' = 4 growth; a neuron's force on itself is radial and left out of F. Two
passes: `pair_products` writes G = U Uᵀ, one half of it since it is symmetric, m² D operations; `field_rows` multiplies
it with all neurons, 2 m² D. G is stored in blocks of rows: block b holds the columns from its own first row on.
"""

import numpy as np
from numpy.typing import NDArray

from dynamics.equations.pairs.link import BLOCK, write_both
from dynamics.kernels.arrays import Matrix, Real, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.products import product
from dynamics.kernels.views import matrix, row_part, vector

FIELD_BLOCK = 128  # rows whose overlaps stay in cache
# Numbers of scratch in which g and g' of a part of some overlaps stay in the fastest cache.
SCRATCH = 3 * BLOCK


@kernel
def weigh(link: Vector, mass: Vector, overlap: NDArray[Real], smallest: float, totals: Vector, scratch: Vector) -> None:
    """Replace overlaps s of rows with S others by −n_j g'(s), or 0 if that is below `smallest`; write Σ_j n_j g(s).

    `overlap` (R S,) holds row after row, `totals` (R,) takes the sums, `mass` (S,) holds n, and `scratch` has `SCRATCH`
    numbers. In either precision of the overlaps g is computed in double.
    """
    R, S = totals.size, mass.size
    together = max(BLOCK // max(S, 1), 1)
    for x in range(R):
        totals[x] = 0.0
    for first in range(0, R, together):
        rows = min(together, R - first)
        for begin in range(0, S, BLOCK):
            width = min(BLOCK, S - begin)
            size = rows * width
            part, n = vector(overlap, first * S + begin, size), vector(mass, begin, width)
            s, value, slope = vector(scratch, 0, size), vector(scratch, BLOCK, size), vector(scratch, 2 * BLOCK, size)
            for j in range(size):
                s[j] = part[j]
            write_both(link, s, value, slope)
            for x in range(rows):
                # Apart from each other, since a loop with a sum is not vectorised.
                total, o = 0.0, x * width
                for j in range(width):
                    total += n[j] * value[o + j]
                totals[first + x] += total
                for j in range(width):
                    w = n[j] * slope[o + j]
                    part[o + j] = 0.0 if abs(w) < smallest else -w


@kernel
def stored_block(pairs: NDArray[Real], b: int, m: int) -> NDArray[Real]:
    """Return block b of the stored half of G: its rows, and the columns from its first row on."""
    first = b * FIELD_BLOCK
    # Block c holds FIELD_BLOCK rows of m − c · FIELD_BLOCK numbers.
    offset = first * m - FIELD_BLOCK * FIELD_BLOCK * (b * (b - 1) // 2)
    return matrix(pairs, offset, min(FIELD_BLOCK, m - first), m - first)


@kernel
def multiply_pairs(shares: range, U: NDArray[Real], pairs: NDArray[Real]) -> None:
    """Write the products of all neurons, blocks b and B − 1 − b for b in `shares`, of B blocks: equal shares."""
    m = U.shape[0]
    count = (m + FIELD_BLOCK - 1) // FIELD_BLOCK
    for low in shares:
        high = count - 1 - low
        for b in range(low, high + 1, max(high - low, 1)):
            first = b * FIELD_BLOCK
            product(U[first : min(first + FIELD_BLOCK, m)], U[first:].T, stored_block(pairs, b, m))


@entry
def pair_products(begin: int, end: int, U: NDArray[Real], pairs: NDArray[Real]) -> None:
    """Write parts of G = U Uᵀ to `pairs`, which has m (m + 128) / 2 numbers, rounded up to whole blocks."""
    multiply_pairs(range(begin, end), U, pairs)


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
def weigh_pairs(
    link: Vector, first: int, n: Vector, overlap: NDArray[Real], smallest: float, growth: Vector, scratch: Vector
) -> None:
    """Replace the overlaps of rows first, … with all neurons by −n_j g', and subtract their part of the growth.

    `overlap` holds row after row, and `growth` one number per row. A row's own part is that of a unit vector, also
    where the row is not quite one yet. See `weigh` for `smallest` and `scratch`.
    """
    rows, m = growth.size, n.size
    totals = np.empty(rows)
    for x in range(rows):
        overlap[x * m + first + x] = 1.0
    weigh(link, n, overlap, smallest, totals, scratch)
    for x in range(rows):
        overlap[x * m + first + x] = 0.0
        growth[x] -= totals[x]


@kernel
def add_axes(
    link: Vector, first: int, last: int, U: Matrix, a: Vector, F: Matrix, growth: Vector, scratch: Vector
) -> None:
    """Add the teacher of rows first … last − 1, its directions being the first axes."""
    P = a.size
    together = max(BLOCK // P, 1)
    for begin_row in range(first, last, together):
        rows = min(together, last - begin_row)
        for begin in range(0, P, BLOCK):
            width = min(BLOCK, P - begin)
            size, weights = rows * width, vector(a, begin, width)
            s, value, slope = vector(scratch, 0, size), vector(scratch, BLOCK, size), vector(scratch, 2 * BLOCK, size)
            for x in range(rows):
                C, o = row_part(U, begin_row + x, begin, width), x * width
                for p in range(width):
                    s[o + p] = C[p]
            write_both(link, s, value, slope)
            for x in range(rows):
                force, o = row_part(F, begin_row + x, begin, width), x * width
                # A sum in memory could be any of the arrays, for all the compiler knows.
                total = 0.0
                for p in range(width):
                    total += weights[p] * value[o + p]
                for p in range(width):
                    force[p] += weights[p] * slope[o + p]
                growth[begin_row + x] += total


@kernel
def add_directions(
    link: Vector,
    first: int,
    last: int,
    U: Matrix,
    a: Vector,
    teacher: Matrix,
    F: Matrix,
    growth: Vector,
    pull: Vector,
    scratch: Vector,
) -> None:
    """Add the teacher of rows first … last − 1, its directions being the rows of `teacher`.

    `pull` takes P numbers of each row.
    """
    rows, P, D = last - first, a.size, U.shape[1]
    totals, weights = np.empty(rows), matrix(pull, 0, rows, P)
    product(U[first:last], teacher.T, weights)
    weigh(link, a, vector(pull, 0, rows * P), 0.0, totals, scratch)
    for x in range(rows):
        growth[first + x] += totals[x]
        for p in range(P):
            for k in range(D):
                F[first + x, k] -= weights[x, p] * teacher[p, k]


@kernel
def write_field(
    blocks: range,
    link: Vector,
    state: tuple[Matrix, Vector],
    target: tuple[Vector, Matrix],
    pairs: Vector,
    field: tuple[Matrix, Vector],
    work: Vector,
) -> None:
    """Write F and growth of blocks of rows as `field_rows` does, given where they begin."""
    (U, n), (a, teacher), (F, growth) = state, target, field
    m, scratch = n.size, np.empty(SCRATCH)
    for first in blocks:
        last = min(first + FIELD_BLOCK, m)
        rows = last - first
        overlap = matrix(work, 0, rows, m)
        gather_rows(first // FIELD_BLOCK, m, pairs, overlap)
        for i in range(first, last):
            growth[i] = 0.0
        weigh_pairs(link, first, n, vector(work, 0, rows * m), 0.0, vector(growth, first, rows), scratch)
        product(overlap, U, F[first:last])
        if teacher.shape[0] > 0:
            pull = vector(work, rows * m, rows * a.size)
            add_directions(link, first, last, U, a, teacher, F, growth, pull, scratch)
        else:
            add_axes(link, first, last, U, a, F, growth, scratch)


@entry
def field_rows(
    begin: int,
    end: int,
    link: Vector,
    state: tuple[Matrix, Vector],
    target: tuple[Vector, Matrix],
    pairs: Vector,
    field: tuple[Matrix, Vector],
    work: Vector,
) -> None:
    """Write the field (F, growth) of rows begin … end − 1, both multiples of 128 or m, from what `pair_products` wrote.

    The state is (U, n), the target (a, teacher): `teacher` (P, D) holds the directions, or no row if they are the first
    P axes; `work` has 128 (m + P) numbers.
    """
    write_field(range(begin, end, FIELD_BLOCK), link, state, target, pairs, field, work)
