"""Compiled forces of fast sources on the other rows at the nodes of a step.

Slow rows do not feel the sources at every stage, but at four nodes of the step (`nodes`), by their dense output, and
between them a polynomial in time: 16 m D S operations for S sources in place of 48, and products of more rows at once.
A row is expected to move on evenly until then; what that is wrong by at the end of the step is part of the error that
is corrected there. Sources near a row are left out: they act at every stage by themselves.

Executed after `partial_kernels`.
"""

from typing import TYPE_CHECKING

from numpy.typing import NDArray

from dynamics.compiler.arrays import Cube, Integers, Matrix, Real, Switches, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix
    from dynamics.equations.pairs.rounding_kernels import rounded_coordinate
    from dynamics.integrators.large_flow.partial_kernels import far_forces
    from dynamics.integrators.large_flow.plan import CLUSTER, POLE
    from dynamics.integrators.large_flow.plan_kernels import add_rest, rest_number

# Coefficients of the polynomials in time: through the four nodes, and through three past states at most.
COEFFICIENTS = 4


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
    U: Matrix,
    F: Matrix,
    times: Vector,
    nodes: NDArray[Real],
    mass: Matrix,
    near: Switches,
    drift: Matrix,
    far: NDArray[Real],
    growth: Matrix,
    room: NDArray[Real],
    of_rows: Integers,
) -> None:
    """Write what distant sources exert on a block of rows at every node; decide at the first which are near."""
    R, D, S = rows.size, U.shape[1], mass.shape[1]
    begin, velocity, vectors = matrix(room, 0, R, D), matrix(room, R * D, R, D), matrix(room, 2 * R * D, R, D)
    overlap = matrix(room, 3 * R * D, R, S)
    for x in range(R):
        i = rows[x]
        for k in range(D):
            begin[x, k] = rounded_coordinate(U[i, k])
        write_even_motion(i, of_rows[CLUSTER, i], of_rows[POLE, i], U, F, drift, velocity[x])
    for z in range(times.size):
        # In the precision of the vectors, which a number of its own would raise to double.
        overlap[0, 0] = times[z] * h
        passed = overlap[0, 0]
        for x in range(R):
            for k in range(D):
                vectors[x, k] = begin[x, k] + passed * velocity[x, k]
        far_forces(rows, vectors, nodes[z], mass[z], near, z == 0, overlap, far[z], growth[z])


@kernel
def write_powers(
    i: int,
    x: int,
    far: NDArray[Real],
    far_growth: Matrix,
    node_powers: Matrix,
    slots: Integers,
    rest: Cube,
    rest_growth: Matrix,
    rest_powers: Matrix,
    powers: Matrix,
    growth: Vector,
) -> None:
    """Write the polynomial in the fraction of the step of the forces that a row feels without its own motion.

    That is the lagged rest of row i, and what distant sources exert at the K nodes on it, row x of their block. The
    coefficient of power q is Σ_s rest_powers[q, s] rest[slots_s] + Σ_z node_powers[q, z] far[z].
    """
    for q in range(growth.size):
        out = powers[q]
        growth[q] = 0.0
        if far.shape[0] == 0:
            for k in range(out.size):
                out[k] = 0.0
        else:
            a, b, c, d = far[0, x], far[1, x], far[2, x], far[3, x]
            w = node_powers[q]
            for k in range(out.size):
                out[k] = (w[0] * a[k] + w[1] * b[k]) + (w[2] * c[k] + w[3] * d[k])
            for z in range(w.size):
                growth[q] += w[z] * far_growth[z, x]
        if q < slots.size:
            add_rest(i, rest_powers[q], slots, rest, out)
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
