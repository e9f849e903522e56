"""Do directions decouple when their number grows with the dimension, P = d^γ? Flows beside matched pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from dynamics.commands.catalogue import study_function
from dynamics.laws.scaffold import COUPLED_FLOW, PreparedStudy, checked_problem, checked_starts, under_way
from dynamics.problem import Problem
from dynamics.problem.checks import checked_increasing, checked_number, require
from dynamics.problem.saved_times import SaveAt
from dynamics.runs.dataset import Values
from dynamics.runs.result import uninterrupted
from dynamics.solve.overlaps import solve_overlaps
from dynamics.theory.prediction import predict

#: Neurons for each direction.
WIDTH_FACTOR = 3
#: The flow is followed for so many times the last predicted emergence, and saved at so few times.
REACH, TIMES = 8.0, 60
TITLE = "Emergence times of coupled flows beside matched pairs, at P = d^gamma"
MEASURED = ("time_ratio", "taken_share", "unlearned_share")


def _compared(problem: Problem) -> tuple[float, float, float]:
    """Return mean emerged over predicted time, and the shares of directions that another neuron took or none did."""
    prediction = predict(problem)
    predicted, neurons = prediction.predicted_emergence_time, prediction.matched_neuron
    last = REACH * float(predicted[np.isfinite(predicted)].max())
    save_at = SaveAt.geometric(last / 1e3, last, TIMES)
    flow = uninterrupted(solve_overlaps(problem, save_at=save_at, **{**COUPLED_FLOW, "keep": "full"}))
    emerged = flow["emergence_time"].values
    seen = np.isfinite(emerged) & np.isfinite(predicted)
    # By the end the neuron that took a direction has kept it.
    nearest = np.argmax(flow["teacher_overlap"].values[-1] ** 2, axis=0)
    ratio = float(np.mean(emerged[seen] / predicted[seen])) if seen.any() else np.nan
    return ratio, float(np.mean((nearest != neurons) & seen)), float(np.mean(~np.isfinite(emerged)))


def _decoupling(study: PreparedStudy, problems: Sequence[Problem], seeds: range) -> xr.Dataset:
    """Solve every size and start; those that an interruption leaves out are NaN."""
    values = np.full((len(MEASURED), len(problems), len(seeds)), np.nan)
    with under_way(len(problems) * len(seeds), study.progress) as meter:
        for row, problem in enumerate(problems):
            for column, seed in enumerate(seeds):
                values[:, row, column] = _compared(replace(problem, seed=seed))
                meter.add(1)
    arrays: Values = {name: (("dimension", "start"), array) for name, array in zip(MEASURED, values, strict=True)}
    counts = np.array([problem.num_directions for problem in problems])
    coords = {"dimension": [problem.dimension for problem in problems], "start": np.array(seeds)}
    arrays["directions_at_dimension"] = (("dimension",), counts)
    return study.dataset(meter, arrays, coords, starts=len(seeds), gamma=study.settings["gamma"])


@study_function  # returns what `run` of the prepared study returns, a dataset
def decoupling(
    *,
    information_exponent: int = 4,
    beta: float = 1.0,
    gamma: float = 0.5,
    dimensions: Sequence[int] = (64, 256, 1024),
    starts: int = 6,
    seed: int = 0,
    progress: bool | None = None,
) -> PreparedStudy:
    r"""Compare coupled flows with matched pairs while the number of directions grows as P = d^γ.

    .. math:: \Big\langle \frac{T_p^{\mathrm{emerge}}}{T_p^{\mathrm{pair}}} \Big\rangle_p \to 1
        \quad\text{if directions decouple}, \qquad P = \mathrm{round}(d^\gamma),\; m = 3 P

    Parameters
    ----------
    information_exponent, beta, gamma : int, float, float
        k ≥ 3 of the link h_k, decay of the coefficients, and 0 < γ ≤ 1.
    dimensions : sequence of int
        Input dimensions, increasing.
    starts, seed : int
        Random starts at every dimension, and the seed of the first.

    Returns
    -------
    Dataset
        By (dimension, start): `time_ratio`, the mean over directions of emerged over predicted time; `taken_share`, the
        share of directions that another neuron than the matched one learns; `unlearned_share`, the share that did
        not emerge by eight times the last predicted time, which the mean leaves out. All are dimensionless.

    Examples
    --------
    >>> found = decoupling(dimensions=(16, 64), starts=2, progress=False)
    >>> found.time_ratio.sizes["start"], bool((found.time_ratio > 1.0).all())
    (2, True)
    """
    sizes = checked_increasing(dimensions, "dimensions", minimum=2, fewest=1)
    power = checked_number(gamma, "gamma", positive=True)
    require(power <= 1.0, f"Argument `gamma` must be at most 1, as directions are orthonormal, but is {power:g}.")
    seeds = checked_starts(starts, seed)
    problems = []
    for d in sizes:
        count = max(round(d**power), 1)
        width = WIDTH_FACTOR * count
        problems.append(checked_problem(information_exponent, beta, count, d, widest=width, seed=seeds.start, fewest=1))
    settings = {"gamma": power, "starts": len(seeds)}
    largest = problems[-1]
    flows = f"{len(sizes) * len(seeds)} coupled flows"
    work = f"{flows} of up to {largest.width} neurons and {largest.num_directions} directions."
    solve = partial(_decoupling, problems=problems, seeds=seeds)
    return PreparedStudy("decoupling", TITLE, settings, largest, progress, solve, work)
