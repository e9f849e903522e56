"""The verdict of a comparison: one word and its reasons, from what the tests gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgd_check.verdicts.alignment import unfinished
from sgd_check.verdicts.direction import FEWEST_RUNS, VISIBLE_ERROR
from sgd_check.verdicts.events import LEARNING, event_of
from sgd_check.verdicts.loss_band import critical_score

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    from hermite.arrays import Array
    from sgd_check.verdicts.absence import Absence
    from sgd_check.verdicts.direction import DirectionTest
    from sgd_check.verdicts.events import Event
    from sgd_check.verdicts.expectation import Expectation
    from sgd_check.verdicts.loss_band import LossBand
    from sgd_check.verdicts.path_tests import PathTest


class EventEvidence(NamedTuple):
    """What the tests of the times of one event gave; of every direction as `Evidence` has it."""

    event: Event
    expected: Expectation
    tests: list[DirectionTest | None]
    awaited: NDArray[np.bool_]
    absences: tuple[Absence, ...] = ()

    @property
    def p_values(self) -> Array:
        """The two-sided p-value of every direction (P,), NaN where it was not tested."""
        found = np.array([np.nan if test is None else test.p for test in self.tests])
        for one in self.absences:
            found[one.direction] = one.p
        return found

    @property
    def met(self) -> NDArray[np.bool_]:
        """Which directions (P,) were awaited, and tested on both sides so that an error of 30 % would be seen."""
        seen = np.array([test is not None and test.resolved for test in self.tests], dtype=bool)
        return np.asarray(self.awaited & seen)

    @property
    def due(self) -> NDArray[np.bool_]:
        """Which awaited directions (P,) theory has a band for, or nothing but noise that decides."""
        return self.awaited if self.event is not LEARNING else self.awaited & np.isfinite(self.expected.low)


class Evidence(NamedTuple):
    """What the tests of a comparison with the theory "flow", "finite step" or "sample" gave.

    `ratio` (seeds, P) is measured over predicted times; `tests` are None for directions that were not tested. Without
    the full test of the `awaited` directions (P,), predicted so early that 30 % later is still within the runs, nothing
    agrees. `p_value` is that of all that enters the verdict. `loss` is None where the prediction has no loss, or no run
    is usable; it enters the verdict if its p is a number. `unfinished` says that the prediction stopped early,
    if it did. `path` has the tests of what does not depend on times, `by_path` whether they speak louder than these.
    `absences` are of directions that theory puts beyond the runs, and `learned` is the same of learned times, None
    where these are not compared.
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
    absences: tuple[Absence, ...] = ()
    learned: EventEvidence | None = None

    def by_event(self, event: Event) -> list[EventEvidence]:
        """Return what there is on `event`, that of the emergence times, and on learned times."""
        first = EventEvidence(event, self.expected, self.tests, self.awaited, self.absences)
        return [first, *([] if self.learned is None else [self.learned])]


def judgement(simulation: xr.Dataset, evidence: Evidence, rate: float) -> dict[str, Any]:
    """Return the verdict, its reasons and the counts as attributes."""
    blown_up = int(np.sum(simulation["blown_up"].values != 0))
    usable = int(simulation.sizes["seed"]) - blown_up
    tested = [p for p, test in enumerate(evidence.tests) if test is not None]
    verdict, reason = _verdict(simulation, evidence, rate, usable)
    reasons = [reason, *evidence.expected.notes]
    if tested:
        reasons += [
            f"{done}: {what} {_named(which)}."
            for one in evidence.by_event(event_of(simulation))
            for done, what, which in _later(simulation, one)
        ]
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
    parts = evidence.by_event(event_of(simulation))
    if evidence.p_value < rate:
        return "disagree", _disagreement(simulation, evidence, parts, rate)
    if usable < FEWEST_RUNS:
        return "undecided", f"Only {usable} runs are usable; the test needs {FEWEST_RUNS}."
    lacking = _lacking(simulation, evidence, parts)
    return ("undecided", lacking) if lacking else ("agree", _agreement(simulation, evidence, parts))


def _lacking(simulation: xr.Dataset, evidence: Evidence, parts: list[EventEvidence]) -> str:
    """Return what keeps theory and runs that do not differ from agreeing, empty if nothing does."""
    stop_reason = simulation.attrs["stop_reason"]
    cut_off = [p for p in _unresolved(parts[0]) if _cut_off(parts[0], p)]
    if cut_off and stop_reason != "reached_end":
        return f"The runs stopped early ({stop_reason}), before direction {_named(cut_off)} could be tested."
    doubtful = _doubtful(parts)
    if doubtful:
        return doubtful
    if not evidence.awaited.any():
        early = unfinished("The runs", simulation) or evidence.unfinished
        why = f"No direction could be tested: {_nothing_due(simulation, evidence)}"
        return f"{early}, before any direction could be tested." if early else why
    gaps = [(one, _gaps(one)) for one in parts]
    return _partial_agreement(evidence, gaps) if any(found for _, found in gaps) else ""


def _end(simulation: xr.Dataset) -> float:
    return float(simulation.attrs["end_time"])


def _unresolved(one: EventEvidence) -> list[int]:
    """Return the directions in which an error of 30 % could have gone unseen."""
    return [p for p, test in enumerate(one.tests) if test is None or not test.resolved]


def _cut_off(one: EventEvidence, p: int) -> bool:
    """Return whether a direction is predicted, and was not awaited and tested."""
    return bool(np.isfinite(one.expected.time[p]) and not (one.awaited[p] and one.tests[p] is not None))


def _doubtful(parts: list[EventEvidence]) -> str:
    """Return which directions theory puts beyond its end, or the runs', and runs have; empty if there is none."""
    found = []
    for one in parts:
        ended = [each for each in one.absences if np.isnan(each.time) and each.having]
        if ended:
            which = ", ".join(f"{each.direction + 1} ({each.having} of {each.runs} runs)" for each in ended)
            found.append(f"The prediction ended before the runs, without {one.event.noun} of direction {which}.")
        for each in one.absences:
            if np.isfinite(each.p) and each.open:
                few = "too few to refute theory, too many to agree with it."
                found.append(" ".join(filter(None, [f"{_capital(each.said())}, {few}", each.noise()])))
    return " ".join(found)


def _nothing_due(simulation: xr.Dataset, evidence: Evidence) -> str:
    """Return that no emergence is predicted well before the end of the runs, when they end and when the first is."""
    time, verb = evidence.expected.time, event_of(simulation).verb
    first = np.min(time[np.isfinite(time)], initial=np.inf)
    when = f", and the first one is predicted at {first:.3g}" if np.isfinite(first) else ""
    return f"none is predicted to {verb} well before the end of the runs, at time {_end(simulation):.3g}{when}."


def _later(simulation: xr.Dataset, one: EventEvidence) -> list[tuple[str, str, list[int]]]:
    """Return the directions that are predicted never or after the runs: what was done, of what, and which."""
    time = one.expected.time
    beyond = [p for p, test in enumerate(one.tests) if test is None and not time[p] <= _end(simulation)]
    counted = {each.direction for each in one.absences if np.isfinite(each.p)}
    first = np.min(time[beyond][np.isfinite(time[beyond])], initial=np.inf)
    after = f", the first at {first:.3g}" if np.isfinite(first) else ""
    what = "learned time of direction" if one.event is LEARNING else "direction"
    both = (
        (f"Only counted, since predicted never or beyond the horizon{after}", [p for p in beyond if p in counted]),
        ("Not tested, since no time is predicted for it", [p for p in beyond if p not in counted]),
    )
    return [(done, what, which) for done, which in both if which]


def _gaps(one: EventEvidence) -> dict[str, list[int]]:
    """Return the awaited directions that are not known to agree, by what is to be said of them."""
    found: dict[str, list[int]] = {}
    event = one.event
    what = "learned time of direction" if event is LEARNING else "direction"
    for p in np.flatnonzero(one.due).tolist():
        test = one.tests[p]
        if test is None and one.expected.low[p] == -np.inf:
            advice = "use a smaller learning rate"
            words = f"Not tested, since the noise of the steps decides when it {event.present}: {what} {{}}; {advice}."
        elif test is None:
            words = f"Not tested, since too few runs {event.past}: {what} {{}}."
        elif test.early is None:
            words = f"Tested for lateness only, since too few runs {event.past}: {what} {{}}."
        elif test.late is None:
            words = f"Tested for earliness only, since theory does not bound the lateness: {what} {{}}."
        elif not test.resolved:
            advice = "use more seeds, a smaller learning rate or more steps"
            words = f"An error of {100 * VISIBLE_ERROR:.0f} % could have gone unseen in {what} {{}}: {advice}."
        else:
            continue
        found.setdefault(words, []).append(p)
    return found


def _agreement(simulation: xr.Dataset, evidence: Evidence, parts: list[EventEvidence]) -> str:
    """Return what was tested and until when, save for directions that the runs reach, but not 30 % later."""
    end, time = _end(simulation), evidence.expected.time
    near = [p for p in _unresolved(parts[0]) if evidence.tests[p] is not None or time[p] <= end]
    what = "No tested direction leaves its band" if evidence.theory != "sample" else "No difference of the laws shows"
    compared = [
        f"{one.event.noun} of direction {_named(np.flatnonzero(one.met).tolist())}" for one in parts if one.met.any()
    ]
    seen = (
        f"{what} up to time {end:.3g} (global p = {evidence.p_value:.2g}), and an error of "
        f"{100 * VISIBLE_ERROR:.0f} % would have been seen in the {' and the '.join(compared)}"
    )
    return seen + (f", save in direction {_named(near)}, predicted near the end of the runs." if near else ".")


def _partial_agreement(evidence: Evidence, gaps: list[tuple[EventEvidence, dict[str, list[int]]]]) -> str:
    """Return on how many of the awaited directions there is agreement, and what the others lack."""
    who = "The two samples" if evidence.theory == "sample" else "Theory and SGD"
    said = []
    for one, lacking in gaps:
        awaited = int(one.due.sum())
        agreed = awaited - sum(map(len, lacking.values()))
        if agreed:
            what = "learned times" if one.event is LEARNING else "directions"
            said.append(f"{agreed} of {awaited} {what}")
    first = f"{who} agree on {' and '.join(said)} (global p = {evidence.p_value:.2g})."
    lacks = [words.format(_named(which)) for _, lacking in gaps for words, which in lacking.items()]
    return " ".join([first] * bool(said) + lacks)


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


def _disagreement(simulation: xr.Dataset, evidence: Evidence, parts: list[EventEvidence], rate: float) -> str:
    """Return what speaks loudest against theory."""
    end = f"(global p = {evidence.p_value:.2g} < {rate:g})."
    if evidence.by_path:
        off = min(evidence.path, key=lambda test: test.p)
        side = "larger" if off.score > 0 else "smaller"
        return f"The {off.what} is {side} than predicted, z = {off.score:.1f} {end}"
    least = [float(np.min(one.p_values[np.isfinite(one.p_values)], initial=np.inf)) for one in parts]
    loss = evidence.loss
    if loss is not None and loss.p < min(least):
        at = int(np.nanargmax(np.abs(loss.z)))
        time, score = float(simulation["time"].values[at]), loss.z[at]
        side = "larger" if score > 0 else "smaller"
        return f"The loss is {side} than predicted, most at time {time:.3g}, z = {score:.1f} {end}"
    loudest = parts[int(np.argmin(least))]
    worst = int(np.nanargmin(loudest.p_values))
    test = loudest.tests[worst]
    if test is None:
        absent = next(one for one in loudest.absences if one.direction == worst)
        return " ".join(filter(None, [f"{_capital(absent.said())} {end}", absent.noise()]))
    side = "late" if test.z > 0 else "early"
    return f"Direction {worst + 1} {loudest.event.present} {side}, z = {test.z:.1f} {end}"


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _named(directions: list[int]) -> str:
    return ", ".join(str(p + 1) for p in directions)
