"""Scaling laws read off answers: the loss in time, samples, width and compute, emergence times in p and d.

Every law is fitted three times over the same points: as measured, by the sum formula at this size and start, and
asymptotically. Windows: in time, `dynamics.fits.default_window`; in direction and width, from P^0.25 to P^0.75,
because the first few directions are a staircase and the sum over the last ones is far from its limit; in compute, while
the best width is neither the smallest, nor the largest, nor above P^0.75.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps

import numpy as np
import xarray as xr

from dynamics.fits import WINDOW_POWER, PowerLawFit, default_window, first_crossing, fit_runs, inverse_fit, widening
from dynamics.problem import Problem
from dynamics.problem.checks import checked_number, require
from dynamics.runs.dataset import Values, stored_exponents
from dynamics.theory.asymptotics import FEWEST_DIRECTIONS, IDEAL_LAWS, ideal_exponent, spectral_decay
from dynamics.theory.learning_rates import target_losses, tuned_rates
from hermite.arrays import Array

#: Datasets, and for some a rate -> a law.
Reading = Callable[..., "ScalingLaw"]
#: Power of the number of directions at which windows in direction and width begin.
FIRST_POWER = 0.25
TUNED_TARGETS = 20
FRONTIER_POINTS = 200
CURVES = ("measured", "sum formula")
TIMES = ("emergence_time", "predicted_emergence_time")
SOURCES = (*CURVES, "ideal sum", "asymptotic")
FITTED = ("exponent", "exponent_error", "prefactor")


@dataclass(frozen=True, slots=True, eq=False)
class ScalingLaw:
    """One law y ∝ x^s: its points, and its exponent as measured, by the sum formula, and asymptotically."""

    #: Such as "loss-time".
    name: str
    #: (N,), increasing, dimensionless.
    x: Array
    #: (R, N), y of each run, and of the sum formula for the same start; NaN where unknown.
    measured: Array
    predicted: Array
    #: Of both, over the same window; with several starts their errors are those of `over_starts`, with one those of
    #: `dynamics.fits.fit_power_law`.
    fit: PowerLawFit
    finite_size: PowerLawFit
    #: Exponent for P, d → ∞; NaN without a law.
    asymptotic: float
    #: How many directions are learned at the ends of the window, for the idealised sum; NaN where that has no law.
    ranks: tuple[float, float]


def over_starts(
    read: Callable[[Sequence[xr.Dataset]], tuple[ScalingLaw, ...]], starts: Sequence[Sequence[xr.Dataset]]
) -> tuple[ScalingLaw, ...]:
    r"""Return the laws that `read` finds in the datasets of all starts, with errors by a jackknife over starts.

    .. math:: \delta s^2 = w^2\, \frac{R-1}{R} \sum_r (s_{(r)} - \overline{s_{(\cdot)}})^2

    s_(r) is the exponent that the whole reading finds without start r, window included: windows depend on the starts,
    and exponents on windows. w widens it as in `dynamics.fits.widening`.
    """
    laws = read([dataset for datasets in starts for dataset in datasets])
    if len(starts) < 2:
        return laws
    rest = [
        [dataset for s, datasets in enumerate(starts) if s != r for dataset in datasets] for r in range(len(starts))
    ]
    without = zip(*map(read, rest), strict=True)
    return tuple(_jackknifed(law, resampled) for law, resampled in zip(laws, without, strict=True))


def _jackknifed(law: ScalingLaw, without: Sequence[ScalingLaw]) -> ScalingLaw:
    """Return a law with jackknife errors from the same law without each start; a fit stays where one is not finite."""
    wider = []
    for fit, resampled in (
        (law.fit, [resample.fit for resample in without]),
        (law.finite_size, [resample.finite_size for resample in without]),
    ):
        exponents = np.array([refit.exponent for refit in resampled])
        error = float(np.sqrt((exponents.size - 1) * exponents.var())) * widening(exponents.size)
        wider.append(replace(fit, standard_error=error) if np.isfinite(error) else fit)
    return replace(law, fit=wider[0], finite_size=wider[1])


def _law_of(starts: Callable[[Sequence[xr.Dataset]], list[list[xr.Dataset]]]) -> Callable[[Reading], Reading]:
    """Return a decorator of a function that reads one law: `over_starts` gives its errors, with groups by `starts`."""

    def decorated(read: Reading) -> Reading:
        """Return the function with errors over starts."""

        @wraps(read)
        def law(datasets: Sequence[xr.Dataset], *rate: float, **named: float) -> ScalingLaw:
            return over_starts(lambda part: (read(part, *rate, **named),), starts(datasets))[0]

        return law

    return decorated


def _one_each(datasets: Sequence[xr.Dataset]) -> list[list[xr.Dataset]]:
    """Return the datasets in groups of one, as if each were a start."""
    return [[dataset] for dataset in datasets]


def _by_start(datasets: Sequence[xr.Dataset]) -> list[list[xr.Dataset]]:
    """Return the datasets in one group per seed."""
    seeds = [_stored(dataset, "seed") for dataset in datasets]
    return [[dataset for dataset, s in zip(datasets, seeds, strict=True) if s == seed] for seed in sorted(set(seeds))]


@_law_of(_one_each)
def loss_against_time(datasets: Sequence[xr.Dataset], rate: float | None = None) -> ScalingLaw:
    """Fit L ∝ t^s ("loss-time") by one dataset with `loss(time)` per start, all at the same times.

    With a rate η it is L ∝ n^s, n = t/η. The window goes from the geometric mean of the starts' first ends to that of
    the last. `predicted_loss` is compared where there is one.
    """
    time = np.asarray(datasets[0]["time"].values)
    have_same_times = all(np.array_equal(dataset["time"].values, time) for dataset in datasets)
    require(have_same_times, "Argument `datasets` must hold answers at the same times, but their times differ.")
    windows = [ends for dataset in datasets if (ends := default_window(dataset)) is not None]
    low, high = _log_mean(np.array(windows)).tolist() if windows else (np.nan, np.nan)
    positive = time > 0.0
    losses = np.stack([_losses(dataset) for dataset in datasets], axis=1)[..., positive]
    ranks = (1.0, float(round(datasets[0].sizes["direction"] ** WINDOW_POWER)))
    name, step = ("loss-time", 1.0) if rate is None else ("loss-samples", rate)
    limit, window = stored_exponents(datasets[0]).loss_time, (low / step, high / step)
    return fitted_law(name, time[positive] / step, losses, window, limit, ranks=ranks)


def loss_against_samples(datasets: Sequence[xr.Dataset], learning_rate: float) -> ScalingLaw:
    """Fit L ∝ n^s ("loss-samples") at a fixed step size, n = t/η samples, one per step; see `loss_against_time`."""
    return loss_against_time(datasets, checked_number(learning_rate, "learning_rate", positive=True))


@_law_of(_one_each)
def loss_against_tuned_samples(datasets: Sequence[xr.Dataset], rate: float) -> ScalingLaw:
    r"""Fit L ∝ n^s ("loss-samples-tuned") at a step size tuned to the last wanted direction p̄, by a dataset per start.

    .. math:: \eta_{\bar p} = c\, a_{\bar p}\, d^{-k/2}, \qquad n_{\bar p} = t_{\bar p}/\eta_{\bar p}

    with t_p̄ the first time at which the loss is that of p̄ learned directions, the last by half. The rate c is small:
    the times are those of the flow, without the delay by noise that c brings. There are twenty p̄ from P^0.25 to P^0.75
    of a teacher with falling coefficients, and x holds the geometric mean over starts of n. ln n is fitted against ln
    L, which is exact, and the slope inverted.
    """
    checked_number(rate, "rate", positive=True)
    problem = Problem.from_dataset(datasets[0])
    first, last = middle_ranks(problem.num_directions)
    targets = np.unique(np.geomspace(first, last, TUNED_TARGETS).round().astype(np.int64))
    levels, rates = target_losses(problem, targets), tuned_rates(problem, targets, rate)

    times = [
        [[first_crossing(dataset["time"], loss, level) for level in levels.tolist()] for loss in _losses(dataset)]
        for dataset in datasets
    ]
    samples, predicted = np.swapaxes(times, 0, 1) / rates
    x = _log_mean(samples)
    return ScalingLaw(
        "loss-samples-tuned",
        x,
        levels[None, :],
        _resampled(x, _log_mean(predicted), levels)[None, :],
        inverse_fit(levels, samples),
        inverse_fit(levels, predicted),
        stored_exponents(datasets[0]).loss_samples,
        (float(targets[0]), float(targets[-1])),
    )


@_law_of(_one_each)
def times_against_direction(datasets: Sequence[xr.Dataset]) -> ScalingLaw:
    """Fit T_p ∝ p^s ("time-direction") over directions from P^0.25 to P^0.75, by one dataset per start."""
    times = np.array([[dataset[name].values for dataset in datasets] for name in TIMES])
    p = datasets[0]["direction"].values.astype(np.float64)
    limit = stored_exponents(datasets[0]).emergence_time_direction
    return fitted_law("time-direction", p, times, middle_ranks(p.size), limit)


def fitted_law(
    name: str,
    x: Array,
    curves: Array,
    window: tuple[float, float],
    asymptotic: float,
    *,
    ranks: tuple[float, float] = (np.nan, np.nan),
) -> ScalingLaw:
    """Return the law of points (N,) and curves (2, R, N), measured and predicted, fitted over one window."""
    fit, finite_size = (fit_runs(x, curve, window=window) for curve in curves)
    return ScalingLaw(name, x, curves[0], curves[1], fit, finite_size, asymptotic, ranks)


def middle_ranks(count: int) -> tuple[float, float]:
    """Return the window of ranks among P directions, from P^0.25 to P^0.75."""
    return float(np.floor(count**FIRST_POWER)), float(np.ceil(count**WINDOW_POWER))


def _log_mean(values: Array) -> Array:
    """Return the geometric mean over runs; NaN where a run is unknown."""
    return np.asarray(np.exp(np.log(values).mean(axis=0)))


def _resampled(x: Array, from_x: Array, y: Array) -> Array:
    """Return y at x, interpolated in log–log, NaN outside."""
    is_finite = np.isfinite(from_x)
    if not is_finite.any():
        return np.full_like(x, np.nan)
    return np.exp(np.interp(np.log(x), np.log(from_x[is_finite]), np.log(y[is_finite]), left=np.nan, right=np.nan))


@_law_of(_by_start)
def loss_against_width(datasets: Sequence[xr.Dataset]) -> ScalingLaw:
    """Fit L ∝ m^s ("loss-width") at the last time of the record, over widths from P^0.25 to P^0.75.

    The datasets answer problems that differ in width and seed alone, one per width and start.
    """
    widths, losses = _table(datasets, "width", lambda dataset: [loss[-1] for loss in _losses(dataset)])
    window = middle_ranks(datasets[0].sizes["direction"])
    inside = widths[(widths >= window[0]) & (widths <= window[1])]
    ranks = (float(inside[0]), float(inside[-1])) if inside.size else (np.nan, np.nan)
    limit = stored_exponents(datasets[0]).loss_width
    return fitted_law("loss-width", widths, losses, window, limit, ranks=ranks)


@_law_of(_by_start)
def times_against_dimension(datasets: Sequence[xr.Dataset]) -> ScalingLaw:
    """Fit T ∝ d^s ("time-dimension") over all dimensions.

    The datasets answer problems that differ in dimension and seed alone. T is the geometric mean of T_p over those
    directions up to P^0.75 that emerge in every dataset, later than at its start.
    """
    times = np.stack([dataset[name].values for name in TIMES for dataset in datasets])
    kept = (np.isfinite(times) & (times > 0.0)).all(axis=0)
    kept[round(kept.size**WINDOW_POWER) :] = False

    def mean_times(dataset: xr.Dataset) -> list[Array]:
        return [_log_mean(dataset[name].values[kept]) if kept.any() else np.array(np.nan) for name in TIMES]

    dimensions, means = _table(datasets, "dimension", mean_times)
    limit = stored_exponents(datasets[0]).emergence_time_dimension
    return fitted_law("time-dimension", dimensions, means, (0.0, np.inf), limit)


def frontier_laws(datasets: Sequence[xr.Dataset], learning_rate: float) -> tuple[ScalingLaw, ...]:
    r"""Fit the compute frontier: the least loss at given compute m · steps, and the width that has it.

    .. math:: L^*(c) = \min_m L_m(\eta c / m)

    The datasets answer problems that differ in width and seed alone, of at least three widths. The laws "loss-compute"
    and "width-compute" are at 200 computes equally spaced in the logarithm. The window, by the sum formula: from where
    no start has the smallest width as its best any more to where one has the largest, or one above P^0.75.
    """
    rate = checked_number(learning_rate, "learning_rate", positive=True)
    widths = sorted({float(_stored(dataset, "width")) for dataset in datasets})
    require(len(widths) >= 3, f"Argument `datasets` must hold at least three widths, but holds {widths}.")
    return over_starts(partial(_frontier_laws, rate=rate), _by_start(datasets))


def _frontier_laws(datasets: Sequence[xr.Dataset], *, rate: float) -> tuple[ScalingLaw, ...]:
    """Return the laws of the least loss and of its width against compute, fitted over one window."""
    spans = [
        dataset["time"].values[dataset["time"].values > 0.0][[0, -1]] * _stored(dataset, "width")
        for dataset in datasets
    ]
    compute = np.geomspace(np.min(spans) / rate, np.max(spans) / rate, FRONTIER_POINTS)
    widths, losses, at_widths = _frontier(datasets, compute, rate)
    best = at_widths[1]
    most = min(widths[-2], middle_ranks(datasets[0].sizes["direction"])[1])
    inside = (best > widths[0]).all(axis=0) & (best <= most).all(axis=0)
    # Early on all widths are alike, and which of them is best means nothing.
    first = np.flatnonzero((best == widths[0]).any(axis=0))
    inside[: first[-1] if first.size else 0] = False
    window, ranks = (np.nan, np.nan), (np.nan, np.nan)
    if inside.any():
        ends = np.flatnonzero(inside)[[0, -1]]
        window, ranks = tuple(compute[ends].tolist()), tuple(best[:, ends].mean(axis=0).tolist())
    limits = stored_exponents(datasets[0])
    return (
        fitted_law("loss-compute", compute, losses, window, limits.loss_compute, ranks=ranks),
        fitted_law("width-compute", compute, at_widths, window, limits.width_compute),
    )


def _frontier(datasets: Sequence[xr.Dataset], compute: Array, rate: float) -> tuple[Array, Array, Array]:
    """Return widths, the least loss over them and the width that has it, both (2, seeds, computes), of `_losses`."""

    def at_computes(dataset: xr.Dataset) -> list[Array]:
        return [at_compute(dataset["time"].values, loss, _stored(dataset, "width")) for loss in _losses(dataset)]

    def at_compute(time: Array, loss: Array, width: int) -> Array:
        """Return the loss of one width at all computes: inf before its first time."""
        usable = (time > 0.0) & np.isfinite(loss) & (loss > 0.0)
        if not usable.any():
            return np.full_like(compute, np.inf)
        log_time, record = np.log(compute * rate / width), np.log(time[usable])
        return np.where(log_time >= record[0], np.exp(np.interp(log_time, record, np.log(loss[usable]))), np.inf)

    widths, losses = _table(datasets, "width", at_computes)
    losses = np.where(np.isnan(losses), np.inf, losses)
    least = losses.min(axis=2)
    usable = np.isfinite(least)
    return widths, np.where(usable, least, np.nan), np.where(usable, widths[losses.argmin(axis=2)], np.nan)


def _losses(dataset: xr.Dataset) -> tuple[Array, Array]:
    """Return the loss and the loss by the sum formula, which are the same in the answer "prediction"."""
    return dataset["loss"].values, dataset.get("predicted_loss", dataset["loss"]).values


def _table(
    datasets: Sequence[xr.Dataset], name: str, numbers: Callable[[xr.Dataset], Sequence[Array]]
) -> tuple[Array, Array]:
    """Return the sorted values of a field of the problems, and numbers of each dataset, (numbers, seeds, values, …)."""
    by_point = {(_stored(dataset, "seed"), _stored(dataset, name)): np.array(numbers(dataset)) for dataset in datasets}
    seeds, values = (sorted(set(axis)) for axis in zip(*by_point, strict=True))
    count, *shape = next(iter(by_point.values())).shape
    table = np.full((count, len(seeds), len(values), *shape), np.nan)
    for (seed, value), entries in by_point.items():
        table[:, seeds.index(seed), values.index(value)] = entries
    return np.array(values, dtype=np.float64), table


def _stored(dataset: xr.Dataset, name: str) -> int:
    """Return a scalar field of the problem that a dataset answers."""
    return int(json.loads(dataset.attrs["parameters"])["problem"][name])


def law_values(laws: Sequence[ScalingLaw], problem: Problem) -> tuple[Values, dict[str, object]]:
    """Return the variables of the laws, padded to one number of points and of runs, and their coordinates."""
    points, runs = max(law.x.size for law in laws), max(len(law.measured) for law in laws)
    fits, x = np.full((3, len(laws), len(SOURCES)), np.nan), np.full((len(laws), points), np.nan)
    y = np.full((len(laws), len(CURVES), runs, points), np.nan)
    for at, law in enumerate(laws):
        x[at, : law.x.size] = law.x
        for curve, (values, fit) in enumerate(((law.measured, law.fit), (law.predicted, law.finite_size))):
            y[at, curve, : len(values), : law.x.size] = values
            fits[:, at, curve] = fit.exponent, fit.standard_error, fit.prefactor
        fits[:2, at, 2], fits[0, at, 3] = _ideal(law, problem), law.asymptotic
    low, high = np.array([law.fit.window for law in laws]).T
    variables: Values = {
        **{name: (("law",), row) for name, row in zip(FITTED, fits, strict=True)},
        "window_low": ((), low),
        "window_high": ((), high),
        "abscissa": (("law",), x),
        "ordinate": (("law", "curve", "run"), y),
    }
    names = {"law": np.array([law.name for law in laws]), "source": np.array(SOURCES), "curve": np.array(CURVES)}
    return variables, {**names, "run": np.arange(runs), "point": np.arange(points)}


def _ideal(law: ScalingLaw, problem: Problem) -> tuple[float, float]:
    """Return exponent and error of the idealised sum at this P, β and window of ranks; NaN without such a sum."""
    beta, count, name = problem.teacher.beta, problem.num_directions, law.name.partition(",")[0]
    alpha = spectral_decay(problem)
    has_law = name in IDEAL_LAWS and law.ranks[0] < law.ranks[1] and count >= FEWEST_DIRECTIONS
    if not has_law or not beta or alpha is None:
        return np.nan, np.nan
    time_power = beta + 0.5 * alpha * problem.information_exponent
    fit = ideal_exponent(count, beta, name, ranks=law.ranks, time_power=time_power)
    return fit.exponent, fit.standard_error
