r"""Emergence times with censoring: Kaplan–Meier curves, the expected curve, and the test of two samples.

Times are NaN where a run ended at the horizon without emergence: it is censored.

The test of two samples is the log-rank test. Its score of a run is 1{emerged} − Λ(T), Λ the Nelson–Aalen hazard of both
samples together, and the sum of a sample's scores is observed minus expected emergences. All runs of both samples are
cut at one horizon, so that under the null hypothesis of one law for both they are exchangeable: p-values come from
permutations of whole runs and hold for any number of them, where the asymptotic test at level 1 % alarms in 1.4 % of
cases (measured, 16 + 16 runs). The global p-value is that of the largest standardised sum over all columns (Westfall
and Young 1993), exact whatever their dependence.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hermite.arrays import Array
from sgd_check.verdicts.time_tests import OneSided, TimeTest
from sgd_check.verdicts.verdict import FEWEST_RUNS, VISIBLE_ERROR

#: Level of the pointwise confidence intervals.
CONFIDENCE = 0.95
PERMUTATIONS = 9_999
PERMUTATION_SEED = 0
_FEWEST_BEYOND = 10


class SurvivalCurve(NamedTuple):
    """Share of runs without emergence, with its pointwise confidence interval; all of the shape of the times."""

    value: Array
    low: Array
    high: Array


class PermutationTest(NamedTuple):
    """p-values of every column, and of all together."""

    each: Array
    together: float


def kaplan_meier(emergence: Array, horizon: float, times: Array) -> SurvivalCurve:
    r"""Return the Kaplan–Meier estimate of P(T > t) from times of emergence (runs,), with 95 % intervals.

    It is NaN beyond the horizon. Intervals are by Greenwood's formula for ln(−ln S); where S is 1 or 0, the exact
    interval of as many runs all alike.

    Examples
    --------
    >>> curve = kaplan_meier(np.array([1.0, 2.0, np.nan, np.nan]), 3.0, np.array([0.5, 1.5, 2.5]))
    >>> curve.value.tolist()
    [1.0, 0.75, 0.5]
    """
    import warnings

    from scipy import stats

    if emergence.size == 0:
        nothing = np.full(times.shape, np.nan)
        return SurvivalCurve(nothing, nothing, nothing)
    survival: Any = stats.ecdf(_censored(emergence, horizon)).sf
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
        interval = survival.confidence_interval(CONFIDENCE, method="log-log")
    value, low, high = (
        np.asarray(curve.evaluate(times), dtype=np.float64) for curve in (survival, interval.low, interval.high)
    )
    least = (0.5 * (1.0 - CONFIDENCE)) ** (1.0 / emergence.size)
    low = np.where(value >= 1.0, least, np.where(value <= 0.0, 0.0, low))
    high = np.where(value >= 1.0, 1.0, np.where(value <= 0.0, 1.0 - least, high))
    seen = times <= horizon
    return SurvivalCurve(*(np.where(seen, curve, np.nan) for curve in (value, low, high)))


def median_time(emergence: Array, horizon: float) -> float:
    """Return the first time at which at most half of the runs are without emergence; NaN if there is none."""
    if emergence.size == 0:
        return np.nan
    late = np.sort(np.where(np.isnan(emergence), np.inf, emergence))
    middle = float(late[(late.size - 1) // 2])
    return middle if middle <= horizon else np.nan


def expected_survival(time: float, delay: float, scatter: float, times: Array) -> Array:
    """Return P(T > t) of the log-normal law of mean `time` (1 + delay), `scatter` of ln T; NaN if one is unknown."""
    if not (np.isfinite(time) and np.isfinite(delay) and np.isfinite(scatter)):
        return np.full(times.shape, np.nan)
    with np.errstate(divide="ignore"):
        beyond = np.log(time) + np.log1p(delay) - 0.5 * scatter**2 - np.log(times)
    if scatter == 0.0:
        return np.asarray((beyond > 0).astype(np.float64))
    with np.errstate(under="ignore", over="ignore"):
        return np.asarray(special.ndtr(beyond / scatter))


def log_rank(first: Array, second: Array, horizon: float) -> float:
    """Return the log-rank statistic, a normal score: positive if the second sample emerges later than the first."""
    from scipy import stats

    if not (np.isfinite(first).any() or np.isfinite(second).any()):
        return 0.0
    statistic = stats.logrank(_censored(first, horizon), _censored(second, horizon)).statistic
    return float(statistic)


def log_rank_scores(emergence: Array, horizon: float) -> Array:
    """Return the log-rank scores 1{emerged} − Λ(T) of the runs of both samples together, of sum 0."""
    emerged = np.isfinite(emergence)
    times = np.where(emerged, emergence, np.inf)
    at, counts = np.unique(times[emerged], return_counts=True)
    at_risk = np.array([np.count_nonzero(times >= t) for t in at], dtype=np.float64)
    hazard = np.concatenate([[0.0], np.cumsum(counts / at_risk)]) if at.size else np.zeros(1)
    return np.asarray(emerged - hazard[np.searchsorted(at, np.minimum(times, horizon), side="right")])


def permutation_test(scores: Array, second: NDArray[np.bool_]) -> PermutationTest:
    """Test whether two samples of runs have one law, from scores (runs, columns) that sum to 0 in every column.

    `second` marks the runs of the second sample. The p-values are (1 + number of permutations at least as far) /
    (1 + permutations), which has at most the stated rate of false alarms; two-sided. A column without variation has
    p = 1.
    """
    spread = np.sqrt(np.mean(scores**2, axis=0))
    scaled = scores / np.where(spread > 0, spread, 1.0)
    found = np.abs(second.astype(np.float64) @ scaled)
    sums = np.abs(_relabelled(second.size, int(np.count_nonzero(second)), PERMUTATIONS) @ scaled)
    # Sums of the same scores in another order differ by rounding.
    tolerance = 1e-9 * max(1.0, float(found.max(initial=0.0)))
    each = (1 + np.count_nonzero(sums >= found - tolerance, axis=0)) / (1 + PERMUTATIONS)
    largest = np.count_nonzero(sums.max(axis=1, initial=0.0) >= found.max(initial=0.0) - tolerance)
    return PermutationTest(np.asarray(each), float((1 + largest) / (1 + PERMUTATIONS)))


def permutation_quantile(scores: Array, count: int, level: float) -> float:
    """Return what the size of the sum of `count` of the scores, drawn at random, exceeds with probability `level`.

    Too far out for the number of permutations, the normal quantile is taken if it is larger.
    """
    runs = scores.size
    sums = np.abs(_relabelled(runs, count, PERMUTATIONS) @ scores)
    quantile = float(np.quantile(sums, 1.0 - level))
    if level * PERMUTATIONS >= _FEWEST_BEYOND:
        return quantile
    variance = count * (runs - count) / (runs * (runs - 1.0)) * float(np.sum(scores**2))
    return max(quantile, float(-special.ndtri(level / 2) * np.sqrt(variance)))


@lru_cache(maxsize=4)
def _relabelled(runs: int, count: int, permutations: int) -> Array:
    """Return random labels, 1 for `count` of the runs and 0 for the others, shape (permutations, runs)."""
    rng = np.random.default_rng(PERMUTATION_SEED)
    labels = (np.arange(runs) < count).astype(np.float64)
    return rng.permuted(np.tile(labels, (permutations, 1)), axis=1)


def cut_at(emergence: Array, horizon: float) -> Array:
    """Return the times with those beyond the horizon censored."""
    with np.errstate(invalid="ignore"):
        return np.where(emergence <= horizon, emergence, np.nan)


def _censored(emergence: Array, horizon: float) -> Any:
    from scipy import stats

    emerged = np.isfinite(emergence)
    right = np.full(int(np.count_nonzero(~emerged)), horizon)
    return stats.CensoredData(uncensored=emergence[emerged], right=right)


def assess_samples(predicted: Array, simulated: Array, horizon: float, p: float, level: float) -> TimeTest | None:
    """Describe the test of one direction against a sample of predicted times; None with fewer than four of either.

    The times (runs,) are NaN where there was none by the common horizon; `p` is from `survival.permutation_test`. A
    direction that no run of either sample has by the horizon is not tested.
    """
    samples = (predicted, simulated)
    if min(sample.size for sample in samples) < FEWEST_RUNS or not any(np.isfinite(s).any() for s in samples):
        return None
    with np.errstate(divide="ignore"):
        logs = [np.log(np.where(np.isnan(sample), horizon, np.maximum(sample, 1e-12 * horizon))) for sample in samples]
    mean = float(logs[1].mean() - logs[0].mean())
    error = float(np.sqrt(sum(part.var(ddof=1) / part.size for part in logs)))
    censored = int(np.isnan(simulated).sum())
    z = log_rank(predicted, simulated, horizon)
    powers = log_rank_powers(predicted, simulated, horizon, level)
    towards, away = 0.5 * p, 1.0 - 0.5 * p
    early, late = map(OneSided, (away, towards) if z > 0 else (towards, away), powers)
    return TimeTest(simulated.size, censored, mean, error, 0.0, 0.0, early, late, z, p)


def log_rank_powers(first: Array, second: Array, horizon: float, level: float) -> tuple[float, float]:
    """Return the probabilities that the log-rank test sees the second sample shrunk, and stretched, by 30 %.

    Both samples are replaced by as many evenly spaced quantiles of the two together, the second then stretched. Their
    sum of scores is the mean that the sum would have, with the variance of the log-rank statistic; it is seen beyond
    the quantile of its permutations.
    """
    pooled = np.sort(np.where(np.isnan(both := np.concatenate([first, second])), np.inf, both))

    def quantiles(count: int) -> Array:
        return pooled[((np.arange(count) + 0.5) / count * pooled.size).astype(np.intp)]

    def power(factor: float) -> float:
        one, other = cut_at(quantiles(first.size), horizon), cut_at(factor * quantiles(second.size), horizon)
        score = abs(log_rank(one, other, horizon))
        if score == 0.0:
            return 0.0
        scores = log_rank_scores(np.concatenate([one, other]), horizon)
        total = abs(float(scores[first.size :].sum()))
        margin = total - permutation_quantile(scores, second.size, level)
        return float(special.ndtr(margin * score / total))

    return power(1.0 / (1.0 + VISIBLE_ERROR)), power(1.0 + VISIBLE_ERROR)
