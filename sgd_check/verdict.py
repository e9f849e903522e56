r"""The statistics of emergence times: times in, z-scores, p-values and what could have been seen out.

Knows arrays alone. Against one predicted time T_p per direction, the null hypothesis is that the mean of ln(T_SGD/T_p)
lies in a band (`sgd_check.expectation` says which). The distance of the sample mean from the band in standard errors is
Student's t with n − 1 degrees of freedom at the band's edge, so that the false-alarm rate per direction is at most the
stated one for normal scatter of ln T. Directions share their samples and are combined by Bonferroni, which needs no
independence.

Against a sample of predicted times, the null hypothesis is one law for both samples; `sgd_check.survival` has the test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from sgd_check.expectation import band_by_scatter
from sgd_check.survival import cut_at, log_rank, log_rank_scores, permutation_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_RUNS = 4
# "Agree" is said only where an error of this size in the predicted time would have been seen with this probability.
VISIBLE_ERROR = 0.3
POWER = 0.8


@dataclass(frozen=True)
class DirectionTest:
    """The test of one direction; all numbers dimensionless.

    Attributes
    ----------
    runs, censored : int
        Runs used, and how many of them entered at the horizon as lower bounds.
    mean, standard_error : float
        Of ln(T_SGD/T_p) over the runs; against a sample of predictions, of the difference of the two means of ln T.
    low, high : float
        The band; 0 against a sample.
    z, p : float
        Signed distance from the band as a normal score, and its two-sided p-value; against a sample, the log-rank
        statistic and its p-value by permutations.
    resolved : bool
        Whether an error of 30 % would have been seen.
    """

    runs: int
    censored: int
    mean: float
    standard_error: float
    low: float
    high: float
    z: float
    p: float
    resolved: bool


def assess_direction(
    log_ratio: NDArray[np.float64], log_horizon: float, low: float, high: float, level: float
) -> DirectionTest | None:
    """Test one direction against one predicted time, or return None with fewer than four runs.

    Parameters
    ----------
    log_ratio : ndarray, shape (runs,)
        ln(T_SGD/T_p); NaN where the direction did not emerge within the run.
    log_horizon : float
        ln(H/T_p), H the length of the runs.
    low, high : float
        Band of the mean; `high` is inf where lateness is no evidence, and NaN lets the scatter of the runs decide.
    level : float
        Level of the two-sided test of this one direction.

    Notes
    -----
    A run without emergence enters at the horizon. That can only lower the mean, so lateness stays a safe conclusion;
    earliness is concluded only when every run emerged.

    Examples
    --------
    >>> late = assess_direction(np.array([0.5, 0.52, 0.49, 0.51]), 1.0, 0.0, 0.04, 0.01)
    >>> late.p < 1e-4, late.z > 0
    (True, True)
    """
    missing = np.isnan(log_ratio)
    values = np.where(missing, log_horizon, log_ratio)
    n, censored = values.size, int(missing.sum())
    if n < FEWEST_RUNS:
        return None
    mean = float(values.mean())
    error = float(values.std(ddof=1) / np.sqrt(n))
    if np.isnan(low):
        low, high = band_by_scatter(error * np.sqrt(n), complete=censored == 0)
    early = 0.0 if censored else min(mean - low, 0.0)
    distance = max(mean - high, 0.0) + early
    score = normal_score(distance, error, n - 1)
    p = 1.0 if score == 0 else float(min(1.0, 2.0 * special.ndtr(-abs(score))))
    visible = float(np.log1p(VISIBLE_ERROR))
    reach = reach_factor(n, level) * error * np.sqrt(n)
    resolved = bool(high - low + reach <= visible and log_horizon >= visible)
    return DirectionTest(n, censored, mean, error, low, high, score, p, resolved)


def assess_samples(
    predicted: NDArray[np.float64], simulated: NDArray[np.float64], horizon: float, p: float, level: float
) -> DirectionTest | None:
    """Describe the test of one direction against a sample of predicted times; None with fewer than four of either.

    Parameters
    ----------
    predicted, simulated : ndarray, shape (runs,)
        Times of emergence; NaN where there was none by the horizon.
    horizon : float
        Common end of the runs.
    p : float
        p-value of the direction, from `survival.permutation_test`.
    level : float
        Level of the two-sided test of this one direction.

    Notes
    -----
    A direction that no run of either sample has by the horizon is not tested.
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
    resolved = shift_is_visible(predicted, simulated, horizon, level)
    return DirectionTest(simulated.size, censored, mean, error, 0.0, 0.0, z, p, resolved)


def shift_is_visible(first: NDArray[np.float64], second: NDArray[np.float64], horizon: float, level: float) -> bool:
    """Return whether the log-rank test would see the second sample stretched or shrunk by 30 %, with probability 0.8.

    Both samples are replaced by as many evenly spaced quantiles of the two together, the second then stretched. Their
    sum of scores is the mean that the sum would have, with the variance of the log-rank statistic; it is seen beyond
    the quantile of its permutations.
    """
    pooled = np.sort(np.where(np.isnan(both := np.concatenate([first, second])), np.inf, both))

    def quantiles(count: int) -> NDArray[np.float64]:
        return pooled[((np.arange(count) + 0.5) / count * pooled.size).astype(np.intp)]

    one = cut_at(quantiles(first.size), horizon)
    factors = (1.0 + VISIBLE_ERROR, 1.0 / (1.0 + VISIBLE_ERROR))
    stretched = [cut_at(factor * quantiles(second.size), horizon) for factor in factors]
    return all(_is_seen(one, other, horizon, level) for other in stretched)


def _is_seen(first: NDArray[np.float64], second: NDArray[np.float64], horizon: float, level: float) -> bool:
    score = abs(log_rank(first, second, horizon))
    if score == 0.0:
        return False
    scores = log_rank_scores(np.concatenate([first, second]), horizon)
    total = abs(float(scores[first.size :].sum()))
    margin = total - permutation_quantile(scores, second.size, level)
    return bool(margin >= special.ndtri(POWER) * total / score)


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


def combined_p_value(p_values: NDArray[np.float64]) -> float:
    """Return the global p-value of the tested directions (NaN: not tested) by Bonferroni; 1 if none was."""
    tested = p_values[np.isfinite(p_values)]
    return float(min(1.0, tested.size * tested.min())) if tested.size else 1.0
