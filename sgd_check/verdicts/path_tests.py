r"""Whether the runs go theory's way, whatever their times: where they start, what they pass through, how they scatter.

Times of emergence alone miss an error that leaves them as they are. Four kinds of numbers do not depend on how early
or late a run is, and share a part of the rate of false alarms evenly (Bonferroni):

- *The start.* Runs and prediction have loss, squared norms and overlaps of time 0, which nothing has moved: a
  difference of 1 % is an error for certain.
- *On the way.* With T_r the time at which run r has direction p, and T that of theory, the mean over runs of

  .. math:: \ln x_r(T_r) - \ln x(T)

  lies within 0.1 + s², x the loss and the squared norm of the neuron that theory has there: norms grow while a run
  searches, by as much more as it takes longer. Student's t beyond that. Runs without emergence are left out, and the
  loss where another direction may be learned by then.
- *After the emergence.* With t_r the time at which a run passes a value x of the squared norm of that neuron, or of the
  loss, and t that of theory, the mean over runs of

  .. math:: \ln\frac{t_r - T_r}{t - T}

  lies within ln 1.3 + s². The value is one that theory has at a saved time t, the last one that nearly all runs reach,
  at which the norm is at most half of its largest; of the loss the one nearest to half of its fall, if that is between
  a quarter and three quarters. Runs that have not passed it count as of their end.
- *The scatter.* The standard deviation of ln T is at most the s of leading order, which higher orders lower. So no more
  runs are further than 1.5 s from their median than of a normal law, 13 %: the binomial tail. (A variance would let a
  single run that noise has thrown back decide.) Runs without emergence count as of the horizon. Where the noise of the
  runs is known (`sgd_check.verdicts.run_noise`) the regression on it leaves less, and s is replaced by s (0.2 + 1.5 s),
  if that is less. (Measured for k = 3 and 4, up to three directions, d = 16 to 64, s = 0.07 to 0.52: half of that.)

A value of theory or of a run between two saved times is taken only where these differ by less than the tolerance, in
the logarithm that is tested; else the run is left out, and the quantity where that leaves less than half of the runs.

The last three are asked of isolated directions (`Expectation.isolated`) that are predicted within the runs: elsewhere
another neuron may be first in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from dynamics.theory import FAR_APART
from sgd_check.verdicts.alignment import of_sound_runs
from sgd_check.verdicts.direction import FEWEST_EXPLAINED, FEWEST_RUNS, VISIBLE_ERROR, normal_score
from sgd_check.verdicts.saved_values import value_between

if TYPE_CHECKING:
    from collections.abc import Iterator

    import xarray as xr
    from numpy.typing import NDArray

    from hermite.arrays import Array
    from sgd_check.verdicts.expectation import Expectation

#: Part of the rate of false alarms that these tests have; times have the rest.
PATH_SHARE = 0.2
#: Relative difference of two starts that counts as one.
START_DIFFERENCE = 0.01
#: Distance from the median of ln T, in units of the scatter, beyond which runs are counted.
FAR_OUT = 1.5
#: The part of the scatter s that the noise of the runs leaves at most, by a constant and in units of s.
LEAST_LEFT, MORE_LEFT = 0.2, 1.5
#: What the mean logarithm of a quantity on the way may be off, beside s².
WAY_TOLERANCE = 0.1
#: What the mean logarithm of the time after the emergence may be off, beside s²: errors of 30 % are to be seen.
LAG_TOLERANCE = float(np.log1p(VISIBLE_ERROR))
#: Units of the scatter by which hardly any run is later.
NEARLY_ALL = 2.0
#: Factor by which a norm is to grow after the emergence, so that the time this takes is known.
LEAST_GROWTH = 1.5
#: What the time after the emergence of one run weighs at most, over that of theory or the other way round.
LARGEST_RATIO = 10.0


class PathTest(NamedTuple):
    """One quantity against theory: `what` it is, whether it is larger, its normal score and two-sided p-value."""

    what: str
    score: float
    p: float


def path_tests(prediction: xr.Dataset, simulation: xr.Dataset, expected: Expectation, noise: Array) -> list[PathTest]:
    """Return the tests that prediction and runs allow; `noise` (runs, P) is that of the runs, NaN if not known."""
    found = [*_starts(prediction, simulation)]
    measured = of_sound_runs(simulation, "emergence_time")
    if measured.shape[0] < FEWEST_RUNS:
        return found
    end = float(simulation.attrs["end_time"])
    for p in np.flatnonzero((expected.time <= end) & expected.isolated).tolist():
        way = _way(prediction, simulation, expected, measured[:, p], p)
        if way is not None:
            found += [*_on_the_way(prediction, simulation, way), *_afterwards(prediction, simulation, way)]
        logs = np.log(np.maximum(np.nan_to_num(measured[:, p], nan=end), 1e-300))
        found.append(_scatter(logs, float(expected.scatter[p]), noise[:, p], p))
    return found


def path_p_value(tests: list[PathTest]) -> float:
    """Return the p-value of all of them together; 1 if there is none."""
    return min(1.0, max(len(tests), 1) * min((test.p for test in tests), default=1.0))


def _starts(prediction: xr.Dataset, simulation: xr.Dataset) -> Iterator[PathTest]:
    """Yield the tests of the start, of what both have at time 0."""
    if "time" not in prediction.coords or prediction["time"].values[0] != 0.0 or simulation["time"].values[0] != 0.0:
        return
    for name, words in (("loss", "loss"), ("squared_norm", "squared norm"), ("teacher_overlap", "overlap")):
        if name not in prediction or "time" not in prediction[name].dims:
            continue
        theirs, ours = np.asarray(prediction[name].values[0]), of_sound_runs(simulation, name)[:, 0]
        if not (ours.size and np.isfinite(theirs).all() and np.isfinite(ours).all()):
            continue
        gap = (ours - theirs).ravel()
        worst = float(gap[np.argmax(np.abs(gap))])
        differs = abs(worst) > START_DIFFERENCE * float(np.abs(theirs).max())
        yield PathTest(f"{words} at the start", np.copysign(np.inf, worst) if differs else 0.0, 0.0 if differs else 1.0)


class _Way(NamedTuple):
    """One direction: its number, time T and scatter s by theory, its neuron, and T_r of the runs that have it (runs,).

    `alone` is the time until which no other direction may move the loss.
    """

    direction: int
    time: float
    scatter: float
    neuron: int
    runs: NDArray[np.intp]
    measured: Array
    alone: float

    @property
    def latest(self) -> float:
        """Time before which nearly all runs have the direction."""
        return self.time * float(np.exp(NEARLY_ALL * self.scatter))


def _way(prediction: xr.Dataset, simulation: xr.Dataset, expected: Expectation, measured: Array, p: int) -> _Way | None:
    """Return a direction whose way is saved; None without overlaps, loss or a saved time after the emergence."""
    if not {"teacher_overlap", "loss"} <= set(prediction) or "time" not in prediction["loss"].dims:
        return None
    time, scatter = float(expected.time[p]), float(expected.scatter[p])
    runs = np.flatnonzero(measured <= simulation["time"].values[-1])
    after = int(np.searchsorted(prediction["time"].values, time))
    if runs.size < FEWEST_RUNS or after == prediction.sizes["time"]:
        return None
    neuron = int(np.argmax(np.abs(prediction["teacher_overlap"].values[after, :, p])))
    alone = float(np.nanmin(np.delete(expected.time, p), initial=np.inf))
    return _Way(p, time, scatter, neuron, runs, measured[runs], alone)


def _quantities(prediction: xr.Dataset, simulation: xr.Dataset, way: _Way) -> Iterator[tuple[str, Array, Array]]:
    """Yield the logarithms of loss and squared norm: words, theory (times,), runs (runs, times); what is positive."""
    for name, words in (("loss", "loss"), ("squared_norm", "squared norm")):
        if name not in prediction:
            continue
        curve, paths = np.asarray(prediction[name].values), of_sound_runs(simulation, name)[way.runs]
        if name == "squared_norm":
            curve, paths = curve[:, way.neuron], paths[:, :, way.neuron]
        if np.nanmin(curve) > 0.0 and np.nanmin(paths) > 0.0:
            yield words, np.log(curve), np.log(paths)


def _on_the_way(prediction: xr.Dataset, simulation: xr.Dataset, way: _Way) -> Iterator[PathTest]:
    """Yield the tests of what runs have when they emerge in a direction."""
    allowance, times = WAY_TOLERANCE + way.scatter**2, simulation["time"].values
    for words, curve, paths in _quantities(prediction, simulation, way):
        if words == "loss" and way.time * np.exp(FAR_APART * way.scatter) > way.alone:
            continue
        there = value_between(prediction["time"].values, curve, way.time, allowance)
        passed = [value_between(times, path, t, allowance) for t, path in zip(way.measured, paths, strict=True)]
        distance = np.array(passed) - there
        yield from _beyond(f"{words} as direction {way.direction + 1} emerges", distance, allowance)


def _afterwards(prediction: xr.Dataset, simulation: xr.Dataset, way: _Way) -> Iterator[PathTest]:
    """Yield the tests of how long after their emergence runs pass a value of norm and loss."""
    times, theirs = simulation["time"].values, np.asarray(prediction["time"].values)
    allowance = LAG_TOLERANCE + way.scatter**2
    end = float(simulation.attrs["end_time"])
    for words, curve, paths in _quantities(prediction, simulation, way):
        last = way.time + end - way.latest
        if words == "loss":
            last = min(last, way.alone - (way.latest - way.time))
        due = np.flatnonzero((theirs > way.time) & (theirs <= last) & np.isfinite(curve))
        level = _level(np.exp(curve), due, falls=words == "loss")
        if level is None:
            continue
        sign = -1.0 if words == "loss" else 1.0
        lags = [
            _lag(times, sign * path, sign * curve[level], t, end, allowance)
            for t, path in zip(way.measured, paths, strict=True)
        ]
        ratio = np.array(lags) / (theirs[level] - way.time)
        distance = np.log(np.clip(ratio, 1.0 / LARGEST_RATIO, LARGEST_RATIO))
        what = (
            f"time from the emergence of direction {way.direction + 1} until the {words} is {np.exp(curve[level]):.2g}"
        )
        yield from _beyond(what, distance, allowance)


def _level(curve: Array, due: NDArray[np.intp], *, falls: bool) -> int | None:
    """Return the saved time whose value the runs are to pass, of those that are due; None if there is none."""
    if due.size == 0:
        return None
    if falls:
        whole = float(np.nanmax(curve) - np.nanmin(curve))
        fallen = (np.nanmax(curve) - curve[due]) / max(whole, 1e-300)
        best = int(np.argmin(np.abs(fallen - 0.5)))
        return int(due[best]) if abs(fallen[best] - 0.5) <= 0.25 else None
    below = due[curve[due] <= 0.5 * np.nanmax(curve)]
    moved = below[curve[below] >= LEAST_GROWTH * curve[due[0]]]
    return int(moved[-1]) if moved.size else None


def _lag(times: Array, path: Array, level: float, start: float, end: float, tolerance: float) -> float:
    """Return how long after its start a path passes a level upwards, until the end at most.

    NaN if it is saved too coarsely to tell.
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


def _beyond(what: str, distance: Array, allowance: float) -> Iterator[PathTest]:
    """Yield Student's t-test of whether the mean of distances (runs,) is beyond an allowance on either side.

    Runs whose distance is not known are left out, and the quantity where these are half of them or more.
    """
    known = distance[np.isfinite(distance)]
    if known.size < max(FEWEST_RUNS, distance.size // 2 + 1):
        return
    mean = float(known.mean())
    excess = np.copysign(max(abs(mean) - allowance, 0.0), mean)
    score = normal_score(float(excess), float(known.std(ddof=1)) / np.sqrt(known.size), known.size - 1)
    yield PathTest(what, score, float(2.0 * special.ndtr(-abs(score))) if score else 1.0)


def _scatter(logs: Array, scatter: float, noise: Array, p: int) -> PathTest:
    """Return the test of whether the times of direction p, of logarithms (runs,), scatter by more than theory says."""
    if logs.size >= FEWEST_EXPLAINED and np.isfinite(noise).all():
        logs = logs - np.polyfit(noise, logs, 1)[0] * noise
        scatter *= min(1.0, LEAST_LEFT + MORE_LEFT * scatter)
    far = int(np.sum(np.abs(logs - np.median(logs)) > FAR_OUT * scatter))
    tail = float(special.bdtrc(far - 1, logs.size, 2.0 * special.ndtr(-FAR_OUT))) if far > 0 else 1.0
    score = float(max(-special.ndtri(max(tail, 1e-300)), 0.0))
    return PathTest(f"scatter of the times of direction {p + 1}", score, tail)
