"""Compiled correction of rows at the end of a step of the large-flow solver."""

from __future__ import annotations

import numpy as np

from dynamics.integrators.large_flow.landing_kernels import Lag, State
from dynamics.integrators.large_flow.plan_kernels import add_rest, rest_number
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import entry


@entry
def settle_rows(
    begin: int,
    end: int,
    share: float,
    share_ahead: float,
    cluster: Integers,
    state: State,
    lag: Lag,
    settled: tuple[Matrix, Vector],
    miss: Matrix,
) -> None:
    """Compare the rest of the field where a step ends with what was extrapolated; write the state, corrected.

    State and lag are as in `landing_kernels`; on return `part` and `part_growth` of the lag hold the rest of the field.
    `settled` takes (U, ln n), and `miss` (m, 2) the largest component of the extrapolation's error and that of the
    growth. Rows outside clusters move by `share` and `share_ahead` times these two errors.
    """
    (U, log_n, F, growth), (U_end, log_end) = state, settled
    rest, rest_growth, slots, weights, part, part_growth, ahead, ahead_growth = lag
    D = U.shape[1]
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
            largest = max(largest, abs(off[k] - radial * U[i, k]))
            u = U[i, k] + free * (correction[k] - moved_radial * U[i, k])
            U_end[i, k] = u
            length += u * u
        length = 1.0 / np.sqrt(length)
        for k in range(D):
            U_end[i, k] *= length
        log_end[i] = log_n[i] + free * 4.0 * moved_growth
        miss[i, 0], miss[i, 1] = free * largest, free * abs(off_growth)
