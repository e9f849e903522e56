"""Means of higher derivatives of links with a threshold.

f^(o) is a delta, times 1 for relu (o = 2) and 2 for sign and erf (o = 1). Means with a delta in both places are
derivatives of the joint density in b_a and b_b; with x δ^(n)(x + b) = -b δ^(n) - n δ^(n-1) Stein's lemma gives those
with a delta in one, E f_a^(p+1) g_b = -(b_a E f_a^(p) g_b + (p - o) E f_a^(p-1) g_b + c E f_a^(p) g'_b)/T_a.
"""

import math

from dynamics.equations.network.families import RELU
from dynamics.equations.network.normal_kernels import SQRT_HALF, difference_of_products, normal_cdf
from dynamics.equations.network.threshold_kernels import (
    excess,
    ramp,
    relu_relu,
    relu_sign,
    root_determinant,
    sign_relu,
    sign_sign,
    standard_score,
)
from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import kernel

#: Least Δ/(T_a T_b) in a density: that of two relu neurons that point the same way is infinite.
LEAST_LACK = 1e-14


@kernel
def write_joint_density(first: int, second: int, c: float, a: Vector, b: Vector, out: Matrix) -> None:
    """Write E f_a^(p) g_b^(q) for p >= first and q >= second, the places of the deltas, p + q <= 4."""
    full = a[2] * b[2]
    delta = max(difference_of_products(a[2], b[2], c, c), LEAST_LACK * full)
    u_a = difference_of_products(a[1], b[2], c, b[1]) / delta
    u_b = difference_of_products(b[1], a[2], c, a[1]) / delta
    exponent = -0.5 * (a[1] * u_a + b[1] * u_b)
    out[first, second] = (3 - first) * (3 - second) * math.exp(exponent) / (2.0 * math.pi * math.sqrt(delta))
    for total in range(first + second, 4):
        for p in range(first, total - second + 1):
            q = total - p
            below = (p - first) * b[2] * out[p - 1, q] if p > first else 0.0
            aside = (q - second) * c * out[p, q - 1] if q > second else 0.0
            out[p + 1, q] = -u_a * out[p, q] - (below - aside) / delta
            if p == first:
                below = (q - second) * a[2] * out[p, q - 1] if q > second else 0.0
                out[p, q + 1] = -u_b * out[p, q] - below / delta


@kernel
def write_stein(first: int, second: int, c: float, a: Vector, b: Vector, out: Matrix) -> None:
    """Write E f_a^(p) g_b^(q) where one place alone is beyond its delta, from those with at most a delta each."""
    for q in range(second - 1, -1, -1):
        for p in range(first + 1, 5 - q):
            total = a[1] * out[p - 1, q] + c * out[p - 1, q + 1]
            if p > first + 1:
                total += (p - 1 - first) * out[p - 2, q]
            out[p, q] = -total / a[2]
    for p in range(first - 1, -1, -1):
        for q in range(second + 1, 5 - p):
            total = b[1] * out[p, q - 1] + c * out[p + 1, q - 1]
            if q > second + 1:
                total += (q - 1 - second) * out[p, q - 2]
            out[p, q] = -total / b[2]


@kernel
def threshold_moments(student: int, family: int, centred: bool, c: float, a: Vector, b: Vector, out: Matrix) -> None:
    """out[p, q] = E σ_a^(p) σ_b^(q), p + q <= 4, of a relu or erf neuron a and a threshold b of a family."""
    first, second = 2 if student == RELU else 1, 2 if family == RELU else 1
    root = root_determinant(c, a[2], b[2])
    n_a = difference_of_products(a[1], b[2], c, b[1])
    u_a = standard_score(n_a, b[3], root)
    if first == 2 and second == 2:
        out[0, 0], out[1, 0], out[0, 1], out[1, 1], out[2, 0], out[0, 2] = relu_relu(centred, c, a, b)
        out[2, 1] = a[5] * normal_cdf(standard_score(difference_of_products(b[1], a[2], c, a[1]), a[3], root))
        out[1, 2] = b[5] * normal_cdf(u_a)
    elif first == 2:
        out[0, 0], out[1, 0], out[1, 1], out[2, 0] = relu_sign(centred, c, a, b)
        out[0, 1] = 2.0 * ramp(b[5], b[3], root, n_a, u_a)
    elif second == 2:
        out[0, 0], out[1, 0], out[1, 1], _ = sign_relu(centred, c, a, b)
        out[0, 1] = b[7] * a[6] + 2.0 * excess(c, root, a[3] * b[3], a[4], b[4])
        out[0, 2] = b[5] * math.erf(u_a * SQRT_HALF)
    else:
        out[0, 0], out[1, 0], out[0, 1], _, _, _ = sign_sign(centred, c, a, b)
    write_joint_density(first, second, c, a, b, out)
    write_stein(first, second, c, a, b, out)


@kernel
def slopes_from_moments(mean: Matrix, out: Matrix) -> None:
    """∂/∂q and ∂/∂b of K, K1, K12 and K2 from E σ^(p) σ^(q): a mean of F(x + b) has ∂_b E F = E F', ∂_q = ½ E F''."""
    out[0, 0], out[0, 1] = mean[2, 0] + mean[1, 1], 2.0 * mean[1, 0]
    out[1, 0], out[1, 1] = 0.5 * (mean[3, 0] + 3.0 * mean[2, 1]), mean[2, 0] + mean[1, 1]
    out[2, 0], out[2, 1] = mean[3, 1] + mean[2, 2], 2.0 * mean[2, 1]
    out[3, 0], out[3, 1] = 0.5 * (mean[4, 0] + 2.0 * mean[3, 1] + mean[2, 2]), mean[3, 0] + mean[2, 1]


@kernel
def relu_slopes(row: Vector, out: Matrix) -> None:
    """Write the derivatives of K, K1, K12 and K2 of a relu neuron with itself in q and in b."""
    out[0, 0], out[0, 1] = row[7], 2.0 * row[6]
    out[1, 0], out[1, 1] = 0.5 * row[5], row[7]
    out[2, 0], out[2, 1] = -0.5 * row[5] * row[1] / row[2], row[5]
    out[3, 0], out[3, 1] = 0.0, 0.0
