"""Means of higher derivatives of links with a threshold; executed after the pairs' kernels.

f^(o) is a delta, times 1 for relu (o = 2) and 2 for sign and erf (o = 1). Means with a delta in both places are
derivatives of the joint density in b_a and b_b; with x δ^(n)(x + b) = -b δ^(n) - n δ^(n-1) Stein's lemma gives those
with a delta in one, E f_a^(p+1) g_b = -(b_a E f_a^(p) g_b + (p - o) E f_a^(p-1) g_b + c E f_a^(p) g'_b)/T_a.
"""

import math
from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.biased_pairs_kernels import *
    from dynamics.equations.network.threshold_kernels import *

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
def relu_relu_moments(c: float, a: Vector, b: Vector, out: Matrix) -> None:
    """E f_a^(p) g_b^(q) of relu with relu."""
    root = root_determinant(c, a[2], b[2])
    out[0, 0], out[1, 0], out[0, 1], out[1, 1], out[2, 0], out[0, 2] = relu_relu_mutual(c, a, b)
    out[2, 1] = a[5] * normal_cdf(standard_score(difference_of_products(b[1], a[2], c, a[1]), a[3], root))
    out[1, 2] = b[5] * normal_cdf(standard_score(difference_of_products(a[1], b[2], c, b[1]), b[3], root))
    write_joint_density(2, 2, c, a, b, out)
    write_stein(2, 2, c, a, b, out)


@kernel
def relu_sign_moments(c: float, a: Vector, b: Vector, out: Matrix) -> None:
    """E f_a^(p) g_b^(q) of relu with sign or erf."""
    root = root_determinant(c, a[2], b[2])
    n_a = difference_of_products(a[1], b[2], c, b[1])
    out[0, 0], out[1, 0], out[1, 1], out[2, 0] = relu_sign(c, a, b)
    out[0, 1] = 2.0 * ramp(b[5], b[3], root, n_a, standard_score(n_a, b[3], root))
    write_joint_density(2, 1, c, a, b, out)
    write_stein(2, 1, c, a, b, out)


@kernel
def sign_relu_moments(c: float, a: Vector, b: Vector, out: Matrix) -> None:
    """E f_a^(p) g_b^(q) of erf with relu."""
    root = root_determinant(c, a[2], b[2])
    u_a = standard_score(difference_of_products(a[1], b[2], c, b[1]), b[3], root)
    out[0, 0], out[1, 0], out[1, 1], _ = sign_relu(c, a, b)
    out[0, 1] = b[7] * a[6] + 2.0 * excess(c, root, a[3] * b[3], a[4], b[4])
    out[0, 2] = b[5] * math.erf(u_a * SQRT_HALF)
    write_joint_density(1, 2, c, a, b, out)
    write_stein(1, 2, c, a, b, out)


@kernel
def sign_sign_moments(c: float, a: Vector, b: Vector, out: Matrix) -> None:
    """E f_a^(p) g_b^(q) of erf with sign or erf."""
    out[0, 0], out[1, 0], out[0, 1], _, _, _ = sign_sign_mutual(c, a, b)
    write_joint_density(1, 1, c, a, b, out)
    write_stein(1, 1, c, a, b, out)
