"""An erf student with links that have a threshold; executed after `threshold_kernels`."""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.moment_kernels import *
    from dynamics.equations.network.smooth_own_kernels import *


@kernel
def threshold_pair(family: int, c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    if family == 0:
        return sign_relu(c, a, b)
    return sign_sign(c, a, b)


@kernel
def threshold_mutual(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji."""
    return sign_sign_mutual(c, a, b)


@kernel
def threshold_own(a: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron with itself."""
    return sign_own(a)


@kernel
def threshold_moments(family: int, c: float, a: Vector, b: Vector, out: Matrix) -> None:
    """E σ_a^(p) σ_b^(q)."""
    if family == 0:
        sign_relu_moments(c, a, b, out)
    else:
        sign_sign_moments(c, a, b, out)


@kernel
def threshold_slopes(a: Vector, out: Matrix) -> None:
    """∂/∂q and ∂/∂b of the means of a neuron with itself."""
    mean = np.empty((5, 5))
    sign_sign_moments(a[0], a, a, mean)
    slopes_from_moments(mean, out)
