"""Gaussian means of relu(z), sign(z) and erf(z/√2) by pairs, at any variances and biases; after `normal_kernels`.

erf(z/√2) is the mean of sign(z + ξ) over ξ ~ N(0, 1), so that it is sign at the variance T = q + 1; for the others
T = q. With h = b_a/√T_a, k = b_b/√T_b, r = c/√(T_a T_b), Δ = T_a T_b - c², p_a = φ(h)/√T_a, n_b = b_b T_a - c b_a and
u_b = n_b/√(T_a Δ),

    E 1_a 1_b = Φ_2(h, k; r),  E δ_a 1_b = p_a Φ(u_b),  E δ_a relu_b = p_a (n_b Φ(u_b) + √(T_a Δ) φ(u_b))/T_a,

and the rest by Stein's lemma, E x_a f_a g_b = T_a E f'_a g_b + c E f_a g'_b. A row begins with q, b, T, 1/√T, h, p,
E f, E f' and 1/√q.
"""

import math
from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.normal_kernels import *


@kernel
def write_threshold_row(kind: int, q: float, b: float, row: Vector) -> None:
    """Write the head of a row of relu (kind 0), sign (1) or erf (2)."""
    T = q + 1.0 if kind == 2 else q
    row[0], row[1], row[2], row[3] = q, b, T, 1.0 / math.sqrt(T)
    row[4] = b * row[3]
    row[5] = normal_density(row[4]) * row[3]
    if kind == 0:
        row[7] = normal_cdf(row[4])
        row[6] = b * row[7] + q * row[5]
    else:
        row[6] = math.erf(row[4] * SQRT_HALF)
        row[7] = 2.0 * row[5]


@kernel
def standard_score(numerator: float, width: float) -> float:
    """Return numerator/width; where the width is 0 the sign decides, and 0/0 is 0, which puts Φ(0) by hand."""
    if width > 0.0:
        return numerator / width
    return 0.0 if numerator == 0.0 else math.copysign(math.inf, numerator)


@kernel
def pair_scores(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float]:
    """Return √Δ, n_a, n_b, u_a and u_b."""
    root = math.sqrt(max(difference_of_products(a[2], b[2], c, c), 0.0))
    n_a = difference_of_products(a[1], b[2], c, b[1])
    n_b = difference_of_products(b[1], a[2], c, a[1])
    return root, n_a, n_b, standard_score(n_a * b[3], root), standard_score(n_b * a[3], root)


@kernel
def pair_excess(c: float, root: float, a: Vector, b: Vector) -> float:
    """Return Φ_2(h, k; r) - Φ(h) Φ(k)."""
    inverse = a[3] * b[3]
    return joint_excess(a[4], b[4], min(max(c * inverse, -1.0), 1.0), (root * inverse) ** 2)


@kernel
def ramp(a: Vector, root: float, n: float, u: float) -> float:
    """E δ_a relu_b."""
    scale = a[3] * root
    wide = scale * normal_density(u) if scale > 0.0 else 0.0
    return float(a[5] * (n * a[3] * a[3] * normal_cdf(u) + wide))


@kernel
def relu_relu(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of relu with relu."""
    root, _, n_b, u_a, u_b = pair_scores(c, a, b)
    both = a[7] * b[7] + pair_excess(c, root, a, b)
    slope = b[1] * both + c * a[5] * normal_cdf(u_b) + b[2] * b[5] * normal_cdf(u_a)
    bend = ramp(a, root, n_b, u_b)
    return a[1] * slope + a[2] * bend + c * both, slope, both, bend


@kernel
def relu_sign(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of relu with sign or erf."""
    root, _, _, u_a, u_b = pair_scores(c, a, b)
    slope = a[7] * b[6] + 2.0 * pair_excess(c, root, a, b)
    both = 2.0 * b[5] * normal_cdf(u_a)
    bend = a[5] * math.erf(u_b * SQRT_HALF)
    return a[1] * slope + a[2] * bend + c * both, slope, both, bend


@kernel
def sign_relu(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of erf with relu."""
    root, _, n_b, u_a, u_b = pair_scores(c, a, b)
    slope = 2.0 * ramp(a, root, n_b, u_b)
    both = 2.0 * a[5] * normal_cdf(u_b)
    above = b[7] * a[6] + 2.0 * pair_excess(c, root, a, b)
    value = b[1] * above + b[2] * b[5] * math.erf(u_a * SQRT_HALF) + c * both
    return value, slope, both, -(a[1] * slope + c * both) / a[2]


@kernel
def sign_sign(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of erf with sign or erf."""
    root, _, _, _, u_b = pair_scores(c, a, b)
    slope = 2.0 * a[5] * math.erf(u_b * SQRT_HALF)
    both = 4.0 * a[5] * normal_density(u_b) / (a[3] * root)
    value = a[6] * b[6] + 4.0 * pair_excess(c, root, a, b)
    return value, slope, both, -(a[1] * slope + c * both) / a[2]


@kernel
def relu_relu_mutual(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji of relu with relu."""
    root, n_a, n_b, u_a, u_b = pair_scores(c, a, b)
    both = a[7] * b[7] + pair_excess(c, root, a, b)
    from_a, from_b = a[5] * normal_cdf(u_b), b[5] * normal_cdf(u_a)
    slope_a = b[1] * both + c * from_a + b[2] * from_b
    slope_b = a[1] * both + c * from_b + a[2] * from_a
    bend_a, bend_b = ramp(a, root, n_b, u_b), ramp(b, root, n_a, u_a)
    return a[1] * slope_a + a[2] * bend_a + c * both, slope_a, slope_b, both, bend_a, bend_b


@kernel
def sign_sign_mutual(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji of erf with erf."""
    root, _, _, u_a, u_b = pair_scores(c, a, b)
    slope_a, slope_b = 2.0 * a[5] * math.erf(u_b * SQRT_HALF), 2.0 * b[5] * math.erf(u_a * SQRT_HALF)
    both = 4.0 * a[5] * normal_density(u_b) / (a[3] * root)
    value = a[6] * b[6] + 4.0 * pair_excess(c, root, a, b)
    bend_a, bend_b = -(a[1] * slope_a + c * both) / a[2], -(b[1] * slope_b + c * both) / b[2]
    return value, slope_a, slope_b, both, bend_a, bend_b


@kernel
def relu_own(a: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a relu neuron with itself."""
    return a[1] * a[6] + a[0] * a[7], a[6], a[7], 0.0


@kernel
def sign_own(a: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of an erf neuron with itself."""
    return sign_sign(a[0], a, a)
