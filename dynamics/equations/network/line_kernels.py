"""Links κ f + βz + γ with f one of relu, sign and erf, as abs or a leaky relu.

Means of products are bilinear: to κ_a κ_b times those of f, which the pairs' kernels give, come means with a line in
one place or both, E f_a^(p) (β_b x_b + ℓ_b) = ℓ_b D_p(a) + c β_b D_(p+1)(a) with ℓ = βb + γ.
"""

import numpy as np

from dynamics.equations.network.families import RELU
from dynamics.equations.network.list_kernels import HEADS
from dynamics.equations.network.moment_kernels import slopes_from_moments
from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import kernel

#: Derivatives of a neuron and of the other unit in K, K1, K12 and K2.
LEFT, RIGHT = (0, 1, 1, 2), (0, 0, 1, 0)


@kernel
def write_line_means(head: int, row: Vector, numbers: Vector, out: Vector) -> None:
    """Write κ D_0 … κ D_5 of f, then the line's mean ℓ and slope β, and κ."""
    scale, slope, offset = numbers[head + 3], numbers[head + 4], numbers[head + 5]
    out[0], out[1], first = scale * row[6], scale * row[7], 1
    if numbers[head] == RELU:
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


@kernel
def lined_pair(
    head: int, c: float, row_a: Vector, row_b: Vector, numbers: Vector, means: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    """K, K1, K12, K2 from those of f."""
    a, b = np.empty(9), np.empty(9)
    write_line_means(int(numbers[HEADS]), row_a, numbers, a)
    write_line_means(head, row_b, numbers, b)
    found = np.empty(4)
    for n in range(4):
        found[n] = a[8] * b[8] * means[n] + beside(LEFT[n], RIGHT[n], c, a, b)
    return found[0], found[1], found[2], found[3]


@kernel
def lined_moments(head: int, c: float, row_a: Vector, row_b: Vector, numbers: Vector, out: Matrix) -> None:
    """E σ_a^(p) σ_b^(q), in place of those of f."""
    a, b = np.empty(9), np.empty(9)
    write_line_means(int(numbers[HEADS]), row_a, numbers, a)
    write_line_means(head, row_b, numbers, b)
    for p in range(5):
        for q in range(5 - p):
            out[p, q] = a[8] * b[8] * out[p, q] + beside(p, q, c, a, b)


@kernel
def lined_slopes(row: Vector, numbers: Vector, out: Matrix) -> None:
    """Write the derivatives of the means of a neuron with itself, in place of those of f."""
    a, mean, slopes = np.empty(9), np.empty((5, 5)), np.empty((4, 2))
    write_line_means(int(numbers[HEADS]), row, numbers, a)
    for p in range(5):
        for q in range(5 - p):
            mean[p, q] = beside(p, q, row[0], a, a)
    slopes_from_moments(mean, slopes)
    for n in range(4):
        for k in range(2):
            out[n, k] = a[8] * a[8] * out[n, k] + slopes[n, k]
