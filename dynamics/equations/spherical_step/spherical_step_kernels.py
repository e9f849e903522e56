"""Compiled kernels of the spherical network's mean steps; executed after g0, g1 of the link and those of its noise.

State y = [C (m, P) | G (m, m)], sizes = [m, P, J, n, sign_matters, M, place of the numbers | layout], parameters =
[a (P) | T (P, P) | c c* (J) | levels of the loss (n) | E f*² | γ/B | τ² | biases (M), all 0 | weights (M) | numbers],
for J coefficients of g*(s) = Σ_j c_j c*_j s^j and M vectors: neurons, directions, and what has no direction. `numbers`
and `layout` are those of `dynamics.equations.network.step_source`. The equations are those of
`dynamics.equations.spherical_step.system`.
"""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import counting_kernel, kernel

if TYPE_CHECKING:
    from dynamics.equations.network.network_step_erf_kernels import write_step_second
    from dynamics.equations.pairs.array_kernels import matrix, product
    from dynamics.equations.pairs.link_kernels import g0, g1, learned_kernel


@counting_kernel
def write_gram(y: Vector, parameters: Vector, sizes: Integers, gram: Matrix) -> None:
    """Gram matrix [G C; Cᵀ T] of all vectors."""
    m, P = sizes[0], sizes[1]
    gram[:, :] = 0.0
    gram[:m, :m] = matrix(y, m * P, m, m)
    gram[:m, m : m + P] = matrix(y, 0, m, P)
    gram[m : m + P, :m] = matrix(y, 0, m, P).T
    gram[m : m + P, m : m + P] = matrix(parameters, P, P, P)


@kernel
def pull(s: float, parameters: Vector, sizes: Integers) -> tuple[float, float]:
    """Return g*(s) and g*'(s), by Horner's rule."""
    first = sizes[1] + sizes[1] ** 2
    value = slope = 0.0
    for j in range(sizes[2] - 1, -1, -1):
        slope = slope * s + value
        value = value * s + parameters[first + j]
    return value, slope


@kernel
def write_noise(gram: Matrix, parameters: Vector, sizes: Integers, work: Vector, noise: Matrix) -> None:
    """V_ij = E[(ē² + τ²) σ'_i σ'_j]."""
    m, M, at = sizes[0], sizes[5], sizes[6]
    bias, weight = parameters[at - 2 * M : at - M], parameters[at - M : at]
    variance = parameters[at - 2 * M - 1]
    write_step_second(gram, bias, weight, variance, 1.0, False, m, parameters[at:], sizes[7:], work, noise)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """C' = X − diag(r) C − ½ γ/B diag(V) C and the same of G with γ/B V, X = N gram, r = X_ii."""
    m, P, M = sizes[0], sizes[1], sizes[5]
    gram, N, X = matrix(work, 0, M, M), matrix(work, M * M, m, M), matrix(work, M * M + m * M, m, M)
    V = matrix(work, M * M + 2 * m * M, m, m)
    write_gram(y, parameters, sizes, gram)
    write_noise(gram, parameters, sizes, work[M * M + 2 * m * M + m * m :], V)
    N[:, m + P :] = 0.0
    for i in range(m):
        for j in range(m):
            N[i, j] = g1(gram[i, j]) * (-1.0 / m)
        # The force of a neuron on itself is radial.
        N[i, i] = 0.0
        for p in range(P):
            _, slope = pull(gram[i, m + p], parameters, sizes)
            N[i, m + p] = parameters[p] * slope
    product(N, gram, X)
    rate = parameters[sizes[6] - 2 * M - 2]
    for i in range(m):
        lost = X[i, i] + 0.5 * rate * V[i, i]
        for p in range(P):
            out[i * P + p] = X[i, m + p] - lost * gram[i, m + p]
        out[m * P + i * m + i] = 0.0
        for j in range(i):
            both = lost + X[j, j] + 0.5 * rate * V[j, j]
            change = X[i, j] + X[j, i] + rate * V[i, j] - both * gram[i, j]
            out[m * P + i * m + j] = change
            out[m * P + j * m + i] = change


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Level − loss per level; max_i C_ip² − ½ (C > 0 only, if the sign matters); Σ_i g_3(C_ip)/(m g_3(1)) − a_p/2."""
    m, P, J, levels = sizes[0], sizes[1], sizes[2], sizes[3]
    link = P + P * P + J
    loss = 0.0
    for x in range(m * P, m * P + m * m):
        loss += g0(y[x])
    loss = loss / m / m + parameters[link + levels]
    for p in range(P):
        largest = mass = attraction = 0.0
        for i in range(m):
            c = y[i * P + p]
            attraction += pull(c, parameters, sizes)[0]
            mass += learned_kernel(c)
            if c > 0.0 or sizes[4] == 0:
                largest = max(largest, c * c)
        loss -= 2.0 * parameters[p] * attraction / m
        out[levels + p] = largest - 0.5
        out[levels + P + p] = mass / m / learned_kernel(1.0) - 0.5 * parameters[p]
    for n in range(levels):
        out[n] = parameters[link + n] - loss


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """G = Gᵀ, G_ii = 1."""
    m, first = sizes[0], sizes[0] * sizes[1]
    for i in range(m):
        y[first + i * m + i] = 1.0
        for j in range(i):
            y[first + j * m + i] = y[first + i * m + j]
