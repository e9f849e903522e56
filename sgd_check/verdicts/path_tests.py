"""Tests of runs that do not depend on how early or late they are: of their path and scatter, and of their loss.

They and those of the start (`starts`) share a part of the rate of false alarms evenly. The loss stands beside them: it
is held against one predicted curve only where that hardly depends on how early or late runs are
(`docs/verdict_curves.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from dynamics.theory import FAR_APART
from hermite.arrays import Array, Integers, Switches
from sgd_check.verdicts.evidence import Row, judged
from sgd_check.verdicts.expectation import Expectation
from sgd_check.verdicts.time_tests import FEWEST_EXPLAINED, permutation_test
from sgd_check.verdicts.verdict import FEWEST_RUNS, VISIBLE_ERROR, normal_score, of_sound_runs, two_sided

#: Part of the rate of false alarms that these tests have; times have the rest.
PATH_SHARE = 0.2
#: Distance from the median of ln T, in units of the scatter, beyond which runs are counted.
FAR_OUT = 1.5
#: The part of the scatter s that the noise of the runs leaves at most, by a constant and in units of s.
LEAST_LEFT, MORE_LEFT = 0.2, 1.5
#: Largest error of the mean logarithm of a quantity on the way, and of the time after the emergence, without s².
WAY_TOLERANCE, LAG_TOLERANCE = 0.1, float(np.log1p(VISIBLE_ERROR))
#: Hardly any run is later by so many units of the scatter.
NEARLY_ALL = 2.0
#: Least growth of a norm after the emergence, so that its time is known.
LEAST_GROWTH = 1.5
#: Largest ratio of the time after the emergence of one run to that of theory, or its inverse.
LARGEST_RATIO = 10.0
#: A predicted loss that varies by no more than this over the times that runs are early or late is a plateau.
LARGEST_VARIATION = 0.05
_RATIOS = 17
#: The loss is compared from this part of the first emergence on.
EARLIEST_SHARE = 0.1
#: Relative distance of two times that count as one.
SAME_TIME = 1e-9


class PathTest(NamedTuple):
    """The test of one quantity against theory: its name `what`, its normal score and its two-sided p-value.

    For the scatter of times the score is not negative and p is one-sided: the chance of as many runs far from the
    median.
    """

    what: str
    score: float
    p: float


def tests_of_paths(
    prediction: xr.Dataset, simulation: xr.Dataset, expected: Expectation, noise: Array
) -> list[PathTest]:
    """Return the tests of paths that prediction and runs allow, for directions that emerge within the runs.

    Only directions whose times no other direction influences are taken, those marked `isolated` in `expected`. Tests
    are those of overlaps and loss on the way and after (`_on_the_way_and_after`), where theory has these over time, and
    one of the scatter of times: the binomial chance of as many runs farther than `FAR_OUT` standard deviations of
    theory from the median. `expected` holds times and scatter of theory, and `noise` (runs, P) a part of the logarithms
    of times that is known from the samples of each run, which is taken away first; it is NaN if not known. There are no
    tests with fewer than `FEWEST_RUNS` runs.
    """
    tests = list[PathTest]()
    measured, end = of_sound_runs(simulation, "emergence_time"), float(simulation.attrs["end_time"])
    if measured.shape[0] < FEWEST_RUNS:
        return tests
    for p in np.flatnonzero((expected.time <= end) & expected.isolated).tolist():
        if {"teacher_overlap", "loss"} <= set(prediction) and "time" in prediction["loss"].dims:
            earliest = float(np.nanmin(np.delete(measured, p, axis=1), initial=np.inf))
            tests += _on_the_way_and_after(prediction, simulation, expected, measured[:, p], p, earliest)
        logs = np.log(np.maximum(np.nan_to_num(measured[:, p], nan=end), 1e-300))
        scatter = float(expected.scatter[p])
        if logs.size >= FEWEST_EXPLAINED and np.isfinite(noise[:, p]).all():
            logs = logs - np.polyfit(noise[:, p], logs, 1)[0] * noise[:, p]
            scatter *= min(1.0, LEAST_LEFT + MORE_LEFT * scatter)
        far = int(np.sum(np.abs(logs - np.median(logs)) > FAR_OUT * scatter))
        tail = float(special.bdtrc(far - 1, logs.size, 2.0 * special.ndtr(-FAR_OUT))) if far > 0 else 1.0
        score = float(max(-special.ndtri(max(tail, 1e-300)), 0.0))
        tests.append(PathTest(f"scatter of the times of direction {p + 1}", score, tail))
    return tests


def rows_of_paths(tests: Sequence[PathTest], rate: float, kind: str, count: int, share: float = 1.0) -> list[Row]:
    """Return the rows of evidence of tests, if `count` tests together have a `share` of the rate of false alarms."""
    return [
        judged(rate, quantity=path.what, kind=kind, z=path.score, p_value=min(1.0, count * path.p / share), seen=True)
        for path in tests
    ]


def path_p_value(tests: Sequence[PathTest]) -> float:
    """Return the p-value of all tests together, by Bonferroni; 1 without tests."""
    return min([1.0, *(len(tests) * test.p for test in tests)])


def _on_the_way_and_after(
    prediction: xr.Dataset, simulation: xr.Dataset, expected: Expectation, measured: Array, p: int, earliest: float
) -> list[PathTest]:
    """Return the tests of loss and norm of runs when direction p emerges, and of the time until later values.

    Runs emerge at the times `measured` (runs,). In some run another direction emerges at the time `earliest`.
    """
    times, theirs = simulation["time"].values, np.asarray(prediction["time"].values)
    time, scatter, end = float(expected.time[p]), float(expected.scatter[p]), float(simulation.attrs["end_time"])
    runs, later = np.flatnonzero(measured <= times[-1]), int(np.searchsorted(theirs, time))
    if runs.size < FEWEST_RUNS or later == theirs.size:
        return []
    neuron = int(np.argmax(np.abs(prediction["teacher_overlap"].values[later, :, p])))
    # Until then no other direction may move the loss.
    alone = float(np.nanmin(np.delete(expected.time, p), initial=earliest))
    latest = time * float(np.exp(NEARLY_ALL * scatter))
    on_the_way, after = list[PathTest](), list[PathTest]()
    on_way, lag = WAY_TOLERANCE + scatter**2, LAG_TOLERANCE + scatter**2
    for name, words in (("loss", "loss"), ("squared_norm", "squared norm")):
        if name not in prediction:
            continue
        curve, paths, falls = prediction[name].values, of_sound_runs(simulation, name)[runs], name == "loss"
        if not falls:
            curve, paths = curve[:, neuron], paths[:, :, neuron]
        if not (np.nanmin(curve) > 0.0 and np.nanmin(paths) > 0.0):
            continue
        runs_with_time = list(zip(measured[runs], np.log(paths), strict=True))
        if not falls or time * np.exp(FAR_APART * scatter) <= alone:
            passed = np.array([value_between(times, path, t, on_way) for t, path in runs_with_time])
            quantity = f"{words} as direction {p + 1} emerges"
            on_the_way += _beyond(quantity, passed - value_between(theirs, np.log(curve), time, on_way), on_way)
        apart = alone - latest + time if falls else np.inf
        due = np.flatnonzero((theirs > time) & (theirs <= min(time + end - latest, apart)) & np.isfinite(curve))
        level = _level(curve[theirs <= apart], due, falls=falls)
        if level is not None:
            sign = -1.0 if falls else 1.0
            lags = [_lag(times, sign * path, sign * np.log(curve[level]), t, end, lag) for t, path in runs_with_time]
            ratio = np.array(lags) / (theirs[level] - time)
            distance = np.log(np.clip(ratio, 1.0 / LARGEST_RATIO, LARGEST_RATIO))
            until = f"until the {words} is {curve[level]:.2g}"
            after += _beyond(f"time from the emergence of direction {p + 1} {until}", distance, lag)
    return [*on_the_way, *after]


def _level(curve: Array, due: Integers, *, falls: bool) -> int | None:
    """Return the place, among those due, of the saved value that the runs are to pass; None if there is none.

    The curve ends when another direction moves it. A loss is passed halfway down to the plateau before that end.
    """
    if due.size == 0:
        return None
    if falls:
        whole = max(float(np.nanmax(curve) - np.nanmin(curve)), 1e-300)
        off = np.abs((np.nanmax(curve) - curve[due]) / whole - 0.5)
        return int(due[off.argmin()]) if off.min() <= 0.25 else None
    moved = due[(curve[due] <= 0.5 * np.nanmax(curve)) & (curve[due] >= LEAST_GROWTH * curve[due[0]])]
    return int(moved[-1]) if moved.size else None


def _lag(times: Array, path: Array, level: float, start: float, end: float, tolerance: float) -> float:
    """Return the time from `start` until a path passes a level, or until `end` if it never does.

    The result is NaN if the path is saved too coarsely. `path` (times,) is the curve that rises to `level`. The saved
    times next to the passing must not be farther apart than the tolerance, in ln of the time since the start.
    """
    passed = np.flatnonzero((times > start) & (path >= level))
    if passed.size == 0:
        return end - start
    after = int(passed[0])
    before, there = max(float(times[after - 1]), start) if after else start, float(times[after])
    if not there - start < np.exp(tolerance) * (before - start):
        return np.nan
    share = (level - path[after - 1]) / (path[after] - path[after - 1]) if path[after] > path[after - 1] else 0.0
    return before + max(float(share), 0.0) * (there - before) - start


def _beyond(quantity: str, distance: Array, allowance: float) -> list[PathTest]:
    """Return Student's t-test of the mean of distances (runs,) beyond an allowance; no test if half are NaN."""
    finite = distance[np.isfinite(distance)]
    if finite.size < max(FEWEST_RUNS, distance.size // 2 + 1):
        return []
    mean = float(finite.mean())
    excess = float(np.copysign(max(abs(mean) - allowance, 0.0), mean))
    score = normal_score(excess, float(finite.std(ddof=1)) / np.sqrt(finite.size), finite.size - 1)
    return [PathTest(quantity, score, two_sided(score))]


class LossBand(NamedTuple):
    """Loss of the runs, and predicted loss with its bounds, (times,) each.

    `loss_compared` marks the times that are tested, `loss_z` (times,) are their normal scores, NaN at others, and
    `loss_p_value` is the p-value of all times together, NaN against one predicted curve.
    """

    mean_loss: Array
    loss_standard_error: Array
    expected_loss: Array
    expected_loss_low: Array
    expected_loss_high: Array
    loss_compared: Switches
    loss_z: Array
    loss_p_value: float


def against_curve(
    times: Array,
    losses: Array,
    predicted_times: Array,
    predicted_loss: Array,
    fastest: Array,
    slowest: Array,
    first_emergence: float,
) -> LossBand:
    """Return the comparison of the mean loss of runs with one predicted curve.

    `losses` (runs, times) are NaN where there is no record; `fastest` and `slowest` (runs,) the smallest and largest
    measured ratio of times of each run, inf if it misses a direction; `first_emergence` the earliest predicted one.
    """
    mean, error = _mean_and_error(losses)
    expected, reached = interpolated(predicted_times, predicted_loss, times), np.isfinite(predicted_loss)
    # A run cannot be behind the start of the prediction.
    start = float(predicted_times[reached][0]) if reached.any() else np.nan
    earliest = np.maximum(times / slowest[:, None], np.minimum(start, times))
    latest, share = times / fastest[:, None], np.linspace(0.0, 1.0, _RATIOS)[:, None, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        grid = np.where(earliest > 0, earliest * (latest / earliest) ** share, share * latest)
    moved = interpolated(predicted_times, predicted_loss, grid)
    low, high = moved.min(axis=0).mean(axis=0), moved.max(axis=0).mean(axis=0)
    with np.errstate(invalid="ignore"):
        compared = (times > 0) & (times >= EARLIEST_SHARE * first_emergence) & np.isfinite(mean) & (error > 0)
        compared &= high <= (1.0 + LARGEST_VARIATION) * low
    distance = np.maximum(mean - high, 0.0) + np.minimum(mean - low, 0.0)
    z, freedom = np.full(times.size, np.nan), losses.shape[0] - 1
    z[compared] = [normal_score(d, e, freedom) for d, e in zip(distance[compared], error[compared], strict=True)]
    return LossBand(mean, error, expected, low, high, compared, z, np.nan)


def against_sample(
    times: Array, losses: Array, predicted_times: Array, predicted_losses: Array, first_emergence: float
) -> LossBand:
    """Return the comparison of the losses of runs with those of predicted runs, time by time.

    `losses` (runs, times) are at `times`, `predicted_losses` (predicted runs, predicted times) at `predicted_times`;
    `first_emergence` is the earliest predicted time, and a share of it is left out. z is the normal score of ranks.
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
        p = float(permutation_test(ranks, second)[1].min())
    return LossBand(mean, error, expected, expected, expected, compared, z, p)


def critical_score(count: int, rate: float) -> float:
    """Return the normal score that none of `count` tests exceeds with probability 1 − `rate` or more, by Bonferroni."""
    return float(special.ndtri(1.0 - rate / (2 * max(count, 1))))


def _mean_and_error(losses: Array) -> tuple[Array, Array]:
    """Return mean and standard error over runs, NaN where a run has no record or there are fewer than two."""
    if losses.shape[0] < 2:
        return np.full(losses.shape[1], np.nan), np.full(losses.shape[1], np.nan)
    return losses.mean(axis=0), losses.std(axis=0, ddof=1) / np.sqrt(losses.shape[0])


def value_between(times: Array, values: Array, at: float, tolerance: float) -> float:
    """Return a value at another time, linear between saved ones that differ by less than a tolerance; else NaN."""
    after = int(np.searchsorted(times, at * (1.0 - SAME_TIME)))
    if after == times.size:
        return np.nan
    if times[after] <= at * (1.0 + SAME_TIME):
        return float(values[after])
    if after == 0 or not abs(values[after] - values[after - 1]) < tolerance:
        return np.nan
    share = (at - times[after - 1]) / (times[after] - times[after - 1])
    return float(values[after - 1] + share * (values[after] - values[after - 1]))


def interpolated(times: Array, losses: Array, at: Array) -> Array:
    """Return losses (…, times) at other times, by monotone cubics in ln t, linear next to time 0; NaN outside."""
    from scipy.interpolate import PchipInterpolator

    finite = np.isfinite(losses).reshape(-1, times.size).all(axis=0)
    times, losses = times[finite], losses[..., finite]
    positive = times > 0
    values = np.full((*losses.shape[:-1], *at.shape), np.nan)
    if np.count_nonzero(positive) >= 2:
        first, last = times[positive][0], times[positive][-1]
        inside = (at >= first * (1 - 1e-9)) & (at <= last * (1 + 1e-9))
        curve = PchipInterpolator(np.log(times[positive]), losses[..., positive], axis=-1)
        values[..., inside] = curve(np.log(np.clip(at[inside], first, last)))
        if not positive.all():
            early = (at >= 0) & (at < first)
            share = at[early] / first
            initial, following = losses[..., ~positive][..., -1:], losses[..., positive][..., :1]
            values[..., early] = initial + share * (following - initial)
    return values


def known_between(times: Array, values: Array, at: Array, tolerance: Array | float) -> Switches:
    """Return whether values are known at each time: saved there, or equal by interpolation from every other one."""
    saved = np.isfinite(values)
    times, values = times[saved], values[saved]
    if times.size == 0:
        return np.zeros(at.shape, dtype=bool)
    after = np.minimum(np.searchsorted(times, at * (1.0 - SAME_TIME)), times.size - 1)
    same = np.abs(times[after] - at) <= SAME_TIME * np.abs(at)
    even, odd = (interpolated(times[first::2], values[first::2], at) for first in (0, 1))
    with np.errstate(invalid="ignore"):
        return np.asarray(same | (np.abs(even - odd) < tolerance))
