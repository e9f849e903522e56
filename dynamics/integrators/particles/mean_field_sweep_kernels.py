"""Compiled steps of blocks of particles whose field is given; executed after particles' kernels and sums of stages.

Blocks of one step of the pair of order 8(5,3) depend on each other through the field at its stages alone. Where that is
known, a block takes all stages while it stays in the fastest cache, and memory is read once per step, not once per
stage. On the way it adds up the sums that the field at the stages is made of.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.equations.mean_field.mean_field_axis_kernels import *
    from dynamics.equations.mean_field.mean_field_kernels import *
    from dynamics.equations.mean_field.mean_field_layout_kernels import *
    from dynamics.integrators.explicit.stage_sum_kernels import *


# Particles whose stages stay in the fastest caches; scratch is made for LANES of them.
SWEPT = 512
# Stages whose field is needed, and rows of sums: these and the end of the step.
STAGES, POINTS = 12, 13
# Rows of DOP853_WEIGHTS with the two error estimates.
ERRORS = 16


@entry(
    "void(i8, i8, f8, f8[::1], f8[::1], f8[:, ::1], f8[:, ::1], f8[:, ::1], f8[::1], f8[::1], f8, f8[::1], i8[::1], "
    "f8[::1])"
)
def sweep(
    begin: int,
    end: int,
    h: float,
    y: Vector,
    new: Vector,
    slopes: Matrix,
    sums: Matrix,
    kept: Matrix,
    errors: Vector,
    atol: Vector,
    rtol: float,
    parameters: Vector,
    sizes: Integers,
    work: Vector,
) -> None:
    """Take the particles from `begin` to `end` through one step h from y to `new`, at the given slopes (STAGES, M).

    Adds to the sums (POINTS, M), raises both errors, in units of the tolerance, and keeps the stages where there is
    room for them.
    """
    r = sizes[4]
    weights = parameters[scalars_start(sizes) + 2 :]
    block = min(LANES, SWEPT)
    stages, trial, none = np.zeros((STAGES, block * r)), np.zeros(block * r), np.zeros(block * r)
    for first in range(begin, end, block):
        count = min(block, end - first)
        size, place = count * r, first * r
        start, end_of, masses = y[place:], new[place:], weights[first:]
        block_sums(start, masses, count, parameters, sizes, sums[0], work)
        block_rates(start, stages[0], count, slopes[0], parameters, sizes, work)
        for s in range(1, STAGES):
            add_stages(start, stages, s, h, size, trial)
            block_sums(trial, masses, count, parameters, sizes, sums[s], work)
            block_rates(trial, stages[s], count, slopes[s], parameters, sizes, work)
        add_stages(start, stages, STAGES, h, size, end_of)
        block_normalise(end_of, count, sizes)
        block_sums(end_of, masses, count, parameters, sizes, sums[STAGES], work)
        for e in range(2):
            add_stages(none, stages, ERRORS + e, h, size, trial)
            errors[e] = max(errors[e], largest_ratio(trial, start, end_of, atol[place:], rtol, size))
        if kept.shape[1] > 0:
            for s in range(STAGES):
                for i in range(size):
                    kept[s, place + i] = stages[s, i]


@entry("void(f8[:, ::1], f8[:, ::1], f8[:, ::1], f8[::1], i8[::1], f8[::1])")
def fields(sums: Matrix, moments: Matrix, slopes: Matrix, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write moments, and the slopes that follow from them, of every row of sums."""
    for s in range(sums.shape[0]):
        moments_from_sums(sums[s], moments[s], parameters, sizes)
        write_slopes(moments[s], slopes[s], parameters, sizes, work)
