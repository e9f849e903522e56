"""Tests of the times of one direction, against one predicted time or a sample, and survival curves with censoring.

ln(T_SGD/T_p) scatters about a place in a band, whose two edges are one-sided tests: Student's t or, with censored runs,
a randomisation test over signs. Two samples are compared by permutations of log-rank scores. The noise Z of the steps
of a run, where it is known, is projected out. `docs/verdict_tests.md` says why false alarms stay below the level.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from dynamics import theory
from dynamics.problem import Problem, decouples
from dynamics.theory import EmergencePrediction
from hermite.arrays import Array, Integers, Switches
from sgd_check.engines import SampleReplay, replay_of
from sgd_check.verdicts.expectation import LARGEST_FLUCTUATION
from sgd_check.verdicts.verdict import FEWEST_RUNS, POWER, VISIBLE_ERROR, reach_in_errors, sound_runs

#: Numbers that are drawn once more at most: a few seconds.
MOST_NUMBERS = 2**28
_PATH_POINTS = 2001
#: Errors among which the least visible one is looked for.
LEAST_ERROR, LARGEST_ERROR = 1e-3, 9.0
#: With so many runs a regression on their noise costs less than it gives.
FEWEST_EXPLAINED = 8
#: The horizon has to lie beyond the band by so many standard deviations of ln T, so that cutting there costs little.
LEAST_REACH = 1.0
#: Where some runs are censored, values are cut no farther from the edge than this, in ln T, and no nearer.
LARGEST_DISTANCE, SHORTEST_REACH = float(np.log(2.0)), 1e-9
#: Far beyond this the non-central law of scipy is not a number.
LARGEST_T = 1e5
#: Sums of signed sizes are counted on so many points; rounding the sizes to them keeps the test exact.
SUM_POINTS = 8_000
#: Level of the pointwise confidence intervals.
CONFIDENCE = 0.95
PERMUTATIONS, PERMUTATION_SEED = 9_999, 0
#: So many permutations are to lie beyond a quantile.
_FEWEST_BEYOND = 10


def noise_of_runs(problem: Problem, simulation: xr.Dataset) -> Array:
    """Return the part Z of ln T that the noise of the samples explains in each sound run, (runs, P), dimensionless.

    Z[k, p] is the shift of the logarithm of the emergence time of direction p in run k, to first order, from the
    samples that are drawn again from the seed. It is NaN for directions that are predicted to emerge after the end of
    the runs or of the budget of samples, and everywhere if the samples or the theory of single pairs are not known.
    """
    runs, attrs = np.flatnonzero(sound_runs(simulation)), simulation.attrs
    values = np.full((runs.size, problem.num_directions), np.nan)
    # The samples must be known from the seeds, and single pairs must escape from noise of mean 0.
    separate = decouples(problem) and problem.teacher.directions is None
    if not separate or runs.size == 0 or int(attrs["batch_size"]) != 1 or isinstance(attrs["learning_rate"], str):
        return values
    prediction, replay = theory.predict(problem), replay_of(str(attrs["engine"]), problem)
    if prediction.notes or replay is None:
        return values
    rate, times = float(attrs["learning_rate"]), prediction.predicted_emergence_time
    last = min(float(attrs["end_time"]), MOST_NUMBERS * rate / (runs.size * len(replay.start)))
    due = np.flatnonzero((times <= last) & (times > 0)).tolist()
    paths = {p: _path_of(problem, prediction, replay, p) for p in due}
    steps = max((int(end / rate) for end, _ in paths.values()), default=0)
    values[:, list(paths)] = 0.0
    for row, seed in zip(values, simulation["seed"].values[runs].tolist(), strict=True):
        begin = 0
        for samples, noise in replay.draws(int(seed), steps):
            at = rate * np.arange(begin, begin + noise.size, dtype=np.float64)
            teacher = problem.activation.value(samples[:, : problem.num_directions])
            for p, (end, lost) in paths.items():
                part = slice(max(int(end / rate) - begin, 0))
                row[p] -= rate / end * lost(at[part], samples[part], teacher[part], noise[part])
            begin += noise.size
    return values


def _path_of(
    problem: Problem, prediction: EmergencePrediction, replay: SampleReplay, p: int
) -> tuple[float, Callable[[Array, Array, Array, Array], float]]:
    """Return the time until direction p emerges from its neuron alone, and a function that sums its noise.

    The function takes the times of steps (n,), their samples (n, axes), teacher link values (n, P) and label noise
    (n,), and returns Σ ξ/b: the noise ξ of each step in the overlap, over the drift b of the overlap. The neuron turns
    towards p, with the rest of its start in proportion; a direction counts in f* until its pair has learned it. Both
    change how much is explained, not the mean.
    """
    link, coefficients, P = problem.activation, problem.teacher.coefficients, problem.num_directions
    neuron, first = int(prediction.matched_neuron[p]), float(prediction.matched_overlap[p])
    rest = replay.start[:, neuron].copy()
    rest[p] = 0.0
    rest /= np.linalg.norm(rest)

    def pull(overlap: Array) -> Array:
        return np.asarray(coefficients[p] * link.kernel_derivative(overlap) * (1.0 - overlap**2))

    path = np.sign(first) * np.linspace(abs(first), np.sqrt(problem.emergence_level), _PATH_POINTS)
    slowness = 1.0 / pull(path)
    time = np.concatenate([[0.0], np.cumsum(0.5 * (slowness[1:] + slowness[:-1]) * np.diff(path))])

    def lost(times: Array, samples: Array, teacher: Array, noise: Array) -> float:
        """Return the time by which the noise of its samples moves a pair along its path, over the mean motion."""
        C = np.interp(times, time, path)
        aside = np.sqrt(1.0 - C**2)
        z = C * samples[:, p] + aside * (samples @ rest)
        weights = np.where(times[:, None] < prediction.predicted_learned_time, coefficients, 0.0)
        gained = (np.sum(weights * teacher, axis=1) + noise) * link.derivative(z) * (samples[:, p] - C * z)
        overlaps = aside[:, None] * rest[:P]
        overlaps[:, p] = C
        turned = (np.arange(P) == p) - C[:, None] * overlaps
        mean = np.sum(weights * link.kernel_derivative(overlaps) * turned, axis=1)
        return float(np.sum((gained - mean) / pull(C)))

    return float(time[-1]), lost


def without_noise(values: Array, noise: Array) -> Array:
    """Return values (n − 1,) without the part of `values` (n,) that is linear in `noise` (n,).

    If values are α + β Z + independent normal scatter, with Z = `noise`, those returned are independent normal values
    of mean α: the part along Z is projected out, and the rest is turned so that all have the same mean.
    """
    n = values.size
    basis = np.linalg.qr(np.column_stack([noise, np.eye(n)[:, : n - 1]])).Q[:, 1:]
    design = basis.sum(axis=0)
    size = float(np.linalg.norm(design))
    wanted = np.full(n - 1, size / np.sqrt(n - 1))
    mirror = design - wanted
    turned = basis.T @ values
    if mirror @ mirror > 0.0:
        turned = turned - mirror * (2.0 * (mirror @ turned) / (mirror @ mirror))
    return np.asarray(turned * np.sqrt(n - 1) / size)


class OneSided(NamedTuple):
    """A one-sided test: its p-value, and the probability that the error asked for is seen."""

    p: float
    power: float


class TimeTest(NamedTuple):
    """The test of one direction on so many runs, of which `censored` did not emerge by the horizon; dimensionless.

    `mean` and `standard_error` are of ln(T_SGD/T_p), at the horizon if a run did not emerge; against a sample, of the
    difference of the two means of ln T. `low` and `high` are the band. `early` and `late` are the one-sided tests, None
    where no outcome could show an error. z is the normal score of the smaller p-value, negative if early, and p the
    two-sided p-value; against a sample those of the log-rank test. `both` returns the two tests for another error of
    the time than 30 %.
    """

    runs: int
    censored: int
    mean: float
    standard_error: float
    low: float
    high: float
    early: OneSided | None
    late: OneSided | None
    z: float
    p: float
    both: Callable[[float], tuple[OneSided | None, OneSided | None]] | None = None

    @property
    def early_power(self) -> float:
        """Probability that times too early by 30 % are seen, NaN where no outcome could show them."""
        return np.nan if self.early is None else self.early.power

    @property
    def late_power(self) -> float:
        """Probability that times too late by 30 % are seen, NaN where no outcome could show them."""
        return np.nan if self.late is None else self.late.power

    @property
    def power(self) -> float:
        """Probability that an error of 30 % is seen, the smaller one of early and late errors."""
        return min(0.0 if side is None else side.power for side in (self.early, self.late))

    @property
    def resolved(self) -> bool:
        """Whether an error of 30 % to either side would have been seen."""
        return self.power >= POWER

    def runs_needed(self, level: float) -> float:
        """Return how many runs that scatter as these see an error of 30 % at a two-sided level; inf: no number does."""
        if self.resolved:
            return float(self.runs)
        room = float(np.log1p(VISIBLE_ERROR)) - (self.high - self.low)
        if None in (self.early, self.late) or not room > 0.0:
            return np.inf
        return self.runs * max(1.0, (reach_in_errors(self.runs - 1, level) * self.standard_error / room) ** 2)

    @property
    def visible(self) -> float:
        """Least relative error of the predicted time that both sides see with probability 0.8, to 1 %; NaN if none."""
        low, high = LEAST_ERROR, LARGEST_ERROR
        if self.both is None or not _seen(*self.both(high)):
            return np.nan
        while high > 1.01 * low:
            middle = float(np.sqrt(low * high))
            low, high = (low, middle) if _seen(*self.both(middle)) else (middle, high)
        return high


def assess_direction(
    log_ratio: Array, log_horizon: float, low: float, high: float, level: float, noise: Array | None = None
) -> TimeTest | None:
    """Test whether the emergence times T_SGD of one direction agree with its predicted time T_p.

    Parameters
    ----------
    log_ratio : ndarray, shape (runs,)
        ln(T_SGD/T_p) of every run, NaN where the direction did not emerge within the run.
    log_horizon : float
        ln(H/T_p), with the length H of the runs.
    low, high : float
        Band in which theory allows the mean of `log_ratio`. If `low` is NaN, the scatter of the runs sets both.
    level : float
        Level of the two-sided test, from which the power is computed.
    noise : ndarray, shape (runs,), optional
        Part of `log_ratio` that the noise of the samples explains. It is taken away by regression if there are
        `FEWEST_EXPLAINED` runs or more and the horizon lies beyond the band by the scatter of the runs.

    Returns
    -------
    TimeTest or None
        The test, dimensionless; its power is that with runs that scatter and are censored as these. None with fewer
        than `FEWEST_RUNS` runs.

    Examples
    --------
    >>> late = assess_direction(np.array([0.5, 0.52, 0.49, 0.51]), 1.0, 0.0, 0.04, 0.01)
    >>> late.p < 1e-4, late.z > 0
    (True, True)
    """
    missing, n = np.isnan(log_ratio), log_ratio.size
    if n < FEWEST_RUNS:
        return None
    counted = np.where(missing, log_horizon, log_ratio)
    if np.isnan(low):
        # Without a scatter of theory that of the runs sets the band; with censored runs nothing bounds the lateness.
        square = scatter(log_ratio, log_horizon) ** 2
        low, high = -square, np.inf if missing.any() else LARGEST_FLUCTUATION * square
    spread = float(counted.std(ddof=1))
    reach = (log_horizon - high) / max(spread, 1e-12)
    if noise is not None and n >= FEWEST_EXPLAINED and np.isfinite(noise).all() and reach >= LEAST_REACH:
        # Values cut at the horizon have a smaller mean: by this for a normal law.
        low -= float(spread * (np.exp(-0.5 * reach**2) / np.sqrt(2 * np.pi) - reach * special.ndtr(-reach)))
        counted = log_ratio = without_noise(counted, noise)
        log_horizon = np.inf

    def both(error: float) -> tuple[OneSided | None, OneSided | None]:
        """Return two one-sided tests: that the runs are earlier than the band, and that they are later.

        Their power is that to see runs whose times are off by the relative `error`, by a factor of 1/(1 + error) or
        1 + error.
        """
        shift = float(np.log1p(error))
        early = one_sided(log_ratio, log_horizon, low, high - shift, level, sign=-1.0)
        return early, one_sided(log_ratio, log_horizon, high, low + shift, level, sign=1.0)

    early, late = both(VISIBLE_ERROR)
    chances = [1.0 if side is None else side.p for side in (early, late)]
    p = min(1.0, 2.0 * min(chances))
    z = 0.0 if p == 1.0 else float(np.copysign(special.ndtri(0.5 * p), chances[0] - chances[1]))
    error = float(counted.std(ddof=1) / np.sqrt(counted.size))
    return TimeTest(n, int(missing.sum()), float(counted.mean()), error, low, high, early, late, z, p, both)


def _seen(*sides: OneSided | None) -> bool:
    """Return whether every side has a test that sees its error with probability `POWER` or more."""
    return all(side is not None and side.power >= POWER for side in sides)


def shares_of_rate(time: Array, end: float) -> Array:
    """Return the share of the rate of false alarms that the test of each direction has, from their predicted times.

    Directions predicted after `end`, the length of the runs, have one share together; NaN has none. The sum is 1.
    """
    later = time > end
    weights = np.where(later, 1.0 / max(int(later.sum()), 1), np.where(np.isnan(time), 0.0, 1.0))
    return np.asarray(weights / max(float(weights.sum()), 1.0))


def one_sided(
    values: Array, horizon: float, edge: float, truth: float, level: float, *, sign: float
) -> OneSided | None:
    """Test whether values (runs,), NaN beyond the horizon, lie below an edge (`sign` −1) or above it (`sign` 1).

    `truth` is the middle of the values if the error that is to be seen is there, NaN for no power, and `level` that of
    the two-sided test. None where no outcome could show it.
    """
    missing, n = np.isnan(values), values.size
    hidden = not edge < horizon if sign > 0 else 2 * np.count_nonzero(missing) >= n
    if hidden or (missing.any() and 2.0 * 0.5**n >= level):
        return None
    # Values are cut at the horizon, or at ln 2 from the edge if that is nearer; on the early side at the mirror image
    # too. On the late side one early run is cut where it outweighs all others, since no sum is then positive.
    reach = min(max(abs(horizon - edge), SHORTEST_REACH), LARGEST_DISTANCE)
    deepest = -reach if sign < 0 else -reach * n

    def beyond(x: Array) -> Array:
        distances = sign * np.where(np.isnan(x), np.inf, x - edge)
        return distances if np.isfinite(distances).all() else np.clip(distances, deepest, reach)

    distances, p = beyond(values), 1.0
    if missing.any():
        sizes = _sizes(distances / reach)
        # A sum at least as large means that the terms with a minus sum to at most their value: the same chance.
        minus, plus = (int(sizes[which].sum()) for which in (distances < 0, distances > 0))
        if minus < plus:
            p = float(_law_of_minus(sizes, minus + 1).sum())
    else:
        p = float(special.stdtr(n - 1, -_students_t(distances)))
    centre = middle(values)
    if not np.isfinite(truth) or np.isnan(centre):
        return OneSided(p, 0.0)
    # The power is that for runs of which these, moved to the truth, are a sample. Student's t of cut distances is a
    # function of their sum and squares and is taken to have the non-central law.
    moved = np.where(np.isnan(values), np.inf, values - centre + truth)
    late = moved > horizon
    distances = beyond(np.where(late, np.nan, moved))
    critical = _critical_t(distances / reach, level) if late.any() else float(special.stdtrit(n - 1, 1.0 - 0.5 * level))
    # SciPy gives not-a-number for some scores of 40 and more, where less than 1e-90 is missed.
    missed = np.nan_to_num(special.nctdtr(n - 1, _students_t(distances), critical), nan=0.0)
    return OneSided(p, float(1.0 - missed) if np.isfinite(critical) else 0.0)


def middle(values: Array) -> float:
    """Return the mean of values (runs,) without the censored runs, which are NaN, and as many of the earliest.

    The result is NaN if half of the runs or more are censored.
    """
    censored = int(np.count_nonzero(np.isnan(values)))
    kept = np.sort(values)[censored : values.size - censored]
    return float(kept.mean()) if kept.size else np.nan


def scatter(values: Array, horizon: float) -> float:
    """Return the standard deviation of values (runs,), such as ln T.

    NaN marks runs beyond the `horizon`, which is in the same units. With censored runs it is that of the values cut at
    equal distances to both sides of their middle.
    """
    centre, missing = middle(values), np.isnan(values)
    if not missing.any() or np.isnan(centre):
        return float(np.where(missing, horizon, values).std(ddof=1))
    reach = min(max(abs(horizon - centre), SHORTEST_REACH), LARGEST_DISTANCE)
    return float(np.clip(np.where(missing, np.inf, values - centre), -reach, reach).std(ddof=1))


def _sizes(distances: Array) -> Integers:
    """Return the sizes of numbers of about 1 on a grid of whole numbers."""
    return np.asarray(np.rint(max(1, SUM_POINTS // distances.size) * np.abs(distances)), dtype=np.int64)


def _students_t(distances: Array, total: float | None = None) -> float:
    """Return Student's t of the hypothesis that numbers have mean 0, cut to ±1e5.

    With `total`, the numbers are taken to have this sum instead, but the same squares.
    """
    total = float(distances.sum()) if total is None else total
    count, squares = distances.size, float(distances @ distances)
    scatter = max(count * squares - total**2, 1e-12 * count * squares, 1e-300)
    return float(np.clip(total / np.sqrt(scatter / (count - 1)), -LARGEST_T, LARGEST_T))


def _law_of_minus(sizes: Integers, length: int) -> Array:
    """Return the probabilities (length,) that sizes which get a minus by fair signs sum to 0, 1, …."""
    law = np.zeros(length)
    law[0] = 1.0
    for size in sizes.tolist():
        law[size:] += law[: max(length - size, 0)].copy()
        law *= 0.5
    return law


def _critical_t(distances: Array, level: float) -> float:
    """Return the least Student's t at which the test over random signs rejects numbers of these sizes.

    `level` is two-sided. The result is inf if no outcome is rejected, and 0 if every outcome is.
    """
    sizes = _sizes(distances)
    whole = int(sizes.sum())
    law = _law_of_minus(sizes, min(whole // 2, SUM_POINTS) + 1)
    possible = np.flatnonzero(law)
    rejected = int(np.count_nonzero(np.cumsum(law[possible]) < 0.5 * level))
    if rejected in (0, possible.size):
        return np.inf if rejected == 0 else 0.0
    # The sum has gaps; halfway between the last that is rejected and the next.
    minus = 0.5 * float(possible[rejected - 1] + possible[rejected])
    return _students_t(sizes.astype(np.float64), whole - 2.0 * minus)


def kaplan_meier(emergence: Array, horizon: float, times: Array) -> Array:
    """Return the Kaplan–Meier estimate of P(T > t) and its 95 % interval, (3, times): value, low, high.

    They are NaN beyond the `horizon`. `emergence` (runs,) are the times T, NaN where a run ended at the horizon before.
    Intervals are by Greenwood's formula for ln(−ln S), and exact ones of as many runs all alike where the estimate S is
    1 or 0.
    """
    from scipy import stats

    if emergence.size == 0:
        return np.full((3, *times.shape), np.nan)
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
    return np.where(times <= horizon, [value, low, high], np.nan)


def expected_survival(time: float, delay: float, scatter: float, times: Array) -> Array:
    """Return P(T > t) at `times` of the log-normal law of T; NaN if a parameter is not finite.

    The mean of T is `time` (1 + `delay`), and `scatter` is the standard deviation of ln T.
    """
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
    return float(stats.logrank(_censored(first, horizon), _censored(second, horizon)).statistic)


def log_rank_scores(emergence: Array, horizon: float) -> Array:
    """Return the log-rank scores 1{emerged} − Λ(T) of the runs of both samples together, (runs,), of sum 0.

    Λ is the Nelson–Aalen cumulative hazard of all runs; runs with time NaN are censored at the horizon.
    """
    emerged = np.isfinite(emergence)
    times = np.where(emerged, emergence, np.inf)
    at, counts = np.unique(times[emerged], return_counts=True)
    at_risk = np.array([np.count_nonzero(times >= t) for t in at], dtype=np.float64)
    hazard = np.concatenate([[0.0], np.cumsum(counts / at_risk)])
    return np.asarray(emerged - hazard[np.searchsorted(at, np.minimum(times, horizon), side="right")])


def permutation_test(scores: Array, second: Switches) -> tuple[Array, Array]:
    """Return p-values (columns,) of the hypothesis that two samples of runs have one law, alone and among all columns.

    The tests are two-sided. The least p-value among all columns is that of all columns together. `scores` (runs,
    columns) sum to 0 in every column; `second` marks the runs of the second sample.
    """
    spread = np.sqrt(np.mean(scores**2, axis=0))
    scaled = scores / np.where(spread > 0, spread, 1.0)
    totals = np.abs(second.astype(np.float64) @ scaled)
    sums = np.abs(_relabelled(second.size, int(np.count_nonzero(second)), PERMUTATIONS) @ scaled)
    # Sums of the same scores in another order differ by rounding.
    tolerance = 1e-9 * max(1.0, float(totals.max(initial=0.0)))
    alone = (1 + np.count_nonzero(sums >= totals - tolerance, axis=0)) / (1 + PERMUTATIONS)
    largest = np.sort(sums.max(axis=1, initial=0.0))
    among = (1 + PERMUTATIONS - np.searchsorted(largest, totals - tolerance)) / (1 + PERMUTATIONS)
    return np.asarray(alone), np.asarray(among)


def permutation_quantile(scores: Array, count: int, level: float) -> float:
    """Return the quantile 1 − `level` of the size of a sum of `count` scores; far out at least the normal one."""
    runs = scores.size
    quantile = float(np.quantile(np.abs(_relabelled(runs, count, PERMUTATIONS) @ scores), 1.0 - level))
    if level * PERMUTATIONS >= _FEWEST_BEYOND:
        return quantile
    variance = count * (runs - count) / (runs * (runs - 1.0)) * float(np.sum(scores**2))
    return max(quantile, float(-special.ndtri(level / 2) * np.sqrt(variance)))


@lru_cache(maxsize=4)
def _relabelled(runs: int, count: int, permutations: int) -> Array:
    """Return random labels, 1 for `count` of the runs and 0 for the others, shape (permutations, runs)."""
    labels = (np.arange(runs) < count).astype(np.float64)
    return np.random.default_rng(PERMUTATION_SEED).permuted(np.tile(labels, (permutations, 1)), axis=1)


def cut_at(emergence: Array, horizon: float) -> Array:
    """Return times, with NaN for those beyond the horizon."""
    with np.errstate(invalid="ignore"):
        return np.where(emergence <= horizon, emergence, np.nan)


def _censored(emergence: Array, horizon: float) -> Any:
    """Return times as right-censored data of scipy; NaN is censored at the horizon."""
    from scipy import stats

    emerged = np.isfinite(emergence)
    ends = np.full(int(np.count_nonzero(~emerged)), horizon)
    return stats.CensoredData(uncensored=emergence[emerged], right=ends)


def assess_samples(predicted: Array, simulated: Array, horizon: float, p: float, level: float) -> TimeTest | None:
    """Return the test of one direction against a sample of predicted times; None with fewer than four of either.

    `predicted` and `simulated` (runs,) are times, NaN beyond the `horizon`. `p` is the two-sided p-value of the pair,
    which the caller has from permutations, and `level` that at which the power is computed.
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

    Both samples are replaced by as many quantiles of the two together.
    """
    pooled = np.sort(np.where(np.isnan(both := np.concatenate([first, second])), np.inf, both))

    def quantiles(count: int) -> Array:
        return pooled[((np.arange(count) + 0.5) / count * pooled.size).astype(np.intp)]

    def power(factor: float) -> float:
        """Return the probability that times longer by a factor would be told from these."""
        unchanged = cut_at(quantiles(first.size), horizon)
        dilated = cut_at(factor * quantiles(second.size), horizon)
        score = abs(log_rank(unchanged, dilated, horizon))
        if score == 0.0:
            return 0.0
        scores = log_rank_scores(np.concatenate([unchanged, dilated]), horizon)
        total = abs(float(scores[first.size :].sum()))
        margin = total - permutation_quantile(scores, second.size, level)
        return float(special.ndtr(margin * score / total))

    return power(1.0 / (1.0 + VISIBLE_ERROR)), power(1.0 + VISIBLE_ERROR)
