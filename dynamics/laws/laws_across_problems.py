"""Scaling laws read off answers to many problems: over widths, over dimensions, and the compute frontier.

Fits and windows are those of `laws_of_a_problem`.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dynamics.laws.laws_of_a_problem import ScalingLaw, fitted_law, middle_ranks, over_starts, sum_formula_of
from dynamics.problem.checks import checked_number
from dynamics.runs.dataset import stored_exponents
from dynamics.theory.fits import WINDOW_POWER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import xarray as xr

    from hermite.arrays import Array

FRONTIER_POINTS = 200


def loss_against_width(datasets: Sequence[xr.Dataset]) -> ScalingLaw:
    """Fit L ∝ m^s ("loss-width") at the last time of the record, over widths from P^0.25 to P^0.75.

    The datasets answer problems that differ in width and seed alone, one per width and start.
    """
    return over_starts(_loss_against_width, _by_start(datasets))[0]


def _loss_against_width(datasets: Sequence[xr.Dataset]) -> tuple[ScalingLaw]:
    widths, seeds = _axes(datasets, "width")
    loss = _table(datasets, "width", widths, seeds, lambda one: float(one["loss"][-1]))
    predicted = _table(datasets, "width", widths, seeds, lambda one: float(sum_formula_of(one)[-1]))
    window = middle_ranks(datasets[0].sizes["direction"])
    inside = widths[(widths >= window[0]) & (widths <= window[1])]
    ranks = (float(inside[0]), float(inside[-1])) if inside.size else (np.nan, np.nan)
    limit = stored_exponents(datasets[0]).loss_width
    return (fitted_law("loss-width", widths, loss, predicted, window, limit, ranks=ranks),)


def times_against_dimension(datasets: Sequence[xr.Dataset]) -> ScalingLaw:
    """Fit T ∝ d^s ("time-dimension") over all dimensions.

    The datasets answer problems that differ in dimension and seed alone. T is the geometric mean of T_p over those
    directions up to P^0.75 that emerge in every dataset, later than at its start.
    """
    return over_starts(_times_against_dimension, _by_start(datasets))[0]


def _times_against_dimension(datasets: Sequence[xr.Dataset]) -> tuple[ScalingLaw]:
    dimensions, seeds = _axes(datasets, "dimension")
    names = ("emergence_time", "predicted_emergence_time")
    times = [np.stack([one[name].values for one in datasets]) for name in names]
    kept = np.logical_and.reduce([np.isfinite(each) & (each > 0.0) for each in np.concatenate(times)])
    kept[round(kept.size**WINDOW_POWER) :] = False

    def mean_time(name: str) -> Callable[[xr.Dataset], float]:
        return lambda one: float(np.exp(np.log(one[name].values[kept]).mean())) if kept.any() else float("nan")

    measured, predicted = (_table(datasets, "dimension", dimensions, seeds, mean_time(name)) for name in names)
    limit = stored_exponents(datasets[0]).emergence_time_dimension
    return (fitted_law("time-dimension", dimensions, measured, predicted, (0.0, np.inf), limit),)


def frontier_laws(datasets: Sequence[xr.Dataset], learning_rate: float) -> tuple[ScalingLaw, ScalingLaw]:
    r"""Fit the compute frontier: the least loss at given compute m · steps, and the width that has it.

    .. math:: L^*(c) = \min_m L_m(\eta c / m)

    The datasets answer problems that differ in width and seed alone, of at least three widths. The laws "loss-compute"
    and "width-compute" are at 200 computes equally spaced in the logarithm. The window, by the sum formula: from where
    no start has the smallest width as its best any more to where one has the largest, or one above P^0.75.
    """
    rate = checked_number(learning_rate, "learning_rate", positive=True)
    widths, _ = _axes(datasets, "width")
    if widths.size < 3:
        msg = f"Argument `datasets` must hold at least three widths, but holds {widths.tolist()}."
        raise ValueError(msg)
    loss, width = over_starts(partial(_frontier_laws, rate=rate), _by_start(datasets))
    return loss, width


def _frontier_laws(datasets: Sequence[xr.Dataset], *, rate: float) -> tuple[ScalingLaw, ScalingLaw]:
    widths, seeds = _axes(datasets, "width")
    ends = [(one["time"].values[one["time"].values > 0.0][[0, -1]], _stored(one, "width")) for one in datasets]
    low = min(m * time[0] for time, m in ends) / rate
    high = max(m * time[1] for time, m in ends) / rate
    compute = np.geomspace(low, high, FRONTIER_POINTS)
    loss, width = _frontier(datasets, widths, seeds, compute, rate, lambda one: one["loss"].values)
    sums, best = _frontier(datasets, widths, seeds, compute, rate, sum_formula_of)
    most = min(widths[-2], middle_ranks(datasets[0].sizes["direction"])[1])
    inside = (best > widths[0]).all(axis=0) & (best <= most).all(axis=0)
    # Early on all widths are alike, and which of them is best means nothing.
    first = np.flatnonzero((best == widths[0]).any(axis=0))
    inside[: first[-1] if first.size else 0] = False
    at = np.flatnonzero(inside)
    window, ranks = (np.nan, np.nan), (np.nan, np.nan)
    if at.size:
        window = (float(compute[at[0]]), float(compute[at[-1]]))
        ranks = (float(best[:, at[0]].mean()), float(best[:, at[-1]].mean()))
    limits = stored_exponents(datasets[0])
    return (
        fitted_law("loss-compute", compute, loss, sums, window, limits.loss_compute, ranks=ranks),
        fitted_law("width-compute", compute, width, best, window, limits.width_compute),
    )


def _frontier(
    datasets: Sequence[xr.Dataset],
    widths: Array,
    seeds: list[int],
    compute: Array,
    rate: float,
    loss_of: Callable[[xr.Dataset], Array],
) -> tuple[Array, Array]:
    """Return the least loss over widths and the width that has it, shape (seeds, computes); NaN before the records.

    Beyond its record a width counts with its last loss: losses of the flow fall.
    """
    losses = np.full((len(seeds), widths.size, compute.size), np.inf)
    for one in datasets:
        time, loss = one["time"].values, loss_of(one)
        known = (time > 0.0) & np.isfinite(loss) & (loss > 0.0)
        m = _stored(one, "width")
        at = (seeds.index(_stored(one, "seed")), int(np.searchsorted(widths, m)))
        if known.any():
            wanted = np.log(compute * rate / m)
            curve = np.exp(np.interp(wanted, np.log(time[known]), np.log(loss[known])))
            losses[at] = np.where(wanted >= np.log(time[known][0]), curve, np.inf)
    best = losses.argmin(axis=1)
    least = losses.min(axis=1)
    return np.where(np.isfinite(least), least, np.nan), np.where(np.isfinite(least), widths[best], np.nan)


def _by_start(datasets: Sequence[xr.Dataset]) -> list[list[xr.Dataset]]:
    """Return the datasets in one group per seed."""
    seeds = [_stored(one, "seed") for one in datasets]
    return [[one for one, s in zip(datasets, seeds, strict=True) if s == seed] for seed in sorted(set(seeds))]


def _axes(datasets: Sequence[xr.Dataset], name: str) -> tuple[Array, list[int]]:
    """Return the values of a field of the problems, and their seeds, both sorted."""
    values = np.array(sorted({_stored(one, name) for one in datasets}), dtype=np.float64)
    return values, sorted({_stored(one, "seed") for one in datasets})


def _table(
    datasets: Sequence[xr.Dataset], name: str, values: Array, seeds: list[int], number: Callable[[xr.Dataset], float]
) -> Array:
    """Return a number of each dataset, shape (seeds, values of the field); NaN where there is none."""
    table = np.full((len(seeds), values.size), np.nan)
    for one in datasets:
        table[seeds.index(_stored(one, "seed")), np.searchsorted(values, _stored(one, name))] = number(one)
    return table


def _stored(dataset: xr.Dataset, name: str) -> int:
    """Return a scalar field of the problem that a dataset answers."""
    return int(json.loads(dataset.attrs["parameters"])["problem"][name])
