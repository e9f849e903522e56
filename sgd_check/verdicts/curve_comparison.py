"""The tree of a comparison that is decided by curves: `compare` calls it for information exponents up to 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sgd_check.verdicts.comparison_variables import emergence_ratio, variables_by_direction, variables_over_time
from sgd_check.verdicts.curve_sources import paired_runs, without_step
from sgd_check.verdicts.curve_verdict import curve_evidence, curve_judgement, curve_variables
from sgd_check.verdicts.direction import DirectionTest
from sgd_check.verdicts.expectation import Expectation, has_step
from sgd_check.verdicts.judgement import Evidence
from sgd_check.verdicts.loss_band import LossBand
from sgd_check.verdicts.saved_values import interpolated
from sgd_check.verdicts.sides import Side

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.problem import Problem
    from sgd_check.verdicts.curve_tests import CurveTest
    from sgd_check.verdicts.curve_verdict import CurveEvidence


def compare_curves(
    problem: Problem, prediction: xr.Dataset, simulations: Sequence[xr.Dataset], rate: float
) -> xr.DataTree:
    """Return the tree of `compare` for one simulation, or for two, of which the one of smaller steps is /finer."""
    import xarray as xr

    from dynamics.runs import make_dataset

    found, first = curve_evidence(problem, prediction, simulations, rate), simulations[0]
    evidence = _as_evidence(prediction, simulations, found)
    variables, coords = curve_variables(found)
    comparison = make_dataset(
        {**variables_by_direction(first, evidence), **variables_over_time(prediction, first, evidence), **variables},
        problem=problem,
        title="Online SGD against prediction",
        coords={"seed": first["seed"].values, "time": first["time"].values, **coords},
        solver={"answer": "comparison", "false_alarm_rate": rate},
        attributes={
            "answer": "comparison",
            "prediction": str(prediction.attrs.get("answer", "unknown")),
            **curve_judgement(prediction, simulations, found, rate),
        },
    )
    parts = dict(zip(("/simulation", "/finer"), simulations, strict=False))
    return xr.DataTree.from_dict({"/prediction": prediction, **parts, "/comparison": comparison})


def _as_evidence(prediction: xr.Dataset, simulations: Sequence[xr.Dataset], found: CurveEvidence) -> Evidence:
    """Return the evidence in the form in which directions and loss are reported for any theory."""
    time = np.asarray(prediction["emergence_time"].values, dtype=np.float64)
    time = np.where(np.isfinite(time) & (time > 0), time, np.nan)
    unknown, unlimited = np.full(time.size, np.nan), np.full(time.size, np.inf)
    by_label = {one.curve.label: one for one in found.times if one.curve.kind.startswith("emergence")}
    censored = np.sum(simulations[0]["censored"].values[paired_runs(simulations)] != 0, axis=0)
    tests = [
        _as_direction(by_label[label], found.usable, int(count)) if label in by_label else None
        for label, count in zip(map(str, prediction["direction"].values.tolist()), censored, strict=True)
    ]
    return Evidence(
        theory=found.theory,
        expected=Expectation(
            time, unlimited, unknown, unknown, unknown, (), unlimited, np.zeros(time.size, dtype=bool)
        ),
        ratio=emergence_ratio(simulations[0], time),
        tests=tests,
        awaited=np.array([test is not None for test in tests]),
        p_value=found.p_value,
        loss=_as_band(prediction, simulations, found),
    )


def _as_direction(test: CurveTest, runs: int, censored: int) -> DirectionTest:
    """Return the test of one time of emergence as that of a direction."""
    mean, score = float(test.mean[0] - test.predicted[0]), float(test.score[0])
    early, late = (Side(test.p / 2 if sign * score > 0 else 1.0, test.power) for sign in (-1.0, 1.0))
    return DirectionTest(runs, censored, mean, test.error, -test.allowance, test.allowance, early, late, score, test.p)


def _as_band(prediction: xr.Dataset, simulations: Sequence[xr.Dataset], found: CurveEvidence) -> LossBand | None:
    """Return the loss without step size over all times, its band, and its scores where it was tested."""
    test = next((one for one in found.curves if one.curve.kind == "loss"), None)
    if test is None:
        return None
    times, pairs = simulations[0]["time"].values, paired_runs(simulations)
    runs: list[Any] = [
        interpolated(part["time"].values, np.asarray(part["loss"].values)[pairs], times) for part in simulations
    ]
    values, _ = without_step(runs, simulations, stepped=has_step(prediction))
    expected = interpolated(prediction["time"].values, np.asarray(prediction["loss"].values), times)
    at = np.searchsorted(times, test.curve.times[test.looks])
    z, compared = np.full(times.size, np.nan), np.zeros(times.size, dtype=bool)
    z[at], compared[at] = test.score, True
    error = values.std(axis=0, ddof=1) / np.sqrt(values.shape[0])
    return LossBand(
        values.mean(axis=0), error, expected, expected - test.allowance, expected + test.allowance, z, compared, test.p
    )
