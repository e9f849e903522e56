r"""What is known of h_α(z_rest) from a label and the directions found: rows, and their matrix Λ_k over directions.

Conditional means ζ_α = E[h_α(z_rest) | label, z_found] of all multi-indices |α| = k are one symmetric tensor of degree
k, ζ_k, with entries ζ_α √(α!/k!). Its matrix Λ_k = E ζ_k ζ_kᵀ, unfolded along one direction, has the trace
λ_k² = Σ_α E ζ_α², and its range is what degree k tells of the directions.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy.special import ndtr, ndtri

from hermite import polynomials
from hermite.arrays import Array
from hermite.exponents.intervals import interval_moments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermite.exponents.several_directions import PointFunction

MultiIndex: TypeAlias = tuple[int, ...]

#: Cells are quantiles of a Gaussian this much wider than the inputs', or the outermost would be too wide for h_k.
_WIDENED = 3.0**0.5
#: Levels of a ranked label, and the deviation of the noise that is added to it.
_LEVELS, _BLUR = 128, 0.03
#: Ranks that vary by less than this are one label.
RESOLUTION = 0.01
#: Largest degree of polynomials that are known exactly.
POLYNOMIAL_DEGREE = 15


def multi_indices(axes: int, degree: int) -> list[MultiIndex]:
    """Return all multi-indices of a total degree.

    Examples
    --------
    >>> multi_indices(2, 2)
    [(0, 2), (1, 1), (2, 0)]
    """
    return [each for each in itertools.product(range(degree + 1), repeat=axes) if sum(each) == degree]


def direction_matrix(rows: Mapping[MultiIndex, Array], axes: int, degree: int) -> Array:
    """Return Λ_k, shape (axes, axes), from rows with E ζ_α ζ_β = rows[α] · rows[β]."""
    total = np.zeros((axes, axes))
    for lower in multi_indices(axes, degree - 1):
        raised = [(*lower[:a], lower[a] + 1, *lower[a + 1 :]) for a in range(axes)]
        vectors = np.array([math.sqrt(alpha[a] / degree) * rows[alpha] for a, alpha in enumerate(raised)])
        total += vectors @ vectors.T
    return total


def polynomial_rows(f: PointFunction, basis: Array, found: int) -> dict[MultiIndex, Array] | None:
    """Return the rows of a polynomial over its standard deviation, by Gauss-Hermite quadrature; None of another f.

    Rows of `basis` are the directions, the first `found` of them known: rows[α] holds E[f h_β(z_found) h_α(z_rest)] for
    all β.
    """
    axes, degrees = len(basis), np.arange(POLYNOMIAL_DEGREE + 1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(POLYNOMIAL_DEGREE + 5)
    table = polynomials.evaluate(POLYNOMIAL_DEGREE, nodes) * weights / math.sqrt(2.0 * math.pi)
    coefficients = f(_product(nodes, axes) @ basis).reshape((nodes.size,) * axes)
    for _ in range(axes):
        coefficients = np.tensordot(coefficients, table, (0, 1))
    coefficients[reduce(np.add.outer, [degrees] * axes) > POLYNOMIAL_DEGREE] = 0.0
    points = np.random.default_rng(1).standard_normal((64, axes))
    factors = [polynomials.evaluate(POLYNOMIAL_DEGREE, points[:, a]) for a in range(axes)]
    letters = "abc"[:axes]
    series = np.einsum(f"{letters},{','.join(f'{a}n' for a in letters)}->n", coefficients, *factors)
    values = f(points @ basis)
    if not np.allclose(series, values, rtol=0.0, atol=1e-9 * float(np.max(np.abs(values)))):
        return None
    spread = math.sqrt(float(np.sum(coefficients**2) - coefficients[(0,) * axes] ** 2)) or 1.0
    scaled = np.where(np.abs(coefficients) > 1e-9 * spread, coefficients / spread, 0.0)
    return {
        alpha: scaled[(slice(None),) * found + alpha].ravel()
        for alpha in itertools.product(degrees.tolist(), repeat=axes - found)
    }


@dataclass(frozen=True)
class Cells:
    """A function on a grid over the unknown directions, in each of several slices of those that are known.

    Cells are exact in z; the function is taken at their medians.
    """

    #: Ends of the cells along each direction.
    ends: Array
    #: Number of unknown directions.
    axes: int
    #: Values of the function, shape (slices, cells).
    values: Array

    def integrals(self, degree: int) -> dict[MultiIndex, Array]:
        """Return ∫ h_α γ over each cell, for all α of a degree."""
        moments = interval_moments(self.ends, degree)
        return {
            alpha: reduce(np.multiply.outer, [moments[k] for k in alpha]).ravel()
            for alpha in multi_indices(self.axes, degree)
        }

    @cached_property
    def mass(self) -> Array:
        """Gaussian mass of each cell."""
        [mass] = self.integrals(0).values()
        return mass

    def spread(self) -> Array:
        """Return the standard deviation of the values in each slice."""
        centred: Array = self.values - (self.values @ self.mass)[:, None]
        return np.sqrt(centred**2 @ self.mass)


def ranked(f: PointFunction, axes: int) -> PointFunction:
    """Return f with its values replaced by their ranks, from 0 to 1, among those at random points.

    Nothing that is said of labels changes under such a map, and ranks have a scale: `_BLUR` and `RESOLUTION`.
    """
    values = f(np.random.default_rng(3).standard_normal((20_000, axes)))
    unit = float(np.mean(np.abs(values))) or 1.0
    sample = np.sort(np.round(values / unit, 12))

    def rank(points: Array) -> Array:
        rounded = np.round(f(points) / unit, 12)
        up_to: Array = np.searchsorted(sample, rounded, side="right").astype(np.float64)
        return (up_to + np.searchsorted(sample, rounded)) / (2.0 * sample.size)

    return rank


def cells_of(f: PointFunction, known: Array, rest: Array, cells: int, slices: int) -> Cells:
    """Return a function on so many cells along each row of `rest`, in so many slices along each row of `known`."""
    ends = _WIDENED * ndtri(np.linspace(0.0, 1.0, cells + 1))
    inner = _product(ndtri(0.5 * (ndtr(ends[1:]) + ndtr(ends[:-1]))), len(rest)) @ rest
    places = _product(ndtri((np.arange(slices) + 0.5) / slices), len(known)) @ known
    return Cells(ends, len(rest), np.stack([f(inner + place) for place in places]))


def label_rows(cells: Cells, degree: int) -> dict[MultiIndex, Array]:
    """Return the rows of a ranked label with noise of deviation `_BLUR`: E[h_α | label] √p(label).

    The noise changes no exponent, and keeps from the label what only the errors of known directions tell.
    """
    slices, levels = len(cells.values), np.arange(_LEVELS)
    beyond = np.arange(-_LEVELS // 4, _LEVELS + _LEVELS // 4)
    kernel = np.exp(-0.5 * ((levels[:, None] - beyond) / (_BLUR * _LEVELS)) ** 2)
    kernel /= kernel.sum(axis=1, keepdims=True)
    place = np.minimum(_LEVELS * cells.values, _LEVELS - 1).astype(np.int64)
    index = (place + _LEVELS * np.arange(slices)[:, None]).ravel()

    def per_label(each: Array) -> Array:
        sums = np.bincount(index, np.tile(each, slices), slices * _LEVELS).astype(np.float64)
        return sums.reshape(slices, _LEVELS) @ kernel

    density = per_label(cells.mass)
    root = np.sqrt(slices * np.where(density > 0.0, density, 1.0))
    return {alpha: (per_label(each) / root).ravel() for alpha, each in cells.integrals(degree).items()}


def value_rows(cells: Cells, degree: int) -> dict[MultiIndex, Array]:
    """Return the rows of the label as it is, over its standard deviation: E[y h_α | slice]."""
    centred = cells.values - np.mean(cells.values @ cells.mass)
    size = math.sqrt(float(np.sum(centred**2 @ cells.mass))) or 1.0
    return {a: centred @ each / size for a, each in cells.integrals(degree).items()}


def _product(points: Array, axes: int) -> Array:
    """Return all points of a grid, shape (points^axes, axes)."""
    if axes == 0:
        return np.empty((1, 0))
    return np.stack(np.meshgrid(*[points] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
