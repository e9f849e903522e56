"""Verdicts by times: every direction's time of emergence or learning against theory, or against a sample of runs.

Of directions beyond the runs the number of runs that have them is tested (`docs/verdict_tests.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from dynamics import theory
from dynamics.equations.transit import transit_time
from dynamics.problem import Problem, decouples, is_correlation, is_homogeneous
from dynamics.theory.step_noise import SearchNoise
from hermite.arrays import Array, Switches
from sgd_check.verdicts import path_tests, time_tests
from sgd_check.verdicts.bands import count_of, statement_of, tests_of_scatter
from sgd_check.verdicts.evidence import Decision, Row, RowKind, global_p_value, judged, labels_of, named, word_of
from sgd_check.verdicts.expectation import NOISE_DECIDES, Expectation, expectation, learned_expectation
from sgd_check.verdicts.path_tests import PATH_SHARE, LossBand, PathTest, rows_of_paths
from sgd_check.verdicts.starts import tests_of_starts
from sgd_check.verdicts.time_tests import TimeTest
from sgd_check.verdicts.verdict import (
    EVENTS,
    FEWEST_RUNS,
    LEARNING,
    MORE_WORK,
    USABLE,
    VISIBLE_ERROR,
    Event,
    count_sentence,
    difference,
    event_of,
    has_step,
    lacking_row,
    leave,
    of_sound_runs,
    other_optimizer,
    significantly,
    sound_runs,
    tell_alike,
    too_few,
    unfinished,
    verdict_tree,
)

#: How early the mean of ln T may be where theory does not say: an error that is to be seen.
LEAST_EDGE = float(np.log1p(VISIBLE_ERROR))
#: Why a direction is undecided, beside what the number of runs that have it says.
CUT = "the runs stopped early"
NOISE = "the noise of the steps decides when it"
UNSEEN = f"An error of {100 * VISIBLE_ERROR:.0f} % could have gone unseen"


class CountTest(NamedTuple):
    """The test of the number of runs that have a direction which theory puts beyond their end.

    `time` is the predicted one, inf for never, and NaN where the prediction ended before the runs: p is NaN then.
    `share` is that of the runs that the scatter of theory allows. Until the end noise moves an overlap by `moved`, and
    `needed` is enough; `scatter` is that of ln T; NaN where theory does not say, or the share has it.
    """

    direction: int
    event: Event
    time: float
    having: int
    runs: int
    share: float = np.nan
    p: float = np.nan
    moved: float = np.nan
    needed: float = np.nan
    scatter: float = np.nan

    @property
    def is_doubtful(self) -> bool:
        """Whether runs have the direction although theory has no law of their number."""
        return self.having > 0 and bool(np.isnan(self.share))

    @property
    def cause(self) -> str:
        """A sentence on noise as the cause for which runs have the direction; empty if noise is too small for that."""
        noise = "The noise of the steps, which this theory leaves out,"
        if self.scatter > NOISE_DECIDES:
            decides = f"decides when it {self.event.present}"
            return f"{noise} {decides}, and scatters the logarithm of the time by more than 1."
        if self.moved >= self.needed > 0.0:
            moves = f"until the end of the runs it moves an overlap by {self.moved:.2g}"
            return f"{noise} carries runs over: {moves}, and {self.needed:.2g} is enough."
        return ""


class EventTests(NamedTuple):
    """The tests of the times of one event, None for directions that were not tested.

    Without the full test of the `awaited` directions (P,), 30 % later still within the runs, nothing agrees. `counts`
    are of directions that theory puts beyond the runs.
    """

    event: Event
    expected: Expectation
    tests: list[TimeTest | None]
    awaited: Switches
    counts: Sequence[CountTest] = ()

    @property
    def tested(self) -> Switches:
        """Directions (P,) whose times were tested."""
        return np.array([test is not None for test in self.tests], dtype=bool)

    def column(self, read: Callable[[TimeTest], float]) -> Array:
        """Return what `read` returns of each direction's test, (P,); NaN without a test."""
        return np.array([np.nan if test is None else read(test) for test in self.tests], dtype=np.float64)

    @property
    def p_values(self) -> Array:
        """The two-sided p-value of every direction (P,), NaN where it was not tested."""
        values = self.column(lambda test: test.p)
        values[[count.direction for count in self.counts]] = [count.p for count in self.counts]
        return values

    @property
    def unresolved(self) -> Switches:
        """Directions (P,) in which an error of 30 % could have gone unseen."""
        return np.asarray(self.column(lambda test: test.resolved) != 1.0)

    @property
    def due(self) -> Switches:
        """Awaited directions (P,) for which theory has a band, or noise decides."""
        return self.awaited if self.event is not LEARNING else self.awaited & np.isfinite(self.expected.low)

    def rows(self, p_values: Array, rate: float, *, cut: bool) -> list[Row]:
        """Return the evidence of every direction; `p_values` (P,) have their shares of the rate of false alarms.

        If the runs were `cut` before their end, directions that are predicted and not tested are required too.
        """
        counted, rows = {count.direction: count for count in self.counts}, []
        lost = cut & self.unresolved & np.isfinite(self.expected.time) & ~(self.awaited & self.tested)
        for p, test in enumerate(self.tests):
            count, gap = counted.get(p), self._gap(p) if self.due[p] else ""
            numbers: dict[str, Any] = {"time": float(self.expected.time[p])}
            if count is not None:
                numbers = {"time": count.time, "value": float(count.having), "runs": float(count.runs)}
                numbers |= {"low": 0.0, "high": count.share * count.runs}
            elif test is not None:
                numbers |= {"value": test.mean, "low": test.low, "high": test.high, "z": test.z}
                numbers |= {"power": test.power, "runs": float(test.runs)}
            doubtful = count is not None and count.is_doubtful
            row = judged(
                rate,
                quantity=self.event.what,
                label=str(p + 1),
                kind=self.event.noun,
                p_value=float(p_values[p]),
                required=bool(self.due[p] or lost[p] or doubtful),
                seen=not (gap or lost[p] or doubtful) and (count is not None or (test is not None and test.resolved)),
                cause=CUT if lost[p] else gap,
                **numbers,
            )
            if count is not None and doubtful and row.cause != CUT:
                row = replace(row, cause=count.cause)
            rows.append(row)
        return rows

    def _gap(self, p: int) -> str:
        """Return the cause for which an awaited direction is not known to agree; empty if it agrees."""
        test, few = self.tests[p], f"since too few runs {self.event.past}"
        if test is None and self.expected.low[p] == -np.inf:
            return f"Not tested, since {NOISE} {self.event.present}"
        if test is None:
            return f"Not tested, {few}"
        if test.early is None:
            return f"Tested for lateness only, {few}"
        if test.late is None:
            return "Tested for earliness only, since theory does not bound the lateness"
        return "" if test.resolved else UNSEEN

    def runs_needed(self, level: float) -> float:
        """Return the number of runs that see an error of 30 % in every awaited direction; inf if no number does."""
        tests = [self.tests[p] for p in np.flatnonzero(self.due).tolist()]
        return max((np.inf if test is None else test.runs_needed(level) for test in tests), default=np.inf)

    def later(self, end: float) -> Iterator[str]:
        """Yield sentences on directions that are predicted never or after the runs: on counted and on untested ones."""
        time = self.expected.time
        beyond, counted = ~self.tested & ~(time <= end), np.zeros(time.size, dtype=bool)
        counted[[count.direction for count in self.counts if np.isfinite(count.p)]] = True
        first = np.min(time, initial=np.inf, where=beyond & np.isfinite(time))
        after = f", the first at {first:.3g}" if np.isfinite(first) else ""
        for which, words in (
            (beyond & counted, f"Only counted, since predicted never or beyond the horizon{after}"),
            (beyond & ~counted, "Not tested, since no time is predicted for it"),
        ):
            if which.any():
                yield f"{words}: {self.event.what} {_named(which)}."


@dataclass(frozen=True, kw_only=True)
class TimesTests:
    """The tests of times at a `rate` of false alarms, against the theory "flow", "finite step" or "sample".

    `parts` are of times of emergence and, where these are compared, of learned times, with p-values (P,) that have
    their share of the rate; `others` are all other rows of evidence. `loss` enters the verdict if its p is a number.
    """

    prediction: xr.Dataset
    simulation: xr.Dataset
    rate: float
    theory: str
    parts: list[EventTests]
    p_values: Sequence[Array]
    loss: LossBand | None
    others: Sequence[Row] = ()
    path: Sequence[PathTest] = ()

    def rows(self) -> list[Row]:
        """Return the evidence, the rows of paths and starts first."""
        rows, first = [*self.others], self.parts[0]
        for part, p_values in zip(self.parts, self.p_values, strict=True):
            cut = part is first and self.simulation.attrs["stop_reason"] != "reached_end"
            rows += part.rows(p_values, self.rate, cut=cut)
        rows += too_few(int(np.sum(sound_runs(self.simulation))))
        return rows if first.awaited.any() else [*rows, lacking_row("awaited directions", self._nothing_awaited())]

    def _nothing_awaited(self) -> str:
        """Return a sentence on the cause for which no direction could be tested."""
        first, end = self.parts[0], float(self.simulation.attrs["end_time"])
        predicted = "" if self.theory == "sample" else unfinished("The prediction", self.prediction)
        if early := unfinished("The runs", self.simulation) or predicted:
            return f"{early}, before any direction could be tested."
        soonest = np.min(first.expected.time, initial=np.inf, where=np.isfinite(first.expected.time))
        when = f", and the first one is predicted at {soonest:.3g}" if np.isfinite(soonest) else ""
        return (
            f"No direction could be tested: none is predicted to {first.event.verb} well before the end of the runs, "
            f"at time {end:.3g}{when}."
        )

    def reason(self, rows: Sequence[Row]) -> str:
        """Return the sentence that gives the reason of the word."""
        word, p_value, end = word_of(rows), global_p_value(rows), float(self.simulation.attrs["end_time"])
        if word == Decision.DISAGREE:
            return difference([row for row in rows if row.disagrees], p_value, self.rate)
        if word == Decision.UNDECIDED:
            return self._lacking(rows, p_value)
        first = [row for row in rows if row.kind == self.parts[0].event.noun]
        unresolved = [row for row in first if np.isnan(row.z) or not row.agrees]
        near = [row for row in unresolved if not np.isnan(row.z) or row.time <= end]
        met = {name: [row for row in rows if row.kind == name and row.required] for name in EVENTS}
        compared = [f"{name} of direction {labels_of(which)}" for name, which in met.items() if which]
        agreement = "No difference of the laws shows"
        if self.theory != "sample":
            agreement = f"No tested direction leaves its band{significantly(leave(rows))}"
        save = f", save in direction {labels_of(near)}, predicted near the end of the runs" if near else ""
        return (
            f"{agreement} up to time {end:.3g} (global p = {p_value:.2g}), and an error of {100 * VISIBLE_ERROR:.0f} % "
            f"would have been seen in the {' and the '.join(compared)}{save}."
        )

    def _lacking(self, rows: Sequence[Row], p_value: float) -> str:
        """Return sentences on tests that were not possible, or did not decide."""
        missing = [row for row in rows if row.kind == RowKind.REQUIREMENT]
        if few := [row.cause for row in missing if row.quantity == USABLE]:
            return few[0]
        if lost := [row for row in rows if row.cause == CUT]:
            reason = self.simulation.attrs["stop_reason"]
            return f"The runs stopped early ({reason}), before direction {labels_of(lost)} could be tested."
        if doubts := " ".join(words for part in self.parts for words in _doubts(part.event, rows)):
            return doubts
        if missing:
            return missing[0].cause
        gaps, agreed = dict[tuple[str, str], list[Row]](), list[str]()
        for event in EVENTS.values():
            due = [row for row in rows if row.kind == event.noun and row.required]
            for row in due:
                if not row.agrees:
                    gaps.setdefault((row.cause, row.quantity), []).append(row)
            if count := sum(row.agrees for row in due):
                agreed.append(f"{count} of {len(due)} {'learned times' if event is LEARNING else 'directions'}")
        who = "The two samples" if self.theory == "sample" else "Theory and SGD"
        on = f"{who} agree on {' and '.join(agreed)} (global p = {p_value:.2g})."
        lacks = [_gap_sentence(cause, named(which)) for (cause, _), which in gaps.items()]
        return " ".join([on] * bool(agreed) + lacks)

    def _remarks(self) -> list[str]:
        """Return the sentences of the verdict after its first one, the reason.

        They are notes on the expected times, directions that are predicted never or after the runs (only if some
        emergence was tested), and a remark if theory and runs differ in their optimizer.
        """
        first, end = self.parts[0], float(self.simulation.attrs["end_time"])
        later = [words for part in self.parts if first.tested.any() for words in part.later(end)]
        return [*first.expected.notes, *later, *other_optimizer(self.prediction, self.simulation)]

    def verdict(self, problem: Problem) -> xr.DataTree:
        """Return the tree of the comparison: rows of evidence, sentences, variables of `time_variables`, attributes.

        Attributes count the tested directions, the runs that a larger error would need, runs that blew up, and have the
        sentences on loss and path.
        """
        path, first, sound = "Path: not compared.", self.parts[0], sound_runs(self.simulation)
        if self.path:
            worst = min(self.path, key=lambda test: test.p)
            farthest = f"of {len(self.path)} quantities the {worst.what} is farthest off, p = {worst.p:.2g}."
            path = f"Path, part of the verdict: {farthest}"
        lost = int(np.sum(~sound_runs(self.prediction))) if self.theory == "sample" else None
        rows = self.rows()
        return verdict_tree(
            rows,
            [self.reason(rows), *self._remarks(), *statement_of(rows)],
            time_variables(self.prediction, self.simulation, self.parts, self.loss, global_p_value(rows))
            | {"path_p_value": path_tests.path_p_value(self.path) if self.path else np.nan},
            problem=problem,
            prediction=self.prediction,
            simulations={"/simulation": self.simulation},
            rate=self.rate,
            theory=self.theory,
            usable=int(np.sum(sound)),
            blown_up=int(np.sum(~sound)),
            attributes={
                "tested_directions": int(first.tested.sum()),
                "runs_needed": self._runs_needed(),
                **self._loss_attributes(),
                "path_statement": path,
                "prediction_blown_up_count": lost,
            },
            coords={name: self.simulation[name].values for name in ("seed", "time")},
        )

    def _runs_needed(self) -> float:
        """Return the number of runs that see an error of 30 % in every awaited direction; inf if no number does."""
        count = sum(int(part.tested.sum()) for part in self.parts)
        level = (1.0 - PATH_SHARE) * self.rate / max(count, 1)
        return max(part.runs_needed(level) for part in self.parts if part.due.any() or part.event is not LEARNING)

    def _loss_attributes(self) -> dict[str, object]:
        """Return the counts and the sentence on the loss."""
        loss = self.loss
        if loss is None:
            return {"loss_in_verdict": False, "loss_statement": "Loss: not compared."}
        count, ranked = int(loss.loss_compared.sum()), bool(np.isfinite(loss.loss_p_value))
        attributes: dict[str, object] = {"loss_in_verdict": ranked, "loss_compared_times": count}
        if ranked:
            by_ranks = f"by ranks over {count} times, half of the rate of false alarms."
            return attributes | {"loss_statement": f"Loss: p = {loss.loss_p_value:.2g} {by_ranks}"}
        critical = path_tests.critical_score(count, self.rate)
        outside = int(np.count_nonzero(np.abs(loss.loss_z[loss.loss_compared]) > critical))
        statement = "Loss: not compared, no time lies on a plateau of all runs."
        if count:
            place = f"at {outside} of {count} times before {self.parts[0].event.noun}s and on plateaus."
            statement = f"Loss, beside the verdict: the mean leaves its band (±{critical:.1f} s.e.) {place}"
        return attributes | {"loss_outside": outside, "loss_critical_score": critical, "loss_statement": statement}


def _doubts(event: Event, rows: Sequence[Row]) -> Iterator[str]:
    """Yield sentences on directions whose event happened in some runs, although theory predicts none that early.

    `event` is emergence, alignment or learning, and `rows` are all rows of evidence. One sentence lists the directions
    for which the prediction ended without a time; then comes one sentence for each direction that is predicted after
    the end of the runs or never, with a number of runs that decides nothing.
    """
    had = [row for row in rows if row.kind == event.noun and row.value > 0.0 and np.isnan(row.z) and np.isnan(row.high)]
    if ended := [f"{row.label} ({row.value:.0f} of {row.runs:.0f} runs)" for row in had if np.isnan(row.time)]:
        yield f"The prediction ended before the runs, without {event.noun} of direction {', '.join(ended)}."
    few = ", too few to refute theory, too many to agree with it."
    yield from (count_sentence(row, few) for row in had if not np.isnan(row.time))


def _gap_sentence(cause: str, names: str) -> str:
    """Return a sentence on the cause for which awaited directions are not known to agree."""
    if cause == UNSEEN:
        return f"{UNSEEN} in {names}: {MORE_WORK}."
    return f"{cause}: {names}{'; use a smaller learning rate' if NOISE in cause else ''}."


def _named(directions: Switches) -> str:
    """Return the numbers of the marked directions as text, such as "1, 3"."""
    return ", ".join(str(p + 1) for p in np.flatnonzero(directions))


def against_theory(problem: Problem, prediction: xr.Dataset, simulation: xr.Dataset, rate: float) -> xr.DataTree:
    """Return the verdict on the times of emergence of every direction, and of learning if theory has them.

    `prediction` and `simulation` are datasets of `problem`, and `rate` is the rate of false alarms of the whole
    verdict. `PATH_SHARE` of it is for tests of starts and paths, and the rest is shared out among the times that theory
    predicts within the runs, before any run is seen. Where theory puts the event of a direction beyond the runs, the
    number of runs that have it is tested, else the mean logarithm of measured over predicted time against the band of
    the theory. P-values are multiplied by the inverse of their share, so that each is compared with `rate`. The loss is
    reported beside the verdict.
    """
    attrs = simulation.attrs
    end, noise_of_step = float(attrs["end_time"]), float(attrs["effective_learning_rate"]) / int(attrs["batch_size"])
    emergence = expectation(problem, prediction, noise_of_step)
    expected = {event_of(simulation): emergence}
    # Single neurons have learned times.
    single = is_homogeneous(problem) or is_correlation(problem)
    if single and tell_alike("learned_time", (prediction, simulation)):
        expected[LEARNING] = learned_expectation(problem, prediction, noise_of_step, emergence, end)
    counts = {e: count_tests(problem, prediction, simulation, e, x, noise_of_step) for e, x in expected.items()}
    # Times that theory predicts, inf beyond the runs, NaN for untested directions; all are known before any run.
    due = []
    for event, prospect in expected.items():
        when = np.where(np.isfinite(prospect.high) | ~np.isinf(prospect.low), prospect.time, np.nan)
        when[[p for p, count in counts[event].items() if np.isfinite(count.p)]] = np.inf
        due.append(when)
    shares = np.split(time_tests.shares_of_rate(np.concatenate(due), end), len(expected))
    noise, level = time_tests.noise_of_runs(problem, simulation), (1.0 - PATH_SHARE) * rate
    parts, p_values = list[EventTests](), list[Array]()
    for (event, prospect), share in zip(expected.items(), shares, strict=True):
        tests = _tests_of_times(simulation, event, prospect, level * share, noise)
        tests = [None if p in counts[event] else test for p, test in enumerate(tests)]
        awaited = prospect.time * (1.0 + VISIBLE_ERROR) <= end
        parts.append(EventTests(event, prospect, tests, awaited, tuple(counts[event].values())))
        with np.errstate(invalid="ignore"):
            p_values.append(np.minimum(1.0, parts[-1].p_values / share / (1.0 - PATH_SHARE)))
    starts = tests_of_starts(problem, prediction, simulation)
    paths = path_tests.tests_of_paths(prediction, simulation, emergence, noise)
    scatters = tests_of_scatter(prediction, simulation)
    total, shared = len(starts) + len(paths) + count_of(scatters), {RowKind.START: starts, RowKind.PATH: paths}.items()
    others = [row for kind, tests in shared for row in rows_of_paths(tests, rate, kind, total, PATH_SHARE)]
    return TimesTests(
        prediction=prediction,
        simulation=simulation,
        rate=rate,
        theory="finite step" if has_step(prediction) else "flow",
        parts=parts,
        p_values=p_values,
        loss=_loss_against_theory(prediction, simulation, emergence.time),
        others=[*others, *(test.row(rate, total, PATH_SHARE) for test in scatters)],
        path=[*starts, *paths],
    ).verdict(problem)


def _tests_of_times(
    simulation: xr.Dataset, event: Event, expected: Expectation, levels: Array, noise: Array
) -> list[TimeTest | None]:
    """Return the test of every direction that has a predicted time and a bounded band, None for the others."""
    measured, end = of_sound_runs(simulation, event.variable), float(simulation.attrs["end_time"])
    tests: list[TimeTest | None] = [None] * expected.time.size
    bounded = ~(np.isinf(expected.low) & np.isinf(expected.high))
    for p in np.flatnonzero(np.isfinite(expected.time) & bounded & (end > 0)).tolist():
        # A direction that emerges at step 0 has the ratio 0; the clip keeps its logarithm finite.
        logs = np.log(np.maximum(measured[:, p] / expected.time[p], 1e-12))
        band, horizon = (float(expected.low[p]), float(expected.high[p])), float(np.log(end / expected.time[p]))
        explained = noise[:, p] if expected.isolated[p] else None
        test = time_tests.assess_direction(logs, horizon, *band, float(levels[p]), explained)
        tests[p] = None if test is None or test.early is None is test.late else test
    return tests


def _loss_against_theory(prediction: xr.Dataset, simulation: xr.Dataset, time: Array) -> LossBand | None:
    """Return the comparison of the mean loss of the runs with the predicted one, or None without a predicted loss.

    `time` (P,) are the predicted times of emergence. The runs' measured times over these say how much earlier or later
    the curve of a run may be than the predicted one.
    """
    if "loss" not in prediction or "time" not in prediction["loss"].dims or not sound_runs(simulation).any():
        return None
    due = time <= float(simulation.attrs["end_time"])
    ratio = (of_sound_runs(simulation, "emergence_time") / time)[:, due]
    slowest = np.where(np.isnan(ratio), np.inf, ratio).max(axis=1, initial=1.0)
    fastest = np.maximum(np.where(np.isnan(ratio), 1.0, ratio).min(axis=1, initial=1.0), 1e-12)
    ours = simulation["time"].values, of_sound_runs(simulation, "loss")
    theirs = prediction["time"].values, np.asarray(prediction["loss"].values, dtype=np.float64)
    return path_tests.against_curve(*ours, *theirs, fastest, slowest, float(np.nanmin(time, initial=np.inf)))


def count_tests(
    problem: Problem, prediction: xr.Dataset, simulation: xr.Dataset, event: Event, expected: Expectation, rate: float
) -> dict[int, CountTest]:
    """Return the tests of the numbers of runs that have an event which theory puts beyond them, by direction.

    `event` is emergence or learning, `expected` its times and bands by direction, and `rate` the learning rate over the
    batch size. A direction is tested if the early end of its band lies beyond the end of the runs, and either theory
    has a time for it or some runs have the event. Where time, band and scatter are known, the share of runs that may
    have it is 1/(1 + x²), x being the distance of the band from the end in standard deviations, at least 0.01 and at
    most ½; else it is ½, and how far noise alone may move an overlap is noted. The p-value is the binomial chance of as
    many runs or more. No direction is tested with fewer than `FEWEST_RUNS` runs.
    """
    end, tests = float(simulation.attrs["end_time"]), dict[int, CountTest]()
    measured = of_sound_runs(simulation, event.variable)
    runs, having = measured.shape[0], np.count_nonzero(np.isfinite(measured), axis=0)
    if runs < FEWEST_RUNS or not end > 0.0:
        return tests
    integrated = "time" in prediction.coords and "stop_reason" in prediction.attrs
    times = _times_beyond(prediction, event, end, integrated=integrated)
    due = ~(expected.time * np.exp(np.where(np.isfinite(expected.low), expected.low, -LEAST_EDGE)) <= end)
    due &= (~np.isnan(times) | integrated) & (times != 0.0)
    if event is LEARNING:
        due &= np.isfinite(expected.low) | ~(times <= end * (1.0 + VISIBLE_ERROR))
    for p in np.flatnonzero(due & (~np.isnan(times) | (having > 0))).tolist():
        time, low, scatter, n = float(times[p]), float(expected.low[p]), float(expected.scatter[p]), int(having[p])
        tests[p] = CountTest(p, event, time, n, runs)
        if np.isnan(time):
            continue
        told, share = bool(np.isfinite([time, low, scatter]).all()), 0.5
        if told:
            far = max(low - float(np.log(end / time)), 0.0) / max(scatter, 1e-12)
            share = float(np.clip(1.0 / (1.0 + far**2), 0.01, 0.5))
        reach = reach_of_noise(problem, rate, p, end) if n and not told else (np.nan, np.nan)
        chance = float(special.bdtrc(n - 1, runs, share)) if n else 1.0
        allowed, wide = (share, np.nan) if told else (np.nan, scatter)
        tests[p] = CountTest(p, event, time, n, runs, allowed, chance, *reach, wide)
    return tests


def _times_beyond(prediction: xr.Dataset, event: Event, end: float, *, integrated: bool) -> Array:
    """Return the predicted times (P,) of an event: inf for never, NaN where the theory does not say.

    Where an integrated prediction (`integrated`) lasts as long as the runs, to `end`, or reached a steady state,
    directions without a time get that of their pair alone, but at least `end`. An integrated prediction that ended
    before keeps NaN; one by formulas takes the formula's time.
    """
    time = np.asarray(prediction[event.variable].values, dtype=np.float64)
    pairs = prediction.get(f"predicted_{event.variable}")
    alone = np.full(time.size, np.inf) if pairs is None else np.asarray(pairs.values, dtype=np.float64)
    if integrated:
        steady = prediction.attrs["stop_reason"] == "steady_state"
        if not steady and float(prediction.attrs["end_time"]) < end * (1.0 - 1e-9):
            return time
        alone = np.maximum(np.where(np.isnan(alone), np.inf, alone), end)
    return np.where(np.isnan(time), alone, time)


def reach_of_noise(problem: Problem, rate: float, p: int, end: float) -> tuple[float, float]:
    """Return how far noise alone may move an overlap with direction p until `end`, and the move that suffices.

    The overlap is the largest one of neurons that learn no other direction. The first number is the standard deviation
    of its random walk at the noise `rate`, learning rate over batch size, at most d^(−½); the second is what it lacks
    for the flow to let it emerge before `end`. Both are NaN where that is unknown: coupled directions, inputs of a
    spectrum, no free neuron.
    """
    unknown = (np.nan, np.nan)
    if not decouples(problem) or problem.inputs is not None:
        return unknown
    pairs = theory.predict(problem)
    emerges = np.isfinite(pairs.predicted_emergence_time) & (np.arange(problem.num_directions) != p)
    free = np.setdiff1d(np.arange(problem.width), pairs.matched_neuron[emerges])
    if free.size == 0 or theory.escape_bias(problem, rate, pairs).notes:
        return unknown
    a, overlap = problem.teacher.coefficients, problem.start().teacher_overlap[free, p]
    nearest = (overlap if problem.information_exponent % 2 else np.abs(overlap)).max(keepdims=True)
    emerged = np.sqrt(problem.emergence_level)
    grid = np.linspace(0.0, emerged, 2001)[1:]
    from_there = transit_time(problem.activation.coefficients, grid, emerged) / a[p]
    needed = float(np.min(grid[from_there <= end], initial=emerged) - nearest[0])
    learned = np.where(np.isfinite(pairs.predicted_learned_time), pairs.predicted_learned_time, end)
    unlearned = np.minimum(learned / end, 1.0) * a**2
    unlearned[p] = a[p] ** 2
    _, diffusion = SearchNoise(problem, total=float(unlearned.sum()))(nearest, a[p : p + 1])
    return min(float(np.sqrt(rate * diffusion[0] * end)), problem.dimension**-0.5), needed


def against_runs(problem: Problem, prediction: xr.Dataset, simulation: xr.Dataset, rate: float) -> xr.DataTree:
    """Return the verdict on whether two samples of runs have one law, of the times of emergence and of the losses.

    `prediction` and `simulation` are runs, such as of two engines, and `rate` is the rate of false alarms, shared
    evenly between times and losses and then among directions. Times are cut at the earlier end of both; those of a
    direction that some run has are compared by log-rank scores, whose p-values come from permutations of the runs
    between both samples.
    """
    theirs, ours = of_sound_runs(prediction, "emergence_time"), of_sound_runs(simulation, "emergence_time")
    horizon = min(float(dataset.attrs["end_time"]) for dataset in (prediction, simulation))
    both = time_tests.cut_at(np.concatenate([theirs, ours]), horizon)
    second = np.arange(both.shape[0]) >= theirs.shape[0]
    tested = np.flatnonzero(np.isfinite(both).any(axis=0)).tolist()
    ranks = [time_tests.log_rank_scores(both[:, p], horizon) for p in tested]
    scores = np.array(ranks).reshape(len(tested), len(both)).T
    (chances, among), loss = time_tests.permutation_test(scores, second), None
    if "loss" in prediction and second.any() and not second.all():
        losses = [(part["time"].values, of_sound_runs(part, "loss")) for part in (simulation, prediction)]
        loss = path_tests.against_sample(*losses[0], *losses[1], float(np.nanmin(both, initial=np.inf)))
    of_loss = [] if loss is None or np.isnan(loss.loss_p_value) else [loss.loss_p_value]
    # Times and loss are two families of tests that share the rate of false alarms evenly.
    level = rate / ((1 + len(of_loss)) * max(len(tested), 1))
    tests: list[TimeTest | None] = [None] * ours.shape[1]
    for p, chance in zip(tested, chances.tolist(), strict=True):
        tests[p] = time_tests.assess_samples(both[~second, p], both[second, p], horizon, chance, level)
    awaited, p_values = np.array([test is not None for test in tests]), np.full(len(tests), np.nan)
    if awaited.any():
        p_values[tested] = np.minimum(1.0, (1 + len(of_loss)) * among)
    # The first time at which at most half of the predicted runs are without emergence, if it is within these.
    late = np.sort(np.where(np.isnan(theirs), np.inf, theirs), axis=0)
    medians = late[(late.shape[0] - 1) // 2] if late.size else np.full(ours.shape[1], np.nan)
    medians = np.where((medians > 0) & (medians <= float(prediction.attrs["end_time"])), medians, np.nan)
    expected = Expectation.uniform(medians, delay=0.0, scatter=log_scatter(theirs), low=0.0, high=0.0)
    return TimesTests(
        prediction=prediction,
        simulation=simulation,
        rate=rate,
        theory="sample",
        parts=[EventTests(event_of(simulation), expected, tests, awaited)],
        p_values=[p_values],
        loss=loss,
        others=_row_of_ranks(simulation, loss, rate) if loss is not None and of_loss else (),
    ).verdict(problem)


def _row_of_ranks(simulation: xr.Dataset, loss: LossBand, rate: float) -> list[Row]:
    """Return the evidence of the loss, which shares the rate of false alarms with the times, as one row."""
    at = int(np.nanargmax(np.abs(loss.loss_z)))
    time, z, p_value = float(simulation["time"].values[at]), float(loss.loss_z[at]), min(1.0, 2.0 * loss.loss_p_value)
    return [judged(rate, quantity="loss", kind=RowKind.RANKS, p_value=p_value, seen=True, time=time, z=z)]


def log_scatter(times: Array) -> Array:
    """Return the standard deviation of ln T over the runs, shape (P,), NaN where a run has none."""
    if times.shape[0] < 2:
        return np.full(times.shape[1], np.nan)
    return np.asarray(np.std(np.log(np.maximum(times, 1e-300)), axis=0, ddof=1))


def time_variables(
    prediction: xr.Dataset, simulation: xr.Dataset, parts: list[EventTests], loss: LossBand | None, p_value: float
) -> dict[str, object]:
    """Return the variables of a comparison by name: by direction (P,), and over the times of the simulation.

    `parts` are the tests of emergence and, if theory has them, of learning; `loss` is the comparison of losses, or
    None, and `p_value` that of the verdict. By direction are measured over predicted times (seeds, P), prediction,
    expected delay and scatter, band, mean log ratio with error, z, p-value and power of the test, and counts of
    censored runs. Over the times are Kaplan–Meier estimates of the share of runs without emergence with their interval,
    the share that theory predicts, from its own sample where the prediction has seeds, and the losses.
    """
    first, *later = parts
    expected, times, sound = first.expected, simulation["time"].values, sound_runs(simulation)
    measured = of_sound_runs(simulation, "emergence_time")
    end = float(simulation.attrs["end_time"])
    curves = [time_tests.kaplan_meier(sample, end, times) for sample in measured.T]
    if "seed" in prediction.dims:
        end, samples = float(prediction.attrs["end_time"]), of_sound_runs(prediction, "emergence_time").T
        predicted = [time_tests.kaplan_meier(sample, end, times)[0] for sample in samples]
    else:
        laws = zip(expected.time, expected.lateness, expected.scatter, strict=True)
        predicted = [time_tests.expected_survival(*law, times) for law in laws]
    values = {
        "emergence_ratio": np.where(sound[:, None], simulation["emergence_time"].values, np.nan) / expected.time,
        "emergence_time": expected.time,
        "expected_delay": expected.delay,
        "expected_lateness": expected.lateness,
        "expected_scatter": expected.scatter,
        "band_low": first.column(lambda test: test.low),
        "band_high": first.column(lambda test: test.high),
        "mean_log_ratio": first.column(lambda test: test.mean),
        "standard_error": first.column(lambda test: test.standard_error),
        "log_scatter": log_scatter(measured),
        "z_score": first.column(lambda test: test.z),
        "direction_p_value": first.p_values,
        "early_power": first.column(lambda test: test.early_power),
        "late_power": first.column(lambda test: test.late_power),
        "visible_error": first.column(lambda test: test.visible),
        "censored_count": np.sum(simulation["censored"].values[sound] != 0, axis=0),
        "p_value": p_value,
        "loss_p_value": np.nan,
        "path_p_value": np.nan,
        **dict(zip(("survival", "survival_low", "survival_high"), np.stack(curves, axis=1), strict=True)),
        "predicted_survival": np.array(predicted),
    }
    for part in later:
        values |= {"learned_z_score": part.column(lambda test: test.z), "learned_p_value": part.p_values}
        values["learned_visible_error"] = part.column(lambda test: test.visible)
    if loss is not None:
        values |= loss._asdict() | {"loss_compared": loss.loss_compared.astype(np.int8)}
    return values
