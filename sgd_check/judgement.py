"""From tests and counts to one word and its reasons.

Knows what was tested and what came out; nothing of how a test works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgd_check.loss_band import critical_score
from sgd_check.verdict import FEWEST_RUNS, VISIBLE_ERROR

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    from sgd_check.expectation import Expectation
    from sgd_check.loss_band import LossBand
    from sgd_check.verdict import DirectionTest


class Finding(NamedTuple):
    """What a comparison found.

    Attributes
    ----------
    theory : str
        "flow", "finite step" or "sample".
    expected : Expectation
    ratio : ndarray, shape (seeds, P)
        Measured over predicted times.
    tests : list
        Per direction; None where not tested.
    p_value : float
        Global, of all that enters the verdict.
    loss : LossBand or None
        None where the prediction has no loss, or no run is usable. It enters the verdict if its p is a number.
    """

    theory: str
    expected: Expectation
    ratio: NDArray[np.float64]
    tests: list[DirectionTest | None]
    p_value: float
    loss: LossBand | None


def judgement(simulation: xr.Dataset, finding: Finding, rate: float) -> dict[str, Any]:
    """Return the verdict, its reasons and the counts as attributes."""
    tests = finding.tests
    blown_up = int(np.sum(simulation["blown_up"].values != 0))
    usable = int(simulation.sizes["seed"]) - blown_up
    tested = [p for p, test in enumerate(tests) if test is not None]
    dull = [p for p, test in enumerate(tests) if test is not None and not test.resolved]
    untested = [p for p, test in enumerate(tests) if test is None]
    awaited = [p for p in untested if np.isfinite(finding.expected.time[p])]
    if tested and finding.p_value < rate:
        verdict, reason = "disagree", _disagreement(simulation, finding, rate)
    elif usable < FEWEST_RUNS:
        verdict, reason = "undecided", f"Only {usable} runs are usable; the test needs {FEWEST_RUNS}."
    elif not tested:
        verdict, reason = (
            "undecided",
            "No direction could be tested: none is predicted to emerge well before the end of the runs.",
        )
    elif awaited and simulation.attrs["stop_reason"] != "reached_end":
        verdict = "undecided"
        reason = (
            f"The runs stopped early ({simulation.attrs['stop_reason']}), before direction {_named(awaited)} could be "
            "tested."
        )
    elif dull:
        verdict = "undecided"
        reason = (
            f"An error of {VISIBLE_ERROR:.0%} could have gone unseen in direction {_named(dull)}: use more seeds, "
            "a smaller learning rate or more steps."
        )
    else:
        verdict = "agree"
        what = (
            "No tested direction leaves its band" if finding.theory != "sample" else "No difference of the laws shows"
        )
        reason = f"{what} (global p = {finding.p_value:.2g}), and an error of {VISIBLE_ERROR:.0%} would have been seen."
    reasons = [reason, *finding.expected.notes]
    if untested and tested:
        reasons.append(f"Not tested, since predicted never or beyond the horizon: direction {_named(untested)}.")
    if blown_up:
        reasons.append(f"Runs left out because they blew up: {blown_up}.")
    return {
        "verdict": verdict,
        "false_alarm_rate": rate,
        "reasons": " ".join(reasons),
        "theory": finding.theory,
        "usable_runs": usable,
        "blown_up_count": blown_up,
        "tested_directions": len(tested),
        **_of_loss(finding.loss, rate),
    }


def _of_loss(loss: LossBand | None, rate: float) -> dict[str, Any]:
    """Return what is said about the loss."""
    if loss is None:
        return {"loss_in_verdict": False, "loss_statement": "Loss: not compared."}
    count = int(loss.compared.sum())
    if np.isfinite(loss.p):
        statement = f"Loss: p = {loss.p:.2g} by ranks over {count} times, half of the rate of false alarms."
        return {"loss_in_verdict": True, "loss_compared_times": count, "loss_statement": statement}
    critical = critical_score(count, rate)
    outside = int(np.count_nonzero(np.abs(loss.z[loss.compared]) > critical))
    statement = (
        f"Loss, beside the verdict: the mean leaves its band (±{critical:.1f} s.e.) at {outside} of {count} times "
        "before emergences and on plateaus."
    )
    return {
        "loss_in_verdict": False,
        "loss_compared_times": count,
        "loss_outside": outside,
        "loss_critical_score": critical,
        "loss_statement": statement if count else "Loss: not compared, no time lies on a plateau of all runs.",
    }


def _disagreement(simulation: xr.Dataset, finding: Finding, rate: float) -> str:
    end = f"(global p = {finding.p_value:.2g} < {rate:g})."
    p_values = np.array([np.nan if test is None else test.p for test in finding.tests])
    worst = int(np.nanargmin(p_values))
    z = finding.tests[worst].z  # type: ignore[union-attr]
    loss = finding.loss
    if loss is not None and loss.p < p_values[worst]:
        at = int(np.nanargmax(np.abs(loss.z)))
        time, score = float(simulation["time"].values[at]), loss.z[at]
        side = "larger" if score > 0 else "smaller"
        return f"The loss is {side} than predicted, most at time {time:.3g}, z = {score:.1f} {end}"
    return f"Direction {worst + 1} emerges {'late' if z > 0 else 'early'}, z = {z:.1f} {end}"


def _named(directions: list[int]) -> str:
    return ", ".join(str(p + 1) for p in directions)
