"""Evidence of estimates: the squared overlap of estimates of one direction against its law.

The mean is to lie within the error of a law that is a limit at a finite d, measured at d = 48 to 600, from three times
the threshold on (`docs/verdict_curves.md`). Laws of single samples are held against estimates from these very samples.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from scipy import special

from dynamics.problem import Problem
from dynamics.problem.checks import require
from hermite.arrays import Array
from hermite.text.messages import with_error
from sgd_check.verdicts.evidence import Decision, judged
from sgd_check.verdicts.verdict import (
    FEWEST_RUNS,
    check_alike,
    check_dataset,
    check_link,
    reach_in_errors,
    side_of,
    verdict_tree,
)

THEORY = "law of recovery"
ANSWER = "recovery"
#: Degree -> (c, e) of Δ = c (1 − q)/d^e.
DEVIATION = {1: (3.0, 1.0), 2: (1.5, 0.5), 3: (3.0, 0.5), 4: (3.0, 0.5)}
#: Least number of thresholds for which this holds, and the least law of single samples that is tested.
LEAST_THRESHOLDS, LEAST_LAW = 3.0, 0.2
#: "Agree" is said only where a law that is off by this much would have been seen.
VISIBLE_DEVIATION = 0.15


def _checked(prediction: xr.Dataset, estimates: object) -> tuple[Problem, xr.Dataset]:
    """Return the problem of the estimates, and the estimates; ValueError if they answer another question."""
    estimated = check_dataset("simulation", estimates)
    require(
        "overlap_squared" in estimated,
        "Argument `simulation` must be a result of `sgd_check.estimate_direction` for a law of recovery, but has no "
        f"`overlap_squared`, only {', '.join(map(str, estimated))}.",
    )
    ours, theirs = Problem.from_dataset(estimated), Problem.from_dataset(prediction)
    check_alike("dimension", theirs.dimension, ours.dimension)
    check_alike("label noise", theirs.label_noise, ours.label_noise)
    for name in ("degree", "transform"):
        check_alike(name, prediction.attrs[name], estimated.attrs[name])
    check_link("link", theirs.teacher_link, ours.teacher_link)
    return ours, estimated


def _law(prediction: xr.Dataset, estimates: xr.Dataset) -> Array:
    """Return the squared overlaps of the law for the seeds of the estimates, (seeds,), at their number of samples."""
    n, counts = int(estimates.attrs["samples"]), np.atleast_1d(prediction["samples"].values)
    require(
        n in counts,
        f"Argument `prediction` must have the {n} samples of the simulation, but has {counts.tolist()}.",
    )
    law = prediction["predicted_overlap_squared"]
    at_n = law.isel(samples=int(np.argmax(counts == n))) if "samples" in law.dims else law
    seeds = estimates["seed"].values
    if "seed" in law.dims:
        missing = np.setdiff1d(seeds, prediction["seed"].values)[:1]
        require(
            not missing.size,
            "Argument `prediction` must have the seeds of the simulation, but lacks seed "
            f"{', '.join(map(str, missing))}.",
        )
        return np.asarray(at_n.sel(seed=seeds).values, dtype=np.float64)
    require(
        "draws" not in prediction.attrs,
        "Argument `prediction` must be made with `seeds` of the simulation where laws are those of single samples, but "
        "is a mean over others.",
    )
    return np.full(seeds.size, float(at_n))


def estimate_verdict(prediction: xr.Dataset, estimates: object, rate: float) -> xr.DataTree:
    """Return the verdict on estimates of a direction against the law of recovery, with all its evidence.

    `prediction` is a law of recovery, `estimates` a result of `sgd_check.estimate_direction` for the same problem and
    number of samples (ValueError otherwise), `rate` the rate of false alarms.

    The mean difference of measured and predicted squared overlaps over the seeds may be Δ = c (1 − q)/d^e, with q the
    predicted overlap and c and e from `DEVIATION`; what exceeds Δ is tested by Student's t. The verdict is "undecided"
    near the threshold, where d deviates by more: below `LEAST_THRESHOLDS` times the threshold, or, for laws of single
    samples of degree 2, at a law below `LEAST_LAW`. Else it is "disagree" if the p-value is below `rate`, "agree" if a
    law off by `VISIBLE_DEVIATION` would have been seen, and "undecided" if not, as with fewer than `FEWEST_RUNS` usable
    runs.

    The tree holds the row of evidence, the sentence of the verdict, both overlaps, Δ, standard error, z and p.
    """
    problem, estimated = _checked(prediction, estimates)
    measured, law = estimated["overlap_squared"].values, _law(prediction, estimated)
    difference = (measured - law)[np.isfinite(measured)]
    runs, degree = difference.size, int(prediction.attrs["degree"])
    q, mean, error, z, p, visible = np.full(6, np.nan).tolist()
    if runs:
        q, mean = float(np.mean(law[np.isfinite(measured)])), float(np.mean(difference))
    if runs > 1:
        error = float(np.std(difference, ddof=1) / np.sqrt(runs))
    scale, power = DEVIATION[degree]
    allowed = scale * (1.0 - q) / problem.dimension**power
    if runs >= FEWEST_RUNS and error > 0.0:
        z = float(np.sign(mean) * max(0.0, abs(mean) - allowed) / error + 0.0)  # no negative zero
        p = min(1.0, 2.0 * float(special.stdtr(runs - 1, -abs(z))))
        visible = float(allowed + reach_in_errors(runs - 1, rate) * error)
    samples, threshold = int(estimated.attrs["samples"]), float(prediction.attrs.get("threshold_samples", np.nan))
    near, cause = "", ""
    if samples < LEAST_THRESHOLDS * threshold:
        near = f"{samples} samples are {samples / threshold:.2g} times the threshold {threshold:.4g}"
    elif np.isnan(threshold) and degree == 2 and not q >= LEAST_LAW:
        near = f"the law of these samples, {q:.2g}, is below {LEAST_LAW:g}"
    if near:
        cause = f"Not tested: {near}; from {LEAST_THRESHOLDS:g} times the threshold on d deviates by little."
    elif np.isnan(p):
        cause = f"Only {runs} samples are usable; the test needs {FEWEST_RUNS} that differ."
    overlaps = f"Mean squared overlap {with_error(q + mean, error)}, law {with_error(q, allowed)}"
    off = f"{overlaps}; a law that is off by"
    row = judged(
        rate,
        quantity="squared overlap",
        value=mean,
        low=-allowed,
        high=allowed,
        z=z,
        p_value=p,
        visible_error=visible,
        runs=runs,
        required=True,
        seen=not cause and visible <= VISIBLE_DEVIATION,
        cause=cause or f"{off} {VISIBLE_DEVIATION:g} could have gone unseen: use more seeds or a larger d.",
        excuse=cause,
    )
    words = {
        Decision.AGREE: f"{off} {visible:.2g} would have been seen.",
        Decision.DISAGREE: f"{overlaps}: {side_of(z)} than allowed, z = {z:.1f} (p = {p:.2g} < {rate:g}).",
        Decision.UNDECIDED: row.cause,
    }
    return verdict_tree(
        [row],
        [words[row.decision]],
        {
            "mean_overlap_squared": q + mean,
            "predicted_overlap_squared": q,
            "allowed_deviation": allowed,
            "standard_error": [error],
            "z_score": [z],
            "visible_error": [visible],
            "p_value": p,
        },
        problem=problem,
        prediction=prediction,
        simulations={"/simulation": estimated},
        rate=rate,
        theory=THEORY,
        usable=runs,
        attributes={},
        title="Estimates of one direction against their law",
        coords={},
    )
