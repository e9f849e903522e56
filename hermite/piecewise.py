"""Functions of one variable as polynomials on equal pieces, for compiled code and tensors that take links as data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial import chebyshev

from hermite.arrays import Array

#: A table of a function reaches so far on both sides of 0, in pieces of this width, each a polynomial of this degree.
TABLE_END, PIECE_WIDTH, TABLE_DEGREE = 32.0, 0.25, 11
#: Jump of a slope between two pieces, or error within a piece, in shares of the largest slope or of the values nearby,
#: above which a function has a kink.
SMOOTH = 1e-6


def pieces_of(function: Callable[[Array], Array]) -> Array:
    """Return the table of a function: its coefficients on each piece, shape (pieces, TABLE_DEGREE + 1).

    Column j has the coefficient of u^j, where u goes from −1 to 1 along a piece of [−TABLE_END, TABLE_END].

    Each piece interpolates at Chebyshev nodes; a kink is exact at a multiple of PIECE_WIDTH and blurred elsewhere.
    Where the function is not finite the powers are NaN.
    """
    nodes = chebyshev.chebpts1(TABLE_DEGREE + 1)
    values = function(left_ends()[:, None] + PIECE_WIDTH * (nodes + 1) / 2)
    series = np.where(np.isfinite(values), values, np.nan) @ np.linalg.inv(chebyshev.chebvander(nodes, TABLE_DEGREE)).T
    pieces = [chebyshev.cheb2poly(piece) for piece in series]  # without the highest powers, where these are zero
    return np.array([np.pad(piece, (0, nodes.size - piece.size)) for piece in pieces])


def left_ends() -> Array:
    """Return the left ends of all pieces, shape (pieces,)."""
    return np.arange(-TABLE_END, TABLE_END, PIECE_WIDTH)


def value_and_slope(table: Array, z: Array) -> tuple[Array, Array]:
    """Return the function of a table and its derivative at points of any shape; beyond the ends the tangent there."""
    inside = np.clip(z, -TABLE_END, TABLE_END)
    scaled = (inside + TABLE_END) / PIECE_WIDTH
    piece = np.minimum(scaled.astype(np.int64), len(table) - 1)
    u = 2.0 * (scaled - piece) - 1.0
    value, slope = table[piece, -1], np.zeros_like(u)
    for power in range(table.shape[1] - 2, -1, -1):
        slope = slope * u + value
        value = value * u + table[piece, power]
    slope = slope * (2.0 / PIECE_WIDTH)
    return value + slope * (z - inside), slope


def has_kink(function: Callable[[Array], Array], table: Array) -> bool:
    """Return whether a function or its derivative jumps somewhere on [−8, 8], to the tolerance `SMOOTH`.

    `table` holds its polynomials by piece. It jumps if neighbouring polynomials do not fit together, or if they miss
    the function between the ends of pieces.
    """
    ends = left_ends()
    inner = np.flatnonzero(np.abs(ends) <= 8.0)
    powers = np.arange(table.shape[1])
    at_right, at_left = powers * 1.0, powers * (-1.0) ** (powers - 1)
    slopes_left, slopes_right = table[inner - 1] @ at_right, table[inner] @ at_left
    values_left, values_right = table[inner - 1].sum(axis=1), table[inner] @ (-1.0) ** powers
    scale = max(float(np.abs(slopes_left).max()), 1e-300)
    if max(np.abs(slopes_left - slopes_right).max(), np.abs(values_left - values_right).max()) > SMOOTH * scale:
        return True
    between = ends[inner][:, None] + PIECE_WIDTH * np.linspace(0.03, 0.97, 9)
    error = np.abs(value_and_slope(table, between)[0] - function(between)).max()
    return bool(error > SMOOTH * max(float(np.abs(function(between)).max()), 1e-300))
