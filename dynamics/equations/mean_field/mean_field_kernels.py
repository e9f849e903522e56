"""Compiled kernels that the mean field has in every subspace; executed before those of its particles.

The field is a function of the moments μ (M,) of the law: the loss is floor + Σ c (μ − μ*)², a particle's potential is
Φ = Σ c (μ − μ*) times its own share of each moment. sizes = [N, M, P, n, r, grows, …] for N particles in r axes, P
directions and n levels of the loss; parameters = [c (M) | μ* (M) | learned (P, M) | a (P) | levels (n) | floor, d |
masses at the start (N) | …]. State y = projections (N, r), and where the masses grow, by (ln n)' = −4 Φ, their
logarithms (N). `work` starts with moments, sums and slopes (M each) and masses (lanes); scratch for blocks follows.

The particles' own kernels are `block_sums`, which adds the sums of a block that moments are made of,
`moments_from_sums`, `slopes_from_forces`, what a block needs of the forces c (μ − μ*), `block_rates`, the velocities of
a block, `block_potentials`, which may use what that left in the scratch, and `block_normalise`. Blocks of one step
depend on each other through the moments alone. LANES particles make a block: so many that calls cost nothing beside the
vector instructions in them, and so few that scratch stays in the fastest cache.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Vector
from dynamics.compiler.compilation import counting_kernel, kernel
from dynamics.compiler.views import vector

if TYPE_CHECKING:
    from dynamics.equations.mean_field.mean_field_axis_kernels import *
    from dynamics.equations.mean_field.mean_field_layout_kernels import *


@counting_kernel
def block_masses(y: Vector, first: int, count: int, parameters: Vector, sizes: Integers, lanes: Vector) -> Vector:
    """Return the masses of the particles from `first` on, in `lanes` if they grow."""
    if sizes[5] == 0:
        return vector(parameters, scalars_start(sizes) + 2 + first, count)
    for i in range(count):
        lanes[i] = np.exp(y[sizes[0] * sizes[4] + first + i])
    return vector(lanes, 0, count)


@kernel
def write_slopes(moments: Vector, slopes: Vector, parameters: Vector, sizes: Integers, scratch: Vector) -> None:
    """Write the slopes of the forces c (μ − μ*)."""
    M = sizes[1]
    for k in range(M):
        scratch[k] = parameters[k] * (moments[k] - parameters[M + k])
    slopes_from_forces(scratch, slopes, parameters, sizes)


@kernel
def write_moments(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the moments of all particles to the start of `work`."""
    N, M, r = sizes[0], sizes[1], sizes[4]
    sums, lanes, scratch = work[M : 2 * M], work[3 * M :], work[3 * M + LANES :]
    for k in range(M):
        sums[k] = 0.0
    for first in range(0, N, LANES):
        count = min(LANES, N - first)
        masses = block_masses(y, first, count, parameters, sizes, lanes)
        block_sums(y[first * r :], masses, count, parameters, sizes, sums, scratch)
    moments_from_sums(sums, work, parameters, sizes)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write a' = −(I − a aᵀ) ∇Φ of all particles, and (ln n)' where masses grow."""
    N, M, r = sizes[0], sizes[1], sizes[4]
    slopes, scratch = work[2 * M : 3 * M], work[3 * M + LANES :]
    write_moments(y, parameters, sizes, work)
    write_slopes(work, slopes, parameters, sizes, work[M:])
    for first in range(0, N, LANES):
        count = min(LANES, N - first)
        block_rates(y[first * r :], out[first * r :], count, slopes, parameters, sizes, scratch)
        if sizes[5] > 0:
            growth = out[N * r + first :]
            block_potentials(y[first * r :], growth, count, slopes, parameters, sizes, scratch)
            for i in range(count):
                growth[i] *= -4.0


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Put particles that rounding carries out of the ball |a| ≤ 1 back on its surface."""
    block_normalise(y, sizes[0], sizes)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Level − loss, one per level, then ∫ g_3(w·θ_p) dρ / g_3(1) − a_p/2, one per direction."""
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
