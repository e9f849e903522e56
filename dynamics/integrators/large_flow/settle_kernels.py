"""Compiled correction of rows at the end of a step of the large-flow solver.

Executed after `plan_kernels`; compiled once for all links.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.arrays import Cube, Integers, Matrix, Real, Vector
from dynamics.compiler.compilation import entry
from dynamics.compiler.numbers import larger

if TYPE_CHECKING:
    from dynamics.integrators.large_flow.plan_kernels import add_rest, rest_number

    REAL = "f8"


@entry(
    f"void(i8, i8, f8, f8, i8[::1], f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], i8[::1], f8[::1], i8, {REAL}[:,::1],"
    " f8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[:,::1])"
)
def settle_rows(
    begin: int,
    end: int,
    share: float,
    share_ahead: float,
    cluster: Integers,
    F: Matrix,
    growth: Vector,
    rest: Cube,
    rest_growth: Matrix,
    slots: Integers,
    weights: Vector,
    now: int,
    ahead: NDArray[Real],
    ahead_growth: Vector,
    U: Matrix,
    log_n: Vector,
    U_end: Matrix,
    log_end: Vector,
    miss: Matrix,
) -> None:
    """Compare the rest of the field where a step ends with what was extrapolated; write the state, corrected.

    Slot `now` of `rest` and `rest_growth` holds the partial field, and on return the rest of it, F − partial; the
    extrapolated one is Σ_q weights_q rest[slots_q], and `ahead`, if it has rows, holds the error of what distant
    sources were expected to exert. `miss` (m, 2) is the largest component of the extrapolation's error
    and that of the growth.  Rows outside clusters move by `share` and `share_ahead` times these two errors.
    """
    D = U.shape[1]
    part, part_growth = rest[now], rest_growth[now]
    off, correction = np.empty(D), np.empty(D)
    for i in range(begin, end):
        for k in range(D):
            off[k] = 0.0
        add_rest(i, weights, slots, rest, off)
        left = growth[i] - part_growth[i]
        off_growth = left - rest_number(i, weights, slots, rest_growth)
        moved_growth = share * off_growth
        part_growth[i] = left
        for k in range(D):
            left = F[i, k] - part[i, k]
            part[i, k] = left
            off[k] = left - off[k]
            correction[k] = share * off[k]
        if ahead.shape[0] > 0:
            off_growth += ahead_growth[i]
            moved_growth += share_ahead * ahead_growth[i]
            for k in range(D):
                off[k] += ahead[i, k]
                correction[k] += share_ahead * ahead[i, k]
        free = 1.0 if cluster[i] < 0 else 0.0
        radial = moved_radial = largest = length = 0.0
        for k in range(D):
            radial += off[k] * U[i, k]
            moved_radial += correction[k] * U[i, k]
        for k in range(D):
            largest = larger(largest, abs(off[k] - radial * U[i, k]))
            u = U[i, k] + free * (correction[k] - moved_radial * U[i, k])
            U_end[i, k] = u
            length += u * u
        length = 1.0 / np.sqrt(length)
        for k in range(D):
            U_end[i, k] *= length
        log_end[i] = log_n[i] + free * 4.0 * moved_growth
        miss[i, 0], miss[i, 1] = free * largest, free * abs(off_growth)
