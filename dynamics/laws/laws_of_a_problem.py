"""Scaling laws read off answers to one problem from several starts: the loss in time and samples, emergence times.

Every law is fitted three times over the same points: as measured, as the sum formula has it at this size and start, and
as the asymptotic exponent says. Laws over widths and dimensions are in `laws_across_problems`.

Windows, in words: in time, that of `dynamics.theory.fits.default_window` (from the first learned direction to the one
of rank N^0.75); in direction and in width, from P^0.25 to P^0.75, because the first few directions are a staircase and
the sum over the last ones is far from its limit; in compute, while the best width is neither the smallest, nor the
largest, nor above P^0.75.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import Problem
from dynamics.problem.checks import checked_number
from dynamics.runs.dataset import stored_exponents
from dynamics.theory.fits import WINDOW_POWER, PowerLawFit, default_window, first_crossing, fit_runs, widening
from dynamics.theory.learning_rates import target_losses, tuned_rates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import xarray as xr

    from hermite.arrays import Array

#: Power of the number of directions at which windows in direction and width begin.
FIRST_POWER = 0.25
TUNED_TARGETS = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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
    #: `dynamics.theory.fits.fit_power_law`.
    fit: PowerLawFit
    finite_size: PowerLawFit
    #: Exponent for P, d → ∞; NaN where there is no law.
    asymptotic: float
    #: How many directions are learned at the ends of the window, for the idealised sum; NaN where that has no law.
    ranks: tuple[float, float]


def over_starts(
    read: Callable[[Sequence[xr.Dataset]], tuple[ScalingLaw, ...]], starts: Sequence[Sequence[xr.Dataset]]
) -> tuple[ScalingLaw, ...]:
    r"""Read laws off the datasets of all starts, with errors by a jackknife over starts.

    .. math:: \delta s^2 = w^2\, \frac{R-1}{R} \sum_r (s_{(r)} - \overline{s_{(\cdot)}})^2

    s_(r) is the exponent that the whole reading finds without start r, window included: windows depend on the starts,
    and exponents on windows. w widens it as in `dynamics.theory.fits.widening`.
    """
    laws = read([one for datasets in starts for one in datasets])
    if len(starts) < 2:
        return laws
    rest = [[one for s, datasets in enumerate(starts) if s != r for one in datasets] for r in range(len(starts))]
    # One tuple per law: what is read without each start.
    without = zip(*map(read, rest), strict=True)
    return tuple(_jackknifed(law, others) for law, others in zip(laws, without, strict=True))


def _jackknifed(law: ScalingLaw, without: Sequence[ScalingLaw]) -> ScalingLaw:
    """Return a law with the errors told by the same law without each start; as it is where one of these fails."""

    def wider(fit: PowerLawFit, others: Sequence[PowerLawFit]) -> PowerLawFit:
        exponents = np.array([one.exponent for one in others])
        error = float(np.sqrt((exponents.size - 1) * exponents.var())) * widening(exponents.size)
        return replace(fit, standard_error=error) if np.isfinite(error) else fit

    return replace(
        law,
        fit=wider(law.fit, [one.fit for one in without]),
        finite_size=wider(law.finite_size, [one.finite_size for one in without]),
    )


def loss_against_time(datasets: Sequence[xr.Dataset]) -> ScalingLaw:
    """Fit L ∝ t^s ("loss-time") by one dataset with `loss(time)` per start, all at the same times.

    The window goes from the geometric mean of the starts' first ends to that of the last. `predicted_loss` is compared
    where there is one.

    Examples
    --------
    >>> import dynamics
    >>> teacher = dynamics.Teacher.power_law(256, beta=1.0)
    >>> problem = dynamics.Problem(activation="he4", teacher=teacher, width=768, dimension=4096)
    >>> law = loss_against_time([dynamics.solve_decoupled(problem)])
    >>> law.asymptotic, round(law.finite_size.exponent, 1)
    (-1.0, -1.1)
    """
    return over_starts(_loss_against_time, [[one] for one in datasets])[0]


def _loss_against_time(datasets: Sequence[xr.Dataset]) -> tuple[ScalingLaw]:
    time = _common_time(datasets)
    windows = np.array([found for one in datasets if (found := default_window(one)) is not None])
    window = (np.nan, np.nan) if windows.size == 0 else tuple(np.exp(np.log(windows).mean(axis=0)).tolist())
    positive = time > 0.0
    loss = np.stack([one["loss"].values for one in datasets])[:, positive]
    predicted = np.stack([sum_formula_of(one) for one in datasets])[:, positive]
    ranks = (1.0, float(round(datasets[0].sizes["direction"] ** WINDOW_POWER)))
    limit = stored_exponents(datasets[0]).loss_time
    return (fitted_law("loss-time", time[positive], loss, predicted, window, limit, ranks=ranks),)


def loss_against_samples(datasets: Sequence[xr.Dataset], learning_rate: float) -> ScalingLaw:
    """Fit L ∝ n^s at a fixed step size, n = t/η samples, one per step; see `loss_against_time`."""
    rate = checked_number(learning_rate, "learning_rate", positive=True)
    law = loss_against_time(datasets)
    return replace(
        law,
        name="loss-samples",
        x=law.x / rate,
        fit=_stretched(law.fit, 1.0 / rate),
        finite_size=_stretched(law.finite_size, 1.0 / rate),
    )


def loss_against_tuned_samples(datasets: Sequence[xr.Dataset], rate: float) -> ScalingLaw:
    r"""Fit L ∝ n^s ("loss-samples-tuned") at a step size tuned to the last wanted direction p̄, by a dataset per start.

    .. math:: \eta_{\bar p} = c\, a_{\bar p}\, d^{-k/2}, \qquad n_{\bar p} = t_{\bar p}/\eta_{\bar p}

    with t_p̄ the first time at which the loss is that of p̄ learned directions, the last by half. The rate c is small:
    the times are those of the flow, without the delay by noise that c brings. There are twenty p̄ from P^0.25 to P^0.75
    of a teacher with falling coefficients, and x holds the geometric mean over starts of n. ln n is fitted against ln
    L, which is exact, and the slope inverted.
    """
    checked_number(rate, "rate", positive=True)
    return over_starts(partial(_loss_against_tuned_samples, rate=rate), [[one] for one in datasets])[0]


def _loss_against_tuned_samples(datasets: Sequence[xr.Dataset], *, rate: float) -> tuple[ScalingLaw]:
    problem = Problem.from_dataset(datasets[0])
    first, last = middle_ranks(problem.num_directions)
    targets = np.unique(np.geomspace(first, last, TUNED_TARGETS).round().astype(np.int64))
    levels, rates = target_losses(problem, targets), tuned_rates(problem, targets, rate)

    def samples(loss_of: Callable[[xr.Dataset], Array]) -> Array:
        needed = [[first_crossing(one["time"], loss_of(one), level) for level in levels.tolist()] for one in datasets]
        return np.array(needed) / rates

    found, predicted = samples(lambda one: one["loss"].values), samples(sum_formula_of)
    x = _log_mean(found)
    law = ScalingLaw(
        name="loss-samples-tuned",
        x=x,
        measured=levels[None, :],
        predicted=_resampled(x, _log_mean(predicted), levels)[None, :],
        fit=_inverse(levels, found, x),
        finite_size=_inverse(levels, predicted, x),
        asymptotic=stored_exponents(datasets[0]).loss_samples,
        ranks=(float(targets[0]), float(targets[-1])),
    )
    return (law,)


def times_against_direction(datasets: Sequence[xr.Dataset]) -> ScalingLaw:
    """Fit T_p ∝ p^s ("time-direction") over directions from P^0.25 to P^0.75, by one dataset per start.

    Directions that do not emerge at every start enter no fit.
    """
    return over_starts(_times_against_direction, [[one] for one in datasets])[0]


def _times_against_direction(datasets: Sequence[xr.Dataset]) -> tuple[ScalingLaw]:
    measured = np.stack([one["emergence_time"].values for one in datasets])
    predicted = np.stack([one["predicted_emergence_time"].values for one in datasets])
    p = datasets[0]["direction"].values.astype(np.float64)
    law = fitted_law(
        "time-direction",
        p,
        measured,
        predicted,
        middle_ranks(p.size),
        stored_exponents(datasets[0]).emergence_time_direction,
    )
    return (law,)


def fitted_law(
    name: str,
    x: Array,
    measured: Array,
    predicted: Array,
    window: tuple[float, ...],
    asymptotic: float,
    *,
    ranks: tuple[float, float] = (np.nan, np.nan),
) -> ScalingLaw:
    """Return the law of points (N,) and of curves (R, N), both fitted over one window (low, high)."""
    low, high = window
    return ScalingLaw(
        name=name,
        x=x,
        measured=measured,
        predicted=predicted,
        fit=fit_runs(x, measured, window=(low, high)),
        finite_size=fit_runs(x, predicted, window=(low, high)),
        asymptotic=asymptotic,
        ranks=ranks,
    )


def middle_ranks(count: int) -> tuple[float, float]:
    """Return the window of ranks among so many directions, from P^0.25 to P^0.75."""
    return float(np.floor(count**FIRST_POWER)), float(np.ceil(count**WINDOW_POWER))


def sum_formula_of(dataset: xr.Dataset) -> Array:
    """Return the loss by the sum formula; in the answer "prediction" that is the loss itself."""
    name = "predicted_loss" if "predicted_loss" in dataset else "loss"
    loss: Array = dataset[name].values
    return loss


def _common_time(datasets: Sequence[xr.Dataset]) -> Array:
    """Return the times that all answers share."""
    time: Array = datasets[0]["time"].values
    if any(not np.array_equal(one["time"].values, time) for one in datasets):
        msg = "Argument `datasets` must hold answers at the same times, but their times differ."
        raise ValueError(msg)
    return time


def _log_mean(values: Array) -> Array:
    """Return the geometric mean over runs; NaN where a run is unknown."""
    mean: Array = np.exp(np.log(values).mean(axis=0))
    return mean


def _inverse(levels: Array, samples: Array, shown: Array) -> PowerLawFit:
    """Return the law of L against n from a fit of n against L, whose window is that of n."""
    fit = fit_runs(levels[::-1], samples[:, ::-1])
    known = shown[np.isfinite(shown)]
    exponent = 1.0 / fit.exponent
    return PowerLawFit(
        exponent=exponent,
        standard_error=fit.standard_error * exponent**2,
        prefactor=fit.prefactor**-exponent,
        window=(float(known[0]), float(known[-1])) if known.size else (np.nan, np.nan),
        count=fit.count,
    )


def _resampled(x: Array, from_x: Array, y: Array) -> Array:
    """Return y at x, interpolated in log–log, NaN outside."""
    known = np.isfinite(from_x)
    if not known.any():
        return np.full_like(x, np.nan)
    at = np.interp(np.log(x), np.log(from_x[known]), np.log(y[known]), left=np.nan, right=np.nan)
    resampled: Array = np.exp(at)
    return resampled


def _stretched(fit: PowerLawFit, factor: float) -> PowerLawFit:
    """Return the same law of factor · x."""
    low, high = fit.window
    return replace(fit, prefactor=fit.prefactor * factor**-fit.exponent, window=(factor * low, factor * high))
