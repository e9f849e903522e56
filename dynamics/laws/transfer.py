"""Study of the step size's transfer between widths: loss after so many steps of population gradient descent."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from dynamics.commands.catalogue import duration, study_function
from dynamics.fits import FEWEST_WIDTHS, read_transfer
from dynamics.laws.scaffold import PreparedStudy, Task, checked_problem, checked_starts, under_way
from dynamics.problem import Problem
from dynamics.problem.checks import checked_increasing, checked_integer
from dynamics.problem.saved_times import SaveAt
from dynamics.runs.dataset import Values
from dynamics.solve.overlaps import solve_overlaps
from dynamics.sweeps.workers import checked_workers
from dynamics.theory.learning_rates import descent_limit
from hermite.arrays import Array

TITLE = "Loss after so many steps of population gradient descent over step sizes and widths"
#: Step sizes in units of the edge of stability: from far below by factors of two, then ever closer, and two beyond.
SHARES = (0.03125, 0.0625, 0.125, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.01, 1.05)
#: Operations per second of a step, on two cores.
SPEED = 1e10


def _transfer(study: PreparedStudy, widths: list[int], rates: Array, seeds: range, workers: int) -> xr.Dataset:
    """Return the dataset of all runs; after an interruption losses of later runs are NaN."""
    tasks: list[Task] = [
        partial(_descend, replace(study.problem, width=m, seed=seed), rate, study.settings["steps"])
        for m in widths
        for rate in rates.tolist()
        for seed in seeds
    ]
    loss = np.full((len(widths), rates.size, len(seeds)), np.nan)
    with under_way(len(tasks), study.progress) as meter:
        for at, (answer, _) in enumerate(meter.answers(tasks, workers)):
            loss.flat[at] = np.nan_to_num(answer["loss"][-1], nan=np.inf, posinf=np.inf)
    values, attributes = transfer_results(study.problem, widths, rates, loss)
    return study.dataset(
        meter,
        values,
        {"width": np.array(widths), "learning_rate": rates, "run": np.arange(len(seeds))},
        edge=descent_limit(study.problem),
        method="population gradient descent",
        **study.settings,
        **attributes,
    )


@study_function  # returns what `run` of the prepared study returns, a dataset
def transfer_study(
    *,
    information_exponent: int = 4,
    beta: float = 1.0,
    directions: int = 64,
    dimension: int = 128,
    widths: Sequence[int] = (4, 8, 16, 32, 64, 128),
    steps: int = 2000,
    starts: int = 4,
    seed: int = 0,
    workers: int | None = None,
    progress: bool | None = None,
) -> PreparedStudy:
    """Measure the loss of population gradient descent over step sizes and widths, and whether the best step transfers.

    Parameters
    ----------
    information_exponent, beta : int, float
        k ≥ 3 of the link h_k, and decay β of the teacher's coefficients.
    directions, dimension, widths : int, int, sequence of int
        P ≥ 2, d ≥ P, and at least four increasing widths.
    steps : int
        Steps of every run, whatever its step size.
    starts, seed : int
        Random starts of every width, and the seed of the first.
    workers : int, optional
        Number of processes, by default one per core. Results do not depend on it.

    Returns
    -------
    Dataset
        `final_loss` (width, learning_rate, run; inf after a blow-up), and per width `best_rate`, `best_loss`,
        `loss_gap`, `rate_drift`, `transfer_cost` with errors (`dynamics.fits`).  Attributes: `edge`, the
        limit of stability, the exponents of gap and drift, the `verdict`, and `cost_share`.

    Examples
    --------
    >>> given = {"directions": 4, "dimension": 12, "widths": [1, 2, 3, 4], "steps": 40, "starts": 2}
    >>> found = transfer_study(**given, workers=1, progress=False)
    >>> found.best_loss.values.round(1).tolist(), found.attrs["verdict"]
    ([0.9, 0.5, 0.4, 0.1], 'no drift')
    """
    chosen = checked_widths(widths)
    problem = checked_problem(information_exponent, beta, directions, dimension, widest=chosen[-1], seed=seed)
    seeds = checked_starts(starts, problem.seed)
    settings = {"steps": checked_integer(steps, "steps", minimum=1), "starts": len(seeds)}
    rates, processes = descent_limit(problem) * np.array(SHARES), checked_workers(workers, alone=1)
    runs = len(chosen) * rates.size * len(seeds)
    operations = sum(4.0 * m * m * min(problem.dimension, problem.num_directions + chosen[-1]) for m in chosen)
    seconds = operations * rates.size * len(seeds) * settings["steps"] / SPEED + 0.05 * runs
    work = f"{runs} runs of {settings['steps']} steps of descent: about {duration(seconds)}."
    solve = partial(_transfer, widths=chosen, rates=rates, seeds=seeds, workers=processes)
    return PreparedStudy("transfer", TITLE, settings, problem, progress, solve, work)


def _descend(problem: Problem, rate: float, steps: int) -> xr.Dataset:
    """Return the answer of one run of population gradient descent."""
    with warnings.catch_warnings():
        # Steps beyond the edge are part of the study.
        warnings.filterwarnings("ignore", message="Gradient descent loses stability", category=RuntimeWarning)
        return solve_overlaps(
            problem,
            save_at=SaveAt.at([rate * steps]),
            keep="summary",
            method="gradient-descent",
            learning_rate=rate,
            on_failure="return",
            progress=False,
        )


def checked_widths(widths: Sequence[int]) -> list[int]:
    """Return widths as increasing integers, enough of them to see a trend."""
    return checked_increasing(widths, "widths", minimum=1, fewest=FEWEST_WIDTHS)


def transfer_results(
    problem: Problem, widths: Sequence[int], rates: Array, loss: Array
) -> tuple[Values, dict[str, object]]:
    """Return the variables, and exponents and verdict, of a study of transfer, from losses (width, rate, run)."""
    start = float(np.sum(problem.activation.coefficients**2) * np.sum(problem.teacher.coefficients**2))
    readings = read_transfer(widths, rates, loss, nothing=start)
    # Results without a dimension are for all widths together.
    values: Values = {name: (("width",), readings.pop(name)) for name in list(readings) if np.ndim(readings[name])}
    return {"final_loss": (("width", "learning_rate", "run"), loss)} | values, readings
