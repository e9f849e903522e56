r"""Online learning of a committee, f(x) = Σ_i σ(w_i·x), in its order parameters R = WΘᵀ and S = WWᵀ.

One step of SGD is w_i ← w_i − η e σ'(λ_i) x with λ_i = w_i·x and e = ē − noise, ē = Σ_b w_b σ(v_b·x): the vectors v
are the m neurons, of weight 1, and the P directions, of weight −a_p. C is the Gram matrix of all of them. By Stein's
lemma the mean gradient of ½ E ē² is

.. math:: E[\bar e\, \sigma'_i\, x] = \sum_b N_{ib} v_b + k_i w_i, \qquad N_{ib} = w_b E\,\sigma'_i\sigma'_b, \qquad
   k_i = \sum_b w_b E\,\sigma''_i\sigma_b,

so that with F = N C + diag(k) C, and in time t = η · step,

.. math:: R' = -F_{\cdot p}, \qquad S' = -F_{\cdot j} - F_{\cdot j}^T + \eta\, E[(\bar e^2 + \tau^2)\,
   \sigma'_i \sigma'_j\, |x|^2].

The last term is left out in the flow η → 0; as d → ∞ with η d fixed |x|² is d (Saad & Solla 1995, their η is η d and
their α is step/d, for weights scaled by √d). For B samples per step it is divided by B, and the products of two samples
add η (1 − 1/B) D, D = F (N + diag(k))ᵀ that of the mean gradients, which is nothing in that limit. Means are closed
forms for erf(z/√2), finite sums for polynomials.

State y = [R (m, P) | S (m, m)], sizes = [m, P, sign_matters, K, theory, lowest degree that counts in learned masses,
family of the link] with theory 1 for the step's limit d → ∞ and 2 for the step at finite d; parameters = [a (P) |
T (P, P) | τ² | η | d | B | numbers of the link]. Vectors v_b are the m neurons and then the P directions, M = m + P in
number, C their Gram matrix, w = (1, −a) their weights in the error. The first M² numbers of `work` hold C, the next the
link's tables. The equations are those of `dynamics.equations.committee`; a family of links has a right-hand side
of its own for steps, whose terms of second order take long to compile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

import hermite
from dynamics.equations.degrees import by_degree, teacher_parts
from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.losses import teacher_term
from dynamics.kernels.jit import kernel, matrix, vector
from dynamics.kernels.products import is_stopped, product, product_until
from dynamics.problem.emergence import LOWEST_DEGREE
from hermite.arrays import Integers, Matrix, Vector
from hermite.polynomials import mean_derivatives

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers

#: Families of links, and their place in `sizes`.
ERF, POLYNOMIAL = 0, 1
FAMILY = 6


def diagram_size(vectors: int, degree: int) -> int:
    """Return the numbers of scratch for diagrams of M vectors and links of degree up to K, C included."""
    M, K = vectors, degree
    rows = (K + 1) * (K + 2) // 2
    return int(M * M + 2 * M * (K + 4) + 2 * K * K + 3 * rows * M + (K + 1) * M * M + M)


compiled_diagram_size = kernel(diagram_size)


@kernel
def table_size(sizes: Integers) -> int:
    """Return the numbers of scratch for the link's tables."""
    M = sizes[0] + sizes[1]
    return int(erf_table_size(M) if sizes[FAMILY] == ERF else polynomial_table_size(M, sizes[3]))


@kernel
def write_gram(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Gram matrix C = [S R; Rᵀ T] of all vectors, then the mean derivatives of a polynomial."""
    m, P = sizes[0], sizes[1]
    M = m + P
    for i in range(m):
        for j in range(m):
            work[i * M + j] = y[m * P + i * m + j]
        for p in range(P):
            work[i * M + m + p] = y[i * P + p]
            work[(m + p) * M + i] = y[i * P + p]
    for p in range(P):
        for q in range(P):
            work[(m + p) * M + m + q] = parameters[P + p * P + q]
    if sizes[FAMILY] == POLYNOMIAL:
        write_mean_derivatives(parameters, sizes, work)


@kernel
def write_forces(parameters: Vector, sizes: Integers, work: Vector, N: Matrix, k: Vector) -> None:
    """N_ib = w_b E σ'_i σ'_b and k_i = Σ_b w_b E σ''_i σ_b: the mean gradient of neuron i is Σ_b N_ib v_b + k_i w_i."""
    for i in range(sizes[0]):
        if is_stopped(sizes):
            return
        if sizes[FAMILY] == ERF:
            k[i] = write_erf_row(i, parameters, sizes, work, N)
        else:
            k[i] = write_polynomial_row(i, parameters, sizes, work, N)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """R' = −(F)_R and S' = −(F_S + F_Sᵀ) of the flow, F = N C + diag(k) C; N, F and k stay in `work`."""
    m, P = sizes[0], sizes[1]
    M = m + P
    write_gram(y, parameters, sizes, work)
    place = M * M + table_size(sizes)
    N, F, k = matrix(work, place, m, M), matrix(work, place + m * M, m, M), vector(work, place + 2 * m * M, m)
    write_forces(parameters, sizes, work, N, k)
    C = matrix(work, 0, M, M)
    product_until(N, C, F, sizes)
    for i in range(m):
        for b in range(M):
            F[i, b] += k[i] * C[i, b]
    for i in range(m):
        for p in range(P):
            out[i * P + p] = -F[i, m + p]
        for j in range(i + 1):
            change = -F[i, j] - F[j, i]
            out[m * P + i * m + j] = change
            out[m * P + j * m + i] = change


@kernel
def place_of_second(sizes: Integers) -> int:
    """Return where the terms of second order, (m, m), lie in `work`."""
    m, M = sizes[0], sizes[0] + sizes[1]
    return int(M * M + table_size(sizes) + 2 * m * M + m)


@kernel
def add_step(out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add η (second/B + (1 − 1/B) D) to S', D = F (N + diag(k))ᵀ; `work` holds second, and F, N and k of `rhs`."""
    m, P = sizes[0], sizes[1]
    M = m + P
    place = M * M + table_size(sizes)
    N, F, k = matrix(work, place, m, M), matrix(work, place + m * M, m, M), vector(work, place + 2 * m * M, m)
    second = matrix(work, place_of_second(sizes), m, m)
    rate, batch = parameters[P + P * P + 1], parameters[P + P * P + 3]
    # |x|² and the product of two samples differ by a factor of order d, so that the limit has no such product.
    mean_rate = rate - rate / batch if sizes[4] == 2 else 0.0
    for i in range(m):
        for j in range(i + 1):
            change = rate / batch * second[i, j]
            if mean_rate > 0.0:
                drift = F[i, j] * k[j]
                for b in range(M):
                    drift += F[i, b] * N[j, b]
                change += mean_rate * drift
            out[m * P + i * m + j] += change
            if j < i:
                out[m * P + j * m + i] += change


@kernel
def erf_step_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write R' and S' of steps of a finite learning rate for erf(z/√2)."""
    rhs(t, y, out, parameters, sizes, work)
    m = sizes[0]
    second = matrix(work, place_of_second(sizes), m, m)
    for i in range(m):
        if is_stopped(sizes):
            return
        for j in range(i + 1):
            second[i, j] = erf_second(i, j, parameters, sizes, work)
    add_step(out, parameters, sizes, work)


@kernel
def polynomial_step_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write R' and S' of steps of a finite learning rate for a polynomial."""
    rhs(t, y, out, parameters, sizes, work)
    write_step_tables(parameters, sizes, work)
    m = sizes[0]
    second = matrix(work, place_of_second(sizes), m, m)
    for i in range(m):
        if is_stopped(sizes):
            return
        for j in range(i + 1):
            second[i, j] = polynomial_second(i, j, parameters, sizes, work)
    add_step(out, parameters, sizes, work)


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Diagonal with the forces N and k held: −N_ii − k_i for R, the sum of two such for S."""
    m, P = sizes[0], sizes[1]
    M = m + P
    write_gram(y, parameters, sizes, work)
    place = M * M + table_size(sizes)
    N, k = matrix(work, place, m, M), vector(work, place + 2 * m * M, m)
    write_forces(parameters, sizes, work, N, k)
    for i in range(m):
        own = N[i, i] + k[i]
        for p in range(P):
            out[i * P + p] = -own
        for j in range(m):
            out[m * P + i * m + j] = -own - N[j, j] - k[j]


@kernel
def learned_mean(i: int, b: int, sizes: Integers, work: Vector) -> float:
    """Return E σ_i σ_b of the degrees that count."""
    if sizes[FAMILY] == ERF:
        return erf_learned_mean(i, b, sizes, work)
    return polynomial_learned_mean(i, b, sizes, work)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence max_i C_ip² − ½ (C > 0 only, if the sign matters), then learned mass − a_p/2.

    The mass is Σ_i E[σ_i σ_p]/E[σ_p²] of the degrees that count; NaN where the link has none of them.
    """
    m, P = sizes[0], sizes[1]
    M = m + P
    write_gram(y, parameters, sizes, work)
    for p in range(P):
        largest, mass = 0.0, 0.0
        for i in range(m):
            r = work[i * M + m + p]
            if r > 0.0 or sizes[2] == 0:
                largest = max(largest, r * r / work[i * M + i])
            mass += learned_mean(i, m + p, sizes, work)
        out[p] = largest - 0.5
        whole = learned_mean(m + p, m + p, sizes, work)
        out[P + p] = mass / whole - 0.5 * parameters[p] if whole > 0.0 else np.nan


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """S = Sᵀ: steps treat both halves alike up to the order of sums, so one is copied over the other."""
    m = sizes[0]
    first = m * sizes[1]
    for i in range(m):
        for j in range(i):
            y[first + j * m + i] = y[first + i * m + j]


# Gaussian means of the link σ(z) = erf(z/√2) in closed form.
#
# Two means are I2 and I3 of Saad & Solla 1995. For their I4, the factor σ'_i σ'_j ∝ exp(−(λ_i² + λ_j²)/2) is a change
# of measure: under it x is Gaussian with covariance A = 1 − U (1 + UᵀU)⁻¹ Uᵀ, U = (w_i, w_j), and the mean of ē² is a
# sum of I2 with the covariances v_a·A v_b.


@kernel
def erf_table_size(M: int) -> int:
    """Return the numbers of scratch for tables: v_a·A v_b, and the two columns of B = Vᵀ U (1 + UᵀU)⁻¹."""
    return M * (M + 2)


@kernel
def write_erf_row(i: int, parameters: Vector, sizes: Integers, work: Vector, N: Matrix) -> float:
    """Write N_ib = w_b E σ'_i σ'_b; return k_i = Σ_b w_b E σ''_i σ_b = −Σ_b N_ib C_ib/(1 + C_ii)."""
    m, M = sizes[0], sizes[0] + sizes[1]
    first, total = 1.0 + work[i * M + i], 0.0
    for b in range(M):
        c, second = work[i * M + b], 1.0 + work[b * M + b]
        slopes = 2.0 / math.pi / math.sqrt(first * second - c * c)
        N[i, b] = slopes if b < m else -parameters[b - m] * slopes
        total -= N[i, b] * c
    return float(total / first)


@kernel
def erf_learned_mean(i: int, b: int, sizes: Integers, work: Vector) -> float:
    """Return E σ_i σ_b of the degrees from sizes[5], 0 or 3, on."""
    M = sizes[0] + sizes[1]
    ratio = work[i * M + b] / math.sqrt((1.0 + work[i * M + i]) * (1.0 + work[b * M + b]))
    return 2.0 / math.pi * (math.asin(ratio) - (0.0 if sizes[5] == 0 else ratio))


@kernel
def erf_second(i: int, j: int, parameters: Vector, sizes: Integers, work: Vector) -> float:
    """Return E[(ē² + τ²) σ'_i σ'_j |x|²], of theory 1 its part of order d.

    Under the changed measure E[|x|² f] = tr A E f + Σ_ab (v_a·A² v_b) E ∂_a ∂_b f, and a mean of second derivatives is
    twice the derivative in the covariance. v_a·A² v_b = v_a·A v_b − B_a·B_b, and tr A = d − 2 + tr (1 + UᵀU)⁻¹.
    """
    m, P = sizes[0], sizes[1]
    M = m + P
    noise, d = parameters[P + P * P], parameters[P + P * P + 2]
    c, first, second = work[i * M + j], 1.0 + work[i * M + i], 1.0 + work[j * M + j]
    determinant = first * second - c * c
    tilted, left, right = M * M, 2 * M * M, 2 * M * M + M
    for a in range(M):
        x, y = work[a * M + i], work[a * M + j]
        work[left + a] = (second * x - c * y) / determinant
        work[right + a] = (first * y - c * x) / determinant
    for a in range(M):
        for b in range(M):
            overlap = work[left + a] * work[b * M + i] + work[right + a] * work[b * M + j]
            work[tilted + a * M + b] = work[a * M + b] - overlap
    square = change = 0.0
    for a in range(M):
        wide = 1.0 + work[tilted + a * M + a]
        growth = work[tilted + a * M + a] - work[left + a] ** 2 - work[right + a] ** 2
        for b in range(a + 1):
            weight = (1.0 if a < m else -parameters[a - m]) * (1.0 if b < m else -parameters[b - m])
            weight *= 1.0 if a == b else 2.0
            other = 1.0 + work[tilted + b * M + b]
            s = work[tilted + a * M + b]
            square += weight * math.asin(s / math.sqrt(wide * other))
            if sizes[4] == 2:
                ds = s - work[left + a] * work[left + b] - work[right + a] * work[right + b]
                db = work[tilted + b * M + b] - work[left + b] ** 2 - work[right + b] ** 2
                turn = ds - 0.5 * s * (growth / wide + db / other)
                change += weight * turn / math.sqrt(wide * other - s * s)
    mean = 2.0 / math.pi * square + noise
    scale = 2.0 / math.pi / math.sqrt(determinant)
    if sizes[4] == 2:
        return float(scale * ((d - 2.0 + (first + second) / determinant) * mean + 4.0 / math.pi * change))
    return float(scale * d * mean)


# Gaussian means of a polynomial link by Wick's theorem.
#
# A projection λ_a has a variance v_a that is not 1, so that the mean derivatives F_ak = E σ^(k)(λ_a) depend on it: each
# is a polynomial in v_a, F_ak = Σ_j F_(k+2j) ((v_a − 1)/2)^j / j!, of the mean derivatives F_k at v = 1, the numbers of
# the link. Tables in `work` after C are those of `write_diagram_tables`.


@kernel
def polynomial_table_size(M: int, K: int) -> int:
    """Return the numbers of scratch for tables."""
    return int(compiled_diagram_size(M, K) - M * M)


@kernel
def write_mean_derivatives(parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Mean derivatives of σ at every vector."""
    P, K = sizes[1], sizes[3]
    M = sizes[0] + P
    numbers = P + P * P + 4
    own = M * M
    for a in range(M):
        v = work[a * M + a]
        for k in range(K + 4):
            total, factor, j = 0.0, 1.0, 0
            while k + 2 * j <= K:
                total += factor * parameters[numbers + k + 2 * j]
                j += 1
                factor *= 0.5 * (v - 1.0) / j
            work[own + a * (K + 4) + k] = total


@kernel
def write_step_tables(parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Weights of all vectors, and what diagrams need besides C and the mean derivatives."""
    m, P, K = sizes[0], sizes[1], sizes[3]
    M = m + P
    weights = compiled_diagram_size(M, K) - M
    for a in range(M):
        work[weights + a] = 1.0 if a < m else -parameters[a - m]
    write_diagram_tables(M, K, work)


@kernel
def write_polynomial_row(i: int, parameters: Vector, sizes: Integers, work: Vector, N: Matrix) -> float:
    """Write N_ib = w_b E σ'_i σ'_b; return k_i = Σ_b w_b E σ''_i σ_b."""
    m, K = sizes[0], sizes[3]
    M, total = m + sizes[1], 0.0
    F = vector(work, M * M + i * (K + 4), K + 4)
    for b in range(M):
        G, c = vector(work, M * M + b * (K + 4), K + 4), work[i * M + b]
        slopes = bend = 0.0
        for k in range(K, -1, -1):
            slopes = F[k + 1] * G[k + 1] + slopes * c / (k + 1)
            bend = F[k + 2] * G[k] + bend * c / (k + 1)
        weight = 1.0 if b < m else -parameters[b - m]
        N[i, b] = weight * slopes
        total += weight * bend
    return total


@kernel
def polynomial_learned_mean(i: int, b: int, sizes: Integers, work: Vector) -> float:
    """Return E σ_i σ_b of the degrees from sizes[5] on."""
    M, K = sizes[0] + sizes[1], sizes[3]
    c = work[i * M + b]
    F, G = vector(work, M * M + i * (K + 4), K + 4), vector(work, M * M + b * (K + 4), K + 4)
    value = 0.0
    for k in range(K, -1, -1):
        value = (F[k] * G[k] if k >= sizes[5] else 0.0) + value * c / (k + 1)
    return value


@kernel
def empty_parity(parameters: Vector, sizes: Integers) -> int:
    """Return the parity, 0 or 1, of the degrees that the link lacks; 2 if it has both."""
    numbers = sizes[1] * (sizes[1] + 1) + 4
    even = odd = 0.0
    for k in range(sizes[3] + 1):
        if k % 2 == 0:
            even += abs(parameters[numbers + k])
        else:
            odd += abs(parameters[numbers + k])
    if even == 0.0:
        return 0
    return 1 if odd == 0.0 else 2


@kernel
def polynomial_second(i: int, j: int, parameters: Vector, sizes: Integers, work: Vector) -> float:
    """Return E[(ē² + τ²) σ'_i σ'_j |x|²], of theory 1 its part of order d."""
    P = sizes[1]
    noise, d = parameters[P + P * P], parameters[P + P * P + 2]
    absent = empty_parity(parameters, sizes)
    return diagram_second(i, j, noise, d, sizes[4] == 2, absent, sizes[0] + P, sizes[3], work)


# Gaussian means of a finite step for polynomial links, by Wick's theorem.
#
# Vectors a = 0 … M − 1 have covariances C, weights w_a in the error ē = Σ_a w_a σ_a, and mean derivatives F_ak of their
# functions at their variances and biases. Products of four series are sums over diagrams as in `hermite.polynomials`,
# covariances in place of cosines:
#
# Σ_ab w_a w_b E[σ_a f_b φ_i ψ_j] = Σ Σ_ab H_rs(a) C_ab^e/e! H'_r's'(b) Z[r+r', s+s'],
# H_rs(a) = w_a F_a,e+r+s C_ai^r C_aj^s / (r! s!),   Z[R, S] = Σ_t φ_i,R+t ψ_j,S+t C_ij^t / t!,
#
# with e, r, s, r', s' ≥ 0 legs between a and b, a and i, and so on; H' has the mean derivatives of f. For links of
# degree up to K, `work` begins with C (M, M) and F (M, K + 4), F = 0 beyond K, and ends with w (M); in between are
# the same of λσ'(λ) (M, K + 4), λ without its mean, Z and Z' (K, K), then, one row of M numbers per (r, s), H, H' and
# Y = H C^(∘e)/e!, and C^(∘e)/e! for e = 0 … K.


@kernel
def write_diagram_tables(M: int, K: int, work: Vector) -> None:
    """Mean derivatives of λσ'(λ), k F_k + v F_(k+2) because E[λ f] = v E f', and the powers of C, after C and F."""
    own, euler = M * M, M * M + M * (K + 4)
    for a in range(M):
        v = work[a * M + a]
        for k in range(K + 4):
            later = work[own + a * (K + 4) + k + 2] if k < K + 2 else 0.0
            work[euler + a * (K + 4) + k] = k * work[own + a * (K + 4) + k] + v * later
    powers = compiled_diagram_size(M, K) - M - (K + 1) * M * M
    for x in range(M * M):
        power = 1.0
        for e in range(K + 1):
            work[powers + e * M * M + x] = power
            power *= work[x] / (e + 1)


@kernel
def write_contractions(i: int, j: int, M: int, K: int, work: Vector) -> None:
    """Z of the pair σ'_i σ'_j, and Z' of λσ''_i σ'_j + σ'_i λσ''_j."""
    c, v, u = work[i * M + j], work[i * M + i], work[j * M + j]
    F, G = vector(work, M * M + i * (K + 4), K + 4), vector(work, M * M + j * (K + 4), K + 4)
    Z = M * M + 2 * M * (K + 4)
    for R in range(K):
        for S in range(K):
            plain = mixed = 0.0
            for t in range(K - 1 - max(R, S), -1, -1):
                x, y = R + t, S + t
                left, right = x * F[x + 1] + v * F[x + 3], y * G[y + 1] + u * G[y + 3]
                plain = F[x + 1] * G[y + 1] + plain * c / (t + 1)
                mixed = left * G[y + 1] + F[x + 1] * right + mixed * c / (t + 1)
            work[Z + R * K + S] = plain
            work[Z + K * K + R * K + S] = mixed


@kernel
def write_half_diagrams(
    e: int, i: int, j: int, absent: int, table: int, target: int, M: int, K: int, work: Vector
) -> int:
    """H_rs(a) for r + s ≤ K − e, made of the mean derivatives at `table`; return how many do not vanish by parity."""
    weights = compiled_diagram_size(M, K) - M
    row = 0
    for a in range(M):
        toward_i, toward_j = work[a * M + i], work[a * M + j]
        row = 0
        power = work[weights + a]
        for r in range(K - e + 1):
            term = power
            for s in range(K - e + 1 - r):
                if (e + r + s) % 2 != absent:
                    work[target + row * M + a] = term * work[table + a * (K + 4) + e + r + s]
                    row += 1
                term *= toward_j / (s + 1)
            power *= toward_i / (r + 1)
    return row


@kernel
def contract_rows(rows: int, source: int, power: int, target: int, M: int, work: Vector) -> None:
    """Y = H C^(∘e)/e!."""
    product(matrix(work, source, rows, M), matrix(work, power, M, M), matrix(work, target, rows, M))


@kernel
def row_product(first: int, second: int, count: int, work: Vector) -> float:
    """Inner product of two rows of `work`."""
    total = 0.0
    for b in range(count):
        total += work[first + b] * work[second + b]
    return total


@kernel
def diagram_second(
    i: int, j: int, noise: float, d: float, exact: bool, absent: int, M: int, K: int, work: Vector
) -> float:
    """Return E[(ē² + τ²) σ'_i σ'_j |x|²], its part of order d unless it is to be exact; `noise` is τ².

    E[F |x|²] = d E F + E[x·∂F], x·∂F = 2 ē ε σ'_i σ'_j + (ē² + τ²)(λσ''_i σ'_j + σ'_i λσ''_j), ε = Σ_a w_a λ_a σ'_a.
    """
    write_contractions(i, j, M, K, work)
    own = M * M
    Z = own + 2 * M * (K + 4)
    H = Z + 2 * K * K
    size = (K + 1) * (K + 2) // 2 * M
    E, Y, powers = H + size, H + 2 * size, H + 3 * size
    slope = noise * work[Z]
    base = noise * work[Z + K * K] if exact else 0.0
    for e in range(K + 1):
        legs = K - e + 1
        rows = write_half_diagrams(e, i, j, absent, own, H, M, K, work)
        contract_rows(rows, H, powers + e * M * M, Y, M, work)
        if exact:
            write_half_diagrams(e, i, j, absent, own + M * (K + 4), E, M, K, work)
        x = -1
        for r in range(legs):
            for s in range(legs - r):
                if (e + r + s) % 2 == absent:
                    continue
                x += 1
                y = -1
                for r2 in range(legs):
                    for s2 in range(legs - r2):
                        if (e + r2 + s2) % 2 == absent:
                            continue
                        y += 1
                        if r + r2 < K and s + s2 < K:
                            place = Z + (r + r2) * K + s + s2
                            alike = row_product(Y + x * M, H + y * M, M, work)
                            slope += alike * work[place]
                            if exact:
                                mixed = row_product(Y + x * M, E + y * M, M, work)
                                base += alike * work[place + K * K] + 2.0 * mixed * work[place]
    return float(d * slope + base)


FLOW = Functions(rhs, event_values, normalise, jacobian_diagonal)
#: The functions of steps, by the family of the link.
STEPS = {
    ERF: replace(FLOW, rhs=erf_step_rhs),
    POLYNOMIAL: replace(FLOW, rhs=polynomial_step_rhs),
}
STEP_THEORIES = ("infinite-d", "finite-d")


class CommitteeSystem(FlowSystem):
    """State layout, kernels and observables of a committee at a learning rate η, by default in the flow η → 0.

    In the term of order η², of B samples, |x|² is d for "infinite-d" and exact for "finite-d". Raises
    ValueError if the means of the link are not known exactly.
    """

    name = "committee"

    def __init__(
        self,
        problem: Problem,
        learning_rate: float | None = None,
        step_theory: str = "infinite-d",
        batch_size: int = 1,
    ) -> None:
        m, P = problem.width, problem.num_directions
        teacher, start = problem.teacher, problem.start()
        self.problem = problem
        self._link = committee_link(problem.activation, for_step=learning_rate is not None)
        self.functions = FLOW if learning_rate is None else STEPS[self._link.family]
        length = np.sqrt(start.squared_norm)
        self.initial_state: Array = np.concatenate(
            [
                (start.teacher_overlap * length[:, None]).ravel(),
                (start.student_overlap * np.outer(length, length)).ravel(),
            ]
        )
        gram = teacher.gram()
        theory = 0 if learning_rate is None else 1 + STEP_THEORIES.index(step_theory)
        step = [problem.label_noise**2, learning_rate or 0.0, float(problem.dimension), float(batch_size)]
        self.parameters: Array = np.concatenate([teacher.coefficients, gram.ravel(), step, self._link.numbers])
        part = problem.learned_part
        # Where no degree counts the kernels begin after the last one.
        self._first = part.first_degree if part.is_defined else self._link.degree + 1
        self.sizes: Integers = np.array(
            [m, P, problem.information_exponent % 2, self._link.degree, theory, self._first, self._link.family],
            dtype=np.int64,
        )
        M = m + P
        self.work_size = M * M + self._link.table_size(M) + 2 * m * M + m + m * m
        self.num_events = 2 * P
        self._gram, self._inverse_gram = gram, np.linalg.pinv(gram)
        self._weights = np.concatenate([np.ones(m), -teacher.coefficients])
        self.teacher_by_degree = teacher_parts(problem, teacher_term(problem))

    def stiffness(self) -> float:
        """Return a bound on the rates of the flow at norms 1, 2 m E[σ'² (1 + z²)]; the step's terms are not in it."""
        from hermite.polynomials import series_derivative

        c = self.problem.activation.coefficients
        nodes, weights = np.polynomial.hermite_e.hermegauss(c.size + 2)
        square = np.sum(weights * series_derivative(c, nodes) ** 2 * (1.0 + nodes**2)) / np.sum(weights)
        return 2.0 * self.problem.width * float(square)

    def unpack(self, state: Array) -> tuple[Array, Array]:
        """Return views (R, S) of a state."""
        m, P = self.problem.width, self.problem.num_directions
        return state[: m * P].reshape(m, P), state[m * P :].reshape(m, m)

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return C = R_ip/√S_ii, G = S_ij/√(S_ii S_jj), n = S_ii, loss, and the realisability margin."""
        R, S = self.unpack(state)
        C, G, n = _normalised(R, S)
        record = {"teacher_overlap": C, "student_overlap": G, "squared_norm": n}
        return record | self._losses(self._all_products(R, S)) | {"gram_margin": self.gram_margin(C, G)}

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return per direction the largest overlap and the learned mass, n, loss and margin."""
        R, S = self.unpack(state)
        C, G, n = _normalised(R, S)
        size = np.maximum(C, 0.0) if self.problem.information_exponent % 2 else np.abs(C)
        record = {"max_overlap": size.max(axis=0), "learned_mass": self.learned_mass(R, n), "squared_norm": n}
        return record | self._losses(self._all_products(R, S)) | {"gram_margin": self.gram_margin(C, G)}

    def _losses(self, gram: Array) -> dict[str, Array | float]:
        """Return the loss and, where it is told by degree, E of the squares of the parts of f − f*, (4,)."""
        loss = self._squared(self._link.products(gram))
        if self.teacher_by_degree is None:
            return {"loss": loss}
        parts = [self._squared(self._link.part(gram, degree)) for degree in range(LOWEST_DEGREE)]
        return {"loss": loss, "degree_loss": by_degree(parts, loss)}

    def _squared(self, means: Array) -> float:
        """Return the mean square of f − f*, or of a part of it, of the means of products of all its units."""
        return float(self._weights @ means @ self._weights)

    def loss(self, R: Array, S: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        return self._squared(self._link.products(self._all_products(R, S)))

    def learned_mass(self, R: Array, n: Array) -> Array:
        """Return Σ_i E[σ_i σ_p]/E[σ_p²] per direction, of the degrees that count; NaN where the link has none of them.

        A neuron of squared norm n has, as degree j, that of σ(√n z) in h_j(z). Overlaps of two neurons are not needed.
        """
        m = self.problem.width
        if not self.problem.learned_part.is_defined:
            return np.full(self.problem.num_directions, np.nan)
        means = self._link.products(self._all_products(R, np.diag(n)), self._first)
        mass: Array = means[:m, m:].sum(axis=0) / np.diag(means)[m:]
        return mass

    def gram_margin(self, C: Array, G: Array) -> float:
        """Return the smallest eigenvalue of G − C T⁻¹ Cᵀ: vectors with these overlaps exist when it is ≥ 0."""
        return float(np.linalg.eigvalsh(G - C @ self._inverse_gram @ C.T)[0])

    def _all_products(self, R: Array, S: Array) -> Array:
        return np.block([[S, R], [R.T, self._gram]])


def _normalised(R: Array, S: Array) -> tuple[Array, Array, Array]:
    """Return C, G and n; a neuron that has shrunk to a length of 0, within the tolerance, has no direction: zeros."""
    n = np.maximum(np.diag(S), 0.0)
    length = np.sqrt(n)
    inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0.0)
    return R * inverse[:, None], S * np.outer(inverse, inverse), n


# Links of which a committee's Gaussian means are known exactly at every norm: erf(z/√2) and polynomials.
#
# The overlap kernel g(s) of a link serves unit vectors alone; here projections have any variance. Both kinds of link
# say which family of the compiled functions they are, which numbers these take, how much scratch they need for M
# vectors, and E σ(λ_a) σ(λ_b) for λ ~ N(0, gram).
#
# Of a vector of length ρ the part of degree k is that of σ(ρ z) with the Hermite polynomial h_k(z), z ~ N(0, 1), so
# that each length has coefficients of its own. In E σ_a σ_b it makes the term with C_ab^k: degree 1 of erf(z/√2),
# which is odd, makes the linear term of the arcsine.


#: Largest degree of a polynomial in the equations of the step, whose diagrams grow as the fourth power of it.
LARGEST_STEP_DEGREE = 12


@dataclass(frozen=True)
class ErfLink:
    """The link erf(z/√2): E σ_a σ_b = (2/π) arcsin(C_ab / √((1 + C_aa)(1 + C_bb)))."""

    family: int = ERF
    degree: int = 0

    @property
    def numbers(self) -> Array:
        """No numbers."""
        return np.empty(0)

    def table_size(self, vectors: int) -> int:
        """Return the numbers of scratch, M (M + 2)."""
        return vectors * (vectors + 2)

    def products(self, gram: Array, first: int = 0) -> Array:
        """Return E σ_a σ_b of all pairs, shape (M, M), of the degrees from `first`, 0 or 3, on."""
        width = np.sqrt(1.0 + np.diag(gram))
        ratio = gram / np.outer(width, width)
        means: Array = 2.0 / math.pi * (np.arcsin(ratio) if first == 0 else np.arcsin(ratio) - ratio)
        return means

    def part(self, gram: Array, degree: int) -> Array:
        """Return what degree 0, 1 or 2 has of E σ_a σ_b, shape (M, M); the link is odd."""
        width = np.sqrt(1.0 + np.diag(gram))
        return np.asarray((2.0 / math.pi if degree == 1 else 0.0) * gram / np.outer(width, width))


@dataclass(frozen=True)
class PolynomialLink:
    """A polynomial: E σ_a σ_b = Σ_k F_ak F_bk C_ab^k / k!, F_ak = E σ^(k)(λ_a)."""

    numbers: Array  # the mean derivatives F_k at variance 1, k = 0 … K
    family: int = POLYNOMIAL

    @property
    def degree(self) -> int:
        """Degree K."""
        return int(self.numbers.size - 1)

    def table_size(self, vectors: int) -> int:
        """Return the size of the tables after C that the page of the diagrams lists."""
        return diagram_size(vectors, self.degree) - vectors**2

    def products(self, gram: Array, first: int = 0) -> Array:
        """Return E σ_a σ_b of all pairs, shape (M, M), of the degrees from `first` on."""
        total = np.zeros_like(gram)
        for degree in range(first, self.degree + 1):
            total += self.part(gram, degree)
        return total

    def part(self, gram: Array, degree: int) -> Array:
        """Return what one degree k has of E σ_a σ_b, F_ak F_bk C_ab^k / k!, shape (M, M)."""
        lack = 0.5 * (np.diag(gram) - 1.0)
        mean = np.zeros_like(lack)
        for j, F in enumerate(self.numbers[degree::2].tolist()):
            mean += F * lack**j / math.factorial(j)
        return np.asarray(gram**degree / math.factorial(degree) * np.outer(mean, mean))


def committee_link(link: HermiteExpansion, *, for_step: bool) -> ErfLink | PolynomialLink:
    """Return the exact means of a link, with those of the finite step if they are wanted.

    Raises ValueError if the link is neither a polynomial nor erf(z/√2), or of too high a degree for the step.
    """
    if link == hermite.expand("erf", order=link.order):
        return ErfLink()
    if not link.is_polynomial or link.truncation_error > 0.0:
        msg = (
            f"Argument `problem` must have a polynomial link or 'erf' for a committee, but has {link.name}; "
            "`activation=problem.activation.truncated()` asks for its series, close to it at norms up to 1 alone."
        )
        raise ValueError(msg)
    numbers = mean_derivatives(np.trim_zeros(link.coefficients, "b"))
    if for_step and numbers.size - 1 > LARGEST_STEP_DEGREE:
        msg = (
            f"Argument `problem` must have a link of degree at most {LARGEST_STEP_DEGREE} for a finite learning rate, "
            f"but has {numbers.size - 1}."
        )
        raise ValueError(msg)
    return PolynomialLink(numbers)
