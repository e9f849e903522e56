"""Means of a neuron with its teacher, made of units or a polynomial.

Units, f* = Σ_p a_p σ_p(θ_p·x + β_p): the teacher's parameters are a (P), β (P) and θ (P, r), its sizes the number of
each unit's link.

A polynomial, f* = Σ_α f*_α h_α, h_α = Π_a h_(α_a)(x_a), has no units. With D_j = E σ^(j)(λ_i) and g_α = f*_α/√α!,

    E[σ_i f*] = Σ_α g_α D_|α| M_i^α,  E[σ'_i f*] and E[σ''_i f*]: D_(|α|+1), D_(|α|+2),  t_ia = Σ_α g_α D_|α| ∂_a M_i^α,

and f_α = s Σ_i v_i D_|α| M_i^α/√α!. The terms are α = 0, then the components; parameters g_α, then 1/(√α! f*_α) per
term; sizes α (terms, r). ∂D_j/∂b = D_(j+1), ∂D_j/∂Q_ii = D_(j+2)/2.
"""

from dynamics.equations.network.layout_kernels import (
    AXES,
    COMPONENTS,
    DEGREE,
    FURTHER,
    MOMENTS,
    SCALE,
    SCRATCH_AT,
    TEACHER_AT,
    TEACHER_SIZES_AT,
    UNITS,
    WIDTH,
    numbers_of_links,
)
from dynamics.equations.network.list_kernels import HEADER, HEADS, write_derivatives
from dynamics.equations.network.pair_kernels import pair_values, write_moments
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import matrix, vector


@kernel
def write_unit_means(
    i: int, gram: Vector, rows: Matrix, parameters: Vector, sizes: Integers, out: Vector
) -> None:  # fmt: skip
    """Write E σ_i f*, E σ'_i f*, E σ''_i f* and t_i = E[σ'_i ∇f*] of the neuron whose row of C is `gram`."""
    m, r, P, at = sizes[WIDTH], sizes[AXES], sizes[UNITS], sizes[TEACHER_AT]
    theta, numbers = matrix(parameters, at + 2 * P, P, r), numbers_of_links(parameters, sizes)
    heads = int(numbers[HEADS])
    for k in range(r + 3):
        out[k] = 0.0
    for p in range(P):
        overlap = 0.0
        for a in range(r):
            overlap += gram[m + a] * theta[p, a]
        head, weight = heads + HEADER * sizes[TEACHER_SIZES_AT + p], parameters[at + p]
        value, first, slopes, second = pair_values(head, overlap, rows[i], rows[m + p], numbers)
        out[0] += weight * value
        out[1] += weight * first
        out[2] += weight * second
        for a in range(r):
            out[3 + a] += weight * slopes * theta[p, a]


@kernel
def write_unit_changes(
    i: int, db: float, gram: Vector, change: Vector, rows: Matrix,
    parameters: Vector, sizes: Integers, work: Vector, out: Vector,
) -> None:  # fmt: skip
    """Write how the numbers of `write_unit_means` change with b and the neuron's row of C."""
    m, r, P, at = sizes[WIDTH], sizes[AXES], sizes[UNITS], sizes[TEACHER_AT]
    theta, numbers = matrix(parameters, at + 2 * P, P, r), numbers_of_links(parameters, sizes)
    heads = int(numbers[HEADS])
    for k in range(r + 3):
        out[k] = 0.0
    E = matrix(work, sizes[SCRATCH_AT], 5, 5)
    half = 0.5 * change[i]
    for p in range(P):
        overlap = turned = 0.0
        for a in range(r):
            overlap += gram[m + a] * theta[p, a]
            turned += change[m + a] * theta[p, a]
        head, weight = heads + HEADER * sizes[TEACHER_SIZES_AT + p], parameters[at + p]
        write_moments(head, overlap, rows[i], rows[m + p], numbers, E)
        for k in range(3):
            out[k] += weight * (E[k + 1, 1] * turned + E[k + 2, 0] * half + E[k + 1, 0] * db)
        slopes = E[2, 2] * turned + E[3, 1] * half + E[2, 1] * db
        for a in range(r):
            out[3 + a] += weight * slopes * theta[p, a]


@kernel
def monomial(term: int, M: Vector, at: int, first: int, second: int, sizes: Integers) -> float:
    """Return ∂_first ∂_second M^α, M being r numbers from `at` on; an axis r stands for no derivative."""
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
            product *= M[at + a]
    return product


@kernel
def degree_of(term: int, sizes: Integers) -> int:
    """Return |α|."""
    r, total = sizes[AXES], 0
    for a in range(r):
        total += sizes[TEACHER_SIZES_AT + term * r + a]
    return total


@kernel
def write_polynomial_means(
    i: int, b: float, gram: Vector, parameters: Vector, sizes: Integers, work: Vector, out: Vector
) -> None:
    """Write the numbers of `write_unit_means`."""
    m, r = sizes[WIDTH], sizes[AXES]
    D = vector(work, sizes[SCRATCH_AT] + MOMENTS, sizes[DEGREE] + FURTHER)
    write_derivatives(gram[i], b, numbers_of_links(parameters, sizes), D)
    for k in range(r + 3):
        out[k] = 0.0
    for term in range(sizes[COMPONENTS] + 1):
        n, weight = degree_of(term, sizes), parameters[sizes[TEACHER_AT] + term]
        power = weight * monomial(term, gram, m, r, r, sizes)
        for k in range(3):
            out[k] += power * D[n + k]
        for a in range(r):
            if sizes[TEACHER_SIZES_AT + term * r + a] > 0:
                out[3 + a] += weight * D[n] * monomial(term, gram, m, a, r, sizes)


@kernel
def write_polynomial_changes(
    i: int, b: float, db: float, gram: Vector, change: Vector,
    parameters: Vector, sizes: Integers, work: Vector, out: Vector,
) -> None:  # fmt: skip
    """Write how the numbers of `write_polynomial_means` change with b and the neuron's row of C."""
    m, r, half = sizes[WIDTH], sizes[AXES], 0.5 * change[i]
    D = vector(work, sizes[SCRATCH_AT] + MOMENTS, sizes[DEGREE] + FURTHER)
    write_derivatives(gram[i], b, numbers_of_links(parameters, sizes), D)
    for k in range(r + 3):
        out[k] = 0.0
    for term in range(sizes[COMPONENTS] + 1):
        n, weight = degree_of(term, sizes), parameters[sizes[TEACHER_AT] + term]
        power, turned = weight * monomial(term, gram, m, r, r, sizes), 0.0
        for a in range(r):
            turned += weight * monomial(term, gram, m, a, r, sizes) * change[m + a]
        for k in range(3):
            out[k] += power * (D[n + k + 1] * db + D[n + k + 2] * half) + turned * D[n + k]
        for a in range(r):
            slope, bent = monomial(term, gram, m, a, r, sizes), 0.0
            for c in range(r):
                bent += monomial(term, gram, m, a, c, sizes) * change[m + c]
            out[3 + a] += weight * (slope * (D[n + 1] * db + D[n + 2] * half) + bent * D[n])


@kernel
def write_shares(y: Vector, out: Vector, first: int, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write f_α/f*_α per component of a polynomial from `first` on."""
    m, r, terms = sizes[WIDTH], sizes[AXES], sizes[COMPONENTS] + 1
    D, numbers = vector(work, sizes[SCRATCH_AT] + MOMENTS, sizes[DEGREE] + FURTHER), numbers_of_links(parameters, sizes)
    for term in range(1, terms):
        out[first + term - 1] = 0.0
    for i in range(m if terms > 1 else 0):
        write_derivatives(y[2 * m + m * r + i * m + i], y[m + i], numbers, D)
        for term in range(1, terms):
            weight = parameters[SCALE] * y[i] * parameters[sizes[TEACHER_AT] + terms + term]
            share = weight * D[degree_of(term, sizes)] * monomial(term, y, 2 * m + i * r, r, r, sizes)
            out[first + term - 1] += share
