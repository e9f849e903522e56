"""The kernels of pairs of a student whose means are sums over lists; executed after `list_kernels`."""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import counting_kernel, kernel

if TYPE_CHECKING:
    from dynamics.equations.network.list_kernels import *
    from dynamics.equations.network.smooth_own_kernels import *

    # A constant of the source, so that what links that are alike do not need is not compiled.
    HAS_TABLES = True


@kernel
def write_row(link: int, q: float, b: float, numbers: Vector, row: Vector) -> None:
    """Write the numbers of one unit of variance q = |w|² and bias b."""
    row[0], row[1] = q, b
    head = int(numbers[1]) + HEADER * link
    if HAS_TABLES and int(numbers[head]) == TABLE:
        read_table(q, b, 0, 4, int(numbers[head + 1]), numbers, row[2:6])
    write_list_row(link, q, b, numbers, row)


@kernel
def pair_values(
    link: int, c: float, row_a: Vector, row_b: Vector, numbers: Vector
) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron a and a unit b of a teacher's link >= 1 at covariance c."""
    return list_pair(c, row_a, row_b, numbers)


@kernel
def own_values(row: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron with itself."""
    if HAS_TABLES and int(numbers[int(numbers[1])]) == TABLE:
        return row[2], row[3], row[4], row[5]
    return list_pair(row[0], row, row, numbers)


@kernel
def write_moments(link: int, c: float, row_a: Vector, row_b: Vector, numbers: Vector, out: Matrix) -> None:
    """out[p, q] = E σ_a^(p) σ_b^(q), p + q <= 4, of a neuron a and a unit b of any link, 0 for another neuron."""
    list_moments(c, row_a, row_b, numbers, out)


@counting_kernel
def own_slopes(row: Vector, numbers: Vector, out: Matrix) -> None:
    """out[n, 0] and out[n, 1] = derivatives in q and in b of number n of `own_values`."""
    mean = np.empty((5, 5))
    list_moments(row[0], row, row, numbers, mean)
    slopes_from_moments(mean, out)
