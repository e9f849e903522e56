r"""Evidence of estimates: the squared overlap of estimates of one direction against its law.

The null hypothesis is that the mean of the squared overlap over samples lies within Δ of the law,

.. math:: |E\langle\hat\theta,\theta\rangle^2 - q| \le \Delta, \qquad
   \Delta = \frac{3(1-q)}{d}\ (k = 1), \quad \frac{3(1-q)}{2\sqrt d}\ (k = 2), \quad \frac{3(1-q)}{\sqrt d}\ (k = 3, 4),

the error of a law that is a limit at a finite d: at least one and a half times the largest deviation measured from
three times the threshold on, at d = 48 to 600. Nearer to the threshold deviations are larger, and nothing is tested.
Laws of single samples are held against estimates from these very samples, by the mean of the differences. The test is
Student's t of that mean, at both edges with half of the rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from dynamics.problem import Problem
from hermite.text.messages import with_error
from sgd_check.verdicts.alignment import check_dataset, check_link, refuse
from sgd_check.verdicts.verdict import FEWEST_RUNS, Evidence, reach_factor, side_of

if TYPE_CHECKING:
    import xarray as xr

    from hermite.arrays import Array

THEORY = "law of recovery"
ANSWER = "recovery"
#: Degree -> (c, e) of Δ = c (1 − q)/d^e.
DEVIATION = {1: (3.0, 1.0), 2: (1.5, 0.5), 3: (3.0, 0.5), 4: (3.0, 0.5)}
#: Least number of thresholds for which this holds, and the least law of single samples that is tested.
LEAST_THRESHOLDS, LEAST_LAW = 3.0, 0.2
#: "Agree" is said only where a law that is off by this much would have been seen.
VISIBLE_DEVIATION = 0.15


class LawTest(NamedTuple):
    """Mean and law of the squared overlap, Δ, standard error, z beyond the edge of the band, p, least visible error.

    The last three are NaN without a test.
    """

    mean: float
    law: float
    allowed: float
    error: float
    z: float
    p: float
    visible: float


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
    p = min(1.0, 2.0 * float(special.stdtr(runs - 1, -abs(z))))
    reach = reach_factor(runs, rate) * np.sqrt(runs) * error
    return LawTest(q + mean, q, allowed, error, float(z), p, float(allowed + reach))


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


@dataclass(frozen=True, kw_only=True)
class EstimateEvidence(Evidence):
    """The test of a mean squared overlap; `near` says why the law holds too little of these samples, empty if not."""

    title = "Estimates of one direction against their law"

    test: LawTest
    near: str

    @property
    def _found(self) -> str:
        mean, law = with_error(self.test.mean, self.test.error), with_error(self.test.law, self.test.allowed)
        return f"Mean squared overlap {mean}, law {law}"

    def untested(self) -> str:
        """Return why there is no test; empty if there is one."""
        if self.near:
            return f"Not tested: {self.near}; from {LEAST_THRESHOLDS:g} times the threshold on d deviates by little."
        if np.isnan(self.p_value):
            return f"Only {self.usable} samples are usable; the test needs {FEWEST_RUNS} that differ."
        return ""

    def difference(self) -> str:
        """Return that the mean lies beyond the allowed deviation from the law."""
        end = f"z = {self.test.z:.1f} (p = {self.p_value:.2g} < {self.rate:g})."
        return f"{self._found}: {side_of(self.test.z)} than allowed, {end}"

    def lacking(self) -> str:
        """Return that an error could have gone unseen; empty if it would have been seen."""
        if self.test.visible <= VISIBLE_DEVIATION:
            return ""
        advice = "use more seeds or a larger d"
        return f"{self._found}; a law that is off by {VISIBLE_DEVIATION:g} could have gone unseen: {advice}."

    def agreement(self) -> str:
        """Return mean and law, and which error would have been seen."""
        return f"{self._found}; a law that is off by {self.test.visible:.2g} would have been seen."

    def variables(self) -> dict[str, Any]:
        """Return the numbers of the test."""
        test = self.test
        return {
            "mean_overlap_squared": test.mean,
            "predicted_overlap_squared": test.law,
            "allowed_deviation": test.allowed,
            "standard_error": [test.error],
            "z_score": [test.z],
            "visible_error": [test.visible],
            "p_value": test.p,
        }


def estimate_evidence(prediction: xr.Dataset, estimates: object, rate: float) -> EstimateEvidence:
    """Test estimates of a direction against the law of recovery."""
    problem, estimated = _checked(prediction, estimates)
    measured, law = estimated["overlap_squared"].values, _law(prediction, estimated)
    known = np.isfinite(measured)
    test = _tested(measured[known], law[known], problem.dimension, int(prediction.attrs["degree"]), rate)
    return EstimateEvidence(
        problem=problem,
        prediction=prediction,
        simulations=[estimated],
        rate=rate,
        theory=THEORY,
        p_value=test.p,
        usable=int(known.sum()),
        blown_up=0,
        test=test,
        near=_near_the_threshold(prediction, estimated, test.law),
    )
