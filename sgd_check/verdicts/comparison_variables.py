"""The variables of /comparison that do not depend on how a verdict is found: by direction, and over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sgd_check.verdicts.alignment import of_sound_runs, sound_runs
from sgd_check.verdicts.path_tests import path_p_value
from sgd_check.verdicts.survival import expected_survival, kaplan_meier

if TYPE_CHECKING:
    import xarray as xr

    from hermite.arrays import Array
    from sgd_check.verdicts.judgement import EventEvidence, Evidence


def emergence_ratio(simulation: xr.Dataset, time: Array) -> Array:
    """Return T_SGD/T_p, shape (seeds, P), NaN where there is none."""
    measured = np.asarray(simulation["emergence_time"].values, dtype=np.float64)
    return np.where(sound_runs(simulation)[:, None], measured, np.nan) / time


def log_scatter(times: Array) -> Array:
    """Return the standard deviation of ln T over the runs, shape (P,), NaN where a run has none."""
    if times.shape[0] < 2:
        return np.full(times.shape[1], np.nan)
    return np.asarray(np.std(np.log(np.maximum(times, 1e-300)), axis=0, ddof=1))


def variables_by_direction(simulation: xr.Dataset, evidence: Evidence) -> dict[str, Any]:
    """Return the variables with one value, or one per run, for every direction."""

    def column(name: str) -> Array:
        return np.array([np.nan if test is None else getattr(test, name) for test in evidence.tests], dtype=np.float64)

    def power(side: str) -> Array:
        sides = [getattr(test, side, None) for test in evidence.tests]
        return np.array([np.nan if one is None else one.power for one in sides])

    sound, expected, p_values = sound_runs(simulation), evidence.expected, column("p")
    for one in evidence.absences:
        p_values[one.direction] = one.p
    learned = evidence.learned
    of_learning = {} if learned is None else _of_learning(learned)
    return {
        "emergence_ratio": evidence.ratio,
        "emergence_time": expected.time,
        "expected_delay": expected.delay,
        "expected_lateness": expected.lateness,
        "expected_scatter": expected.scatter,
        "band_low": column("low"),
        "band_high": column("high"),
        "mean_log_ratio": column("mean"),
        "standard_error": column("standard_error"),
        "log_scatter": log_scatter(of_sound_runs(simulation, "emergence_time")),
        "z_score": column("z"),
        "direction_p_value": p_values,
        **of_learning,
        "early_power": power("early"),
        "late_power": power("late"),
        "visible_error": column("visible"),
        "censored_count": np.sum(simulation["censored"].values[sound] != 0, axis=0),
        "p_value": evidence.p_value,
        "loss_p_value": np.nan if evidence.loss is None else evidence.loss.p,
        "path_p_value": path_p_value(list(evidence.path)) if evidence.path else np.nan,
    }


def _of_learning(learned: EventEvidence) -> dict[str, Any]:
    """Return what the tests of learned times gave, by direction."""
    tests = learned.tests
    return {
        "learned_z_score": np.array([np.nan if test is None else test.z for test in tests]),
        "learned_p_value": learned.p_values,
        "learned_visible_error": np.array([np.nan if test is None else test.visible for test in tests]),
    }


def variables_over_time(prediction: xr.Dataset, simulation: xr.Dataset, evidence: Evidence) -> dict[str, Any]:
    """Return survival curves and losses at the times of the simulation."""
    times, end = simulation["time"].values, float(simulation.attrs["end_time"])
    curves = [kaplan_meier(sample, end, times) for sample in of_sound_runs(simulation, "emergence_time").T]
    expected = evidence.expected
    if evidence.theory == "sample":
        its_end = float(prediction.attrs["end_time"])
        predicted = [
            kaplan_meier(sample, its_end, times).value for sample in of_sound_runs(prediction, "emergence_time").T
        ]
    else:
        laws = zip(expected.time, expected.lateness, expected.scatter, strict=True)
        predicted = [expected_survival(*law, times) for law in laws]
    values: dict[str, Any] = {
        "survival": np.array([curve.value for curve in curves]),
        "survival_low": np.array([curve.low for curve in curves]),
        "survival_high": np.array([curve.high for curve in curves]),
        "predicted_survival": np.array(predicted),
    }
    if evidence.loss is not None:
        values |= {
            "mean_loss": evidence.loss.mean,
            "loss_standard_error": evidence.loss.standard_error,
            "expected_loss": evidence.loss.expected,
            "expected_loss_low": evidence.loss.low,
            "expected_loss_high": evidence.loss.high,
            "loss_compared": evidence.loss.compared.astype(np.int8),
            "loss_z": evidence.loss.z,
        }
    return values
