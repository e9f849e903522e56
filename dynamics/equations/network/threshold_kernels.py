"""What the means of relu(z), sign(z) and erf(z/√2) by pairs are made of; executed after `normal_kernels`.

erf(z/√2) is the mean of sign(z + ξ) over ξ ~ N(0, 1), so that it is sign at the variance T = q + 1; for the others
T = q. With h = b_a/√T_a, k = b_b/√T_b, r = c/√(T_a T_b), Δ = T_a T_b - c², p_a = φ(h)/√T_a, n_b = b_b T_a - c b_a and
u_b = n_b/√(T_a Δ),

    E 1_a 1_b = Φ_2(h, k; r),  E δ_a 1_b = p_a Φ(u_b),  E δ_a relu_b = p_a (n_b Φ(u_b) + √(T_a Δ) φ(u_b))/T_a,

and the rest by Stein's lemma, E x_a f_a g_b = T_a E f'_a g_b + c E f_a g'_b. A row begins with q, b, T, 1/√T, h, p,
E f and E f'. Helpers take numbers: a call that hands on arrays costs more than what they compute.
"""

import math
from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.normal_kernels import *


@kernel
def write_threshold_row(kind: int, q: float, b: float, row: Vector) -> None:
    """Write the head of a row of relu (kind 0), sign (1) or erf (2)."""
    T = q + 1.0 if kind == 2 else q
    row[0], row[1], row[2], row[3] = q, b, T, 1.0 / math.sqrt(T)
    row[4] = b * row[3]
    row[5] = normal_density(row[4]) * row[3]
    if kind == 0:
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
