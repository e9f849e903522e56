"""Compiled motion of particles along one axis, laid out as `mean_field_kernels` says.

State y = α (N). Moment l is the mean of the zonal polynomial C_l of R^d, so the potential is Σ_l f_l C_l(α) with the
forces f, and α' = −(1 − α²) Σ_l f_l C_l'(α), where C_l' = l (l + d − 2)/(d − 1) times C_(l−1) of R^(d+2).

sizes go on with [stride, start]: where the stride is not 0, moments and potential go through the powers α^k with
k = start, start + stride, …, which is several times faster, and the coefficients of the C_l in all powers (M, M) follow
the masses in the parameters. Then sums are those of powers, and slopes the coefficients of Φ' in powers; else sums are
the moments, and slopes the coefficients of Φ' in zonal polynomials of R^(d+2), at the place of the degree l. Degree 0
has no slope; its place holds the constant of Φ. Scratch: two rows of lanes.
"""

from dynamics.equations.mean_field_kernels import (
    Particles,
    scalars_start,
    write_events,
    write_rates,
)
from dynamics.kernels.jit import kernel
from hermite.arrays import Integers, Vector

LANES = 2048


@kernel
def advance_degree(y: Vector, count: int, degree: int, dimension: float, lanes: Vector) -> None:
    """Pass from C_(degree−1), C_degree to the next pair."""
    high = degree + dimension - 2.0
    up, back = (high + degree) / high, degree / high
    for i in range(count):
        following = up * y[i] * lanes[LANES + i] - back * lanes[i]
        lanes[i] = lanes[LANES + i]
        lanes[LANES + i] = following


@kernel
def start_degrees(y: Vector, count: int, lanes: Vector) -> None:
    """Write C_0 and C_1."""
    for i in range(count):
        lanes[i] = 1.0
        lanes[LANES + i] = y[i]


@kernel
def first_sums(y: Vector, weights: Vector, count: int, even: bool, start: int, sums: Vector, lanes: Vector) -> None:
    """Add the mass and the sums of the two lowest powers; leave weight_i times the third in the lanes.

    Called with literals for `even` and `start`, so that the loop, which is inlined, has no choice in it: a choice
    between α and α² keeps it out of vector instructions.
    """
    total = one = two = 0.0
    for i in range(count):
        ratio = y[i] * y[i] if even else y[i]
        low = weights[i] * (y[i] * y[i] if start == 2 else y[i])
        high = low * ratio
        total += weights[i]
        one += low
        two += high
        lanes[i] = high * ratio
    sums[0] += total
    sums[start] += one
    second = start + (2 if even else 1)
    if second < sums.size:
        sums[second] += two


@kernel
def further_sums(y: Vector, count: int, even: bool, first: int, M: int, sums: Vector, lanes: Vector) -> None:
    """Add the sums of the powers from the first on, two in a pass; called with a literal `even`."""
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
def sums_of_powers(y: Vector, weights: Vector, count: int, sizes: Integers, sums: Vector, lanes: Vector) -> None:
    """Add the mass and Σ_i weight_i α_i^k."""
    M, stride, start = sizes[1], sizes[6], sizes[7]
    if start == 2:
        first_sums(y, weights, count, True, 2, sums, lanes)
    elif stride == 2:
        first_sums(y, weights, count, True, 1, sums, lanes)
    else:
        first_sums(y, weights, count, False, 1, sums, lanes)
    if stride == 2:
        further_sums(y, count, True, start + 4, M, sums, lanes)
    else:
        further_sums(y, count, False, start + 2, M, sums, lanes)


@kernel
def sums_of_degrees(
    y: Vector, weights: Vector, count: int, dimension: float, sizes: Integers, sums: Vector, lanes: Vector
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
    y: Vector, weights: Vector, count: int, parameters: Vector, sizes: Integers, sums: Vector, lanes: Vector
) -> None:
    """Add a block's sums of powers, or of zonal polynomials."""
    if sizes[6] > 0:
        sums_of_powers(y, weights, count, sizes, sums, lanes)
        return
    total = 0.0
    for i in range(count):
        total += weights[i]
    sums[0] += total
    sums_of_degrees(y, weights, count, parameters[scalars_start(sizes) + 1], sizes, sums, lanes)


@kernel
def moments_from_sums(sums: Vector, moments: Vector, parameters: Vector, sizes: Integers) -> None:
    """Write the moments μ_l from the sums of powers, or of zonal polynomials."""
    N, M = sizes[0], sizes[1]
    powers = parameters[scalars_start(sizes) + 2 + N :]
    for degree in range(M):
        moments[degree] = sums[degree]
        if sizes[6] > 0:
            moments[degree] = 0.0
            for k in range(degree + 1):
                moments[degree] += powers[degree * M + k] * sums[k]


@kernel
def slopes_from_forces(forces: Vector, slopes: Vector, parameters: Vector, sizes: Integers) -> None:
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
def upper_terms(
    y: Vector, out: Vector, count: int, even: bool, coefficients: Vector, start: int, M: int
) -> tuple[float, float]:
    """Horner's rule down to the two lowest terms, two in a pass, called with a literal `even`; return these two."""
    stride = 2 if even else 1
    terms = (M - 1 - start) // stride + 1
    for i in range(count):
        out[i] = 0.0
    for term in range(terms - 2 + terms % 2, 0, -2):
        low = coefficients[start + term * stride]
        high = coefficients[start + (term + 1) * stride] if term + 1 < terms else 0.0
        for i in range(count):
            ratio = y[i] * y[i] if even else y[i]
            out[i] = (out[i] * ratio + high) * ratio + low
    return coefficients[start], coefficients[start + stride] if terms > 1 else 0.0


@kernel
def velocities(y: Vector, out: Vector, count: int, even: bool, start: int, slopes: Vector, M: int) -> None:
    """−(1 − α²) Φ'(α) from the powers of Φ', called with literals; even powers of Φ leave an odd slope."""
    low, high = upper_terms(y, out, count, even, slopes, start, M)
    for i in range(count):
        ratio = y[i] * y[i] if even else y[i]
        value = (out[i] * ratio + high) * ratio + low
        out[i] = value * ((y[i] - 1.0) * (y[i] + 1.0)) * (y[i] if start == 2 else 1.0)


@kernel
def potentials(
    y: Vector, out: Vector, count: int, even: bool, start: int, terms: Vector, M: int, constant: float
) -> None:
    """Φ(α) from its powers and its constant, called with literals."""
    low, high = upper_terms(y, out, count, even, terms, start, M)
    for i in range(count):
        ratio = y[i] * y[i] if even else y[i]
        value = (out[i] * ratio + high) * ratio + low
        out[i] = constant + value * (y[i] * y[i] if start == 2 else y[i])


@kernel
def slopes_by_degrees(
    y: Vector, out: Vector, count: int, dimension: float, slopes: Vector, sizes: Integers, lanes: Vector
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
    y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers, lanes: Vector
) -> None:
    """α' = −(1 − α²) Φ'(α)."""
    M, stride, start = sizes[1], sizes[6], sizes[7]
    if stride == 0:
        slopes_by_degrees(y, out, count, parameters[scalars_start(sizes) + 1], slopes, sizes, lanes)
        for i in range(count):
            out[i] *= -(1.0 - y[i]) * (1.0 + y[i])
    elif start == 2:
        velocities(y, out, count, True, 2, slopes, M)
    elif stride == 2:
        velocities(y, out, count, True, 1, slopes, M)
    else:
        velocities(y, out, count, False, 1, slopes, M)


@kernel
def potentials_by_degrees(
    y: Vector, out: Vector, count: int, dimension: float, slopes: Vector, sizes: Integers, lanes: Vector
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
    y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers, lanes: Vector
) -> None:
    """Φ(α)."""
    M, stride, start = sizes[1], sizes[6], sizes[7]
    if stride == 0:
        potentials_by_degrees(y, out, count, parameters[scalars_start(sizes) + 1], slopes, sizes, lanes)
        return
    for k in range(1, M):
        lanes[k] = slopes[k] / k
    if start == 2:
        potentials(y, out, count, True, 2, lanes, M, slopes[0])
    elif stride == 2:
        potentials(y, out, count, True, 1, lanes, M, slopes[0])
    else:
        potentials(y, out, count, False, 1, lanes, M, slopes[0])


@kernel
def block_normalise(y: Vector, count: int, sizes: Integers) -> None:
    """Keep |α| ≤ 1: a particle that rounding carries past a pole is put on it."""
    for i in range(count):
        y[i] = min(max(y[i], -1.0), 1.0)


PARTICLES = Particles(
    LANES, block_sums, moments_from_sums, slopes_from_forces, block_rates, block_potentials, block_normalise
)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the velocities of all particles, and (ln n)' where masses grow."""
    write_rates(y, out, parameters, sizes, work, PARTICLES)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the events of `write_events`."""
    write_events(y, out, parameters, sizes, work, PARTICLES)


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Put particles that rounding carries out of the ball |a| ≤ 1 back on its surface."""
    block_normalise(y, sizes[0], sizes)
