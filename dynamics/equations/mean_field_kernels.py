"""Compiled motion of the mean field's particles, along one axis in zonal polynomials, in several in monomials.

sizes begin with `ParticleCounts`, parameters with `ParticleNumbers`, and `work` holds `ParticleWork`. State y =
projections (N, r), and where the masses grow their logarithms (N).

One axis: C_l' = l (l + d − 2)/(d − 1) times C_(l−1) of R^(d+2). Where the stride is not 0, moments and potential go
through the powers α^k with k = start, start + stride, …, which is several times faster, and the coefficients of the C_l
in all powers (M, M) follow the masses in the parameters. Then sums are those of powers, and slopes the coefficients of
Φ' in powers; else slopes are those of Φ' in zonal polynomials of R^(d+2), at the place of the degree l. Degree 0 has no
slope; its place holds the constant of Φ. Scratch: two rows of lanes.

Several axes, u = 1 − |a|²: moment (κ, q) is the mean of the monomial a^κ u^q, at place κ Q + q. sizes go on with
[parent (K) | axis (K)]: monomial k is monomial parent[k] times coordinate axis[k], the first is 1. Slopes are the
forces. Φ = Σ f_κq a^κ u^q is differentiated backwards along the same chain. Scratch: a^κ (K, lanes), its adjoint
(K, lanes), powers of u (Q, lanes), the gradient (r, lanes) and ∂_u (lanes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.equations.link import HEAD, write_polynomial
from dynamics.kernels.jit import kernel, matrix, vector
from dynamics.kernels.units import choice, unit
from hermite.arrays import Integers, Matrix, Vector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermite.arrays import Array

#: Particles of a block along one axis and in several, of which scratch stays in the fastest cache.
LANES, LANES_IN_SUBSPACE = 2048, 64


class ParticleCounts(NamedTuple):
    """Counts at the start of the integers `sizes` of a mean field, read by `counts_of`."""

    #: Particles N, moments M, directions P, levels of the loss, and axes r.
    particles: int
    moments: int
    directions: int
    levels: int
    axes: int
    #: 1 where masses grow.
    grows: int
    #: Along one axis the stride and the start of powers, and in several K and Q.
    first: int
    second: int


class ParticleNumbers(NamedTuple):
    """Numbers at the start of `parameters`; M moments, P directions, N particles.

    `coefficients` c (M,) and `targets` μ* (M,) make the loss, floor + Σ_k c_k (μ_k − μ*_k)²; `learned` (P, M) times the
    moments is the learned mass per direction; `weights` are the teacher's coefficients a (P,); `levels` the losses that
    are timed; `floor` the loss that the student's link cannot express; `dimension` d; `masses` (N,), of particles whose
    masses do not grow.
    """

    coefficients: Vector
    targets: Vector
    learned: Matrix
    weights: Vector
    levels: Vector
    floor: float
    dimension: float
    masses: Vector


class ParticleWork(NamedTuple):
    """Parts of the scratch `work`, with M moments.

    `moments`, `sums` and `slopes`, (M,) each, where forces overwrite sums once moments are known; `masses` of the
    particles of a block; `scratch`, the rest, for one block.
    """

    moments: Vector
    sums: Vector
    slopes: Vector
    masses: Vector
    scratch: Vector


#: Place in `sizes` of the chain of monomials.
CHAIN_AT = len(ParticleCounts._fields)


@kernel
def counts_of(sizes: Integers) -> ParticleCounts:
    """Return the first entries of `sizes` by name: numbers of particles, moments, directions, levels, axes …."""
    return ParticleCounts(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[7])


def packed(
    counts: ParticleCounts, chain: Sequence[Integers], numbers: ParticleNumbers, powers: Array, rows: int
) -> tuple[Array, Integers, int]:
    """Return (parameters, sizes, number of floats in `work`), the arrays that the kernels of a mean field take.

    `rows` is the number of rows of scratch, of one float per particle of a block.

    `chain` is empty along one axis, and `powers` where the stride is 0.
    """
    parameters = np.concatenate([*(np.ravel(part) for part in numbers), powers.ravel()])
    sizes = np.concatenate([counts, *chain]).astype(np.int64)
    lanes = LANES if counts.axes == 1 else LANES_IN_SUBSPACE
    return parameters, sizes, 3 * counts.moments + (1 + rows) * lanes


@kernel
def lanes_of(sizes: Integers) -> int:
    """Return the largest number of particles in a block, 2048 along one axis and 64 in several."""
    return LANES if counts_of(sizes).axes == 1 else LANES_IN_SUBSPACE


@kernel
def scalars_start(sizes: Integers) -> int:
    """Return the index of the floor of the loss in `parameters`; the dimension d and the masses follow it."""
    counts = counts_of(sizes)
    M, P = counts.moments, counts.directions
    return int(2 * M + P * M + P + counts.levels)


@kernel
def numbers_of(parameters: Vector, sizes: Integers) -> ParticleNumbers:
    """Return views of the parts of `parameters` by name, see `ParticleNumbers`.

    They are c (M,), μ* (M,) and the table of learned masses (P, M), then the teacher's coefficients (P,), levels of the
    loss, floor and dimension, and masses (N,) where these do not grow.
    """
    counts, at = counts_of(sizes), scalars_start(sizes)
    M, P = counts.moments, counts.directions
    return ParticleNumbers(
        vector(parameters, 0, M), vector(parameters, M, M), matrix(parameters, 2 * M, P, M),
        vector(parameters, 2 * M + P * M, P), vector(parameters, at - counts.levels, counts.levels), parameters[at],
        parameters[at + 1], vector(parameters, at + 2, counts.particles),
    )  # fmt: skip


@kernel
def zonal_powers_of(parameters: Vector, sizes: Integers) -> Matrix:
    """Return a view (M, M): row l holds the coefficients of the zonal polynomial C_l in powers of α.

    It exists in `parameters` only where sums are taken in powers of α (the stride of powers is not 0).
    """
    counts = counts_of(sizes)
    return matrix(parameters, scalars_start(sizes) + 2 + counts.particles, counts.moments, counts.moments)


@kernel
def chain_of(sizes: Integers) -> tuple[Integers, Integers]:
    """Return two arrays (K,): the parent of each monomial a^κ, and the axis whose coordinate multiplies it."""
    K = counts_of(sizes).first
    return vector(sizes, CHAIN_AT, K), vector(sizes, CHAIN_AT + K, K)


@kernel
def work_of(sizes: Integers, work: Vector) -> ParticleWork:
    """Return views of the parts of the scratch `work` by name, see `ParticleWork`."""
    M, width = counts_of(sizes).moments, lanes_of(sizes)
    at = 3 * M + width
    return ParticleWork(
        vector(work, 0, M), vector(work, M, M), vector(work, 2 * M, M), vector(work, 3 * M, width),
        vector(work, at, work.size - at),
    )  # fmt: skip


# One axis, in zonal polynomials.


@kernel
def advance_degree(y: Vector, count: int, degree: int, dimension: float, lanes: Vector) -> None:
    """Write the zonal polynomials C_degree and C_(degree+1) at α = y[:count] to the two rows of `lanes`.

    The rows hold C_(degree−1) and C_degree before; at degree 0 their contents do not matter. `dimension` is the d of
    the sphere in R^d on which the polynomials are orthogonal.
    """
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
    """Add Σ_i weight_i C_l(α_i) over the `count` particles of a block to `sums`[l], for l = 0 … M − 1.

    C_l are the zonal polynomials of R^dimension, by their recurrence in l; `lanes` is scratch.
    """
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
    """Write Φ'(α) if `is_slope`, else the potential Φ(α), of the `count` particles of a block to `out`.

    Φ is the field at the projection α = y, and `slopes` (M,) the coefficients of Φ' in the zonal polynomials of
    R^(dimension+2), with the constant of Φ at place 0.
    """
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
    """Add Σ_i weight_i α_i^k over the `count` particles of a block to `sums`[k], and their mass to `sums`[0].

    The powers are k = start, start + stride, … below M; two are summed in each pass. `lanes` is scratch and holds
    weight_i times the next power.
    """
    _, M, _, _, _, _, stride, start = counts_of(sizes)
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
        first_sum = second_sum = 0.0
        for i in range(count):
            low = lanes[i]
            high = low * ratio[i]
            first_sum += low
            second_sum += high
            lanes[i] = high * ratio[i]
        sums[k] += first_sum
        if k + stride < M:
            sums[k + stride] += second_sum


@choice()
def write_by_powers(
    is_slope: bool, y: Vector, out: Vector, count: int, slopes: Vector, sizes: Integers, lanes: Vector
) -> None:
    """Write Φ'(α) if `is_slope`, else the potential Φ(α), of the `count` particles of a block to `out`.

    Φ is the field at the projection α = y, and `slopes`[k] / k its coefficient of α^k, with its constant at place 0.
    """
    _, M, _, _, _, _, stride, start = counts_of(sizes)
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
    """Return five views of `scratch`, with one column for each of the 64 particles ("lanes") of a block.

    A particle has projections a (r,) on the teacher's axes. The views are the K monomials a^κ (K, lanes), the
    derivatives of the potential Φ by them (K, lanes), the Q powers of u = 1 − |a|² (Q, lanes), ∂Φ/∂a at fixed u (r,
    lanes), and ∂Φ/∂u (lanes,).
    """
    (_, _, _, _, r, _, K, Q), width = counts_of(sizes), LANES_IN_SUBSPACE
    monomials, adjoint = matrix(scratch, 0, K, width), matrix(scratch, K * width, K, width)
    powers, at = matrix(scratch, 2 * K * width, Q, width), (2 * K + Q) * width
    return monomials, adjoint, powers, matrix(scratch, at, r, width), vector(scratch, at + r * width, width)


@kernel
def write_monomials(y: Vector, count: int, sizes: Integers, scratch: Vector) -> None:
    """Write to `scratch` the monomials a^κ and the powers of u = 1 − |a|² of `count` particles.

    y holds their projections a row by row, (count, r).
    """
    (_, _, _, _, r, _, K, Q), (parents, axes) = counts_of(sizes), chain_of(sizes)
    monomials, _, powers, _, _ = tables(sizes, scratch)
    for i in range(count):
        monomials[0, i] = powers[0, i] = 1.0
    for k in range(1, K):
        parent, axis = parents[k], axes[k]
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
    """Add Σ_i weight_i a_i^κ u_i^q, u = 1 − |a|², over a block of `count` particles to `sums`, at place κ Q + q.

    Places whose coefficient c in the loss is 0 are left out.
    """
    Q, (monomials, _, powers, _, _) = counts_of(sizes).second, tables(sizes, scratch)
    coefficients = numbers_of(parameters, sizes).coefficients
    write_monomials(y, count, sizes, scratch)
    for place in range(coefficients.size):
        if coefficients[place] != 0.0:
            k, q, total = place // Q, place % Q, 0.0
            for i in range(count):
                total += weights[i] * monomials[k, i] * powers[q, i]
            sums[place] += total


@kernel
def write_gradient(y: Vector, count: int, forces: Vector, parameters: Vector, sizes: Integers, scratch: Vector) -> None:
    """Write ∂Φ/∂u and ∂Φ/∂a at fixed u = 1 − |a|² of `count` particles to `scratch`.

    Φ = Σ f_κq a^κ u^q is the field and `forces` are f, at place κ Q + q. The derivative by a^κ, Σ_q f_κq u^q, is passed
    from the last monomial back to the first along the chain of parents.
    """
    (_, _, _, _, r, _, K, Q), (parents, axes) = counts_of(sizes), chain_of(sizes)
    coefficients = numbers_of(parameters, sizes).coefficients
    monomials, adjoint, powers, gradient, slope = tables(sizes, scratch)
    adjoint.fill(0.0)
    gradient.fill(0.0)
    slope.fill(0.0)
    for place in range(coefficients.size):
        if coefficients[place] != 0.0:
            k, q, force = place // Q, place % Q, forces[place]
            for i in range(count):
                adjoint[k, i] += force * powers[q, i]
            for i in range(count if q > 0 else 0):
                slope[i] += q * force * (monomials[k, i] * powers[q - 1, i])
    for k in range(K - 1, 0, -1):
        parent, axis = parents[k], axes[k]
        for i in range(count):
            adjoint[parent, i] += adjoint[k, i] * y[i * r + axis]
            gradient[axis, i] += adjoint[k, i] * monomials[parent, i]


# Blocks of particles in any number of axes.


@kernel
def block_sums(
    y: Vector, weights: Vector, count: int, parameters: Vector, sizes: Integers, sums: Vector, scratch: Vector
) -> None:
    """Add to `sums` (M,) the sums over a block of `count` particles that moments are made of.

    `y` (count, r), in rows, are the projections of the particles on the teacher's r axes, and `weights` (count,) their
    masses. In several axes entry κ Q + q is Σ_i weight_i a_i^κ u_i^q, with projections a_i and u_i = 1 − |a_i|². Along
    one axis, α_i, entry l is Σ_i weight_i C_l(α_i) of zonal polynomials, or, where `first` of `sizes` is not 0, entry k
    is Σ_i weight_i α_i^k, of which `moments_from_sums` makes moments. `scratch` is for one block.
    """
    counts = counts_of(sizes)
    if counts.axes > 1:
        sums_of_monomials(y, weights, count, parameters, sizes, sums, scratch)
    elif counts.first > 0:
        sums_of_powers(y, weights, count, sizes, sums, scratch)
    else:
        dimension = numbers_of(parameters, sizes).dimension
        sums_of_degrees(y, weights, count, dimension, counts.moments, sums, scratch)


@kernel
def moments_from_sums(sums: Vector, moments: Vector, parameters: Vector, sizes: Integers) -> None:
    """Write the moments μ (M,) of the law of neurons; they equal `sums` unless these are sums of powers of α."""
    counts = counts_of(sizes)
    for degree in range(counts.moments):
        moments[degree] = sums[degree]
    if counts.axes == 1 and counts.first > 0:
        powers = zonal_powers_of(parameters, sizes)
        for degree in range(counts.moments):
            moments[degree] = 0.0
            for k in range(degree + 1):
                moments[degree] += powers[degree, k] * sums[k]


@kernel
def write_slopes(moments: Vector, slopes: Vector, parameters: Vector, sizes: Integers, forces: Vector) -> None:
    """Write the forces f_k = c_k (μ_k − μ*_k) to `forces` (M,), and to `slopes` (M,) what blocks of particles read.

    In several axes slopes are the forces; along one axis they are coefficients of Φ' = Σ_l f_l C_l' in powers of α or
    in zonal polynomials of R^(d+2), with the constant of the field Φ at place 0.
    """
    counts, numbers = counts_of(sizes), numbers_of(parameters, sizes)
    M, dimension = counts.moments, numbers.dimension
    for k in range(M):
        slopes[k] = forces[k] = numbers.coefficients[k] * (moments[k] - numbers.targets[k])
    if counts.axes > 1:
        return
    if counts.first > 0:
        powers = zonal_powers_of(parameters, sizes)
        for k in range(1, M):
            slopes[k] = 0.0
            for degree in range(k, M):
                slopes[k] += k * forces[degree] * powers[degree, k]
            slopes[0] += forces[k] * powers[k, 0]
    else:
        for k in range(1, M):
            slopes[k] = k * (k + dimension - 2.0) / (dimension - 1.0) * forces[k]


@kernel
def write_on_axis(
    is_slope: bool, y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers,
    lanes: Vector,
) -> None:  # fmt: skip
    """Write Φ'(α) if `is_slope`, else the potential Φ(α), of `count` particles along one axis to `out`."""
    counts = counts_of(sizes)
    if counts.first > 0:
        write_by_powers(is_slope, y, out, count, slopes, sizes, lanes)
    else:
        dimension = numbers_of(parameters, sizes).dimension
        write_by_degrees(is_slope, y, out, count, dimension, slopes, counts.moments, lanes)


@choice()
def write_rates_on_axes(
    y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers, scratch: Vector
) -> None:
    """Write the velocities a' = −(I − a aᵀ) ∇Φ of a block of `count` particles in r axes to `out`, (count, r) in rows.

    Φ is the field, and ∇ = ∂_a − 2 a ∂_u its whole derivative, since u = 1 − |a|².
    """
    r, (_, _, _, gradient, slope) = counts_of(sizes).axes, tables(sizes, scratch)
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
    """Write the potentials Φ(a) of a block of `count` particles in several axes to `out`.

    `scratch` must hold their monomials, which `write_rates_on_axes` writes.
    """
    Q, (monomials, _, powers, _, _) = counts_of(sizes).second, tables(sizes, scratch)
    coefficients = numbers_of(parameters, sizes).coefficients
    vector(out, 0, count).fill(0.0)
    for place in range(coefficients.size):
        if coefficients[place] != 0.0:
            for i in range(count):
                out[i] += slopes[place] * monomials[place // Q, i] * powers[place % Q, i]


@kernel
def block_rates(
    y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers, scratch: Vector
) -> None:
    """Write the velocities of a block of `count` particles to `out`, (count, r) in rows.

    Along one axis they are α' = −(1 − α²) Φ'(α), in several a' = −(I − a aᵀ) ∇Φ, where Φ is the field.
    """
    if counts_of(sizes).axes > 1:
        write_rates_on_axes(y, out, count, slopes, parameters, sizes, scratch)
        return
    write_on_axis(True, y, out, count, slopes, parameters, sizes, scratch)
    for i in range(count):
        out[i] *= (y[i] - 1.0) * (1.0 + y[i])


@kernel
def block_potentials(
    y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers, scratch: Vector
) -> None:
    """Write the potentials Φ of a block of `count` particles to `out`, from the scratch of `block_rates`."""
    if counts_of(sizes).axes > 1:
        write_potentials_on_axes(out, count, slopes, parameters, sizes, scratch)
    else:
        write_on_axis(False, y, out, count, slopes, parameters, sizes, scratch)


def choices_of(span: int, *, stride: int, grows: bool) -> tuple[Callable[..., None], ...]:
    """Return the compiled functions for particles in `span` axes: of sums, of velocities, and in several of growth.

    `stride` is the spacing of the powers of α that are summed along one axis, 0 for zonal polynomials; `grows` tells
    whether masses change.
    """
    if span > 1:
        growing = (write_potentials_on_axes,) if grows else ()
        return (sums_of_monomials, write_rates_on_axes, *growing)
    return (sums_of_powers, write_by_powers) if stride > 0 else (sums_of_degrees, write_by_degrees)


@kernel
def block_normalise(y: Vector, count: int, sizes: Integers) -> None:
    """Move each of the `count` particles of y with |a| > 1, by rounding, to the surface |a| = 1."""
    r = counts_of(sizes).axes
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
    """Return the masses (count,) of the particles from index `first` on; growing ones are written to `lanes`."""
    counts = counts_of(sizes)
    if counts.grows == 0:
        return vector(numbers_of(parameters, sizes).masses, first, count)
    for i in range(count):
        lanes[i] = np.exp(y[counts.particles * counts.axes + first + i])
    return vector(lanes, 0, count)


@unit()
def write_moments(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the moments μ_k (M,) of the law of all particles to the first M places of `work`."""
    (N, M, _, _, r, _, _, _), width = counts_of(sizes), lanes_of(sizes)
    moments, sums, _, lanes, scratch = work_of(sizes, work)
    for k in range(M):
        sums[k] = 0.0
    for first in range(0, N, width):
        count = min(width, N - first)
        masses = block_masses(y, first, count, parameters, sizes, lanes)
        block_sums(y[first * r :], masses, count, parameters, sizes, sums, scratch)
    moments_from_sums(sums, moments, parameters, sizes)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of the state: a' = −(I − a aᵀ) ∇Φ of all particles, then (ln n)' = −4 Φ where masses n grow.

    Φ is the field at a particle's projections a. Time t does not enter.
    """
    (N, _, _, _, r, grows, _, _), width = counts_of(sizes), lanes_of(sizes)
    moments, forces, slopes, _, scratch = work_of(sizes, work)
    write_moments(y, parameters, sizes, work)
    write_slopes(moments, slopes, parameters, sizes, forces)
    for first in range(0, N, width):
        count = min(width, N - first)
        block_rates(y[first * r :], out[first * r :], count, slopes, parameters, sizes, scratch)
        if grows > 0:
            growth = out[N * r + first :]
            block_potentials(y[first * r :], growth, count, slopes, parameters, sizes, scratch)
            for i in range(count):
                growth[i] *= -4.0


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write level − loss per level, then learned mass − a_p/2 per direction.

    The learned mass is ∫ g_3(w·θ_p) dρ / g_3(1): ρ is the law of neurons w, θ_p a direction of the teacher, a_p its
    coefficient, and g_3 the part of the link's kernel that counts as learned. An event happens where a value rises
    through 0.
    """
    numbers, moments = numbers_of(parameters, sizes), work_of(sizes, work).moments
    write_moments(y, parameters, sizes, work)
    loss = numbers.floor
    for k in range(moments.size):
        difference = moments[k] - numbers.targets[k]
        loss += numbers.coefficients[k] * difference * difference
    levels = numbers.levels.size
    for n in range(levels):
        out[n] = numbers.levels[n] - loss
    for p in range(numbers.weights.size):
        mass = 0.0
        for k in range(moments.size):
            mass += numbers.learned[p, k] * moments[k]
        out[levels + p] = mass - 0.5 * numbers.weights[p]


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Put particles that rounding carries out of the ball |a| ≤ 1 back on its surface."""
    block_normalise(y, counts_of(sizes).particles, sizes)
