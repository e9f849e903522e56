"""Compiled correction of rows at the end of a step of the large-flow solver.

Executed after `plan_kernels`; compiled once for all links.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Cube, Integers, Matrix, Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.integrators.large_flow.plan_kernels import add_rest, rest_number


@entry(
    "void(i8, i8, f8, i8[::1], f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], i8[::1], f8[::1], i8, f8[:,::1], f8[::1],"
    " f8[:,::1], f8[::1], f8[:,::1])"
)
def settle_rows(
    begin: int,
    end: int,
    share: float,
    cluster: Integers,
    F: Matrix,
    growth: Vector,
    rest: Cube,
    rest_growth: Matrix,
    slots: Integers,
    weights: Vector,
    now: int,
    U: Matrix,
    log_n: Vector,
    U_end: Matrix,
    log_end: Vector,
    miss: Matrix,
) -> None:
    """Compare the rest of the field where a step ends with what was extrapolated; write the state, corrected.

    Slot `now` of `rest` and `rest_growth` holds the partial field, and on return the rest of it, F − partial; the
    extrapolated one is Σ_q weights_q rest[slots_q]. `miss` (m, 2) is the largest component of the extrapolation's error
    and that of the growth.  Rows outside clusters move by `share` times that error.
    """
    D = U.shape[1]
    part, part_growth = rest[now], rest_growth[now]
    guess = np.empty(D)
    for i in range(begin, end):
        for k in range(D):
            guess[k] = 0.0
        add_rest(i, weights, slots, rest, guess)
        along = 0.0
        for k in range(D):
            left = F[i, k] - part[i, k]
            part[i, k] = left
            guess[k] = left - guess[k]
            along += guess[k] * U[i, k]
        left = growth[i] - part_growth[i]
        off = left - rest_number(i, weights, slots, rest_growth)
        part_growth[i] = left
        miss[i, 0] = miss[i, 1] = length = 0.0
        log_end[i] = log_n[i]
        moved = 0.0
        if cluster[i] < 0:
            miss[i, 1] = abs(off)
            log_end[i] += share * 4.0 * off
            moved = share
        largest = 0.0
        for k in range(D):
            error = guess[k] - along * U[i, k]
            largest = max(largest, abs(error))
            u = U[i, k] + moved * error
            U_end[i, k] = u
            length += u * u
        if cluster[i] < 0:
            miss[i, 0] = largest
        length = 1.0 / np.sqrt(length)
        for k in range(D):
            U_end[i, k] *= length
