"""Slowed clusters of a small flow, at every stage of a step.

What is done to velocities is what the large-flow solver does to them
(`step_kernels.slow_together`), where it is explained; with the whole field at every stage there are no fast sources and
no lagged rest, as on a device.
"""

import numpy as np

from dynamics.integrators.small_flow.small_slots import CLUSTERS, INTEGERS, ROW_DRIFT, ROW_MEAN, ROW_SHIFT, SQUARES
from dynamics.integrators.system_calls import PARAMETERS, SIZES, System
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import row_part, vector

# As in `large_flow.step_control`, whose value a test holds this to.
KAPPA = 4.0


@kernel
def link_values(squares: Vector, s: float) -> tuple[float, float, float]:
    """Return g(s) = Σ_j c_j² s^j and its first two derivatives."""
    value = slope = bend = 0.0
    for j in range(squares.size - 1, -1, -1):
        bend = bend * s + 2.0 * slope
        slope = slope * s + value
        value = value * s + squares[j]
    return value, slope, bend


@kernel
def parts(counters: Integers, m: int) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the four parts of the integers behind the counts: cluster, pole, order and first."""
    n, at = m + 1, INTEGERS
    return (
        vector(counters, at, n),
        vector(counters, at + n, n),
        vector(counters, at + 2 * n, n),
        vector(counters, at + 3 * n, n),
    )


@kernel
def kept_share(h: float, rate: float) -> float:
    """Return 1 − θ, θ = min(1, κ/(rate h)): what a slowed mode keeps of its velocity in the last step."""
    return max(0.0, 1.0 - KAPPA / (h * rate))


@kernel
def slow(
    h: float, y: Vector, rates: Vector, vectors: Matrix, scalars: Vector, counters: Integers, system: System
) -> None:
    """Replace the mean velocity v of every cluster by θ v + (1 − θ) drift, in place (see `slow_together`)."""
    m, D, squares = system[SIZES][0], system[SIZES][2], vector(scalars, SQUARES, scalars.size - SQUARES)
    cluster, pole, order, first = parts(counters, m)
    mean, shift = vectors[ROW_MEAN], vectors[ROW_SHIFT]
    value, slope, _ = link_values(squares, 1.0)
    for c in range(counters[CLUSTERS]):
        a = system[PARAMETERS][cluster[order[first[c]]]]
        held, held_norm = kept_share(h, a * slope), kept_share(h, 4.0 * a * value)
        if held == held_norm == 0.0:
            continue
        drift = row_part(vectors, ROW_DRIFT, c * (D + 1), D + 1)
        total = mean_lean = 0.0
        for k in range(D + 1):
            mean[k] = 0.0
        for x in range(first[c], first[c + 1]):
            i = order[x]
            n = np.exp(y[m * D + i])
            total += n
            mean[D] += n * rates[m * D + i]
            w = n * pole[i]
            for k in range(D):
                mean[k] += w * rates[i * D + k]
        for k in range(D):
            shift[k] = mean[k] = held * (mean[k] / total - drift[k])
        growth = held_norm * (mean[D] / total - drift[D])
        turn = 0.25 * slope / value * growth
        for x in range(first[c], first[c + 1]):
            i = order[x]
            u = vector(y, i * D, D)
            lean = pole[i] * along(u, mean)
            share = np.exp(y[m * D + i]) / total
            mean_lean += share * lean
            rates[m * D + i] -= growth + 4.0 * lean
            w = share * pole[i] * (lean + turn)
            for k in range(D):
                shift[k] += w * u[k]
        for x in range(first[c], first[c + 1]):
            i = order[x]
            u, du = vector(y, i * D, D), vector(rates, i * D, D)
            rates[m * D + i] += 4.0 * mean_lean
            for k in range(D):
                du[k] -= pole[i] * shift[k]
            # Tangential once more: of a radial rounding of 1e-16 the stages of a long step make errors of ln n of 1e-6.
            w = along(u, du)
            for k in range(D):
                du[k] -= w * u[k]


@kernel
def along(u: Vector, v: Vector) -> float:
    """Return (u·v)/(u·u)."""
    product = length = 0.0
    for k in range(u.size):
        product += u[k] * v[k]
        length += u[k] * u[k]
    return product / length
