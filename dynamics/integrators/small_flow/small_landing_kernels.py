"""Compiled end of a step of a small flow: where the stiff means of clusters belong once the field there is known.

`large_flow.landing_kernels` and `large_flow.device` explain what is done.
"""

import numpy as np

from dynamics.integrators.shared_kernels import copy_row
from dynamics.integrators.slots import EVALUATIONS, ROW_START, ROW_STATE
from dynamics.integrators.small_flow.cluster_kernels import KAPPA, along, link_values, parts
from dynamics.integrators.small_flow.small_slots import (
    CLUSTERS,
    NOTICED,
    ROW_DRIFT,
    ROW_FIVE,
    ROW_MEAN,
    ROW_RATES,
    ROW_SHIFT,
    SQUARES,
    STEP_BEFORE,
)
from dynamics.integrators.system_calls import PARAMETERS, SIZES, System, normalise, rhs
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import row_part, vector

# As in `large_flow.device.step`.
DISPLACED_SHARE = 0.553


@kernel
def weigh_shift(c: int, h: float, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> float:
    """Write how far cluster c sits from where it belongs at the end of a step of length h (see `weigh_shifts`).

    Returned is the largest change of another neuron's velocity by it.
    """
    m, D, squares = system[SIZES][0], system[SIZES][2], vector(scalars, SQUARES, scalars.size - SQUARES)
    cluster, pole, order, first = parts(counters, m)
    y, start, rates = vectors[ROW_STATE], vectors[ROW_START], vectors[ROW_RATES]
    p = cluster[order[first[c]]]
    a, shift = system[PARAMETERS][p], row_part(vectors, ROW_SHIFT, c * (D + 1), D + 1)
    drift, velocity = row_part(vectors, ROW_DRIFT, c * (D + 1), D + 1), vectors[ROW_MEAN]
    rho = total = overlap = square = 0.0
    for k in range(D + 1):
        # The drift of a cluster whose members have just changed is unknown, and 0.
        if drift[k] != 0.0 and scalars[STEP_BEFORE] > 0.0:
            rho = h / (h + scalars[STEP_BEFORE])
        shift[k] = velocity[k] = 0.0
    for x in range(first[c], first[c + 1]):
        i = order[x]
        n = np.exp(y[m * D + i])
        total += n
        velocity[D] += n * rates[m * D + i]
        shift[D] += n * (y[m * D + i] - start[m * D + i])
        w = n * pole[i]
        for k in range(i * D, (i + 1) * D):
            velocity[k - i * D] += w * rates[k]
            shift[k - i * D] += w * (y[k] - start[k])
    forward = (1.0 + rho) / h
    value, slope, _ = link_values(squares, 1.0)
    for k in range(D + 1):
        rate = a * slope if k < D else 4.0 * a * value
        # Modes that relax less than κ within a step are not slowed.
        follows = -np.expm1(-max(h * rate - KAPPA, 0.0))
        shift[k] = follows * (velocity[k] / total - forward * shift[k] / total + rho * drift[k]) / (rate + forward)
        square += shift[k] * shift[k] if k < D else 0.0
    for i in range(m):
        if cluster[i] != p:
            overlap = max(overlap, abs(y[i * D + p]))
    _, _, bend = link_values(squares, overlap)
    return float(a * abs(bend) * max(np.sqrt(square), abs(shift[D])))


@kernel
def land(h: float, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Move clusters at the end of a step to where their stiff means belong, if others notice it.

    Other neurons are moved back by what they felt of clusters that sat elsewhere: the change of their rates at the end,
    for `DISPLACED_SHARE` of the step.
    """
    m, D = system[SIZES][0], system[SIZES][2]
    y, rates, felt = vectors[ROW_STATE], vectors[ROW_RATES], vectors[ROW_FIVE]
    cluster, pole, order, first = parts(counters, m)
    noticed = 0.0
    for c in range(counters[CLUSTERS]):
        noticed = max(noticed, weigh_shift(c, h, vectors, scalars, counters, system))
    if h * noticed <= scalars[NOTICED]:
        return
    for c in range(counters[CLUSTERS]):
        b = row_part(vectors, ROW_SHIFT, c * (D + 1), D + 1)
        for x in range(first[c], first[c + 1]):
            i = order[x]
            u = vector(y, i * D, D)
            w = along(u, b)
            for k in range(D):
                u[k] += pole[i] * (b[k] - w * u[k])
            y[m * D + i] += b[D]
    normalise(y, system)
    copy_row(felt, rates)
    rhs(0.0, y, rates, system)
    for i in range(m):
        if cluster[i] < 0:
            for k in range(D):
                y[i * D + k] -= DISPLACED_SHARE * h * (felt[i * D + k] - rates[i * D + k])
            y[m * D + i] -= DISPLACED_SHARE * h * (felt[m * D + i] - rates[m * D + i])
    normalise(y, system)
    rhs(0.0, y, rates, system)
    counters[EVALUATIONS] += 2
