"""Learning rate and end of a check by curves, from pilot runs and what a step costs.

Theory has no scatter to offer where curves decide. So eight pilot runs are made at smaller and smaller learning rates,
until the very test that will be made, of finite steps or of the flow, would see an error of 30 % in time in all curves
that move. Only the scatter of the pilot and its distance from theory are used, and its samples are others than those of
the check.

*The end.* A check may end where a direction that is predicted to emerge, 30 % late, would have emerged, or where a
curve has made nine tenths of its way, 30 % late. At each learning rate the pilot lasts until the latest of these ends
that a minute of the check reaches, and the plan is the latest end at which the test would see. If it is before the
first emergence, up to ten minutes are spent for this one. Ends until which theory moves too little to tell an error
even without noise are none. What the plan leaves out is said with its cost (`Beyond`).
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import xarray as xr

from dynamics.commands import duration
from dynamics.problem import Problem, SaveAt
from dynamics.problem.checks import require
from dynamics.runs.trackers import part_of_work
from hermite.arrays import Array
from sgd_check.engines import EngineOptions
from sgd_check.runs.plan import make_plan, stability_limit
from sgd_check.runs.simulation import simulate
from sgd_check.verdicts.curves import (
    LARGEST_EFFECT,
    Curve,
    allowance_of,
    curves_over_time,
    paired_runs,
    places_of,
    power_of,
    quantities_of,
)
from sgd_check.verdicts.expectation import predicted_times
from sgd_check.verdicts.path_tests import interpolated
from sgd_check.verdicts.verdict import FEWEST_RUNS, VISIBLE_ERROR

PILOT_SEEDS = tuple(range(2**31, 2**31 + 8))
PILOT_STEPS, PILOT_FACTOR = 500, 2
#: Learning rates that a pilot tries at most. Cost ends it before, unless steps cost nothing.
MOST_RATES = 24
#: A curve is followed until it has made this part of its way, and 30 % longer.
FOLLOWED = 0.9
#: Standard deviation over runs of twice a run at half of the learning rate less one at the whole.
EXTRAPOLATED_SCATTER = float(np.sqrt(3.0))
#: The scatter of eight runs is itself uncertain by a quarter.
SCATTER_MARGIN = 1.25
#: The same for the equation of finite steps: its band grows with the square of the scatter.
STEPPED_MARGIN = 1.15
#: Power that the pilot asks for, so that the check has 0.8.
PILOT_POWER = 0.9
#: Largest effect of the step size on a curve, and scatter of runs, in parts of its range, for an extrapolation.
PILOT_EFFECT, EXTRAPOLATED_LIMIT = 0.1, 0.15
#: Standard errors by which the effect that the two simulations show is to stay below what the verdict allows.
EFFECT_ERRORS = 2.0
#: Part of the band around the equation of finite steps that the mean of the pilot may use up.
PILOT_BAND = 0.75
#: A level that rounding alone does not reach.
ROUNDING = 1e-6
#: Seconds of simulation for as many curves and directions as they reach, and for the first direction.
LONG_SECONDS, AFFORDABLE_SECONDS = 60.0, 600.0


class Pilot(NamedTuple):
    """The check that pilot runs are made for: its prediction, its engine, its runs, and how it will test theory.

    `stepped` says whether that is the equation of finite steps; `seconds` are those of one step of the check, of both
    simulations if there are two, and 0 where the cost is not in steps. `progress` shows bars.
    """

    problem: Problem
    prediction: xr.Dataset
    name: str
    options: EngineOptions
    false_alarm_rate: float
    stepped: bool
    seconds: float
    progress: bool | None = False

    def cost(self, rate: float, end: float) -> float:
        """Return the seconds that a check takes until a time."""
        return self.seconds * end / rate

    def affordable(self, rate: float, ends: list[float], budget: float) -> list[float]:
        """Return the ends that a check reaches within a budget in seconds."""
        return [end for end in ends if self.cost(rate, end) <= budget]


class Beyond(NamedTuple):
    """What a plan leaves out: the `samples` of every run and the `seconds` until the time `end` that tests it.

    `seconds` is 0 where the cost is not in steps. Both are at the learning rate of the plan; where an error of 30 % is
    not `seen` at it, at the `rate` that pilot runs let expect, or lower bounds if that is NaN.
    """

    what: str
    samples: float
    seconds: float
    end: float
    seen: bool
    rate: float = np.nan

    def sentence(self, option: str) -> str:
        """Return what it would take, and the option that asks for it."""
        size = f"{self.samples / 1e6:.2g} million" if self.samples >= 1e5 else f"{self.samples:.0f}"
        time = f": {duration(self.seconds)}" if self.seconds else ""
        about, finer = ("", "") if self.seen else ("over ", " and a smaller learning rate")
        if np.isfinite(self.rate):
            about, finer = "about ", f" and a learning rate of {self.rate:.2g}"
        return f"{self.what} would take {about}{size} samples of every run{time}; {option} {self.end:.4g}{finer}."


def awaited_ends(prediction: xr.Dataset) -> dict[int, float]:
    """Return the times at which directions emerge if they are 30 % late, by direction (from 0), the first one first."""
    times = (1.0 + VISIBLE_ERROR) * predicted_times(prediction, "emergence_time")
    order = np.argsort(times)[: np.count_nonzero(np.isfinite(times))]
    return dict(zip(order.tolist(), times[order].tolist(), strict=True))


def ends_of_curves(problem: Problem, prediction: xr.Dataset) -> list[float]:
    """Return the times until which the curves that move are to be followed, ascending, within the prediction."""
    found = []
    times = np.asarray(prediction["time"].values) if "time" in prediction.coords else np.empty(0)
    for quantity in quantities_of(problem, prediction):
        known = np.isfinite(quantity.values)
        values = quantity.values[known]
        way = np.abs(np.diff(values, prepend=values[:1])).cumsum()
        if way.size and np.ptp(values) >= quantity.scale:
            found.append(float(times[known][np.searchsorted(way, FOLLOWED * way[-1])]))
    need = "Argument `steps` must be given with a learning rate, because nothing moves in the prediction."
    require(max(found, default=0.0) > 0.0, need)
    last = float(known_times(prediction)[-1])
    return sorted({min((1.0 + VISIBLE_ERROR) * time, last) for time in found})


def possible_ends(problem: Problem, prediction: xr.Dataset) -> list[float]:
    """Return the times at which a check may end, ascending, if runs without noise would tell an error until then."""
    curves = ends_of_curves(problem, prediction)
    last = known_times(prediction)[-1]
    ends = sorted({end for end in awaited_ends(prediction).values() if end <= last}.union(curves))
    return [*(end for end in ends[:-1] if _tells(problem, prediction, end)), ends[-1]]


def known_times(prediction: xr.Dataset) -> Array:
    """Return the saved times that a prediction reached."""
    return np.asarray(prediction["time"].values[np.isfinite(prediction["loss"].values)])


def first_end(prediction: xr.Dataset, ends: list[float]) -> float:
    """Return the first of some ends after which a direction has emerged even if it is 30 % late, or else the last."""
    awaited = next(iter(awaited_ends(prediction).values()), 0.0)
    return next((end for end in ends if end >= awaited), ends[-1])


def left_out(pilot: Pilot, rate: float, end: float, ends: list[float], seeing: float) -> list[Beyond]:
    """Return the next direction that emerges beyond an end, and the last one, or else the last of `ends`.

    If no error is seen at the learning rate of the plan that is the first direction, seen at the rate `seeing`.
    """
    seen = seeing == rate
    due = end * (1.0 + 1e-9) if seen else 0.0
    named = [(f"Direction {p + 1}", time) for p, time in awaited_ends(pilot.prediction).items() if time > due]
    named = named or [("All curves", last) for last in ends[-1:] if last > due]
    found: list[Beyond] = []
    for what, time in dict.fromkeys([*named[:1], *named[-1:]]):
        unit = 10.0 ** (np.floor(np.log10(time)) - 2.0)  # three digits, not less than it was
        needed = seeing if np.isfinite(seeing) else rate
        samples, rounded_up = pilot.options.batch_size * np.ceil(time / needed), float(np.ceil(time / unit) * unit)
        known = np.nan if seen or found else seeing
        found.append(Beyond(what, samples, pilot.cost(needed, time), rounded_up, seen, known))
    return found


def piloted(pilot: Pilot, ends: list[float]) -> tuple[float, float, float]:
    """Return learning rate and end of the check that pilot runs let see most, and the rate at which they see.

    The end is the latest one of `ends` that is seen within a minute, or that of the first emergence within ten; if
    neither is seen, the first emergence if it is reached within ten minutes, else as far as one minute allows. The
    rate at which an error would then be seen is extrapolated from the last pilot, NaN if there is none.
    """
    limit = stability_limit(pilot.problem, pilot.options.batch_size)
    rate, best = min(ends[-1] / PILOT_STEPS, np.inf if limit is None else 0.5 * limit), None
    first = first_end(pilot.prediction, ends)
    for _ in range(MOST_RATES):
        within = pilot.affordable(rate, ends, LONG_SECONDS)
        if not within or (best is not None and within[-1] <= best[1]):
            break
        runs = _pilot_runs(pilot, rate, within)
        seen = next((end for end in reversed(within) if _sees(pilot, runs, end)), None)
        if seen is not None and (best is None or seen > best[1]):
            best = rate, seen
        if seen == within[-1]:
            break
        rate /= PILOT_FACTOR
    if best is not None and best[1] >= first:
        return *best, best[0]
    tried = None
    for _ in range(MOST_RATES):
        if not pilot.affordable(rate, [first], AFFORDABLE_SECONDS):
            break
        tried = _pilot_runs(pilot, rate, [first])
        if _sees(pilot, tried, first):
            return rate, first, rate
        rate /= PILOT_FACTOR
    if best is not None:
        return *best, best[0]
    if not pilot.affordable(PILOT_FACTOR * rate, [first], AFFORDABLE_SECONDS):
        return rate, LONG_SECONDS * rate / pilot.seconds, np.nan
    rate *= PILOT_FACTOR
    seeing = np.nan
    if tried is not None:
        shares = (PILOT_FACTOR**-halvings for halvings in range(1, MOST_RATES))
        seeing = rate * next((share for share in shares if _sees(pilot, tried, first, share)), np.nan)
    return rate, first, seeing


def _tells(problem: Problem, prediction: xr.Dataset, end: float) -> bool:
    """Return whether theory until `end` with times 30 % longer or shorter leaves the band of every curve that moves."""
    times, kept = np.asarray(prediction["time"].values), known_times(prediction)
    kept = kept[(kept > 0.0) & (kept <= end * (1 + 1e-9))]
    grid, powers = np.array([kept, kept / (1.0 + VISIBLE_ERROR), kept * (1.0 + VISIBLE_ERROR)]), []
    for one in quantities_of(problem, prediction) if kept.size else ():
        theory, *dilated = interpolated(times, one.values, grid)
        if np.isfinite(theory).all():
            still, runs = np.zeros(kept.size), theory[np.newaxis]
            curve = Curve(one.kind, one.label, kept, theory, runs, still, np.array(dilated), one.scale)
            powers.append(power_of(curve, places_of(theory), 0.0, FEWEST_RUNS, ROUNDING))
    return _all_seen(powers)


def _all_seen(powers: list[float]) -> bool:
    """Return whether at least one curve moves, and all that move have the power that the pilot asks for.

    The power of a curve that does not move is not a number.
    """
    return any(power >= PILOT_POWER for power in powers) and not any(power < PILOT_POWER for power in powers)


def _pilot_runs(pilot: Pilot, rate: float, ends: list[float]) -> xr.Dataset:
    """Return the runs of a pilot at a learning rate, saved at the ends too, as those of a check until each are."""
    options, last = pilot.options, [int(np.ceil(end / rate * (1.0 - 1e-9))) for end in ends]
    plan = make_plan(rate, last[-1], None)
    with warnings.catch_warnings(), part_of_work(f"pilot runs at {rate:.2g}"):
        warnings.simplefilter("ignore", UserWarning)
        return simulate(
            pilot.problem,
            learning_rate=rate,
            steps=last[-1],
            save_at=SaveAt.at(plan.times(np.union1d(plan.recorded, last))),
            seeds=PILOT_SEEDS,
            engine=pilot.name,
            batch_size=options.batch_size,
            device=options.device,
            dtype=options.dtype,
            progress=pilot.progress,
        )


def _sees(pilot: Pilot, runs: xr.Dataset, end: float, share: float = 1.0) -> bool:
    """Return whether a check until `end` would see an error of 30 % in time, by pilot runs.

    It is at `share` of their learning rate: the distance of their mean from theory goes down with it, and their scatter
    with its root. Of two simulations the effect of the step size has the error of 2 (x_η − x_{η/2}) over the runs of
    the check and that of the mean over the runs of the pilot.
    """
    if runs.attrs["stop_reason"] != "reached_end" or paired_runs([runs]).size < len(PILOT_SEEDS):
        return False
    kept = runs["time"] < end + float(runs.attrs["learning_rate"]) * (1 - 1e-9)
    curves = curves_over_time(pilot.problem, pilot.prediction, [runs.sel(time=kept)])
    places = [places_of(curve.theory, curve.saved) for curve in curves]
    level = pilot.false_alarm_rate / max(sum(part.size for part in places), 1)
    count, powers = max(len(pilot.options.seeds), FEWEST_RUNS), []
    error = np.sqrt(1.0 / len(PILOT_SEEDS) + 6.0 / count)
    for curve, part in zip(curves, places, strict=True):
        scatter = np.sqrt(share) * curve.runs.std(axis=0, ddof=1)
        shift = share * np.abs(curve.runs.mean(axis=0) - curve.theory)
        if pilot.stepped:
            spread = STEPPED_MARGIN * scatter
            tested = curve._replace(effect=spread)
            largest = PILOT_BAND * allowance_of(tested, part)
        else:
            tested = curve._replace(effect=np.maximum(shift, SCATTER_MARGIN * scatter))
            spread, largest = EXTRAPOLATED_SCATTER * SCATTER_MARGIN * scatter, PILOT_EFFECT * curve.range
            shown = np.max(shift + EFFECT_ERRORS * error * scatter)
            wide = SCATTER_MARGIN * np.max(scatter) > EXTRAPOLATED_LIMIT * curve.range
            if curve.moves and (wide or shown > LARGEST_EFFECT * curve.range):
                return False
        if curve.moves and np.max(shift[part]) > largest:
            return False
        powers.append(power_of(tested, part, float(spread[part].max()), count, level))
    return _all_seen(powers)
