"""Means of a neuron with a polynomial teacher, f* = Σ_α f*_α h_α, h_α = Π_a h_(α_a)(x_a).

Executed after `layout_kernels` and the kernels of pairs. With D_j = E σ^(j)(λ_i) and g_α = f*_α/√α!,

    E[σ_i f*] = Σ_α g_α D_|α| M_i^α,  E[σ'_i f*] and E[σ''_i f*]: D_(|α|+1), D_(|α|+2),  t_ia = Σ_α g_α D_|α| ∂_a M_i^α,

and f_α = s Σ_i v_i D_|α| M_i^α/√α!. The terms are α = 0, then the components; parameters g_α, then 1/(√α! f*_α) per
term; sizes α (terms, r). ∂D_j/∂b = D_(j+1), ∂D_j/∂Q_ii = D_(j+2)/2.
"""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.layout_kernels import *
    from dynamics.equations.network.list_kernels import *


@kernel
def write_teacher_rows(parameters: Vector, sizes: Integers, rows: Matrix) -> None:
    """Write no tables: a polynomial has no units."""


@kernel
def monomial(term: int, M: Vector, first: int, second: int, sizes: Integers) -> float:
    """Return ∂_first ∂_second M^α; an axis −1 stands for no derivative."""
    r = sizes[AXES]
    product = 1.0
    for a in range(r):
        power = sizes[TEACHER_SIZES_AT + term * r + a]
        if a == first:
            product *= power
            power -= 1
        if a == second:
            product *= power
            power -= 1
        if product == 0.0:
            return 0.0
        for _ in range(power):
            product *= M[a]
    return product


@kernel
def degree_of(term: int, sizes: Integers) -> int:
    """Return |α|."""
    r, total = sizes[AXES], 0
    for a in range(r):
        total += sizes[TEACHER_SIZES_AT + term * r + a]
    return total


@kernel
def write_teacher_means(
    i: int, b: float, gram: Vector, rows: Matrix, parameters: Vector, sizes: Integers, work: Vector, out: Vector
) -> None:
    """Write E σ_i f*, E σ'_i f*, E σ''_i f* and t_i = E[σ'_i ∇f*] of the neuron whose row of C is `gram`."""
    m, r = sizes[WIDTH], sizes[AXES]
    D, M = work[teacher_scratch_at(sizes) + MOMENTS :], gram[m:]
    write_derivatives(gram[i], b, sizes[DEGREE] + 3, parameters[sizes[NUMBERS_AT] :], D)
    for k in range(r + 3):
        out[k] = 0.0
    for term in range(sizes[COMPONENTS] + 1):
        n, weight = degree_of(term, sizes), parameters[sizes[TEACHER_AT] + term]
        power = weight * monomial(term, M, -1, -1, sizes)
        for k in range(3):
            out[k] += power * D[n + k]
        for a in range(r):
            if sizes[TEACHER_SIZES_AT + term * r + a] > 0:
                out[3 + a] += weight * D[n] * monomial(term, M, a, -1, sizes)


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
    m, r, half = sizes[WIDTH], sizes[AXES], 0.5 * change[i]
    D, M = work[teacher_scratch_at(sizes) + MOMENTS :], gram[m:]
    write_derivatives(gram[i], b, sizes[DEGREE] + 5, parameters[sizes[NUMBERS_AT] :], D)
    for k in range(r + 3):
        out[k] = 0.0
    for term in range(sizes[COMPONENTS] + 1):
        n, weight = degree_of(term, sizes), parameters[sizes[TEACHER_AT] + term]
        power, turned = weight * monomial(term, M, -1, -1, sizes), 0.0
        for a in range(r):
            turned += weight * monomial(term, M, a, -1, sizes) * change[m + a]
        for k in range(3):
            out[k] += power * (D[n + k + 1] * db + D[n + k + 2] * half) + turned * D[n + k]
        for a in range(r):
            slope, bent = monomial(term, M, a, -1, sizes), 0.0
            for c in range(r):
                bent += monomial(term, M, a, c, sizes) * change[m + c]
            out[3 + a] += weight * (slope * (D[n + 1] * db + D[n + 2] * half) + bent * D[n])


@kernel
def write_shares(y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write f_α/f*_α per component."""
    m, r, terms = sizes[WIDTH], sizes[AXES], sizes[COMPONENTS] + 1
    D, scale = work[teacher_scratch_at(sizes) + MOMENTS :], parameters[SCALE]
    for term in range(1, terms):
        out[term - 1] = 0.0
    for i in range(m):
        write_derivatives(y[2 * m + m * r + i * m + i], y[m + i], sizes[DEGREE] + 1, parameters[sizes[NUMBERS_AT] :], D)
        for term in range(1, terms):
            weight = scale * y[i] * parameters[sizes[TEACHER_AT] + terms + term]
            out[term - 1] += weight * D[degree_of(term, sizes)] * monomial(term, y[2 * m + i * r :], -1, -1, sizes)
