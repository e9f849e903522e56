"""Means of relu(z), sign(z) and erf(z/√2) by pairs.

erf(z/√2) is the mean of sign(z + ξ) over ξ ~ N(0, 1), so that it is sign at the variance T = q + 1; for the others
T = q. With h = b_a/√T_a, k = b_b/√T_b, r = c/√(T_a T_b), Δ = T_a T_b - c², p_a = φ(h)/√T_a, n_b = b_b T_a - c b_a and
u_b = n_b/√(T_a Δ),

    E 1_a 1_b = Φ_2(h, k; r),  E δ_a 1_b = p_a Φ(u_b),  E δ_a relu_b = p_a (n_b Φ(u_b) + √(T_a Δ) φ(u_b))/T_a,

and the rest by Stein's lemma, E x_a f_a g_b = T_a E f'_a g_b + c E f_a g'_b. Where all biases are 0, `centred`,
E 1_a 1_b = 1/4 + arcsin(r)/2π and all scores are 0: the arc-cosine kernel of relu and the arcsine of erf, several times
as fast. The angle is taken from √Δ, since arcsin loses digits at r = ±1.

A row begins with q, b, T, 1/√T, h, p, E f and E f'. A function's name says what a and b are; sign stands for sign and
erf, which differ in T. Helpers take numbers: a call that hands on arrays costs more than what they compute. Functions
read rows before they branch, since Numba counts references to an array that is read in branches.
"""

import math

from dynamics.equations.network.families import ERF, RELU
from dynamics.equations.network.normal_kernels import (
    INVERSE_ROOT,
    SQRT_HALF,
    TWO_PI,
    difference_of_products,
    joint_excess,
    normal_cdf,
    normal_density,
)
from dynamics.kernels.arrays import Vector
from dynamics.kernels.jit import kernel


@kernel
def write_threshold_row(family: int, q: float, b: float, row: Vector) -> None:
    """Write the head of a row of relu, sign or erf."""
    T = q + 1.0 if family == ERF else q
    row[0], row[1], row[2], row[3] = q, b, T, 1.0 / math.sqrt(T)
    row[4] = b * row[3]
    row[5] = normal_density(row[4]) * row[3]
    if family == RELU:
        row[7] = normal_cdf(row[4])
        row[6] = b * row[7] + q * row[5]
    else:
        row[6] = math.erf(row[4] * SQRT_HALF)
        row[7] = 2.0 * row[5]


@kernel
def root_determinant(c: float, T_a: float, T_b: float) -> float:
    """Return √Δ; covariances beyond their bound by rounding count as 0."""
    return math.sqrt(max(difference_of_products(T_a, T_b, c, c), 0.0))


@kernel
def standard_score(n: float, inverse: float, root: float) -> float:
    """Return u = n/√(T Δ), `inverse` being 1/√T; at Δ = 0 the sign of n decides, and 0/0 is 0: Φ(0) by hand."""
    if root > 0.0:
        return n * inverse / root
    return 0.0 if n == 0.0 else math.copysign(math.inf, n)


@kernel
def excess(c: float, root: float, inverse: float, h: float, k: float) -> float:
    """Return Φ_2(h, k; r) - Φ(h) Φ(k), `inverse` being 1/√(T_a T_b)."""
    return joint_excess(h, k, min(max(c * inverse, -1.0), 1.0), (root * inverse) ** 2)


@kernel
def ramp(p: float, inverse: float, root: float, n: float, u: float) -> float:
    """E δ_a relu_b from p_a, 1/√T_a, √Δ, n_b and u_b."""
    wide = root * normal_density(u) if root > 0.0 else 0.0
    return p * inverse * (n * inverse * normal_cdf(u) + wide)


@kernel
def relu_relu(
    centred: bool, c: float, a: Vector, b: Vector
) -> tuple[float, float, float, float, float, float]:  # fmt: skip
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji."""
    b_a, q_a, inverse_a, h_a, p_a, above_a = a[1], a[2], a[3], a[4], a[5], a[7]
    b_b, q_b, inverse_b, h_b, p_b, above_b = b[1], b[2], b[3], b[4], b[5], b[7]
    root = root_determinant(c, q_a, q_b)
    if centred:
        both = 0.25 + math.atan2(c, root) / TWO_PI
        slope_a = 0.5 * INVERSE_ROOT * (c * inverse_a + q_b * inverse_b)
        slope_b = 0.5 * INVERSE_ROOT * (c * inverse_b + q_a * inverse_a)
        wide = root / TWO_PI
        return wide + c * both, slope_a, slope_b, both, wide * inverse_a * inverse_a, wide * inverse_b * inverse_b
    n_a, n_b = difference_of_products(b_a, q_b, c, b_b), difference_of_products(b_b, q_a, c, b_a)
    u_a, u_b = standard_score(n_a, inverse_b, root), standard_score(n_b, inverse_a, root)
    both = above_a * above_b + excess(c, root, inverse_a * inverse_b, h_a, h_b)
    from_a, from_b = p_a * normal_cdf(u_b), p_b * normal_cdf(u_a)
    slope_a, slope_b = b_b * both + c * from_a + q_b * from_b, b_a * both + c * from_b + q_a * from_a
    bend_a, bend_b = ramp(p_a, inverse_a, root, n_b, u_b), ramp(p_b, inverse_b, root, n_a, u_a)
    return b_a * slope_a + q_a * bend_a + c * both, slope_a, slope_b, both, bend_a, bend_b


@kernel
def relu_sign(centred: bool, c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    b_a, q_a, inverse_a, h_a, p_a, above_a = a[1], a[2], a[3], a[4], a[5], a[7]
    b_b, T_b, inverse_b, h_b, p_b, mean_b = b[1], b[2], b[3], b[4], b[5], b[6]
    root = root_determinant(c, q_a, T_b)
    if centred:
        both = INVERSE_ROOT * inverse_b
        return c * both, math.atan2(c, root) / math.pi, both, 0.0
    u_a = standard_score(difference_of_products(b_a, T_b, c, b_b), inverse_b, root)
    u_b = standard_score(difference_of_products(b_b, q_a, c, b_a), inverse_a, root)
    slope = above_a * mean_b + 2.0 * excess(c, root, inverse_a * inverse_b, h_a, h_b)
    both = 2.0 * p_b * normal_cdf(u_a)
    bend = p_a * math.erf(u_b * SQRT_HALF)
    return b_a * slope + q_a * bend + c * both, slope, both, bend


@kernel
def sign_relu(centred: bool, c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    b_a, T_a, inverse_a, h_a, p_a, mean_a = a[1], a[2], a[3], a[4], a[5], a[6]
    b_b, q_b, inverse_b, h_b, p_b, above_b = b[1], b[2], b[3], b[4], b[5], b[7]
    root = root_determinant(c, T_a, q_b)
    if centred:
        both = INVERSE_ROOT * inverse_a
        bend = -c * both * inverse_a * inverse_a
        return c * both, root * inverse_a * inverse_a / math.pi, both, bend
    n_b = difference_of_products(b_b, T_a, c, b_a)
    u_a = standard_score(difference_of_products(b_a, q_b, c, b_b), inverse_b, root)
    u_b = standard_score(n_b, inverse_a, root)
    slope = 2.0 * ramp(p_a, inverse_a, root, n_b, u_b)
    both = 2.0 * p_a * normal_cdf(u_b)
    above = above_b * mean_a + 2.0 * excess(c, root, inverse_a * inverse_b, h_a, h_b)
    value = b_b * above + q_b * p_b * math.erf(u_a * SQRT_HALF) + c * both
    return value, slope, both, -(b_a * slope + c * both) / T_a


@kernel
def sign_sign(
    centred: bool, c: float, a: Vector, b: Vector
) -> tuple[float, float, float, float, float, float]:  # fmt: skip
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji."""
    b_a, T_a, inverse_a, h_a, p_a, mean_a = a[1], a[2], a[3], a[4], a[5], a[6]
    b_b, T_b, inverse_b, h_b, p_b, mean_b = b[1], b[2], b[3], b[4], b[5], b[6]
    root = root_determinant(c, T_a, T_b)
    if centred:
        both = 2.0 / (math.pi * root)
        bend = -c * both
        value = 2.0 / math.pi * math.atan2(c, root)
        return value, 0.0, 0.0, both, bend * inverse_a * inverse_a, bend * inverse_b * inverse_b
    u_a = standard_score(difference_of_products(b_a, T_b, c, b_b), inverse_b, root)
    u_b = standard_score(difference_of_products(b_b, T_a, c, b_a), inverse_a, root)
    slope_a, slope_b = 2.0 * p_a * math.erf(u_b * SQRT_HALF), 2.0 * p_b * math.erf(u_a * SQRT_HALF)
    both = 4.0 * p_a * normal_density(u_b) / (inverse_a * root)
    value = mean_a * mean_b + 4.0 * excess(c, root, inverse_a * inverse_b, h_a, h_b)
    bend_a, bend_b = -(b_a * slope_a + c * both) / T_a, -(b_b * slope_b + c * both) / T_b
    return value, slope_a, slope_b, both, bend_a, bend_b
