r"""Tests of curves: theory at several saved times against the mean over runs of SGD, for `curve_verdict`.

**What is tested.** A curve is a loss, a learned mass or a component over time, or the logarithm of one time, which is a
curve with one point. Of every run r there is one curve x_r. It is held against the theory y at up to eight times t_k,
which y alone chooses, before any run: where it has gone through 1/16, 3/16, …, 15/16 of its total variation, or at the
next time at which it is known: between saved times of theory, or of the second of two simulations, a value is taken
only where every other saved one gives the same, to the tolerance, as those between them (`saved_values`). The null
hypothesis is

.. math:: |E x(t_k) - y(t_k)| \le b = R \Big(\tau + 3 \max_k \frac{\Delta_k^2}{R^2}\Big), \qquad \tau = 0.02,

with R the range of y over the runs; for the logarithm of a time R = 1. What lies within 2 % of the range is no error
of the theory. The second term is what is left of the step size:

- *Equation of finite steps, runs at its learning rate*: it has the mean motion, but not what the scatter of the runs
  does to a mean. Δ is the standard deviation over runs. A logistic curve y(λt) of an escape with constant noise, whose
  times scatter by σ/λ, has Δ = y'σ ≤ σ/4; its mean is off by ½ y''σ², and late by σ²/2λ, which moves it by y'σ²/2. That
  is at most 0.17 σ², 2.8 times Δ², hence the 3.
- *Flow, runs at two learning rates η and η/ρ*: x = (ρ x_{η/ρ} − x_η)/(ρ − 1), run by run, has no effect of first
  order in η. Δ is that effect at η, ρ/(ρ − 1) times the difference of the two means. If steps delay the curve by
  δ + δ²/λ… what remains for ρ = 2 is ¼ y''δ² + ½ y'δ² ≤ 0.15 δ², 2.4 times Δ². Where Δ is over 15 % of R, two learning
  rates do not say whether η is small, and the curve refutes nothing.

**False alarms.** Each time has a two-sided Student's t with the standard error S/√n, in which S is the *largest*
standard deviation of x over the curve's times. All times of all curves are combined by Bonferroni, which needs no
independence: the level of each is the rate over their number. Under the null hypothesis each t is, in law, at most
Student's, for normal x. With the standard deviation of each time in place of S the test is wrong: before a transition
hardly any run moves, the law is skewed, and a sample without an early run has a small mean and a smaller error; for
sharp curves and runs early or late by half such tests alarm in over a tenth of comparisons at a level of 1 %. With S it
is 0.0 to 0.3 % for logistic, sharp, exponential and two-stepped curves, 8 or 32 runs, early and late by 5 to 50 % with
a normal law, and theory in the middle or at an edge of its band (2000 ensembles each); 1.7 % at most where delays have
an exponential law.

**Power.** The error that is to be seen is one of 30 % in time: the truth is y(t/1.3) or y(1.3 t). If one of the times
sees it, the test does, so that the power is at least the largest over k of the non-central t with distance
(|y(t_k/1.3) − y(t_k)| − b)/(S/√n); the smaller one of the two errors counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hermite.arrays import Array, Integers
from sgd_check.verdicts.direction import POWER

#: Times of a curve that are tested.
MOST_LOOKS = 8
#: Part of its range by which theory and the mean of SGD may differ everywhere.
TOLERANCE = 0.02
#: What second order may do, in squares of the first order over the range.
SECOND_ORDER = 3.0
#: Part of its range by which the step size may move a curve that is extrapolated to none.
LARGEST_EFFECT = 0.15
#: Part of its range by which runs may scatter at one time, so that it moves their mean to second order.
LARGEST_SCATTER = 0.25
#: Far beyond this the non-central law of scipy is not a number.
LARGEST_DISTANCE = 1e3


class Curve(NamedTuple):
    """What theory and runs say of one quantity, such as the "learned mass of direction" "2", at common times (times,).

    `theory` (times,); `runs` (runs, times), without effect of the step size to first order; `effect` (times,), the size
    of what is allowed for in second order; `dilated` (2, times), the theory if its times were 30 % longer or shorter,
    NaN where not known. `scale` is the least range at which the curve counts as moving. `extrapolated` says whether the
    effect was taken away by two learning rates, and `scatter` (times,) is the standard deviation over runs. `saved`
    (times,) says where theory and runs are saved closely enough to be compared; None: everywhere.
    """

    kind: str
    label: str
    times: Array
    theory: Array
    runs: Array
    effect: Array
    dilated: Array
    scale: float
    extrapolated: bool = False
    scatter: Array | None = None
    saved: NDArray[np.bool_] | None = None

    @property
    def name(self) -> str:
        """What the quantity is called."""
        return f"{self.kind} {self.label}".strip()

    @property
    def is_time(self) -> bool:
        """Whether this is the logarithm of a time."""
        return " time of " in self.kind

    @property
    def range(self) -> float:
        """The unit of all allowances: how far theory moves, and at least `scale`."""
        return max(float(np.ptp(self.theory)), self.scale)

    @property
    def known(self) -> bool:
        """Whether the effect of the step size is so small that what is left of it is known."""
        return not self.extrapolated or bool(np.max(self.effect) <= LARGEST_EFFECT * self.range)

    @property
    def scatters(self) -> bool:
        """Whether runs scatter so much that what this does to their mean is not known."""
        return self.scatter is not None and bool(np.max(self.scatter) > LARGEST_SCATTER * self.range)

    @property
    def moves(self) -> bool:
        """Whether theory moves so far that an error in its times means something."""
        return bool(np.ptp(self.theory) >= self.scale)


class CurveTest(NamedTuple):
    """The test of one curve at its looks: times by index, means over runs, predicted values, normal scores (looks,).

    `error` is the standard error of every mean, `allowance` the band around the prediction; `score` is the signed
    distance beyond the band as a normal score. `p` is the least p-value of a look, `power` the probability that an
    error of 30 % in time is seen, NaN where theory does not move.
    """

    curve: Curve
    looks: Integers
    mean: Array
    predicted: Array
    error: float
    allowance: float
    score: Array
    p: float
    power: float

    @property
    def resolved(self) -> bool:
        """Whether an error of 30 % in time would have been seen."""
        return bool(self.power >= POWER)


def looks_of(theory: Array, saved: NDArray[np.bool_] | None = None) -> Integers:
    """Return the indices of the times at which a curve is tested, spread evenly over its total variation.

    Where `saved` (times,) is false nothing is compared: the next time at which it is true takes its place, or the last.

    Examples
    --------
    >>> looks_of(np.array([0.0, 0.0, 0.5, 1.0, 1.0])).tolist()
    [2, 3]
    >>> looks_of(np.array([1.0, 1.0])).tolist()
    [1]
    """
    way = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(theory)))])
    places = np.arange(theory.size) if saved is None else np.flatnonzero(saved)
    if way[-1] == 0.0:
        return places[-1:]
    shares = (np.arange(MOST_LOOKS) + 0.5) / MOST_LOOKS
    looks = np.searchsorted(places, np.searchsorted(way, shares * way[-1]))
    return np.unique(places[np.minimum(looks, places.size - 1)])


def assess_curves(curves: list[Curve], rate: float) -> tuple[list[CurveTest], float]:
    """Test all curves together at a rate of false alarms; return the tests, and the global p-value by Bonferroni.

    A curve of which it is not known what is left of the step size has its share of the rate, and refutes nothing. Every
    curve needs two runs or more.
    """
    looks = [looks_of(curve.theory, curve.saved) for curve in curves]
    count = sum(part.size for part in looks)
    tests = [_test(curve, part, rate / count) for curve, part in zip(curves, looks, strict=True)]
    return tests, min(1.0, count * min((test.p for test in tests if test.curve.known), default=1.0))


def power_of(curve: Curve, looks: Integers, spread: float, runs: int, level: float) -> float:
    """Return the least probability, of both errors of 30 % in time, to be seen in so many runs; NaN if none moves it.

    `spread` is S, the largest standard deviation over the looks, and `level` that of one look, two-sided.
    """
    if not curve.moves:
        return np.nan
    theory, dilated = curve.theory[looks], curve.dilated[:, looks]
    distance = np.abs(dilated - theory) - allowance_of(curve, looks)
    farthest = np.where(np.isnan(distance), -np.inf, distance).max(axis=1)
    with np.errstate(divide="ignore"):
        scores = np.clip(np.sqrt(runs) * farthest / np.float64(max(spread, 1e-300)), 0.0, LARGEST_DISTANCE)
    critical = special.stdtrit(runs - 1, 1.0 - 0.5 * level)
    found = np.where(farthest > 0.0, 1.0 - special.nctdtr(runs - 1, scores, critical), 0.0)
    # Beyond some 40 standard errors scipy's law is not a number.
    return float(np.where(scores > 10.0 * critical, 1.0, found).min())


def allowance_of(curve: Curve, looks: Integers) -> float:
    """Return the half-width b of the band around the theory."""
    unit = curve.range
    effect = float(np.max(curve.effect[looks])) / unit
    return unit * (TOLERANCE + SECOND_ORDER * effect**2)


def _test(curve: Curve, looks: Integers, level: float) -> CurveTest:
    values = curve.runs[:, looks]
    runs = values.shape[0]
    mean, predicted = values.mean(axis=0), curve.theory[looks]
    spread = float(values.std(axis=0, ddof=1).max())
    error, allowance = spread / np.sqrt(runs), allowance_of(curve, looks)
    beyond = np.maximum(np.abs(mean - predicted) - allowance, 0.0)
    # A spread of rounding alone, as of runs without noise, leaves any difference beyond the band certain.
    t = beyond / max(error, 1e-12 * curve.range)
    tail = special.stdtr(runs - 1, -t)
    score = np.where(beyond > 0.0, np.copysign(-special.ndtri(np.maximum(tail, 1e-300)), mean - predicted), 0.0)
    p = float(min(1.0, 2.0 * tail.min())) if beyond.any() else 1.0
    power = power_of(curve, looks, spread, runs, level)
    return CurveTest(curve, looks, mean, predicted, error, allowance, score, p, power)
