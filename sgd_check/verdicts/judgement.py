"""The verdict of a comparison: one word and its reasons, from what the tests gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgd_check.verdicts.alignment import unfinished
from sgd_check.verdicts.direction import FEWEST_RUNS, VISIBLE_ERROR
from sgd_check.verdicts.events import event_of
from sgd_check.verdicts.loss_band import critical_score

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    from hermite.arrays import Array
    from sgd_check.verdicts.direction import DirectionTest
    from sgd_check.verdicts.events import Event
    from sgd_check.verdicts.expectation import Expectation
    from sgd_check.verdicts.loss_band import LossBand
    from sgd_check.verdicts.path_tests import PathTest


class Evidence(NamedTuple):
    """What the tests of a comparison with the theory "flow", "finite step" or "sample" gave.

    `ratio` (seeds, P) is measured over predicted times; `tests` are None for directions that were not tested. Without
    the full test of the `awaited` directions (P,), predicted so early that 30 % later is still within the runs, nothing
    agrees. `p_value` is that of all that enters the verdict. `loss` is None where the prediction has no loss, or no run
    is usable; it enters the verdict if its p is a number. `unfinished` says that the prediction stopped early,
    if it did. `path` has the tests of what does not depend on times, `by_path` whether they speak louder than these.
    """

    theory: str
    expected: Expectation
    ratio: Array
    tests: list[DirectionTest | None]
    awaited: NDArray[np.bool_]
    p_value: float
    loss: LossBand | None
    unfinished: str = ""
    path: tuple[PathTest, ...] = ()
    by_path: bool = False


def judgement(simulation: xr.Dataset, evidence: Evidence, rate: float) -> dict[str, Any]:
    """Return the verdict, its reasons and the counts as attributes."""
    blown_up = int(np.sum(simulation["blown_up"].values != 0))
    usable = int(simulation.sizes["seed"]) - blown_up
    tested = [p for p, test in enumerate(evidence.tests) if test is not None]
    beyond = _beyond(simulation, evidence)
    verdict, reason = _verdict(simulation, evidence, rate, usable)
    reasons = [reason, *evidence.expected.notes]
    if beyond and tested:
        reasons.append(f"Not tested, since predicted never or beyond the horizon: direction {_named(beyond)}.")
    if blown_up:
        reasons.append(f"Runs left out because they blew up: {blown_up}.")
    return {
        "verdict": verdict,
        "false_alarm_rate": rate,
        "reasons": " ".join(reasons),
        "theory": evidence.theory,
        "usable_runs": usable,
        "blown_up_count": blown_up,
        "tested_directions": len(tested),
        **_of_loss(evidence.loss, rate, event_of(simulation)),
        "path_statement": _of_path(evidence.path),
    }


def _verdict(simulation: xr.Dataset, evidence: Evidence, rate: float, usable: int) -> tuple[str, str]:
    """Return the one word and its reason."""
    time, stop_reason = evidence.expected.time, simulation.attrs["stop_reason"]
    tested = [p for p, test in enumerate(evidence.tests) if test is not None]
    if (tested or evidence.by_path) and evidence.p_value < rate:
        return "disagree", _disagreement(simulation, evidence, rate)
    if usable < FEWEST_RUNS:
        return "undecided", f"Only {usable} runs are usable; the test needs {FEWEST_RUNS}."
    unresolved = [p for p, test in enumerate(evidence.tests) if test is None or not test.resolved]
    cut_off = [p for p in unresolved if np.isfinite(time[p]) and not (evidence.awaited[p] and p in tested)]
    if cut_off and stop_reason != "reached_end":
        early = f"The runs stopped early ({stop_reason})"
        return "undecided", f"{early}, before direction {_named(cut_off)} could be tested."
    if not evidence.awaited.any():
        early = unfinished("The runs", simulation) or evidence.unfinished
        verb = event_of(simulation).verb
        why = f"No direction could be tested: none is predicted to {verb} well before the end of the runs."
        return "undecided", f"{early}, before any direction could be tested." if early else why
    gaps = _gaps(evidence, event_of(simulation))
    if gaps:
        return "undecided", _partial_agreement(evidence, gaps)
    beyond = _beyond(simulation, evidence)
    return "agree", _agreement(evidence, [p for p in unresolved if p not in beyond])


def _beyond(simulation: xr.Dataset, evidence: Evidence) -> list[int]:
    """Return the directions that are not tested because they are predicted never, or after the end of the runs."""
    time, end = evidence.expected.time, float(simulation.attrs["end_time"])
    return [p for p, test in enumerate(evidence.tests) if test is None and not time[p] <= end]


def _gaps(evidence: Evidence, event: Event) -> dict[str, list[int]]:
    """Return the awaited directions that are not known to agree, by what is to be said of them."""
    found: dict[str, list[int]] = {}
    for p in np.flatnonzero(evidence.awaited).tolist():
        test = evidence.tests[p]
        if test is None and evidence.expected.low[p] == -np.inf:
            advice = "use a smaller learning rate"
            words = f"Not tested, since the noise of the steps decides when it {event.verb}s: direction {{}}; {advice}."
        elif test is None:
            words = f"Not tested, since too few runs {event.past}: direction {{}}."
        elif test.early is None:
            words = f"Tested for lateness only, since too few runs {event.past}: direction {{}}."
        elif test.late is None:
            words = "Tested for earliness only, since theory does not bound the lateness: direction {}."
        elif not test.resolved:
            advice = "use more seeds, a smaller learning rate or more steps"
            words = f"An error of {100 * VISIBLE_ERROR:.0f} % could have gone unseen in direction {{}}: {advice}."
        else:
            continue
        found.setdefault(words, []).append(p)
    return found


def _agreement(evidence: Evidence, near: list[int]) -> str:
    """Return what was tested, save for directions that the runs reach, but not 30 % later."""
    what = "No tested direction leaves its band" if evidence.theory != "sample" else "No difference of the laws shows"
    seen = (
        f"{what} (global p = {evidence.p_value:.2g}), and an error of {100 * VISIBLE_ERROR:.0f} % would have been seen"
    )
    return seen + (f", save in direction {_named(near)}, predicted near the end of the runs." if near else ".")


def _partial_agreement(evidence: Evidence, gaps: dict[str, list[int]]) -> str:
    """Return on how many of the awaited directions there is agreement, and what the others lack."""
    awaited = int(evidence.awaited.sum())
    agreed = awaited - sum(map(len, gaps.values()))
    who = "The two samples" if evidence.theory == "sample" else "Theory and SGD"
    first = f"{who} agree on {agreed} of {awaited} directions (global p = {evidence.p_value:.2g})."
    return " ".join([first] * (agreed > 0) + [words.format(_named(which)) for words, which in gaps.items()])


def _of_path(path: tuple[PathTest, ...]) -> str:
    """Return what is said about what does not depend on times."""
    if not path:
        return "Path: not compared."
    worst = min(path, key=lambda test: test.p)
    return f"Path, part of the verdict: of {len(path)} quantities the {worst.what} is farthest off, p = {worst.p:.2g}."


def _of_loss(loss: LossBand | None, rate: float, event: Event) -> dict[str, Any]:
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
        f"before {event.noun}s and on plateaus."
    )
    return {
        "loss_in_verdict": False,
        "loss_compared_times": count,
        "loss_outside": outside,
        "loss_critical_score": critical,
        "loss_statement": statement if count else "Loss: not compared, no time lies on a plateau of all runs.",
    }


def _disagreement(simulation: xr.Dataset, evidence: Evidence, rate: float) -> str:
    end = f"(global p = {evidence.p_value:.2g} < {rate:g})."
    if evidence.by_path:
        test = min(evidence.path, key=lambda test: test.p)
        side = "larger" if test.score > 0 else "smaller"
        return f"The {test.what} is {side} than predicted, z = {test.score:.1f} {end}"
    p_values = np.array([np.nan if test is None else test.p for test in evidence.tests])
    worst = int(np.nanargmin(p_values))
    z = evidence.tests[worst].z  # type: ignore[union-attr]
    loss = evidence.loss
    if loss is not None and loss.p < p_values[worst]:
        at = int(np.nanargmax(np.abs(loss.z)))
        time, score = float(simulation["time"].values[at]), loss.z[at]
        side = "larger" if score > 0 else "smaller"
        return f"The loss is {side} than predicted, most at time {time:.3g}, z = {score:.1f} {end}"
    return f"Direction {worst + 1} {event_of(simulation).verb}s {'late' if z > 0 else 'early'}, z = {z:.1f} {end}"


def _named(directions: list[int]) -> str:
    return ", ".join(str(p + 1) for p in directions)
