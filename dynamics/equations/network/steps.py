r"""A two-layer network under SGD of a finite learning rate η, in its order parameters.

A step on B samples changes the mean of v, b and M by η times the flow, that of Q also in the second order. In the time
η · step, with u_i = ε_w s v_i e σ'_i x, e = f − f* − noise, and ∇_i = ε_w ∇_{w_i} + κ_w w_i, whose first part is E u_i,

.. math:: Q_{ij}' = Q_{ij}'|_{\mathrm{flow}} + \eta\,
   \Big[\nabla_i\cdot\nabla_j + \tfrac1B \big(S_{ij} - E u_i\cdot E u_j\big)\Big], \qquad
   S_{ij} = \varepsilon_w^2 s^2 v_i v_j\, E[(\bar e^2 + \tau^2)\, \sigma'_i \sigma'_j\, |x|^2]

for "finite-d", exactly the mean of a step. In its limit d → ∞ at fixed η d, "infinite-d", η d S/(d B) is left, with d
for |x|² in S, and overlaps of a single run concentrate. On the sphere, where the step goes back to the neuron's length,

.. math:: M_i' = M_i'|_{\mathrm{flow}} - \frac{\eta}{2B} \frac{S_{ii}}{Q_{ii}} M_i, \qquad
   Q_{ij}' = Q_{ij}'|_{\mathrm{flow}} + \frac{\eta}{B}
   \Big[S_{ij} - \tfrac12 Q_{ij} \Big(\frac{S_{ii}}{Q_{ii}} + \frac{S_{jj}}{Q_{jj}}\Big)\Big]

in that limit; at finite d dividing by the length brings in means of all powers of η. S is known for erf(z/√2) and
polynomials. The scatter of single runs about the mean is left out.

The factor σ'_i σ'_j ∝ exp(−(λ_i² + λ_j²)/2), λ_i = w_i·x + b_i, is a change of measure: with U = (w_i, w_j),
N = (1 + UᵀU)⁻¹ and β = (b_i, b_j) it has the mean E σ'_i σ'_j, and under it x ~ N(−UNβ, 1 − UNUᵀ), so that the mean of
ē² is a sum of means of pairs at other variances and biases. For the exact |x|²,

    E|x|² g = d E g + ∂_λ E g under N(0, e^2λ),

where ∂_λ of the covariances v_a·Av_b is 2 (v_a·Av_b − B_a·B_b), B = VᵀUN, that of the biases −2 B_a·Nβ, and that of
ln E σ'_i σ'_j is tr N − 2 + βᵀNβ − |Nβ|².

`layout` = [J, whether all biases are 0 | kind, place, degree of every vector], kinds as in `families`; a polynomial
alone has `numbers` at its place: E p^(j)(z), z ~ N(0, 1). A row of tables: the head of `normal_kernels`, of a
polynomial q alone, then D_j = E σ^(j), j < J. Biases that are all 0 are so under every change of measure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import comb, factorial, gcd, prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import hermite
from dynamics.equations.committee import (
    LARGEST_STEP_DEGREE,
    compiled_diagram_size,
    diagram_second,
    diagram_size,
    write_diagram_tables,
)
from dynamics.equations.interface import Functions
from dynamics.equations.network import network_kernels
from dynamics.equations.network.families import ERF, POLYNOMIAL, RELU, SIGN, TABLE
from dynamics.equations.network.network_kernels import (
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
    event_values,
    jacobian_diagonal,
    normalise,
)
from dynamics.equations.network.normal_kernels import (
    difference_of_products,
    normal_cdf,
    relu_relu,
    relu_sign,
    sign_relu,
    sign_sign,
    write_threshold_row,
)
from dynamics.equations.network.series import write_series_means
from dynamics.equations.network.system import NetworkSystem
from dynamics.kernels.jit import inlined_kernel, kernel, matrix, vector
from hermite.arrays import Integers, Matrix, Vector
from hermite.polynomials import mean_derivatives
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers

STEP_HEAD = 9
# Where the vectors begin in `layout`.
VECTORS = 2
# Of 1 - r², below which two thresholds lie on one axis.
ALIGNED = 1e-14


@kernel
def write_step_row(q: float, b: float, kind: int, place: int, degree: int, numbers: Vector, row: Vector) -> None:
    """Write the tables of a vector of variance q and bias b."""
    D = vector(row, STEP_HEAD, row.size - STEP_HEAD)
    if kind == POLYNOMIAL:
        row[0] = q
        write_series_means(q, b, vector(numbers, place, degree + 1), D)
        return
    write_threshold_row(kind, q, b, row)
    D[0], D[1] = row[6], row[7]
    # From here on D holds derivatives of the density at the threshold.
    first = 1
    if kind == RELU:
        first, D[2] = 2, row[5]
    for j in range(first, D.size - 1):
        before = D[j - 1] if j > first else 0.0
        D[j + 1] = -(b * D[j] + (j - first) * before) / row[2]


@kernel
def series_pair(degree: int, c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float, float]:
    """E σ_aσ_b, σ'_aσ_b, σ_aσ'_b, σ'_aσ'_b, σ''_aσ_b, σ_aσ''_b where one is a polynomial of this degree."""
    value = left = right = both = bend_a = bend_b = 0.0
    for j in range(degree, -1, -1):
        x = STEP_HEAD + j
        share = c / (j + 1)
        value = a[x] * b[x] + share * value
        left = a[x + 1] * b[x] + share * left
        right = a[x] * b[x + 1] + share * right
        both = a[x + 1] * b[x + 1] + share * both
        bend_a = a[x + 2] * b[x] + share * bend_a
        bend_b = a[x] * b[x + 2] + share * bend_b
    return value, left, right, both, bend_a, bend_b


@kernel
def jump_pair(
    centred: bool, c: float, a: Vector, b: Vector
) -> tuple[float, float, float, float, float, float]:  # fmt: skip
    """Return the same for sign or erf with sign or erf; jumps on one axis never meet, or move together."""
    if difference_of_products(a[2], b[2], c, c) > ALIGNED * a[2] * b[2]:
        return sign_sign(centred, c, a, b)
    turned = math.copysign(1.0, c)
    gap = a[4] - turned * b[4]
    side = 0.0 if gap == 0.0 else math.copysign(2.0, gap)
    value = turned * (1.0 - 2.0 * abs(normal_cdf(a[4]) - normal_cdf(turned * b[4])))
    left, right = -turned * side * a[5], side * b[5]
    return value, left, right, 0.0, -a[1] * left / a[2], -b[1] * right / b[2]


@kernel
def step_pair(
    centred: bool, kind_a: int, degree_a: int, kind_b: int, degree_b: int, c: float, a: Vector, b: Vector
) -> tuple[float, float, float, float, float, float]:
    """E σ_aσ_b, σ'_aσ_b, σ_aσ'_b, σ'_aσ'_b, σ''_aσ_b, σ_aσ''_b of two vectors of covariance c."""
    if kind_a == POLYNOMIAL:
        return series_pair(min(degree_a, degree_b) if kind_b == POLYNOMIAL else degree_a, c, a, b)
    if kind_b == POLYNOMIAL:
        return series_pair(degree_b, c, a, b)
    if kind_a == RELU and kind_b == RELU:
        return relu_relu(centred, c, a, b)
    if kind_a == RELU:
        value, left, both, bend_a = relu_sign(centred, c, a, b)
        _, right, _, bend_b = sign_relu(centred, c, b, a)
        return value, left, right, both, bend_a, bend_b
    if kind_b == RELU:
        value, left, both, bend_a = sign_relu(centred, c, a, b)
        _, right, _, bend_b = relu_sign(centred, c, b, a)
        return value, left, right, both, bend_a, bend_b
    return jump_pair(centred, c, a, b)


@kernel
def own_square(centred: bool, kind: int, degree: int, row: Vector) -> tuple[float, float, float]:
    """E σ² of one vector and its derivatives in q and b."""
    if kind == RELU:
        return row[1] * row[6] + row[0] * row[7], row[7], 2.0 * row[6]
    if kind == SIGN:
        return 1.0, 0.0, 0.0
    value, slope, _, both, bend, _ = step_pair(centred, kind, degree, kind, degree, row[0], row, row)
    return value, both + bend, 2.0 * slope


@kernel
def write_erf_second(
    vectors: tuple[Matrix, Vector, Vector], noise: float, d: float, exact: bool, m: int,
    numbers: Vector, layout: Integers, work: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Write E[(ē² + τ²) σ'_i σ'_j |x|²] of the first m vectors, its part of order d unless it is to be exact.

    `vectors` are their Gram matrix, biases and weights.
    """
    C, bias, weight = vectors
    M = weight.size
    size, centred = STEP_HEAD + layout[0], layout[1] == 1
    rows, tilted = matrix(work, 0, M, size), matrix(work, M * size, M, M)
    sides, turns = matrix(work, M * (size + M), M, 2), vector(work, M * (size + M + 2), M)
    for i in range(m):
        for j in range(i + 1):
            first, second, c = 1.0 + C[i, i], 1.0 + C[j, j], C[i, j]
            determinant = first * second - c * c
            n_i, n_j = (second * bias[i] - c * bias[j]) / determinant, (first * bias[j] - c * bias[i]) / determinant
            for a in range(M):
                x, y = C[a, i], C[a, j]
                sides[a, 0], sides[a, 1] = (second * x - c * y) / determinant, (first * y - c * x) / determinant
                turns[a] = sides[a, 0] * n_i + sides[a, 1] * n_j
            for a in range(M):
                for b in range(a + 1):
                    tilted[a, b] = C[a, b] - sides[a, 0] * C[b, i] - sides[a, 1] * C[b, j]
                shifted = bias[a] - sides[a, 0] * bias[i] - sides[a, 1] * bias[j]
                at = VECTORS + 3 * a
                write_step_row(
                    tilted[a, a], shifted, layout[at], layout[at + 1], layout[at + 2], numbers, rows[a]
                )  # fmt: skip
            square = change = 0.0
            for a in range(M):
                kind, degree = layout[VECTORS + 3 * a], layout[VECTORS + 2 + 3 * a]
                growth = tilted[a, a] - sides[a, 0] ** 2 - sides[a, 1] ** 2
                value, in_q, in_b = own_square(centred, kind, degree, rows[a])
                square += weight[a] ** 2 * value
                change += weight[a] ** 2 * (2.0 * in_q * growth - 2.0 * in_b * turns[a])
                for b in range(a):
                    together = 2.0 * weight[a] * weight[b]
                    value, left, right, both, bend_a, bend_b = step_pair(
                        centred, kind, degree, layout[VECTORS + 3 * b], layout[VECTORS + 2 + 3 * b], tilted[a, b],
                        rows[a], rows[b],
                    )  # fmt: skip
                    square += together * value
                    if exact:
                        other = tilted[b, b] - sides[b, 0] ** 2 - sides[b, 1] ** 2
                        dc = tilted[a, b] - sides[a, 0] * sides[b, 0] - sides[a, 1] * sides[b, 1]
                        moved = 2.0 * both * dc + bend_a * growth + bend_b * other
                        change += together * (moved - 2.0 * (left * turns[a] + right * turns[b]))
            along = bias[i] * n_i + bias[j] * n_j
            scale = 2.0 / math.pi / math.sqrt(determinant) * math.exp(-0.5 * along)
            result = d * (square + noise)
            if exact:
                result += ((first + second) / determinant - 2.0 + along - n_i**2 - n_j**2) * (square + noise) + change
            out[i, j] = out[j, i] = scale * result


# The noise of a step of polynomial neurons.
#
# `layout` = [K, parity of the degrees that all links lack, or 2 | place, degree of every vector]; `numbers` at the
# place of a vector: E p^(j)(z), z ~ N(0, 1), j up to its degree.


@kernel
def write_polynomial_second(
    vectors: tuple[Matrix, Vector, Vector], noise: float, d: float, exact: bool, m: int,
    numbers: Vector, layout: Integers, work: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Write E[(ē² + τ²) σ'_i σ'_j |x|²] of the first m vectors, its part of order d unless it is to be exact.

    `vectors` are their Gram matrix, biases and weights.
    """
    C, bias, weight = vectors
    M, K, absent = weight.size, layout[0], layout[1]
    weights = compiled_diagram_size(M, K) - M
    for a in range(M):
        work[weights + a] = weight[a]
        for b in range(M):
            work[a * M + b] = C[a, b]
        D = vector(work, M * M + a * (K + 4), K + 4)
        place, degree = layout[2 + 2 * a], layout[3 + 2 * a]
        write_series_means(C[a, a], bias[a], vector(numbers, place, degree + 1), D)
    write_diagram_tables(M, K, work)
    for i in range(m):
        for j in range(i + 1):
            out[i, j] = out[j, i] = diagram_second(i, j, noise, d, exact, absent, M, K, work)


# Mean steps, of which the noise is that of erf or of polynomial neurons.
#
# State, events and constraints are those of `network_kernels`, whose Jacobian diagonal serves as it is. `parameters`
# and `sizes` of the flow are followed by [η | B | d | τ² | −a (U) | β (U) | θ (U, r) | numbers] and by [layout |
# exact | U | place of the layout | place of η | place in `work`], for U units of the teacher; `write_second` is
# the kernel that writes the noise of its links.


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


@inlined_kernel
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
        (C, bias, weight), parameters[step + 3], parameters[step + 2], sizes[EXACT] == 1, m, numbers, layout, scratch, S
    )
    for i in range(m):
        for j in range(m):
            S[i, j] *= parameters[RATE_W] ** 2 * weight[i] * weight[j]
    return S


@inlined_kernel
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


@inlined_kernel
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
        add_step_terms(write_erf_second, y, 1.0, out, parameters, sizes, work)


@kernel
def polynomial_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the velocity of the flow and what finite steps of polynomial neurons add."""
    network_kernels.rhs(t, y, out, parameters, sizes, work)
    if sizes[THEORY] != MEANS:
        add_step_terms(write_polynomial_second, y, 1.0, out, parameters, sizes, work)


@kernel
def erf_product(
    t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:  # fmt: skip
    """Write the derivative of `erf_rhs` along v: exact for the flow."""
    network_kernels.jacobian_product(t, y, v, out, parameters, sizes, work)
    add_product_terms(write_erf_second, t, y, v, out, parameters, sizes, work)


@kernel
def polynomial_product(
    t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:  # fmt: skip
    """Write the derivative of `polynomial_rhs` along v: exact for the flow."""
    network_kernels.jacobian_product(t, y, v, out, parameters, sizes, work)
    add_product_terms(write_polynomial_second, t, y, v, out, parameters, sizes, work)


_OF_ERF = Functions(erf_rhs, event_values, normalise, jacobian_diagonal, erf_product)
_OF_POLYNOMIALS = Functions(polynomial_rhs, event_values, normalise, jacobian_diagonal, polynomial_product)


class NetworkStepSystem(NetworkSystem):
    """The equation of SGD with a learning rate η and B samples per step, with state and observables of the flow.

    Raises ValueError if the mean step of the problem is not known exactly.
    """

    name = "network-step"
    falls = False

    def __init__(self, problem: Problem, learning_rate: float, step_theory: str, batch_size: int = 1) -> None:
        exact = step_theory == "finite-d"
        super().__init__(problem)
        if exact and self.student.first_layer == "sphere":
            msg = (
                "Argument `step_theory` must be 'infinite-d' for neurons on the sphere, whose mean step at finite d is "
                f"no finite sum because it divides by a length, but is {shown(step_theory)}."
            )
            raise ValueError(msg)
        units, m = step_units(problem), problem.width
        source = step_source(problem.activation, m, units, biased=self.student.has_biases)
        self.functions = _OF_POLYNOMIALS if source.is_polynomial else _OF_ERF
        step = [learning_rate, batch_size, problem.dimension, problem.label_noise**2]
        teacher = [[-unit.coefficient for unit in units], [unit.bias for unit in units]]
        directions = [unit.direction for unit in units]
        places = [len(units), self.sizes.size, self.parameters.size, self.work_size]
        self.parameters: Array = np.concatenate([self.parameters, step, *teacher, *directions, source.numbers])
        self.sizes: Integers = np.concatenate([self.sizes, source.layout, [exact, *places]])
        M = m + len(units)
        self.work_size += M * M + m * m + 2 * M + source.work_size + 2 * self.initial_state.size


# Which links have an exact mean step of finite size, and what its kernels take: E[(ē² + τ²) σ'_i σ'_j |x|²].
#
# It closes for neurons with erf(z/√2) and teachers of erf, relu, step, sign and polynomial units, and for polynomial
# neurons and units. A polynomial teacher of several variables is a sum of polynomials of one projection each.


#: The family of a link whose mean step is not known.
UNKNOWN = TABLE
_KINDS = {"relu": RELU, "sign": SIGN, "erf": ERF}
#: Numbers of a row of tables before D_0.
HEAD = 9


class StepLink(NamedTuple):
    """A link of the step: its kind, its degree if it is a polynomial, and its numbers."""

    name: str
    kind: int
    degree: int
    numbers: tuple[float, ...]


class StepUnit(NamedTuple):
    """A unit of the teacher, a σ(θ·x + β)."""

    coefficient: float
    link: StepLink
    direction: Array
    bias: float


@dataclass(frozen=True, slots=True)
class StepSource:
    """What the kernel `write_step_second` takes.

    It is that of `write_polynomial_second` where neurons are polynomials, else of `write_erf_second`.
    """

    is_polynomial: bool
    numbers: Array
    layout: Integers
    work_size: int


def step_link(link: HermiteExpansion) -> StepLink:
    """Return what the step knows of a link."""
    if link.is_polynomial:
        return _series(link.name, mean_derivatives(np.trim_zeros(link.link_coefficients(), "b")))
    if link.name in _KINDS and link == hermite.expand(link.name, order=link.order):
        return StepLink(link.name, _KINDS[link.name], 0, ())
    return StepLink(link.name, UNKNOWN, 0, ())


def _series(name: str, means: Sequence[float] | Array) -> StepLink:
    return StepLink(name, POLYNOMIAL, max(len(means) - 1, 0), tuple(float(mean) for mean in means) or (0.0,))


def step_units(problem: Problem) -> tuple[StepUnit, ...]:
    """Return the teacher's units: a polynomial is a sum of such, and a step is ½ + ½ sign."""
    target = problem.teacher.target
    if target is not None:
        return ridge_units(target.exponents.tolist(), target.powers.tolist())
    units, constant = [], 0.0
    for coefficient, link, direction, bias in problem.teacher.units(problem.teacher_link):
        if link.name == "step" and link == hermite.expand("step", order=link.order):
            constant += 0.5 * coefficient
            units.append(StepUnit(0.5 * coefficient, StepLink("sign", SIGN, 0, ()), direction, bias))
        else:
            units.append(StepUnit(coefficient, step_link(link), direction, bias))
    if constant != 0.0:
        units.append(StepUnit(constant, _series("constant", [1.0]), np.zeros(problem.teacher.span), 0.0))
    return tuple(units)


def step_source(student: HermiteExpansion, width: int, units: Sequence[StepUnit], *, biased: bool) -> StepSource:
    """Return what the kernel takes for neurons of one link, whether they are `biased`, and the teacher's units.

    Raises ValueError, which names `sgd_check.simulate`, where the mean step does not close.
    """
    own, links = step_link(student), [unit.link for unit in units]
    if own.kind not in (ERF, POLYNOMIAL):
        _refuse(f"neurons of {own.name}: it is known for 'erf' and polynomials")
    for link in links:
        if link.kind == UNKNOWN or (own.kind == POLYNOMIAL and link.kind != POLYNOMIAL):
            kinds = "polynomials" if own.kind == POLYNOMIAL else "'erf', 'relu', 'step', 'sign' and polynomials"
            _refuse(f"neurons of {own.name} and a teacher of {link.name}: it is known for a teacher of {kinds}")
    vectors = [own] * width + links
    places = dict.fromkeys(vectors)
    numbers: list[float] = []
    at = {}
    for link in places:
        at[link] = len(numbers)
        numbers += link.numbers
    top, M = max(link.degree for link in vectors), len(vectors)
    biased = biased or any(unit.bias for unit in units)
    if own.kind == POLYNOMIAL:
        if top > LARGEST_STEP_DEGREE:
            _refuse(f"polynomials of degree {top}: it is known up to {LARGEST_STEP_DEGREE}")
        lacking = 2 if biased else _lacking_parity(places)
        layout = [max(top, 1), lacking, *(x for v in vectors for x in (at[v], v.degree))]
        size = diagram_size(M, layout[0])
    else:
        layout = [top + 3, not biased, *(x for v in vectors for x in (v.kind, at[v], v.degree))]
        size = M * (HEAD + layout[0] + M + 3)
    return StepSource(own.kind == POLYNOMIAL, np.array(numbers), np.array(layout, dtype=np.int64), size)


def _refuse(where: str) -> None:
    msg = (
        "Argument `problem` must have links whose mean step of a finite learning rate is known exactly, but has "
        f"{where}; `sgd_check.simulate` takes such steps."
    )
    raise ValueError(msg)


def _lacking_parity(links: Mapping[StepLink, None]) -> int:
    """Return the parity, 0 or 1, of the degrees that all polynomials lack; 2 if there is none."""
    for parity in (0, 1):
        if not any(any(link.numbers[parity::2]) for link in links):
            return parity
    return 2


def ridge_units(exponents: Sequence[Sequence[int]], powers: Sequence[float]) -> tuple[StepUnit, ...]:
    r"""Return Σ_t powers_t Π_a x_a^exponents_ta as a sum of polynomials p(θ·x), by Kan's formula (2008).

    .. math:: \prod_a x_a^{e_a} = \frac1{n!} \sum_{0\le\nu\le e} (-1)^{|\nu|} \prod_a \binom{e_a}{\nu_a}
       \Big(\sum_a \big(\tfrac{e_a}2 - \nu_a\big) x_a\Big)^n, \qquad n = \sum_a e_a

    Examples
    --------
    >>> [unit.direction.round(3).tolist() for unit in ridge_units([[1, 1], [0, 1]], [1.0, 0.5])]
    [[0.707, 0.707], [0.707, -0.707], [0.0, 1.0]]
    """
    # direction as whole numbers -> degree n -> coefficient of (direction·x)^n
    forms: defaultdict[tuple[int, ...], defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    constant = 0.0
    for exponent, power in zip(exponents, powers, strict=True):
        n = sum(exponent)
        if n == 0:
            constant += float(power)
        for form, share in _forms(tuple(int(e) for e in exponent)).items():
            forms[form][n] += float(share) * float(power)
    units = []
    for form, coefficients in forms.items():
        length = float(np.linalg.norm(form))
        weights = {n: value * length**n for n, value in coefficients.items()}
        link = _series("polynomial", _means_of_powers({0: constant} | weights))
        constant = 0.0
        units.append(StepUnit(1.0, link, np.array(form) / length, 0.0))
    return tuple(units)


def _forms(exponent: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
    """Return the linear forms of which a monomial of degree n is the sum of n-th powers, with their factors."""
    found: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    n = sum(exponent)
    if n == 0:
        return {}
    for nu in product(*(range(e + 1) for e in exponent)):
        twice = [e - 2 * k for e, k in zip(exponent, nu, strict=True)]
        common = gcd(*twice)
        if common == 0:
            continue
        sign = 1 if next(x for x in twice if x) > 0 else -1
        form = tuple(sign * x // common for x in twice)
        factor = (-1) ** sum(nu) * prod(comb(e, k) for e, k in zip(exponent, nu, strict=True))
        found[form] += Fraction(factor * (sign * common) ** n, factorial(n) * 2**n)
    return {form: factor for form, factor in found.items() if factor}


def _means_of_powers(weights: Mapping[int, float]) -> Array:
    """Return E p^(k)(z), p = Σ_n weights_n z^n, z ~ N(0, 1): E (z^n)^(k) = n!/(n − k)! (n − k − 1)!! for even n − k."""
    means = np.zeros(max(weights) + 1)
    for n, weight in weights.items():
        for k in range(n % 2, n + 1, 2):
            means[k] += weight * (factorial(n) // factorial(n - k)) * prod(range(n - k - 1, 0, -2))
    return means
