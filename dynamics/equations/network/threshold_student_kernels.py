"""The kernels of pairs of a relu or erf student; executed after `relu_neuron` or `erf_neuron_kernels`, its own means.

A teacher's link with a threshold has a closed form, a polynomial a sum, any other a series.
"""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.line_kernels import *
    from dynamics.equations.network.list_kernels import *
    from dynamics.equations.network.relu_neuron_kernels import *
    from dynamics.equations.network.threshold_kernels import *

    # Constants of the source, so that what links that are alike do not need is not compiled.
    HAS_LISTS = HAS_LINES = True


@kernel
def write_row(link: int, q: float, b: float, numbers: Vector, row: Vector) -> None:
    """Write the numbers of one unit of variance q = |w|² and bias b."""
    family = int(numbers[int(numbers[1]) + HEADER * link])
    if family <= 2:
        write_threshold_row(family, q, b, row)
    if HAS_LISTS and numbers[0] > 0.0:
        write_list_row(link, q, b, numbers, row)


@kernel
def pair_values(
    link: int, c: float, row_a: Vector, row_b: Vector, numbers: Vector
) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron a and a unit b of a teacher's link >= 1 at covariance c."""
    family = int(numbers[int(numbers[1]) + HEADER * link])
    if HAS_LISTS and family > 2:
        return list_pair(c, row_a, row_b, numbers)
    means = threshold_pair(family, c, row_a, row_b)
    if HAS_LINES and numbers[3] > 0.0:
        return lined_pair(link, c, row_a, row_b, numbers, means)
    return means


@kernel
def mutual_values(
    c: float, row_i: Vector, row_j: Vector, numbers: Vector
) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji of two neurons at covariance c."""
    value, slope_i, slope_j, both, bend_i, bend_j = two_neurons(c, row_i, row_j)
    if HAS_LINES and numbers[3] > 0.0:
        means = lined_pair(0, c, row_i, row_j, numbers, (value, slope_i, both, bend_i))
        _, slope_j, _, bend_j = lined_pair(0, c, row_j, row_i, numbers, (value, slope_j, both, bend_j))
        value, slope_i, both, bend_i = means
    return value, slope_i, slope_j, both, bend_i, bend_j


@kernel
def own_values(row: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron with itself."""
    means = one_neuron(row)
    if HAS_LINES and numbers[3] > 0.0:
        return lined_pair(0, row[0], row, row, numbers, means)
    return means


@kernel
def write_moments(link: int, c: float, row_a: Vector, row_b: Vector, numbers: Vector, out: Matrix) -> None:
    """out[p, q] = E σ_a^(p) σ_b^(q), p + q <= 4, of a neuron a and a unit b of any link, 0 for another neuron."""
    family = int(numbers[int(numbers[1]) + HEADER * link])
    if HAS_LISTS and family > 2:
        list_moments(c, row_a, row_b, numbers, out)
        return
    threshold_moments(family, c, row_a, row_b, out)
    if HAS_LINES and numbers[3] > 0.0:
        lined_moments(link, c, row_a, row_b, numbers, out)


@kernel
def own_slopes(row: Vector, numbers: Vector, out: Matrix) -> None:
    """out[n, 0] and out[n, 1] = derivatives in q and in b of number n of `own_values`."""
    one_neuron_slopes(row, out)
    if HAS_LINES and numbers[3] > 0.0:
        lined_slopes(row, numbers, out)
