r"""Study of the verdict itself: how often it refutes a right theory, and how often wrong ones, by simulation of both.

One neuron of link h_k with label noise, at given parts of the limit of stability. In every repetition the finite-step
equation and several wrong versions of it are held against fresh runs, and the right one against runs of wrong SGD.

Or kinds of problem (`sgd_check.studies.kinds`): the right theory of each, and planted errors, against fresh runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from dynamics.commands import study_function
from dynamics.laws.scaffold import Meter
from dynamics.problem import Problem, SaveAt, Teacher, check_choice, checked_integer, checked_number
from dynamics.problem.checks import JsonObject, checked_list, require
from dynamics.solve import solve_overlaps
from dynamics.theory import learning_rate_limit, predict
from hermite.arrays import Array, real_column
from hermite.text.messages import refuse
from sgd_check.simulations.plan import make_plan
from sgd_check.studies import kinds as of_kinds
from sgd_check.studies.scaffold import SgdStudy, checked_runs
from sgd_check.verdicts.check import HORIZON_FACTOR, compare
from sgd_check.verdicts.verdict import checked_rate

VERDICTS = ("agree", "disagree", "undecided")
#: Wrong SGD: hidden factor of the learning rate.
WRONG_RATE = 5.0
DEFAULT_RATES = (0.05, 0.3)


def _later(theory: xr.Dataset, factor: float) -> xr.Dataset:
    """Return a theory whose curves and times of events all come at `factor` times their time."""
    later = theory.assign_coords(time=theory["time"] * factor)
    return later.assign({name: factor * theory[name] for name in ("emergence_time", "learned_time")})


def _slower_afterwards(theory: xr.Dataset, factor: float) -> xr.Dataset:
    """Return a theory in which everything after the emergence of direction 1 takes `factor` times as long."""
    times, emergence = theory["time"], float(theory["emergence_time"][0])
    stretched_times = times.where(times <= emergence, emergence + (times - emergence) / factor)
    slowed = theory[["loss", "squared_norm"]].map(np.log).interp(time=stretched_times.values).map(np.exp)
    learned = emergence + factor * (theory["learned_time"] - emergence)
    curves = {name: (variable.dims, variable.values) for name, variable in slowed.items()}
    return theory.assign(curves).assign(learned_time=learned)


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
    """Return the counts of verdicts over all repetitions, by learning rate and case, as a dataset.

    `rates` are learning rates, and `end` is the flow time at which the runs end. A repetition that is interrupted is
    not counted.
    """
    shape = (rates.size, len(CASES))
    counts, visible = np.zeros((*shape, len(VERDICTS))), np.full((*shape, 1), np.nan)
    with study.stepping() as meter:
        for index, rate in enumerate(rates.tolist()):
            _calibrate(study, index, rate, int(np.ceil(end / rate)), counts[index], visible[index], meter)
    dims = ("learning_rate", "case")
    return study.dataset(
        meter,
        {"verdict_count": ((*dims, "verdict"), counts), "visible_error": (dims, visible)},
        {"learning_rate": rates, "case": np.array(CASES), "verdict": np.array(VERDICTS)},
        learning_rate_limit=learning_rate_limit(study.problem),
    )


def _calibrate(
    study: SgdStudy, index: int, rate: float, steps: int, counts: Array, visible: Array, meter: Meter
) -> None:
    """Add the verdicts at one learning rate to `counts` (cases, verdicts), and write `visible` errors (cases, 1).

    `index` is the place of `rate` among all learning rates, which sets the seeds, and `steps` the number of SGD steps
    of each run. A visible error is the least relative error of a time that the verdict sees, in the median.
    """
    repetitions, level = study.settings["repetitions"], study.settings["false_alarm_rate"]
    plan, visible_errors = make_plan(rate, steps, None), []
    theory = solve_overlaps(
        study.problem,
        learning_rate=rate,
        step_theory="finite-d",
        save_at=SaveAt.at(plan.times(plan.recorded)),
        progress=False,
        error_estimate=False,
    )
    for repetition in range(repetitions):
        right, *wrong = _runs(
            study, rate, steps, plan.recorded, study.seeds_of(index * repetitions + repetition), meter
        )
        pairs = [*((change(theory), right) for change in THEORIES.values()), *((theory, runs) for runs in wrong)]
        comparisons = [
            compare(prediction, runs, false_alarm_rate=level)["comparison"].to_dataset() for prediction, runs in pairs
        ]
        visible_errors.append([comparison["visible_error"].values for comparison in comparisons])
        visible[:] = np.nanmedian(np.nan_to_num(visible_errors, nan=np.inf), axis=0)
        verdicts = [VERDICTS.index(comparison.attrs["verdict"]) for comparison in comparisons]
        counts[np.arange(len(CASES)), verdicts] += 1


def _runs(study: SgdStudy, rate: float, steps: int, records: Any, seeds: range, meter: Meter) -> list[xr.Dataset]:
    """Return three simulations: right runs, runs at a wrong learning rate, and runs from a smaller overlap.

    The wrong rate is `WRONG_RATE` times the stated one; `records` (integers) are the steps that are saved, of `steps`
    in all runs, and `seeds` those of every simulation. All three are labelled with the right problem and `rate`.
    """
    problem, fast = study.problem, np.unique(np.rint(records / WRONG_RATE).astype(int))
    later = lone_neuron(problem.information_exponent, problem.dimension, 0.9)
    cases = (
        (problem, rate, steps, records),
        (problem, WRONG_RATE * rate, int(np.ceil(steps / WRONG_RATE)), fast),
        (later, rate, steps, records),
    )
    simulations = []
    for simulated, eta, count, recorded in cases:
        runs = study.simulated(simulated, eta, count, seeds, recorded[recorded <= count].tolist())
        simulations.append(runs.assign_attrs(learning_rate=rate, effective_learning_rate=rate))
        meter.add(count * len(seeds))
    # The last runs get the parameters of the right problem.
    arrays = {name: array for name, array in simulations[-1].data_vars.items() if "seed" in array.dims}
    simulations[-1] = simulations[0].assign(arrays)
    return simulations


def _calibration_of_kinds(study: SgdStudy) -> xr.Dataset:
    """Return the counts of verdicts over all repetitions, by kind of problem and case of error, as a dataset.

    Variables also hold how many of the errors were large, and the median of their effects on times and on curves. A
    comparison that is interrupted is not counted.
    """
    names, cases, repetitions = study.settings["kinds"], of_kinds.CASES, study.settings["repetitions"]
    counts = np.zeros((2, len(names), len(cases), len(VERDICTS)))
    effects = np.full((repetitions, len(names), len(cases), 2), np.nan)
    with study.stepping() as meter:
        for repetition, (index, name) in product(range(repetitions), enumerate(names)):
            kind = of_kinds.KINDS[name]
            number = study.settings["seed"] + repetition
            # Seeds depend on the number and the kind alone, so that a study can be made in parts.
            first = of_kinds.MOST_RUNS * (number * len(of_kinds.KINDS) + list(of_kinds.KINDS).index(name))
            verdicts = of_kinds.compared(
                name, number, range(first, first + kind.runs), study.settings["false_alarm_rate"]
            )
            for case, (verdict, effect) in verdicts.items():
                place = (index, cases.index(case))
                counts[0][*place, VERDICTS.index(verdict)] += 1
                counts[1][*place, VERDICTS.index(verdict)] += effect.is_large
                effects[repetition, *place] = effect
            meter.add(round(kind.samples))
    dims = ("kind", "case")
    middle = np.full(effects.shape[1:], np.nan)
    is_measured = np.isfinite(effects).any(axis=0)
    middle[is_measured] = np.nanmedian(np.where(is_measured, effects, 0.0), axis=0)[is_measured]
    return study.dataset(
        meter,
        {
            "verdict_count": ((*dims, "verdict"), counts[0]),
            "large_error_count": ((*dims, "verdict"), counts[1]),
            "time_effect": (dims, middle[..., 0]),
            "curve_effect": (dims, middle[..., 1]),
        },
        {"kind": np.array(names), "case": np.array(cases), "verdict": np.array(VERDICTS)},
    )


def lone_neuron(information_exponent: int, dimension: int, factor: float = 1.0) -> Problem:
    """Return one neuron of link h_k, k = `information_exponent`, at overlap 0.35 · `factor` with the one direction.

    Its squared length is 0.01, and the label noise has standard deviation 0.2.
    """
    return Problem(
        activation=f"he{information_exponent}",
        teacher=Teacher([1.0]),
        width=1,
        dimension=dimension,
        initial_overlaps=([[factor * 0.35]], [[1.0]], [0.1**2]),
        label_noise=0.2,
    )


@study_function  # returns what `run` of the prepared study returns, a dataset
def calibration(
    *,
    information_exponent: int = 3,
    dimension: int = 16,
    rates: ArrayLike = DEFAULT_RATES,
    kinds: str | Sequence[str] = (),
    repetitions: int = 20,
    seeds: int = 32,
    false_alarm_rate: float = 0.01,
    seed: int = 0,
    progress: bool | None = None,
) -> SgdStudy:
    """Measure how often `compare` refutes a right theory and wrong ones, at learning rates or for kinds of problem.

    An error is *large* if it changes a time that is awaited by 30 % or more, or a curve by a tenth of its range.

    Parameters
    ----------
    information_exponent, dimension : int
        k ≥ 3 and d of one neuron that starts at an overlap of 0.35 with the one direction, with label noise 0.2.
    rates : array_like, shape (E,)
        Learning rates in units of the limit of stability, positive.
    kinds : str or sequence of str, default ()
        "all", or some of "link-1", "link-2", "link-3", "link-4", "random-start", "inputs", "network", "committee",
        "momentum", "sign-sgd", "zeroth-order", "reused-data", "classes" and "tokens": small problems with rates,
        dimensions, runs and planted errors of their own, instead of the one neuron; other arguments but the next ones
        must be absent.
    repetitions : int
        Comparisons of each case, each with samples of its own, that all cases share.
    seeds, seed : int
        Runs of each comparison, at least 4, and first seed of the samples.
    false_alarm_rate : float
        Probability at which each comparison may refute a right theory.

    Returns
    -------
    Dataset
        `verdict_count` (learning_rate, case, verdict) of comparisons with the finite-step equation, right or wrong, and
        `visible_error` (learning_rate, case, direction), the median of what each comparison says that it would have
        seen, infinite if nothing. With `kinds`: `verdict_count` and `large_error_count` (kind, case, verdict) of all
        comparisons and of those with a large error, and `time_effect` and `curve_effect` (kind, case), the medians of
        the largest |ln ratio| of an awaited time and of the largest change of a curve in parts of its range.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> counts = calibration(rates=[0.05], repetitions=1, progress=False)
    >>> counts.verdict_count.isel(learning_rate=0, case=[0, 1]).values.tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    >>> counts.verdict.values.tolist(), counts.case.values[:2].tolist()
    (['agree', 'disagree', 'undecided'], ['right', 'times x 1.1'])
    """
    settings: JsonObject = {
        **checked_runs(seeds, seed, fewest=4),
        "repetitions": checked_integer(repetitions, "repetitions", minimum=1),
        "false_alarm_rate": checked_rate(false_alarm_rate),
    }
    names = [str(name) for name in checked_list([kinds] if isinstance(kinds, str) else kinds, "kinds")]
    if names:
        lone = {"information_exponent": (information_exponent, 3), "dimension": (dimension, 16), "seeds": (seeds, 32)}
        for name, (value, usual) in lone.items():
            require(
                value == usual, f"Argument `{name}` must be absent with `kinds`, which have their own, but is {value}."
            )
        require(
            np.array_equal(np.asarray(rates), DEFAULT_RATES),
            f"Argument `rates` must be absent with `kinds`, which have their own, but is {rates!r}.",
        )
        return _study_of_kinds(names, settings, progress)
    k = checked_integer(information_exponent, "information_exponent", minimum=3)
    problem = lone_neuron(k, checked_integer(dimension, "dimension", minimum=2))
    parts = real_column(rates, "rates")
    require(
        parts.ndim == 1 and parts.size,
        f"Argument `rates` must hold one learning rate or more, but has shape {parts.shape}.",
    )
    settings["rates"] = [checked_number(part, "rates", positive=True) for part in parts.tolist()]
    pair = predict(problem)
    emergence, learned = float(pair.predicted_emergence_time[0]), float(pair.predicted_learned_time[0])
    # A learned time that is 30 % late, with the delay by the step size added, would be seen.
    end = max(HORIZON_FACTOR * emergence, 1.6 * learned)
    learning_rates = parts * learning_rate_limit(problem)
    # Runs at five times the learning rate take a fifth of the steps.
    steps_of_a_run = float(np.ceil(end / learning_rates).sum())
    steps = float(settings["seeds"] * settings["repetitions"] * (2.0 + 1.0 / WRONG_RATE) * steps_of_a_run)
    solve = partial(_calibration, rates=learning_rates, end=end)
    title = "How often the verdict is right"
    return SgdStudy("calibration", title, settings, problem, progress, solve, steps=steps)


def _study_of_kinds(names: list[str], settings: JsonObject, progress: bool | None) -> SgdStudy:
    """Return the study of some kinds of problem, instead of the one neuron; each kind has its own number of runs.

    `names` are those of `KINDS`, or "all" alone; ValueError otherwise, and ImportError if a kind needs torch and it is
    not installed. `settings` are those of the study of one neuron.
    """
    names = list(of_kinds.KINDS) if names == ["all"] else names
    for name in names:
        check_choice("kinds", name, (*of_kinds.KINDS, "all"))
    require(
        "all" not in names and len({*names}) == len(names), f"Argument `kinds` must name no kind twice, but is {names}."
    )
    kinds, repetitions = [of_kinds.KINDS[name] for name in names], settings["repetitions"]
    if any(kind.torch for kind in kinds) and find_spec("torch") is None:
        refuse(
            "Argument `kinds` must name kinds without torch, or that must be installed: pip install "
            '"feature-emergence[torch]".',
            error=ImportError,
        )
    return SgdStudy(
        "calibration",
        "How often the verdict is right",
        {"kinds": names, **{name: value for name, value in settings.items() if name != "seeds"}},
        kinds[0].problem(0),
        progress,
        _calibration_of_kinds,
        steps=repetitions * sum(kind.samples for kind in kinds),
        seconds=lambda: repetitions * sum(kind.seconds for kind in kinds),
        advice="fewer kinds or repetitions",
    )
