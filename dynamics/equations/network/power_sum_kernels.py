"""Sums of powers for many numbers at once."""

from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import kernel


@kernel
def largest_size(x: Vector, count: int) -> float:
    """Return a bound on |x_j|, j < count, at most count^(1/16) above the largest; a maximum is found one by one."""
    total = 0.0
    for j in range(count):
        fourth = x[j] * x[j] * x[j] * x[j]
        total += fourth * fourth * fourth * fourth
    return float(total**0.0625)


@kernel
def write_power_sums(left: Vector, right: Matrix, x: Vector, terms: int, count: int, out: Vector) -> None:
    """out_j = Σ_k left_k right_kj x_j^k over k < terms, for j < count: Horner's rule, four terms at a time."""
    rest = terms % 4
    for j in range(count):
        out[j] = 0.0
    for n in range(rest):
        a, row = left[terms - 1 - n], right[terms - 1 - n]
        for j in range(count):
            out[j] = out[j] * x[j] + a * row[j]
    for k in range(terms - rest - 4, -1, -4):
        a, b, c, d = left[k], left[k + 1], left[k + 2], left[k + 3]
        for j in range(count):
            inner = (out[j] * x[j] + d * right[k + 3, j]) * x[j] + c * right[k + 2, j]
            out[j] = (inner * x[j] + b * right[k + 1, j]) * x[j] + a * right[k, j]
