"""Gauss–Hermite rules for means over normal numbers, exact for polynomials of degree below twice their points."""

from functools import cache

import numpy as np


@cache
def gauss_rule(points):
    """Nodes and weights (points,) of E over N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    return nodes, weights / weights.sum()


@cache
def gauss_grid(points, axes):
    """Nodes (points^axes, axes) and weights (points^axes,) of E over N(0, I)."""
    nodes, weights = gauss_rule(points)
    x = np.stack(np.meshgrid(*[nodes] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
    return x, np.prod(np.stack(np.meshgrid(*[weights] * axes, indexing="ij"), axis=-1).reshape(-1, axes), axis=1)
