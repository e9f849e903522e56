"""Reading the tables of `dynamics.equations.network.series`.

A table begins with: whether biases are trained, the numbers of biases or their panels, of panels of ρ, of nodes in b
and in ρ, and of columns; then biases, edges in ρ, Chebyshev coefficients.
"""

import math

import numpy as np

from dynamics.equations.network.families import ERF, POLYNOMIAL, RELU
from dynamics.equations.network.normal_kernels import SQRT_HALF, normal_cdf, normal_density, slopes_from_moments
from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import inlined_kernel, kernel
from dynamics.kernels.views import vector


@kernel
def panel_of(x: float, start: int, panels: int, numbers: Vector) -> int:
    """Return the panel between `panels` + 1 edges in which x lies, -1 if in none."""
    if not (numbers[start] <= x <= numbers[start + panels]):
        return -1
    panel = 0
    while x > numbers[start + panel + 1]:
        panel += 1
    return panel


@kernel
def place_of(x: float, start: int, count: int, numbers: Vector) -> int:
    """Return the place of a value in a list, up to rounding; -1 if it is not there."""
    for place in range(count):
        if abs(numbers[start + place] - x) <= 1e-12:
            return place
    return -1


@kernel
def inner_place(x: float, edge: int, numbers: Vector) -> float:
    """Return where x lies in a panel, from -1 to 1."""
    low, high = numbers[edge], numbers[edge + 1]
    return float((2.0 * x - low - high) / (high - low))


@kernel
def read_table(q: float, b: float, start: int, first: int, numbers: Vector, out: Vector) -> None:
    """Write columns of the table at `start`, from `first` - `start` on, at ρ = √q and b.

    They are not-a-number where the table does not reach.
    """
    count = out.size
    trained = numbers[start] > 0.0
    biases, panels = int(numbers[start + 1]), int(numbers[start + 2])
    nodes_b, nodes_q, columns = int(numbers[start + 3]), int(numbers[start + 4]), int(numbers[start + 5])
    edges_b = start + 6
    edges_q = edges_b + biases + (1 if trained else 0)
    length = math.sqrt(q)
    panel = panel_of(length, edges_q, panels, numbers)
    block = panel_of(b, edges_b, biases, numbers) if trained else place_of(b, edges_b, biases, numbers)
    for j in range(count):
        out[j] = 0.0 if panel >= 0 and block >= 0 else math.nan
    if panel < 0 or block < 0:
        return
    x = inner_place(length, edges_q + panel, numbers)
    y = inner_place(b, edges_b + block, numbers) if trained else 0.0
    place = edges_q + panels + 1 + (block * panels + panel) * nodes_b * nodes_q * columns + first - start
    along_b, next_b = 1.0, y
    for _ in range(nodes_b):
        along_q, next_q = along_b, along_b * x
        for _ in range(nodes_q):
            for j in range(count):
                out[j] += along_q * numbers[place + j]
            place += columns
            along_q, next_q = next_q, 2.0 * x * next_q - along_q
        along_b, next_b = next_b, 2.0 * y * next_b - along_b


# Gaussian means as sums over E_j = λ^j D_j/√j!, D_j = E σ^(j)(√q z + b).
#
# K = Σ_j E_j(a) E_j(b) x^j with λ = 1 and x = c, or with λ = √q and x = c/√(q_a q_b) where a series needs it; a
# derivative moves the index, σ' has √(j+1) E_(j+1)/λ. A row holds after its head, whose last number is 1/λ, E_j for j
# < N + 4, then N numbers each of the lists of σ' and σ''. `numbers` = [N, place of the links' heads, whether λ = √q,
# whether a link has a line, whether all biases are 0, the student's family, √0, √1, …, heads of the links, numbers of
# the links]. Kernels take a link by the place of its `head`; the first is the student's.


#: Places in `numbers`, the last that of the table of square roots.
TERMS, HEADS, SERIES, LINED, CENTRED, STUDENT, ROOT = range(7)
#: Numbers at the head of each link: family, start of its own numbers, degree, and of a link κ f + βz + γ those three.
HEADER = 6
#: Where a row's list begins.
LIST = 9
#: -ln of the powers of s that are left out.
NEGLIGIBLE = 42.0


@kernel
def threshold_list(family: int, q: float, b: float, scale: float, numbers: Vector, out: Vector) -> None:
    """Write E_j of relu, sign and erf.

    D_2 of relu is the density of x at -b, D_1 of sign and of erf, which is sign at the variance T = q + 1, twice that.
    Beyond such a j = first, D_(j+1) = -(b D_j + (j - first) D_(j-1))/T.
    """
    T = q + 1.0 if family == ERF else q
    h = b / math.sqrt(T)
    density = normal_density(h) / math.sqrt(T)
    if family == RELU:
        first, above = 2, normal_cdf(h)
        out[0], out[1], out[2] = b * above + T * density, above * scale, density * scale * scale * SQRT_HALF
    else:
        first = 1
        out[0], out[1] = math.erf(h * SQRT_HALF), 2.0 * density * scale
    for j in range(first, out.size - 1):
        before = (j - first) / numbers[ROOT + j] * scale * out[j - 1] if j > first else 0.0
        out[j + 1] = -scale / T * (b * out[j] + before) / numbers[ROOT + j + 1]


@kernel
def polynomial_list(q: float, b: float, scale: float, start: int, degree: int, numbers: Vector, out: Vector) -> None:
    """Write E_j of a polynomial: by the heat equation from q = 0 or 1, whichever is nearer, then by Taylor's to b.

    `numbers` hold E_j at q = 1, its Hermite coefficients, and then at q = 0; `out` has room for degree + 1 numbers.
    """
    first, change = (start + degree + 1, q) if q < 0.5 else (start, q - 1.0)
    for j in range(out.size):
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
def write_functions(head: int, q: float, b: float, scale: float, numbers: Vector, out: Vector) -> None:
    """Write E_j of a link for all j < size of `out`."""
    family = int(numbers[head])
    if family <= ERF:
        threshold_list(family, q, b, scale, numbers, out)
        for j in range(out.size):
            out[j] *= numbers[head + 3]
        out[0] += numbers[head + 4] * b + numbers[head + 5]
        out[1] += numbers[head + 4] * scale
    elif family == POLYNOMIAL:
        polynomial_list(q, b, scale, int(numbers[head + 1]), int(numbers[head + 2]), numbers, out)
    else:
        # The columns are E_0, E_1/ρ, E_2/ρ², E_3/ρ² … at λ = ρ.
        start = int(numbers[head + 1])
        read_table(q, b, start, start + 4, numbers, out)
        ratio, power = scale / math.sqrt(q), scale
        for j in range(1, out.size):
            out[j] *= power
            power *= scale if j == 1 else ratio


@kernel
def write_derivatives(q: float, b: float, numbers: Vector, out: Vector) -> None:
    """D_j(q, b) of the student's link for all j < size of `out`."""
    head = int(numbers[HEADS])
    size = max(out.size, 3)
    if int(numbers[head]) > ERF:
        size = max(size, int(numbers[head + 2]) + 1)
    found, scale = np.empty(size), 1.0
    write_functions(head, q, b, scale, numbers, found)
    for j in range(out.size):
        out[j] = scale * found[j]
        scale *= numbers[ROOT + j + 1]


@inlined_kernel
def write_list_row(head: int, q: float, b: float, numbers: Vector, row: Vector) -> None:
    """Write the lists of σ, σ' and σ'' of one unit, and 1/λ."""
    count, scale = int(numbers[TERMS]), math.sqrt(q) if numbers[SERIES] > 0.0 else 1.0
    first, inverse = LIST + count + 4, 1.0 / scale
    row[LIST - 1] = inverse
    write_functions(head, q, b, scale, numbers, vector(row, LIST, count + 4))
    for j in range(count):
        row[first + j] = numbers[ROOT + j + 1] * row[LIST + j + 1] * inverse
    for j in range(count):
        row[first + count + j] = numbers[ROOT + j + 1] * numbers[ROOT + j + 2] * row[LIST + j + 2] * inverse * inverse


@kernel
def term_count(x: float, count: int, is_series: float) -> int:
    """Return how many terms count: of a series in s = x those before s^j is below rounding."""
    if is_series == 0.0 or abs(x) >= 1.0:
        return count
    return min(count, 2 + int(-NEGLIGIBLE / math.log(abs(x)))) if x != 0.0 else 1


@kernel
def list_pair(c: float, a: Vector, b: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """K, K1, K12, K2."""
    x, count = c * a[LIST - 1] * b[LIST - 1], int(numbers[TERMS])
    first, second = LIST + count + 4, LIST + 2 * count + 4
    value = slope = both = bend = 0.0
    for j in range(term_count(x, count, numbers[SERIES]) - 1, -1, -1):
        value = a[LIST + j] * b[LIST + j] + x * value
        slope = a[first + j] * b[LIST + j] + x * slope
        both = a[first + j] * b[first + j] + x * both
        bend = a[second + j] * b[LIST + j] + x * bend
    return value, slope, both, bend


@kernel
def list_moments(c: float, a: Vector, b: Vector, numbers: Vector, out: Matrix) -> None:
    """out[p, q] = E σ_a^(p) σ_b^(q) for p + q <= 4."""
    count, x = int(numbers[TERMS]), c * a[LIST - 1] * b[LIST - 1]
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


# Mean derivatives of a polynomial at any variance and bias.


@kernel
def write_series_means(q: float, b: float, means: Vector, D: Vector) -> None:
    """D_j = Σ_k F_(j+k) G_k, G_k = H_k/k! of the Hermite polynomials H_k(b) for the weight of variance 1 − q."""
    D[:] = 0.0
    older, newer = 0.0, 1.0
    for k in range(means.size):
        for j in range(min(D.size, means.size - k)):
            D[j] += means[j + k] * newer
        older, newer = newer, (b * newer + (q - 1.0) * older) / (k + 1)


# Links κ f + βz + γ with f one of relu, sign and erf, as abs or a leaky relu.
#
# Means of products are bilinear: to κ_a κ_b times those of f, which the pairs' kernels give, come means with a line in
# one place or both, E f_a^(p) (β_b x_b + ℓ_b) = ℓ_b D_p(a) + c β_b D_(p+1)(a) with ℓ = βb + γ.


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
