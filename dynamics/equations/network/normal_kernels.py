"""The normal distribution in one and two dimensions; executed before the kernels that use it."""

import math

import numpy as np

from dynamics.compiler.compilation import exact_kernel, kernel

SQRT_HALF = math.sqrt(0.5)
INVERSE_ROOT = 1.0 / math.sqrt(2.0 * math.pi)
SPLITTER = 134217729.0
#: Positive nodes and weights of Gauss-Legendre rules on [-1, 1] with 6, 12 and 20 points, one after the other.
NODES = np.concatenate([np.polynomial.legendre.leggauss(n)[0][n // 2 :] for n in (6, 12, 20)])
WEIGHTS = np.concatenate([np.polynomial.legendre.leggauss(n)[1][n // 2 :] for n in (6, 12, 20)])


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
    """Return ab - cd to a few units in the last place, also where the two cancel (Dekker 1971)."""
    p, q = a * b, c * d
    t = SPLITTER * a
    a_high = t - (t - a)
    t = SPLITTER * b
    b_high = t - (t - b)
    t = SPLITTER * c
    c_high = t - (t - c)
    t = SPLITTER * d
    d_high = t - (t - d)
    a_low, b_low, c_low, d_low = a - a_high, b - b_high, c - c_high, d - d_high
    p_low = ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low
    q_low = ((c_high * d_high - q) + c_high * d_low + c_low * d_high) + c_low * d_low
    return (p - q) + (p_low - q_low)


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
    half = 0.5 * math.asin(r)
    first, last = 9, 19
    if abs(r) < 0.3:
        first, last = 0, 3
    elif abs(r) < 0.75:
        first, last = 3, 9
    product, squares = h * k, 0.5 * (h * h + k * k)
    total = 0.0
    for n in range(first, last):
        low, high = math.sin(half * (1.0 - NODES[n])), math.sin(half * (1.0 + NODES[n]))
        total += WEIGHTS[n] * (
            math.exp((low * product - squares) / (1.0 - low * low))
            + math.exp((high * product - squares) / (1.0 - high * high))
        )
    return total * half / (2.0 * math.pi)


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
            tail = math.sqrt(2.0 * math.pi) * normal_cdf(-distance / width)
            total -= math.exp(-0.5 * product) * tail * distance * (1.0 - c * gap * (1.0 - d * gap / 5.0) / 3.0)
        width *= 0.5
        for n in range(9, 19):
            for sign in (-1.0, 1.0):
                x = (width * (1.0 + sign * NODES[n])) ** 2
                root = math.sqrt(1.0 - x)
                exponent = -0.5 * (gap / x + product)
                if exponent > -100.0:
                    near = math.exp(-0.5 * product * x / (1.0 + root) ** 2) / root
                    total += width * WEIGHTS[n] * math.exp(exponent) * (near - (1.0 + c * x * (1.0 + d * x)))
        total = -total / (2.0 * math.pi)
    if r > 0.0:
        return max(total + normal_cdf(-max(h, k)), 0.0)
    if h >= k:
        return max(-total, 0.0)
    between = normal_cdf(k) - normal_cdf(h) if h < 0.0 else normal_cdf(-h) - normal_cdf(-k)
    return max(between - total, 0.0)
