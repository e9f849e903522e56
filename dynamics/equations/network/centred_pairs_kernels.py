"""Means of relu, sign and erf by pairs where all biases are 0; executed after `threshold_kernels`.

The functions are those of `biased_pairs_kernels`, with E 1_a 1_b = 1/4 + arcsin(r)/2π and all scores 0: the arc-cosine
kernel of relu and the arcsine of erf. The angle is taken from √Δ, since arcsin loses digits at r = ±1.
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
    q_a, inverse_a, q_b, inverse_b = a[2], a[3], b[2], b[3]
    root = root_determinant(c, q_a, q_b)
    both = 0.25 + math.atan2(c, root) / TWO_PI
    slope_a = 0.5 * INVERSE_ROOT * (c * inverse_a + q_b * inverse_b)
    slope_b = 0.5 * INVERSE_ROOT * (c * inverse_b + q_a * inverse_a)
    wide = root / TWO_PI
    return wide + c * both, slope_a, slope_b, both, wide * inverse_a * inverse_a, wide * inverse_b * inverse_b


@kernel
def relu_sign(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    both = INVERSE_ROOT * b[3]
    return c * both, math.atan2(c, root_determinant(c, a[2], b[2])) / math.pi, both, 0.0


@kernel
def sign_relu(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    inverse = a[3]
    both = INVERSE_ROOT * inverse
    slope = root_determinant(c, a[2], b[2]) * inverse * inverse / math.pi
    return c * both, slope, both, -c * both * inverse * inverse


@kernel
def sign_sign_mutual(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji."""
    inverse_a, inverse_b = a[3], b[3]
    root = root_determinant(c, a[2], b[2])
    both = 2.0 / (math.pi * root)
    bend = -c * both
    return (
        2.0 / math.pi * math.atan2(c, root),
        0.0,
        0.0,
        both,
        bend * inverse_a * inverse_a,
        bend * inverse_b * inverse_b,
    )
