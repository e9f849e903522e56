"""Ridge regression with a Gaussian kernel, and intervals by the residuals of draws that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hermite.arrays import Array, Integers
from hermite.text.messages import require

#: Lengths of the kernel over the root of a quarter of the number of features, and ridges, that are tried.
LENGTHS, RIDGES = (2.0, 4.0, 8.0), 10.0 ** np.arange(-3.0, 1.1, 0.5)
#: Parts of the draws: to fit, and to choose length and ridge; the rest gives the intervals.
FITTED, CHOSEN = 0.55, 0.15
#: Scale at which differences of ln t count by their logarithm, and the neighbour whose distance is told.
LOGARITHMIC, NEIGHBOUR = 1.0 / 30.0, 5
#: Fewest draws of a stratum that has a quantile.
FEWEST_OF_STRATUM = 30


class Fit(NamedTuple):
    """Values (T,), half-widths of their intervals (T,), standard deviations (T,); share of draws as far from others."""

    value: Array
    half_width: Array
    deviation: Array
    likeness: float
    #: Draws from the nearest on.
    nearest: Integers


@dataclass(frozen=True)
class Regression:
    """Targets learned from draws, with residuals of draws that were not used."""

    #: Scaled features of all draws (N, F), their mean and scale (F,), and how many of the first are fitted.
    features: Array
    mean: Array
    scale: Array
    fitted: int
    #: Mean and scale of the targets (T,), weights of the kernel (fitted, T) and its lengths (T,).
    centre: Array
    size: Array
    weights: Array
    length: Array
    #: Half-widths and standard deviations (T,); distances of unused draws to their fifth neighbour.
    half_width: Array
    deviation: Array
    neighbour: Array

    def at(self, x: Array) -> Fit:
        """Return the targets at features x (F,)."""
        x = (np.arcsinh(x / LOGARITHMIC) - self.mean) / self.scale
        square = _distances(x[None], self.features)
        near = np.partition(square[0, : self.fitted], NEIGHBOUR)[NEIGHBOUR]
        value = _predicted(square[:, : self.fitted], self.centre, self.size, self.weights, self.length)[0]
        likeness = float(np.mean(self.neighbour >= near))
        return Fit(value, self.half_width, self.deviation, likeness, np.argsort(square[0], kind="stable"))


def check_coverage(coverage: float, count: int) -> None:
    """Raise ValueError if so many draws leave too few unused ones for intervals of this coverage."""
    unused = count - int((FITTED + CHOSEN) * count)
    require(
        np.ceil(coverage * (unused + 1)) <= unused,
        f"Argument `coverage` must be at most {unused / (unused + 1):.4f} for {count} draws, but is {coverage:g}.",
    )


def learn_targets(X: Array, Y: Array, coverage: float, strata: Integers) -> Regression:
    """Return the regression of targets Y (N, T) on features X (N, F) of draws.

    Draws are exchangeable; those of the last part give the half-widths, the largest of the quantiles of absolute
    residuals over strata (integers (N,)), and over all draws.
    """
    check_coverage(coverage, len(X))
    X = np.arcsinh(X / LOGARITHMIC)
    mean, scale = X.mean(axis=0), X.std(axis=0) + 1e-9
    X = (X - mean) / scale
    first, last = int(FITTED * len(X)), int((FITTED + CHOSEN) * len(X))
    centre = Y[:first].mean(axis=0)
    size = np.maximum(Y[:first].std(axis=0), 1e-9)
    target = (Y - centre) / size
    square = _distances(X, X[:first])
    best, weights, length = np.full(Y.shape[1], np.inf), np.zeros((first, Y.shape[1])), np.ones(Y.shape[1])
    for factor in LENGTHS:
        width = factor * np.sqrt(0.25 * X.shape[1])
        kernel = np.exp(-0.5 * square[:last] / width**2)
        eigenvalues, vectors = np.linalg.eigh(kernel[:first])
        rotated, held = vectors.T @ target[:first], kernel[first:] @ vectors
        for ridge in RIDGES:
            shrunk = rotated / (eigenvalues + ridge)[:, None]
            error = np.mean((held @ shrunk - target[first:last]) ** 2, axis=0)
            better = error < best
            best[better], length[better] = error[better], width
            weights[:, better] = (vectors @ shrunk)[:, better]
    residual = np.abs(_predicted(square[last:], centre, size, weights, length) - Y[last:])
    parts = [strata[last:] == stratum for stratum in np.unique(strata[last:])]
    groups = [residual, *(residual[part] for part in parts if part.sum() >= FEWEST_OF_STRATUM)]
    half_width = np.max([_quantile(group, coverage) for group in groups], axis=0)
    deviation = np.sqrt(np.mean(residual**2, axis=0))
    neighbour = np.partition(square[last:], NEIGHBOUR, axis=1)[:, NEIGHBOUR]
    return Regression(X, mean, scale, first, centre, size, weights, length, half_width, deviation, neighbour)


def _predicted(square: Array, centre: Array, size: Array, weights: Array, length: Array) -> Array:
    """Return targets (n, T) from squared distances (n, fitted) to the fitted draws."""
    columns = [np.exp(-0.5 * square / length[at] ** 2) @ weights[:, at] for at in range(length.size)]
    return np.asarray(centre + size * np.stack(columns, axis=1))


def nearest_draws(X: Array, x: Array) -> Integers:
    """Return the draws with features X (N, F) from the one nearest to x (F,) on."""
    X, x = np.arcsinh(X / LOGARITHMIC), np.arcsinh(x / LOGARITHMIC)
    return np.argsort(np.sum(((X - x) / (X.std(axis=0) + 1e-9)) ** 2, axis=1), kind="stable")


def _quantile(residual: Array, coverage: float) -> Array:
    """Return the half-widths that hold for new draws with chance `coverage`, from residuals (n, T)."""
    rank = min(int(np.ceil(coverage * (len(residual) + 1))), len(residual)) - 1
    return np.asarray(np.sort(residual, axis=0)[rank])


def _distances(A: Array, B: Array) -> Array:
    """Return squared distances of rows, (n, N)."""
    square: Array = np.sum(A**2, axis=1)[:, None] + np.sum(B**2, axis=1) - 2.0 * A @ B.T
    return np.asarray(np.maximum(square, 0.0))
