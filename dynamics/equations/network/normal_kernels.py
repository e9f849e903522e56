"""The normal distribution in one and two dimensions."""

import math

import numpy as np

from dynamics.equations.network.families import ERF, RELU
from dynamics.kernels.jit import exact_kernel, inlined_kernel, kernel
from dynamics.kernels.products import fused_multiply_add
from hermite.arrays import Matrix, Vector

SQRT_HALF = math.sqrt(0.5)
INVERSE_ROOT = 1.0 / math.sqrt(2.0 * math.pi)
TWO_PI = 2.0 * math.pi
#: 1.5 · 2^52: added to a number, its last bits are the nearest whole number.
ROUNDER = 1.5 * 2.0**52
LOG_2, INVERSE_LOG_2 = math.log(2.0), 1.0 / math.log(2.0)
#: Taylor's coefficients of the exponential from r^12 on down to 1, and of sin(x)/x in x² from x^20 on.
EXPONENTIAL = tuple(1.0 / math.factorial(n) for n in range(12, -1, -1))
SINE = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(10, -1, -1))
#: Nodes and weights of Gauss-Legendre rules on [-1, 1] with 12 and 20 points, one after the other.
NODES = np.concatenate([np.polynomial.legendre.leggauss(n)[0] for n in (12, 20)])
WEIGHTS = np.concatenate([np.polynomial.legendre.leggauss(n)[1] for n in (12, 20)])


@kernel
def normal_cdf(x: float) -> float:
    """Return Φ(x), the distribution function of N(0, 1)."""
    return 0.5 * math.erfc(-x * SQRT_HALF)


@kernel
def normal_density(x: float) -> float:
    """Return φ(x), the density of N(0, 1)."""
    return INVERSE_ROOT * math.exp(-0.5 * x * x)


@exact_kernel
def difference_of_products(a: float, b: float, c: float, d: float) -> float:
    """Return ab - cd to 1.5 units in the last place, also where the two cancel (Kahan; Jeannerod et al. 2013)."""
    product = c * d
    return float(fused_multiply_add(a, b, -product) + fused_multiply_add(-c, d, product))


@exact_kernel
def reduced(x: float) -> tuple[float, float]:
    """Return r and 2^n of e^x = 2^n e^r, |r| <= log(2)/2, for -700 <= x <= 0."""
    t = x * INVERSE_LOG_2 + ROUNDER
    return x - (t - ROUNDER) * LOG_2, float(np.int64((np.float64(t).view(np.int64) + 1023) << 52).view(np.float64))


@kernel
def exponential(x: float) -> float:
    """Return e^x for x <= 0, to 3e-16, in arithmetic that processors do on several numbers at once."""
    r, power = reduced(max(x, -700.0))
    total = 0.0
    for coefficient in EXPONENTIAL:
        total = total * r + coefficient
    return total * power


@kernel
def sine(x: float) -> float:
    """Return sin x for |x| <= 1.25, to 2e-16, in arithmetic that processors do on several numbers at once."""
    square, total = x * x, 0.0
    for coefficient in SINE:
        total = total * square + coefficient
    return x * total


@kernel
def joint_excess(h: float, k: float, r: float, lack: float) -> float:
    """Return Φ_2(h, k; r) - Φ(h) Φ(k), where `lack` is 1 - r² without cancellation.

    Genz 2004: Plackett's integral ∫ exp(-(h² + k² - 2hk sin θ)/2cos²θ) dθ/2π over 0 … arcsin r, by few nodes where they
    do, so that nothing cancels at small r; beyond 0.925 his expansion about r = ±1.
    """
    if h == 0.0 and k == 0.0:
        return math.atan2(r, math.sqrt(lack)) / TWO_PI
    if abs(r) > 0.925:
        return joint_tail(-h, -k, r, lack) - normal_cdf(h) * normal_cdf(k)
    first, last = (0, 12) if abs(r) < 0.75 else (12, 32)
    half, total = 0.5 * math.asin(r), 0.0
    product, squares = h * k, 0.5 * (h * h + k * k)
    for n in range(first, last):
        x = sine(half * (1.0 + NODES[n]))
        total += WEIGHTS[n] * exponential((x * product - squares) / (1.0 - x * x))
    return total * half / TWO_PI


@kernel
def joint_tail(h: float, k: float, r: float, lack: float) -> float:
    """Return P(x > h, y > k) of two standard normals of correlation |r| > 0.925 (Genz 2004)."""
    if r < 0.0:
        k = -k
    product = h * k
    total = 0.0
    if lack > 0.0:
        width = math.sqrt(lack)
        gap = (h - k) ** 2
        c, d = (4.0 - product) / 8.0, (12.0 - product) / 16.0
        exponent = -0.5 * (gap / lack + product)
        if exponent > -100.0:
            curve = 1.0 - c * (gap - lack) * (1.0 - d * gap / 5.0) / 3.0 + c * d * lack * lack / 5.0
            total = width * math.exp(exponent) * curve
        if product > -100.0:
            distance = math.sqrt(gap)
            tail = math.sqrt(TWO_PI) * normal_cdf(-distance / width)
            total -= math.exp(-0.5 * product) * tail * distance * (1.0 - c * gap * (1.0 - d * gap / 5.0) / 3.0)
        width *= 0.5
        for n in range(12, 32):
            x = (width * (1.0 + NODES[n])) ** 2
            root = math.sqrt(1.0 - x)
            exponent = -0.5 * (gap / x + product)
            if exponent > -100.0:
                near = math.exp(-0.5 * product * x / (1.0 + root) ** 2) / root
                total += width * WEIGHTS[n] * math.exp(exponent) * (near - (1.0 + c * x * (1.0 + d * x)))
        total = -total / TWO_PI
    if r > 0.0:
        return max(total + normal_cdf(-max(h, k)), 0.0)
    if h >= k:
        return max(-total, 0.0)
    between = normal_cdf(k) - normal_cdf(h) if h < 0.0 else normal_cdf(-h) - normal_cdf(-k)
    return max(between - total, 0.0)


# Means of relu(z), sign(z) and erf(z/√2) by pairs.
#
# erf(z/√2) is the mean of sign(z + ξ) over ξ ~ N(0, 1), so that it is sign at the variance T = q + 1; for the others
# T = q. With h = b_a/√T_a, k = b_b/√T_b, r = c/√(T_a T_b), Δ = T_a T_b - c², p_a = φ(h)/√T_a, n_b = b_b T_a - c b_a and
# u_b = n_b/√(T_a Δ),
#
# E 1_a 1_b = Φ_2(h, k; r),  E δ_a 1_b = p_a Φ(u_b),  E δ_a relu_b = p_a (n_b Φ(u_b) + √(T_a Δ) φ(u_b))/T_a,
#
# and the rest by Stein's lemma, E x_a f_a g_b = T_a E f'_a g_b + c E f_a g'_b. Where all biases are 0, `centred`, E
# 1_a 1_b = 1/4 + arcsin(r)/2π and all scores are 0, which is several times as fast. The angle is taken from √Δ, since
# arcsin loses digits at r = ±1.
#
# A row begins with q, b, T, 1/√T, h, p, E f and E f'. Sign stands for sign and erf, which differ in T. Functions read
# rows before they branch and hand on numbers: an array costs a reference.


@kernel
def write_threshold_row(family: int, q: float, b: float, row: Vector) -> None:
    """Write the numbers of one unit of relu, sign or erf that means of pairs need, to the first 8 places of its row.

    They are q, the variance of its input, the bias b, T (q + 1 of erf, else q), 1/√T, b/√T, the density p of N(b, T) at
    0, E f, and E f', which is P(input > 0) of relu and 2 p of sign and erf.
    """
    T = q + 1.0 if family == ERF else q
    row[0], row[1], row[2], row[3] = q, b, T, 1.0 / math.sqrt(T)
    row[4] = b * row[3]
    row[5] = normal_density(row[4]) * row[3]
    if family == RELU:
        row[7] = normal_cdf(row[4])
        row[6] = b * row[7] + q * row[5]
    else:
        row[6] = math.erf(row[4] * SQRT_HALF)
        row[7] = 2.0 * row[5]


@kernel
def root_determinant(c: float, T_a: float, T_b: float) -> float:
    """Return √Δ, Δ = T_a T_b − c²; 0 where rounding makes Δ negative."""
    return math.sqrt(max(difference_of_products(T_a, T_b, c, c), 0.0))


@kernel
def standard_score(n: float, inverse: float, root: float) -> float:
    """Return u = n/√(T Δ) from `inverse` 1/√T and `root` √Δ; at Δ = 0 it is ±∞ by the sign of n, and 0 at n = 0."""
    if root > 0.0:
        return n * inverse / root
    return 0.0 if n == 0.0 else math.copysign(math.inf, n)


@kernel
def excess(c: float, root: float, inverse: float, h: float, k: float) -> float:
    """Return Φ_2(h, k; r) − Φ(h) Φ(k), Φ_2 the distribution function of two standard normals of correlation r.

    r is `inverse` times the covariance c, with `inverse` 1/√(T_a T_b) and `root` √(T_a T_b − c²).
    """
    return joint_excess(h, k, min(max(c * inverse, -1.0), 1.0), (root * inverse) ** 2)


@kernel
def ramp(p: float, inverse: float, root: float, n: float, u: float) -> float:
    """Return E δ(x_a) relu(x_b) of two inputs x_a and x_b, δ being Dirac's.

    Arguments are the density p of x_a at 0, 1/√T_a, √Δ, n_b = b_b T_a − c b_a, and u_b = n_b/√(T_a Δ).
    """
    wide = root * normal_density(u) if root > 0.0 else 0.0
    return p * inverse * (n * inverse * normal_cdf(u) + wide)


@kernel
def central_pair(
    first: int, second: int, c: float, a: Vector, b: Vector
) -> tuple[float, float, float, float, float, float]:
    """Return the six means of two units of relu, sign or erf without biases, whose inputs have the covariance c.

    With their rows a and b, of `write_threshold_row`, these are E of σ_a σ_b, σ'_a σ_b, σ_a σ'_b, σ'_a σ'_b, σ''_a σ_b
    and σ_a σ''_b. `first` and `second` are the families of their links.
    """
    T_a, inverse_a, T_b, inverse_b = a[2], a[3], b[2], b[3]
    root = root_determinant(c, T_a, T_b)
    square_a, square_b, angle = inverse_a * inverse_a, inverse_b * inverse_b, math.atan2(c, root)
    if first == RELU and second == RELU:
        slopes, wide = 0.25 + angle / TWO_PI, root / TWO_PI
        slope_a = 0.5 * INVERSE_ROOT * (c * inverse_a + T_b * inverse_b)
        slope_b = 0.5 * INVERSE_ROOT * (c * inverse_b + T_a * inverse_a)
        return wide + c * slopes, slope_a, slope_b, slopes, wide * square_a, wide * square_b
    if first == RELU:
        slopes = INVERSE_ROOT * inverse_b
        return c * slopes, angle / math.pi, root * square_b / math.pi, slopes, 0.0, -c * slopes * square_b
    if second == RELU:
        slopes = INVERSE_ROOT * inverse_a
        return c * slopes, root * square_a / math.pi, angle / math.pi, slopes, -c * slopes * square_a, 0.0
    slopes = 2.0 / (math.pi * root)
    return 2.0 / math.pi * angle, 0.0, 0.0, slopes, -c * slopes * square_a, -c * slopes * square_b


@kernel
def ordered_pair(
    first: int, second: int, c: float, a: Vector, b: Vector
) -> tuple[float, float, float, float, float, float]:
    """Return the six means that `central_pair` returns, of two relus, a relu and a sign, or two signs, with biases.

    An erf counts as a sign of the variance T that its row has.
    """
    b_a, T_a, inverse_a, h_a, p_a, mean_a, above_a = a[1], a[2], a[3], a[4], a[5], a[6], a[7]
    b_b, T_b, inverse_b, h_b, p_b, mean_b, above_b = b[1], b[2], b[3], b[4], b[5], b[6], b[7]
    root = root_determinant(c, T_a, T_b)
    n_a, n_b = difference_of_products(b_a, T_b, c, b_b), difference_of_products(b_b, T_a, c, b_a)
    u_a, u_b = standard_score(n_a, inverse_b, root), standard_score(n_b, inverse_a, root)
    joint = excess(c, root, inverse_a * inverse_b, h_a, h_b)
    if second == RELU:
        slopes = above_a * above_b + joint
        from_a, from_b = p_a * normal_cdf(u_b), p_b * normal_cdf(u_a)
        slope_a, slope_b = b_b * slopes + c * from_a + T_b * from_b, b_a * slopes + c * from_b + T_a * from_a
        bend_a, bend_b = ramp(p_a, inverse_a, root, n_b, u_b), ramp(p_b, inverse_b, root, n_a, u_a)
        return b_a * slope_a + T_a * bend_a + c * slopes, slope_a, slope_b, slopes, bend_a, bend_b
    if first == RELU:
        slope_a, slope_b = above_a * mean_b + 2.0 * joint, 2.0 * ramp(p_b, inverse_b, root, n_a, u_a)
        slopes = 2.0 * p_b * normal_cdf(u_a)
        bend_a, bend_b = p_a * math.erf(u_b * SQRT_HALF), -(b_b * slope_b + c * slopes) / T_b
        return b_a * slope_a + T_a * bend_a + c * slopes, slope_a, slope_b, slopes, bend_a, bend_b
    slope_a, slope_b = 2.0 * p_a * math.erf(u_b * SQRT_HALF), 2.0 * p_b * math.erf(u_a * SQRT_HALF)
    slopes = 4.0 * p_a * normal_density(u_b) / (inverse_a * root)
    bend_a, bend_b = -(b_a * slope_a + c * slopes) / T_a, -(b_b * slope_b + c * slopes) / T_b
    return mean_a * mean_b + 4.0 * joint, slope_a, slope_b, slopes, bend_a, bend_b


@kernel
def threshold_pair(
    first: int, second: int, centred: bool, c: float, a: Vector, b: Vector
) -> tuple[float, float, float, float, float, float]:
    """Return the six means that `central_pair` returns, of any two families; `centred` means without biases."""
    if centred:
        return central_pair(first, second, c, a, b)
    if first == RELU or second != RELU:
        return ordered_pair(first, second, c, a, b)
    value, slope_b, slope_a, slopes, bend_b, bend_a = ordered_pair(second, first, c, b, a)
    return value, slope_a, slope_b, slopes, bend_a, bend_b


@kernel
def write_threshold_derivatives(family: int, row: Vector, out: Vector) -> None:
    """Write E f^(j) of relu, sign or erf, for all j below the size of `out`, at least 3, from the row of a unit."""
    out[0], out[1], first = row[6], row[7], 1
    if family == RELU:
        out[2], first = row[5], 2
    for j in range(first, out.size - 1):
        out[j + 1] = -(row[1] * out[j] + (j - first) * out[j - 1]) / row[2]


# Sums of powers for many numbers at once.


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
    """Write Σ_k left_k right_kj x_j^k, summed over k < terms, to out_j for j < count, by Horner's rule."""
    remainder = terms % 4
    for j in range(count):
        out[j] = 0.0
    for n in range(remainder):
        a, row = left[terms - 1 - n], right[terms - 1 - n]
        for j in range(count):
            out[j] = out[j] * x[j] + a * row[j]
    for k in range(terms - remainder - 4, -1, -4):
        a, b, c, d = left[k], left[k + 1], left[k + 2], left[k + 3]
        for j in range(count):
            inner = (out[j] * x[j] + d * right[k + 3, j]) * x[j] + c * right[k + 2, j]
            out[j] = (inner * x[j] + b * right[k + 1, j]) * x[j] + a * right[k, j]


# Φ of many numbers and Φ_2 of many pairs at once.
#
# Nothing here branches but where a pair is rare, so that a compiler does four or eight numbers in one instruction.

#: Of R in (1 + 2x) exp(x²) erfc(x) = 1 + s R(s - 1), s = 2x/(x + 3.75): Chebyshev's expansion in s - 1 (Shepherd and
#: Laframboise 1981), cut where it is exact to 3e-16; highest power first, odd and even powers by turns.
TAIL = (
    -2.623107347133476e-09,
    6.679714602349141e-10,
    3.131129525643313e-08,
    -1.2520472032732647e-08,
    -2.3605079044743478e-07,
    1.8520613666056176e-07,
    1.5567760219619199e-06,
    -2.536038592692272e-06,
    -8.902009440654622e-06,
    3.128957515556644e-05,
    2.0356954586207724e-05,
    -0.0003105123070469843,
    0.0006042266850919423,
    0.0011513994801051228,
    -0.010897979163370385,
    0.03926025653548152,
    -0.09795365511213086,
    0.1902579762764121,
    -0.2990619064188567,
    0.3813386449088518,
    -0.37775322942337275,
    0.2375126308378275,
)
#: Rows and columns of a tile.
TILE = 16
#: Largest |r| of Mehler's series for Φ_2, the terms that it needs there, and what |r|^n of the first term left out may
#: be: with |g_n| < 0.44 (Cramér) all that is left out is less than 0.19 |r|^(n+1)/((n + 1)(1 - |r|)), below rounding.
MEHLER_REACH, MEHLER_TERMS, MEHLER_REST = 0.45, 44, 1e-14


@inlined_kernel
def bell_and_odd(u: float) -> tuple[float, float]:
    """Return exp(-u²/2) and 2 Φ(u) - 1, each to 3e-16 of 1; exactly 1 and 0 at u = 0."""
    size = min(abs(u), 38.0)
    x = size * SQRT_HALF
    near, far = x + 3.75, 1.0 + 2.0 * x
    inverse = 1.0 / (near * far)
    s = 2.0 * x * far * inverse
    square = (s - 1.0) * (s - 1.0)
    odd = even = 0.0
    for n in range(0, len(TAIL), 2):
        odd, even = odd * square + TAIL[n], even * square + TAIL[n + 1]
    total = odd * (s - 1.0) + even
    bell = exponential(-0.5 * size * size)
    return bell, math.copysign(1.0 - bell * (1.0 + s * total) * (near * inverse), u)


@kernel
def write_excesses(T: Vector, inverse: Vector, h: Vector, C: Matrix, out: Matrix) -> None:
    """Write Φ_2(h_i, h_j; r) - Φ(h_i) Φ(h_j) of all pairs, by Mehler's series in r or, beyond its reach, one by one."""
    m = len(h)
    g, factors, r = np.empty((MEHLER_TERMS, m)), np.empty(MEHLER_TERMS), np.empty(m)
    for j in range(m):
        g[0, j] = normal_density(h[j])
        g[1, j] = h[j] * g[0, j]
    for n in range(2, MEHLER_TERMS):
        lower, higher = math.sqrt(n - 1.0), 1.0 / math.sqrt(n)
        for j in range(m):
            g[n, j] = (h[j] * g[n - 1, j] - lower * g[n - 2, j]) * higher
    for i in range(m):
        gram, row, beyond = C[i], out[i], 0
        # Whole tiles, so that no rest of a loop is done one by one; the part above the diagonal is overwritten.
        stop = min(i + TILE - i % TILE, m)
        for j in range(stop):
            correlation = gram[j] * inverse[i] * inverse[j]
            reached = abs(correlation) <= MEHLER_REACH
            r[j] = correlation if reached else 0.0
            beyond += 0 if reached or j >= i else 1
        power, largest, terms = 1.0, largest_size(r, stop), 0
        while power > MEHLER_REST and terms < MEHLER_TERMS:
            factors[terms] = g[terms, i] / (terms + 1.0)
            power, terms = power * largest, terms + 1
        write_power_sums(factors, g, r, terms, stop, row)
        for j in range(stop):
            row[j] *= r[j]
        for j in range(i if beyond else 0):
            if abs(gram[j] * inverse[i] * inverse[j]) > MEHLER_REACH:
                root = root_determinant(gram[j], T[i], T[j])
                row[j] = excess(gram[j], root, inverse[i] * inverse[j], h[i], h[j])
    mirror(out)


@kernel
def mirror(A: Matrix) -> None:
    """Copy the part below the diagonal to above it, tile by tile."""
    m = len(A)
    for first in range(0, m, TILE):
        for second in range(0, first + 1, TILE):
            for i in range(first, min(first + TILE, m)):
                for j in range(second, min(second + TILE, i)):
                    A[j, i] = A[i, j]
