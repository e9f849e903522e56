"""The noise of a step of erf neurons.

The factor σ'_i σ'_j ∝ exp(−(λ_i² + λ_j²)/2), λ_i = w_i·x + b_i, is a change of measure: with U = (w_i, w_j),
N = (1 + UᵀU)⁻¹ and β = (b_i, b_j) it has the mean E σ'_i σ'_j, and under it x ~ N(−UNβ, 1 − UNUᵀ), so that the mean of
ē² is a sum of means of pairs at other variances and biases. For the exact |x|²,

    E|x|² g = d E g + ∂_λ E g under N(0, e^2λ),

where ∂_λ of the covariances v_a·Av_b is 2 (v_a·Av_b − B_a·B_b), B = VᵀUN, that of the biases −2 B_a·Nβ, and that of
ln E σ'_i σ'_j is tr N − 2 + βᵀNβ − |Nβ|².

`layout` = [J, whether all biases are 0 | kind, place, degree of every vector], kinds as in `families`; a polynomial
alone has `numbers` at its place: E p^(j)(z), z ~ N(0, 1). A row of tables: the head of `threshold_kernels`, of a
polynomial q alone, then D_j = E σ^(j), j < J. Biases that are all 0 are so under every change of measure.
"""

import math

from dynamics.equations.network.families import POLYNOMIAL, RELU, SIGN
from dynamics.equations.network.network_series_kernels import write_series_means
from dynamics.equations.network.normal_kernels import difference_of_products, normal_cdf
from dynamics.equations.network.threshold_kernels import relu_relu, relu_sign, sign_relu, sign_sign, write_threshold_row
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import matrix, vector

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
def write_step_second(
    C: Matrix, bias: Vector, weight: Vector, noise: float, d: float, exact: bool, m: int,
    numbers: Vector, layout: Integers, work: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Write E[(ē² + τ²) σ'_i σ'_j |x|²] of the first m vectors, its part of order d unless it is to be exact."""
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
