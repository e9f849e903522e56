r"""Verdicts by curves: theory at several saved times against the mean over runs of SGD.

A curve is a loss, a learned mass or a component over time, or the logarithm of one time, which is a curve with one
point. At up to eight times, which the theory y alone chooses, |E x − y| is to be at most R (0.02 + 3 max Δ²/R²), with R
the range of y and Δ the remaining effect of the step size (`docs/verdict_curves.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import special

from dynamics.equations import NetworkSystem
from dynamics.equations.network.points import BLOCKS, ERRORS
from dynamics.problem import Problem, is_network, needs_points
from dynamics.solve.reused_data import GROUPS
from hermite.arrays import Array, Integers, Switches
from sgd_check.simulations.recording import observables_of
from sgd_check.verdicts.bands import ScatterTest, count_of, statement_of, tests_of_scatter
from sgd_check.verdicts.evidence import Decision, Row, RowKind, global_p_value, judged, named, word_of
from sgd_check.verdicts.expectation import Expectation, predicted_times
from sgd_check.verdicts.path_tests import LossBand, PathTest, interpolated, known_between, rows_of_paths
from sgd_check.verdicts.starts import tests_of_starts
from sgd_check.verdicts.time_tests import OneSided, TimeTest, assess_direction, scatter
from sgd_check.verdicts.times import EventTests, time_variables
from sgd_check.verdicts.verdict import (
    MORE_WORK,
    POWER,
    USABLE,
    VISIBLE_ERROR,
    definition_of_learned,
    difference,
    event_of,
    has_step,
    lacking_row,
    leave,
    other_optimizer,
    reach_in_errors,
    significantly,
    sound_runs,
    tell_alike,
    too_few,
    unfinished,
    verdict_tree,
)

#: Times of a curve that are tested.
MOST_PLACES = 8
#: Largest difference of theory and the mean of SGD that is no error, in parts of the range.
TOLERANCE = 0.02
#: Allowance for second order, in squares of the first order over the range.
SECOND_ORDER = 3.0
#: Largest effect of the step size on a curve that is extrapolated to none, in parts of its range.
LARGEST_EFFECT = 0.15
#: Largest scatter of runs at one time that moves their mean to second order, in parts of the range.
LARGEST_SCATTER = 0.25
#: Far beyond this the non-central law of scipy is not a number.
LARGEST_DISTANCE = 1e3
#: Least scatter of runs, in parts of the range: rounding, also of single precision.
ROUNDING = 1e-6
#: Times that differ by less than this factor are nearby.
NEARBY = 5.0
#: A learned mass, component or sensitivity moves if it does so by this part of its teacher's; a loss, of its largest
#: and of E f*².
LEAST_SHARE = 0.25
LEAST_LOSS_SHARE = 0.05
#: Kind of the curve of the loss of the averages of the weights.
AVERAGE = "loss of the average"
#: Variables with one time per run -> names of the time, of other students and of networks.
TIMES = {
    "emergence_time": ("emergence time of direction", "emergence time of axis"),
    "component_learned_time": ("", "learning time of component"),
    "learned_time": ("learned time of direction", ""),
}
#: Why nothing is decided by a curve or time.
STILL = "theory hardly moves it"
STEP_MOVES = "the step size moves it too much to extrapolate from two learning rates"
FEW, WIDE = "too few runs have it", "theory allows an error of 30 %, whatever the number of runs"
UNSEEN = "an error of 30 % could have gone unseen"
#: Why a difference does not speak against theory.
STEP_MAY = "That may be the effect of the step size: simulate at half of the learning rate too, and compare with both."
#: Times in which an error of 30 % is to be seen; learned times are those of the learned masses, which are curves.
AWAITED = ("emergence_time", "component_learned_time")


class Curve(NamedTuple):
    """One quantity, such as the "learned mass of direction" "2", by theory and runs at common times (times,).

    `runs` (runs, times) are free of the effect of the step size to first order; the square of `effect` (times,) bounds
    the second order. `dilated` (2, times) is the theory if its times were 30 % longer or shorter. `scale` is the least
    range at which the curve counts as moving. `extrapolated` says whether runs at two learning rates removed the
    effect. `scatter` (times,) is the standard deviation over runs. `saved` (times,) says at which times theory and runs
    are saved closely enough, None at all. `theory_error` (times,) are standard errors of a theory that is a mean over
    `theory_groups` groups of points. For a single time, `awaited` says whether 1.3 times it lies within the runs, which
    end at ln time `horizon`; runs that lack the time are NaN.
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
    saved: Switches | None = None
    theory_error: Array | None = None
    theory_groups: int = GROUPS
    awaited: bool = False
    horizon: float = np.inf

    @property
    def name(self) -> str:
        """Name of the quantity in sentences."""
        return f"{self.kind} {self.label}".strip()

    @property
    def is_time(self) -> bool:
        """Whether this is the logarithm of a time."""
        return " time of " in self.kind

    @property
    def range(self) -> float:
        """The unit of all allowances: the range of theory, or `scale` if that is larger."""
        return max(float(np.ptp(self.theory)), self.scale)

    @property
    def known(self) -> bool:
        """Whether the effect of the step size is so small that its second order is bounded."""
        return not self.extrapolated or bool(np.max(self.effect) <= LARGEST_EFFECT * self.range)

    @property
    def scatters(self) -> bool:
        """Whether runs scatter so much that the effect of the scatter on their mean is not known."""
        return self.scatter is not None and bool(np.max(self.scatter) > LARGEST_SCATTER * self.range)

    @property
    def moves(self) -> bool:
        """Whether theory moves by `scale` or more, so that an error in time would show; of a time: it is awaited."""
        return self.awaited if self.is_time else bool(np.ptp(self.theory) >= self.scale)


class CurveTest(NamedTuple):
    """The test of one curve at some `places` (K,), indices of its times: means over runs, predictions, scores (K,).

    `error` (K,) are the standard errors of the means, of so many degrees of `freedom` (K,), `allowance` the band;
    `score` is the distance beyond it as a normal score. `p` is the least p-value of a place, `power` that to see an
    error of 30 %.
    """

    curve: Curve
    places: Integers
    mean: Array
    predicted: Array
    error: Array
    freedom: Array
    allowance: float
    score: Array
    p: float
    power: float
    level: float = np.nan

    def runs_needed(self) -> float:
        """Return how many runs of this scatter see a relative error of 30 % in time; inf if no number does."""
        runs, distance = self.curve.runs.shape[0], np.abs(self.curve.dilated - self.curve.theory)[:, self.places]
        if self.power >= POWER:
            return float(runs)
        reach = reach_in_errors(runs - 1, self.level) * self.error
        with np.errstate(divide="ignore"):
            share = np.where(distance > self.allowance, reach / np.maximum(distance - self.allowance, 0.0), np.inf)
        needed = float(np.where(np.isnan(share), np.inf, share).min(axis=1).max())
        return runs * max(1.0, needed * needed) if self.curve.known else np.inf

    @property
    def is_too_wide(self) -> bool:
        """Whether the band contains an error of 30 %, so that no number of runs shows it."""
        distance = np.abs(self.curve.dilated[:, self.places] - self.curve.theory[self.places])
        return bool(np.nanmin(np.nanmax(distance, axis=1)) <= self.allowance)

    def row(self, rate: float, count: int, excuse: str = "") -> Row:
        """Return the row of evidence of this test, if `count` tests share the `rate` of false alarms by Bonferroni.

        `excuse` is a sentence on another cause of a difference, "" if there is none.
        """
        curve, distance = self.curve, self.mean - self.predicted
        at = int(np.argmax(np.abs(self.score if self.score.any() else np.nan_to_num(distance))))
        width = self.allowance / curve.range
        return judged(
            rate,
            quantity=curve.kind,
            label=curve.label,
            kind=RowKind.TIME if curve.is_time else RowKind.CURVE,
            time=float(curve.times[self.places[at]]),
            value=float(distance[at] / curve.range),
            low=-width,
            high=width,
            z=float(self.score[at]),
            p_value=min(1.0, count * self.p) if curve.known else np.nan,
            power=self.power,
            runs=curve.runs.shape[0],
            required=curve.moves,
            seen=curve.known and self.power >= POWER,
            cause=self._cause(),
            excuse=excuse,
        )

    def _cause(self) -> str:
        """Return the cause for which an error of 30 % may go unseen."""
        if not self.curve.moves:
            return STILL
        if not self.curve.known:
            return STEP_MOVES
        if self.curve.is_time and np.isnan(self.mean).any():
            return FEW
        return WIDE if self.is_too_wide else UNSEEN


def places_of(theory: Array, saved: Switches | None = None) -> Integers:
    """Return the indices of the times at which a curve `theory` (times,) is tested, at most `MOST_PLACES` of them.

    They divide the total variation of the curve evenly, and are among those that `saved` (times,) marks.
    """
    way = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(theory)))])
    eligible = np.arange(theory.size) if saved is None else np.flatnonzero(saved)
    if way[-1] == 0.0:
        return eligible[-1:]
    shares = (np.arange(MOST_PLACES) + 0.5) / MOST_PLACES
    chosen = np.searchsorted(eligible, np.searchsorted(way, shares * way[-1]))
    return np.unique(eligible[np.minimum(chosen, eligible.size - 1)])


def assess_curves(curves: list[Curve], rate: float, others: int = 0) -> tuple[list[CurveTest], float]:
    """Return the tests of all curves at a rate of false alarms, and the global p-value by Bonferroni.

    `others` is the number of further tests that share the rate with the places of curves. A curve with an unknown
    remaining effect of the step size keeps its share of the rate, but refutes nothing.
    """
    chosen = [places_of(curve.theory, curve.saved) for curve in curves]
    count, tests = others + sum(part.size for part in chosen), []
    for curve, places in zip(curves, chosen, strict=True):
        if np.isnan(curve.runs).any():
            tests.append(_assess_censored(curve, places, rate / count))
            continue
        mean, predicted = curve.runs[:, places].mean(axis=0), curve.theory[places]
        spread, allowance = scatter_of(curve), allowance_of(curve, places)
        error, freedom = error_of(curve, spread, curve.runs.shape[0])
        beyond = np.maximum(np.abs(mean - predicted) - allowance, 0.0)
        tail = special.stdtr(freedom[places], -beyond / error[places])
        size = -special.ndtri(np.maximum(tail, 1e-300))
        score = np.where(beyond > 0.0, np.copysign(size, mean - predicted), 0.0)
        p = float(min(1.0, 2.0 * tail.min())) if beyond.any() else 1.0
        power = power_of(curve, places, error, freedom, rate / count)
        results = (mean, predicted, error[places], freedom[places], allowance, score, p, power, rate / count)
        tests.append(CurveTest(curve, places, *results))
    return tests, min([1.0, *(count * test.p for test in tests if test.curve.known)])


def _assess_censored(curve: Curve, places: Integers, level: float) -> CurveTest:
    """Return the test of one time that some runs do not reach, at the two-sided level `level`.

    Nothing is tested, and p is 1, for runs at two learning rates or if half of the runs lack the time.
    """
    logs, allowance = curve.runs[:, 0] - curve.theory[0], allowance_of(curve, places)
    reach, lacking = curve.horizon - float(curve.theory[0]), int(np.isnan(logs).sum())
    mean, error = np.full((2, 1), np.nan)
    score, freedom, power, p = np.zeros(1), np.array([logs.size - 1.0]), 0.0, 1.0
    test = None
    if not curve.extrapolated and 2 * lacking < logs.size:
        test = assess_direction(logs, reach, -allowance, allowance, level)
    if test is not None:
        mean, error, score, p = curve.theory + test.mean, np.array([test.standard_error]), np.array([test.z]), test.p
        power = test.power
    power = power if curve.moves else np.nan
    return CurveTest(curve, places, mean, curve.theory, error, freedom, allowance, score, p, power, level)


def scatter_of(curve: Curve) -> Array:
    """Return the standard deviation over runs at every time of a curve (times,), bounded from below.

    If theory has made a share p of its way, runs that have made all of it or nothing scatter by 2 √(p (1 − p)) times
    as much as halfway, which a few runs do not show while p is small. The bound is this factor times the largest
    scatter at nearby times, or rounding if that is larger.
    """
    measured = curve.runs.std(axis=0, ddof=1)
    way = np.abs(np.diff(curve.theory, prepend=curve.theory[:1])).cumsum()
    share = way / way[-1] if way[-1] > 0.0 else way
    near = np.abs(curve.times[:, None] - curve.times) <= (NEARBY - 1.0) * np.minimum(curve.times[:, None], curve.times)
    largest = np.where(near, measured, 0.0).max(axis=1)
    bound = np.maximum(2.0 * np.sqrt(share * (1.0 - share)) * largest, ROUNDING * curve.range)
    return np.asarray(np.maximum(measured, bound))


def error_of(curve: Curve, scatter: Array, runs: int) -> tuple[Array, Array]:
    """Return standard errors (times,) of the mean of runs less theory, and their degrees of freedom (Welch)."""
    error = scatter / np.sqrt(runs)
    if curve.theory_error is None:
        return error, np.full(error.size, runs - 1.0)
    drawn = np.nan_to_num(curve.theory_error)
    both = np.hypot(error, drawn)
    return both, both**4 / (error**4 / (runs - 1) + drawn**4 / (curve.theory_groups - 1))


def power_of(curve: Curve, places: Integers, error: Array, freedom: Array, level: float) -> float:
    """Return the least probability that an error in `curve.dilated` is seen at a two-sided level; NaN at rest.

    `error` and `freedom` (times,) are those of the means. If times are wrong, runs scatter as elsewhere on the curve:
    by the larger one of the scatter at a place, and where theory has the value that the error gives there.
    """
    if not curve.moves:
        return np.nan
    theory, dilated = curve.theory[places], curve.dilated[:, places]
    distance = np.abs(dilated - theory) - allowance_of(curve, places)
    if len(dilated) == 2 and not curve.is_time:
        factor = np.array([[1.0 / (1.0 + VISIBLE_ERROR)], [1.0 + VISIBLE_ERROR]])
        error_there = np.maximum(error[places], np.interp(factor * curve.times[places], curve.times, error))
    else:
        error_there = np.broadcast_to(error[places], distance.shape)
    with np.errstate(divide="ignore", over="ignore"):
        scores = np.clip(np.nan_to_num(distance, nan=-np.inf) / np.maximum(error_there, 1e-300), 0.0, LARGEST_DISTANCE)
    critical = special.stdtrit(freedom[places], 1.0 - 0.5 * level)
    power = np.where(scores > 0.0, 1.0 - special.nctdtr(freedom[places], scores, critical), 0.0)
    # Beyond some 40 standard errors scipy's law is not a number.
    return float(np.where(scores > 10.0 * critical, 1.0, np.nan_to_num(power)).max(axis=1).min())


def allowance_of(curve: Curve, places: Integers) -> float:
    """Return the half-width of the band around the theory, in the units of the curve.

    It is a share of the curve's range, plus the square of the effect of the step size, which bounds what is left of it.
    """
    unit = curve.range
    effect = float(np.max(curve.effect[places])) / unit
    return unit * (TOLERANCE + SECOND_ORDER * effect**2)


class Quantity(NamedTuple):
    """A quantity over time: of a prediction (times,), of runs (runs, times); `scale` is that of a `Curve`."""

    kind: str
    label: str
    values: Array
    scale: float
    error: Array | None = None
    groups: int = GROUPS


def quantities_of(problem: Problem, dataset: xr.Dataset) -> Iterator[Quantity]:
    """Yield loss and learned masses of a prediction, without dimension `seed`, or of runs.

    A network has its components by name instead of learned masses, or without components the eigenvalues of its
    sensitivity; under another loss, with labels that are classes or on a mixture loss, test error, norms and overlaps.
    The loss of averaged weights is added where there is one. For samples that are used again, the loss
    over these, overlaps and squared norms come first, and a prediction has no other quantities.
    """
    if needs_points(problem):
        yield from _by_points(dataset)
        return
    if "loss" in dataset and "time" in dataset["loss"].dims:
        loss = np.asarray(dataset["loss"].values, dtype=np.float64)
        # A prediction that is saved from later on has a loss much smaller than E f*².
        whole = float(dataset["teacher_by_degree"].sum()) if "teacher_by_degree" in dataset else 0.0
        least = LEAST_LOSS_SHARE * float(np.nanmax(loss, initial=whole))
        again = "train_loss" in dataset
        yield Quantity("loss", "", loss, least, _error(dataset, "loss") if again else None)
        if again:
            yield from _of_reused_samples(dataset)
            if "seed" not in dataset.dims:
                return
        if "average_loss" in dataset:
            yield Quantity(AVERAGE, "", np.asarray(dataset["average_loss"].values, dtype=np.float64), least)
    if not is_network(problem):
        kind, values, sizes = "learned mass of direction", _masses(problem, dataset), problem.teacher.coefficients
        labels: list[object] = [*range(1, values.shape[-1] + 1)]
    else:
        kind = "component" if "component" in dataset else "sensitivity"
        values = dataset[kind].values if kind in dataset else _sensitivities(problem, dataset)
        labels = dataset["component_name" if kind == "component" else "direction"].values.tolist()
        largest = np.abs(values).reshape(-1, len(labels))
        teacher = dataset.get(f"teacher_{kind}")
        sizes = np.nanmax(largest, axis=0, initial=0.0) if teacher is None else np.abs(teacher.values)
    for at, label in enumerate(labels):
        path = np.asarray(values[..., at], dtype=np.float64)
        yield Quantity(kind, str(label), path, LEAST_SHARE * float(sizes[at]))


#: Variables of networks by points -> kind, and the least range at which it moves, in parts of the largest value.
BY_POINTS = {
    "loss": ("loss", LEAST_LOSS_SHARE), "test_error": ("test error", LEAST_LOSS_SHARE),
    "squared_norm": ("squared norm", LEAST_SHARE), "teacher_overlap": ("overlap", LEAST_SHARE),
}  # fmt: skip


def _by_points(dataset: xr.Dataset) -> Iterator[Quantity]:
    """Yield loss, test error, squared norms and overlaps M/|w|, with the errors that a prediction has by points."""
    start = 2 if "seed" in dataset.dims else 1
    for name in (name for name in BY_POINTS if name in dataset):
        kind, share = BY_POINTS[name]
        values, error = np.asarray(dataset[name].values, dtype=np.float64), _error(dataset, name)
        for at in np.ndindex(values.shape[start:]):
            path, label = values[(..., *at)], ",".join(str(index + 1) for index in at)
            whole = 1.0 if kind == "overlap" else float(np.nanmax(np.abs(path), initial=0.0))
            drawn = None if error is None else error[(..., *at)] / ERRORS
            yield Quantity(kind, f"({label})" if len(at) > 1 else label, path, share * whole, drawn, BLOCKS)


def _error(dataset: xr.Dataset, name: str) -> Array | None:
    """Return the standard error of a variable, stored with `_error` behind its name, or None."""
    return dataset[f"{name}_error"].values if f"{name}_error" in dataset else None


def _of_reused_samples(dataset: xr.Dataset) -> Iterator[Quantity]:
    """Yield the loss over samples that are used again, and all overlaps M/|w| and squared norms."""
    train = np.asarray(dataset["train_loss"].values, dtype=np.float64)
    least = LEAST_LOSS_SHARE * float(np.nanmax(train, initial=0.0))
    yield Quantity("train loss", "", train, least, _error(dataset, "train_loss"))
    for name, kind in (("teacher_overlap", "overlap"), ("squared_norm", "squared norm")):
        values, error = np.asarray(dataset[name].values, dtype=np.float64), _error(dataset, name)
        start = 2 if "seed" in dataset.dims else 1
        for at in np.ndindex(values.shape[start:]):
            path, label = values[(..., *at)], ",".join(str(index + 1) for index in at)
            label = f"({label})" if len(at) > 1 else label
            whole = 1.0 if kind == "overlap" else float(np.nanmax(path, initial=0.0))
            yield Quantity(kind, label, path, LEAST_SHARE * whole, None if error is None else error[(..., *at)])


def _masses(problem: Problem, dataset: xr.Dataset) -> Array:
    """Return learned masses (…, times, P), by the definition of the problem; an empty array without such masses."""
    part = problem.learned_part
    if part.is_defined and "learned_mass" in dataset and definition_of_learned(dataset) == part.definition:
        return np.asarray(dataset["learned_mass"].values)
    if not part.is_defined or not {"teacher_overlap", "squared_norm"} <= set(dataset):
        return np.empty((0, 0))
    overlap, norm = dataset["teacher_overlap"].values, dataset["squared_norm"].values
    flat = observables_of(problem).learned(overlap.reshape(-1, *overlap.shape[-2:]), norm.reshape(-1, norm.shape[-1]))
    return flat.reshape(*overlap.shape[:-2], -1)


def _sensitivities(problem: Problem, simulation: xr.Dataset) -> Array:
    """Return the eigenvalues of the matrix E[∂_a f ∂_b f] over teacher axes a and b, (seeds, times, directions).

    f is the output of the network, and entries are NaN where a run blew up.
    """
    system = NetworkSystem(problem)
    names = ("second_layer", "bias", "squared_norm", "teacher_overlap", "student_overlap")
    v, b, n, C, G = (simulation[name].values for name in names)
    eigenvalues = np.full((*n.shape[:2], problem.teacher.span), np.nan)
    for at in zip(*np.nonzero(np.isfinite(n).all(axis=-1)), strict=True):
        length = np.sqrt(n[at])
        state = system.pack(v[at], b[at], C[at] * length[:, None], G[at] * np.outer(length, length))
        eigenvalues[at] = system.summarise(state)["sensitivity"]
    return eigenvalues


def curves_over_time(problem: Problem, prediction: xr.Dataset, simulations: Sequence[xr.Dataset]) -> list[Curve]:
    """Return every quantity that prediction and runs have, as curves at times that all of them reach.

    `simulations` are one dataset of runs, or two at different learning rates, whose values are extrapolated to a
    vanishing step. Times are those of records of the first, within prediction and all runs. A `Curve` has, over these
    times, theory, runs (runs, times), the bound on the effect of the step size that is left, and theory with times 30 %
    shorter and longer. Curves that are not finite at some time, or nowhere known between records, are left out.
    """
    measured = [{quantity[:2]: quantity.values for quantity in quantities_of(problem, part)} for part in simulations]
    pairs, times = paired_runs(simulations), _common_times(prediction, simulations)
    stepped, curves = has_step(prediction), []
    grid = np.array([times, times / (1.0 + VISIBLE_ERROR), times * (1.0 + VISIBLE_ERROR)])
    predicted = list(quantities_of(problem, prediction)) if times.size else []
    if all((AVERAGE, "") in part for part in measured) and "average_loss" not in prediction:
        # Theory without averages has one loss.
        predicted += [quantity._replace(kind=AVERAGE) for quantity in predicted if quantity.kind == "loss"]
    for kind, label, theory, scale, error, groups in predicted:
        if any((kind, label) not in part for part in measured):
            continue
        expected, *dilated = interpolated(prediction["time"].values, theory, grid)
        paths = [
            (dataset["time"].values, part[kind, label][pairs])
            for dataset, part in zip(simulations, measured, strict=True)
        ]
        runs = [interpolated(*path, times) for path in paths]
        if not np.isfinite([expected, *(part.sum(axis=0) for part in runs)]).all():
            continue
        values, effect = without_step(runs, simulations, stepped=stepped)
        scatter = runs[0].std(axis=0, ddof=1) if pairs.size > 1 else np.zeros(times.size)
        curve = Curve(kind, label, times, expected, values, effect, np.array(dilated), scale, len(runs) > 1, scatter)
        if error is not None:
            drawn = interpolated(prediction["time"].values, error, times)
            curve = curve._replace(theory_error=drawn, theory_groups=groups)
        tolerance = curve.range * (TOLERANCE + SECOND_ORDER * (effect / curve.range) ** 2)
        sources = [(prediction["time"].values, theory), *((at, values.mean(axis=0)) for at, values in paths)]
        saved = np.all([known_between(at, kept, times, tolerance) for at, kept in sources], axis=0)
        if saved.any():
            curves.append(curve._replace(saved=saved))
    return curves


def times_as_curves(problem: Problem, prediction: xr.Dataset, simulations: Sequence[xr.Dataset]) -> list[Curve]:
    """Return the logarithms of predicted times as curves of one point each, by event and direction.

    A time is taken if it is positive, finite, and either awaited, which means that it would still be within the runs if
    it were 30 % longer, or had by all runs. `simulations` are as in `curves_over_time`; values of runs are (runs, 1),
    NaN for a run without the event.
    """
    pairs, stepped, curves = paired_runs(simulations), has_step(prediction), []
    end, network = min(float(part.attrs["end_time"]) for part in simulations), is_network(problem)
    for name, kinds in TIMES.items():
        if not tell_alike(name, (prediction, *simulations)):
            continue
        labels = prediction[str(prediction[name].dims[0])].values.tolist()
        measured = [np.asarray(dataset[name].values, dtype=np.float64)[pairs] for dataset in simulations]
        for at, time in enumerate(np.asarray(prediction[name].values, dtype=np.float64)):
            runs = [part[:, at : at + 1] for part in measured]
            awaited = bool(time * (1.0 + VISIBLE_ERROR) <= end) and name in AWAITED
            if not 0.0 < time < np.inf or any((part <= 0.0).any() for part in runs):
                continue
            logs, log, horizon = [np.log(part) for part in runs], np.array([np.log(time)]), float(np.log(end))
            if not (awaited or np.isfinite(logs).all()):
                continue
            if np.isfinite(logs).all():
                values, effect = without_step(logs, simulations, stepped=stepped)
            else:  # of runs at two learning rates no time without effect of the step size is known
                values = np.where(np.isfinite(logs).all(axis=0), logs[0], np.nan)
                effect = np.array([scatter(values[:, 0], horizon) if stepped else 0.0])
            late = np.log1p(VISIBLE_ERROR) * np.array([[1.0], [-1.0]])
            curve = Curve(kinds[network], str(labels[at]), np.array([time]), log, values, effect, log + late, 1.0)
            curves.append(curve._replace(extrapolated=len(simulations) > 1, awaited=awaited, horizon=horizon))
    return curves


def without_step(runs: Sequence[Array], simulations: Sequence[xr.Dataset], *, stepped: bool) -> tuple[Array, Array]:
    """Return the values of runs without the first-order effect of the step size, and a bound (times,) of the rest.

    `runs` holds one array (runs, times) for each of one or two simulations. With two, the effect is extrapolated from
    their effective learning rates. With one, the values are unchanged, and the bound is their scatter if `stepped`,
    that is if the theory has the mean effect of steps, else 0.
    """
    if len(runs) == 1:
        values = runs[0]
        return values, values.std(axis=0, ddof=1) if stepped and values.shape[0] > 1 else np.zeros(values.shape[1])
    coarse, fine = (float(dataset.attrs["effective_learning_rate"]) for dataset in simulations)
    effect = coarse / (coarse - fine) * (runs[0] - runs[1])
    return runs[0] - effect, np.abs(effect.mean(axis=0))


def paired_runs(simulations: Sequence[xr.Dataset]) -> NDArray[np.intp]:
    """Return the places of the runs that did not blow up in any simulation; surplus runs of one are left out."""
    count = min(dataset.sizes["seed"] for dataset in simulations)
    return np.flatnonzero(np.all([sound_runs(dataset)[:count] for dataset in simulations], axis=0))


def _common_times(prediction: xr.Dataset, simulations: Sequence[xr.Dataset]) -> Array:
    """Return the times of the first simulation that all other simulations and the prediction have reached."""
    if "loss" not in prediction or "time" not in prediction["loss"].dims:
        return np.empty(0)
    spans = [prediction["time"].values[np.isfinite(prediction["loss"].values)]]
    for dataset in simulations:
        times = dataset["time"].values
        spans.append(times[times <= float(dataset.attrs["end_time"]) * (1 + 1e-9)])
    if any(part.size == 0 for part in spans):
        return np.empty(0)
    first, last, times = max(part[0] for part in spans), min(part[-1] for part in spans), spans[1]
    counted = (times > 0) | ("train_loss" in prediction)
    return np.asarray(times[counted & (times >= first * (1 - 1e-9)) & (times <= last * (1 + 1e-9))])


def curve_verdict(
    problem: Problem, prediction: xr.Dataset, simulations: Sequence[xr.Dataset], rate: float
) -> xr.DataTree:
    """Return the verdict on all common curves and times; curves decide, times can only refute.

    `simulations` are runs at one learning rate, or at two, the coarser first; `rate` is the rate of false alarms of the
    whole verdict.
    """
    pairs, curves, times, starts, scatters = paired_runs(simulations), [], [], [], []
    lacking = too_few(pairs.size)
    end = min(float(part.attrs["end_time"]) for part in simulations)
    if not lacking:
        curves = curves_over_time(problem, prediction, simulations)
        times = times_as_curves(problem, prediction, simulations)
        starts = tests_of_starts(problem, prediction, simulations[0])
        scatters = tests_of_scatter(prediction, simulations[0])
        lacking = _unmet(prediction, simulations, end)
    tests, _ = assess_curves([*curves, *times], rate, others=len(starts) + count_of(scatters))
    count, excuse = looks_of(tests, starts, scatters), _excuse(prediction, simulations, tests)
    rows = rows_of_paths(starts, rate, RowKind.START, count)
    rows += [*(test.row(rate, count, excuse) for test in tests), *(test.row(rate, count) for test in scatters)]
    rows += lacking
    first, loss = simulations[0], next((test for test in tests if test.curve.kind == "loss"), None)
    said = "not compared." if loss is None else f"part of the verdict, p = {loss.p:.2g} for each of its times."
    band = None if loss is None else _band(prediction, simulations, pairs, loss)
    p_value = global_p_value(rows)
    return verdict_tree(
        rows,
        [_reason(rows, prediction, simulations, rate, end), *_remarks(rows, prediction, first), *statement_of(rows)],
        {
            **time_variables(prediction, first, [_tests_of_times(prediction, first, pairs, tests)], band, p_value),
            **values_of(tests),
        },
        problem=problem,
        prediction=prediction,
        simulations=dict(zip(("/simulation", "/finer"), simulations, strict=False)),
        rate=rate,
        theory="finite step" if has_step(prediction) else "flow",
        usable=pairs.size,
        blown_up=max(int(np.sum(~sound_runs(dataset))) for dataset in simulations),
        attributes={
            "decided_by": "curves",
            "runs_needed": max((test.runs_needed() for test in tests if test.curve.moves), default=np.inf),
            "tested_directions": sum(curve.kind.endswith("direction") for curve in curves),
            "loss_in_verdict": loss is not None,
            "loss_compared_times": 0 if loss is None else loss.places.size,
            "loss_statement": f"Loss: {said}",
        },
        coords={
            "seed": first["seed"].values,
            "time": first["time"].values,
            "quantity": np.array([test.curve.name for test in tests], dtype=str),
            "look": np.arange(MOST_PLACES),
        },
    )


def looks_of(tests: Sequence[CurveTest], starts: Sequence[PathTest], scatters: Sequence[ScatterTest] = ()) -> int:
    """Return the number of looks at curves, starts and scatter, which share the rate of false alarms."""
    return len(starts) + count_of(scatters) + sum(test.places.size for test in tests)


def values_of(tests: Sequence[CurveTest]) -> dict[str, Array]:
    """Return variables of a verdict by name, one entry per test.

    Those "look_…" are (tests, places), NaN beyond a test's places; the others are (tests,).
    """
    names = ("time", "mean", "prediction", "error", "z")
    table = {name: np.full((len(tests), MOST_PLACES), np.nan) for name in names}
    for at, test in enumerate(tests):
        row, plain = (at, slice(test.places.size)), np.exp if test.curve.is_time else np.asarray
        table["time"][row], table["z"][row] = test.curve.times[test.places], test.score
        table["error"][row] = test.error
        table["mean"][row], table["prediction"][row] = plain(test.mean), plain(test.predicted)
    return {
        **{f"look_{name}": values for name, values in table.items()},
        "quantity_error": np.array([test.error.max() for test in tests]),
        "quantity_allowance": np.array([test.allowance for test in tests]),
        "quantity_p_value": np.array([test.p for test in tests]),
        "quantity_power": np.array([test.power for test in tests]),
    }


def _excuse(prediction: xr.Dataset, simulations: Sequence[xr.Dataset], tests: Sequence[CurveTest]) -> str:
    """Return a sentence on another cause of a difference in curves and times; empty if there is none.

    Without allowance for the step size only a start speaks against theory.
    """
    if not (has_step(prediction) or len(simulations) > 1):
        return STEP_MAY
    curves = [test.curve for test in tests if test.curve.moves and test.curve.scatters]
    wild = [Row(quantity=curve.kind, label=curve.label) for curve in curves]
    over = f"runs scatter by over {100 * LARGEST_SCATTER:.0f} % of the range in {named(wild)}"
    return f"That may be the effect of noise, since {over}: use a smaller learning rate." if wild else ""


def _reason(
    rows: Sequence[Row], prediction: xr.Dataset, simulations: Sequence[xr.Dataset], rate: float, end: float
) -> str:
    """Return the sentence that gives the reason of the verdict's word.

    `end` is the time at which the shortest runs end.
    """
    word, p_value = word_of(rows), global_p_value(rows)
    moving = [row for row in rows if not np.isnan(row.power)]
    refuting = [row for row in rows if row.p_value < rate]
    if word == Decision.DISAGREE:
        return difference([row for row in refuting if row.disagrees], p_value, rate)
    if excused := [row for row in refuting if row.cause != STEP_MAY]:
        return f"{difference(excused, p_value, rate)} {excused[0].cause}"
    missing = [row for row in rows if row.kind == RowKind.REQUIREMENT]
    if few := [row.cause for row in missing if row.quantity == USABLE]:
        return few[0]
    if unseen := _unseen(prediction, simulations, moving):
        return unseen
    if refuting:
        return f"{difference(refuting, p_value, rate)} {STEP_MAY}"
    step = "" if has_step(prediction) or len(simulations) > 1 else ", without any allowance for the step size"
    agreement = (
        f"No tested curve leaves its band around theory{significantly(leave(rows))}, of at most "
        f"{_widest(moving)}{step}, up to time {end:.3g} (global p = {p_value:.2g}), and an error of "
        f"{100 * VISIBLE_ERROR:.0f} % in time would have been seen in {named(moving)}."
    )
    return f"The curves of theory and SGD agree: {agreement} But {missing[0].cause}" if missing else agreement


def _remarks(rows: Sequence[Row], prediction: xr.Dataset, simulation: xr.Dataset) -> list[str]:
    """Return sentences that a verdict shows after its reason, such as what it does not cover."""
    still = [row for row in rows if row.kind == RowKind.CURVE and np.isnan(row.power)]
    remarks = [f"By the end theory hardly moves {named(still)}."] if still else []
    remarks += other_optimizer(prediction, simulation)
    if samples := simulation.attrs.get("training_samples"):
        remarks.append(f"The runs use {samples} samples again, the prediction is of fresh ones.")
    return remarks


def _widest(moving: Sequence[Row]) -> str:
    """Return the widest bands of curves that move, and of awaited times, in words."""
    words = {RowKind.CURVE: "of the range of a curve that theory moves", RowKind.TIME: "in an awaited time"}
    widths = {kind: max((row.high for row in moving if row.kind == kind), default=None) for kind in words}
    return " and ".join(f"{100 * width:.2g} % {words[kind]}" for kind, width in widths.items() if width is not None)


def _unseen(prediction: xr.Dataset, simulations: Sequence[xr.Dataset], moving: Sequence[Row]) -> str:
    """Return a sentence on the error that could have gone unseen in the rows that move; empty if there is none."""
    unresolved = [row for row in moving if not row.power >= POWER]
    early = [*(unfinished("The runs", dataset) for dataset in simulations), unfinished("The prediction", prediction)]
    if any(early) and (unresolved or not moving):
        quantities = named(unresolved) if unresolved else "anything"
        return f"{next(filter(None, early))}, before {quantities} could be tested."
    if not moving:
        return (
            "Nothing that theory predicts moves by the end of the runs, at times that are saved closely enough to "
            "be compared: use more steps, or save more times."
        )
    if unknown := [row for row in moving if row.cause == STEP_MOVES]:
        return (
            f"The step size moves {named(unknown)} by over {100 * LARGEST_EFFECT:.0f} % of the range, too much to "
            "extrapolate from two learning rates: use smaller ones."
        )
    return _unresolved(unresolved) if unresolved else ""


def _unresolved(unresolved: Sequence[Row]) -> str:
    """Return a sentence on the curves and times in which an error could have gone unseen, with advice."""
    error = f"An error of {100 * VISIBLE_ERROR:.0f} % in time could have gone unseen in {named(unresolved)}"
    if lost := [row for row in unresolved if row.cause == FEW]:
        return f"{error}, since too few runs have {named(lost)}: {MORE_WORK}."
    if wide := [row for row in unresolved if row.cause == WIDE]:
        band = f"theory allows as much in {named(wide)}, whatever the number of runs"
        return f"{error}, since {band}: use a smaller learning rate."
    return f"{error}: {MORE_WORK}."


def _unmet(prediction: xr.Dataset, simulations: Sequence[xr.Dataset], end: float) -> list[Row]:
    """Return a row if half of the runs have an emergence that theory lacks, or lack all that theory has; else none.

    Only what is well before the end of the runs counts: 30 % later is still within them.
    """
    time = np.asarray(prediction["emergence_time"].values, dtype=np.float64)
    alone = prediction.get("predicted_emergence_time")
    expected = time if alone is None else np.where(np.isnan(time), alone.values, time)
    first, met = float(np.min(expected, initial=np.inf, where=np.isfinite(expected))), time * (1 + VISIBLE_ERROR) <= end
    early = ~(expected <= end)
    for part in simulations:
        measured = part["emergence_time"].values[paired_runs(simulations)]
        met &= np.isfinite(measured).mean(axis=0) >= 0.5
        early &= (measured * (1 + VISIBLE_ERROR) <= end).mean(axis=0) >= 0.5
    if early.any():
        which = ", ".join(str(label) for label in prediction["direction"].values[early])
        which = f"direction {which}, predicted never or after the runs"
        return [lacking_row("emergences", f"{which}, emerges well before their end in half of them.")]
    if met.any() or np.isinf(first):
        return []
    cause = (
        f"no direction that is predicted to emerge well before the end of the runs, at time {end:.3g}, does "
        f"so in half of them: the first one is predicted at {first:.3g}."
    )
    return [lacking_row("emergences", cause)]


def _tests_of_times(
    prediction: xr.Dataset, simulation: xr.Dataset, pairs: NDArray[np.intp], tests: list[CurveTest]
) -> EventTests:
    """Return the tests of times of emergence by direction, as `EventTests`."""
    by_label = {test.curve.label: test for test in tests if test.curve.kind.startswith("emergence")}
    censored = np.sum(simulation["censored"].values[pairs] != 0, axis=0)
    time_tests: list[TimeTest | None] = []
    for label, count in zip(prediction["direction"].values.tolist(), censored.tolist(), strict=True):
        test = by_label.get(str(label))
        if test is None:
            time_tests.append(None)
            continue
        mean, score, band = float(test.mean[0] - test.predicted[0]), float(test.score[0]), test.allowance
        error = float(test.error[0])
        early, late = (OneSided(test.p / 2 if sign * score > 0 else 1.0, test.power) for sign in (-1, 1))
        time_tests.append(TimeTest(pairs.size, count, mean, error, -band, band, early, late, score, test.p))
    expected = Expectation.uniform(predicted_times(prediction, "emergence_time"))
    return EventTests(event_of(simulation), expected, time_tests, np.zeros(len(time_tests), dtype=bool))


def _band(
    prediction: xr.Dataset, simulations: Sequence[xr.Dataset], pairs: NDArray[np.intp], test: CurveTest
) -> LossBand:
    """Return the loss without step size over all times, its band, and its scores where it was tested."""
    times = simulations[0]["time"].values
    runs = [
        interpolated(dataset["time"].values, np.asarray(dataset["loss"].values)[pairs], times)
        for dataset in simulations
    ]
    values, _ = without_step(runs, simulations, stepped=has_step(prediction))
    expected = interpolated(prediction["time"].values, np.asarray(prediction["loss"].values), times)
    z = np.full(times.size, np.nan)
    z[np.searchsorted(times, test.curve.times[test.places])] = test.score
    error = values.std(axis=0, ddof=1) / np.sqrt(values.shape[0])
    low, high = expected - test.allowance, expected + test.allowance
    return LossBand(values.mean(axis=0), error, expected, low, high, np.isfinite(z), z, test.p)
