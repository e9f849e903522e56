"""The field of unit vectors: compiled passes over rows and pairs of neurons, in double or partly single precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dynamics.equations.link import BLOCK, g0, g1, write_both, write_g1
from dynamics.equations.vectors import add_pull
from dynamics.kernels.jit import entry, kernel, matrix, row_part, vector
from dynamics.kernels.products import product
from hermite.arrays import Matrix, Real, SingleMatrix, SingleVector, Vector, aligned

if TYPE_CHECKING:
    from dynamics.threads import Workers
    from hermite.arrays import Array

NEAR = 0.15  # overlap of two neurons from which on single precision is not enough
# Coordinates and weights below which zero takes their place: products of smaller ones are subnormal in single
# precision, and processors take a hundred times as long for those. Learned neurons become as orthogonal as that.
SMALLEST_COORDINATE, SMALLEST_WEIGHT = 1e-15, 1e-20


@kernel
def rounded_coordinate(u: float) -> float:
    """Return a coordinate, or 0 below `SMALLEST_COORDINATE` in size, where single precision gets slow."""
    return u if abs(u) > SMALLEST_COORDINATE else 0.0


# In double precision. Row i is a unit vector u_i in R^D, n_i its squared norm, and `link` is the data of g:
#
# F_i = Σ_p a_p g'(u_i·θ_p) θ_p − Σ_{j≠i} n_j g'(u_i·u_j) u_j,   growth_i = Σ_p a_p g(u_i·θ_p) − Σ_j n_j g(u_i·u_j)
#
# A neuron's force on itself is radial and left out of F. Two passes: `pair_products` writes one half of G = U Uᵀ, m² D
# operations, in blocks of rows, of which block b holds the columns from its own first row on; `field_rows` multiplies
# it with all neurons, 2 m² D.

#: (U, n) or (F, growth); (a, teacher).
Rows = tuple[Matrix, Vector]
Target = tuple[Vector, Matrix]
FIELD_BLOCK = 128  # rows whose overlaps stay in cache
# Numbers of scratch in which g and g' of a part of some overlaps stay in the fastest cache.
SCRATCH = 3 * BLOCK


@kernel
def weigh(link: Vector, mass: Vector, overlap: NDArray[Real], smallest: float, totals: Vector, scratch: Vector) -> None:
    """Replace overlaps s of R rows with S others by −n_j g'(s), or 0 if that is below `smallest`; write Σ_j n_j g(s).

    `overlap` is (R S,), `totals` (R,), `mass` (S,), `scratch` (`SCRATCH`,). g is computed in double.
    """
    R, S = totals.size, mass.size
    together = max(BLOCK // max(S, 1), 1)
    totals.fill(0.0)
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
    """Return block b of the stored half of G = U Uᵀ, a view: up to 128 rows, columns from its first row to m."""
    first = b * FIELD_BLOCK
    # Block c holds FIELD_BLOCK rows of m − c · FIELD_BLOCK numbers.
    offset = first * m - FIELD_BLOCK * FIELD_BLOCK * (b * (b - 1) // 2)
    return matrix(pairs, offset, min(FIELD_BLOCK, m - first), m - first)


@kernel
def multiply_pairs(shares: range, U: NDArray[Real], pairs: NDArray[Real]) -> None:
    """Write blocks of the products U Uᵀ of all m neurons to `pairs`: blocks b and B − 1 − b for each b in `shares`.

    B is the number of blocks; such pairs of a long and a short block take equal time.
    """
    m = U.shape[0]
    count = (m + FIELD_BLOCK - 1) // FIELD_BLOCK
    for low in shares:
        high = count - 1 - low
        for b in range(low, high + 1, max(high - low, 1)):
            first = b * FIELD_BLOCK
            product(U[first : min(first + FIELD_BLOCK, m)], U[first:].T, stored_block(pairs, b, m))


@entry
def pair_products(begin: int, end: int, U: NDArray[Real], pairs: NDArray[Real]) -> None:
    """Write blocks b and B − 1 − b of the products U Uᵀ, b = begin … end − 1, to `pairs`; B is their number.

    `pairs` is what `pair_storage` returns.
    """
    multiply_pairs(range(begin, end), U, pairs)


@kernel
def gather_rows(b: int, m: int, pairs: NDArray[Real], overlap: NDArray[Real]) -> None:
    """Write the rows of G = U Uᵀ in block b to `overlap` (rows, m), from the half of G that `pairs` stores."""
    first = b * FIELD_BLOCK
    block = stored_block(pairs, b, m)
    for x in range(overlap.shape[0]):
        for j in range(first, m):
            overlap[x, j] = block[x, j - first]
    for c in range(b):
        earlier_block, shift = stored_block(pairs, c, m), first - c * FIELD_BLOCK
        for x in range(overlap.shape[0]):
            for y in range(FIELD_BLOCK):
                overlap[x, c * FIELD_BLOCK + y] = earlier_block[y, shift + x]


@kernel
def weigh_pairs(
    link: Vector, first: int, n: Vector, overlap: NDArray[Real], smallest: float, growth: Vector, scratch: Vector
) -> None:
    """Replace overlaps of neurons from index `first` on by −n_j g', and subtract Σ_j n_j g from `growth` (rows,).

    n (m,) are squared norms, g and g' the link's kernel and its slope; weights below `smallest` become 0.
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
def add_teacher(
    link: Vector, first: int, last: int, U: Matrix, target: Target, F: Matrix, growth: Vector, pull: Vector,
    scratch: Vector,
) -> None:  # fmt: skip
    """Add the pull of the teacher to F and growth of the neurons `first` … `last` − 1, at unit vectors U.

    `pull` is scratch of P numbers per row.
    """
    (a, teacher), rows = target, last - first
    totals, weights = np.empty(rows), matrix(pull, 0, rows, a.size)
    if teacher.shape[0] > 0:
        product(U[first:last], teacher.T, weights)
    else:
        for x in range(rows):
            for p in range(a.size):
                weights[x, p] = U[first + x, p]
    weigh(link, -a, vector(pull, 0, rows * a.size), 0.0, totals, scratch)
    add_pull(weights, teacher, F[first:last])
    for x in range(rows):
        growth[first + x] -= totals[x]


@kernel
def write_field(
    blocks: range, link: Vector, state: Rows, target: Target, pairs: Vector, field: Rows, work: Vector
) -> None:
    """Write F and growth of the blocks of 128 rows that begin at the indices `blocks`.

    `state` is (U, n), `target` (a, teacher), `field` (F, growth); `pairs` is what `pair_products` wrote, and `work` has
    128 (m + P) numbers.
    """
    (U, n), (F, growth) = state, field
    m, scratch = n.size, np.empty(SCRATCH)
    for first in blocks:
        last = min(first + FIELD_BLOCK, m)
        rows = last - first
        overlap = matrix(work, 0, rows, m)
        gather_rows(first // FIELD_BLOCK, m, pairs, overlap)
        vector(growth, first, rows).fill(0.0)
        weigh_pairs(link, first, n, vector(work, 0, rows * m), 0.0, vector(growth, first, rows), scratch)
        product(overlap, U, F[first:last])
        pull = vector(work, rows * m, rows * target[0].size)
        add_teacher(link, first, last, U, target, F, growth, pull, scratch)


@entry
def field_rows(
    begin: int, end: int, link: Vector, state: Rows, target: Target, pairs: Vector, field: Rows, work: Vector
) -> None:
    """Write the field F and the growth of ln n of the neurons `begin` … `end` − 1, multiples of 128 or m.

    `state` is (U, n): unit vectors (m, D) in rows and squared norms (m,). `target` is (a, teacher): coefficients (P,)
    and directions (P, D), or no row if they are the first P axes. `link` is the data of its kernel g, and `pairs` the
    products U Uᵀ that `pair_products` has written. `field` is (F, growth), (m, D) and (m,), in the formulas of the
    comment above; `F` is not yet orthogonal to the neuron. `work` is scratch of 128 (m + P) numbers.
    """
    write_field(range(begin, end, FIELD_BLOCK), link, state, target, pairs, field, work)


# With the products of different neurons in single precision, wrong by some 1e-8, at twice the speed. Where two neurons
# are near each other their part is computed in double. Few of the m weights of a learned neuron matter in this
# precision: these alone are summed.

# Weights below this part of the teacher's force on a row may be left out, all together 3e-8 of it among 1000 neurons,
# and the part of them that may remain, since products of whole rows take as long as sums of about a tenth.
SMALLEST_PART, LARGEST_SHARE = 1e-9, 1.0 / 16.0


@entry
def round_rows(begin: int, end: int, U: Matrix, U_single: SingleMatrix) -> None:
    """Write rows begin … end − 1 of U to `U_single` in single precision, with tiny coordinates as 0."""
    for i in range(begin, end):
        for k in range(U.shape[1]):
            U_single[i, k] = rounded_coordinate(U[i, k])


@kernel
def take_near(
    link: Vector, x: int, i: int, U: Matrix, n: Vector, overlap: SingleMatrix, F: Matrix, growth: Vector
) -> bool:
    """Move the parts of neurons near neuron i from `overlap` to F and growth, in double; return whether there are any.

    x is the row of `overlap` for neuron i; near means an overlap above `NEAR` in size.
    """
    m, D = U.shape
    has_near = False
    for j in range(m):
        if abs(overlap[x, j]) > NEAR and j != i:
            if not has_near:
                row_part(F, i, 0, D).fill(0.0)
            has_near = True
            overlap[x, j] = 0.0
            s = 0.0
            for k in range(D):
                s += U[i, k] * U[j, k]
            # The row that the zero stands for is added as any other overlap is.
            growth[i] -= n[j] * (g0(link, s) - g0(link, 0.0))
            w = n[j] * (g1(link, s) - g1(link, 0.0))
            for k in range(D):
                F[i, k] -= w * U[j, k]
    return has_near


@kernel
def are_few(weights: SingleVector, limit: float) -> bool:
    """Return whether at most the share `LARGEST_SHARE` of the weights are above a limit in size."""
    count = 0
    for j in range(weights.size):
        count += abs(weights[j]) > limit
    return count <= LARGEST_SHARE * weights.size


@kernel
def limit_of_few(
    link: Vector, i: int, U: Matrix, n: Vector, a: Vector, weights: SingleVector, scratch: Vector
) -> float:
    """Return the size below which weights of neuron i do not matter, −1 if too many are above it."""
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
    """Write Σ_j w_j u_j (D,) to `force`, over the weights w_j that are above a limit in size."""
    force.fill(0.0)
    for j in range(weights.size):
        w = weights[j]
        if abs(w) > limit:
            for k in range(force.size):
                force[k] += w * U[j, k]


@entry
def field_rows_single(
    begin: int, end: int, link: Vector, state: tuple[Matrix, SingleMatrix, Vector], a: Vector, pairs: SingleVector,
    field: Rows, work: SingleVector,
) -> None:  # fmt: skip
    """Write the field (F, growth) of rows begin … end − 1, with most products in single precision.

    `state` is (U, U in single precision, n); the directions, with coefficients a, are the first P axes.
    """
    (U, U_single, n), (F, growth) = state, field
    (m, D), scratch, pull = U.shape, np.empty(SCRATCH), np.empty(FIELD_BLOCK * a.size)
    for first in range(begin, end, FIELD_BLOCK):
        last = min(first + FIELD_BLOCK, end)
        rows = last - first
        overlap, force = matrix(work, 0, rows, m), matrix(work, rows * m, rows, D)
        gather_rows(first // FIELD_BLOCK, m, pairs, overlap)
        vector(growth, first, rows).fill(0.0)
        near, place, full_rows = np.empty(rows, dtype=np.bool_), np.empty(rows, dtype=np.int64), 0
        for x in range(rows):
            near[x] = take_near(link, x, first + x, U, n, overlap, F, growth)
        weigh_pairs(link, first, n, vector(work, 0, rows * m), SMALLEST_WEIGHT, vector(growth, first, rows), scratch)
        # Rows with many weights move to the front, their forces too; those with few are summed from the end.
        for x in range(rows):
            weights = row_part(overlap, x, 0, m)
            limit = limit_of_few(link, first + x, U, n, a, weights, scratch)
            place[x] = full_rows if limit < 0.0 else rows - 1 - (x - full_rows)
            if limit >= 0.0:
                sum_few(weights, limit, U_single, row_part(force, place[x], 0, D))
                continue
            for j in range(m if full_rows < x else 0):
                overlap[full_rows, j] = weights[j]
            full_rows += 1
        if full_rows > 0:
            product(matrix(work, 0, full_rows, m), U_single, matrix(work, rows * m, full_rows, D))
        for x in range(rows):
            i, z = first + x, place[x]
            for k in range(D):
                F[i, k] = F[i, k] + force[z, k] if near[x] else force[z, k]
        add_teacher(link, first, last, U, (a, U[:0]), F, growth, pull, scratch)


class UnitField:
    """Computes the field of m neurons; directions are the rows of `teacher`, or with no row the first P axes."""

    def __init__(self, link: Array, workers: Workers, a: Array, teacher: Array, m: int) -> None:
        """Prepare the field for m neurons and directions with coefficients a (P,); `link` is the data of g."""
        self._link, self._workers, self._target = link, workers, (a, teacher)
        self.pairs, self.work_size = pair_storage(m), FIELD_BLOCK * (m + a.size)

    def write(self, U: Array, n: Array, F: Array, growth: Array) -> None:
        """Write F (m, D) and growth (m,) at unit vectors U and squared norms n; 3 m² D operations."""

        def rows(begin: int, end: int) -> None:
            """Write the field of rows begin … end − 1, with scratch of their own thread."""
            work = np.empty(self.work_size)
            field_rows(begin, end, self._link, (U, n), self._target, self.pairs, (F, growth), work)

        self._workers.over_parts(_halves(n.size), lambda begin, end: pair_products(begin, end, U, self.pairs))
        self._workers.over_rows(rows)


class SingleUnitField:
    """Computes the field with products in single precision, twice as fast; directions are the first P axes."""

    def __init__(self, link: Array, workers: Workers, a: Array, m: int, columns: int) -> None:
        """Prepare the field for m neurons in `columns` dimensions, and coefficients a (P,) of directions."""
        self._link, self._workers, self._a = link, workers, a
        self._pairs, self._units = pair_storage(m, np.float32), aligned(m, columns, dtype=np.float32)

    def write(self, U: Array, n: Array, F: Array, growth: Array) -> None:
        """Write F (m, D) and growth (m,) at unit vectors U and squared norms n; 3 m² D operations."""
        units, pairs = self._units, self._pairs

        def rows(begin: int, end: int) -> None:
            """Write the field of rows begin … end − 1, with scratch of their own thread."""
            work = np.empty(FIELD_BLOCK * sum(units.shape), dtype=np.float32)
            field_rows_single(begin, end, self._link, (U, units, n), self._a, pairs, (F, growth), work)

        self._workers.over_rows(lambda begin, end: round_rows(begin, end, U, units))
        self._workers.over_parts(_halves(n.size), lambda begin, end: pair_products(begin, end, units, pairs))
        self._workers.over_rows(rows)


def _halves(m: int) -> int:
    """Return the number of pairs of a long and a short block in the stored half of G = U Uᵀ of m neurons."""
    return (-(-m // FIELD_BLOCK) + 1) // 2


def pair_storage(m: int, dtype: type[np.floating] = np.float64) -> NDArray[Any]:
    """Return an array for the half of G = U Uᵀ that `pair_products` writes: blocks of rows from the diagonal on."""
    return aligned(sum(min(FIELD_BLOCK, m - first) * (m - first) for first in range(0, m, FIELD_BLOCK)), dtype=dtype)
