r"""Study of theory at finite dimension: the mean and the scatter of runs over those of theory, against d and η = c/d.

At a fixed c the learning rate falls as 1/d, runs of t d/c steps reach the time t, the squared scatter falls as 1/d, and
theory becomes exact as d grows. The projected engine draws the same few numbers a step at every d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

import dynamics
from dynamics.commands import study_function
from dynamics.problem import Problem, SaveAt, Student, Teacher, checked_increasing, checked_number
from dynamics.problem.checks import JsonObject, is_at_most, require
from hermite.arrays import Array
from sgd_check.studies.scaffold import SgdStudy, checked_rising, checked_runs
from sgd_check.verdicts.bands import kurtosis_of
from sgd_check.verdicts.verdict import sound_runs

#: Dimensions and step scales by default.
USUAL_DIMENSIONS, USUAL_SCALES = (30, 100, 300, 1000, 3000, 10_000), (0.3, 1.0)
#: Flow time at which runs end, and the parts of it at which they are recorded.
USUAL_END, SHARES = 8.0, 2.0 ** np.arange(-5.0, 1.0)


def lone_plateau(dimension: int) -> Problem:
    """Return the problem of two erf neurons that learn two directions from a fixed start, with label noise 0.3."""
    return Problem(
        student=Student(activation="erf", width=2, second_layer="fixed", initial_second_layer=[1.0, 1.0]),
        teacher=Teacher([1.0, 1.0]),
        dimension=dimension,
        initial_weights=np.hstack([[[0.3, 0.1], [0.05, 0.2]], 0.5 * np.eye(2)]),
        label_noise=0.3,
    )


def _finite_d(study: SgdStudy, problems: list[Problem], scales: Array, end: float) -> xr.Dataset:
    """Take the steps at all step scales and dimensions, and return the study's dataset.

    `problems` are of one dimension each, `scales` (E,) the learning rates times d, and `end` is the flow time at which
    runs end. Points that an interruption leaves out are NaN.
    """
    sizes = (scales.size, len(problems), SHARES.size)
    first = study.problem.start().teacher_overlap.shape
    names = ("loss_ratio", "loss_ratio_error", "limit_loss_ratio", "loss_scatter_ratio", "loss_scatter_error")
    values = {name: np.full(sizes, np.nan) for name in (*names, "overlap_shift", "expected_shift", "predicted_loss")}
    overlaps = {name: np.full((*sizes, *first), np.nan) for name in ("overlap_scatter_ratio", "overlap_scatter_error")}
    with study.stepping() as meter:
        for point, (scale, at) in enumerate(np.ndindex(sizes[:2])):
            problem, rate = problems[at], float(scales[scale] / problems[at].dimension)
            records = np.ceil(SHARES * end / rate * (1.0 - 1e-12)).astype(int).tolist()
            columns = _compared(study, problem, rate, records, study.seeds_of(point))
            for name, array in columns.items():
                (overlaps if name in overlaps else values)[name][scale, at] = array
            meter.add(records[-1] * study.settings["seeds"])
    half = values["predicted_loss"][0, -1]
    shown = 0 if np.isnan(half).all() else int(np.nanargmin(np.abs(half - 0.5 * (np.nanmax(half) + np.nanmin(half)))))
    return study.dataset(
        meter,
        {name: ((), array) for name, array in (values | overlaps).items() if name != "predicted_loss"},
        {
            "step_scale": scales,
            "dimension": [problem.dimension for problem in problems],
            "time": SHARES * end,
            "neuron": np.arange(first[0]),
        },
        shown_time=float(SHARES[shown] * end),
    )


def _compared(study: SgdStudy, problem: Problem, rate: float, records: list[int], seeds: range) -> dict[str, Array]:
    """Return runs of one problem at a learning rate over theory, by name of the variable, (times, …) each.

    `records` are the steps that are compared, and `seeds` those of the runs; runs that blew up are left out.
    """
    runs = study.simulated(problem, rate, records[-1], seeds, records)
    save_at, sound = SaveAt.at([rate * record for record in records]), sound_runs(runs)
    theory, limit = (
        dynamics.solve_problem(
            problem, learning_rate=rate, save_at=save_at, progress=False, error_estimate=False, **asked
        )
        for asked in ({"step_theory": "finite-d", "bands": True}, {"step_theory": "infinite-d"})
    )
    loss, overlap = (np.asarray(runs[name].values)[sound] for name in ("loss", "teacher_overlap"))
    loss_scatter, loss_error = _scatter_ratio(loss, theory["loss_sd"].values)
    overlap_scatter, overlap_error = _scatter_ratio(overlap, theory["overlap_sd"].values)
    expected, shift = theory["loss"].values, overlap.mean(axis=0) - theory["teacher_overlap"].values
    return {
        "loss_ratio": loss.mean(axis=0) / expected,
        "loss_ratio_error": loss.std(axis=0, ddof=1) / np.sqrt(len(loss)) / expected,
        "limit_loss_ratio": loss.mean(axis=0) / limit["loss"].values,
        "predicted_loss": expected,
        "loss_scatter_ratio": loss_scatter,
        "loss_scatter_error": loss_error,
        "overlap_scatter_ratio": overlap_scatter,
        "overlap_scatter_error": overlap_error,
        "overlap_shift": np.abs(shift / theory["overlap_sd"].values).max(axis=(1, 2)),
        "expected_shift": theory["band_ratio"].values,
    }


def _scatter_ratio(runs: Array, deviation: Array) -> tuple[Array, Array]:
    """Return the standard deviation of runs (runs, …) over that of theory (…), and its standard error (…)."""
    ratio = runs.std(axis=0, ddof=1) / deviation
    return ratio, ratio * np.sqrt((kurtosis_of(runs) - 1.0) / (4.0 * len(runs)))


@study_function  # returns what `run` of the prepared study returns, a dataset
def finite_d_study(
    problem: Problem | None = None,
    *,
    dimensions: Sequence[int] = USUAL_DIMENSIONS,
    step_scales: ArrayLike = USUAL_SCALES,
    end: float = USUAL_END,
    seeds: int = 200,
    seed: int = 0,
    progress: bool | None = None,
) -> SgdStudy:
    """Measure how far the mean and the scatter of runs are from theory at finite dimension, against d and η = c/d.

    Parameters
    ----------
    problem : Problem, optional
        What is learned, with a given start; its dimension is replaced.  By default two erf neurons and two directions.
    dimensions : sequence of int
        Dimensions d, increasing, each above the number of given axes.
    step_scales : array_like, shape (E,)
        c of the learning rates η = c/d, increasing.
    end : float
        Flow time η · step at which runs end; they are recorded there and at halves of it, down to 1/32.
    seeds, seed : int
        Runs of each point, at least 16, and first seed of the samples; no two runs of the study share samples.

    Returns
    -------
    Dataset
        By step scale, dimension and time: `loss_ratio`, the mean loss of the runs over that of the finite-step equation
        (`limit_loss_ratio`: of that for d → ∞), and `loss_scatter_ratio`, its standard deviation over that of the bands
        of theory, with standard errors; `overlap_scatter_ratio` also by neuron and direction. `overlap_shift` is the
        largest distance of a mean overlap from theory in standard deviations of theory, and `expected_shift` is R, what
        the next order in 1/d lets expect. Attribute `shown_time`: the time at which theory's loss is half-way.

    Examples
    --------
    >>> found = finite_d_study(dimensions=[50, 200], step_scales=[1.0], end=1.0, seeds=64, progress=False)
    >>> found.loss_ratio.isel(time=-1).round(1).values.tolist()
    [[1.0, 1.0]]
    """
    usual = lone_plateau(USUAL_DIMENSIONS[0]) if problem is None else problem
    require(
        isinstance(usual, Problem),
        f"Argument `problem` must be a Problem, but is {type(problem).__name__}.",
        error=TypeError,
    )
    settings: JsonObject = checked_runs(seeds, seed, fewest=16)
    sizes = checked_increasing(dimensions, "dimensions", minimum=2)
    scales = checked_rising(step_scales, "step_scales", "positive numbers", np.finfo(float).tiny)
    last = checked_number(end, "end", positive=True)
    least = scales[-1] / (SHARES[0] * sizes[0])
    require(
        is_at_most(least, last),
        f"Argument `end` must be {least:.3g} or more, so that 1/32 of it is a step or more, but is {last:g}.",
    )
    problems = [replace(usual, dimension=size) for size in sizes]
    settings |= {"dimensions": sizes, "step_scales": scales, "end": last}
    steps = float(settings["seeds"] * sum(np.ceil(last * size / scale) for size in sizes for scale in scales))
    solve = partial(_finite_d, problems=problems, scales=np.array(scales), end=last)
    title = "Mean and scatter of runs over theory against the dimension"
    return SgdStudy("finite-d", title, settings, problems[-1], progress, solve, steps=steps)
