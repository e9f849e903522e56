"""Compiled steps of blocks of particles whose field is given.

Blocks of one step of the pair of order 8(5,3) depend on each other through the field at its stages alone. Where that is
known, a block takes all stages while it stays in the fastest cache, and memory is read once per step, not once per
stage. On the way it adds up the sums that the field at the stages is made of.
"""

import numpy as np

from dynamics.equations import mean_field_axis_kernels, mean_field_subspace_kernels
from dynamics.equations.mean_field_kernels import Particles, scalars_start, write_slopes
from dynamics.integrators.explicit_kernels import add_stages, largest_ratio
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import entry, inlined_kernel

# Particles whose stages stay in the fastest caches; scratch is made for all lanes.
SWEPT = 512
# Stages whose field is needed, and rows of sums: these and the end of the step.
STAGES, POINTS = 12, 13
# Rows of DOP853_WEIGHTS with the two error estimates.
ERRORS = 16


# State y and the state `new` at the end of the step, and `atol`, (n,) each.
Vectors = tuple[Vector, Vector, Vector]
# Sums (POINTS, M), the stages where they are kept, (STAGES, n) or (STAGES, 0), and both errors (2,).
Results = tuple[Matrix, Matrix, Vector]
# Parameters, sizes and scratch of a system.
Numbers = tuple[Vector, Integers, Vector]


@inlined_kernel
def sweep_blocks(
    begin: int,
    end: int,
    h: float,
    vectors: Vectors,
    rtol: float,
    slopes: Matrix,
    results: Results,
    numbers: Numbers,
    particles: Particles,
) -> None:
    """Take the particles from `begin` to `end` through one step h, at the given slopes (STAGES, M).

    Adds to the sums, raises both errors, in units of the tolerance, and keeps the stages where there is room for them.
    """
    y, new, atol = vectors
    sums, kept, errors = results
    parameters, sizes, work = numbers
    r = sizes[4]
    weights = parameters[scalars_start(sizes) + 2 :]
    block = min(particles.lanes, SWEPT)
    stages, trial, none = np.zeros((STAGES, block * r)), np.zeros(block * r), np.zeros(block * r)
    for first in range(begin, end, block):
        count = min(block, end - first)
        size, place = count * r, first * r
        start, end_of, masses = y[place:], new[place:], weights[first:]
        for s in range(POINTS):
            # The state at a stage, or at the end of the step.
            at = start if s == 0 else (trial if s < STAGES else end_of)
            if s > 0:
                add_stages(start, stages, s, h, size, at)
            if s == STAGES:
                particles.block_normalise(at, count, sizes)
            particles.block_sums(at, masses, count, parameters, sizes, sums[s], work)
            if s < STAGES:
                particles.block_rates(at, stages[s], count, slopes[s], parameters, sizes, work)
        for e in range(2):
            add_stages(none, stages, ERRORS + e, h, size, trial)
            errors[e] = max(errors[e], largest_ratio(trial, start, end_of, atol[place:], rtol, size))
        if kept.shape[1] > 0:
            for s in range(STAGES):
                for i in range(size):
                    kept[s, place + i] = stages[s, i]


@inlined_kernel
def write_fields(sums: Matrix, moments: Matrix, slopes: Matrix, numbers: Numbers, particles: Particles) -> None:
    """Write moments, and the slopes that follow from them, of every row of sums."""
    parameters, sizes, work = numbers
    for s in range(sums.shape[0]):
        particles.moments_from_sums(sums[s], moments[s], parameters, sizes)
        write_slopes(moments[s], slopes[s], parameters, sizes, work, particles)


@entry
def sweep_on_axis(
    begin: int,
    end: int,
    h: float,
    vectors: Vectors,
    rtol: float,
    slopes: Matrix,
    results: Results,
    numbers: Numbers,
) -> None:
    """Call `sweep_blocks` for particles along one axis."""
    sweep_blocks(begin, end, h, vectors, rtol, slopes, results, numbers, mean_field_axis_kernels.PARTICLES)


@entry
def sweep_in_subspace(
    begin: int,
    end: int,
    h: float,
    vectors: Vectors,
    rtol: float,
    slopes: Matrix,
    results: Results,
    numbers: Numbers,
) -> None:
    """Call `sweep_blocks` for particles in several axes."""
    sweep_blocks(begin, end, h, vectors, rtol, slopes, results, numbers, mean_field_subspace_kernels.PARTICLES)


@entry
def fields_on_axis(sums: Matrix, moments: Matrix, slopes: Matrix, numbers: Numbers) -> None:
    """Call `write_fields` for particles along one axis."""
    write_fields(sums, moments, slopes, numbers, mean_field_axis_kernels.PARTICLES)


@entry
def fields_in_subspace(sums: Matrix, moments: Matrix, slopes: Matrix, numbers: Numbers) -> None:
    """Call `write_fields` for particles in several axes."""
    write_fields(sums, moments, slopes, numbers, mean_field_subspace_kernels.PARTICLES)


#: The entries `sweep` and `fields` of each kind of particles.
ENTRIES = {
    mean_field_axis_kernels.PARTICLES: (sweep_on_axis, fields_on_axis),
    mean_field_subspace_kernels.PARTICLES: (sweep_in_subspace, fields_in_subspace),
}
