"""Compiled field of the large-flow solver in its two parts, for a block of rows, one row per neuron.

A row i is a unit vector u_i in R^D with log_n = ln n_i.  Its field is
F_i = Σ_p a_p g'(C_ip) e_p − Σ_{j≠i} n_j g'(G_ij) u_j, its velocity u' = F − (F·u)/(u·u) u, and (ln n)' = 4 growth with
growth_i = Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij).  A neuron's force on itself is radial and therefore never computed.

Rows are multiplied with sources that are not near them in the precision of the given vectors. `scratch` has `SCRATCH`
numbers (`field_kernels`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynamics.equations.pairs.few_rows_kernels import overlaps_of_rows, sums_of_others
from dynamics.equations.pairs.field_kernels import weigh
from dynamics.equations.pairs.link import BLOCK, g0, g1, write_both
from dynamics.equations.pairs.rounding_kernels import SMALLEST_WEIGHT
from dynamics.integrators.large_flow.plan import ACTIVE, BY_BLAS, CLUSTER, DIRECTION, LINK, TEACHER, Plan
from dynamics.integrators.large_flow.plan_kernels import group_end
from dynamics.kernels.arrays import Integers, Matrix, Real, Switches, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import matrix, row_part, vector

# Overlap of a row with a source from which on the source acts by itself at every stage, not by the nodes of a step: the
# force grows like a power k − 1 of it, and so do the errors of nodes. With 0.15 they were twice as large.
NEAR_SOURCE = 0.1


@kernel
def add_members(link: Vector, begin: int, end: int, u: Matrix, log_n: Vector, F: Matrix, growth: Vector) -> None:
    """Add the forces of rows begin … end − 1 of a block, a cluster, on each other."""
    D = u.shape[1]
    for x in range(begin, end):
        for z in range(begin, end):
            if z != x:
                s = 0.0
                for k in range(D):
                    s += u[x, k] * u[z, k]
                n = np.exp(log_n[z])
                growth[x] -= n * g0(link, s)
                w = n * g1(link, s)
                for k in range(D):
                    F[x, k] -= w * u[z, k]


@kernel
def add_sources(
    first: int,
    u: Matrix,
    sources: Matrix,
    mass: Vector,
    overlap: Vector,
    F: Matrix,
    growth: Vector,
    scratch: Vector,
    plan: Plan,
) -> None:
    """Write what the fast sources exert on those from number `first` on; a source exerts nothing on itself.

    `overlap` takes a number for each of them and each source.
    """
    R, S = growth.size, mass.size
    products = matrix(overlap, 0, R, S)
    overlaps_of_rows(plan[BY_BLAS], u, sources, products)
    for x in range(R):
        # Where g and g' are 0.
        products[x, first + x] = 0.0
    weigh(plan[LINK], mass, overlap, 0.0, growth, scratch)
    for x in range(R):
        growth[x] = -growth[x]
    sums_of_others(plan[BY_BLAS], products, sources, F)


@kernel
def far_forces(
    rows: Integers,
    vectors: NDArray[Real],
    sources: tuple[NDArray[Any], Vector, Switches],
    decides: bool,
    overlap: NDArray[Real],
    force: NDArray[Real],
    growth: Vector,
    scratch: Vector,
    plan: Plan,
) -> None:
    """Write what sources exert on rows that are none, but for those near them, on which `decides` has it decide.

    The sources are (vectors, masses, which are near each row), and `overlap` takes a number for each row and source.
    """
    distant, mass, near = sources
    R, S = rows.size, mass.size
    products = matrix(overlap, 0, R, S)
    overlaps_of_rows(plan[BY_BLAS], vectors, distant, products)
    for x in range(R):
        i = rows[x]
        for j in range(S):
            if decides:
                near[i, j] = abs(products[x, j]) > NEAR_SOURCE
            # Where g and g' are 0.
            if near[i, j]:
                products[x, j] = 0.0
    weigh(plan[LINK], mass, overlap, SMALLEST_WEIGHT, growth, scratch)
    for x in range(R):
        growth[x] = -growth[x]
    sums_of_others(plan[BY_BLAS], products, distant, force)


@kernel
def add_near(link: Vector, i: int, u: Vector, sources: Matrix, mass: Vector, near: Switches, F: Vector) -> float:
    """Add the force of the sources that are near row i; return what they add to the growth."""
    total = 0.0
    for j in range(mass.size):
        if near[i, j]:
            s = 0.0
            for k in range(u.size):
                s += u[k] * sources[j, k]
            total -= mass[j] * g0(link, s)
            w = mass[j] * g1(link, s)
            for k in range(u.size):
                F[k] -= w * sources[j, k]
    return total


@kernel
def add_clusters(
    rows: Integers,
    u: Matrix,
    log_n: Vector,
    F: Matrix,
    growth: Vector,
    of_rows: Integers,
    clusters: Integers,
    link: Vector,
    peak: float,
) -> None:
    """Add what the other members of their clusters exert on rows, and a row's own −n_i g(1), g(1) being `peak`.

    The tables are those of the plan.
    """
    for x in range(rows.size):
        growth[x] -= np.exp(log_n[x]) * peak
    for x in range(rows.size):
        end = group_end(x, rows, of_rows, clusters)
        if end > x + 1:
            add_members(link, x, end, u, log_n, F, growth)


@kernel
def direction_of(i: int, of_rows: Integers, clusters: Integers) -> int:
    """Return the direction of the cluster of row i, −1 for a row of none."""
    c = of_rows[CLUSTER, i]
    return int(clusters[DIRECTION, c]) if c >= 0 else -1


@kernel
def add_weighted(a: Vector, u: Vector, value: Vector, slope: Vector, F: Vector) -> tuple[float, float, float]:
    """Add a g'(u) to F, for as many numbers as there are in a; return the sums of a g(u), F u and u²."""
    total = radial = length = 0.0
    for p in range(a.size):
        f = F[p] + a[p] * slope[p]
        F[p] = f
        total += a[p] * value[p]
        radial += f * u[p]
        length += u[p] * u[p]
    return total, radial, length


@kernel
def products_with(u: Vector, F: Vector) -> tuple[float, float]:
    """Return F·u and u·u."""
    radial = length = 0.0
    for k in range(u.size):
        radial += F[k] * u[k]
        length += u[k] * u[k]
    return radial, length


@kernel
def add_teacher(link: Vector, u: Vector, own: int, teacher: Matrix, F: Vector, scratch: Vector) -> tuple[float, float]:
    """Add the force of active directions on one row, and of direction `own`, that of its cluster, or −1 for none.

    Return what they add to the growth, and (F·u)/(u·u). The teacher is the table of the plan.
    """
    total = radial = length = 0.0
    P = teacher.shape[1]
    value, slope = vector(scratch, 0, BLOCK), vector(scratch, BLOCK, BLOCK)
    for begin in range(0, P, BLOCK):
        size = min(BLOCK, P - begin)
        s = vector(u, begin, size)
        write_both(link, s, value, slope)
        # In functions of their own loops are vectorised, here they are not.
        sums = add_weighted(row_part(teacher, ACTIVE, begin, size), s, value, slope, vector(F, begin, size))
        total, radial, length = total + sums[0], radial + sums[1], length + sums[2]
        if begin <= own < begin + size:
            f = teacher[TEACHER, own] * slope[own - begin]
            F[own] += f
            total += teacher[TEACHER, own] * value[own - begin]
            radial += f * u[own]
    sums_beyond = products_with(vector(u, P, u.size - P), vector(F, P, u.size - P))
    return total, (radial + sums_beyond[0]) / (length + sums_beyond[1])


@kernel
def write_difference(v: Vector, w: Vector, factor: float, out: Vector) -> None:
    """Write v − factor · w to another vector, in a function of its own so that the loop is vectorised."""
    for k in range(out.size):
        out[k] = v[k] - factor * w[k]
