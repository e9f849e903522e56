r"""E σ_a σ_b and E σ'_a σ'_b of two units of variance 1, by quadrature: the teacher's own square, once per problem.

With x = λ_a and λ_b = c x + √(1 − c²) y both integrals are over pieces that begin and end where a link may have a kink,
at 0: y at −(β_b + c x)/√(1 − c²), x at −β_a, and at −β_b/c, around which pieces grow from the width √(1 − c²)/|c| of
what the inner integral leaves of the kink.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Reach of the integrals, beyond which the density is 1e-37, nodes per piece, and width of the widest piece.
REACH, NODES, WIDEST = 13.0, 16, 1.2
#: Pieces of the inner integral on each side of the kink.
SIDES = 8


@cache
def mean_of_product(
    first: HermiteExpansion, bias: float, second: HermiteExpansion, other_bias: float, overlap: float
) -> tuple[float, float]:
    """Return E σ_a(λ_a + β_a) σ_b(λ_b + β_b) and the same of the slopes, for standard normals of a covariance.

    Accurate to 1e-13 of the links' scale; slopes are those almost everywhere, without a delta at a jump.
    """
    if abs(overlap) > 1.0 - 1e-15:
        x, density = _nodes(np.array([-bias, -other_bias * np.sign(overlap)]), WIDEST)
        values = second.value(np.sign(overlap) * x + other_bias), second.derivative(np.sign(overlap) * x + other_bias)
    elif overlap == 0.0:
        x, density = _nodes(np.array([-bias]), WIDEST)
        y, other = _nodes(np.array([-other_bias]), WIDEST)
        values = other @ second.value(y + other_bias), other @ second.derivative(y + other_bias)
    else:
        rest = np.sqrt((1.0 - overlap) * (1.0 + overlap))
        x, density = _nodes(np.array([-bias, -other_bias / overlap]), min(WIDEST, rest / abs(overlap)))
        kink = np.clip(-(other_bias + overlap * x) / rest, -REACH, REACH)[:, None]
        low, high = np.linspace(0.0, 1.0, SIDES + 1), np.linspace(0.0, 1.0, SIDES + 1)
        edges = np.hstack([kink + (-REACH - kink) * low[::-1], (kink + (REACH - kink) * high)[:, 1:]])
        y, other = _rule(edges)
        inner = overlap * x[:, None] + rest * y + other_bias
        values = np.sum(other * second.value(inner), axis=1), np.sum(other * second.derivative(inner), axis=1)
    return (
        float(np.sum(density * first.value(x + bias) * values[0])),
        float(np.sum(density * first.derivative(x + bias) * values[1])),
    )


def _nodes(kinks: Array, narrow: float) -> tuple[Array, Array]:
    """Return nodes and weights of E over a standard normal, in pieces that grow from `narrow` with their distance."""
    steps = narrow * 2.0 ** np.arange(int(np.log2(WIDEST / narrow)) + 1)
    even = np.arange(-REACH, REACH, WIDEST)
    edges = np.concatenate([even, [REACH], *(kinks + sign * step for step in (0.0, *steps) for sign in (-1, 1))])
    x, density = _rule(np.unique(np.clip(edges, -REACH, REACH))[None, :])
    return x[0], density[0]


def _rule(edges: Array) -> tuple[Array, Array]:
    """Return the nodes of Gauss–Legendre between rows of edges, and weights with the normal density."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = 0.5 * np.diff(edges)[..., None]
    x = (edges[:, :-1, None] + half * (1.0 + nodes)).reshape(len(edges), -1)
    density = (half * weights).reshape(len(edges), -1) * np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    return x, density
