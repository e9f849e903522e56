"""Ridge regression with a Gaussian kernel, and intervals by the residuals of draws that it has not seen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hermite.arrays import Array, Integers

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


def fit_targets(X: Array, Y: Array, x: Array, coverage: float, strata: Integers) -> Fit:
    """Return the targets at features x (F,), learned from draws with features X (N, F) and targets Y (N, T).

    Draws are exchangeable; those of the last part give the half-widths, the largest of the quantiles of absolute
    residuals over strata (integers (N,)), and over all draws.
    """
    X, x = np.arcsinh(X / LOGARITHMIC), np.arcsinh(x / LOGARITHMIC)
    mean, scale = X.mean(axis=0), X.std(axis=0) + 1e-9
    X, x = (X - mean) / scale, (x - mean) / scale
    first, last = int(FITTED * len(X)), int((FITTED + CHOSEN) * len(X))
    centre = Y[:first].mean(axis=0)
    size = np.maximum(Y[:first].std(axis=0), 1e-9)
    target = (Y - centre) / size
    square = _distances(X, X[:first])
    best, weights, length = np.full(Y.shape[1], np.inf), np.zeros((first, Y.shape[1])), np.ones(Y.shape[1])
    for factor in LENGTHS:
        width = factor * np.sqrt(0.25 * X.shape[1])
        kernel = np.exp(-0.5 * square / width**2)
        eigenvalues, vectors = np.linalg.eigh(kernel[:first])
        rotated, held = vectors.T @ target[:first], kernel[first:last] @ vectors
        for ridge in RIDGES:
            shrunk = rotated / (eigenvalues + ridge)[:, None]
            error = np.mean((held @ shrunk - target[first:last]) ** 2, axis=0)
            better = error < best
            best[better], length[better] = error[better], width
            weights[:, better] = (vectors @ shrunk)[:, better]
    new = _distances(x[None], X[:first])

    def predicted(distance: Array) -> Array:
        """Return the targets from squared distances to the draws of the fit."""
        columns = [np.exp(-0.5 * distance / length[at] ** 2) @ weights[:, at] for at in range(length.size)]
        return np.asarray(centre + size * np.stack(columns, axis=1))

    residual = np.abs(predicted(square[last:]) - Y[last:])
    groups = [np.ones(len(residual), dtype=bool), *(strata[last:] == stratum for stratum in np.unique(strata[last:]))]
    groups = [group for at, group in enumerate(groups) if at == 0 or group.sum() >= FEWEST_OF_STRATUM]
    half = np.max([_quantile(residual[group], coverage) for group in groups], axis=0)
    nearest_of = np.partition(square[last:], NEIGHBOUR, axis=1)[:, NEIGHBOUR]
    likeness = float(np.mean(nearest_of >= np.partition(new[0], NEIGHBOUR)[NEIGHBOUR]))
    order = np.argsort(_distances(x[None], X)[0], kind="stable")
    return Fit(predicted(new)[0], half, np.sqrt(np.mean(residual**2, axis=0)), likeness, order)


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
