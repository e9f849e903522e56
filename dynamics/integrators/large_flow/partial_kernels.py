"""Compiled field of the large-flow solver in its two parts, for a block of rows, one row per neuron.

Executed after the rendered link kernels, `few_rows_kernels`, `rounding_kernels`, a line that sets REAL and
`plan_kernels`, before its passes.  REAL, "f4" or "f8", is the precision in which rows are multiplied with sources that
are not near them.

A row i is a unit vector u_i in R^D with log_n = ln n_i.  Its field is
F_i = Σ_p a_p g'(C_ip) e_p − Σ_{j≠i} n_j g'(G_ij) u_j, its velocity u' = F − (F·u)/(u·u) u, and (ln n)' = 4 growth with
growth_i = Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij).  A neuron's force on itself is radial and therefore never computed.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.arrays import Integers, Matrix, Real, Switches, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.few_rows_kernels import overlaps_of_rows, sums_of_others
    from dynamics.equations.pairs.link_kernels import g0, g1
    from dynamics.equations.pairs.rounding_kernels import SMALLEST_WEIGHT
    from dynamics.integrators.large_flow.plan import CLUSTER, DIRECTION, TEACHER, Plan
    from dynamics.integrators.large_flow.plan_kernels import group_end

# Overlap of a row with a source from which on the source acts by itself at every stage, not by the nodes of a step: the
# force grows like a power k − 1 of it, and so do the errors of nodes. With 0.15 they were twice as large.
NEAR_SOURCE = 0.1


@kernel
def add_cluster(begin: int, end: int, p: int, a: float, u: Matrix, log_n: Vector, F: Matrix, growth: Vector) -> None:
    """Add the forces inside the cluster of direction p, rows begin … end − 1 of a block: teacher and members."""
    D = u.shape[1]
    for x in range(begin, end):
        F[x, p] += a * g1(u[x, p])
        growth[x] += a * g0(u[x, p])
        for z in range(begin, end):
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
    first: int, u: Matrix, sources: Matrix, mass: Vector, overlap: Matrix, F: Matrix, growth: Vector
) -> None:
    """Write what the fast sources exert on those from number `first` on; a source exerts nothing on itself."""
    overlaps_of_rows(u, sources, overlap)
    for x in range(u.shape[0]):
        total = length = 0.0
        for j in range(mass.size):
            s = overlap[x, j]
            total += mass[j] * g0(s)
            overlap[x, j] = -mass[j] * g1(s)
        for k in range(u.shape[1]):
            length += u[x, k] * u[x, k]
        overlap[x, first + x] = 0.0
        growth[x] = mass[first + x] * g0(length) - total
    sums_of_others(overlap, sources, F)


@kernel
def far_forces(
    rows: Integers,
    vectors: NDArray[Real],
    sources: NDArray[Real],
    mass: Vector,
    near: Switches,
    decides: bool,
    overlap: NDArray[Real],
    force: NDArray[Real],
    growth: Vector,
) -> None:
    """Write what sources exert on rows that are none, but for those near them, on which `decides` has it decide."""
    overlaps_of_rows(vectors, sources, overlap)
    for x in range(rows.size):
        i = rows[x]
        total = 0.0
        for j in range(mass.size):
            s = float(overlap[x, j])
            if decides:
                near[i, j] = abs(s) > NEAR_SOURCE
            w = mass[j] * g1(s)
            if near[i, j] or abs(w) < SMALLEST_WEIGHT:
                w = 0.0
            if not near[i, j]:
                total += mass[j] * g0(s)
            overlap[x, j] = -w
        growth[x] = -total
    sums_of_others(overlap, sources, force)


@kernel
def add_near(i: int, u: Vector, sources: Matrix, mass: Vector, near: Switches, F: Vector) -> float:
    """Add the force of the sources that are near row i; return what they add to the growth."""
    total = 0.0
    for j in range(mass.size):
        if near[i, j]:
            s = 0.0
            for k in range(u.size):
                s += u[k] * sources[j, k]
            total -= mass[j] * g0(s)
            w = mass[j] * g1(s)
            for k in range(u.size):
                F[k] -= w * sources[j, k]
    return total


@kernel
def add_clusters(rows: Integers, u: Matrix, log_n: Vector, F: Matrix, growth: Vector, plan: Plan) -> None:
    """Add what their clusters exert on rows, and a row's own −n_i g(1)."""
    of_rows, clusters, teacher = plan
    own = g0(1.0)
    for x in range(rows.size):
        growth[x] -= np.exp(log_n[x]) * own
    for x in range(rows.size):
        c, end = of_rows[CLUSTER, rows[x]], group_end(x, rows, plan)
        if c >= 0 and end > x:
            p = clusters[DIRECTION, c]
            add_cluster(x, end, p, teacher[TEACHER, p], u, log_n, F, growth)


@kernel
def add_active(u: Vector, active: Vector, F: Vector) -> tuple[float, float]:
    """Add the force of active teachers on one row; return what they add to the growth, and (F·u)/(u·u)."""
    total = radial = length = 0.0
    for p in range(active.size):
        s = u[p]
        f = F[p] + active[p] * g1(s)
        F[p] = f
        total += active[p] * g0(s)
        radial += f * s
        length += s * s
    for k in range(active.size, u.size):
        radial += F[k] * u[k]
        length += u[k] * u[k]
    return total, radial / length
