"""Means of two alike thresholds seen from one of them; executed after `biased_pairs` or `centred_pairs_kernels`."""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.biased_pairs_kernels import *


@kernel
def relu_relu(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    value, slope, _, both, bend, _ = relu_relu_mutual(c, a, b)
    return value, slope, both, bend


@kernel
def sign_sign(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    value, slope, _, both, bend, _ = sign_sign_mutual(c, a, b)
    return value, slope, both, bend
