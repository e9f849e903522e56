"""Links κ f + βz + γ with f one of relu, sign and erf, as abs or a leaky relu; executed after `threshold_kernels`.

Means of products are bilinear: to κ_a κ_b times those of f, which the pairs' kernels give, come means with a line in
one place or both, E f_a^(p) (β_b x_b + ℓ_b) = ℓ_b D_p(a) + c β_b D_(p+1)(a) with ℓ = βb + γ.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import counting_kernel, kernel

if TYPE_CHECKING:
    from dynamics.equations.network.list_kernels import HEADER
    from dynamics.equations.network.smooth_own_kernels import *


@kernel
def write_line_means(link: int, row: Vector, numbers: Vector, out: Vector) -> None:
    """Write κ D_0 … κ D_5 of f, then the line's mean ℓ and slope β, and κ."""
    head = int(numbers[1]) + HEADER * link
    scale, slope, offset = numbers[head + 3], numbers[head + 4], numbers[head + 5]
    out[0], out[1], first = scale * row[6], scale * row[7], 1
    if numbers[head] == 0.0:
        out[2], first = scale * row[5], 2
    for j in range(first, 5):
        out[j + 1] = -(row[1] * out[j] + (j - first) * out[j - 1]) / row[2]
    out[6], out[7], out[8] = slope * row[1] + offset, slope, scale


@kernel
def line_part(p: int, mean: Vector) -> tuple[float, float]:
    """Return the mean of derivative p of a line, and its slope."""
    if p == 0:
        return mean[6], mean[7]
    return (mean[7], 0.0) if p == 1 else (0.0, 0.0)


@kernel
def beside(p: int, q: int, c: float, a: Vector, b: Vector) -> float:
    """Return the part of E σ_a^(p) σ_b^(q) in which at least one place has its line."""
    left, left_slope = line_part(p, a)
    right, right_slope = line_part(q, b)
    one = a[p] * right + left * b[q] + c * (a[p + 1] * right_slope + left_slope * b[q + 1])
    return float(one + left * right + c * left_slope * right_slope)


@counting_kernel
def lined_pair(
    link: int, c: float, row_a: Vector, row_b: Vector, numbers: Vector, means: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 from those of f."""
    a, b = np.empty(9), np.empty(9)
    write_line_means(0, row_a, numbers, a)
    write_line_means(link, row_b, numbers, b)
    scale = a[8] * b[8]
    value, slope = scale * means[0] + beside(0, 0, c, a, b), scale * means[1] + beside(1, 0, c, a, b)
    return value, slope, scale * means[2] + beside(1, 1, c, a, b), scale * means[3] + beside(2, 0, c, a, b)


@counting_kernel
def lined_moments(link: int, c: float, row_a: Vector, row_b: Vector, numbers: Vector, out: Matrix) -> None:
    """E σ_a^(p) σ_b^(q), in place of those of f."""
    a, b = np.empty(9), np.empty(9)
    write_line_means(0, row_a, numbers, a)
    write_line_means(link, row_b, numbers, b)
    for p in range(5):
        for q in range(5 - p):
            out[p, q] = a[8] * b[8] * out[p, q] + beside(p, q, c, a, b)


@counting_kernel
def lined_slopes(row: Vector, numbers: Vector, out: Matrix) -> None:
    """Write the derivatives of the means of a neuron with itself, in place of those of f."""
    a, mean, slopes = np.empty(9), np.empty((5, 5)), np.empty((4, 2))
    write_line_means(0, row, numbers, a)
    for p in range(5):
        for q in range(5 - p):
            mean[p, q] = beside(p, q, row[0], a, a)
    slopes_from_moments(mean, slopes)
    for n in range(4):
        for k in range(2):
            out[n, k] = a[8] * a[8] * out[n, k] + slopes[n, k]
