"""Compiled forces of fast sources on the other rows at the nodes of a step.

Slow rows do not feel the sources at every stage, but at four nodes of the step (`nodes`), by their dense output, and
between them a polynomial in time: 16 m D S operations for S sources in place of 48, and products of more rows at once.
A row is expected to move on evenly until then; what that is wrong by at the end of the step is part of the error that
is corrected there. Sources near a row are left out: they act at every stage by themselves.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dynamics.equations.pairs.rounding_kernels import rounded_coordinate
from dynamics.integrators.large_flow.partial_kernels import far_forces
from dynamics.integrators.large_flow.plan import CLUSTER, POLE, Plan
from dynamics.integrators.large_flow.plan_kernels import add_rest, rest_number
from dynamics.kernels.arrays import Cube, Integers, Matrix, Real, Switches, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import matrix, vector

# Coefficients of the polynomials in time: through the four nodes, and through three past states at most.
COEFFICIENTS = 4

# The rest of the field inside a step, as in `rests.Extrapolation`: rest, its growth, slots, powers.
Rests = tuple[Cube, Matrix, Integers, Matrix]


@kernel
def write_even_motion(i: int, c: int, sign: int, U: Matrix, F: Matrix, drift: Matrix, out: NDArray[Real]) -> None:
    """Write the velocity of row i at the beginning of the step, for one of cluster c the mean over the last step."""
    if c >= 0:
        for k in range(out.size):
            out[k] = rounded_coordinate(sign * drift[c, k])
        return
    radial = length = 0.0
    for k in range(out.size):
        radial += F[i, k] * U[i, k]
        length += U[i, k] * U[i, k]
    radial /= length
    for k in range(out.size):
        out[k] = rounded_coordinate(F[i, k] - radial * U[i, k])


@kernel
def write_far(
    rows: Integers,
    h: float,
    start: tuple[Matrix, Vector, Matrix],
    nodes: tuple[Vector, NDArray[Any], Matrix, Switches],
    drift: Matrix,
    out: tuple[NDArray[Any], Matrix],
    room: NDArray[Real],
    scratch: Vector,
    plan: Plan,
) -> None:
    """Write what distant sources exert on a block of rows at every node; decide at the first which are near.

    `start` is (U, ln n, F) where the step of length h begins, and `nodes` (times, vectors of the sources, their masses,
    which are near each row); `out` takes forces (K, R, D) and growth (K, R).
    """
    (U, _, F), (times, sources, mass, near), (far, growth), of_rows = start, nodes, out, plan[0]
    R, D, S = rows.size, U.shape[1], mass.shape[1]
    begin, velocity, vectors = matrix(room, 0, R, D), matrix(room, R * D, R, D), matrix(room, 2 * R * D, R, D)
    overlap = vector(room, 3 * R * D, R * S)
    for x in range(R):
        i = rows[x]
        for k in range(D):
            begin[x, k] = rounded_coordinate(U[i, k])
        write_even_motion(i, of_rows[CLUSTER, i], of_rows[POLE, i], U, F, drift, velocity[x])
    for z in range(times.size):
        # In the precision of the vectors, which a number of its own would raise to double.
        overlap[0] = times[z] * h
        passed = overlap[0]
        for x in range(R):
            for k in range(D):
                vectors[x, k] = begin[x, k] + passed * velocity[x, k]
        at_node = sources[z], mass[z], near
        far_forces(rows, vectors, at_node, z == 0, overlap, far[z], growth[z], scratch, plan)


@kernel
def write_powers(
    i: int,
    x: int,
    far: tuple[NDArray[Any], Matrix],
    node_powers: Matrix,
    rests: Rests,
    out: Matrix,
    growth: Vector,
) -> None:
    """Write the polynomial in the fraction of the step of the forces that a row feels without its own motion.

    That is the lagged rest of row i, and what distant sources exert at the K nodes on it, row x of their block. The
    coefficient of power q is Σ_s rest_powers[q, s] rest[slots_s] + Σ_z node_powers[q, z] far[z]: vectors in the rows of
    `out`, and numbers in `growth`.
    """
    (force, far_growth), (rest, rest_growth, slots, rest_powers) = far, rests
    for q in range(growth.size):
        power = out[q]
        growth[q] = 0.0
        if force.shape[0] == 0:
            for k in range(power.size):
                power[k] = 0.0
        else:
            a, b, c, d = force[0, x], force[1, x], force[2, x], force[3, x]
            w = node_powers[q]
            for k in range(power.size):
                power[k] = (w[0] * a[k] + w[1] * b[k]) + (w[2] * c[k] + w[3] * d[k])
            for z in range(w.size):
                growth[q] += w[z] * far_growth[z, x]
        if q < slots.size:
            add_rest(i, rest_powers[q], slots, rest, power)
            growth[q] += rest_number(i, rest_powers[q], slots, rest_growth)


@kernel
def write_value(powers: Matrix, time: float, out: Vector) -> None:
    """Write the value of a polynomial at a time, given the vectors of its four coefficients."""
    a, b, c, d = powers[0], powers[1], powers[2], powers[3]
    for k in range(out.size):
        out[k] = a[k] + time * (b[k] + time * (c[k] + time * d[k]))


@kernel
def power_number(powers: Vector, time: float) -> float:
    """Return the value of a polynomial of numbers at a time."""
    total = 0.0
    for q in range(powers.size - 1, -1, -1):
        total = total * time + powers[q]
    return total
