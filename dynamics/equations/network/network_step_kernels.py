"""Compiled kernels of a network's mean steps, of which the noise is that of erf or of polynomial neurons.

State, events and constraints are those of `network_kernels`, whose Jacobian diagonal serves as it is. `parameters` and
`sizes` of the flow are followed by [η | B | d | τ² | −a (U) | β (U) | θ (U, r) | numbers] and by [layout | exact | U |
place of the layout | place of η | place in `work`], for U units of the teacher; `numbers` and `layout` are those of
`dynamics.equations.network.step_source`, and `write_second` is the kernel that writes the noise of its links. The
equations are those of `dynamics.equations.network.step_system`.
"""

from collections.abc import Callable

from dynamics.equations.network import (
    network_kernels,
    network_step_erf_kernels,
    network_step_polynomial_kernels,
    product_kernels,
)
from dynamics.equations.network.layout_kernels import (
    AXES,
    DECAY_W,
    FORCES_AT,
    MEANS,
    PRODUCTS_AT,
    RATE_W,
    SCALE,
    SPHERE,
    THEORY,
    WIDTH,
)
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import matrix, vector

# From the end of `sizes`, whose last number says whether the step is given up.
EXACT, STEP_UNITS, LAYOUT_AT, STEP_AT, STEP_SCRATCH_AT = -6, -5, -4, -3, -2
# Step of the central difference, about the cube root of the spacing of float64.
DIFFERENCE = 6e-6


@kernel
def write_step_vectors(y: Vector, parameters: Vector, sizes: Integers, C: Matrix, bias: Vector, weight: Vector) -> None:
    """Gram matrix, biases and weights in the error of the neurons and the teacher's units."""
    m, r, units = sizes[WIDTH], sizes[AXES], sizes[STEP_UNITS]
    given = vector(parameters, sizes[STEP_AT] + 4, units * (2 + r))
    theta = matrix(given, 2 * units, units, r)
    for i in range(m):
        bias[i], weight[i] = y[m + i], parameters[SCALE] * y[i]
        for j in range(m):
            C[i, j] = y[2 * m + m * r + i * m + j]
    for p in range(units):
        weight[m + p], bias[m + p] = given[p], given[units + p]
        for i in range(m):
            total = 0.0
            for a in range(r):
                total += y[2 * m + i * r + a] * theta[p, a]
            C[i, m + p] = C[m + p, i] = total
        for q in range(units):
            total = 0.0
            for a in range(r):
                total += theta[p, a] * theta[q, a]
            C[m + p, m + q] = total


@kernel
def write_step_noise(
    write_second: Callable[..., None], y: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> Matrix:
    """S_ij = ε_w² s² v_i v_j E[(ē² + τ²) σ'_i σ'_j |x|²], of the limit d → ∞ with d for |x|²."""
    m, M, at = sizes[WIDTH], sizes[WIDTH] + sizes[STEP_UNITS], sizes[STEP_SCRATCH_AT]
    C, S = matrix(work, at, M, M), matrix(work, at + M * M, m, m)
    at += M * M + m * m
    bias, weight = vector(work, at, M), vector(work, at + M, M)
    scratch = vector(work, at + 2 * M, work.size - at - 2 * M)
    write_step_vectors(y, parameters, sizes, C, bias, weight)
    step = sizes[STEP_AT]
    place = step + 4 + sizes[STEP_UNITS] * (2 + sizes[AXES])
    numbers = vector(parameters, place, parameters.size - place)
    layout = vector(sizes, sizes[LAYOUT_AT], sizes.size - sizes[LAYOUT_AT])
    write_second(
        C, bias, weight, parameters[step + 3], parameters[step + 2], sizes[EXACT] == 1, m, numbers, layout, scratch, S
    )
    for i in range(m):
        for j in range(m):
            S[i, j] *= parameters[RATE_W] ** 2 * weight[i] * weight[j]
    return S


@kernel
def add_step_terms(
    write_second: Callable[..., None], y: Vector, scale: float, out: Vector,
    parameters: Vector, sizes: Integers, work: Vector,
) -> None:  # fmt: skip
    """Add `scale` times the terms of order η, after the flow: S/B, and of the exact step (1 − 1/B) ∇∇ᵀ."""
    m, r = sizes[WIDTH], sizes[AXES]
    S, first = write_step_noise(write_second, y, parameters, sizes, work), 2 * m + m * r
    N, F = matrix(work, sizes[FORCES_AT], m, m + r), matrix(work, sizes[PRODUCTS_AT], m, m + r)
    rate, share = scale * parameters[sizes[STEP_AT]], 1.0 / parameters[sizes[STEP_AT] + 1]
    decay = parameters[DECAY_W]
    for i in range(m):
        own = y[first + i * m + i]
        for j in range(i + 1):
            q = y[first + i * m + j]
            change = share * S[i, j]
            if sizes[SPHERE] == 1:
                change -= 0.5 * share * q * (S[i, i] / own + S[j, j] / y[first + j * m + j])
            elif sizes[EXACT] == 1:
                # F holds the products of ∇ = ε_w ∇_w + κ_w w; a sample has no part in the decay.
                mean = 0.0
                for b in range(m + r):
                    mean += F[i, b] * N[j, b]
                change += (1.0 - share) * mean + share * decay * (F[i, j] + F[j, i] - decay * q)
            out[first + i * m + j] += rate * change
            if j < i:
                out[first + j * m + i] += rate * change
        if sizes[SPHERE] == 1:
            for a in range(r):
                out[2 * m + i * r + a] -= 0.5 * rate * share * S[i, i] / own * y[2 * m + i * r + a]


@kernel
def add_product_terms(
    write_second: Callable[..., None], t: float, y: Vector, v: Vector, out: Vector,
    parameters: Vector, sizes: Integers, work: Vector,
) -> None:  # fmt: skip
    """Add the derivative along v of the terms of order η, a central difference."""
    largest = 0.0
    for x in range(v.size):
        largest = max(largest, abs(v[x]))
    if largest == 0.0:
        return
    epsilon = DIFFERENCE / largest
    beside, rates = vector(work, work.size - y.size, y.size), vector(work, work.size - 2 * y.size, y.size)
    for sign in (1.0, -1.0):
        for x in range(y.size):
            beside[x] = y[x] + sign * epsilon * v[x]
        network_kernels.rhs(t, beside, rates, parameters, sizes, work)
        add_step_terms(write_second, beside, sign * 0.5 / epsilon, out, parameters, sizes, work)


@kernel
def erf_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the velocity of the flow and what finite steps of erf neurons add."""
    network_kernels.rhs(t, y, out, parameters, sizes, work)
    if sizes[THEORY] != MEANS:
        add_step_terms(network_step_erf_kernels.write_step_second, y, 1.0, out, parameters, sizes, work)


@kernel
def polynomial_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the velocity of the flow and what finite steps of polynomial neurons add."""
    network_kernels.rhs(t, y, out, parameters, sizes, work)
    if sizes[THEORY] != MEANS:
        add_step_terms(network_step_polynomial_kernels.write_step_second, y, 1.0, out, parameters, sizes, work)


@kernel
def erf_product(
    t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:  # fmt: skip
    """Write the derivative of `erf_rhs` along v: exact for the flow."""
    product_kernels.jacobian_product(t, y, v, out, parameters, sizes, work)
    add_product_terms(network_step_erf_kernels.write_step_second, t, y, v, out, parameters, sizes, work)


@kernel
def polynomial_product(
    t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:  # fmt: skip
    """Write the derivative of `polynomial_rhs` along v: exact for the flow."""
    product_kernels.jacobian_product(t, y, v, out, parameters, sizes, work)
    add_product_terms(network_step_polynomial_kernels.write_step_second, t, y, v, out, parameters, sizes, work)
