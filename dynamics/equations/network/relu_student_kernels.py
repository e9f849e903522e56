"""A relu student with links that have a threshold; executed after `threshold_kernels`."""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.moment_kernels import *


@kernel
def threshold_pair(family: int, c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    if family == 0:
        return relu_relu(c, a, b)
    return relu_sign(c, a, b)


@kernel
def threshold_mutual(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji."""
    return relu_relu_mutual(c, a, b)


@kernel
def threshold_own(a: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron with itself."""
    return relu_own(a)


@kernel
def threshold_moments(family: int, c: float, a: Vector, b: Vector, out: Matrix) -> None:
    """E σ_a^(p) σ_b^(q)."""
    if family == 0:
        relu_relu_moments(c, a, b, out)
    else:
        relu_sign_moments(c, a, b, out)


@kernel
def threshold_slopes(a: Vector, out: Matrix) -> None:
    """∂/∂q and ∂/∂b of (q + b²) Φ(h) + b √q φ(h), of its halved derivative in b, of Φ(h) and of 0."""
    out[0, 0], out[0, 1] = a[7], 2.0 * a[6]
    out[1, 0], out[1, 1] = 0.5 * a[5], a[7]
    out[2, 0], out[2, 1] = -0.5 * a[5] * a[1] / a[2], a[5]
    out[3, 0], out[3, 1] = 0.0, 0.0
