"""The kernels of pairs of a relu or erf student; executed after those of the student and `list_kernels`.

A teacher link with a threshold has a closed form, a polynomial a sum.
"""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.erf_student_kernels import *
    from dynamics.equations.network.list_kernels import *
    from dynamics.equations.network.threshold_kernels import *


@kernel
def write_row(link: int, q: float, b: float, numbers: Vector, row: Vector) -> None:
    """Write the numbers of one unit of variance q = |w|² and bias b."""
    family = int(numbers[int(numbers[1]) + HEADER * link])
    if family <= 2:
        write_threshold_row(family, q, b, row)
    write_list_row(link, q, b, numbers, row)


@kernel
def pair_values(
    link: int, c: float, row_a: Vector, row_b: Vector, numbers: Vector
) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron a and a unit b of a teacher's link >= 1 at covariance c."""
    family = int(numbers[int(numbers[1]) + HEADER * link])
    if family <= 2:
        return threshold_pair(family, c, row_a, row_b)
    return list_pair(c, row_a, row_b, numbers)


@kernel
def mutual_values(
    c: float, row_i: Vector, row_j: Vector, numbers: Vector
) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji of two neurons at covariance c."""
    return threshold_mutual(c, row_i, row_j)


@kernel
def own_values(row: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron with itself."""
    return threshold_own(row)


@kernel
def write_moments(link: int, c: float, row_a: Vector, row_b: Vector, numbers: Vector, out: Matrix) -> None:
    """out[p, q] = E σ_a^(p) σ_b^(q), p + q <= 4, of a neuron a and a unit b of any link, 0 for another neuron."""
    family = int(numbers[int(numbers[1]) + HEADER * link])
    if family <= 2:
        threshold_moments(family, c, row_a, row_b, out)
    else:
        list_moments(c, row_a, row_b, numbers, out)


@kernel
def own_slopes(row: Vector, numbers: Vector, out: Matrix) -> None:
    """out[n, 0] and out[n, 1] = derivatives in q and in b of number n of `own_values`."""
    threshold_slopes(row, out)
