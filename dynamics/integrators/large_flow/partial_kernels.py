"""Compiled field of the large-flow solver in its two parts, for a block of rows, one row per neuron.

Executed after the rendered link kernels, `few_rows_kernels`, `rounding_kernels`, a line that sets ROUNDS and
`plan_kernels`, before its passes. Without ROUNDS the compiler never sees what computes in single precision: a second
less.

A row i is a unit vector u_i in R^D with log_n = ln n_i.  Its field is
F_i = Σ_p a_p g'(C_ip) e_p − Σ_{j≠i} n_j g'(G_ij) u_j, its velocity u' = F − (F·u)/(u·u) u, and (ln n)' = 4 growth with
growth_i = Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij).  A neuron's force on itself is radial and therefore never computed.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Matrix, SingleMatrix, Vector
from dynamics.compiler.compilation import counting_kernel, kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.few_rows_kernels import overlaps_of_rows, sums_of_others
    from dynamics.equations.pairs.link_kernels import g0, g1
    from dynamics.equations.pairs.rounding_kernels import NEAR, SMALLEST_WEIGHT, rounded_coordinate
    from dynamics.integrators.large_flow.plan_kernels import Plan

    ROUNDS = False


@kernel
def add_cluster(
    rows: Integers, u: Matrix, log_n: Vector, F: Matrix, growth: Vector, c: int, begin: int, plan: Plan
) -> None:
    """Add the forces inside a cluster, whose rows are consecutive from `begin` in the block: teacher and members."""
    first, direction, coefficient = plan[3], plan[4], plan[7]
    p, a = direction[c], coefficient[c]
    count = first[c + 1] - first[c]
    D = u.shape[1]
    for x in range(begin, begin + count):
        F[x, p] += a * g1(u[x, p])
        growth[x] += a * g0(u[x, p])
        for z in range(begin, begin + count):
            if z != x:
                s = 0.0
                for k in range(D):
                    s += u[x, k] * u[z, k]
                n = np.exp(log_n[z])
                growth[x] -= n * g0(s)
                w = n * g1(s)
                for k in range(D):
                    F[x, k] -= w * u[z, k]


@kernel
def add_sources(
    rows: Integers,
    u: Matrix,
    sources: Matrix,
    mass: Vector,
    overlap: Matrix,
    F: Matrix,
    growth: Vector,
    source: Integers,
) -> None:
    """Write the force of the fast sources and add their growth; a source exerts none on itself."""
    overlaps_of_rows(u, sources, overlap)
    for x in range(rows.size):
        skipped = source[rows[x]]
        total = 0.0
        for j in range(mass.size):
            s = overlap[x, j]
            total += mass[j] * g0(s)
            overlap[x, j] = -mass[j] * g1(s)
        if skipped >= 0:
            s = 0.0
            for k in range(u.shape[1]):
                s += u[x, k] * sources[skipped, k]
            total -= mass[skipped] * g0(s)
            overlap[x, skipped] = 0.0
        growth[x] -= total
    sums_of_others(overlap, sources, F)


@counting_kernel
def add_rounded_sources(
    u: Matrix, sources: Matrix, rounded: SingleMatrix, mass: Vector, F: Matrix, growth: Vector
) -> None:
    """Do the same for rows that are no sources, in single precision but for sources near them.

    What slow rows wait for are the stages of the sources: half as many bytes take half the time.
    """
    (R, D), S = u.shape, mass.size
    vectors, force = np.empty((R, D), dtype=np.float32), np.empty((R, D), dtype=np.float32)
    overlap, near = np.empty((R, S), dtype=np.float32), np.empty((R, S))
    for x in range(R):
        for k in range(D):
            vectors[x, k] = rounded_coordinate(u[x, k])
    overlaps_of_rows(vectors, rounded, overlap)
    for x in range(R):
        total = 0.0
        for j in range(S):
            s = float(overlap[x, j])
            is_near = abs(s) > NEAR
            if is_near:
                s = 0.0
                for k in range(D):
                    s += u[x, k] * sources[j, k]
            total += mass[j] * g0(s)
            w = mass[j] * g1(s)
            near[x, j] = w if is_near else 0.0
            overlap[x, j] = 0.0 if is_near or abs(w) < SMALLEST_WEIGHT else -w
        growth[x] -= total
    sums_of_others(overlap, rounded, force)
    for x in range(R):
        for k in range(D):
            F[x, k] = force[x, k]
        for j in range(S):
            if near[x, j] != 0.0:
                for k in range(D):
                    F[x, k] -= near[x, j] * sources[j, k]


@kernel
def partial_field(
    rows: Integers,
    u: Matrix,
    log_n: Vector,
    sources: Matrix,
    rounded: SingleMatrix,
    mass: Vector,
    overlap: Matrix,
    F: Matrix,
    growth: Vector,
    plan: Plan,
) -> None:
    """Write the field that fast sources, active teachers and the own cluster exert on a block of rows.

    With rows in `rounded`, which are the sources again, their force is computed in single precision.
    `growth` is Σ a g − Σ n g without the factor 4; a row's own −n_i g(1) is in it.
    """
    cluster, source, first, active = plan[1], plan[2], plan[3], plan[6]
    R, P, S = rows.size, active.size, mass.size
    own = g0(1.0)
    for x in range(R):
        growth[x] = -np.exp(log_n[x]) * own
    in_single = False
    if ROUNDS:
        in_single = rounded.shape[0] > 0
        if in_single:
            add_rounded_sources(u, sources, rounded, mass, F, growth)
    if S > 0 and not in_single:
        add_sources(rows, u, sources, mass, overlap, F, growth, source)
    elif S == 0:
        for x in range(R):
            for k in range(u.shape[1]):
                F[x, k] = 0.0
    for x in range(R):
        total = 0.0
        for p in range(P):
            s = u[x, p]
            F[x, p] += active[p] * g1(s)
            total += active[p] * g0(s)
        growth[x] += total
    x = min(0, R)  # 0, but no literal, for which a second copy of `add_cluster` would be compiled
    while x < R:
        c = cluster[rows[x]]
        if c >= 0:
            add_cluster(rows, u, log_n, F, growth, c, x, plan)
            x += first[c + 1] - first[c]
        else:
            x += 1
