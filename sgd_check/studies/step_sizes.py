"""Studies of the step size: emergence and survival of one problem from tiny to huge steps, transfer between widths.

In flow time η·n the emergence does not depend on a small η; noise delays it as η grows, and beyond the limit of
stability the converged student blows up. In the study of transfer noise and speed balance at the best step; that of
gradient descent, `dynamics.laws.transfer`, is at the edge of stability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from dynamics.commands import study_function
from dynamics.fits import first_crossing
from dynamics.laws.scaffold import checked_problem
from dynamics.laws.transfer import checked_widths, transfer_results
from dynamics.problem import MOST_RUNS, Problem, check_problem, checked_integer, checked_number
from dynamics.problem.checks import require
from dynamics.theory import learning_rate_limit, predict
from hermite.arrays import Array, real_column
from hermite.text.messages import refuse
from sgd_check.simulations.plan import stability_limit
from sgd_check.studies.scaffold import (
    DEFAULT_START,
    SgdStudy,
    checked_runs,
    finite_step_times,
    prepared_pairs,
    seconds_of,
    share_never,
)

RESAMPLES = 400
#: Step sizes of the study of transfer, in units of the limit of stability.
SHARES = (0.12, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
#: Largest relative difference of the median of SGD from the flow.
TOLERANCE = 0.1


def _step_sizes(study: SgdStudy, rates: Array, limit: float | None, flow: Array, horizon: float) -> xr.Dataset:
    """Take the steps at all learning rates, the large and cheap ones first, and return the study's dataset.

    `rates` (E,) are learning rates, `limit` is that of stability, if known, `flow` (P,) are the flow's times of
    emergence, NaN or inf if never, and `horizon` is the flow time at which runs end. By rate and run the dataset has
    emergence times and shares of runs that blew up or have no time; by rate also the times of the equation of finite
    steps. Attributes are for the last direction that emerges in the flow: the largest rate whose median time stays
    within `TOLERANCE` of the flow, and the rate at which half of the runs blow up, with errors by resampling. Points
    that an interruption leaves out are NaN.
    """
    problem, count = study.problem, study.settings["seeds"]
    time, blown = np.full((rates.size, count, problem.num_directions), np.nan), np.full((rates.size, count), np.nan)
    with study.stepping() as meter:
        for index, rate in reversed(list(enumerate(rates.tolist()))):
            steps = int(np.ceil(horizon / rate))
            runs = study.simulated(problem, rate, steps, study.seeds_of(index), [steps])
            time[index], blown[index] = runs["emergence_time"].values, runs["blown_up"].values
            meter.add(steps * count)
    finite = np.array([finite_step_times(problem, rate, horizon) for rate in rates.tolist()])
    # Of those that emerge in the flow the last.
    shown = int(np.argmax(np.where(np.isfinite(flow), flow, -1.0)))
    shown_times, of_rate = time[..., shown], ("learning_rate",)

    def faithful(time: Array, blown: Array) -> float:
        return reach(rates, median_ratio(time, blown, flow[shown]))

    def half(_: Array, blown: Array) -> float:
        return half_blown(rates, blown)

    return study.dataset(
        meter,
        {
            "emergence_time": ((*of_rate, "run"), time),
            "blown_up_share": (of_rate, blown.mean(axis=1)),
            "censored_share": (of_rate, share_never(time, blown)),
            "finite_step_time": (of_rate, finite),
            "predicted_emergence_time": ((), np.where(np.isfinite(flow), flow, np.nan)),
            "first_seed": (of_rate, [study.seeds_of(index).start for index in range(rates.size)]),
        },
        {"learning_rate": rates, "run": np.arange(count)},
        horizon=horizon,
        learning_rate_limit=limit,
        shown_direction=shown + 1,
        tolerance=TOLERANCE,
        largest_faithful_rate=faithful(shown_times, blown),
        largest_faithful_rate_error=resampled_error(faithful, shown_times, blown),
        largest_faithful_rate_of_equation=reach(rates, finite[:, shown] / flow[shown]),
        half_blown_up_rate=half(shown_times, blown),
        half_blown_up_rate_error=resampled_error(half, shown_times, blown),
    )


@study_function  # returns what `run` of the prepared study returns, a dataset
def step_size_phases(
    problem: Problem | None = None,
    *,
    information_exponent: int = 4,
    dimension: int = 64,
    start: float = DEFAULT_START,
    learning_rates: ArrayLike | None = None,
    seeds: int = 32,
    seed: int = 0,
    progress: bool | None = None,
) -> SgdStudy:
    """Measure when directions emerge, and how many runs blow up, over decades of the step size.

    Parameters
    ----------
    problem : Problem, optional
        What is learned.  By default one neuron of link h_k that starts at C² = s/d from the one direction; the next
        three arguments describe that problem and count only without this one.
    information_exponent, dimension, start : int, int, float
        k ≥ 3, d and s > 0.
    learning_rates : array_like, shape (E,), optional
        Step sizes η, increasing.  By default 13 from 1/16 to 16 times the limit of stability.
    seeds, seed : int
        Runs per step size, at least 2, and first seed of the samples; no two runs of the study share samples.

    Returns
    -------
    Dataset
        `emergence_time` (learning_rate, run, direction; flow time η · step, NaN if never), `finite_step_time`
        (learning_rate, direction), `predicted_emergence_time` (direction; flow), shares of blown-up and censored runs.
        Attributes: `largest_faithful_rate`, up to which the median of SGD lies within 10 % of the flow,
        `half_blown_up_rate`, from which on half of the runs blow up, both with standard errors from resampling runs and
        both for `shown_direction`, the last to emerge in the flow; `learning_rate_limit`.

    Notes
    -----
    Runs go on to five times the last learned time of the flow: longer runs blow up at somewhat smaller steps.  Runs
    without emergence count as infinite in the median, which is taken to rise with η where the 10 % are read off.

    Examples
    --------
    >>> phases = step_size_phases(dimension=16, learning_rates=[1e-5, 1e-3], seeds=4, progress=False)
    >>> ratio = phases.emergence_time.median("run") / phases.predicted_emergence_time
    >>> ratio.values.ravel().round(1).tolist(), f"{phases.attrs['learning_rate_limit']:.2g}"
    ([1.0, 1.4], '0.00024')
    """
    chosen_problem = prepared_pairs(information_exponent, dimension, start=start) if problem is None else problem
    check_problem(chosen_problem)
    settings = checked_runs(seeds, seed)
    prediction = predict(chosen_problem)
    flow, learned = prediction.predicted_emergence_time, prediction.predicted_learned_time
    is_learned = np.isfinite(learned)
    require(is_learned.any(), "Argument `problem` must have a direction that is learned in the flow, but has none.")
    limit = stability_limit(chosen_problem)
    if learning_rates is not None:
        rates = real_column(learning_rates, "learning_rates")
        require(
            rates.ndim == 1 and rates.size >= 2,
            f"Argument `learning_rates` must hold at least two step sizes, but has shape {rates.shape}.",
        )
        for rate in rates.tolist():
            checked_number(rate, "learning_rates", positive=True)
        require((np.diff(rates) > 0).all(), f"Argument `learning_rates` must increase, but is {rates.tolist()}.")
    elif limit is not None:
        rates = np.geomspace(1 / 16 * limit, 16.0 * limit, 13)
    else:
        refuse("Argument `learning_rates` must be given, because theory gives no limit to choose them by, but is None.")
    settings["learning_rates"] = rates.tolist()
    # Beyond the last learned time an instability has time to show.
    horizon = 5.0 * float(learned[is_learned].max())
    solve = partial(_step_sizes, rates=rates, limit=limit, flow=flow, horizon=horizon)
    steps = float(settings["seeds"] * np.sum(np.ceil(horizon / rates)))
    title = "Emergence and blow-up against the step size"
    return SgdStudy("step-size", title, settings, chosen_problem, progress, solve, steps=steps)


def resampled_error(read: Callable[[Array, Array], float], time: Array, blown: Array) -> float:
    """Return the standard error of a rate read off times and blow-ups, from resampling the runs of every step size."""
    rng = np.random.default_rng(0)
    readings = np.full(RESAMPLES, np.nan)
    for sample in range(RESAMPLES):
        indices = rng.integers(time.shape[1], size=time.shape)
        readings[sample] = read(*(np.take_along_axis(array, indices, axis=1) for array in (time, blown)))
    finite = readings[np.isfinite(readings)]
    return float(finite.std()) if finite.size > RESAMPLES // 2 else np.nan


def median_ratio(time: Array, blown: Array, flow: float) -> Array:
    """Return the median over runs of T_SGD/T_flow per step size, lost runs infinite, made monotone."""
    from scipy.optimize import isotonic_regression

    ratio = np.full(time.shape[0], np.nan)
    is_known = np.isfinite(blown).all(axis=1)
    if is_known.any():
        raw = np.median(np.where(np.isnan(time[is_known]), np.inf, time[is_known]), axis=1) / flow
        ratio[is_known] = np.exp(isotonic_regression(np.log(np.minimum(raw, 1e3))).x)  # beyond, as good as infinite
    return ratio


def reach(rates: Array, ratio: Array) -> float:
    """Return the largest step size up to which a ratio stays within 10 % of 1, interpolated in log η; NaN if none.

    Examples
    --------
    >>> round(reach(np.array([1.0, 10.0, 100.0]), np.array([1.0, 1.05, 1.15])), 6)
    31.622777
    """
    inside = np.abs(ratio - 1.0) <= TOLERANCE
    if not inside.any():
        return np.nan
    first = int(np.argmax(inside))
    later = np.flatnonzero(~inside[first:])
    if later.size == 0:
        return float(rates[-1])
    index = first + int(later[0])
    edge = 1.0 + np.sign(ratio[index] - 1.0) * TOLERANCE
    step = (edge - ratio[index - 1]) / (ratio[index] - ratio[index - 1]) if np.isfinite(ratio[index]) else 0.0
    return float(rates[index - 1] * (rates[index] / rates[index - 1]) ** step)


def half_blown(rates: Array, blown: Array) -> float:
    """Return the least step size at which half of the runs blow up, interpolated in log η; NaN if they never do.

    Examples
    --------
    >>> round(half_blown(np.array([1.0, 100.0]), np.array([[0.0, 0.0], [1.0, 1.0]])), 6)
    10.0
    """
    share = blown.mean(axis=1)
    index = int(np.argmax(share >= 0.5))
    if index == 0:
        return float(rates[0]) if share[0] >= 0.5 else np.nan
    return first_crossing(rates, -share, -0.5, linear=True) if np.isfinite(share[index - 1]) else np.nan


def _sgd_transfer(study: SgdStudy, widths: list[int], rates: Array, limit: float) -> xr.Dataset:
    """Take the steps at all widths, learning rates and starts, and return the study's dataset.

    Its losses at the end have one entry per width, learning rate and run, runs of all starts in a row; they are inf for
    runs that blew up, and NaN for those that an interruption leaves out. `limit` is the learning rate's limit of
    stability.
    """
    steps, starts, seeds = (study.settings[name] for name in ("samples", "starts", "seeds"))
    loss = np.full((len(widths), rates.size, starts, seeds), np.nan)
    with study.stepping() as meter:
        for width, rate, start in np.ndindex(loss.shape[:3]):
            problem = replace(study.problem, width=widths[width], seed=study.settings["seed"] + start)
            # No two runs of one width share samples.
            run_seeds = study.seeds_of(rate * starts + start)
            runs = study.simulated(problem, float(rates[rate]), steps, run_seeds, [steps])
            ends = runs["loss"].values[:, -1]
            loss[width, rate, start] = np.where(runs["blown_up"].values | ~np.isfinite(ends), np.inf, ends)
            meter.add(steps * seeds)
    loss = loss.reshape(*loss.shape[:2], -1)
    values, attributes = transfer_results(study.problem, widths, rates, loss)
    return study.dataset(
        meter,
        values,
        {"width": np.array(widths), "learning_rate": rates, "run": np.arange(loss.shape[2])},
        learning_rate_limit=limit,
        method="online SGD, projected engine",
        **study.settings,
        **attributes,
    )


@study_function  # returns what `run` of the prepared study returns, a dataset
def sgd_transfer(
    *,
    information_exponent: int = 4,
    beta: float = 1.0,
    directions: int = 8,
    dimension: int = 48,
    widths: Sequence[int] = (2, 4, 8, 16, 32),
    samples: int = 100_000,
    starts: int = 6,
    seeds: int = 4,
    seed: int = 0,
    progress: bool | None = None,
) -> SgdStudy:
    """Measure the loss of online SGD after a fixed number of samples over step sizes and widths.

    Parameters
    ----------
    information_exponent, beta : int, float
        k ≥ 3 of the link h_k, and decay β of the teacher's coefficients.
    directions, dimension, widths : int, int, sequence of int
        P ≥ 2, d above P and the largest width together, and at least four increasing widths.
    samples : int
        Samples of every run, one a step, whatever its step size.
    starts, seeds, seed : int
        Random starts of every width, runs of each, and first seed of both.

    Returns
    -------
    Dataset
        The variables of `dynamics.laws.transfer.transfer_study`.  Attribute `learning_rate_limit` instead of `edge`.

    Notes
    -----
    Runs of one start are resampled as if each had its own start, so that errors are somewhat too small.

    Examples
    --------
    >>> settings = {"directions": 2, "dimension": 8, "widths": [1, 2, 3, 4], "samples": 100, "starts": 2, "seeds": 1}
    >>> transfer = sgd_transfer(**settings, progress=False)
    >>> dict(transfer.final_loss.sizes), transfer.attrs["verdict"]
    ({'width': 4, 'learning_rate': 9, 'run': 2}, 'no drift')
    """
    width_list = checked_widths(widths)
    # The projected engine draws in the axes of teacher and neurons, and one more.
    problem = checked_problem(
        information_exponent, beta, directions, dimension, widest=width_list[-1], seed=seed, room=width_list[-1] + 1
    )
    settings = {
        "samples": checked_integer(samples, "samples", minimum=1),
        "starts": checked_integer(starts, "starts", minimum=1, maximum=MOST_RUNS),
        **checked_runs(seeds, seed, fewest=1),
    }
    limit = float(learning_rate_limit(problem))
    steps_of_width = float(len(SHARES) * settings["starts"] * settings["seeds"] * settings["samples"])

    def seconds() -> float:
        return sum(seconds_of(replace(problem, width=m), settings["seeds"], steps_of_width) for m in width_list)

    solve = partial(_sgd_transfer, widths=width_list, rates=limit * np.array(SHARES), limit=limit)
    title = "Loss after so many samples of online SGD over step sizes and widths"
    steps = steps_of_width * len(width_list)
    return SgdStudy("transfer", title, settings, problem, progress, solve, steps=steps, seconds=seconds)
