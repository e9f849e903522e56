"""Compiled motion of particles along one axis; executed after `mean_field_kernels`, which says the layout.

State y = α (N). Moment l is the mean of the zonal polynomial C_l of R^d, so the potential is Σ_l f_l C_l(α) with the
forces f, and α' = −(1 − α²) Σ_l f_l C_l'(α), where C_l' = l (l + d − 2)/(d − 1) times C_(l−1) of R^(d+2).

sizes go on with [stride, start]: where the stride is not 0, moments and potential go through the powers α^k with
k = start, start + stride, …, which is several times faster, and the coefficients of the C_l in all powers (M, M) follow
the masses in the parameters. Then sums are those of powers, and slopes the coefficients of Φ' in powers; else sums are
the moments, and slopes the coefficients of Φ' in zonal polynomials of R^(d+2), at the place of the degree l. Degree 0
has no slope; its place holds the constant of Φ. Scratch: two rows of lanes.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compilation import kernel

if TYPE_CHECKING:
    from dynamics.systems.mean_field_kernels import scalars_start

FloatVector = NDArray[np.float64]
IntVector = NDArray[np.int64]

LANES = 512


@kernel
def advance_degree(y: FloatVector, count: int, degree: int, dimension: float, lanes: FloatVector) -> None:
    """Pass from C_(degree−1), C_degree to the next pair."""
    high = degree + dimension - 2.0
    up, back = (high + degree) / high, degree / high
    for i in range(count):
        following = up * y[i] * lanes[LANES + i] - back * lanes[i]
        lanes[i] = lanes[LANES + i]
        lanes[LANES + i] = following


@kernel
def start_degrees(y: FloatVector, count: int, lanes: FloatVector) -> None:
    """C_0 and C_1."""
    for i in range(count):
        lanes[i] = 1.0
        lanes[LANES + i] = y[i]


@kernel
def pairs_of_sums(
    y: FloatVector, count: int, even: bool, first: int, M: int, sums: FloatVector, lanes: FloatVector
) -> None:
    """Add the sums of powers from the first on, two in a pass; lanes hold weight_i α_i^first.

    Called with a literal `even`, so that the loops, which are inlined, have no choice in them: a choice between α and
    α² keeps them out of vector instructions.
    """
    stride = 2 if even else 1
    for k in range(first, M, 2 * stride):
        one = two = 0.0
        for i in range(count):
            ratio = y[i] * y[i] if even else y[i]
            low = lanes[i]
            high = low * ratio
            one += low
            two += high
            lanes[i] = high * ratio
        sums[k] += one
        if k + stride < M:
            sums[k + stride] += two


@kernel
def sums_of_powers(
    y: FloatVector, weights: FloatVector, count: int, sizes: IntVector, sums: FloatVector, lanes: FloatVector
) -> None:
    """Add Σ_i weight_i α_i^k."""
    M, stride, start = sizes[1], sizes[6], sizes[7]
    if start == 2:
        for i in range(count):
            lanes[i] = weights[i] * y[i] * y[i]
    else:
        for i in range(count):
            lanes[i] = weights[i] * y[i]
    if stride == 2:
        pairs_of_sums(y, count, True, start, M, sums, lanes)
    else:
        pairs_of_sums(y, count, False, start, M, sums, lanes)


@kernel
def sums_of_degrees(
    y: FloatVector,
    weights: FloatVector,
    count: int,
    dimension: float,
    sizes: IntVector,
    sums: FloatVector,
    lanes: FloatVector,
) -> None:
    """Add Σ_i weight_i C_l(α_i), by the recurrence in l."""
    start_degrees(y, count, lanes)
    for degree in range(1, sizes[1]):
        total = 0.0
        for i in range(count):
            total += weights[i] * lanes[LANES + i]
        sums[degree] += total
        advance_degree(y, count, degree, dimension, lanes)


@kernel
def block_sums(
    y: FloatVector,
    weights: FloatVector,
    count: int,
    parameters: FloatVector,
    sizes: IntVector,
    sums: FloatVector,
    lanes: FloatVector,
) -> None:
    """Add a block's sums of powers, or of zonal polynomials."""
    total = 0.0
    for i in range(count):
        total += weights[i]
    sums[0] += total
    if sizes[6] > 0:
        sums_of_powers(y, weights, count, sizes, sums, lanes)
    else:
        sums_of_degrees(y, weights, count, parameters[scalars_start(sizes) + 1], sizes, sums, lanes)


@kernel
def moments_from_sums(sums: FloatVector, moments: FloatVector, parameters: FloatVector, sizes: IntVector) -> None:
    """μ_l."""
    N, M = sizes[0], sizes[1]
    powers = parameters[scalars_start(sizes) + 2 + N :]
    for degree in range(M):
        moments[degree] = sums[degree]
        if sizes[6] > 0:
            moments[degree] = 0.0
            for k in range(degree + 1):
                moments[degree] += powers[degree * M + k] * sums[k]


@kernel
def slopes_from_forces(forces: FloatVector, slopes: FloatVector, parameters: FloatVector, sizes: IntVector) -> None:
    """Coefficients of Φ' = Σ_l f_l C_l'."""
    N, M = sizes[0], sizes[1]
    scalars = scalars_start(sizes)
    dimension, powers = parameters[scalars + 1], parameters[scalars + 2 + N :]
    for k in range(M):
        if sizes[6] > 0:
            slopes[k] = 0.0
            for degree in range(k, M):
                slopes[k] += k * forces[degree] * powers[degree * M + k]
        else:
            slopes[k] = k * (k + dimension - 2.0) / (dimension - 1.0) * forces[k]
    slopes[0] = forces[0]
    if sizes[6] > 0:
        for degree in range(1, M):
            slopes[0] += forces[degree] * powers[degree * M]


@kernel
def pairs_of_terms(
    y: FloatVector, out: FloatVector, count: int, even: bool, last: int, coefficients: FloatVector, start: int
) -> None:
    """Horner's rule from the term `last` down, two terms in a pass; called with a literal `even` as `pairs_of_sums`."""
    stride = 2 if even else 1
    for term in range(last, -1, -2):
        low, high = coefficients[start + term * stride], coefficients[start + (term + 1) * stride]
        for i in range(count):
            ratio = y[i] * y[i] if even else y[i]
            out[i] = (out[i] * ratio + high) * ratio + low


@kernel
def power_series(y: FloatVector, out: FloatVector, count: int, coefficients: FloatVector, sizes: IntVector) -> None:
    """Σ_k coefficient_k α^(k − start) over k = start, start + stride, …."""
    M, stride, start = sizes[1], sizes[6], sizes[7]
    terms = (M - 1 - start) // stride + 1
    first = coefficients[start + (terms - 1) * stride] if terms % 2 == 1 else 0.0
    for i in range(count):
        out[i] = first
    last = terms - terms % 2 - 2
    if stride == 2:
        pairs_of_terms(y, out, count, True, last, coefficients, start)
    else:
        pairs_of_terms(y, out, count, False, last, coefficients, start)


@kernel
def slopes_by_degrees(
    y: FloatVector,
    out: FloatVector,
    count: int,
    dimension: float,
    slopes: FloatVector,
    sizes: IntVector,
    lanes: FloatVector,
) -> None:
    """Φ'(α), by the recurrence in l."""
    M = sizes[1]
    start_degrees(y, count, lanes)
    for i in range(count):
        out[i] = slopes[1] if M > 1 else 0.0
    for degree in range(1, M - 1):
        for i in range(count):
            out[i] += slopes[degree + 1] * lanes[LANES + i]
        advance_degree(y, count, degree, dimension + 2.0, lanes)


@kernel
def block_rates(
    y: FloatVector,
    out: FloatVector,
    count: int,
    slopes: FloatVector,
    parameters: FloatVector,
    sizes: IntVector,
    lanes: FloatVector,
) -> None:
    """α' = −(1 − α²) Φ'(α)."""
    if sizes[6] > 0:
        power_series(y, out, count, slopes, sizes)
    else:
        slopes_by_degrees(y, out, count, parameters[scalars_start(sizes) + 1], slopes, sizes, lanes)
    if sizes[6] > 0 and sizes[7] == 2:
        # Even powers leave an odd slope.
        for i in range(count):
            out[i] *= -((1.0 - y[i]) * (1.0 + y[i])) * y[i]
    else:
        for i in range(count):
            out[i] *= -(1.0 - y[i]) * (1.0 + y[i])


@kernel
def potentials_by_degrees(
    y: FloatVector,
    out: FloatVector,
    count: int,
    dimension: float,
    slopes: FloatVector,
    sizes: IntVector,
    lanes: FloatVector,
) -> None:
    """Φ(α), by the recurrence in l."""
    start_degrees(y, count, lanes)
    for i in range(count):
        out[i] = slopes[0]
    for degree in range(1, sizes[1]):
        force = slopes[degree] * (dimension - 1.0) / (degree * (degree + dimension - 2.0))
        for i in range(count):
            out[i] += force * lanes[LANES + i]
        advance_degree(y, count, degree, dimension, lanes)


@kernel
def block_potentials(
    y: FloatVector,
    out: FloatVector,
    count: int,
    slopes: FloatVector,
    parameters: FloatVector,
    sizes: IntVector,
    lanes: FloatVector,
) -> None:
    """Φ(α)."""
    if sizes[6] > 0:
        M, start = sizes[1], sizes[7]
        for k in range(1, M):
            lanes[k] = slopes[k] / k
        power_series(y, out, count, lanes, sizes)
        constant = slopes[0]
        for i in range(count):
            out[i] = constant + out[i] * (y[i] * y[i] if start == 2 else y[i])
    else:
        potentials_by_degrees(y, out, count, parameters[scalars_start(sizes) + 1], slopes, sizes, lanes)


@kernel
def block_normalise(y: FloatVector, count: int, sizes: IntVector) -> None:
    """Keep |α| ≤ 1: a particle that rounding carries past a pole is put on it."""
    for i in range(count):
        y[i] = min(max(y[i], -1.0), 1.0)
