r"""Whether the runs go theory's way, whatever their times: where they start, what they pass through, how they scatter.

Times of emergence alone miss an error that leaves them as they are. Three kinds of numbers do not depend on how early
or late a run is, and share a part of the rate of false alarms evenly (Bonferroni):

- *The start.* Runs and prediction have loss, squared norms and overlaps of time 0, which nothing has moved: a
  difference of 1 % is an error for certain.
- *On the way.* With T_r the time at which run r has direction p, and T that of theory, the mean over runs of

  .. math:: \ln x_r(T_r) - \ln x(T)

  lies within 0.1 + s², x the loss and the squared norm of the neuron that theory has there: norms grow while a run
  searches, by as much more as it takes longer. Student's t beyond that. Runs without emergence are left out, and the
  loss where another direction may be learned by then.
- *The scatter.* The standard deviation of ln T is at most the s of leading order, which higher orders lower. So no more
  runs are further than 1.5 s from their median than of a normal law, 13 %: the binomial tail. (A variance would let a
  single run that noise has thrown back decide.) Runs without emergence count as of the horizon. Where the noise of the
  runs is known (`sgd_check.verdicts.run_noise`) the regression on it leaves less, and s is replaced by s (0.2 + 1.5 s),
  if that is less. (Measured for k = 3 and 4, up to three directions, d = 16 to 64, s = 0.07 to 0.52: half of that.)

The last two are asked of isolated directions (`Expectation.isolated`) that are predicted within the runs: elsewhere
another neuron may be first in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from sgd_check.verdicts.alignment import of_sound_runs
from sgd_check.verdicts.direction import FEWEST_EXPLAINED, FEWEST_RUNS, normal_score
from sgd_check.verdicts.loss_band import interpolated
from sgd_check.verdicts.rivals import FAR_APART

if TYPE_CHECKING:
    from collections.abc import Iterator

    import xarray as xr

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
        found += _on_the_way(prediction, simulation, expected, measured[:, p], p)
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


def _on_the_way(
    prediction: xr.Dataset, simulation: xr.Dataset, expected: Expectation, measured: Array, p: int
) -> Iterator[PathTest]:
    """Yield the tests of what runs (runs,) have when they emerge in direction p."""
    if not {"teacher_overlap", "loss"} <= set(prediction) or "time" not in prediction["loss"].dims:
        return
    time, times = expected.time[p : p + 1], simulation["time"].values
    runs = np.flatnonzero(measured <= times[-1])
    if runs.size < FEWEST_RUNS or not prediction["time"].values[-1] >= time[0]:
        return
    overlaps = np.moveaxis(np.asarray(prediction["teacher_overlap"].values)[:, :, p], 0, -1)
    neuron = int(np.argmax(np.abs(interpolated(prediction["time"].values, overlaps, time))[:, 0]))
    square = expected.scatter[p] ** 2
    first = time[0] * np.exp(FAR_APART * expected.scatter[p]) <= np.nanmin(np.delete(expected.time, p), initial=np.inf)
    for name, words in (("loss", "loss"),) * bool(first) + (("squared_norm", "squared norm"),):
        if name not in prediction:
            continue
        curve, paths = np.asarray(prediction[name].values), of_sound_runs(simulation, name)[runs]
        if name == "squared_norm":
            curve, paths = curve[:, neuron], paths[:, :, neuron]
        there = float(interpolated(prediction["time"].values, curve, time)[0])
        passed = np.array([np.interp(t, times, path) for t, path in zip(measured[runs], paths, strict=True)])
        if there > 0.0 and (passed > 0.0).all():
            distance = np.log(passed / there)
            yield _beyond(f"{words} as direction {p + 1} emerges", distance, WAY_TOLERANCE + square)


def _beyond(what: str, distance: Array, allowance: float) -> PathTest:
    """Return Student's t-test of whether the mean of distances is beyond an allowance on either side."""
    mean, runs = float(distance.mean()), distance.size
    excess = np.copysign(max(abs(mean) - allowance, 0.0), mean)
    score = normal_score(float(excess), float(distance.std(ddof=1)) / np.sqrt(runs), runs - 1)
    return PathTest(what, score, float(2.0 * special.ndtr(-abs(score))) if score else 1.0)


def _scatter(logs: Array, scatter: float, noise: Array, p: int) -> PathTest:
    """Return the test of whether the times of direction p, of logarithms (runs,), scatter by more than theory says."""
    if logs.size >= FEWEST_EXPLAINED and np.isfinite(noise).all():
        logs = logs - np.polyfit(noise, logs, 1)[0] * noise
        scatter *= min(1.0, LEAST_LEFT + MORE_LEFT * scatter)
    far = int(np.sum(np.abs(logs - np.median(logs)) > FAR_OUT * scatter))
    tail = float(special.bdtrc(far - 1, logs.size, 2.0 * special.ndtr(-FAR_OUT))) if far > 0 else 1.0
    score = float(max(-special.ndtri(max(tail, 1e-300)), 0.0))
    return PathTest(f"scatter of the times of direction {p + 1}", score, tail)
