"""Evidence of runs on samples that are used again, against `dynamics.solve_reused_data`.

They are tested as in `sgd_check.verdicts.curves`, against the limit d → ∞, with Δ the standard deviation over runs; in
few dimensions a difference does not speak against theory (`docs/verdict.md`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

import dynamics
from dynamics.problem import Problem
from dynamics.problem.checks import require
from dynamics.solve.reused_data import GROUPS, POINTS_OF_DIRECTION
from dynamics.theory.schedules import resolved_schedule
from hermite.arrays import Array
from sgd_check.engines import EngineOptions
from sgd_check.verdicts import curves
from sgd_check.verdicts.curves import LARGEST_SCATTER, CurveTest
from sgd_check.verdicts.evidence import Decision, Row, RowKind, global_p_value, judged, named, word_of
from sgd_check.verdicts.path_tests import interpolated, rows_of_paths
from sgd_check.verdicts.starts import tests_of_starts
from sgd_check.verdicts.verdict import (
    FEWEST_RUNS,
    POWER,
    RATE_TOLERANCE,
    USABLE,
    VISIBLE_ERROR,
    check_alike,
    check_dataset,
    check_question,
    check_rates,
    check_start,
    difference,
    lacking_row,
    leave,
    optimizer_of,
    significantly,
    sound_runs,
    too_few,
    unfinished,
    verdict_tree,
)

THEORY = "reused data"
#: Dimension from which on deviations are known to lie within the band: half of the least that was measured.
LEAST_DIMENSION = 100


def _checked(prediction: xr.Dataset, simulation: object) -> tuple[Problem, xr.Dataset]:
    """Return the problem of the runs, and the runs; raise ValueError if they cannot be compared with the prediction."""
    runs = check_dataset("simulation", simulation)
    require(
        {"train_loss", "seed"} <= {*runs, *runs.dims},
        "Argument `simulation` must be runs of `sgd_check.simulate` with `training_samples`, which have `train_loss`, "
        f"but has {', '.join(map(str, runs))}.",
    )
    predicted, problem = Problem.from_dataset(prediction), Problem.from_dataset(runs)
    check_question(predicted, problem, ("width", "teacher"))
    check_start(predicted, problem)
    check_rates(prediction, runs)
    check_alike("label noise", predicted.label_noise, problem.label_noise)
    samples, theory = int(runs.attrs["training_samples"]), prediction.attrs
    ratio, batches = samples / problem.dimension, samples // int(runs.attrs["batch_size"])
    same = abs(ratio - theory["samples_over_dimension"]) <= RATE_TOLERANCE * ratio
    check_alike("samples over dimension", theory["samples_over_dimension"], ratio, same=same)
    check_alike("batches per epoch", int(theory["batches_per_epoch"]), batches)
    if batches > 1:  # one batch of all samples has no order
        check_alike("reshuffle", *(bool(dataset.attrs.get("reshuffle", False)) for dataset in (prediction, runs)))
    check_alike("optimizer", optimizer_of(prediction), optimizer_of(runs))
    return problem, runs


def predict_reused(
    problem: Problem, options: EngineOptions, learning_rate: float, steps: int, progress: bool | None
) -> xr.Dataset:
    """Return the prediction for runs with these options on samples that are used again.

    `steps` is the number of SGD steps, all epochs together.
    """
    samples = options.training_samples or 0
    batches = samples // options.batch_size
    return dynamics.solve_reused_data(
        problem,
        samples=samples,
        learning_rate=learning_rate,
        steps=steps,
        batches_per_epoch=batches,
        reshuffle=options.reshuffle and batches > 1,
        progress=progress,
    )


def runs_of(prediction: xr.Dataset) -> dict[str, object]:
    """Return the arguments of `simulate` by name, for runs of a prediction.

    Raise ValueError if no runs can follow it.
    """
    theory = prediction.attrs
    rate, samples, batches = theory["learning_rate"], float(theory["samples"]), int(theory["batches_per_epoch"])
    require(not isinstance(rate, str), f"Argument `prediction` must have one learning rate, a number, but has {rate}.")
    size = round(samples / batches)
    require(
        abs(size * batches - samples) < RATE_TOLERANCE * samples,
        f"Argument `prediction` must have samples of which every batch has as many, but has {samples:g} in {batches}.",
    )
    return {
        "learning_rate": float(rate),
        "batch_size": size,
        "steps": int(theory["steps"]),
        "training_samples": size * batches,
        "reshuffle": bool(theory.get("reshuffle", False)),
    }


def reused_verdict(prediction: xr.Dataset, simulation: object, rate: float) -> xr.DataTree:
    """Return the verdict on runs on samples that are used again, against their theory, with all its evidence.

    `rate` is the rate of false alarms. Every curve of theory, such as losses and overlaps, is tested at several times
    until the end of runs or of the theory (`curves.assess_curves`), and so are values at the start; all tests share
    `rate`. Further rows say with which power the runs would have refuted the theory of fresh samples. Fewer than
    `FEWEST_RUNS` usable runs leave the verdict "undecided".
    """
    problem, runs = _checked(prediction, simulation)
    usable, reached = curves.paired_runs([runs]).size, np.isfinite(prediction["loss"].values)
    end = min(float(runs.attrs["end_time"]), float(prediction["time"].values[reached].max(initial=0.0)))
    enough = usable >= FEWEST_RUNS
    paths = curves.curves_over_time(problem, prediction, [runs]) if enough else []
    starts = tests_of_starts(problem, prediction, runs) if enough else []
    tests, _ = curves.assess_curves(paths, rate, others=len(starts))
    count = curves.looks_of(tests, starts)
    fresh = _power_against_fresh(problem, prediction, tests, rate / max(count, 1))
    rows = rows_of_paths(starts, rate, RowKind.START, count) + _rows(tests, fresh, rate, count, problem.dimension)
    rows += too_few(usable)
    still = [row for row in rows if row.cause == curves.STILL]
    return verdict_tree(
        rows,
        [_reason(rows, runs, rate, end), *([f"Theory hardly moves {named(still)}."] if still else [])],
        {**curves.values_of(tests), "quantity_fresh_power": fresh, "p_value": global_p_value(rows)},
        problem=problem,
        prediction=prediction,
        simulations={"/simulation": runs},
        rate=rate,
        theory=THEORY,
        usable=usable,
        blown_up=int(np.sum(~sound_runs(runs))),
        attributes={"decided_by": "curves", "compared_until": end},
        title="Runs on samples that are used again, against prediction",
        coords={
            "quantity": np.array([test.curve.name for test in tests], dtype=str),
            "look": np.arange(curves.MOST_PLACES),
        },
    )


def _power_against_fresh(problem: Problem, prediction: xr.Dataset, tests: list[CurveTest], level: float) -> Array:
    """Return, for each curve, the probability that it refutes the theory of fresh samples in every step.

    NaN if not asked. The test has the two-sided `level`; curves that do not move, and the loss over the training
    samples, are not asked.
    """
    asked = [test.curve.moves and test.curve.kind != "train loss" for test in tests]
    if not any(asked):
        return np.full(len(tests), np.nan)
    theory = prediction.attrs
    steps, batches = int(theory["steps"]), int(theory["batches_per_epoch"])
    rates: Any = resolved_schedule(problem, theory["learning_rate"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # steps that are left out show no difference
        fresh = dynamics.solve_reused_data(
            Problem.from_dataset(prediction),
            samples=f"{float(theory['samples_over_dimension']) * steps / batches!r}d",
            learning_rate=rates,
            steps=steps,
            batches_per_epoch=steps,
            progress=False,
            draws=max(2**14, GROUPS * POINTS_OF_DIRECTION * problem.width * steps),  # only power is asked
        )
    values = {quantity[:2]: quantity.values for quantity in curves.quantities_of(problem, fresh)}
    powers = []
    for test, wanted in zip(tests, asked, strict=True):
        curve = test.curve
        path = interpolated(fresh["time"].values, values[curve.kind, curve.label], curve.times)[np.newaxis]
        errors = curves.error_of(curve, curves.scatter_of(curve), curve.runs.shape[0])
        power = curves.power_of(curve._replace(dilated=path), test.places, *errors, level)
        powers.append(power if wanted else np.nan)
    return np.array(powers)


def _rows(tests: Sequence[CurveTest], fresh: Array, rate: float, count: int, dimension: int) -> list[Row]:
    """Return the rows of evidence of all curves, and the rows of their power to refute the theory of fresh samples.

    `fresh` is that power by curve, NaN where it is not asked, and `count` the number of tests that share `rate`. A
    curve that is refuted has an excuse, and leaves the verdict undecided, where its runs scatter widely or `dimension`
    is below `LEAST_DIMENSION`. Of the powers the largest must reach `POWER` for an agreement.
    """
    refuting = [test.curve for test in tests if count * test.p < rate]
    wild = [Row(quantity=curve.kind, label=curve.label) for curve in refuting if curve.scatters]
    scatter = f"runs scatter by over {100 * LARGEST_SCATTER:.0f} % of the range in {named(wild)}"
    few = f"{dimension} is less than the {LEAST_DIMENSION} from which on the band is known to hold"
    rows = []
    for test in tests:
        cause = scatter if test.curve.scatters else few if dimension < LEAST_DIMENSION else ""
        excuse = f"That may be the effect of the finite dimension, since {cause}: use a larger one." if cause else ""
        rows.append(test.row(rate, count, excuse))
    asked = [(row, float(power)) for row, power in zip(rows, fresh, strict=True) if np.isfinite(power)]
    if not asked:
        rows.append(lacking_row("fresh samples", "fresh samples could have gone unseen"))
    best = max((power for _, power in asked), default=np.nan)
    for row, power in asked:
        seen, required = power >= POWER, power == best
        cause = "" if seen else "fresh samples could have gone unseen"
        told: Any = {"quantity": row.quantity, "label": row.label, "power": power, "runs": row.runs, "cause": cause}
        rows.append(judged(rate, kind=RowKind.FRESH, p_value=np.nan, seen=seen, required=required, **told))
    return rows


def _reason(rows: Sequence[Row], runs: xr.Dataset, rate: float, until: float) -> str:
    """Return the sentence that gives the reason of the verdict's word.

    `until` is the time up to which runs are compared.
    """
    word, p_value = word_of(rows), global_p_value(rows)
    refuting = [row for row in rows if row.p_value < rate]
    if word == Decision.DISAGREE:
        sure = [row for row in refuting if row.disagrees]
        return difference([row for row in sure if row.kind == RowKind.START] or sure, p_value, rate)
    if refuting:
        sure = [row for row in refuting if "scatter" not in row.cause] or refuting
        return f"{difference(sure, p_value, rate)} {sure[0].cause}"
    if few := [row.cause for row in rows if row.quantity == USABLE]:
        return few[0]
    moving = [row for row in rows if row.kind == RowKind.CURVE and not np.isnan(row.power)]
    shown = [row for row in rows if row.kind == RowKind.FRESH and row.agrees]
    if word == Decision.UNDECIDED:
        return _unseen(runs, moving)
    return (
        f"No tested curve leaves its band around theory{significantly(leave(rows))}, of at most "
        f"{100 * max(row.high for row in moving):.2g} % of its range where theory moves it, up to time {until:.3g} "
        f"(global p = {p_value:.2g}); an error of {100 * VISIBLE_ERROR:.0f} % in time would have been seen in "
        f"{named(moving)}, and fresh samples instead of those that are used again in {named(shown)}."
    )


def _unseen(runs: xr.Dataset, moving: Sequence[Row]) -> str:
    """Return sentences on the error that could have gone unseen, with its cause."""
    more = "more seeds or a larger dimension"
    early = f"{stopped}. " if (stopped := unfinished("The runs", runs)) else ""
    if not moving:
        return f"{early}Nothing that theory predicts moves by the end of the runs: use more steps."
    if unresolved := [row for row in moving if not row.power >= POWER]:
        error = f"An error of {100 * VISIBLE_ERROR:.0f} % in time could have gone unseen in {named(unresolved)}"
        return f"{early}{error}: use {more}."
    seen = "Fresh samples instead of those that are used again could have gone unseen"
    return f"{early}{seen}: use more passes, {more}."
