"""Means of relu, sign and erf by pairs at any biases; executed after `threshold_kernels`, which has the equations.

A function's name says what a and b are; sign stands for sign and erf, which differ in T.
"""

import math
from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.threshold_kernels import *


@kernel
def relu_relu_mutual(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji."""
    q_a, b_a, inverse_a, p_a, q_b, b_b, inverse_b, p_b = a[2], a[1], a[3], a[5], b[2], b[1], b[3], b[5]
    root = root_determinant(c, q_a, q_b)
    n_a, n_b = difference_of_products(b_a, q_b, c, b_b), difference_of_products(b_b, q_a, c, b_a)
    u_a, u_b = standard_score(n_a, inverse_b, root), standard_score(n_b, inverse_a, root)
    both = a[7] * b[7] + excess(c, root, inverse_a * inverse_b, a[4], b[4])
    from_a, from_b = p_a * normal_cdf(u_b), p_b * normal_cdf(u_a)
    slope_a, slope_b = b_b * both + c * from_a + q_b * from_b, b_a * both + c * from_b + q_a * from_a
    bend_a, bend_b = ramp(p_a, inverse_a, root, n_b, u_b), ramp(p_b, inverse_b, root, n_a, u_a)
    return b_a * slope_a + q_a * bend_a + c * both, slope_a, slope_b, both, bend_a, bend_b


@kernel
def relu_sign(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    b_a, q_a, inverse_a, b_b, T_b, inverse_b = a[1], a[2], a[3], b[1], b[2], b[3]
    root = root_determinant(c, q_a, T_b)
    u_a = standard_score(difference_of_products(b_a, T_b, c, b_b), inverse_b, root)
    u_b = standard_score(difference_of_products(b_b, q_a, c, b_a), inverse_a, root)
    slope = a[7] * b[6] + 2.0 * excess(c, root, inverse_a * inverse_b, a[4], b[4])
    both = 2.0 * b[5] * normal_cdf(u_a)
    bend = a[5] * math.erf(u_b * SQRT_HALF)
    return b_a * slope + q_a * bend + c * both, slope, both, bend


@kernel
def sign_relu(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    b_a, T_a, inverse_a, b_b, q_b, inverse_b = a[1], a[2], a[3], b[1], b[2], b[3]
    root = root_determinant(c, T_a, q_b)
    n_b = difference_of_products(b_b, T_a, c, b_a)
    u_a = standard_score(difference_of_products(b_a, q_b, c, b_b), inverse_b, root)
    u_b = standard_score(n_b, inverse_a, root)
    slope = 2.0 * ramp(a[5], inverse_a, root, n_b, u_b)
    both = 2.0 * a[5] * normal_cdf(u_b)
    above = b[7] * a[6] + 2.0 * excess(c, root, inverse_a * inverse_b, a[4], b[4])
    value = b_b * above + q_b * b[5] * math.erf(u_a * SQRT_HALF) + c * both
    return value, slope, both, -(b_a * slope + c * both) / T_a


@kernel
def sign_sign_mutual(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji."""
    b_a, T_a, inverse_a, p_a, b_b, T_b, inverse_b = a[1], a[2], a[3], a[5], b[1], b[2], b[3]
    root = root_determinant(c, T_a, T_b)
    u_a = standard_score(difference_of_products(b_a, T_b, c, b_b), inverse_b, root)
    u_b = standard_score(difference_of_products(b_b, T_a, c, b_a), inverse_a, root)
    slope_a, slope_b = 2.0 * p_a * math.erf(u_b * SQRT_HALF), 2.0 * b[5] * math.erf(u_a * SQRT_HALF)
    both = 4.0 * p_a * normal_density(u_b) / (inverse_a * root)
    value = a[6] * b[6] + 4.0 * excess(c, root, inverse_a * inverse_b, a[4], b[4])
    bend_a, bend_b = -(b_a * slope_a + c * both) / T_a, -(b_b * slope_b + c * both) / T_b
    return value, slope_a, slope_b, both, bend_a, bend_b
