"""Gauss–Hermite rules for means over normal numbers, exact for polynomials of degree below twice their points."""

import math
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


def grid_of(grids):
    """Nodes (n, d) and weights (n,) of a grid in R^d, from those of its d axes."""
    x = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes for nodes, _ in grids], indexing="ij")], axis=1)
    measure = grids[0][1]
    for _, weights in grids[1:]:
        measure = np.multiply.outer(measure, weights)
    return x, measure.ravel()


def smooth():
    """Nodes and weights of N(0, 1): trapezoidal, for entire functions of rates up to 1."""
    nodes = np.linspace(-9.5, 9.5, 77)
    return nodes, np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi) * (nodes[1] - nodes[0])


def exact_to(degree):
    return gauss_rule(degree // 2 + 1)


def broken(*places, nodes=60):
    """Gauss-Legendre between the places where a function of one coordinate has its kinks."""
    edges = np.array([-9.5, *sorted(places), 9.5])
    nodes, weights = np.polynomial.legendre.leggauss(nodes)
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    x = (middle + half * nodes).ravel()
    return x, np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * (half * weights).ravel()
