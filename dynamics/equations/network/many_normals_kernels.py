"""Φ of many numbers and Φ_2 of many pairs at once.

Nothing here branches but where a pair is rare, so that a compiler does four or eight numbers in one instruction.
"""

import math

import numpy as np

from dynamics.equations.network.normal_kernels import SQRT_HALF, exponential, normal_density
from dynamics.equations.network.power_sum_kernels import largest_size, write_power_sums
from dynamics.equations.network.threshold_kernels import excess, root_determinant
from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import inlined_kernel, kernel

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
def write_mehler_factors(h: Vector, g: Matrix) -> None:
    """g_n(h_j) = φ(h_j) He_n(h_j)/√n!, row by row."""
    for j in range(len(h)):
        g[0, j] = normal_density(h[j])
        g[1, j] = h[j] * g[0, j]
    for n in range(2, MEHLER_TERMS):
        lower, higher = math.sqrt(n - 1.0), 1.0 / math.sqrt(n)
        for j in range(len(h)):
            g[n, j] = (h[j] * g[n - 1, j] - lower * g[n - 2, j]) * higher


@kernel
def write_excesses(T: Vector, inverse: Vector, h: Vector, C: Matrix, out: Matrix) -> None:
    """Write Φ_2(h_i, h_j; r) - Φ(h_i) Φ(h_j) of all pairs i ≠ j, r = C_ij/√(T_i T_j), by Mehler's series.

    Pairs beyond its reach are computed one by one.
    """
    m = len(h)
    g, own, r = np.empty((MEHLER_TERMS, m)), np.empty(MEHLER_TERMS), np.empty(m)
    write_mehler_factors(h, g)
    for i in range(m):
        gram, row, beyond = C[i], out[i], 0
        # Whole tiles, whose part above the diagonal is overwritten: the rest of a loop would be done one by one.
        stop = min(i + TILE - i % TILE, m)
        for j in range(stop):
            correlation = gram[j] * inverse[i] * inverse[j]
            reached = abs(correlation) <= MEHLER_REACH
            r[j] = correlation if reached else 0.0
            beyond += 0 if reached or j >= i else 1
        power, largest, terms = 1.0, largest_size(r, stop), 0
        while power > MEHLER_REST and terms < MEHLER_TERMS:
            own[terms] = g[terms, i] / (terms + 1.0)
            power, terms = power * largest, terms + 1
        write_power_sums(own, g, r, terms, stop, row)
        for j in range(stop):
            row[j] *= r[j]
        for j in range(i if beyond else 0):
            if abs(gram[j] * inverse[i] * inverse[j]) > MEHLER_REACH:
                root = root_determinant(gram[j], T[i], T[j])
                row[j] = excess(gram[j], root, inverse[i] * inverse[j], h[i], h[j])
    mirror(out)


@kernel
def mirror(A: Matrix) -> None:
    """Copy what is below the diagonal to above it, tile by tile."""
    m = len(A)
    for first in range(0, m, TILE):
        for second in range(0, first + 1, TILE):
            for i in range(first, min(first + TILE, m)):
                for j in range(second, min(second + TILE, i)):
                    A[j, i] = A[i, j]
