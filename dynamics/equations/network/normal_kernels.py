"""The normal distribution in one and two dimensions."""

import math

import numpy as np

from dynamics.kernels.fused import fused_multiply_add
from dynamics.kernels.jit import exact_kernel, kernel

SQRT_HALF = math.sqrt(0.5)
INVERSE_ROOT = 1.0 / math.sqrt(2.0 * math.pi)
TWO_PI = 2.0 * math.pi
#: 1.5 · 2^52: the last bits of a number beside it are its nearest whole number.
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
    """Φ(x)."""
    return 0.5 * math.erfc(-x * SQRT_HALF)


@kernel
def normal_density(x: float) -> float:
    """φ(x)."""
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
    """e^x for x <= 0 to 3e-16 of 1, in arithmetic that is done on several numbers at once."""
    r, power = reduced(max(x, -700.0))
    total = 0.0
    for coefficient in EXPONENTIAL:
        total = total * r + coefficient
    return total * power


@kernel
def sine(x: float) -> float:
    """Return sin x for |x| <= 1.25 to 2e-16, likewise."""
    square, total = x * x, 0.0
    for coefficient in SINE:
        total = total * square + coefficient
    return x * total


@kernel
def plackett(r: float, h: float, k: float) -> float:
    """Return ∫ exp(-(h² + k² - 2hk sin θ)/2cos²θ) dθ/2π over 0 … arcsin r, by few nodes where they do."""
    first, last = (0, 12) if abs(r) < 0.75 else (12, 32)
    half = 0.5 * math.asin(r)
    product, squares = h * k, 0.5 * (h * h + k * k)
    total = 0.0
    for n in range(first, last):
        x = sine(half * (1.0 + NODES[n]))
        total += WEIGHTS[n] * exponential((x * product - squares) / (1.0 - x * x))
    return total * half / TWO_PI


@kernel
def joint_excess(h: float, k: float, r: float, lack: float) -> float:
    """Return Φ_2(h, k; r) - Φ(h) Φ(k), where `lack` is 1 - r² without cancellation.

    Genz 2004: Gauss-Legendre in the angle of Plackett's integral, so that nothing cancels at small r; beyond 0.925 his
    expansion about r = ±1.
    """
    if h == 0.0 and k == 0.0:
        return math.atan2(r, math.sqrt(lack)) / (2.0 * math.pi)
    if abs(r) > 0.925:
        return joint_tail(-h, -k, r, lack) - normal_cdf(h) * normal_cdf(k)
    return plackett(r, h, k)


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
