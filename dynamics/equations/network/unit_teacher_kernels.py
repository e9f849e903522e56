"""Means of a neuron with a teacher made of units, f* = Σ_p a_p σ_p(θ_p·x + β_p).

Executed after `layout_kernels` and the kernels of pairs. The teacher's parameters are a (P), β (P) and θ (P, r), its
sizes the number of each unit's link.
"""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.layout_kernels import *
    from dynamics.equations.network.list_student_kernels import *
    from dynamics.equations.pairs.array_kernels import *


@kernel
def write_teacher_rows(parameters: Vector, sizes: Integers, rows: Matrix) -> None:
    """Tables of the teacher's units, of variance 1."""
    m, P = sizes[WIDTH], sizes[UNITS]
    biases, numbers = parameters[sizes[TEACHER_AT] + P :], parameters[sizes[NUMBERS_AT] :]
    for p in range(P):
        write_row(sizes[TEACHER_SIZES_AT + p], 1.0, biases[p], numbers, rows[m + p])


@kernel
def write_teacher_means(
    i: int, b: float, gram: Vector, rows: Matrix, parameters: Vector, sizes: Integers, work: Vector, out: Vector
) -> None:
    """Write E σ_i f*, E σ'_i f*, E σ''_i f* and t_i = E[σ'_i ∇f*] of the neuron whose row of C is `gram`."""
    m, r, P, at = sizes[WIDTH], sizes[AXES], sizes[UNITS], sizes[TEACHER_AT]
    theta, numbers = matrix(parameters, at + 2 * P, P, r), parameters[sizes[NUMBERS_AT] :]
    for k in range(r + 3):
        out[k] = 0.0
    for p in range(P):
        overlap = 0.0
        for a in range(r):
            overlap += gram[m + a] * theta[p, a]
        link, weight = sizes[TEACHER_SIZES_AT + p], parameters[at + p]
        value, first, slopes, second = pair_values(link, overlap, rows[i], rows[m + p], numbers)
        out[0] += weight * value
        out[1] += weight * first
        out[2] += weight * second
        for a in range(r):
            out[3 + a] += weight * slopes * theta[p, a]


@kernel
def write_teacher_changes(
    i: int,
    b: float,
    db: float,
    gram: Vector,
    change: Vector,
    rows: Matrix,
    parameters: Vector,
    sizes: Integers,
    work: Vector,
    out: Vector,
) -> None:
    """Write how the numbers of `write_teacher_means` change with b and the neuron's row of C."""
    m, r, P, at = sizes[WIDTH], sizes[AXES], sizes[UNITS], sizes[TEACHER_AT]
    theta, numbers = matrix(parameters, at + 2 * P, P, r), parameters[sizes[NUMBERS_AT] :]
    E = matrix(work, teacher_scratch_at(sizes), 5, 5)
    half = 0.5 * change[i]
    for k in range(r + 3):
        out[k] = 0.0
    for p in range(P):
        overlap = turned = 0.0
        for a in range(r):
            overlap += gram[m + a] * theta[p, a]
            turned += change[m + a] * theta[p, a]
        link, weight = sizes[TEACHER_SIZES_AT + p], parameters[at + p]
        write_moments(link, overlap, rows[i], rows[m + p], numbers, E)
        for k in range(3):
            out[k] += weight * (E[k + 1, 1] * turned + E[k + 2, 0] * half + E[k + 1, 0] * db)
        slopes = E[2, 2] * turned + E[3, 1] * half + E[2, 1] * db
        for a in range(r):
            out[3 + a] += weight * slopes * theta[p, a]


@kernel
def write_shares(y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write nothing: components are those of a polynomial."""
