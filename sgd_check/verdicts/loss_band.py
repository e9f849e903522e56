r"""The loss of the runs against a predicted loss: at which times the mean may be compared, and how far it is off.

While a direction emerges, runs that are early and runs that are late differ by the whole drop of the loss, and their
mean follows neither of them nor the prediction. So the mean is held against *one* predicted curve L only where L hardly
depends on how early or late runs are: with [r₁, r₂] the range of the ratios T_SGD/T_p of a run, 1 included, its loss is
one of L(t/r), r₁ ≤ r ≤ r₂. The mean over runs of the smallest and of the largest of these are what the prediction
allows the mean loss, and t is compared where they differ by at most 5 %: before the first emergence and on plateaus
between emergences. A run that misses a direction has r₂ = ∞. Times before a tenth of the first emergence are left out:
few samples have moved the loss then, hardly and with heavy tails. The z-score is the distance of the mean from what is
allowed in standard errors. The rule looks at the runs, and corrections of second order in the scatter remain, so no
rate of false alarms is claimed and the verdict does not use it.

Against a sample of predicted runs every time from a tenth of the first emergence on is compared, by ranks, but where
the mean predicted loss is not known to a standard error at the times of the simulation: under one
law for both samples runs are exchangeable, and the largest rank sum over all times is tested by permutations of runs,
at an exact rate of false alarms (`sgd_check.verdicts.survival.permutation_test`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from sgd_check.verdicts.alignment import of_sound_runs, sound_runs
from sgd_check.verdicts.direction import FEWEST_RUNS, normal_score
from sgd_check.verdicts.saved_values import interpolated, known_between
from sgd_check.verdicts.survival import permutation_test

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    from hermite.arrays import Array

#: A predicted loss that varies by no more than this over the times that runs are early or late is a plateau.
LARGEST_VARIATION = 0.05
_RATIOS = 17
#: The loss is compared from this part of the first emergence on.
EARLIEST_SHARE = 0.1


class LossBand(NamedTuple):
    """Loss of the runs beside the predicted one, shape (times,) each; NaN where there is nothing.

    `low` and `high` bound what the prediction allows; `z` is NaN where `compared` is false; `p` is the global p-value
    of the times compared, NaN where no rate of false alarms can be claimed.
    """

    mean: Array
    standard_error: Array
    expected: Array
    low: Array
    high: Array
    z: Array
    compared: NDArray[np.bool_]
    p: float


def loss_against_theory(prediction: xr.Dataset, simulation: xr.Dataset, time: Array, ratio: Array) -> LossBand | None:
    """Hold the loss of runs against that of a prediction, None without one; `ratio` (runs, P) is of times to `time`."""
    if "loss" not in prediction or "time" not in prediction["loss"].dims or not sound_runs(simulation).any():
        return None
    with np.errstate(invalid="ignore"):
        due = time <= float(simulation.attrs["end_time"])
    known = ratio[:, due]
    slowest = np.where(np.isnan(known), np.inf, known).max(axis=1, initial=1.0)
    fastest = np.maximum(np.where(np.isnan(known), 1.0, known).min(axis=1, initial=1.0), 1e-12)
    return against_curve(
        simulation["time"].values,
        of_sound_runs(simulation, "loss"),
        prediction["time"].values,
        np.asarray(prediction["loss"].values, dtype=np.float64),
        fastest,
        slowest,
        float(np.nanmin(time, initial=np.inf)),
    )


def loss_against_sample(prediction: xr.Dataset, simulation: xr.Dataset, emergence: Array) -> LossBand | None:
    """Hold the loss of runs against that of predicted runs, None without one; `emergence` are the times of all."""
    if "loss" not in prediction or not (sound_runs(simulation).any() and sound_runs(prediction).any()):
        return None
    ours, theirs = ((part["time"].values, of_sound_runs(part, "loss")) for part in (simulation, prediction))
    return against_sample(*ours, *theirs, float(np.nanmin(emergence, initial=np.inf)))


def against_curve(
    times: Array,
    losses: Array,
    predicted_times: Array,
    predicted_loss: Array,
    fastest: Array,
    slowest: Array,
    first_emergence: float,
) -> LossBand:
    """Hold the mean loss of runs against one predicted curve.

    `losses` (runs, times) are those of the runs that did not blow up, NaN where there is no record; `fastest` and
    `slowest` (runs,) the smallest and largest measured ratio of times of each run, around 1, inf if it misses a
    direction; `first_emergence` the earliest predicted one, inf if there is none.
    """
    mean, error = _mean_and_error(losses)
    expected = interpolated(predicted_times, predicted_loss, times)
    low, high = _allowed(times, predicted_times, predicted_loss, fastest, slowest)
    positive = times > 0
    with np.errstate(invalid="ignore"):
        compared = positive & (times >= EARLIEST_SHARE * first_emergence) & np.isfinite(mean) & (error > 0)
        compared &= high <= (1.0 + LARGEST_VARIATION) * low
    distance = np.maximum(mean - high, 0.0) + np.minimum(mean - low, 0.0)
    z = np.full(times.size, np.nan)
    runs = losses.shape[0]
    z[compared] = [normal_score(d, e, runs - 1) for d, e in zip(distance[compared], error[compared], strict=True)]
    return LossBand(mean, error, expected, low, high, z, compared, np.nan)


def _allowed(
    times: Array, predicted_times: Array, predicted_loss: Array, fastest: Array, slowest: Array
) -> tuple[Array, Array]:
    """Return the mean over runs of the smallest and of the largest loss that their ratios allow, shape (times,)."""
    known = np.isfinite(predicted_loss)
    start = float(predicted_times[known][0]) if known.any() else np.nan
    # A run cannot be behind the start of the prediction.
    earliest = np.maximum(times / slowest[:, None], np.minimum(start, times))
    latest = times / fastest[:, None]
    share = np.linspace(0.0, 1.0, _RATIOS)[:, None, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        grid = np.where(earliest > 0, earliest * (latest / earliest) ** share, share * latest)
    moved = interpolated(predicted_times, predicted_loss, grid)
    return moved.min(axis=0).mean(axis=0), moved.max(axis=0).mean(axis=0)


def against_sample(
    times: Array, losses: Array, predicted_times: Array, predicted_losses: Array, first_emergence: float
) -> LossBand:
    """Hold the loss of runs against the loss of predicted runs; z is the rank sum of the former as a normal score.

    Losses (runs, times) are those of runs that did not blow up; `first_emergence` is the earliest of any run, inf if
    there is none. The variance of z is that of permutations.
    """
    mean, error = _mean_and_error(losses)
    predicted = interpolated(predicted_times, predicted_losses, times)
    expected, its_error = _mean_and_error(predicted)
    error = np.hypot(error, its_error)
    enough = min(losses.shape[0], predicted.shape[0]) >= FEWEST_RUNS
    late_enough = times >= EARLIEST_SHARE * first_emergence
    saved = known_between(predicted_times, predicted_losses.mean(axis=0), times, np.nan_to_num(error))
    compared = late_enough & np.isfinite(mean) & np.isfinite(expected) & enough & saved
    z, p = np.full(times.size, np.nan), np.nan
    if compared.any():
        both = np.concatenate([predicted, losses])[:, compared]
        ranks = np.argsort(np.argsort(both, axis=0, kind="stable"), axis=0).astype(np.float64)
        ranks -= ranks.mean(axis=0)
        second = np.arange(both.shape[0]) >= predicted.shape[0]
        n, m = losses.shape[0], predicted.shape[0]
        z[compared] = second @ ranks / np.sqrt(n * m * (n + m + 1) / 12.0)
        p = permutation_test(ranks, second).together
    return LossBand(mean, error, expected, expected, expected, z, compared, p)


def critical_score(count: int, rate: float) -> float:
    """Return the score that none of `count` times exceeds with probability 1 − rate at least, by Bonferroni."""
    return float(special.ndtri(1.0 - rate / (2 * max(count, 1))))


def _mean_and_error(losses: Array) -> tuple[Array, Array]:
    """Return mean and standard error over runs, NaN where a run has no record or there are fewer than two."""
    if losses.shape[0] < 2:
        nothing = np.full(losses.shape[1], np.nan)
        return nothing, nothing
    return losses.mean(axis=0), losses.std(axis=0, ddof=1) / np.sqrt(losses.shape[0])
