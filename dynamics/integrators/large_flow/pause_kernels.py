"""Compiled weight of groups of rows between steps of the large-flow solver."""

from __future__ import annotations

import numpy as np

from dynamics.equations.pairs.link import g0
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import entry


@entry
def weigh_groups(
    begin: int,
    end: int,
    h: float,
    link: Vector,
    groups: tuple[Integers, Integers, Integers],
    a: Vector,
    sign: Vector,
    before: tuple[Matrix, Vector],
    now: tuple[Matrix, Vector, Matrix, Vector],
    out: tuple[Matrix, Matrix],
) -> None:
    """Weigh groups begin … end − 1 of rows: group c holds order[first[c]:first[c + 1]], all near direction[c].

    `groups` is (order, first, direction), `before` (U, ln n) at the beginning of the last step, of length h, `now` the
    same with the field F and growth at its end, and `out` is (drift, result): `drift` (groups, D + 1) is the mean
    velocity of direction and norm over that step; `result` (groups, 4) the mass, the squared distance
    ‖Σ n σ(u·) − a σ(e·)‖², and how far the mean velocity of the direction and that of the norm are now from their
    drift.
    """
    (order, first, direction), (U_before, log_before), (U, log_n, F, growth) = groups, before, now
    drift, result = out
    whole = g0(link, 1.0)
    D = U.shape[1]
    mean = np.empty(D)
    for c in range(begin, end):
        p = direction[c]
        mass = rise = 0.0
        distance = a[p] * a[p] * whole
        for k in range(D):
            mean[k] = drift[c, k] = 0.0
        drift[c, D] = 0.0
        for x in range(first[c], first[c + 1]):
            i = order[x]
            n = np.exp(log_n[i])
            mass += n
            rise += n * 4.0 * growth[i]
            distance += n * n * whole - 2.0 * a[p] * n * g0(link, U[i, p])
            for z in range(first[c], x):
                j = order[z]
                s = 0.0
                for k in range(D):
                    s += U[i, k] * U[j, k]
                distance += 2.0 * n * np.exp(log_n[j]) * g0(link, s)
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
