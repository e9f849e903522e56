"""Compiled weight of groups of rows between steps of the large-flow solver; executed after the link kernels."""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.equations.pairs.link_kernels import g0


@entry(
    "void(i8, i8, f8, i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[:,::1],"
    " f8[::1],"
    " f8[:,::1], f8[:,::1])"
)
def weigh_groups(
    begin: int,
    end: int,
    h: float,
    order: Integers,
    first: Integers,
    direction: Integers,
    a: Vector,
    sign: Vector,
    U_before: Matrix,
    log_before: Vector,
    U: Matrix,
    log_n: Vector,
    F: Matrix,
    growth: Vector,
    drift: Matrix,
    result: Matrix,
) -> None:
    """Weigh groups begin … end − 1 of rows: group c holds order[first[c]:first[c + 1]], all near direction[c].

    `drift` (groups, D + 1) is the mean velocity of direction and norm over the last step, of length h; `result`
    (groups, 4) the mass, the squared distance ‖Σ n σ(u·) − a σ(e·)‖², and how far the mean velocity of the direction
    and that of the norm are now from their drift.
    """
    D = U.shape[1]
    mean = np.empty(D)
    for c in range(begin, end):
        p = direction[c]
        mass = rise = 0.0
        distance = a[p] * a[p] * g0(1.0)
        for k in range(D):
            mean[k] = drift[c, k] = 0.0
        drift[c, D] = 0.0
        for x in range(first[c], first[c + 1]):
            i = order[x]
            n = np.exp(log_n[i])
            mass += n
            rise += n * 4.0 * growth[i]
            distance += n * n * g0(1.0) - 2.0 * a[p] * n * g0(U[i, p])
            for z in range(first[c], x):
                j = order[z]
                s = 0.0
                for k in range(D):
                    s += U[i, k] * U[j, k]
                distance += 2.0 * n * np.exp(log_n[j]) * g0(s)
            radial = 0.0
            for k in range(D):
                radial += F[i, k] * U[i, k]
            w = n * sign[i]
            for k in range(D):
                mean[k] += w * (F[i, k] - radial * U[i, k])
                drift[c, k] += w * (U[i, k] - U_before[i, k])
            drift[c, D] += n * (log_n[i] - log_before[i])
        square = 0.0
        for k in range(D + 1):
            drift[c, k] /= mass * h
        for k in range(D):
            square += (mean[k] / mass - drift[c, k]) ** 2
        result[c, 0], result[c, 1] = mass, distance
        result[c, 2], result[c, 3] = np.sqrt(square), abs(rise / mass - drift[c, D])
