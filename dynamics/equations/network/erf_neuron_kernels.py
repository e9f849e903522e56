"""What an erf neuron has with thresholds and with itself; executed before `threshold_student_kernels`."""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import counting_kernel, kernel

if TYPE_CHECKING:
    from dynamics.equations.network.biased_pairs_kernels import *
    from dynamics.equations.network.moment_kernels import *
    from dynamics.equations.network.one_sided_kernels import *
    from dynamics.equations.network.smooth_own_kernels import *

    # A constant of the source, so that a branch that is never taken is not compiled.
    HAS_RELU = True


@kernel
def threshold_pair(family: int, c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron and a threshold of a family."""
    return sign_relu(c, a, b) if HAS_RELU and family == 0 else sign_sign(c, a, b)


@kernel
def two_neurons(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji."""
    return sign_sign_mutual(c, a, b)


@kernel
def one_neuron(row: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron with itself."""
    return sign_sign(row[0], row, row)


@kernel
def threshold_moments(family: int, c: float, a: Vector, b: Vector, out: Matrix) -> None:
    """out[p, q] = E σ_a^(p) σ_b^(q), p + q <= 4."""
    if HAS_RELU and family == 0:
        sign_relu_moments(c, a, b, out)
    else:
        sign_sign_moments(c, a, b, out)


@counting_kernel
def one_neuron_slopes(row: Vector, out: Matrix) -> None:
    """Write the derivatives of `one_neuron` in q and in b."""
    mean = np.empty((5, 5))
    sign_sign_moments(row[0], row, row, mean)
    slopes_from_moments(mean, out)
