r"""Tests of the scatter of runs: their variance against that of the bands of theory, by chi-square.

If theory holds, n runs have at a saved time a variance s² with

.. math:: \nu s^2/\sigma^2 \sim \chi^2_\nu, \qquad \nu = \min\Big(n-1,\; \frac{2(n-1)}{\gamma-(n-3)/n}\Big),

σ the standard deviation of theory and γ the kurtosis of the runs: a heavy tail makes variances scatter more than those
of a normal law, and ν smaller (`docs/verdict_curves.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from hermite.arrays import Array, Integers
from sgd_check.verdicts.evidence import Row, RowKind, judged
from sgd_check.verdicts.path_tests import interpolated
from sgd_check.verdicts.verdict import POWER, sound_runs

#: Variable of a standard deviation over runs -> the variable that scatters, and its name in sentences.
SCATTERING = {
    "loss_sd": ("loss", "loss"),
    "overlap_sd": ("teacher_overlap", "overlap"),
    "squared_norm_sd": ("squared_norm", "squared norm"),
}
#: Shift of the mean by the next order in 1/d, in standard deviations: up to it, bands hold (`band_ratio`).
LARGEST_RATIO = 0.15
#: Relative error of a standard deviation of theory that is no error, where the bands hold.
TOLERANCE = 0.1
#: A mean loss of runs that is this far from theory, in standard deviations of theory, shows that a band of the first
#: order fails for the loss, as near its minimum; the mean has its own error beside.
LARGEST_SHIFT, SHIFT_ERRORS = 0.3, 2.0
#: Fewer runs do not show the tail of their law, and variances of laws with heavier tails tell nothing.
FEWEST_RUNS, LARGEST_KURTOSIS = 16, 5.0
#: Steps before which the sum of few steps has no normal law.
FEWEST_STEPS = 30
#: Times of a quantity that are tested.
MOST_PLACES = 3
#: Standard deviations below this share of the largest value are rounding.
ROUNDING = 1e-6
#: An error of the standard deviation by this factor is to be seen.
VISIBLE_FACTOR = 2.5
#: Why nothing is decided by the scatter.
UNSEEN = f"a scatter larger or smaller by a factor of {VISIBLE_FACTOR:g} could have gone unseen"


class Sight(NamedTuple):
    """Where a quantity stands in a dataset: its variable, and the indices behind those of seed and time."""

    variable: str
    at: tuple[int, ...]


class ScatterTest(NamedTuple):
    """The test of the scatter of one quantity, such as "overlap" "(1,2)", over `runs` runs at up to three `times`.

    `ratio` (times,) are the standard deviations of the runs over those of theory, `freedom` (times,) the degrees of
    freedom of their squares, and `score` (times,) normal scores of the distance beyond the tolerance. `p` is the least
    p-value of a time, 1 if nothing is decided at any: the tails are too heavy, or the mean of a loss is far off.
    """

    kind: str
    label: str
    times: Array
    ratio: Array
    freedom: Array
    score: Array
    p: float
    runs: int

    def visible_error(self, level: float) -> float:
        """Return the least relative error of a standard deviation that one time sees at a two-sided level."""
        freedom = self.freedom[np.isfinite(self.freedom)]
        if not freedom.size:
            return np.inf
        nu = float(freedom.max())
        # Upper quantiles of chi-square: of the level, and of the power.
        above = np.sqrt(special.chdtri(nu, 0.5 * level) / special.chdtri(nu, POWER))
        below = np.sqrt(special.chdtri(nu, 1.0 - POWER) / special.chdtri(nu, 1.0 - 0.5 * level))
        return float((1.0 + TOLERANCE) * max(above, below) - 1.0)

    def row(self, rate: float, count: int, share: float = 1.0) -> Row:
        """Return the row of evidence, if `count` tests together have a `share` of the rate of false alarms."""
        distance = np.abs(np.log(np.where(np.isnan(self.freedom), 1.0, self.ratio)))
        at = int(np.argmax(np.abs(self.score) if self.score.any() else distance))
        edge, visible = float(np.log1p(TOLERANCE)), self.visible_error(share * rate / count)
        return judged(
            rate,
            quantity=f"scatter of {self.kind}",
            label=self.label,
            kind=RowKind.SCATTER,
            time=float(self.times[at]),
            value=float(np.log(self.ratio[at])),
            low=-edge,
            high=edge,
            z=float(self.score[at]),
            p_value=min(1.0, count * self.p / share),
            visible_error=visible,
            runs=self.runs,
            seen=visible <= VISIBLE_FACTOR - 1.0,
            cause=UNSEEN,
        )


def tests_of_scatter(prediction: xr.Dataset, simulation: xr.Dataset) -> list[ScatterTest]:
    """Return a test of every quantity that has a standard deviation in the prediction, where its bands hold.

    That is at saved times of the runs with `band_ratio` up to `LARGEST_RATIO`, from step `FEWEST_STEPS` on. There are
    no tests of fewer than `FEWEST_RUNS` runs, of runs from several starts, or without `band_ratio`.
    """
    sound = sound_runs(simulation)
    if "band_ratio" not in prediction or "start_seed" in simulation or np.count_nonzero(sound) < FEWEST_RUNS:
        return []
    times, saved = simulation["time"].values, prediction["time"].values
    holds = interpolated(saved, prediction["band_ratio"].values, times) <= LARGEST_RATIO
    holds &= times >= FEWEST_STEPS * float(simulation.attrs["effective_learning_rate"])
    groups = list[tuple[str, str, Integers, Array, Array, Array]]()
    for kind, label, (of, at), deviation in deviations(prediction):
        if of not in simulation:
            continue
        place: Any = (..., *at)
        runs, mean = simulation[of].values[place], prediction[of].values[place]
        path, spread = (interpolated(saved, values, times) for values in (mean, deviation))
        least = ROUNDING * float(np.nanmax(np.abs(runs), initial=0.0))
        usable = holds & (spread > least) & np.isfinite(path) & np.isfinite(runs[sound]).all(axis=0)
        if kind == SCATTERING["overlap_sd"][1]:  # near ±1 overlaps are no linear functions of angles
            usable &= spread <= 1.0 - np.abs(path)
        if usable.any():
            places = _places_of(times, np.flatnonzero(usable))
            groups.append((kind, label, places, path[places], spread[places], runs[sound][:, places]))
    kurtosis = [kurtosis_of(runs) for *_, runs in groups]
    # The law of the runs is one: a tail that shows in one quantity may be hidden in another.
    common = float(np.mean(np.concatenate(kurtosis))) if kurtosis else np.nan
    return [
        _assessed(kind, label, times[places], path, spread, runs, np.maximum(tail, common))
        for (kind, label, places, path, spread, runs), tail in zip(groups, kurtosis, strict=True)
    ]


def count_of(tests: Sequence[ScatterTest]) -> int:
    """Return the number of times at which scatter is tested, over all quantities, which share a rate."""
    return sum(test.times.size for test in tests)


def statement_of(rows: Sequence[Row]) -> list[str]:
    """Return a sentence, in a list, on the tests of scatter among rows of evidence; no sentence without such tests."""
    tested = [row for row in rows if row.kind == RowKind.SCATTER]
    if not tested:
        return []
    worst = min(tested, key=lambda row: (row.p_value, -abs(row.value)))
    return [
        f"Scatter of runs against the bands of theory: of {len(tested)} quantities the {worst.name} is farthest off, "
        f"{np.exp(worst.value):.2f} times that of theory at time {worst.time:.3g}, p = {worst.p_value:.2g}."
    ]


def deviations(prediction: xr.Dataset) -> Iterator[tuple[str, str, Sight, Array]]:
    """Yield kind and label of each quantity with a standard deviation in a prediction, its place, and that (times,)."""
    for name, (of, kind) in SCATTERING.items():
        if name not in prediction or of not in prediction:
            continue
        values = prediction[name].values
        for at in np.ndindex(values.shape[1:]):
            label = ",".join(str(index + 1) for index in at)
            yield kind, f"({label})" if len(at) > 1 else label, Sight(of, at), values[..., *at]


def _places_of(times: Array, eligible: Integers) -> Integers:
    """Return at most `MOST_PLACES` of the eligible times (indices of `times`), which divide their ln t evenly."""
    logs = np.log(times[eligible])
    shares = (np.arange(MOST_PLACES) + 0.5) / MOST_PLACES
    return np.unique(eligible[np.searchsorted(logs, logs[0] + shares * (logs[-1] - logs[0]))])


def kurtosis_of(runs: Array) -> Array:
    """Return the kurtosis over runs (runs, times) at every time, E(x − Ex)⁴/(E(x − Ex)²)², 3 for a normal law."""
    centred = runs - runs.mean(axis=0)
    return np.asarray(np.mean(centred**4, axis=0) / np.maximum(np.mean(centred**2, axis=0) ** 2, 1e-300))


def _assessed(
    kind: str, label: str, times: Array, path: Array, spread: Array, runs: Array, kurtosis: Array
) -> ScatterTest:
    """Return the test of the runs (runs, times) of one quantity against path and standard deviation (times,)."""
    n, ratio = runs.shape[0], runs.std(axis=0, ddof=1) / spread
    freedom = np.minimum(n - 1.0, 2.0 * (n - 1.0) / np.maximum(kurtosis - (n - 3.0) / n, 1e-300))
    few = special.chdtr(freedom, freedom * (ratio * (1.0 + TOLERANCE)) ** 2)
    many = special.chdtrc(freedom, freedom * (ratio / (1.0 + TOLERANCE)) ** 2)
    first_order = kurtosis <= LARGEST_KURTOSIS
    if kind == SCATTERING["loss_sd"][1]:
        first_order &= np.abs(runs.mean(axis=0) - path) <= (LARGEST_SHIFT + SHIFT_ERRORS / np.sqrt(n)) * spread
    p = np.where(first_order, np.minimum(1.0, 2.0 * np.minimum(few, many)), 1.0)
    outside = first_order & (np.abs(np.log(ratio)) > np.log1p(TOLERANCE))
    score = np.where(outside, np.copysign(-special.ndtri(np.maximum(0.5 * p, 1e-300)), ratio - 1.0), 0.0)
    freedom = np.where(first_order, freedom, np.nan)
    return ScatterTest(kind, label, times, ratio, freedom, score, float(p.min()), n)
