"""Compiled kernels that the mean field has in every subspace, whose particles are told by `Particles`.

The field is a function of the moments μ (M,) of the law: the loss is floor + Σ c (μ − μ*)², a particle's potential is
Φ = Σ c (μ − μ*) times its own share of each moment. sizes = [N, M, P, n, r, grows, …] for N particles in r axes, P
directions and n levels of the loss; parameters = [c (M) | μ* (M) | learned (P, M) | a (P) | levels (n) | floor, d |
masses at the start (N) | …]. State y = projections (N, r), and where the masses grow, by (ln n)' = −4 Φ, their
logarithms (N). `work` starts with moments, sums and slopes (M each) and masses (lanes); scratch for blocks follows.

Blocks of one step depend on each other through the moments alone.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dynamics.kernels.jit import inlined_kernel, kernel, vector
from hermite.arrays import Integers, Vector


class Particles(NamedTuple):
    """The kernels of particles in one kind of subspace.

    `lanes` particles make a block: so many that calls cost nothing beside the vector instructions in them, and so few
    that scratch stays in the fastest cache. What takes such a value is inlined: Numba stores no function on disk that
    hands a function to another one at run time.
    """

    lanes: int
    #: (y, masses, count, parameters, sizes, sums, scratch): add the sums of a block that moments are made of.
    block_sums: Callable[..., None]
    #: (sums, moments, parameters, sizes): write the moments.
    moments_from_sums: Callable[..., None]
    #: (forces, slopes, parameters, sizes): write what a block needs of the forces c (μ − μ*).
    slopes_from_forces: Callable[..., None]
    #: (y, out, count, slopes, parameters, sizes, scratch): write the velocities of a block.
    block_rates: Callable[..., None]
    #: The same arguments: write the potentials of a block, for which `block_rates` may leave something in the scratch.
    block_potentials: Callable[..., None]
    #: (y, count, sizes): put the particles of a block back into the ball |a| ≤ 1.
    block_normalise: Callable[..., None]


@kernel
def scalars_start(sizes: Integers) -> int:
    """Return the place of the floor in the parameters; d follows, then the weights."""
    M, P = sizes[1], sizes[2]
    return int(2 * M + P * M + P + sizes[3])


@kernel
def block_masses(y: Vector, first: int, count: int, parameters: Vector, sizes: Integers, lanes: Vector) -> Vector:
    """Return the masses of the particles from `first` on, in `lanes` if they grow."""
    if sizes[5] == 0:
        return vector(parameters, scalars_start(sizes) + 2 + first, count)
    for i in range(count):
        lanes[i] = np.exp(y[sizes[0] * sizes[4] + first + i])
    return vector(lanes, 0, count)


@inlined_kernel
def write_slopes(
    moments: Vector, slopes: Vector, parameters: Vector, sizes: Integers, scratch: Vector, particles: Particles
) -> None:
    """Write the slopes of the forces c (μ − μ*)."""
    M = sizes[1]
    for k in range(M):
        scratch[k] = parameters[k] * (moments[k] - parameters[M + k])
    particles.slopes_from_forces(scratch, slopes, parameters, sizes)


@inlined_kernel
def write_moments(y: Vector, parameters: Vector, sizes: Integers, work: Vector, particles: Particles) -> None:
    """Write the moments of all particles to the start of `work`."""
    N, M, r = sizes[0], sizes[1], sizes[4]
    sums, lanes, scratch = work[M : 2 * M], work[3 * M :], work[3 * M + particles.lanes :]
    for k in range(M):
        sums[k] = 0.0
    for first in range(0, N, particles.lanes):
        count = min(particles.lanes, N - first)
        masses = block_masses(y, first, count, parameters, sizes, lanes)
        particles.block_sums(y[first * r :], masses, count, parameters, sizes, sums, scratch)
    particles.moments_from_sums(sums, work, parameters, sizes)


@inlined_kernel
def write_rates(
    y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector, particles: Particles
) -> None:
    """Write a' = −(I − a aᵀ) ∇Φ of all particles, and (ln n)' where masses grow."""
    N, M, r = sizes[0], sizes[1], sizes[4]
    slopes, scratch = work[2 * M : 3 * M], work[3 * M + particles.lanes :]
    write_moments(y, parameters, sizes, work, particles)
    write_slopes(work, slopes, parameters, sizes, work[M:], particles)
    for first in range(0, N, particles.lanes):
        count = min(particles.lanes, N - first)
        particles.block_rates(y[first * r :], out[first * r :], count, slopes, parameters, sizes, scratch)
        if sizes[5] > 0:
            growth = out[N * r + first :]
            particles.block_potentials(y[first * r :], growth, count, slopes, parameters, sizes, scratch)
            for i in range(count):
                growth[i] *= -4.0


@inlined_kernel
def write_events(
    y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector, particles: Particles
) -> None:
    """Write level − loss, one per level, then ∫ g_3(w·θ_p) dρ / g_3(1) − a_p/2, one per direction."""
    M, P, levels = sizes[1], sizes[2], sizes[3]
    write_moments(y, parameters, sizes, work, particles)
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
