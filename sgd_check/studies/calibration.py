r"""Study of the verdict itself: how often it refutes a right theory, and how often wrong ones, by simulation of both.

One neuron of link h_k with label noise, at given parts of the limit of stability. In every repetition the finite-step
equation and several wrong versions of it are held against fresh runs, and the right one against runs of wrong SGD.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from dynamics.commands import study_function
from dynamics.laws import Meter
from dynamics.problem import Problem, SaveAt, Teacher, checked_integer, checked_number
from dynamics.problem.checks import check_that
from dynamics.solve import solve_overlaps
from dynamics.theory import learning_rate_limit, predict
from hermite.arrays import Array, real_column
from sgd_check.runs.plan import make_plan
from sgd_check.studies.sgd_study import SgdStudy, checked_runs
from sgd_check.verdicts.check import HORIZON_FACTOR, compare
from sgd_check.verdicts.verdict import checked_rate

VERDICTS = ("agree", "disagree", "undecided")
#: Wrong SGD: hidden factor of the learning rate.
WRONG_RATE = 5.0


def _later(theory: xr.Dataset, factor: float) -> xr.Dataset:
    later = theory.assign_coords(time=theory["time"] * factor)
    return later.assign({name: factor * theory[name] for name in ("emergence_time", "learned_time")})


def _slower_afterwards(theory: xr.Dataset, factor: float) -> xr.Dataset:
    """Return a theory in which all that follows the emergence takes longer by a factor."""
    times, emergence = theory["time"], float(theory["emergence_time"][0])
    moved = times.where(times <= emergence, emergence + (times - emergence) / factor)
    slowed = theory[["loss", "squared_norm"]].map(np.log).interp(time=moved.values).map(np.exp)
    learned = emergence + factor * (theory["learned_time"] - emergence)
    return theory.assign({name: (one.dims, one.values) for name, one in slowed.items()}).assign(learned_time=learned)


#: Theories that are held against runs of right SGD.
THEORIES: dict[str, Callable[[xr.Dataset], xr.Dataset]] = {
    "right": lambda theory: theory,
    "times x 1.1": lambda theory: _later(theory, 1.1),
    "times / 1.1": lambda theory: _later(theory, 1 / 1.1),
    "times x 1.3": lambda theory: _later(theory, 1.3),
    "learned times x 1.3": lambda theory: theory.assign(learned_time=1.3 * theory["learned_time"]),
    "twice as slow after emergence": lambda theory: _slower_afterwards(theory, 2.0),
    "loss x 1.5": lambda theory: theory.assign(loss=1.5 * theory["loss"]),
    "norm x 10": lambda theory: theory.assign(squared_norm=10.0 * theory["squared_norm"]),
}
CASES = (*THEORIES, "SGD at 5 times the rate", "SGD from 0.9 of the overlap")


def _calibration(study: SgdStudy, rates: Array, end: float) -> xr.Dataset:
    """Make the repetitions one by one at every learning rate; an interrupted repetition is not counted."""
    shape = (rates.size, len(CASES))
    counts, visible = np.zeros((*shape, len(VERDICTS))), np.full((*shape, 1), np.nan)
    with study.stepping() as meter:
        for at, rate in enumerate(rates.tolist()):
            _calibrate(study, at, rate, int(np.ceil(end / rate)), counts[at], visible[at], meter)
    where = ("learning_rate", "case")
    return study.dataset(
        meter,
        {"verdict_count": ((*where, "verdict"), counts), "visible_error": (where, visible)},
        {"learning_rate": rates, "case": np.array(CASES), "verdict": np.array(VERDICTS)},
        learning_rate_limit=learning_rate_limit(study.problem),
    )


def _calibrate(study: SgdStudy, at: int, rate: float, steps: int, counts: Array, visible: Array, meter: Meter) -> None:
    """Count the verdicts (cases, verdicts) at one learning rate, and put down the visible errors (cases, 1)."""
    repetitions, level = study.settings["repetitions"], study.settings["false_alarm_rate"]
    plan, seen = make_plan(rate, steps, None), []
    theory = solve_overlaps(
        study.problem,
        learning_rate=rate,
        step_theory="finite-d",
        save_at=SaveAt.at(plan.times(plan.recorded)),
        progress=False,
        error_estimate=False,
    )
    for repetition in range(repetitions):
        right, *wrong = _runs(study, rate, steps, plan.recorded, study.seeds_of(at * repetitions + repetition), meter)
        pairs = [*((change(theory), right) for change in THEORIES.values()), *((theory, runs) for runs in wrong)]
        found = [compare(one, runs, false_alarm_rate=level)["comparison"].to_dataset() for one, runs in pairs]
        seen.append([one["visible_error"].values for one in found])
        visible[:] = np.nanmedian(np.nan_to_num(seen, nan=np.inf), axis=0)
        counts[np.arange(len(CASES)), [VERDICTS.index(one.attrs["verdict"]) for one in found]] += 1


def _runs(study: SgdStudy, rate: float, steps: int, records: Any, seeds: range, meter: Meter) -> list[xr.Dataset]:
    """Return runs as they should be, at five times the stated learning rate, and from a smaller overlap."""
    problem, fast = study.problem, np.unique(np.rint(records / WRONG_RATE).astype(int))
    later = lone_neuron(problem.information_exponent, problem.dimension, 0.9)
    cases = (
        (problem, rate, steps, records),
        (problem, WRONG_RATE * rate, int(np.ceil(steps / WRONG_RATE)), fast),
        (later, rate, steps, records),
    )
    found = []
    for one, eta, count, recorded in cases:
        runs = study.simulated(one, eta, count, seeds, recorded[recorded <= count].tolist())
        found.append(runs.assign_attrs(learning_rate=rate, effective_learning_rate=rate))
        meter.add(count * len(seeds))
    # The last runs say that they are of the problem as it should be.
    found[-1] = found[0].assign({name: array for name, array in found[-1].data_vars.items() if "seed" in array.dims})
    return found


def lone_neuron(information_exponent: int, dimension: int, factor: float = 1.0) -> Problem:
    """Return one neuron of link h_k at an overlap of 0.35 times a factor from the one direction, label noise 0.2."""
    return Problem(
        activation=f"he{information_exponent}",
        teacher=Teacher([1.0]),
        width=1,
        dimension=dimension,
        initial_overlaps=([[factor * 0.35]], [[1.0]], [0.1**2]),
        label_noise=0.2,
    )


@study_function
def calibration(
    *,
    information_exponent: int = 3,
    dimension: int = 16,
    rates: ArrayLike = (0.05, 0.3),
    repetitions: int = 20,
    seeds: int = 32,
    false_alarm_rate: float = 0.01,
    seed: int = 0,
    progress: bool | None = None,
) -> SgdStudy:
    """Measure how often `compare` refutes a right theory and wrong ones, at given learning rates.

    Parameters
    ----------
    information_exponent, dimension : int
        k ≥ 3 and d of one neuron that starts at an overlap of 0.35 with the one direction, with label noise 0.2.
    rates : array_like, shape (E,)
        Learning rates in units of the limit of stability, positive.
    repetitions : int
        Comparisons of each case, each with samples of its own, that all cases share.
    seeds, seed : int
        Runs of each comparison, at least 4, and first seed of the samples.
    false_alarm_rate : float
        As of `compare`.

    Returns
    -------
    Dataset
        `verdict_count` (learning_rate, case, verdict) of comparisons with the finite-step equation, right or wrong, and
        `visible_error` (learning_rate, case, direction), the median of what each comparison says that it would have
        seen, infinite if nothing.

    Examples
    --------
    >>> found = calibration(rates=[0.05], repetitions=1, progress=False)
    >>> found.verdict_count.isel(learning_rate=0, case=[0, 1]).values.tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    >>> found.verdict.values.tolist(), found.case.values[:2].tolist()
    (['agree', 'disagree', 'undecided'], ['right', 'times x 1.1'])
    """
    settings: dict[str, Any] = {
        **checked_runs(seeds, seed, fewest=4),
        "repetitions": checked_integer(repetitions, "repetitions", minimum=1),
        "false_alarm_rate": checked_rate(false_alarm_rate),
    }
    k = checked_integer(information_exponent, "information_exponent", minimum=3)
    problem = lone_neuron(k, checked_integer(dimension, "dimension", minimum=2))
    parts = real_column(rates, "rates")
    check_that(parts.ndim == 1 and parts.size, "rates", "hold one learning rate or more", f"has shape {parts.shape}")
    settings["rates"] = [checked_number(part, "rates", positive=True) for part in parts.tolist()]
    pair = predict(problem)
    emergence, learned = (float(each[0]) for each in (pair.predicted_emergence_time, pair.predicted_learned_time))
    # A learned time that is 30 % late, with the delay by the step size added, would be seen.
    end = max(HORIZON_FACTOR * emergence, 1.6 * learned)
    each = parts * learning_rate_limit(problem)
    # Those at five times the learning rate are a fifth.
    steps = float(settings["seeds"] * settings["repetitions"] * (2.0 + 1.0 / WRONG_RATE) * np.ceil(end / each).sum())
    solve = partial(_calibration, rates=each, end=end)
    title = "How often the verdict is right"
    return SgdStudy("calibration", title, settings, problem, progress, solve, steps=steps)
