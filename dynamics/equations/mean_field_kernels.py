"""Compiled motion of the mean field's particles, along one axis in zonal polynomials, in several in monomials.

sizes = [N, M, P, n, r, grows, …] for N particles in r axes, M moments, P directions and n levels of the loss;
parameters = [c (M) | μ* (M) | learned (P, M) | a (P) | levels (n) | floor, d | masses at the start (N) | …]. State y =
projections (N, r), and where the masses grow their logarithms (N). `work` starts with moments, sums and slopes (M each)
and masses (lanes); scratch for blocks follows.

One axis: C_l' = l (l + d − 2)/(d − 1) times C_(l−1) of R^(d+2). sizes go on with [stride, start]: where the stride is
not 0, moments and potential go through the powers α^k with k = start, start + stride, …, which is several times faster,
and the coefficients of the C_l in all powers (M, M) follow the masses in the parameters. Then sums are those of powers,
and slopes the coefficients of Φ' in powers; else slopes are those of Φ' in zonal polynomials of R^(d+2), at the place
of the degree l. Degree 0 has no slope; its place holds the constant of Φ. Scratch: two rows of lanes.

Several axes, u = 1 − |a|²: moment (κ, q) is the mean of the monomial a^κ u^q, at place κ Q + q. sizes go on with
[K, Q | parent (K) | axis (K)]: monomial k is monomial parent[k] times coordinate axis[k], the first is 1. Slopes are
the forces. Φ = Σ f_κq a^κ u^q is differentiated backwards along the same chain. Scratch: a^κ (K, lanes), its adjoint
(K, lanes), powers of u (Q, lanes), the gradient (r, lanes) and ∂_u (lanes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.link import HEAD, write_polynomial
from dynamics.kernels.jit import kernel, matrix, vector
from dynamics.kernels.units import choice, unit
from hermite.arrays import Integers, Matrix, Vector

if TYPE_CHECKING:
    from collections.abc import Callable

#: Particles of a block along one axis and in several, of which scratch stays in the fastest cache.
LANES, LANES_IN_SUBSPACE = 2048, 64


@kernel
def lanes_of(sizes: Integers) -> int:
    """Return the particles of a block."""
    return LANES if sizes[4] == 1 else LANES_IN_SUBSPACE


@kernel
def scalars_start(sizes: Integers) -> int:
    """Return the place of the floor in the parameters; d follows, then the weights."""
    M, P = sizes[1], sizes[2]
    return int(2 * M + P * M + P + sizes[3])


# One axis, in zonal polynomials.


@kernel
def advance_degree(y: Vector, count: int, degree: int, dimension: float, lanes: Vector) -> None:
    """Pass to C_degree and C_(degree+1), from the pair before or, at degree 0, from nothing."""
    high = degree + dimension - 2.0
    up, back = (high + degree) / high, degree / high
    for i in range(count):
        following = y[i] if degree == 0 else up * y[i] * lanes[LANES + i] - back * lanes[i]
        lanes[i] = 1.0 if degree == 0 else lanes[LANES + i]
        lanes[LANES + i] = following


@choice()
def sums_of_degrees(
    y: Vector, weights: Vector, count: int, dimension: float, M: int, sums: Vector, lanes: Vector
) -> None:
    """Add Σ_i weight_i C_l(α_i), by the recurrence in l."""
    for degree in range(M):
        advance_degree(y, count, degree, dimension, lanes)
        total = 0.0
        for i in range(count):
            total += weights[i] * lanes[i]
        sums[degree] += total


@choice()
def write_by_degrees(
    is_slope: bool, y: Vector, out: Vector, count: int, dimension: float, slopes: Vector, M: int, lanes: Vector
) -> None:
    """Write Φ'(α), or Φ(α), by the recurrence in l."""
    shift = 1 if is_slope else 0
    vector(out, 0, count).fill(0.0)
    for degree in range(M - shift):
        advance_degree(y, count, degree, dimension + 2.0 * shift, lanes)
        force = slopes[degree + shift]
        if degree > 0 and not is_slope:
            force *= (dimension - 1.0) / (degree * (degree + dimension - 2.0))
        for i in range(count):
            out[i] += force * lanes[i]


# One axis, in powers α^k with k = start, start + stride, …, both 1 or 2.


@choice()
def sums_of_powers(y: Vector, weights: Vector, count: int, sizes: Integers, sums: Vector, lanes: Vector) -> None:
    """Add the mass and Σ_i weight_i α_i^k, two powers in a pass; the lanes hold weight_i times the next power."""
    M, stride, start = sizes[1], sizes[6], sizes[7]
    alpha, squares = vector(y, 0, count), vector(lanes, LANES, count)
    first, ratio = squares if start == 2 else alpha, squares if stride == 2 else alpha
    total = 0.0
    for i in range(count):
        squares[i] = alpha[i] * alpha[i]
    for i in range(count):
        lanes[i] = weights[i] * first[i]
        total += weights[i]
    sums[0] += total
    for k in range(start, M, 2 * stride):
        one = two = 0.0
        for i in range(count):
            low = lanes[i]
            high = low * ratio[i]
            one += low
            two += high
            lanes[i] = high * ratio[i]
        sums[k] += one
        if k + stride < M:
            sums[k + stride] += two


@choice()
def write_by_powers(
    is_slope: bool, y: Vector, out: Vector, count: int, slopes: Vector, sizes: Integers, lanes: Vector
) -> None:
    """Write Φ'(α), or Φ(α), by a polynomial that is stored as those of links are."""
    M, stride, start = sizes[1], sizes[6], sizes[7]
    terms = 1 + (M - 1 - start) // stride
    lanes[0], lanes[1], lanes[2] = start - (1 if is_slope else 0), stride, 1 + 4 * ((terms + 2) // 4)
    lanes[3] = 0.0
    for k in range(int(lanes[2])):
        power = start + k * stride
        lanes[HEAD + k] = 0.0 if power >= M else slopes[power] / (1 if is_slope else power)
    write_polynomial(lanes, 0, vector(y, 0, count), vector(out, 0, count))
    for i in range(0 if is_slope else count):
        out[i] += slopes[0]


# Several axes.


@kernel
def tables(sizes: Integers, scratch: Vector) -> tuple[Matrix, Matrix, Matrix, Matrix, Vector]:
    """Return a^κ (K, lanes), its adjoint (K, lanes), the powers of u (Q, lanes), ∂_a Φ (r, lanes) and ∂_u Φ (lanes)."""
    r, K, Q, width = sizes[4], sizes[6], sizes[7], LANES_IN_SUBSPACE
    monomials, adjoint = matrix(scratch, 0, K, width), matrix(scratch, K * width, K, width)
    powers, at = matrix(scratch, 2 * K * width, Q, width), (2 * K + Q) * width
    return monomials, adjoint, powers, matrix(scratch, at, r, width), vector(scratch, at + r * width, width)


@kernel
def write_monomials(y: Vector, count: int, sizes: Integers, scratch: Vector) -> None:
    """Write the monomials a^κ and powers of u."""
    r, K, Q = sizes[4], sizes[6], sizes[7]
    monomials, _, powers, _, _ = tables(sizes, scratch)
    for i in range(count):
        monomials[0, i] = powers[0, i] = 1.0
    for k in range(1, K):
        parent, axis = sizes[8 + k], sizes[8 + K + k]
        for i in range(count):
            monomials[k, i] = monomials[parent, i] * y[i * r + axis]
    for i in range(count if Q > 1 else 0):
        u = 1.0
        for axis in range(r):
            u -= y[i * r + axis] ** 2
        # Rounding must not make the square of a length negative.
        u = max(u, 0.0)
        for q in range(1, Q):
            powers[q, i] = powers[q - 1, i] * u


@choice()
def sums_of_monomials(
    y: Vector, weights: Vector, count: int, parameters: Vector, sizes: Integers, sums: Vector, scratch: Vector
) -> None:
    """Add Σ_i weight_i a_i^κ u_i^q, where the kernel needs it."""
    Q, (monomials, _, powers, _, _) = sizes[7], tables(sizes, scratch)
    write_monomials(y, count, sizes, scratch)
    for place in range(sizes[1]):
        if parameters[place] != 0.0:
            k, q, total = place // Q, place % Q, 0.0
            for i in range(count):
                total += weights[i] * monomials[k, i] * powers[q, i]
            sums[place] += total


@kernel
def write_gradient(y: Vector, count: int, forces: Vector, parameters: Vector, sizes: Integers, scratch: Vector) -> None:
    """Write ∂_u Φ and ∂_a Φ: Σ_q f_κq u^q is the adjoint of a^κ, from the last monomial back to the first."""
    r, K, Q = sizes[4], sizes[6], sizes[7]
    monomials, adjoint, powers, gradient, slope = tables(sizes, scratch)
    adjoint.fill(0.0)
    gradient.fill(0.0)
    slope.fill(0.0)
    for place in range(sizes[1]):
        if parameters[place] != 0.0:
            k, q, force = place // Q, place % Q, forces[place]
            for i in range(count):
                adjoint[k, i] += force * powers[q, i]
            for i in range(count if q > 0 else 0):
                slope[i] += q * force * (monomials[k, i] * powers[q - 1, i])
    for k in range(K - 1, 0, -1):
        parent, axis = sizes[8 + k], sizes[8 + K + k]
        for i in range(count):
            adjoint[parent, i] += adjoint[k, i] * y[i * r + axis]
            gradient[axis, i] += adjoint[k, i] * monomials[parent, i]


# Blocks of particles in any number of axes.


@kernel
def block_sums(
    y: Vector, weights: Vector, count: int, parameters: Vector, sizes: Integers, sums: Vector, scratch: Vector
) -> None:
    """Add the sums of a block that moments are made of."""
    if sizes[4] > 1:
        sums_of_monomials(y, weights, count, parameters, sizes, sums, scratch)
    elif sizes[6] > 0:
        sums_of_powers(y, weights, count, sizes, sums, scratch)
    else:
        sums_of_degrees(y, weights, count, parameters[scalars_start(sizes) + 1], sizes[1], sums, scratch)


@kernel
def moments_from_sums(sums: Vector, moments: Vector, parameters: Vector, sizes: Integers) -> None:
    """Write the moments: the sums, but for those of powers."""
    M, place = sizes[1], scalars_start(sizes) + 2 + sizes[0]
    for degree in range(M):
        moments[degree] = sums[degree]
        if sizes[4] == 1 and sizes[6] > 0:
            moments[degree] = 0.0
            for k in range(degree + 1):
                moments[degree] += parameters[place + degree * M + k] * sums[k]


@kernel
def write_slopes(moments: Vector, slopes: Vector, parameters: Vector, sizes: Integers, forces: Vector) -> None:
    """Write the forces f = c (μ − μ*), and what blocks need of them: f, or the coefficients of Φ' = Σ_l f_l C_l'."""
    M, scalars = sizes[1], scalars_start(sizes)
    dimension, powers = parameters[scalars + 1], scalars + 2 + sizes[0]
    for k in range(M):
        slopes[k] = forces[k] = parameters[k] * (moments[k] - parameters[M + k])
    if sizes[4] > 1:
        return
    for k in range(1, M):
        if sizes[6] > 0:
            slopes[k] = 0.0
            for degree in range(k, M):
                slopes[k] += k * forces[degree] * parameters[powers + degree * M + k]
            slopes[0] += forces[k] * parameters[powers + k * M]
        else:
            slopes[k] = k * (k + dimension - 2.0) / (dimension - 1.0) * forces[k]


@kernel
def write_on_axis(
    is_slope: bool, y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers,
    lanes: Vector,
) -> None:  # fmt: skip
    """Write Φ'(α), or Φ(α), of a block."""
    if sizes[6] > 0:
        write_by_powers(is_slope, y, out, count, slopes, sizes, lanes)
    else:
        write_by_degrees(is_slope, y, out, count, parameters[scalars_start(sizes) + 1], slopes, sizes[1], lanes)


@choice()
def write_rates_on_axes(
    y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers, scratch: Vector
) -> None:
    """Write the velocities of a block in several axes, a' = −(I − a aᵀ) ∇Φ, ∇ = ∂_a − 2 a ∂_u."""
    r, (_, _, _, gradient, slope) = sizes[4], tables(sizes, scratch)
    write_monomials(y, count, sizes, scratch)
    write_gradient(y, count, slopes, parameters, sizes, scratch)
    for i in range(count):
        radial = 0.0
        for axis in range(r):
            gradient[axis, i] -= 2.0 * y[i * r + axis] * slope[i]
            radial += y[i * r + axis] * gradient[axis, i]
        for axis in range(r):
            out[i * r + axis] = y[i * r + axis] * radial - gradient[axis, i]


@choice()
def write_potentials_on_axes(
    out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers, scratch: Vector
) -> None:
    """Write the potentials of a block in several axes, from the monomials that `write_rates_on_axes` left."""
    Q, (monomials, _, powers, _, _) = sizes[7], tables(sizes, scratch)
    vector(out, 0, count).fill(0.0)
    for place in range(sizes[1]):
        if parameters[place] != 0.0:
            for i in range(count):
                out[i] += slopes[place] * monomials[place // Q, i] * powers[place % Q, i]


@kernel
def block_rates(
    y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers, scratch: Vector
) -> None:
    """Write the velocities of a block, along one axis −(1 − α²) Φ'(α)."""
    if sizes[4] > 1:
        write_rates_on_axes(y, out, count, slopes, parameters, sizes, scratch)
        return
    write_on_axis(True, y, out, count, slopes, parameters, sizes, scratch)
    for i in range(count):
        out[i] *= (y[i] - 1.0) * (1.0 + y[i])


@kernel
def block_potentials(
    y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers, scratch: Vector
) -> None:
    """Write the potentials of a block, after its velocities."""
    if sizes[4] > 1:
        write_potentials_on_axes(out, count, slopes, parameters, sizes, scratch)
    else:
        write_on_axis(False, y, out, count, slopes, parameters, sizes, scratch)


def choices_of(span: int, *, stride: int, grows: bool) -> tuple[Callable[..., None], ...]:
    """Return the units that particles take in so many axes; along one, `stride` is that of powers, 0 for none."""
    if span > 1:
        growing = (write_potentials_on_axes,) if grows else ()
        return (sums_of_monomials, write_rates_on_axes, *growing)
    return (sums_of_powers, write_by_powers) if stride > 0 else (sums_of_degrees, write_by_degrees)


@kernel
def block_normalise(y: Vector, count: int, sizes: Integers) -> None:
    """Keep |a| ≤ 1: a particle that rounding carries out of the ball is put on its surface."""
    r = sizes[4]
    for i in range(count):
        if r == 1:
            y[i] = min(max(y[i], -1.0), 1.0)
            continue
        square = 0.0
        for axis in range(r):
            square += y[i * r + axis] ** 2
        if square > 1.0:
            for axis in range(r):
                y[i * r + axis] /= np.sqrt(square)


# All particles.


@kernel
def block_masses(y: Vector, first: int, count: int, parameters: Vector, sizes: Integers, lanes: Vector) -> Vector:
    """Return the masses of the particles from `first` on, in `lanes` if they grow."""
    if sizes[5] == 0:
        return vector(parameters, scalars_start(sizes) + 2 + first, count)
    for i in range(count):
        lanes[i] = np.exp(y[sizes[0] * sizes[4] + first + i])
    return vector(lanes, 0, count)


@unit()
def write_moments(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the moments of all particles to the start of `work`."""
    N, M, r, width = sizes[0], sizes[1], sizes[4], lanes_of(sizes)
    sums, lanes, scratch = work[M : 2 * M], work[3 * M :], work[3 * M + width :]
    for k in range(M):
        sums[k] = 0.0
    for first in range(0, N, width):
        count = min(width, N - first)
        masses = block_masses(y, first, count, parameters, sizes, lanes)
        block_sums(y[first * r :], masses, count, parameters, sizes, sums, scratch)
    moments_from_sums(sums, work, parameters, sizes)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write a' = −(I − a aᵀ) ∇Φ of all particles, and (ln n)' where masses grow."""
    N, M, r, width = sizes[0], sizes[1], sizes[4], lanes_of(sizes)
    slopes, scratch = work[2 * M : 3 * M], work[3 * M + width :]
    write_moments(y, parameters, sizes, work)
    write_slopes(work, slopes, parameters, sizes, work[M:])
    for first in range(0, N, width):
        count = min(width, N - first)
        block_rates(y[first * r :], out[first * r :], count, slopes, parameters, sizes, scratch)
        if sizes[5] > 0:
            growth = out[N * r + first :]
            block_potentials(y[first * r :], growth, count, slopes, parameters, sizes, scratch)
            for i in range(count):
                growth[i] *= -4.0


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write level − loss, one per level, then ∫ g_3(w·θ_p) dρ / g_3(1) − a_p/2, one per direction."""
    M, P, levels = sizes[1], sizes[2], sizes[3]
    write_moments(y, parameters, sizes, work)
    loss = parameters[scalars_start(sizes)]
    for k in range(M):
        difference = work[k] - parameters[M + k]
        loss += parameters[k] * difference * difference
    first = 2 * M + P * M + P
    for n in range(levels):
        out[n] = parameters[first + n] - loss
    for p in range(P):
        mass = 0.0
        for k in range(M):
            mass += parameters[2 * M + p * M + k] * work[k]
        out[levels + p] = mass - 0.5 * parameters[2 * M + P * M + p]


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Put particles that rounding carries out of the ball |a| ≤ 1 back on its surface."""
    block_normalise(y, sizes[0], sizes)
