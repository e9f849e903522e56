"""Products of a block of a few rows with the rows of another matrix, in either precision, by loops or by BLAS.

BLAS copies its factors before it multiplies them; for four rows that takes several times as long as the product. So
loops keep two rows times four others in registers, and a part of their columns in the first level of cache. OpenBLAS's
kernels for AVX-512 copy no factor of a small product; where BLAS has them
(`has_kernels_for_small_matrices`) it is faster.
"""

from numpy.typing import NDArray

from dynamics.kernels.arrays import Real
from dynamics.kernels.jit import kernel
from dynamics.kernels.products import product
from dynamics.kernels.views import row_part

COLUMNS = 512
#: Products of numbers up to which BLAS copies no factor.
UNCOPIED = 1e6


@kernel
def add_overlaps(
    u: NDArray[Real],
    v: NDArray[Real],
    others: NDArray[Real],
    begin: int,
    j: int,
    of_u: NDArray[Real],
    of_v: NDArray[Real],
) -> None:
    """Add the products of parts of two rows, from column `begin` on, with the others j to j + 3.

    Where there are fewer, the last one takes the place of those missing: the same number is written twice, as where u
    and v are one row.
    """
    end = others.shape[0] - 1
    a, b, c, d = j, min(j + 1, end), min(j + 2, end), min(j + 3, end)
    row_a, row_b = row_part(others, a, begin, u.size), row_part(others, b, begin, u.size)
    row_c, row_d = row_part(others, c, begin, u.size), row_part(others, d, begin, u.size)
    u_a, u_b, u_c, u_d = of_u[a], of_u[b], of_u[c], of_u[d]
    v_a, v_b, v_c, v_d = of_v[a], of_v[b], of_v[c], of_v[d]
    for k in range(u.size):
        x, y = u[k], v[k]
        u_a += x * row_a[k]
        u_b += x * row_b[k]
        u_c += x * row_c[k]
        u_d += x * row_d[k]
        v_a += y * row_a[k]
        v_b += y * row_b[k]
        v_c += y * row_c[k]
        v_d += y * row_d[k]
    of_u[a], of_u[b], of_u[c], of_u[d] = u_a, u_b, u_c, u_d
    of_v[a], of_v[b], of_v[c], of_v[d] = v_a, v_b, v_c, v_d


@kernel
def overlaps_of_rows(by_blas: bool, rows: NDArray[Real], others: NDArray[Real], out: NDArray[Real]) -> None:
    """Set out = rows othersᵀ."""
    if by_blas:
        product(rows, others.T, out)
        return
    (R, D), S = rows.shape, others.shape[0]
    for x in range(R):
        for j in range(S):
            out[x, j] = 0.0
    for begin in range(0, D, COLUMNS):
        count = min(COLUMNS, D - begin)
        for j in range(0, S, 4):
            for x in range(0, R, 2):
                y = min(x + 1, R - 1)
                u, v = row_part(rows, x, begin, count), row_part(rows, y, begin, count)
                add_overlaps(u, v, others, begin, j, row_part(out, x, 0, S), row_part(out, y, 0, S))


@kernel
def add_to_two(
    u: NDArray[Real],
    v: NDArray[Real],
    of_u: NDArray[Real],
    of_v: NDArray[Real],
    others: NDArray[Real],
    begin: int,
    j: int,
) -> None:
    """Add multiples of the others j to j + 3 to parts of two rows, from column `begin` on."""
    row_a, row_b = row_part(others, j, begin, u.size), row_part(others, j + 1, begin, u.size)
    row_c, row_d = row_part(others, j + 2, begin, u.size), row_part(others, j + 3, begin, u.size)
    u_a, u_b, u_c, u_d = of_u[j], of_u[j + 1], of_u[j + 2], of_u[j + 3]
    v_a, v_b, v_c, v_d = of_v[j], of_v[j + 1], of_v[j + 2], of_v[j + 3]
    for k in range(u.size):
        a, b, c, d = row_a[k], row_b[k], row_c[k], row_d[k]
        u[k] += u_a * a + u_b * b + u_c * c + u_d * d
        v[k] += v_a * a + v_b * b + v_c * c + v_d * d


@kernel
def add_to_one(u: NDArray[Real], of_u: NDArray[Real], others: NDArray[Real], begin: int, j: int) -> None:
    """Add a multiple of the other j, and of j + 1 if there is one, to a part of a row."""
    last = min(j + 1, others.shape[0] - 1)
    row_a, row_b = row_part(others, j, begin, u.size), row_part(others, last, begin, u.size)
    u_a, u_b = of_u[j], of_u[last] if last > j else 0.0
    for k in range(u.size):
        u[k] += u_a * row_a[k] + u_b * row_b[k]


@kernel
def sums_of_others(by_blas: bool, weights: NDArray[Real], others: NDArray[Real], out: NDArray[Real]) -> None:
    """Set out = weights others."""
    if by_blas:
        product(weights, others, out)
        return
    (R, D), S = out.shape, others.shape[0]
    paired, fours = R - R % 2, S - S % 4
    for x in range(R):
        for k in range(D):
            out[x, k] = 0.0
    for begin in range(0, D, COLUMNS):
        count = min(COLUMNS, D - begin)
        for j in range(0, fours, 4):
            for x in range(0, paired, 2):
                u, v = row_part(out, x, begin, count), row_part(out, x + 1, begin, count)
                add_to_two(u, v, row_part(weights, x, 0, S), row_part(weights, x + 1, 0, S), others, begin, j)
        for x in range(R):
            for j in range(fours if x < paired else 0, S, 2):
                add_to_one(row_part(out, x, begin, count), row_part(weights, x, 0, S), others, begin, j)
