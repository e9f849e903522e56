"""Compiled slowing of clusters within a step of the large-flow solver."""

from __future__ import annotations

import numpy as np

from dynamics.equations.pairs.link import g0, g1
from dynamics.integrators.large_flow.plan import CLUSTER, POLE
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel


@kernel
def along(u: Vector, v: Vector) -> float:
    """Return (u·v)/(u·u)."""
    product = length = 0.0
    for k in range(u.size):
        product += u[k] * v[k]
        length += u[k] * u[k]
    return product / length


@kernel
def slow_alone(u: Vector, du: Vector, sign: int, held: float, drift: Vector) -> None:
    """Slow the direction of the only neuron of a cluster, as `slow_together` does that of several."""
    product = length = 0.0
    for k in range(u.size):
        product += u[k] * (sign * du[k] - drift[k])
        length += u[k] * u[k]
    radial = product / length
    for k in range(u.size):
        du[k] -= sign * held * (sign * du[k] - drift[k] - radial * u[k])


@kernel
def slow_together(
    c: int,
    rows: Integers,
    u: Matrix,
    log_n: Vector,
    du: Matrix,
    dl: Vector,
    means: tuple[Vector, Vector],
    pace: Matrix,
    drift: Matrix,
    of_rows: Integers,
    link: Vector,
) -> None:
    """Slow cluster c, all rows of a block: b of the mean direction and β of mean ln n are taken away.

    That is what the cluster would lose if it sat b/λ and β/λ' farther, λ = a g'(1) and λ' = 4 a g(1). Members that lean
    by δ_i from the mean, s_i u_i = ū + δ_i, then have other velocities: 4 δ_i·b less of ln n, β (λ/λ') δ_i more of the
    direction. Without that the lag of their mean would drive them apart at h λ δ ~ 1. Every row moves tangentially, by
    T_i = 1 − u_i u_iᵀ; the x whose mean Σ n T x / Σ n is b is b + Σ n u (u·b) / Σ n up to fourth order in δ.
    `means` takes two vectors.
    """
    mean, shift = means
    D = mean.size
    total = mean_growth = mean_lean = 0.0
    for k in range(D):
        mean[k] = 0.0
    for z in range(rows.size):
        n = np.exp(log_n[z])
        total += n
        mean_growth += n * dl[z]
        w = n * of_rows[POLE, rows[z]]
        for k in range(D):
            mean[k] += w * du[z, k]
    for k in range(D):
        mean[k] = (1.0 - pace[c, 0]) * (mean[k] / total - drift[c, k])
        shift[k] = mean[k]
    mean_growth = (1.0 - pace[c, 1]) * (mean_growth / total - drift[c, D])
    turn = 0.25 * g1(link, 1.0) / g0(link, 1.0) * mean_growth
    for z in range(rows.size):
        share, s = np.exp(log_n[z]) / total, of_rows[POLE, rows[z]]
        lean = s * along(u[z], mean)
        mean_lean += share * lean
        dl[z] -= mean_growth + 4.0 * lean
        # T_i δ_i is −T_i ū.
        w = share * s * (lean + turn)
        for k in range(D):
            shift[k] += w * u[z, k]
    for z in range(rows.size):
        dl[z] += 4.0 * mean_lean
        s = of_rows[POLE, rows[z]]
        for k in range(D):
            du[z, k] -= s * shift[k]
        # Tangential once more: of a radial rounding of 1e-16 the stages of a long step make errors of ln n of 1e-6.
        w = along(u[z], du[z])
        for k in range(D):
            du[z, k] -= w * u[z, k]


@kernel
def slow_cluster(
    rows: Integers,
    u: Matrix,
    log_n: Vector,
    du: Matrix,
    dl: Vector,
    means: tuple[Vector, Vector],
    pace: Matrix,
    drift: Matrix,
    of_rows: Integers,
    link: Vector,
) -> None:
    """Replace the mean velocity v of rows, if they are a cluster, by θ v + (1 − θ) drift: its only stiff modes.

    `pace` (c, 2) holds θ of the direction and of the norm, `drift` (c, D + 1) the mean velocity over the last step.
    """
    c = of_rows[CLUSTER, rows[0]]
    if c < 0 or (pace[c, 0] >= 1.0 and pace[c, 1] >= 1.0):
        return
    if rows.size > 1:
        slow_together(c, rows, u, log_n, du, dl, means, pace, drift, of_rows, link)
    else:
        slow_alone(u[0], du[0], of_rows[POLE, rows[0]], 1.0 - pace[c, 0], drift[c])
        dl[0] -= (1.0 - pace[c, 1]) * (dl[0] - drift[c, drift.shape[1] - 1])
