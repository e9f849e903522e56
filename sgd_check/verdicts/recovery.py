r"""Estimates of one direction against the law of their overlap; `sgd_check.compare` calls it for `predict_recovery`.

The null hypothesis is that the mean of the squared overlap over samples lies within Δ of the law,

.. math:: |E\langle\hat\theta,\theta\rangle^2 - q| \le \Delta, \qquad
   \Delta = \frac{3(1-q)}{d}\ (k = 1), \quad \frac{3(1-q)}{2\sqrt d}\ (k = 2), \quad \frac{3(1-q)}{\sqrt d}\ (k = 3, 4),

what d leaves of a law that is a limit: at least one and a half times the largest deviation measured from three times
the threshold on, at d = 48 to 600. Nearer to the threshold deviations are larger, and nothing is tested. Laws of single
samples are held against estimates from these very samples, by the mean of the differences. The test is Student's t of
that mean, at both edges with half of the rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import stats

from dynamics.problem import Problem
from hermite.text.rounding import with_error
from sgd_check.verdicts.alignment import check_dataset, check_link, refuse
from sgd_check.verdicts.direction import FEWEST_RUNS, POWER

if TYPE_CHECKING:
    import xarray as xr

    from hermite.arrays import Array

THEORY = "law of recovery"
ANSWER = "recovery"
#: Degree -> (c, e) of Δ = c (1 − q)/d^e.
DEVIATION = {1: (3.0, 1.0), 2: (1.5, 0.5), 3: (3.0, 0.5), 4: (3.0, 0.5)}
#: Thresholds from which on this holds, and the least law of single samples that is tested.
LEAST_THRESHOLDS, LEAST_LAW = 3.0, 0.2
#: "Agree" is said only where a law that is off by this much would have been seen.
VISIBLE_DEVIATION = 0.15


class LawTest(NamedTuple):
    """Mean and law of the squared overlap, Δ, standard error, z beyond the edge of the band, p, and what would be seen.

    The last three are NaN where there is no test.
    """

    mean: float
    law: float
    allowed: float
    error: float
    z: float
    p: float
    visible: float


def compare_with_law(prediction: xr.Dataset, estimates: object, *, false_alarm_rate: float) -> xr.DataTree:
    """Return the tree of `sgd_check.compare` for estimates of a direction against the law of recovery; see there."""
    import xarray as xr

    from dynamics.runs import make_dataset

    problem, estimated = _checked(prediction, estimates)
    measured = estimated["overlap_squared"].values
    law = _law(prediction, estimated)
    known = np.isfinite(measured)
    test = _tested(measured[known], law[known], problem.dimension, int(prediction.attrs["degree"]), false_alarm_rate)
    near = _near_the_threshold(prediction, estimated, test.law)
    values = {
        "mean_overlap_squared": test.mean,
        "predicted_overlap_squared": test.law,
        "allowed_deviation": test.allowed,
    }
    tests = {"standard_error": [test.error], "z_score": [test.z], "visible_error": [test.visible], "p_value": test.p}
    comparison = make_dataset(
        {**values, **tests},
        problem=problem,
        title="Estimates of one direction against their law",
        coords={},
        solver={"answer": "comparison", "false_alarm_rate": false_alarm_rate},
        attributes={
            "answer": "comparison",
            "prediction": ANSWER,
            "theory": THEORY,
            "false_alarm_rate": false_alarm_rate,
            "usable_runs": int(known.sum()),
            "blown_up_count": 0,
            **_judged(test, int(known.sum()), near, false_alarm_rate),
        },
    )
    return xr.DataTree.from_dict({"/prediction": prediction, "/simulation": estimated, "/comparison": comparison})


def _checked(prediction: xr.Dataset, estimates: object) -> tuple[Problem, xr.Dataset]:
    """Return the problem that both are about, and the estimates, or say why they cannot be compared."""
    estimated = check_dataset("simulation", estimates)
    if "overlap_squared" not in estimated:
        msg = (
            "Argument `simulation` must be a result of `sgd_check.estimate_direction` for a law of recovery, but has "
            f"no `overlap_squared`, only {', '.join(map(str, estimated))}."
        )
        raise ValueError(msg)
    ours, theirs = Problem.from_dataset(estimated), Problem.from_dataset(prediction)
    facts = {"dimension": (theirs.dimension, ours.dimension), "label noise": (theirs.label_noise, ours.label_noise)}
    facts |= {name: (prediction.attrs[name], estimated.attrs[name]) for name in ("degree", "transform")}
    for what, (first, second) in facts.items():
        if first != second:
            refuse(what, first, second)
    check_link("link", theirs.teacher_link, ours.teacher_link)
    return ours, estimated


def _law(prediction: xr.Dataset, estimates: xr.Dataset) -> Array:
    """Return the law for every seed of the estimates, at their number of samples."""
    n, counts = int(estimates.attrs["samples"]), np.atleast_1d(prediction["samples"].values)
    if n not in counts:
        msg = f"Argument `prediction` must have the {n} samples of the simulation, but has {counts.tolist()}."
        raise ValueError(msg)
    law = prediction["predicted_overlap_squared"]
    at_n = law.isel(samples=int(np.argmax(counts == n))) if "samples" in law.dims else law
    seeds = estimates["seed"].values
    if "seed" in law.dims:
        missing = np.setdiff1d(seeds, prediction["seed"].values)
        if missing.size:
            msg = f"Argument `prediction` must have the seeds of the simulation, but lacks seed {missing[0]}."
            raise ValueError(msg)
        return np.asarray(at_n.sel(seed=seeds).values, dtype=np.float64)
    if "draws" in prediction.attrs:
        msg = (
            "Argument `prediction` must be made with `seeds` of the simulation where laws are those of single samples, "
            "but is a mean over others."
        )
        raise ValueError(msg)
    return np.full(seeds.size, float(at_n))


def _tested(measured: Array, law: Array, d: int, degree: int, rate: float) -> LawTest:
    """Return the test of the mean difference of measured squared overlaps and their law."""
    runs, q = measured.size, float(np.mean(law)) if law.size else np.nan
    scale, power = DEVIATION[degree]
    allowed = scale * (1.0 - q) / d**power
    difference = measured - law
    mean = float(np.mean(difference)) if runs else np.nan
    error = float(np.std(difference, ddof=1) / np.sqrt(runs)) if runs > 1 else np.nan
    if runs < FEWEST_RUNS or not error > 0.0:
        return LawTest(q + mean, q, allowed, error, np.nan, np.nan, np.nan)
    z = np.sign(mean) * max(0.0, abs(mean) - allowed) / error + 0.0  # no negative zero
    reach = stats.t.isf(rate / 2, runs - 1) + stats.t.ppf(POWER, runs - 1)
    p = min(1.0, 2.0 * float(stats.t.sf(abs(z), runs - 1)))
    return LawTest(q + mean, q, allowed, error, float(z), p, float(allowed + reach * error))


def _near_the_threshold(prediction: xr.Dataset, estimates: xr.Dataset, law: float) -> str:
    """Return why the law says too little about these samples, "" if it does not."""
    threshold = prediction.attrs.get("threshold_samples")
    if threshold is None:
        small = int(prediction.attrs["degree"]) == 2 and not law >= LEAST_LAW
        return f"the law of these samples, {law:.2g}, is below {LEAST_LAW:g}" if small else ""
    n = int(estimates.attrs["samples"])
    if n >= LEAST_THRESHOLDS * float(threshold):
        return ""
    return f"{n} samples are {n / float(threshold):.2g} times the threshold {float(threshold):.4g}"


def _judged(test: LawTest, runs: int, near: str, rate: float) -> dict[str, Any]:
    """Return the verdict and its reasons."""
    found = f"Mean squared overlap {with_error(test.mean, test.error)}, law {with_error(test.law, test.allowed)}"
    if near:
        verdict = "undecided"
        reason = f"Not tested: {near}; from {LEAST_THRESHOLDS:g} times the threshold on d deviates by little."
    elif np.isnan(test.p):
        verdict, reason = "undecided", f"Only {runs} samples are usable; the test needs {FEWEST_RUNS} that differ."
    elif test.p < rate:
        side = "larger" if test.z > 0 else "smaller"
        verdict, reason = "disagree", f"{found}: {side} than allowed, z = {test.z:.1f} (p = {test.p:.2g} < {rate:g})."
    elif test.visible > VISIBLE_DEVIATION:
        verdict = "undecided"
        reason = (
            f"{found}; a law that is off by {VISIBLE_DEVIATION:g} could have gone unseen: use more seeds or a larger d."
        )
    else:
        verdict, reason = "agree", f"{found}; a law that is off by {test.visible:.2g} would have been seen."
    return {"verdict": verdict, "reasons": reason}
