"""Compiled motion of particles in r axes; executed after `mean_field_kernels`, which says the layout.

State y = projections a (N, r), u = 1 − |a|². Moment (κ, q) is the mean of the monomial a^κ u^q, at place κ Q + q. sizes
go on with [r, K, Q | parent (K) | axis (K)]: monomial k is monomial parent[k] times coordinate axis[k], the first is 1.
The potential Φ = Σ f_κq a^κ u^q is differentiated backwards along the same chain, so that a gradient costs about as
much as a value: a' = −(I − a aᵀ)(∂_a − 2 a ∂_u) Φ. Scratch: a^κ (K, lanes), its adjoint (K, lanes), powers of u
(Q, lanes), the gradient (r, lanes) and ∂_u (lanes).
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
def write_monomials(y: FloatVector, first: int, count: int, sizes: IntVector, work: FloatVector) -> None:
    """Monomials a^κ and powers of u of `count` particles from `first` on."""
    r, K, Q = sizes[4], sizes[5], sizes[6]
    place = 2 * sizes[1]
    powers = place + 2 * K * LANES
    for i in range(count):
        work[place + i] = 1.0
        work[powers + i] = 1.0
    for k in range(1, K):
        parent, axis = place + sizes[7 + k] * LANES, sizes[7 + K + k]
        for i in range(count):
            work[place + k * LANES + i] = work[parent + i] * y[(first + i) * r + axis]
    if Q > 1:
        for i in range(count):
            u = 1.0
            for axis in range(r):
                u -= y[(first + i) * r + axis] ** 2
            # Rounding must not make the square of a length negative.
            u = max(u, 0.0)
            for q in range(1, Q):
                work[powers + q * LANES + i] = work[powers + (q - 1) * LANES + i] * u


@kernel
def write_moments(y: FloatVector, parameters: FloatVector, sizes: IntVector, work: FloatVector) -> None:
    """μ_κq = Σ_i weight_i a_i^κ u_i^q, where the kernel needs it, else 0."""
    N, M, K, Q = sizes[0], sizes[1], sizes[5], sizes[6]
    scalars = scalars_start(sizes)
    place = 2 * M
    powers = place + 2 * K * LANES
    for k in range(M):
        work[k] = 0.0
    for first in range(0, N, LANES):
        count = min(LANES, N - first)
        write_monomials(y, first, count, sizes, work)
        for k in range(K):
            for q in range(Q):
                if parameters[k * Q + q] != 0.0:
                    total = 0.0
                    for i in range(count):
                        own = work[place + k * LANES + i] * work[powers + q * LANES + i]
                        total += parameters[scalars + 2 + first + i] * own
                    work[k * Q + q] += total


@kernel
def seed_adjoints(count: int, parameters: FloatVector, sizes: IntVector, work: FloatVector) -> None:
    """Σ_q f_κq u^q into the adjoint of a^κ, and ∂_u Φ."""
    M, r, K, Q = sizes[1], sizes[4], sizes[5], sizes[6]
    place = 2 * M
    adjoint = place + K * LANES
    powers = adjoint + K * LANES
    slope = powers + (Q + r) * LANES
    for i in range(count):
        work[slope + i] = 0.0
    for k in range(K):
        for i in range(count):
            work[adjoint + k * LANES + i] = 0.0
        for q in range(Q):
            force = work[M + k * Q + q]
            if parameters[k * Q + q] != 0.0:
                for i in range(count):
                    work[adjoint + k * LANES + i] += force * work[powers + q * LANES + i]
                if q > 0:
                    for i in range(count):
                        own = work[place + k * LANES + i] * work[powers + (q - 1) * LANES + i]
                        work[slope + i] += q * force * own


@kernel
def write_gradient(y: FloatVector, first: int, count: int, sizes: IntVector, work: FloatVector) -> None:
    """Write ∂_a Φ, from the last monomial back to the first."""
    M, r, K, Q = sizes[1], sizes[4], sizes[5], sizes[6]
    place = 2 * M
    adjoint = place + K * LANES
    gradient = adjoint + (K + Q) * LANES
    for k in range(r * LANES):
        work[gradient + k] = 0.0
    for k in range(K - 1, 0, -1):
        parent, axis = sizes[7 + k] * LANES, sizes[7 + K + k]
        for i in range(count):
            own = work[adjoint + k * LANES + i]
            work[adjoint + parent + i] += own * y[(first + i) * r + axis]
            work[gradient + axis * LANES + i] += own * work[place + parent + i]


@kernel
def rhs(
    t: float, y: FloatVector, out: FloatVector, parameters: FloatVector, sizes: IntVector, work: FloatVector
) -> None:
    """Write a' = −(I − a aᵀ) ∇Φ, ∇ = ∂_a − 2 a ∂_u."""
    N, M, r, K, Q = sizes[0], sizes[1], sizes[4], sizes[5], sizes[6]
    gradient = 2 * M + (2 * K + Q) * LANES
    slope = gradient + r * LANES
    write_moments(y, parameters, sizes, work)
    write_forces(parameters, sizes, work)
    for first in range(0, N, LANES):
        count = min(LANES, N - first)
        write_monomials(y, first, count, sizes, work)
        seed_adjoints(count, parameters, sizes, work)
        write_gradient(y, first, count, sizes, work)
        for i in range(count):
            radial = 0.0
            for axis in range(r):
                a = y[(first + i) * r + axis]
                work[gradient + axis * LANES + i] -= 2.0 * a * work[slope + i]
                radial += a * work[gradient + axis * LANES + i]
            for axis in range(r):
                a = y[(first + i) * r + axis]
                out[(first + i) * r + axis] = a * radial - work[gradient + axis * LANES + i]


@kernel
def normalise(y: FloatVector, parameters: FloatVector, sizes: IntVector) -> None:
    """Keep |a| ≤ 1: a particle that rounding carries out of the ball is put on its surface."""
    r = sizes[4]
    for i in range(sizes[0]):
        square = 0.0
        for axis in range(r):
            square += y[i * r + axis] ** 2
        if square > 1.0:
            for axis in range(r):
                y[i * r + axis] /= np.sqrt(square)
