r"""The exponent β of a teacher, the unit of time and the number of directions, from losses or times of skills.

Curves of matched pairs are drawn with β, P, starts, step and floor at random, and read as those of the user were: at
the same times, with the same noise and at the same levels of the loss. Ridge regression with a Gaussian kernel learns
β, ln P and the unit from the differences of ln t between levels; an interval has the half-width that held for the
stated share of further draws.
"""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from dynamics.commands.catalogue import study_function
from dynamics.laws.curves import (
    LEVELS,
    LossCurve,
    Reading,
    Skills,
    as_saved,
    fallen,
    read_curve,
    read_table,
    shortened,
)
from dynamics.laws.forecasts import METHODS, compare, law_forecasts
from dynamics.laws.pair_curves import BETAS, DIRECTIONS, RATIOS, Draw, DrawnCurve, PairCurves, RunCurves, Size
from dynamics.laws.regression import Fit, Regression, check_coverage, learn_targets, nearest_draws
from dynamics.problem.checks import check_choice, checked_integer, checked_number
from dynamics.runs.dataset import make_dataset
from dynamics.runs.trackers import bar_settings, open_bar
from dynamics.runs.variables import Variable
from dynamics.signals import stop_if_heard
from hermite.arrays import Array, Integers
from hermite.text.messages import require

Excess = Literal["free", "none", "runs"]
EXCESSES: tuple[Excess, ...] = ("free", "none", "runs")
ANSWER = "inference"
#: Draws, and how many of them are runs of SGD; those that must be left where some do not fall as far as the curves.
DRAWS, RUNS, FEWEST_DRAWS = 2000, 400, 150
#: Largest step over its limit of stability, and largest floor over the plateau, where the excess is free.
LARGEST_STEP, LARGEST_FLOOR = 0.5, 0.12
#: Nearest draws whose curves are the band; quantiles of the band.
NEAREST, BAND = 60, (0.05, 0.5, 0.95)
#: A draw falls as far as the data if it ends at this part of their last level. Forecasts begin at this part of ln t
#: between the first level and the end, which is at the last time above this part of the plateau.
FALLEN, FIRST_PART, FORECAST_END = 0.98, 2.0 / 3.0, 0.02
#: Most curves, fewest times of skills that are reached, and the share of draws below which a curve is unlike them.
MOST_CURVES, FEWEST_SKILLS, UNLIKE = 24, 4, 0.01
#: Steps over their limit that divide draws into strata, which the intervals cover each; factor that widens them.
STRATA, WIDENING = (0.03, 0.2), 1.3
#: Coverage that `benchmarks.inverse` measured of intervals of 0.9, by excess, and of times of skills.
MEASURED = {
    "free": "With P and m/P known, those of 90 % held β of 85 % or more of flows, and of SGD up to 0.3 of its limit.",
    "none": "With P and m/P known, those of 90 % held β of 85 % or more of flows, but of half of SGD at 0.3 of its "
    "limit.",
    "skills": "How often those of skills hold is not measured.",
}
#: Quantities that are inferred, and the range of each.
BOUNDS = {
    "beta": BETAS,
    "directions": (1.0, np.inf),
    "unit": (0.0, np.inf),
    "step_share": (0.0, 1.0),
    "floor": (0.0, 1.0),
}
TARGETS = tuple(BOUNDS)
NAN = float("nan")
INFERENCE_VARIABLES = {
    "curve": Variable(("curve",), "name of the curve", "c"),
    "point": Variable(("point",), "saved time of a curve, thinned", "i"),
    "forecaster": Variable(("forecaster",), "how the last third is forecast", ""),
    "skill": Variable(("skill",), "name of the skill", "p"),
    "beta": Variable((), "decay of the coefficients", r"\beta"),
    "unit": Variable((), "flow time times d^(1-k/2) in one unit of the curves' time", "u"),
    "directions": Variable((), "number of directions", "P"),
    "step_share": Variable((), "step size over its limit of stability", r"\eta/\eta^*"),
    "floor": Variable((), "loss that stays over the plateau at the start", "e"),
    "log_time": Variable(("curve", "point"), "logarithm of the saved time, in the curves' unit", r"\ln t"),
    "loss": Variable(("curve", "point"), "loss over its plateau at the start", "L"),
    "band_low": Variable(("curve", "point"), "5 % quantile of the loss of similar draws", "L_{5}"),
    "band": Variable(("curve", "point"), "median loss of similar draws", "L_{50}"),
    "band_high": Variable(("curve", "point"), "95 % quantile of the loss of similar draws", "L_{95}"),
    "plateau": Variable(("curve",), "loss of the plateau at the start", "L_0"),
    "noise": Variable(("curve",), "scatter of ln L around a smooth curve", r"\sigma"),
    "levels": Variable(("curve",), "levels of the loss that the curve reaches", "r"),
    "forecast": Variable(("forecaster", "curve", "point"), "forecast of the loss from the first two thirds", r"\hat L"),
    "forecast_error": Variable(("forecaster", "curve"), "root mean square error of ln L by the forecast", r"\epsilon"),
    "skill_time": Variable(("skill",), "time at which the skill is half learned, or its last time", "T_p"),
    "skill_reached": Variable(("skill",), "whether the skill was learned by then", ""),
    "k_of_dimensions": Variable((), "information exponent from times at several dimensions", "k"),
    "k_of_dimensions_error": Variable((), "standard error of it", r"\delta k"),
}
for _name in TARGETS:
    _label = INFERENCE_VARIABLES[_name]
    for _end in ("low", "high"):
        INFERENCE_VARIABLES[f"{_name}_{_end}"] = Variable(
            (), f"{_label.long_name}, {_end} end of its interval", _label.symbol
        )


@study_function  # returns what `run` of the prepared study returns, a dataset
def infer(
    curves: xr.Dataset | Mapping[str, ArrayLike] | str | PathLike[str],
    *,
    k: int,
    width_per_direction: float | None = None,
    directions: int | None = None,
    dimension: int | None = None,
    excess: Excess = "free",
    learning_rate: float | None = None,
    coverage: float = 0.9,
    draws: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> PreparedInference:
    r"""Infer the decay β of a teacher, the unit of time, P and the excess loss from curves or from times of skills.

    .. math:: a_p \propto p^{-\beta}, \qquad t_{\mathrm{flow}} = u\, d^{k/2-1}\, t, \qquad
       x_j = \ln t(L_{j+1}) - \ln t(L_j)

    Times are read at 17 levels of the loss, from 0.85 to 0.03 of the plateau at the start; curves of matched pairs are
    drawn with β uniform in 0.5 to 1.8 and read the same way, and β, ln P, ln u, η/η* and the floor are learned from
    x by kernel ridge regression. Intervals are conformal: half-widths that hold for the share `coverage` of draws,
    1.3 times as wide where draws are pairs, which coupled flows and SGD are not.

    Parameters
    ----------
    curves : Dataset, mapping of columns, or path of a CSV or netCDF
        Columns `time` or `step`, and `loss`; perhaps `curve` (a name), `start` (a name that runs of one start share),
        `width`, `dimension`, and beside `step` `learning_rate`, whose sum is the time. Or times of skills: `skill` and
        `time`, with `reached` (0: not yet by that time), or with `loss` or `accuracy` of every skill at several times.
        Or an answer of this package with a `loss`.
    k : int
        Information exponent, at least 3. One curve does not tell it from the unit of time.
    width_per_direction : float, optional
        m/P; without it and without a column `width` it is drawn from 1 to 8.
    directions : int, optional
        P; without it P is drawn from 8 to 64. Of skills it is their number.
    dimension : int, optional
        d, instead of a column; without both it is drawn from 64 to 4096.
    excess : {"free", "none", "runs"}
        "free": the loss has the excess of SGD with η/η* from 0 to 0.5 and a floor of up to 0.12 of the plateau; "none":
        the curves are flows that end at 0; "runs": draws are runs of projected SGD at `learning_rate`, which take
        minutes and need P and d.
    learning_rate : float, optional
        η of `excess="runs"`; the unit of a curve over steps should then be η d^(1 − k/2).
    coverage : float, default 0.9
    draws : int, optional
        Curves that are drawn: 2000, or 400 runs.
    seed : int
        Seed of all draws.

    Returns
    -------
    Dataset
        `beta`, `unit` u, `directions`, `step_share` η/η* and `floor`, each with `_low` and `_high`; of every curve its
        thinned `loss(curve, point)` over the `plateau` with the band of similar draws, and the `forecast(forecaster,
        curve, point)` of its last third, in ln t from the first level on, with `forecast_error(forecaster, curve)`;
        with two dimensions or more `k_of_dimensions` and its error. All are dimensionless but `unit`, in 1 over the
        curves' unit
        of time. Attributes: `notes` and `forecast_verdict`.

    Raises
    ------
    TypeError, ValueError
        If a column is missing or not of positive numbers, a curve has no plateau at the start, reaches fewer than six
        levels, or fewer than four skills were learned.

    Examples
    --------
    >>> import dynamics
    >>> teacher = dynamics.Teacher.power_law(16, 1.0)
    >>> problem = dynamics.Problem(activation="he4", teacher=teacher, width=48, dimension=256)
    >>> answer = infer(dynamics.solve_decoupled(problem), k=4, directions=16, excess="none", draws=400, progress=False)
    >>> bool(answer.beta_low < 1.0 < answer.beta_high)
    True
    """
    check_choice("excess", excess, EXCESSES)
    k = checked_integer(k, "k", minimum=3, maximum=12)
    ratio = (
        None
        if width_per_direction is None
        else checked_number(width_per_direction, "width_per_direction", positive=True)
    )
    P = None if directions is None else checked_integer(directions, "directions", minimum=2, maximum=512)
    d = NAN if dimension is None else checked_integer(dimension, "dimension", minimum=2)
    share = checked_number(coverage, "coverage", positive=True)
    require(share < 1.0, f"Argument `coverage` must be below 1, but is {share:g}.")
    by_runs = excess == "runs"
    require(
        by_runs == (learning_rate is not None),
        "Argument `learning_rate` must be given for excess 'runs', and for no other, but excess is "
        f"{excess!r} and the learning rate is {learning_rate}.",
    )
    default = RUNS if by_runs else DRAWS
    count = checked_integer(default if draws is None else draws, "draws", minimum=2 * FEWEST_DRAWS)
    check_coverage(share, count)
    seed = checked_integer(seed, "seed", minimum=0)
    data = read_table(curves, d)
    if isinstance(data, Skills):
        require(not by_runs, "Argument `excess` must be 'free' or 'none' for times of skills, but is 'runs'.")
        number = int(data.reached.sum())
        require(
            number >= FEWEST_SKILLS,
            f"Argument `curves` must have {FEWEST_SKILLS} skills or more that were learned before the first one that "
            f"was not ends, but has {number} of {data.time.size}.",
        )
        P = data.time.size if P is None else P
        require(
            data.time.size <= P,
            f"Argument `directions` must be at least the number of skills, {data.time.size}, but is {P}.",
        )
        readings: list[Reading] = []
        sizes = [Size(NAN, d)]
    else:
        require(
            len(data) <= MOST_CURVES, f"Argument `curves` must have {MOST_CURVES} curves or fewer, but has {len(data)}."
        )
        readings = [read_curve(curve) for curve in data]
        sizes = [Size(curve.width, curve.dimension) for curve in data]
        widths = [size.width > 0.0 for size in sizes]
        require(
            ratio is None or not any(widths),
            "Argument `width_per_direction` must be absent where the curves have a width, but is given: give "
            "`directions`.",
        )
    largest_P, dimensions = P or DIRECTIONS[1], [size.dimension for size in sizes if size.dimension > 0.0]
    require(
        min(dimensions, default=np.inf) >= largest_P,
        f"Argument `directions` must be at most the dimension, {min(dimensions, default=0.0):g}, but is "
        f"{'drawn up to ' if P is None else ''}{largest_P}.",
    )
    if not by_runs:
        largest_step = LARGEST_STEP if excess == "free" and readings else 0.0
        emulator = PairCurves(k, P, ratio, largest_step)
    else:
        require(
            P is not None and all(size.dimension > 0.0 for size in sizes),
            "Arguments `directions` and `dimension` must be given for excess 'runs', but one is not.",
        )
        require(
            ratio is not None or all(size.width > 0.0 for size in sizes),
            "Argument `width_per_direction`, or a column width, must be given for excess 'runs', but neither is.",
        )
        rate = checked_number(learning_rate, "learning_rate", positive=True)
        emulator = RunCurves(k, P, ratio, 0.0, rate)
    return PreparedInference(data, readings, sizes, emulator, excess, share, count, seed, progress)


class Curves(NamedTuple):
    """Number of curves, or of skills, that stands for the problem in files."""

    number: int

    @property
    def kind(self) -> str:
        """Its name in files."""
        return "curves"

    def parameters(self) -> dict[str, object]:
        """Return its scalars."""
        return {"kind": self.kind, "number": self.number}

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        """Return its arrays, which are in the dataset."""
        return {}


#: Draws with a curve for every one of the user.
Sample: TypeAlias = list[tuple[Draw, list[DrawnCurve]]]


class DrawnCurves(NamedTuple):
    """Drawn curves as the user's were read: features (N, F), targets (N, T), strata of the step (N,), and ln L."""

    features: Array
    targets: Array
    strata: Integers
    #: ln of the loss over the plateau at the times of every curve, (N, points) each.
    curves: list[Array]
    #: Their numbers in the sample, and ln of their last losses (N, C).
    number: list[int]
    ends: Array


@dataclass(frozen=True)
class PreparedInference:
    """Checked curves or skills, and the draws from which β is inferred."""

    data: list[LossCurve] | Skills
    readings: list[Reading]
    sizes: list[Size]
    emulator: PairCurves
    excess: Excess
    coverage: float
    count: int
    seed: int
    progress: bool | None

    def work(self) -> str:
        """Return the expected work in words."""
        number = len(self.readings)
        what = f"{number} curve{'s' * (number > 1)}" if number else "Times of skills"
        kind = "runs of SGD each: minutes" if self.excess == "runs" else "draws: seconds"
        return f"{what}, {self.count} {kind}."

    def run(self) -> xr.Dataset:
        """Return the inference; an interruption ends it without a result."""
        started = clock.perf_counter()
        with open_bar(bar_settings(self.progress), total=self.count, unit="draw") as bar:
            if isinstance(self.data, Skills):
                values, attributes = self._of_skills(self.data, bar)
            else:
                values, attributes = self._of_curves(self.data, bar)
        dims = [name for name in values if name in ("curve", "point", "forecaster", "skill")]
        coords = {name: values.pop(name) for name in dims}
        emulator = self.emulator
        return make_dataset(
            values,
            problem=Curves(len(self.data.time) if isinstance(self.data, Skills) else len(self.data)),
            title="Exponent and unit of time inferred from losses",
            coords=coords,
            solver={
                "answer": ANSWER, "k": emulator.k, "directions": emulator.directions,
                "width_per_direction": emulator.width_per_direction, "excess": self.excess,
                "coverage": self.coverage, "draws": self.count, "seed": self.seed,
            },
            attributes={
                "answer": ANSWER, "stop_reason": "reached_end", "wall_seconds": clock.perf_counter() - started,
                "k": emulator.k, "coverage": self.coverage, "excess": self.excess, **attributes,
            },
            variables=INFERENCE_VARIABLES,
        )  # fmt: skip

    def _of_skills(self, skills: Skills, bar: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return values and attributes of times of skills: those reached, in order, and their ratios."""
        reached, rng = int(skills.reached.sum()), np.random.default_rng(self.seed)
        features, targets = [], []
        for _ in range(self.count):
            stop_if_heard()
            bar.update()
            draw = self.emulator.draw(rng)
            time, d = self.emulator.skill_times(draw, self.sizes[0], rng, int(rng.integers(2**31)))
            chosen = np.sort(rng.permutation(time)[: skills.time.size])[:reached]
            if np.isfinite(chosen).all():
                logs = np.log(chosen)
                features.append(np.diff(logs))
                unit = logs.mean() + (1.0 - 0.5 * self.emulator.k) * np.log(d)
                targets.append([draw.beta, np.log(draw.directions), unit, draw.step, draw.floor])
        _check_draws(len(features))
        logs = np.log(np.sort(skills.time[skills.reached]))
        strata = np.zeros(len(features), dtype=np.int64)
        regression = learn_targets(np.array(features), np.array(targets), self.coverage, strata)
        fit = regression.at(np.diff(logs))
        values = self._inferred(fit, logs.mean())
        values |= {"skill": skills.name, "skill_time": skills.time, "skill_reached": skills.reached.astype(int)}
        notes = [
            f"{reached} of {skills.time.size} skills are used; later ones count as not learned at the end of the first "
            "that is not.",
            *self._notes(fit, values),
        ]
        return values, {"notes": " ".join(notes)}

    def _of_curves(self, curves: list[LossCurve], bar: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return values and attributes of curves: what is inferred, bands, and forecasts of the last third."""
        sample = self.sample(bar)
        draws = self.read(self.readings, sample)
        fit, values = self.fitted(self.regression(draws))
        if self.excess == "free":
            values |= self._floor(draws)
        points = max(reading.log_time.size for reading in self.readings)

        def padded(rows: Sequence[Array]) -> Array:
            """Return rows of several lengths as one array, NaN beyond their ends."""
            return np.stack([np.append(row, np.full(points - row.size, NAN)) for row in rows])

        chosen = fit.nearest[:NEAREST]
        bands = [np.exp(np.quantile(of_curve[chosen], BAND, axis=0)) for of_curve in draws.curves]
        values |= {
            "curve": [curve.name for curve in curves],
            "point": np.arange(points),
            "forecaster": list(METHODS),
            "log_time": padded([reading.log_time for reading in self.readings]),
            "loss": padded([np.exp(reading.log_loss) for reading in self.readings]),
            "plateau": [reading.plateau for reading in self.readings],
            "noise": [reading.noise for reading in self.readings],
            "levels": [reading.crossing.size for reading in self.readings],
        }
        for at, name in enumerate(("band_low", "band", "band_high")):
            values[name] = padded([band[at] for band in bands])
        forecast, errors = self._forecasts(curves, sample)
        values |= {"forecast": np.stack([padded(rows) for rows in forecast]), "forecast_error": errors}
        verdict = compare(errors)
        notes = self._notes(fit, values)
        notes += self._of_dimensions(fit, values)
        return values, {"notes": " ".join(notes), "forecast_verdict": verdict}

    def sample(self, bar: Any) -> Sample:
        """Return draws, each with a curve for every one of the user."""
        curves_of_user = [] if isinstance(self.data, Skills) else self.data
        starts = list(dict.fromkeys(curve.start for curve in curves_of_user))
        rng, sample = np.random.default_rng(self.seed), []
        for _ in range(self.count):
            stop_if_heard()
            bar.update()
            draw, seeds = self.emulator.draw(rng), rng.integers(2**31, size=len(starts))
            of_start = dict(zip(starts, seeds.tolist(), strict=True))
            curves = [
                self.emulator.curve(draw, size, rng, of_start[curve.start])
                for size, curve in zip(self.sizes, curves_of_user, strict=True)
            ]
            sample.append((draw, curves))
        return sample

    def regression(self, draws: DrawnCurves) -> Regression:
        """Return what is learned from draws."""
        return learn_targets(draws.features, draws.targets, self.coverage, draws.strata)

    def fitted(self, regression: Regression) -> tuple[Fit, dict[str, Any]]:
        """Return the fit to the curves, and what is inferred with the ends of its intervals."""
        log_unit = float(np.mean([reading.middle for reading in self.readings]))
        fit = regression.at(_features(self.readings, self.sizes))
        return fit, self._inferred(fit, log_unit)

    def _floor(self, draws: DrawnCurves) -> dict[str, float]:
        """Return the floor with the ends of its interval, for which the last losses count too."""
        features = np.concatenate([draws.features, draws.ends], axis=1)
        target = draws.targets[:, [TARGETS.index("floor")]]
        regression = learn_targets(features, target, self.coverage, draws.strata)
        fit = regression.at(np.append(_features(self.readings, self.sizes), _ends(self.readings)))
        interval = fit.value[0] + fit.half_width[0] * np.array([0.0, -1.0, 1.0])
        return dict(zip(("floor", "floor_low", "floor_high"), np.clip(interval, 0.0, 1.0).tolist(), strict=True))

    def read(self, readings: Sequence[Reading], sample: Sample) -> DrawnCurves:
        """Return the drawn curves as `readings` were read, without draws that do not fall as far."""
        rng, rows = np.random.default_rng([self.seed, 1]), []
        largest = min(LARGEST_FLOOR, *(reading.lowest for reading in readings)) if self.excess == "free" else 0.0
        deepest = [LEVELS[reading.crossing.size - 1] for reading in readings]
        dimensions = np.unique([size.dimension for size in self.sizes if size.dimension > 0.0])
        for number, (draw, drawn) in enumerate(sample):
            losses = [curve.above(largest * draw.floor) for curve in drawn]
            if any(loss[-1] > np.log(FALLEN * level) for loss, level in zip(losses, deepest, strict=True)):
                continue
            stop_if_heard()
            read = [
                as_saved(reading, curve.log_time, loss, rng)
                for reading, curve, loss in zip(readings, drawn, losses, strict=True)
            ]
            slope = 1.0 - 0.5 * self.emulator.k
            units = np.array(
                [one.middle + slope * np.log(curve.dimension) for one, curve in zip(read, drawn, strict=True)]
            )
            by_dimension = [
                units[[size.dimension == dimension for size in self.sizes]].mean() for dimension in dimensions
            ] if dimensions.size > 1 else []  # fmt: skip
            targets = [draw.beta, np.log(draw.directions), units.mean(), draw.step, largest * draw.floor, *by_dimension]
            rows.append(
                (_features(read, self.sizes), targets, draw.step, [one.log_loss for one in read], number, _ends(read))
            )
        _check_draws(len(rows))
        features, targets, steps, losses, numbers, ends = zip(*rows, strict=True)
        strata = np.digitize(steps, STRATA)
        return DrawnCurves(
            np.array(features),
            np.array(targets),
            strata,
            [np.array(column) for column in zip(*losses, strict=True)],
            list(numbers),
            np.array(ends),
        )

    def _inferred(self, fit: Fit, log_unit: float) -> dict[str, Any]:
        """Return what is inferred with the ends of its intervals; the unit from mean ln t of curves or skills."""
        value, half = fit.value[: len(TARGETS)].copy(), self._widening() * fit.half_width[: len(TARGETS)]
        value[TARGETS.index("unit")] -= log_unit
        fixed, ends = dict[str, float](), dict[str, Any]()
        if self.emulator.directions is not None:
            fixed["directions"] = float(self.emulator.directions)
        if self.excess != "free" or not self.readings:
            fixed |= dict.fromkeys(("step_share", "floor"), 0.0 if self.excess == "none" else NAN)
        for name, middle, width in zip(TARGETS, value, half, strict=True):
            interval = np.array([middle, middle - width, middle + width])
            interval = np.clip(np.exp(interval) if name in ("directions", "unit") else interval, *BOUNDS[name])
            interval = np.full(3, fixed[name]) if name in fixed else interval
            ends |= dict(zip((name, f"{name}_low", f"{name}_high"), interval.tolist(), strict=True))
        return ends

    def _widening(self) -> float:
        """Return the factor by which intervals of draws that are pairs are widened."""
        return 1.0 if self.excess == "runs" else WIDENING

    def _notes(self, fit: Fit, values: Mapping[str, Any]) -> list[str]:
        """Return sentences on what the data do not tell."""
        emulator, notes = self.emulator, []
        dimensions = {size.dimension for size in self.sizes if size.dimension > 0.0}
        if len(dimensions) < 2:
            notes.append(
                f"k = {emulator.k} is taken as given: at one dimension another k is another unit of time, not another "
                "curve. Curves at two dimensions tell k."
            )
        if emulator.width_per_direction is None and not any(size.width > 0.0 for size in self.sizes):
            notes.append(f"m/P is not known and was drawn from {RATIOS[0]:g} to {RATIOS[1]:g}.")
        if emulator.directions is None:
            notes.append(f"P is not known and was drawn from {DIRECTIONS[0]} to {DIRECTIONS[1]}.")
        if self._widening() > 1.0:
            notes.append(
                f"Intervals are {WIDENING:g} times as wide as those of draws, because coupled flows and SGD "
                f"are not matched pairs. {MEASURED['skills' if not self.readings else self.excess]}"
            )
        if values["beta_low"] <= BETAS[0] or values["beta_high"] >= BETAS[1]:
            notes.append(
                f"The interval of beta ends at that of the draws, {BETAS[0]:g} to {BETAS[1]:g}: beta may lie beyond."
            )
        if fit.likeness < UNLIKE:
            notes.append(
                f"The data are unlike the draws: {100.0 * fit.likeness:.1f} % of draws are as far from all others, so "
                "that the intervals may not hold."
            )
        return notes

    def _of_dimensions(self, fit: Fit, values: dict[str, Any]) -> list[str]:
        """Add the information exponent by the times at several dimensions to `values`, and return a sentence on it."""
        dimensions = np.unique([size.dimension for size in self.sizes if size.dimension > 0.0])
        if dimensions.size < 2:
            return []
        logs = np.array([
            np.mean([
                reading.middle
                for reading, size in zip(self.readings, self.sizes, strict=True)
                if size.dimension == dimension
            ])
            for dimension in dimensions
        ])  # fmt: skip
        late, error = logs - fit.value[len(TARGETS) :], fit.deviation[len(TARGETS) :]
        x = np.log(dimensions) - np.log(dimensions).mean()
        k = 2.0 + 2.0 * float(x @ late / (x @ x))
        # Errors of β and P shift all dimensions alike: the scatter of starts remains.
        scatter = 2.0 * float(np.sqrt((x**2) @ error**2) / (x @ x))
        values |= {"k_of_dimensions": k, "k_of_dimensions_error": scatter}
        text = (
            f"Times at {dimensions.size} dimensions say k = {k:.2f} ± {scatter:.2f}, if one step size is that of all."
        )
        if abs(k - self.emulator.k) > 2.0 * scatter:
            text += f" This is not k = {self.emulator.k}."
        return [text]

    def _forecasts(self, curves: Sequence[LossCurve], sample: Sample) -> tuple[list[list[Array]], Array]:
        """Return the losses of every method at all times of every curve, NaN before the last third, and its errors."""
        ends = [r.log_time[np.exp(fallen(r.log_loss)) > FORECAST_END][-1] for r in self.readings]
        cuts = [r.crossing[0] + FIRST_PART * (end - r.crossing[0]) for r, end in zip(self.readings, ends, strict=True)]
        short = [shortened(reading, cut) for reading, cut in zip(self.readings, cuts, strict=True)]
        empty = [np.full(reading.log_time.size, NAN) for reading in self.readings]
        begun = [reading for reading in short if reading is not None]
        if len(begun) < len(short):
            return [empty] * len(METHODS), np.full((len(METHODS), len(curves)), NAN)
        draws = self.read(begun, sample)
        chosen = nearest_draws(draws.features, _features(begun, self.sizes))[: NEAREST // 2]
        by_law = law_forecasts(curves, self.readings, cuts)
        losses = {"draws": list[Array](), **by_law}
        rng = np.random.default_rng([self.seed, 2])
        for at, (reading, cut_reading) in enumerate(zip(self.readings, begun, strict=True)):
            whole = []
            for number in chosen:
                _, drawn = sample[draws.number[number]]
                x, loss = drawn[at].log_time, drawn[at].above(draws.targets[number][TARGETS.index("floor")])
                read = as_saved(cut_reading._replace(noise=0.0), x, loss, rng)
                # Laid on each other at the last level before the cut, from which the forecast goes on.
                shift = read.crossing[-1] - cut_reading.crossing[-1]
                whole.append(np.interp(reading.log_time + shift, x, loss))
            losses["draws"].append(np.median(whole, axis=0))
        errors, forecast = np.full((len(METHODS), len(curves)), NAN), []
        for row, method in enumerate(METHODS):
            of_method = []
            for at, (reading, cut, end) in enumerate(zip(self.readings, cuts, ends, strict=True)):
                last = (reading.log_time > cut) & (reading.log_time <= end)
                errors[row, at] = np.sqrt(np.mean((losses[method][at] - reading.log_loss)[last] ** 2))
                of_method.append(np.where(last, np.exp(losses[method][at]), NAN))
            forecast.append(of_method)
        return forecast, errors


def _features(readings: Sequence[Reading], sizes: Sequence[Size]) -> Array:
    """Return differences of ln t between levels, means over curves of one size that reach the same levels."""
    groups: dict[str, list[Array]] = {}
    for reading, size in zip(readings, sizes, strict=True):
        groups.setdefault(f"{size} {reading.crossing.size}", []).append(np.diff(reading.crossing))
    return np.concatenate([np.mean(group, axis=0) for group in groups.values()])


def _ends(readings: Sequence[Reading]) -> Array:
    """Return ln of the last loss over the plateau of every curve, (C,)."""
    return np.array([fallen(reading.log_loss)[-1] for reading in readings])


def _check_draws(count: int) -> None:
    """Raise ValueError if few draws fall as far as the data."""
    require(
        count >= FEWEST_DRAWS,
        f"At least {FEWEST_DRAWS} draws must fall as far as the data, but {count} do: give more draws, or another m/P.",
    )
