"""The verdict by curves, as `compare` gives it for information exponents of 1 and 2: evidence, one word, and reasons.

Where neurons do not choose directions one by one, times of emergence are times of single neurons that mean little: the
loss and the learned masses are tested over time, and times beside them (`curve_tests` describes the test).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgd_check.verdicts.alignment import unfinished
from sgd_check.verdicts.curve_sources import curves_over_time, paired_runs, times_as_curves
from sgd_check.verdicts.curve_tests import LARGEST_EFFECT, LARGEST_SCATTER, MOST_LOOKS, assess_curves
from sgd_check.verdicts.direction import FEWEST_RUNS, VISIBLE_ERROR
from sgd_check.verdicts.expectation import has_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.problem import Problem
    from hermite.arrays import Array
    from sgd_check.verdicts.curve_tests import CurveTest


class CurveEvidence(NamedTuple):
    """What the tests of curves gave: `curves` decide on agreement, `times` can only refute.

    `refutable` says whether the effect of the step size is allowed for, so that a difference speaks against theory.
    """

    theory: str
    curves: list[CurveTest]
    times: list[CurveTest]
    p_value: float
    usable: int
    refutable: bool

    @property
    def tests(self) -> list[CurveTest]:
        """All of them."""
        return [*self.curves, *self.times]


def curve_evidence(
    problem: Problem, prediction: xr.Dataset, simulations: Sequence[xr.Dataset], rate: float
) -> CurveEvidence:
    """Test all curves and times that prediction and runs have in common, together at a rate of false alarms."""
    usable, stepped = paired_runs(simulations).size, has_step(prediction)
    curves, times = [], []
    if usable >= FEWEST_RUNS:
        curves = curves_over_time(problem, prediction, simulations)
        times = times_as_curves(problem, prediction, simulations)
    tests, p_value = assess_curves([*curves, *times], rate)
    return CurveEvidence(
        theory="finite step" if stepped else "flow",
        curves=tests[: len(curves)],
        times=tests[len(curves) :],
        p_value=p_value,
        usable=usable,
        refutable=stepped or len(simulations) > 1,
    )


def curve_judgement(
    prediction: xr.Dataset, simulations: Sequence[xr.Dataset], evidence: CurveEvidence, rate: float
) -> dict[str, Any]:
    """Return the verdict, its reasons and the counts as attributes."""
    verdict, reason = _verdict(prediction, simulations, evidence, rate)
    blown_up = max(int(np.sum(dataset["blown_up"].values != 0)) for dataset in simulations)
    still = [test for test in evidence.curves if not test.curve.moves]
    reasons = [reason] + ([f"By the end theory hardly moves {_named(still)}."] if still else [])
    reasons += [f"Runs left out because they blew up: {blown_up}."] if blown_up else []
    loss = next((test for test in evidence.curves if test.curve.kind == "loss"), None)
    said = (
        "Loss: not compared." if loss is None else f"Loss: part of the verdict, p = {loss.p:.2g} for each of its times."
    )
    return {
        "verdict": verdict,
        "false_alarm_rate": rate,
        "reasons": " ".join(reasons),
        "theory": evidence.theory,
        "decided_by": "curves",
        "usable_runs": evidence.usable,
        "blown_up_count": blown_up,
        "tested_directions": sum(test.curve.kind.endswith("direction") for test in evidence.curves),
        "loss_in_verdict": loss is not None,
        "loss_compared_times": 0 if loss is None else loss.looks.size,
        "loss_statement": said,
    }


def curve_variables(evidence: CurveEvidence) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the variables of all tests, and their coordinates; of times the times, whose errors are relative."""
    tests = evidence.tests

    def table(values: list[Array]) -> Array:
        found = np.full((len(tests), MOST_LOOKS), np.nan)
        for row, part in zip(found, values, strict=True):
            row[: part.size] = part
        return found

    variables = {
        "look_time": table([test.curve.times[test.looks] for test in tests]),
        "look_mean": table([_plain(test, test.mean) for test in tests]),
        "look_prediction": table([_plain(test, test.predicted) for test in tests]),
        "look_z": table([test.score for test in tests]),
        "quantity_error": np.array([test.error for test in tests]),
        "quantity_allowance": np.array([test.allowance for test in tests]),
        "quantity_p_value": np.array([test.p for test in tests]),
        "quantity_power": np.array([test.power for test in tests]),
    }
    return variables, {
        "quantity": np.array([test.curve.name for test in tests], dtype=str),
        "look": np.arange(MOST_LOOKS),
    }


def _plain(test: CurveTest, values: Array) -> Array:
    """Return values of a curve as they are, and of a time without the logarithm."""
    return np.exp(values) if test.curve.is_time else values


def _verdict(
    prediction: xr.Dataset, simulations: Sequence[xr.Dataset], evidence: CurveEvidence, rate: float
) -> tuple[str, str]:
    """Return the one word and its reason."""
    wild = [test for test in evidence.curves if test.curve.moves and test.curve.scatters]
    if evidence.p_value < rate and evidence.refutable and wild:
        return "undecided", (
            f"{_difference(evidence, rate)} That may be the effect of noise, since runs scatter by over "
            f"{100 * LARGEST_SCATTER:.0f} % of the range in {_named(wild)}: use a smaller learning rate."
        )
    if evidence.p_value < rate and evidence.refutable:
        return "disagree", _difference(evidence, rate)
    if evidence.usable < FEWEST_RUNS:
        return "undecided", f"Only {evidence.usable} runs are usable; the test needs {FEWEST_RUNS}."
    lacking = _lacking(prediction, simulations, evidence)
    if lacking:
        return "undecided", lacking
    if evidence.p_value < rate:
        advice = "simulate at half of the learning rate too, and compare with both"
        return "undecided", f"{_difference(evidence, rate)} That may be the effect of the step size: {advice}."
    unmet, found = _unmet(prediction, simulations), _agreement(evidence, simulations)
    return ("undecided", f"The curves of theory and SGD agree: {found} But {unmet}") if unmet else ("agree", found)


def _unmet(prediction: xr.Dataset, simulations: Sequence[xr.Dataset]) -> str:
    """Return that no predicted emergence was awaited and met, empty if one was or none is predicted.

    One is awaited if it is predicted so early that 30 % later is still within the runs, and met if half of these have
    it.
    """
    time = np.asarray(prediction["emergence_time"].values, dtype=np.float64)
    alone = prediction.get("predicted_emergence_time")
    expected = time if alone is None else np.where(np.isnan(time), alone.values, time)
    first = float(np.min(expected[np.isfinite(expected)], initial=np.inf))
    end, met = min(float(part.attrs["end_time"]) for part in simulations), np.isfinite(time)
    met[met] = time[met] * (1.0 + VISIBLE_ERROR) <= end
    for part in simulations:
        emerged = np.isfinite(part["emergence_time"].values[paired_runs(simulations)])
        met &= 2 * np.count_nonzero(emerged, axis=0) >= emerged.shape[0]
    if met.any() or np.isinf(first):
        return ""
    return (
        f"no direction that is predicted to emerge well before the end of the runs, at time {end:.3g}, does so in half "
        f"of them: the first one is predicted at {first:.3g}."
    )


def _lacking(prediction: xr.Dataset, simulations: Sequence[xr.Dataset], evidence: CurveEvidence) -> str:
    """Return what keeps theory and runs that do not differ from agreeing, empty if nothing does."""
    moving = [test for test in evidence.curves if test.curve.moves]
    unresolved = [test for test in moving if not test.resolved]
    early = [*(unfinished("The runs", part) for part in simulations), unfinished("The prediction", prediction)]
    if any(early) and (unresolved or not moving):
        what = _named(unresolved) if unresolved else "anything"
        return f"{next(filter(None, early))}, before {what} could be tested."
    if not moving:
        return (
            "Nothing that theory predicts moves by the end of the runs, at times that are saved closely enough to be "
            "compared: use more steps, or save more times."
        )
    unknown = [test for test in moving if not test.curve.known]
    if unknown:
        return (
            f"The step size moves {_named(unknown)} by over {100 * LARGEST_EFFECT:.0f} % of the range, too much to "
            "extrapolate from two learning rates: use smaller ones."
        )
    if not unresolved:
        return ""
    advice = "use more seeds, a smaller learning rate or more steps"
    return f"An error of {100 * VISIBLE_ERROR:.0f} % in time could have gone unseen in {_named(unresolved)}: {advice}."


def _agreement(evidence: CurveEvidence, simulations: Sequence[xr.Dataset]) -> str:
    """Return what was tested, how closely and until when, and what could have been seen."""
    end = min(float(part.attrs["end_time"]) for part in simulations)
    widest = max(test.allowance / test.curve.range for test in evidence.tests)
    step = "" if evidence.refutable else ", without any allowance for the step size"
    return (
        f"No tested curve leaves its band around theory, of at most {100 * widest:.2g} % of its range{step}, up to "
        f"time {end:.3g} (global p = {evidence.p_value:.2g}), and an error of {100 * VISIBLE_ERROR:.0f} % in time "
        f"would have been seen in {_named([test for test in evidence.curves if test.curve.moves])}."
    )


def _difference(evidence: CurveEvidence, rate: float) -> str:
    """Return which quantity leaves its band, and where most."""
    worst = min((test for test in evidence.tests if test.curve.known), key=lambda test: test.p)
    at = int(np.argmax(np.abs(worst.score)))
    z, end = worst.score[at], f"(global p = {evidence.p_value:.2g} < {rate:g})."
    if worst.curve.is_time:
        return f"The {worst.curve.name} is {'later' if z > 0 else 'earlier'} than predicted, z = {z:.1f} {end}"
    side, time = "larger" if z > 0 else "smaller", worst.curve.times[worst.looks[at]]
    return f"The {worst.curve.name} is {side} than predicted, most at time {time:.3g}, z = {z:.1f} {end}"


def _named(tests: list[CurveTest]) -> str:
    """Return the names of quantities, those of one kind together."""
    kinds: dict[str, list[str]] = {}
    for test in tests:
        kinds.setdefault(test.curve.kind, []).append(test.curve.label)
    return " and ".join(f"{kind} {', '.join(labels)}".strip() for kind, labels in kinds.items())
