"""Gaussian means as sums over E_j = λ^j D_j/√j!, D_j = E σ^(j)(√q z + b); after `series_kernels`.

K = Σ_j E_j(a) E_j(b) x^j with λ = 1 and x = c, or with λ = √q and x = c/√(q_a q_b) where a series needs it; a
derivative moves the index, σ' has √(j+1) E_(j+1)/λ. A row holds after its head, whose last number is 1/λ, E_j for
j < N + 4, then N numbers each of the lists of σ' and σ''. `numbers` = [N, place of the links' heads, whether λ = √q,
whether a link has a line, √0, √1, …, heads of the links, numbers of the links].
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import counting_kernel, kernel

if TYPE_CHECKING:
    from dynamics.equations.network.normal_kernels import *
    from dynamics.equations.network.series_kernels import *

    # Constants of the source, so that what links that are alike do not need is not compiled.
    HAS_RELU = HAS_SIGNS = HAS_POLYNOMIALS = HAS_TABLES = True

#: Where a row's list begins, and where the table of square roots begins in `numbers`.
LIST, ROOT = 9, 4
#: Numbers at the head of each link: family (0 relu, 1 sign, 2 erf, 3 polynomial, 4 table), start of its own numbers,
#: degree, and of a link κ f + βz + γ those three.
HEADER, TABLE = 6, 4
#: -ln of the powers of s that are left out.
NEGLIGIBLE = 42.0


@kernel
def step_by_recursion(first: int, T: float, b: float, scale: float, count: int, numbers: Vector, out: Vector) -> None:
    """Write E_j beyond j = first, where D_j is a density: D_(j+1) = -(b D_j + (j - first) D_(j-1))/T."""
    for j in range(first, count - 1):
        before = (j - first) / numbers[ROOT + j] * scale * out[j - 1] if j > first else 0.0
        out[j + 1] = -scale / T * (b * out[j] + before) / numbers[ROOT + j + 1]


@kernel
def relu_list(q: float, b: float, scale: float, count: int, numbers: Vector, out: Vector) -> None:
    """Write E_j of relu, of which D_2 is the density of x at -b."""
    h = b / math.sqrt(q)
    density = normal_density(h) / math.sqrt(q)
    above = normal_cdf(h)
    out[0], out[1], out[2] = b * above + q * density, above * scale, density * scale * scale * SQRT_HALF
    step_by_recursion(2, q, b, scale, count, numbers, out)


@kernel
def sign_list(T: float, b: float, scale: float, count: int, numbers: Vector, out: Vector) -> None:
    """Write E_j of sign at variance T, of which D_1 is twice the density."""
    h = b / math.sqrt(T)
    out[0], out[1] = math.erf(h * SQRT_HALF), 2.0 * normal_density(h) / math.sqrt(T) * scale
    step_by_recursion(1, T, b, scale, count, numbers, out)


@kernel
def polynomial_list(
    q: float, b: float, scale: float, count: int, start: int, degree: int, numbers: Vector, out: Vector
) -> None:
    """Write E_j of a polynomial: by the heat equation from q = 0 or 1, whichever is nearer, then by Taylor's to b.

    `numbers` hold E_j at q = 1, its Hermite coefficients, and then at q = 0; `out` has room for degree + 1 numbers.
    """
    first, change = (start + degree + 1, q) if q < 0.5 else (start, q - 1.0)
    for j in range(max(count, degree + 1)):
        out[j] = numbers[first + j] if j <= degree else 0.0
    for j in range(degree + 1):
        total, factor = 0.0, 1.0
        for k in range(j, degree + 1, 2):
            total += factor * out[k]
            factor *= change * numbers[ROOT + k + 1] * numbers[ROOT + k + 2] / (k - j + 2)
        out[j] = total
    power = 1.0
    for j in range(degree + 1):
        total, factor = 0.0, power
        for k in range(j, degree + 1):
            total += factor * out[k]
            factor *= b * numbers[ROOT + k + 1] / (k - j + 1)
        out[j] = total
        power *= scale


@kernel
def write_functions(link: int, q: float, b: float, scale: float, count: int, numbers: Vector, out: Vector) -> None:
    """Write E_j of a link for j < count."""
    head = int(numbers[1]) + HEADER * link
    family = int(numbers[head])
    if family <= 2:
        if HAS_RELU and family == 0:
            relu_list(q, b, scale, count, numbers, out)
        elif HAS_SIGNS:
            sign_list(q + family - 1.0, b, scale, count, numbers, out)
        for j in range(count):
            out[j] *= numbers[head + 3]
        out[0] += numbers[head + 4] * b + numbers[head + 5]
        out[1] += numbers[head + 4] * scale
    elif HAS_POLYNOMIALS and family == 3:
        polynomial_list(q, b, scale, count, int(numbers[head + 1]), int(numbers[head + 2]), numbers, out)
    elif HAS_TABLES:
        series_list(q, b, scale, count, int(numbers[head + 1]), numbers, out)


@counting_kernel
def write_derivatives(q: float, b: float, count: int, numbers: Vector, out: Vector) -> None:
    """D_j(q, b) of the student's link for j < count."""
    head = int(numbers[1])
    size = max(count, 3)
    if int(numbers[head]) > 2:
        size = max(size, int(numbers[head + 2]) + 1)
    found = np.empty(size)
    write_functions(0, q, b, 1.0, size, numbers, found)
    factor = 1.0
    for j in range(count):
        out[j] = factor * found[j]
        factor *= numbers[ROOT + j + 1]


@kernel
def write_slope_lists(inverse: float, numbers: Vector, row: Vector) -> None:
    """Write the lists of σ' and σ'', where `inverse` is 1/λ."""
    count = int(numbers[0])
    first = LIST + count + 4
    for j in range(count):
        row[first + j] = numbers[ROOT + j + 1] * row[LIST + j + 1] * inverse
    for j in range(count):
        row[first + count + j] = numbers[ROOT + j + 1] * numbers[ROOT + j + 2] * row[LIST + j + 2] * inverse * inverse


@kernel
def write_list_row(link: int, q: float, b: float, numbers: Vector, row: Vector) -> None:
    """Write the lists of one unit."""
    scale = math.sqrt(q) if numbers[2] > 0.0 else 1.0
    row[LIST - 1] = 1.0 / scale
    write_functions(link, q, b, scale, int(numbers[0]) + 4, numbers, row[LIST:])
    write_slope_lists(1.0 / scale, numbers, row)


@kernel
def term_count(x: float, count: int, is_series: float) -> int:
    """Return how many terms count: of a series in s = x those before s^j is below rounding."""
    if is_series == 0.0 or abs(x) >= 1.0:
        return count
    return min(count, 2 + int(-NEGLIGIBLE / math.log(abs(x)))) if x != 0.0 else 1


@kernel
def list_pair(c: float, a: Vector, b: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    x, count = c * a[LIST - 1] * b[LIST - 1], int(numbers[0])
    first, second = LIST + count + 4, LIST + 2 * count + 4
    value = slope = both = bend = 0.0
    for j in range(term_count(x, count, numbers[2]) - 1, -1, -1):
        value = a[LIST + j] * b[LIST + j] + x * value
        slope = a[first + j] * b[LIST + j] + x * slope
        both = a[first + j] * b[first + j] + x * both
        bend = a[second + j] * b[LIST + j] + x * bend
    return value, slope, both, bend


@kernel
def list_moments(c: float, a: Vector, b: Vector, numbers: Vector, out: Matrix) -> None:
    """out[p, q] = E σ_a^(p) σ_b^(q) for p + q <= 4."""
    count, x = int(numbers[0]), c * a[LIST - 1] * b[LIST - 1]
    for p in range(5):
        for q in range(5 - p):
            total = 0.0
            for j in range(count - 1, -1, -1):
                left, right = a[LIST + j + p], b[LIST + j + q]
                for k in range(p):
                    left *= numbers[ROOT + j + k + 1] * a[LIST - 1]
                for k in range(q):
                    right *= numbers[ROOT + j + k + 1] * b[LIST - 1]
                total = left * right + x * total
            out[p, q] = total
