"""Means E f_a^(p) g_b^(q) of two correlated Gaussians by quadrature over the first, given the second's mean."""

import math

import mpmath as mp
import numpy as np
from scipy.special import erf, erfc, eval_hermitenorm

DIGITS = 30
NODES, WEIGHTS = np.polynomial.legendre.leggauss(30)
STEPS = (-8.5, -6, -4, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 4, 6, 8.5)


def density(x):
    return np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def joint_normal(h, k, r):
    """P(x < h, y < k) of standard normals of correlation r, in mpmath."""
    h, k, r = (mp.mpf(v) for v in (h, k, r))
    width = mp.sqrt((1 - r) * (1 + r))
    edges = [k / r + n * width / abs(r) for n in (-12, -6, -3, -1, 0, 1, 3, 6, 12)]
    ends = [mp.mpf(-14), *sorted(x for x in edges if -14 < x < h), h]
    return mp.quad(lambda x: mp.npdf(x) * mp.ncdf((k - r * x) / width), ends)


def smoothed(link, j, q, b):
    """E link^(j)(√q z + b), q >= 0, in the sense of distributions."""
    b = np.asarray(b, dtype=float)
    if isinstance(link, list):
        derivative = np.polynomial.Polynomial(link).deriv(j) if j else np.polynomial.Polynomial(link)
        total, factor = np.zeros_like(b), 1.0
        for n in range(len(link)):
            total = total + factor * derivative.deriv(2 * n)(b) if n else total + derivative(b)
            factor *= 0.5 * q / (n + 1)
        return total
    T = q + 1.0 if link == "erf" else q
    order = j - (2 if link == "relu" else 1)
    if T == 0.0:
        return np.sign(b) if link == "sign" else (np.maximum(b, 0.0), 0.5 * (1.0 + np.sign(b)))[j]
    h = b / math.sqrt(T)
    if order < 0:
        if link != "relu":
            return erf(h / math.sqrt(2.0))
        above = 0.5 * erfc(-h / math.sqrt(2.0))
        return above if j == 1 else b * above + math.sqrt(T) * density(h)
    return (
        (1.0 if link == "relu" else 2.0)
        * density(h)
        * (-1) ** order
        * eval_hermitenorm(order, h)
        / math.sqrt(T) ** (order + 1)
    )


def pair_mean(first, p, second, q, c, q_a, b_a, q_b, b_b):
    """E first^(p)(x + b_a) second^(q)(y + b_b) with variances q_a, q_b and covariance c; deltas in x by hand."""
    with mp.workdps(DIGITS):
        rest = float(max(mp.mpf(q_b) - mp.mpf(c) ** 2 / mp.mpf(q_a), 0))
        mean = float(mp.mpf(b_b) - mp.mpf(c) / mp.mpf(q_a) * mp.mpf(b_a))
    slope, length = c / q_a, math.sqrt(q_a)
    order = p - {"relu": 2, "sign": 1}.get(first, 99) if isinstance(first, str) else -1
    if order >= 0:
        # (-1)^n d^n/dx^n of the density times the second's mean, at the threshold x = -b_a.
        terms = [
            math.comb(order, n)
            * slope**n
            * smoothed(second, q + n, rest, mean)
            * (-1) ** (order - n)
            * eval_hermitenorm(order - n, -b_a / length)
            / length ** (order - n)
            for n in range(order + 1)
        ]
        return (1.0 if first == "relu" else 2.0) * (-1) ** order * float(sum(terms) * density(b_a / length) / length)
    if rest == 0.0 and second == "sign" and q == 1:
        x = -b_b / slope
        return float(2.0 / abs(slope) * smoothed(first, p, 0.0, x + b_a) * density(x / length) / length)
    ends = _ends(first, second, c, q_a, b_a, b_b, rest)
    half = 0.5 * np.diff(ends)[:, None]
    x = 0.5 * (ends[1:] + ends[:-1])[:, None] + half * NODES
    # Of links with a kink or a jump the panels are on one side of it.
    left = smoothed(first, p, 0.0, x + b_a)
    return float(
        np.sum(half * WEIGHTS * left * smoothed(second, q, rest, b_b + slope * x) * density(x / length) / length)
    )


def _ends(first, second, c, q_a, b_a, b_b, rest):
    """Ends of panels: at fixed parts of a standard deviation, and where either link bends, at its own width."""
    length = math.sqrt(q_a)
    places = [k * length for k in (*STEPS, -12, 12)]
    if isinstance(first, str):
        places += [-b_a + k * (1.0 if first == "erf" else 0.0) for k in STEPS]
    if isinstance(second, str) and c != 0.0:
        width = math.sqrt(rest + (1.0 if second == "erf" else 0.0)) * q_a / abs(c)
        places += [-b_b * q_a / c + k * width for k in STEPS]
    reach = 12.0 * length
    return np.unique([min(max(x, -reach), reach) for x in places])
