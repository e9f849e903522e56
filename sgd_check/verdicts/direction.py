r"""The test of one direction's emergence time: z-score, p-value, and whether an error would have been seen.

Against one predicted time T_p per direction, the null hypothesis is that ln(T_SGD/T_p) scatters
symmetrically about a place in a band (`sgd_check.verdicts.expectation` says which); its place is its mean. The two
edges are two one-sided tests (`sgd_check.verdicts.sides`): Student's t where every run emerged, the randomisation test
of the values cut about the edge where some did not. Each has half of the level of its direction, so that the
false-alarm rate per direction is at most the stated one. Directions share their samples and are combined by Bonferroni,
which needs no independence, at shares of the rate that are known before the runs (`shares_of_rate`). Where the noise
of the runs is known (`sgd_check.verdicts.run_noise`) its part is projected out of ln T first: Student's t is then that
of the intercept of a regression, with one degree of freedom less, and runs without emergence count as of the horizon.

Against a sample of predicted times, the null hypothesis is one law for both samples; `sgd_check.verdicts.survival` has
the test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from hermite.arrays import Array
from sgd_check.verdicts.expectation import band_by_scatter
from sgd_check.verdicts.run_noise import without_noise
from sgd_check.verdicts.sides import Side, early_side, late_side, scatter
from sgd_check.verdicts.survival import cut_at, log_rank, log_rank_scores, permutation_quantile

if TYPE_CHECKING:
    from collections.abc import Callable

FEWEST_RUNS = 4
# "Agree" is said only where an error of this size in the predicted time would have been seen with this probability.
VISIBLE_ERROR = 0.3
POWER = 0.8
#: Errors among which the least visible one is looked for.
LEAST_ERROR, LARGEST_ERROR = 1e-3, 9.0
#: Runs from which on a regression on their noise costs less than it gives.
FEWEST_EXPLAINED = 8
#: The horizon has to lie beyond the band by so many standard deviations of ln T, so that cutting there costs little.
LEAST_REACH = 1.0


@dataclass(frozen=True)
class DirectionTest:
    """The test of one direction on so many runs, of which `censored` did not emerge by the horizon; dimensionless.

    `mean` and `standard_error` are of ln(T_SGD/T_p) over the runs, at the horizon if they did not emerge; against a
    sample of predictions, of the difference of the two means of ln T. `low` and `high` are the band, 0 against a
    sample. `early` and `late` have the p-value of each side, and its power: the probability that a time predicted 30 %
    too late, or too early, is seen; None where no outcome could show such an error. z is the normal score of the
    smaller p-value, negative if that is the early one and 0 inside the band, and p the two-sided p-value; against a
    sample, the log-rank statistic and its p-value by permutations. `sides` gives the two for another error of the time
    than 30 %; None where that is not known.
    """

    runs: int
    censored: int
    mean: float
    standard_error: float
    low: float
    high: float
    early: Side | None
    late: Side | None
    z: float
    p: float
    sides: Callable[[float], tuple[Side | None, Side | None]] | None = None

    @property
    def resolved(self) -> bool:
        """Whether an error of 30 % to either side would have been seen."""
        return _seen(self.early, self.late)

    @property
    def visible(self) -> float:
        """Least relative error of the predicted time that both sides see with probability 0.8, to 1 %; NaN if none."""
        low, high = LEAST_ERROR, LARGEST_ERROR
        if self.sides is None or not _seen(*self.sides(high)):
            return np.nan
        while high > 1.01 * low:
            middle = float(np.sqrt(low * high))
            low, high = (low, middle) if _seen(*self.sides(middle)) else (middle, high)
        return high


def assess_direction(
    log_ratio: Array, log_horizon: float, low: float, high: float, level: float, noise: Array | None = None
) -> DirectionTest | None:
    """Test one direction against one predicted time at a two-sided level; None with fewer than four runs.

    `log_ratio` (runs,) is ln(T_SGD/T_p), NaN where the direction did not emerge within the run, and `log_horizon`
    ln(H/T_p), H the length of the runs. `low` and `high` are the band of the mean; `high` is inf where lateness is no
    evidence, and NaN lets the scatter of the runs decide. `noise` (runs,) is what the samples of the runs say about
    their delays (`run_noise`): with eight runs or more, and a horizon beyond the band by their scatter, its part of
    ln T is taken away. The power is that of runs which scatter and are censored as these, from the edge of the band at
    which the error is harder to see.

    Examples
    --------
    >>> late = assess_direction(np.array([0.5, 0.52, 0.49, 0.51]), 1.0, 0.0, 0.04, 0.01)
    >>> late.p < 1e-4, late.z > 0
    (True, True)
    >>> early = assess_direction(np.array([np.nan, *np.linspace(-0.6, -0.2, 31)]), 1.0, 0.0, 0.04, 0.01)
    >>> early.censored, early.p < 1e-4, early.z < 0
    (1, True, True)
    """
    missing = np.isnan(log_ratio)
    n = log_ratio.size
    if n < FEWEST_RUNS:
        return None
    counted = np.where(missing, log_horizon, log_ratio)
    if np.isnan(low):
        low, high = band_by_scatter(scatter(log_ratio, log_horizon), complete=not missing.any())
    reach = (log_horizon - high) / max(float(counted.std(ddof=1)), 1e-12)
    if noise is not None and n >= FEWEST_EXPLAINED and np.isfinite(noise).all() and reach >= LEAST_REACH:
        # Values cut at the horizon have a smaller mean: by this for a normal law.
        low -= float(
            counted.std(ddof=1) * (np.exp(-0.5 * reach**2) / np.sqrt(2 * np.pi) - reach * special.ndtr(-reach))
        )
        counted = log_ratio = without_noise(counted, noise)
        log_horizon = np.inf

    def sides(error: float) -> tuple[Side | None, Side | None]:
        shift = float(np.log1p(error))
        early = early_side(log_ratio, log_horizon, low, high - shift, level)
        return early, late_side(log_ratio, log_horizon, high, low + shift, level)

    early, late = sides(VISIBLE_ERROR)
    z, p = _two_sided(early, late)
    error = float(counted.std(ddof=1) / np.sqrt(counted.size))
    censored, mean = int(missing.sum()), float(counted.mean())
    return DirectionTest(n, censored, mean, error, low, high, early, late, z, p, sides)


def _seen(*sides: Side | None) -> bool:
    """Return whether the error that the sides were asked for is seen with probability 0.8 by all of them."""
    return all(side is not None and side.power >= POWER for side in sides)


def _two_sided(early: Side | None, late: Side | None) -> tuple[float, float]:
    """Return normal score and two-sided p-value of two one-sided tests, 0 and 1 where neither speaks against theory."""
    chances = [1.0 if side is None else side.p for side in (early, late)]
    p = min(1.0, 2.0 * min(chances))
    if p == 1.0:
        return 0.0, 1.0
    return float(np.copysign(special.ndtri(0.5 * p), chances[0] - chances[1])), p


def assess_samples(predicted: Array, simulated: Array, horizon: float, p: float, level: float) -> DirectionTest | None:
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
    early, late = map(Side, (away, towards) if z > 0 else (towards, away), powers)
    return DirectionTest(simulated.size, censored, mean, error, 0.0, 0.0, early, late, z, p)


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


def reach_factor(runs: int, level: float) -> float:
    """Return the shift of the mean that a test at this level sees with probability 0.8, in units of the scatter."""
    quantiles = special.stdtrit(runs - 1, 1.0 - level / 2) + special.stdtrit(runs - 1, POWER)
    return float(quantiles / np.sqrt(runs))


def normal_score(distance: float, error: float, freedom: int) -> float:
    """Return the normal score with the tail probability of Student's t = distance/error."""
    if distance == 0.0:
        return 0.0
    if error == 0.0:
        return float(np.copysign(np.inf, distance))
    t = abs(distance) / error
    tail = special.stdtr(freedom, -t)
    return float(np.copysign(-special.ndtri(tail) if tail > 0 else np.inf, distance))


def shares_of_rate(time: Array, end: float) -> Array:
    """Return what share of the rate of false alarms every direction has, of sum 1; 0 where none is predicted.

    The directions predicted up to the end of the runs have one share each, all later ones together have one more. So
    the shares depend on the prediction alone, and the many that nobody waits for cost the others little.
    """
    later = time > end
    weights = np.where(later, 1.0 / max(int(later.sum()), 1), np.where(np.isnan(time), 0.0, 1.0))
    return np.asarray(weights / max(float(weights.sum()), 1.0))


def combined_p_value(p_values: Array, shares: Array) -> float:
    """Return the global p-value of the tested directions (NaN: not tested) by Bonferroni; 1 if none was."""
    tested = np.isfinite(p_values)
    return float(min(1.0, np.min(p_values[tested] / shares[tested], initial=1.0)))
