"""From tests and counts to one word and its reasons.

Knows what was tested and what came out; nothing of how a test works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgd_check.verdicts.loss_band import critical_score
from sgd_check.verdicts.verdict import FEWEST_RUNS, VISIBLE_ERROR

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    from sgd_check.verdicts.expectation import Expectation
    from sgd_check.verdicts.loss_band import LossBand
    from sgd_check.verdicts.verdict import DirectionTest


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
    awaited : ndarray of bool, shape (P,)
        Directions without whose full test nothing agrees: predicted so early that 30 % later is still within the runs.
    p_value : float
        Global, of all that enters the verdict.
    loss : LossBand or None
        None where the prediction has no loss, or no run is usable. It enters the verdict if its p is a number.
    """

    theory: str
    expected: Expectation
    ratio: NDArray[np.float64]
    tests: list[DirectionTest | None]
    awaited: NDArray[np.bool_]
    p_value: float
    loss: LossBand | None


def judgement(simulation: xr.Dataset, finding: Finding, rate: float) -> dict[str, Any]:
    """Return the verdict, its reasons and the counts as attributes."""
    tests = finding.tests
    blown_up = int(np.sum(simulation["blown_up"].values != 0))
    usable = int(simulation.sizes["seed"]) - blown_up
    time, stop_reason = finding.expected.time, simulation.attrs["stop_reason"]
    tested = [p for p, test in enumerate(tests) if test is not None]
    beyond = [p for p, test in enumerate(tests) if test is None and not time[p] <= float(simulation.attrs["end_time"])]
    open_ = [p for p, test in enumerate(tests) if test is None or not test.resolved]
    cut_off = [p for p in open_ if np.isfinite(time[p]) and not (finding.awaited[p] and p in tested)]
    gaps = _gaps(finding)
    if tested and finding.p_value < rate:
        verdict, reason = "disagree", _disagreement(simulation, finding, rate)
    elif usable < FEWEST_RUNS:
        verdict, reason = "undecided", f"Only {usable} runs are usable; the test needs {FEWEST_RUNS}."
    elif cut_off and stop_reason != "reached_end":
        verdict = "undecided"
        reason = f"The runs stopped early ({stop_reason}), before direction {_named(cut_off)} could be tested."
    elif not finding.awaited.any():
        verdict, reason = (
            "undecided",
            "No direction could be tested: none is predicted to emerge well before the end of the runs.",
        )
    elif gaps:
        verdict, reason = "undecided", _partial_agreement(finding, gaps)
    else:
        verdict = "agree"
        reason = _agreement(finding, [p for p in open_ if p not in beyond])
    reasons = [reason, *finding.expected.notes]
    if beyond and tested:
        reasons.append(f"Not tested, since predicted never or beyond the horizon: direction {_named(beyond)}.")
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


def _gaps(finding: Finding) -> dict[str, list[int]]:
    """Return the awaited directions that are not known to agree, by what is to be said of them."""
    found: dict[str, list[int]] = {}
    for p in np.flatnonzero(finding.awaited).tolist():
        test = finding.tests[p]
        if test is None:
            words = "Not tested, since too few runs emerged: direction {}."
        elif test.early is None:
            words = "Tested for lateness only, since too few runs emerged: direction {}."
        elif test.late is None:
            words = "Tested for earliness only, since theory does not bound the lateness: direction {}."
        elif not test.resolved:
            advice = "use more seeds, a smaller learning rate or more steps"
            words = f"An error of {VISIBLE_ERROR:.0%} could have gone unseen in direction {{}}: {advice}."
        else:
            continue
        found.setdefault(words, []).append(p)
    return found


def _agreement(finding: Finding, near: list[int]) -> str:
    """Return what was tested, save for directions that the runs reach, but not 30 % later."""
    what = "No tested direction leaves its band" if finding.theory != "sample" else "No difference of the laws shows"
    seen = f"{what} (global p = {finding.p_value:.2g}), and an error of {VISIBLE_ERROR:.0%} would have been seen"
    return seen + (f", save in direction {_named(near)}, predicted near the end of the runs." if near else ".")


def _partial_agreement(finding: Finding, gaps: dict[str, list[int]]) -> str:
    """Return on how many of the awaited directions there is agreement, and what the others lack."""
    awaited = int(finding.awaited.sum())
    agreed = awaited - sum(map(len, gaps.values()))
    who = "The two samples" if finding.theory == "sample" else "Theory and SGD"
    first = f"{who} agree on {agreed} of {awaited} directions (global p = {finding.p_value:.2g})."
    return " ".join([first] * (agreed > 0) + [words.format(_named(which)) for words, which in gaps.items()])


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
