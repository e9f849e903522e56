"""What a relu neuron has with thresholds and with itself; executed before `threshold_student_kernels`."""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.biased_pairs_kernels import *
    from dynamics.equations.network.moment_kernels import *
    from dynamics.equations.network.one_sided_kernels import *


@kernel
def threshold_pair(family: int, c: float, a: Vector, b: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron and a threshold of a family."""
    return relu_relu(c, a, b) if family == 0 else relu_sign(c, a, b)


@kernel
def two_neurons(c: float, a: Vector, b: Vector) -> tuple[float, float, float, float, float, float]:
    """K, K1_ij, K1_ji, K12, K2_ij, K2_ji."""
    return relu_relu_mutual(c, a, b)


@kernel
def one_neuron(row: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 of a neuron with itself."""
    return row[1] * row[6] + row[0] * row[7], row[6], row[7], 0.0


@kernel
def threshold_moments(family: int, c: float, a: Vector, b: Vector, out: Matrix) -> None:
    """out[p, q] = E σ_a^(p) σ_b^(q), p + q <= 4."""
    if family == 0:
        relu_relu_moments(c, a, b, out)
    else:
        relu_sign_moments(c, a, b, out)


@kernel
def one_neuron_slopes(row: Vector, out: Matrix) -> None:
    """Write the derivatives of `one_neuron` in q and in b."""
    out[0, 0], out[0, 1] = row[7], 2.0 * row[6]
    out[1, 0], out[1, 1] = 0.5 * row[5], row[7]
    out[2, 0], out[2, 1] = -0.5 * row[5] * row[1] / row[2], row[5]
    out[3, 0], out[3, 1] = 0.0, 0.0
