"""Means of two units of any links: a neuron with a unit of the teacher, with another neuron, and with itself.

Two links with a threshold have a closed form, a link with a threshold and a polynomial a sum, any others a series.
`numbers` and `head`, the place of a link in them, are those of `list_kernels`.
"""

import numpy as np

from dynamics.equations.network.families import ERF, RELU, TABLE
from dynamics.equations.network.line_kernels import lined_moments, lined_pair, lined_slopes
from dynamics.equations.network.list_kernels import (
    CENTRED,
    HEADS,
    LINED,
    STUDENT,
    TERMS,
    list_moments,
    list_pair,
    write_list_row,
)
from dynamics.equations.network.moment_kernels import relu_slopes, slopes_from_moments, threshold_moments
from dynamics.equations.network.series_kernels import read_table
from dynamics.equations.network.threshold_kernels import relu_relu, relu_sign, sign_relu, sign_sign, write_threshold_row
from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import inlined_kernel, kernel
from dynamics.kernels.views import vector


@inlined_kernel
def write_row(head: int, q: float, b: float, numbers: Vector, row: Vector) -> None:
    """Write the numbers of one unit of variance q = |w|² and bias b."""
    family = int(numbers[head])
    row[0], row[1] = q, b
    if family == TABLE:
        start = int(numbers[head + 1])
        read_table(q, b, start, start, numbers, vector(row, 2, 4))
    elif family <= ERF and numbers[STUDENT] <= ERF:
        write_threshold_row(family, q, b, row)
    if numbers[TERMS] > 0.0:
        write_list_row(head, q, b, numbers, row)


@inlined_kernel
def pair_values(head: int, c: float, a: Vector, b: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron a and a unit b of any link at covariance c."""
    student, family, centred = int(numbers[STUDENT]), int(numbers[head]), numbers[CENTRED] > 0.0
    if student > ERF or family > ERF:
        return list_pair(c, a, b, numbers)
    if student == RELU and family == RELU:
        value, slope, _, both, bend, _ = relu_relu(centred, c, a, b)
    elif student == RELU:
        value, slope, both, bend = relu_sign(centred, c, a, b)
    elif family == RELU:
        value, slope, both, bend = sign_relu(centred, c, a, b)
    else:
        value, slope, _, both, bend, _ = sign_sign(centred, c, a, b)
    means = value, slope, both, bend
    return lined_pair(head, c, a, b, numbers, means) if numbers[LINED] > 0.0 else means


@inlined_kernel
def mutual_values(
    c: float, a: Vector, b: Vector, numbers: Vector
) -> tuple[float, float, float, float, float, float]:  # fmt: skip
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji of two neurons of a link κ f + βz + γ at covariance c."""
    head, centred = int(numbers[HEADS]), numbers[CENTRED] > 0.0
    pair = relu_relu(centred, c, a, b) if numbers[STUDENT] == RELU else sign_sign(centred, c, a, b)
    if numbers[LINED] == 0.0:
        return pair
    value, slope_a, slope_b, both, bend_a, bend_b = pair
    means = lined_pair(head, c, a, b, numbers, (value, slope_a, both, bend_a))
    _, slope_b, _, bend_b = lined_pair(head, c, b, a, numbers, (value, slope_b, both, bend_b))
    return means[0], means[1], slope_b, means[2], means[3], bend_b


@kernel
def own_values(row: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron with itself."""
    head = int(numbers[HEADS])
    if numbers[STUDENT] == TABLE:
        return row[2], row[3], row[4], row[5]
    if numbers[STUDENT] != RELU:
        return pair_values(head, row[0], row, row, numbers)
    means = row[1] * row[6] + row[0] * row[7], row[6], row[7], 0.0
    return lined_pair(head, row[0], row, row, numbers, means) if numbers[LINED] > 0.0 else means


@kernel
def write_moments(head: int, c: float, a: Vector, b: Vector, numbers: Vector, out: Matrix) -> None:
    """out[p, q] = E σ_a^(p) σ_b^(q), p + q <= 4, of a neuron a and a unit b of any link."""
    student, family = int(numbers[STUDENT]), int(numbers[head])
    if student > ERF or family > ERF:
        list_moments(c, a, b, numbers, out)
        return
    threshold_moments(student, family, numbers[CENTRED] > 0.0, c, a, b, out)
    if numbers[LINED] > 0.0:
        lined_moments(head, c, a, b, numbers, out)


@kernel
def own_slopes(row: Vector, numbers: Vector, out: Matrix) -> None:
    """out[n, 0] and out[n, 1] = derivatives in q and in b of number n of `own_values`."""
    if numbers[STUDENT] == RELU:
        relu_slopes(row, out)
        if numbers[LINED] > 0.0:
            lined_slopes(row, numbers, out)
    else:
        mean = np.empty((5, 5))
        write_moments(int(numbers[HEADS]), row[0], row, row, numbers, mean)
        slopes_from_moments(mean, out)
