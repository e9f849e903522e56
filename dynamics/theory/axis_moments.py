r"""Second and fourth moments of the gradients of neurons on separate axes, exactly.

The gradient of neuron p has the part u_p(g_p) g_l on each axis l ≠ p, and h_p(g_p) on its axis, g ~ N(0, I). The mean
of a product of four parts is a product over axes of means of four functions of one coordinate, of 1, z, u and h.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from hermite.arrays import Array

Function: TypeAlias = Callable[[Array], Array]

#: Reach and step of the midpoint rule: 0, where links may jump, is no point.
REACH, STEP = 40.0, 2.0**-8
#: Factors of a part of the gradient, each a function of one coordinate.
ONE, COORDINATE, ACROSS, ALONG = range(4)


def gaussian_points() -> Array:
    """Return equally spaced points z, shape (N,), of the midpoint rule for means over N(0, 1)."""
    return np.arange(-REACH + 0.5 * STEP, REACH, STEP)


@np.errstate(under="ignore")
def products_of_four(functions: Sequence[Function]) -> Array:
    """Return the means E F_a F_b F_c F_d over z ~ N(0, 1) for k functions F, at row k a + b and column k c + d."""
    z = gaussian_points()
    # Every factor takes a quarter of the Gaussian, so that polynomials of high degree stay within float64.
    share = np.exp(-0.125 * z**2)
    values = np.array([function(z) * share for function in functions])
    pairs = (values[:, None] * values).reshape(-1, z.size)
    return np.asarray(STEP / math.sqrt(2.0 * math.pi) * (pairs @ pairs.T))


class AxisMoments:
    """Second and fourth moments of gradients of n neurons, each of which lies on its own axis of the inputs.

    Neuron p has the function u_p of its coordinate, which multiplies other coordinates, and its gradient has n² parts h
    in all, that of neuron p on axis l at number n p + l. `across` and `along` are the functions u and h of one
    coordinate, which `scale` (n,) multiplies, and `roots` (n,) are standard deviations of the inputs on the axes.
    """

    #: Relative change of a quotient of Rayleigh at which iterations with these moments end.
    tolerance = 1e-10

    def __init__(self, across: Sequence[Function], along: Sequence[Function], scale: Array, roots: Array) -> None:
        """Compute the means of all products of two and of four parts from those over one coordinate.

        Coordinates are independent, so that each mean is a product over the axes of means over one coordinate of the
        factors that the parts have there: 1, the coordinate, u or h.
        """
        n = len(across)
        codes = np.full((n, n + n * n), ONE)
        for p in range(n):
            parts = n + n * p + np.arange(n)
            codes[p, p] = codes[p, parts] = ACROSS
            codes[np.arange(n), parts] = COORDINATE
            codes[p, n + n * p + p] = ALONG
        factors = np.concatenate([scale, np.outer(scale, roots).ravel()])
        self._pairs = np.triu_indices(n), np.triu_indices(n * n)
        (first, second), (left, right) = self._pairs
        first, second = np.append(first, n + left), np.append(second, n + right)
        self._weights = np.where(first == second, 1.0, 2.0)
        moments, means = (np.ones(shape) for shape in ((first.size, first.size), first.size))
        tables: dict[tuple[Function, Function], Array] = {}
        for axis in range(n):
            chosen = (across[axis], along[axis])
            if chosen not in tables:
                tables[chosen] = products_of_four([np.ones_like, np.asarray, *chosen])
            code, table = 4 * codes[axis, first] + codes[axis, second], tables[chosen]
            moments *= table[np.ix_(code, code)]
            means *= table[code, 0]
        pair = factors[first] * factors[second]
        self._moments = moments * np.outer(pair, pair)
        #: E u uᵀ (n, n) and E h hᵀ (n², n²).
        self.second = self._matrices(means * pair)

    def _matrices(self, vector: Array) -> tuple[Array, Array]:
        """Return the symmetric matrices (n, n) and (n², n²) of which `vector` lists the upper triangles in turn."""
        size = self._pairs[0][0].size
        return self._square(vector[:size], 0), self._square(vector[size:], 1)

    def _square(self, entries: Array, which: int) -> Array:
        """Return the symmetric matrix with these entries in its upper triangle.

        It is (n, n), of functions u, for `which` 0, and (n², n²), of parts of the gradient, for 1.
        """
        rows, columns = self._pairs[which]
        matrix = np.zeros([int(rows[-1]) + 1] * 2)
        matrix[rows, columns] = matrix[columns, rows] = entries
        return matrix

    def grown(self, across: Array, along: Array) -> tuple[Array, Array]:
        """Return E[u uᵀ s] (n, n) and E[h hᵀ s] (n², n²) with the quadratic form s = uᵀ X u + hᵀ Y h.

        X (n, n) is `across` and Y (n², n²) `along`, both symmetric. All are sums over pairs of functions with the table
        of fourth moments that `__init__` computes.
        """
        X = np.concatenate([matrix[pairs] for matrix, pairs in zip((across, along), self._pairs, strict=True)])
        return self._matrices(self._moments @ (self._weights * X))

    def grown_across(self, across: Array) -> Array:
        """Return E[u uᵀ (uᵀ X u)], shape (n, n), for symmetric X = `across` (n, n)."""
        size = self._pairs[0][0].size
        return self._square(self._moments[:size, :size] @ (self._weights[:size] * across[self._pairs[0]]), 0)
