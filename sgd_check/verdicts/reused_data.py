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
from dynamics.problem.checks import check_that
from dynamics.solve.reused_data import GROUPS, POINTS_OF_DIRECTION
from dynamics.theory.schedules import resolved_schedule
from hermite.arrays import Array
from sgd_check.engines import EngineOptions
from sgd_check.verdicts import curves
from sgd_check.verdicts.curves import LARGEST_SCATTER, CurveTest
from sgd_check.verdicts.path_tests import PathTest, interpolated
from sgd_check.verdicts.starts import tests_of_starts
from sgd_check.verdicts.verdict import (
    FEWEST_RUNS,
    POWER,
    RATE_TOLERANCE,
    VISIBLE_ERROR,
    Sentences,
    check_alike,
    check_dataset,
    check_question,
    check_rates,
    check_start,
    optimizer_of,
    side_of,
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
    """Return the problem of the runs, and the runs, or say in one sentence why they cannot be compared."""
    runs = check_dataset("simulation", simulation)
    need = "be runs of `sgd_check.simulate` with `training_samples`, which have `train_loss`"
    known = {"train_loss", "seed"} <= {*runs, *runs.dims}
    check_that(known, "simulation", need, f"has {', '.join(map(str, runs))}")
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
        check_alike("reshuffle", *(bool(one.attrs.get("reshuffle", False)) for one in (prediction, runs)))
    check_alike("optimizer", optimizer_of(prediction), optimizer_of(runs))
    return problem, runs


def predict_reused(
    problem: Problem, options: EngineOptions, learning_rate: float, steps: int, progress: bool | None
) -> xr.Dataset:
    """Return the prediction for runs with such options."""
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


def runs_of(prediction: xr.Dataset) -> dict[str, Any]:
    """Return the arguments of `simulate` for runs of a prediction; ValueError is raised where it has none."""
    theory = prediction.attrs
    rate, samples, batches = theory["learning_rate"], float(theory["samples"]), int(theory["batches_per_epoch"])
    check_that(not isinstance(rate, str), "prediction", "have one learning rate, a number", f"has {rate}")
    size = round(samples / batches)
    whole, need = abs(size * batches - samples) < RATE_TOLERANCE * samples, "have samples of which every batch has as"
    check_that(whole, "prediction", f"{need} many", f"has {samples:g} in {batches}")
    return {
        "learning_rate": float(rate),
        "batch_size": size,
        "steps": int(theory["steps"]),
        "training_samples": size * batches,
        "reshuffle": bool(theory.get("reshuffle", False)),
    }


def reused_verdict(prediction: xr.Dataset, simulation: object, rate: float) -> xr.DataTree:
    """Test runs on samples that are used again against their theory."""
    problem, runs = _checked(prediction, simulation)
    usable, known = curves.paired_runs([runs]).size, np.isfinite(prediction["loss"].values)
    end = min(float(runs.attrs["end_time"]), float(prediction["time"].values[known].max(initial=0.0)))
    enough = usable >= FEWEST_RUNS
    found = curves.curves_over_time(problem, prediction, [runs]) if enough else []
    starts = tests_of_starts(problem, prediction, runs) if enough else []
    tests, p_value = curves.assess_curves(found, rate, others=len(starts))
    count = len(starts) + sum(test.places.size for test in tests)
    p_value = min([p_value, *(count * start.p for start in starts)])
    level = rate / max(count, 1)
    fresh = _power_against_fresh(problem, prediction, tests, level)
    return verdict_tree(
        _sentences(runs, tests, starts, fresh, p_value, rate, level, usable, end),
        {**curves.values_of(tests), "quantity_fresh_power": fresh, "p_value": p_value},
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
    """Return the probability that each curve refutes the theory of fresh samples in every step, NaN if not asked."""
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
    values = {one[:2]: one.values for one in curves.quantities_of(problem, fresh)}
    found = []
    for test, wanted in zip(tests, asked, strict=True):
        curve = test.curve
        other = interpolated(fresh["time"].values, values[curve.kind, curve.label], curve.times)[np.newaxis]
        errors = curves.error_of(curve, curves.scatter_of(curve), curve.runs.shape[0])
        power = curves.power_of(curve._replace(dilated=other), test.places, *errors, level)
        found.append(power if wanted else np.nan)
    return np.array(found)


def _sentences(
    runs: xr.Dataset,
    tests: list[CurveTest],
    starts: Sequence[PathTest],
    fresh: Array,
    p_value: float,
    rate: float,
    level: float,
    usable: int,
    until: float,
) -> Sentences:
    """Return what the tests say, each at a `level`."""
    moving, end = [test for test in tests if test.curve.moves], f"(global p = {p_value:.2g}"
    difference, excuse, agreement = "", "", ""
    if wrong := [start for start in starts if start.p < level]:
        off = min(wrong, key=lambda start: start.p)
        difference = f"The {off.what} is {side_of(off.score)} than predicted, z = {off.score:.1f} {end} < {rate:g})."
    elif p_value < rate:
        refuting = [test for test in tests if test.p < level]
        sure = [test for test in refuting if not test.curve.scatters]
        difference = curves.difference_of(sure or refuting, f"{end} < {rate:g}).")
        dimension, cause = Problem.from_dataset(runs).dimension, ""
        if not sure:
            cause = f"runs scatter by over {100 * LARGEST_SCATTER:.0f} % of the range in {curves.named(refuting)}"
        elif dimension < LEAST_DIMENSION:
            cause = f"{dimension} is less than the {LEAST_DIMENSION} from which on the band is known to hold"
        excuse = f"That may be the effect of the finite dimension, since {cause}: use a larger one." if cause else ""
    lacking = too_few(usable) or _unseen(runs, moving, fresh)
    if not lacking:
        widest = max(test.allowance / test.curve.range for test in moving)
        left = any(test.leaves for test in tests) or any(start.score for start in starts)
        shown = [test for test, power in zip(tests, fresh, strict=True) if power >= POWER]
        agreement = (
            f"No tested curve leaves its band around theory{significantly(left)}, of at most {100 * widest:.2g} % of "
            f"its range where theory moves it, up to time {until:.3g} {end}); an error of "
            f"{100 * VISIBLE_ERROR:.0f} % in time would have been seen in {curves.named(moving)}, and fresh samples "
            f"instead of those that are used again in {curves.named(shown)}."
        )
    still = [test for test in tests if not test.curve.moves]
    remarks = [f"Theory hardly moves {curves.named(still)}."] if still else []
    return Sentences(difference, lacking, agreement, excuse=excuse, remarks=remarks)


def _unseen(runs: xr.Dataset, moving: Sequence[CurveTest], fresh: Array) -> str:
    """Return which error could have gone unseen, and why; empty if none."""
    more = "more seeds or a larger dimension"
    early = f"{stopped}. " if (stopped := unfinished("The runs", runs)) else ""
    if not moving:
        return f"{early}Nothing that theory predicts moves by the end of the runs: use more steps."
    if unresolved := [test for test in moving if not test.power >= POWER]:
        error = f"An error of {100 * VISIBLE_ERROR:.0f} % in time could have gone unseen in {curves.named(unresolved)}"
        return f"{early}{error}: use {more}."
    if not np.nanmax(fresh, initial=0.0) >= POWER:
        seen = "Fresh samples instead of those that are used again could have gone unseen"
        return f"{early}{seen}: use more passes, {more}."
    return ""
