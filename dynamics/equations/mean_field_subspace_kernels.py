"""Compiled motion of particles in r axes, laid out as `mean_field_kernels` says.

State y = projections a (N, r), u = 1 − |a|². Moment (κ, q) is the mean of the monomial a^κ u^q, at place κ Q + q. sizes
go on with [K, Q | parent (K) | axis (K)]: monomial k is monomial parent[k] times coordinate axis[k], the first is 1.
Sums are the moments, and slopes the forces. The potential Φ = Σ f_κq a^κ u^q is differentiated backwards along the same
chain, so that a gradient costs about as much as a value: a' = −(I − a aᵀ)(∂_a − 2 a ∂_u) Φ. Scratch: a^κ (K, lanes),
its adjoint (K, lanes), powers of u (Q, lanes), the gradient (r, lanes) and ∂_u (lanes).
"""

import numpy as np

from dynamics.equations.mean_field_kernels import (
    Particles,
    write_events,
    write_rates,
)
from dynamics.kernels.jit import kernel
from hermite.arrays import Integers, Vector

LANES = 64


@kernel
def write_monomials(y: Vector, count: int, sizes: Integers, scratch: Vector) -> None:
    """Monomials a^κ and powers of u."""
    r, K, Q = sizes[4], sizes[6], sizes[7]
    powers = 2 * K * LANES
    for i in range(count):
        scratch[i] = 1.0
        scratch[powers + i] = 1.0
    for k in range(1, K):
        parent, axis = sizes[8 + k] * LANES, sizes[8 + K + k]
        for i in range(count):
            scratch[k * LANES + i] = scratch[parent + i] * y[i * r + axis]
    if Q > 1:
        for i in range(count):
            u = 1.0
            for axis in range(r):
                u -= y[i * r + axis] ** 2
            # Rounding must not make the square of a length negative.
            u = max(u, 0.0)
            for q in range(1, Q):
                scratch[powers + q * LANES + i] = scratch[powers + (q - 1) * LANES + i] * u


@kernel
def block_sums(
    y: Vector, weights: Vector, count: int, parameters: Vector, sizes: Integers, sums: Vector, scratch: Vector
) -> None:
    """Add Σ_i weight_i a_i^κ u_i^q, where the kernel needs it."""
    K, Q = sizes[6], sizes[7]
    powers = 2 * K * LANES
    write_monomials(y, count, sizes, scratch)
    for k in range(K):
        for q in range(Q):
            if parameters[k * Q + q] != 0.0:
                total = 0.0
                for i in range(count):
                    total += weights[i] * scratch[k * LANES + i] * scratch[powers + q * LANES + i]
                sums[k * Q + q] += total


@kernel
def moments_from_sums(sums: Vector, moments: Vector, parameters: Vector, sizes: Integers) -> None:
    """Write the moments μ_κq, which are the sums."""
    for k in range(sizes[1]):
        moments[k] = sums[k]


@kernel
def slopes_from_forces(forces: Vector, slopes: Vector, parameters: Vector, sizes: Integers) -> None:
    """Write the forces themselves, which blocks need."""
    for k in range(sizes[1]):
        slopes[k] = forces[k]


@kernel
def seed_adjoints(count: int, forces: Vector, parameters: Vector, sizes: Integers, scratch: Vector) -> None:
    """Write Σ_q f_κq u^q to the adjoint of a^κ, and ∂_u Φ."""
    r, K, Q = sizes[4], sizes[6], sizes[7]
    adjoint, powers = K * LANES, 2 * K * LANES
    slope = powers + (Q + r) * LANES
    for i in range(count):
        scratch[slope + i] = 0.0
    for k in range(K):
        for i in range(count):
            scratch[adjoint + k * LANES + i] = 0.0
        for q in range(Q):
            force = forces[k * Q + q]
            if parameters[k * Q + q] != 0.0:
                for i in range(count):
                    scratch[adjoint + k * LANES + i] += force * scratch[powers + q * LANES + i]
                if q > 0:
                    for i in range(count):
                        own = scratch[k * LANES + i] * scratch[powers + (q - 1) * LANES + i]
                        scratch[slope + i] += q * force * own


@kernel
def write_gradient(y: Vector, count: int, sizes: Integers, scratch: Vector) -> None:
    """Write ∂_a Φ, from the last monomial back to the first."""
    r, K, Q = sizes[4], sizes[6], sizes[7]
    adjoint = K * LANES
    gradient = adjoint + (K + Q) * LANES
    for k in range(r * LANES):
        scratch[gradient + k] = 0.0
    for k in range(K - 1, 0, -1):
        parent, axis = sizes[8 + k] * LANES, sizes[8 + K + k]
        for i in range(count):
            own = scratch[adjoint + k * LANES + i]
            scratch[adjoint + parent + i] += own * y[i * r + axis]
            scratch[gradient + axis * LANES + i] += own * scratch[parent + i]


@kernel
def block_rates(
    y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers, scratch: Vector
) -> None:
    """Write a' = −(I − a aᵀ) ∇Φ, ∇ = ∂_a − 2 a ∂_u."""
    r, K, Q = sizes[4], sizes[6], sizes[7]
    gradient = (2 * K + Q) * LANES
    slope = gradient + r * LANES
    write_monomials(y, count, sizes, scratch)
    seed_adjoints(count, slopes, parameters, sizes, scratch)
    write_gradient(y, count, sizes, scratch)
    for i in range(count):
        radial = 0.0
        for axis in range(r):
            a = y[i * r + axis]
            scratch[gradient + axis * LANES + i] -= 2.0 * a * scratch[slope + i]
            radial += a * scratch[gradient + axis * LANES + i]
        for axis in range(r):
            out[i * r + axis] = y[i * r + axis] * radial - scratch[gradient + axis * LANES + i]


@kernel
def block_potentials(
    y: Vector, out: Vector, count: int, slopes: Vector, parameters: Vector, sizes: Integers, scratch: Vector
) -> None:
    """Φ = Σ f_κq a^κ u^q, from the monomials that `block_rates` left."""
    K, Q = sizes[6], sizes[7]
    powers = 2 * K * LANES
    for i in range(count):
        out[i] = 0.0
    for k in range(K):
        for q in range(Q):
            if parameters[k * Q + q] != 0.0:
                for i in range(count):
                    out[i] += slopes[k * Q + q] * scratch[k * LANES + i] * scratch[powers + q * LANES + i]


@kernel
def block_normalise(y: Vector, count: int, sizes: Integers) -> None:
    """Keep |a| ≤ 1: a particle that rounding carries out of the ball is put on its surface."""
    r = sizes[4]
    for i in range(count):
        square = 0.0
        for axis in range(r):
            square += y[i * r + axis] ** 2
        if square > 1.0:
            for axis in range(r):
                y[i * r + axis] /= np.sqrt(square)


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
