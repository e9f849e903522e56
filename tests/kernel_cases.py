"""Teachers and kernels by formulas that tests of kernels share; nothing here uses the spectrum."""

import math

import numpy as np
from numpy.polynomial import hermite_e, polynomial
from scipy import special

import hermite


def legendre_link(k, d):
    """Return √N_k P_k(z/√d), of unit mean square on |x| = √d, as a link."""
    P = [np.array([1.0]), np.array([0.0, 1.0])]
    for ell in range(1, k):
        P.append(
            polynomial.polysub((2 * ell + d - 2) * polynomial.polymul([0, 1], P[ell]), ell * P[ell - 1]) / (ell + d - 2)
        )
    count = special.comb(k + d - 1, k, exact=True) - (special.comb(k + d - 3, k - 2, exact=True) if k > 1 else 0)
    he = hermite_e.poly2herme(P[k] * math.sqrt(count) * d ** (-np.arange(k + 1) / 2))
    return hermite.expand({j: float(c * math.sqrt(math.factorial(j))) for j, c in enumerate(he)})


def relu_tangent_kernel(s):
    """Return g(s) + s g'(s) of relu, the arc-cosine kernels."""
    s = np.clip(s, -1.0, 1.0)
    angle = np.pi - np.arccos(s)
    return (np.sqrt(1.0 - s**2) + 2.0 * s * angle) / (2.0 * np.pi)


def on_sphere(rng, n, d):
    """Return n points, uniform on |x| = √d."""
    x = rng.standard_normal((n, d))
    return x * (math.sqrt(d) / np.linalg.norm(x, axis=1))[:, None]
