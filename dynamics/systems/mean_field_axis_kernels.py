"""Compiled motion of particles along one axis; executed after `mean_field_kernels`, which says the layout.

State y = α (N). Moment l is the mean of the zonal polynomial C_l of R^d, so the potential is Σ_l f_l C_l(α) with the
forces f, and α' = −(1 − α²) Σ_l f_l C_l'(α), where C_l' = l (l + d − 2)/(d − 1) times C_(l−1) of R^(d+2).

sizes go on with [stride, start]: where the stride is not 0, moments and potential go through the powers α^k with
k = start, start + stride, …, which is several times faster, and the coefficients of the C_l in all powers (M, M) follow
the weights in the parameters. Scratch: two rows of lanes, then the moments of the powers (M).
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compilation import kernel

if TYPE_CHECKING:
    from dynamics.systems.mean_field_kernels import LANES, scalars_start, write_forces

FloatVector = NDArray[np.float64]
IntVector = NDArray[np.int64]


@kernel
def advance_degree(y: FloatVector, first: int, count: int, degree: int, dimension: float, lanes: FloatVector) -> None:
    """Pass from C_(degree−1), C_degree to the next pair, for `count` particles from `first` on."""
    high = degree + dimension - 2.0
    up, back = (high + degree) / high, degree / high
    for i in range(count):
        following = up * y[first + i] * lanes[LANES + i] - back * lanes[i]
        lanes[i] = lanes[LANES + i]
        lanes[LANES + i] = following


@kernel
def start_degrees(y: FloatVector, first: int, count: int, lanes: FloatVector) -> None:
    """C_0 and C_1."""
    for i in range(count):
        lanes[i] = 1.0
        lanes[LANES + i] = y[first + i]


@kernel
def fill_base(y: FloatVector, first: int, count: int, stride: int, lanes: FloatVector) -> None:
    """α^stride behind the first row of lanes."""
    if stride == 2:
        for i in range(count):
            lanes[LANES + i] = y[first + i] * y[first + i]
    else:
        for i in range(count):
            lanes[LANES + i] = y[first + i]


@kernel
def write_moments_of_powers(y: FloatVector, parameters: FloatVector, sizes: IntVector, work: FloatVector) -> None:
    """Σ_i weight_i α_i^k, then μ_l from them."""
    N, M, stride, start = sizes[0], sizes[1], sizes[4], sizes[5]
    scalars = scalars_start(sizes)
    weights, lanes, sums = parameters[scalars + 2 :], work[2 * M :], work[2 * M + 2 * LANES :]
    for k in range(M):
        sums[k] = 0.0
    sums[0] = 1.0
    for first in range(0, N, LANES):
        count = min(LANES, N - first)
        fill_base(y, first, count, stride, lanes)
        for i in range(count):
            lanes[i] = lanes[LANES + i] if start == stride else y[first + i]
        for k in range(start, M, stride):
            total = 0.0
            for i in range(count):
                total += weights[first + i] * lanes[i]
                lanes[i] *= lanes[LANES + i]
            sums[k] += total
    for degree in range(M):
        work[degree] = 0.0
        for k in range(degree + 1):
            work[degree] += weights[N + degree * M + k] * sums[k]


@kernel
def write_slopes_by_powers(
    y: FloatVector, out: FloatVector, parameters: FloatVector, sizes: IntVector, work: FloatVector
) -> None:
    """Σ_l f_l C_l'(α), by Horner's rule in α^stride."""
    N, M, stride, start = sizes[0], sizes[1], sizes[4], sizes[5]
    scalars = scalars_start(sizes)
    powers = parameters[scalars + 2 + N :]
    lanes, slopes = work[2 * M :], work[2 * M + 2 * LANES :]
    for k in range(M):
        slopes[k] = 0.0
        for degree in range(k, M):
            slopes[k] += k * work[M + degree] * powers[degree * M + k]
    top = start + (M - 1 - start) // stride * stride
    for first in range(0, N, LANES):
        count = min(LANES, N - first)
        fill_base(y, first, count, stride, lanes)
        for i in range(count):
            out[first + i] = slopes[top]
        for k in range(top - stride, start - 1, -stride):
            for i in range(count):
                out[first + i] = out[first + i] * lanes[LANES + i] + slopes[k]
        # Even powers leave an odd slope.
        if start == 2:
            for i in range(count):
                out[first + i] *= y[first + i]


@kernel
def write_moments_of_degrees(y: FloatVector, parameters: FloatVector, sizes: IntVector, work: FloatVector) -> None:
    """μ_l = Σ_i weight_i C_l(α_i), by the recurrence in l."""
    N, M = sizes[0], sizes[1]
    scalars = scalars_start(sizes)
    dimension = parameters[scalars + 1]
    weights, lanes = parameters[scalars + 2 :], work[2 * M :]
    work[0] = 1.0
    for degree in range(1, M):
        work[degree] = 0.0
    for first in range(0, N, LANES):
        count = min(LANES, N - first)
        start_degrees(y, first, count, lanes)
        for degree in range(1, M):
            total = 0.0
            for i in range(count):
                total += weights[first + i] * lanes[LANES + i]
            work[degree] += total
            advance_degree(y, first, count, degree, dimension, lanes)


@kernel
def write_slopes_by_degrees(
    y: FloatVector, out: FloatVector, parameters: FloatVector, sizes: IntVector, work: FloatVector
) -> None:
    """Σ_l f_l C_l'(α), by the recurrence in l; scales the forces."""
    N, M = sizes[0], sizes[1]
    dimension = parameters[scalars_start(sizes) + 1]
    lanes = work[2 * M :]
    for degree in range(1, M):
        work[M + degree] *= degree * (degree + dimension - 2.0) / (dimension - 1.0)
    for first in range(0, N, LANES):
        count = min(LANES, N - first)
        start_degrees(y, first, count, lanes)
        for i in range(count):
            out[first + i] = work[M + 1] if M > 1 else 0.0
        for degree in range(1, M - 1):
            force = work[M + 1 + degree]
            for i in range(count):
                out[first + i] += force * lanes[LANES + i]
            advance_degree(y, first, count, degree, dimension + 2.0, lanes)


@kernel
def write_moments(y: FloatVector, parameters: FloatVector, sizes: IntVector, work: FloatVector) -> None:
    """Moments μ_l, the means of C_l."""
    if sizes[4] > 0:
        write_moments_of_powers(y, parameters, sizes, work)
    else:
        write_moments_of_degrees(y, parameters, sizes, work)


@kernel
def rhs(
    t: float, y: FloatVector, out: FloatVector, parameters: FloatVector, sizes: IntVector, work: FloatVector
) -> None:
    """α' = −(1 − α²) Σ_l f_l C_l'(α)."""
    write_moments(y, parameters, sizes, work)
    write_forces(parameters, sizes, work)
    if sizes[4] > 0:
        write_slopes_by_powers(y, out, parameters, sizes, work)
    else:
        write_slopes_by_degrees(y, out, parameters, sizes, work)
    for i in range(sizes[0]):
        out[i] *= -(1.0 - y[i]) * (1.0 + y[i])


@kernel
def normalise(y: FloatVector, parameters: FloatVector, sizes: IntVector) -> None:
    """Keep |α| ≤ 1: a particle that rounding carries past a pole is put on it."""
    for i in range(sizes[0]):
        y[i] = min(max(y[i], -1.0), 1.0)
