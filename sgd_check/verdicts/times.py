r"""Evidence of times: every direction's time of emergence or learning against theory, or against a sample of runs.

*Directions beyond the runs.* A predicted time T beyond the end H of the runs allows a share q of them to be before H.
Where theory knows the scatter s of ln T, and e is the least mean of ln(T_SGD/T) that it allows, that is

.. math:: q = \min\Big(\frac12, \frac{1}{1 + x^2}\Big), \qquad x = \frac{e - \ln(H/T)}{s},

½ for a symmetric law about a place beyond H, the other for any law of this mean and scatter (Cantelli); at least 1 %,
since no law is known farther out. Where theory has no scatter, or no time at all, q is ½: most of the runs should not
have the direction. The number of the n runs that have it is tested by the tail of the binomial law. A prediction that
ended before the runs says nothing of later times, and is not tested.

*Noise.* Flow and finite-step equation leave the fluctuations of the steps out. In the time H they move an overlap C by
√(η D(C) H), D as of `dynamics.theory.escape_bias` without the directions that theory has learned, and at most by 1/√d,
the overlaps of random directions. If a free neuron lacks no more than that to the overlap at which the flow alone would
still emerge within H, noise carries runs over, and the sentence of the verdict says so. Where ln T scatters by more
than 1 noise decides when a direction emerges, and the sentence says that.

*A sample of predicted runs.* The null hypothesis is one law for both samples (`sgd_check.verdicts.time_tests`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from dynamics.problem import EMERGENCE_LEVEL, decouples
from sgd_check.verdicts.alignment import (
    LEARNING,
    Event,
    event_of,
    has_step,
    noise_rate,
    of_sound_runs,
    sound_runs,
    unfinished,
)
from sgd_check.verdicts.expectation import (
    NOISE_DECIDES,
    Expectation,
    expectation,
    has_learned_times,
    learned_expectation,
)
from sgd_check.verdicts.path_tests import (
    PATH_SHARE,
    LossBand,
    PathTest,
    critical_score,
    loss_against_sample,
    loss_against_theory,
    path_p_value,
    path_tests,
)
from sgd_check.verdicts.time_tests import (
    TimeTest,
    assess_direction,
    assess_samples,
    combined_p_value,
    cut_at,
    expected_survival,
    kaplan_meier,
    log_rank_scores,
    median_time,
    noise_of_runs,
    permutation_test,
    shares_of_rate,
)
from sgd_check.verdicts.verdict import FEWEST_RUNS, MORE_WORK, VISIBLE_ERROR, Evidence, Sentences, side_of, too_few

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array

#: Share of runs that any law may have far from its middle.
LEAST_SHARE = 0.01
#: How early the mean of ln T may be where theory does not say: an error that is to be seen.
LEAST_EDGE = float(np.log1p(VISIBLE_ERROR))
_OVERLAPS = 2001


class CountTest(NamedTuple):
    """The number of runs that have a direction by their end though theory puts it beyond.

    `time` is the predicted one, inf for never, and NaN where the prediction ended before the runs: it is not tested
    then, and p is NaN. `share` is the largest share of runs that theory allows, and `told` whether theory has a scatter
    from which that follows. The noise of the steps moves an overlap by `moved` until the end of the runs, and `needed`
    is enough; `scatter` is that of ln T. They are NaN where theory does not say, or the share has it.
    """

    direction: int
    event: Event
    time: float
    having: int
    runs: int
    share: float = np.nan
    told: bool = False
    p: float = np.nan
    moved: float = np.nan
    needed: float = np.nan
    scatter: float = np.nan

    def sentence(self, end: str) -> str:
        """Return how many runs have the direction, the prediction, an end, and whether noise is the cause."""
        when = "never" if np.isinf(self.time) else f"at {self.time:.3g}, after the end of the runs"
        found, cause = f"{self.having} of {self.runs} runs {self.event.past}", ""
        noise = "The noise of the steps, which this theory leaves out,"
        if self.scatter > NOISE_DECIDES:
            decides = f"decides when it {self.event.present}"
            cause = f"{noise} {decides}, and scatters the logarithm of the time by more than 1."
        elif self.moved >= self.needed > 0.0:
            moves = f"until the end of the runs it moves an overlap by {self.moved:.2g}"
            cause = f"{noise} carries runs over: {moves}, and {self.needed:.2g} is enough."
        return f"Direction {self.direction + 1}, predicted {when}: {found}{end} {cause}".rstrip()


class EventTests(NamedTuple):
    """The tests of the times of one event.

    `tests` are None for directions that were not tested. Without the full test of the `awaited` directions (P,),
    predicted so early that 30 % later is still within the runs, nothing agrees. `counts` are of directions that theory
    puts beyond the runs.
    """

    event: Event
    expected: Expectation
    tests: list[TimeTest | None]
    awaited: NDArray[np.bool_]
    counts: tuple[CountTest, ...] = ()

    @property
    def tested(self) -> NDArray[np.bool_]:
        """Directions (P,) whose times were tested."""
        return np.array([test is not None for test in self.tests], dtype=bool)

    def column(self, name: str) -> Array:
        """Return an attribute of the test of every direction (P,), NaN where it was not tested."""
        return np.array([np.nan if test is None else getattr(test, name) for test in self.tests], dtype=np.float64)

    @property
    def p_values(self) -> Array:
        """The two-sided p-value of every direction (P,), NaN where it was not tested."""
        found = self.column("p")
        found[[one.direction for one in self.counts]] = [one.p for one in self.counts]
        return found

    @property
    def unresolved(self) -> NDArray[np.bool_]:
        """Directions (P,) in which an error of 30 % could have gone unseen."""
        return np.asarray(self.column("resolved") != 1.0)

    @property
    def due(self) -> NDArray[np.bool_]:
        """Awaited directions (P,) for which theory has a band, or noise decides."""
        return self.awaited if self.event is not LEARNING else self.awaited & np.isfinite(self.expected.low)

    @property
    def what(self) -> str:
        """Words before the number of a direction in sentences."""
        return "learned time of direction" if self.event is LEARNING else "direction"


@dataclass(frozen=True, kw_only=True)
class TimesTests:
    """The tests of times at a `rate` of false alarms, against the theory "flow", "finite step" or "sample".

    `parts` are of times of emergence and, where these are compared, of learned times. `loss` is None where the
    prediction has no loss, or no run is usable; it enters the verdict if its p is a number. `path` has the tests that
    do not depend on times, and `by_path` says whether they differ more. `p_value` is that of all.
    """

    prediction: xr.Dataset
    simulation: xr.Dataset
    rate: float
    theory: str
    p_value: float
    parts: list[EventTests]
    loss: LossBand | None
    path: Sequence[PathTest] = ()
    by_path: bool = False

    @property
    def end(self) -> float:
        """End of the runs."""
        return float(self.simulation.attrs["end_time"])

    def sentences(self) -> Sentences:
        """Return what the tests say."""
        lacking = (
            too_few(int(np.sum(sound_runs(self.simulation))))
            or self._cut_off()
            or " ".join(filter(None, map(_doubtful, self.parts)))
            or self._nothing_awaited()
            or self._partial_agreement()
        )
        return Sentences(
            difference=self._difference() if self.p_value < self.rate else "",
            lacking=lacking,
            agreement=self._agreement(),
            remarks=[*self.parts[0].expected.notes, *(self._later() if self.parts[0].tested.any() else [])],
        )

    def _difference(self) -> str:
        end = f"(global p = {self.p_value:.2g} < {self.rate:g})."
        if self.by_path:
            off = min(self.path, key=lambda test: test.p)
            return f"The {off.what} is {side_of(off.score)} than predicted, z = {off.score:.1f} {end}"
        least = [float(np.nanmin(one.p_values, initial=np.inf)) for one in self.parts]
        if self.loss is not None and self.loss.p < min(least):
            at = int(np.nanargmax(np.abs(self.loss.z)))
            time, z = float(self.simulation["time"].values[at]), self.loss.z[at]
            return f"The loss is {side_of(z)} than predicted, most at time {time:.3g}, z = {z:.1f} {end}"
        farthest = self.parts[int(np.argmin(least))]
        worst = int(np.nanargmin(farthest.p_values))
        test = farthest.tests[worst]
        if test is None:
            return next(one for one in farthest.counts if one.direction == worst).sentence(f" {end}")
        side = "late" if test.z > 0 else "early"
        return f"Direction {worst + 1} {farthest.event.present} {side}, z = {test.z:.1f} {end}"

    def _cut_off(self) -> str:
        """Return which predicted directions could not be tested because the runs stopped early; empty if none."""
        first, reason = self.parts[0], self.simulation.attrs["stop_reason"]
        cut_off = first.unresolved & np.isfinite(first.expected.time) & ~(first.awaited & first.tested)
        if reason == "reached_end" or not cut_off.any():
            return ""
        return f"The runs stopped early ({reason}), before direction {_named(cut_off)} could be tested."

    def _nothing_awaited(self) -> str:
        """Return that no emergence is predicted well before the end of the runs; empty if one is."""
        first = self.parts[0]
        if first.awaited.any():
            return ""
        predicted = "" if self.theory == "sample" else unfinished("The prediction", self.prediction)
        if early := unfinished("The runs", self.simulation) or predicted:
            return f"{early}, before any direction could be tested."
        soonest = np.min(first.expected.time, initial=np.inf, where=np.isfinite(first.expected.time))
        when = f", and the first one is predicted at {soonest:.3g}" if np.isfinite(soonest) else ""
        return (
            f"No direction could be tested: none is predicted to {first.event.verb} well before the end of the runs, "
            f"at time {self.end:.3g}{when}."
        )

    def _partial_agreement(self) -> str:
        """Return on how many of the awaited directions there is agreement, and the gaps of the others; empty if all."""
        gaps = [_gaps(one) for one in self.parts]
        lacks = [words.format(_numbered(which)) for found in gaps for words, which in found.items()]
        if not lacks:
            return ""
        agreed = []
        for one, found in zip(self.parts, gaps, strict=True):
            due, kind = int(one.due.sum()), "learned times" if one.event is LEARNING else "directions"
            if count := due - sum(map(len, found.values())):
                agreed.append(f"{count} of {due} {kind}")
        who = "The two samples" if self.theory == "sample" else "Theory and SGD"
        first = f"{who} agree on {' and '.join(agreed)} (global p = {self.p_value:.2g})."
        return " ".join([first] * bool(agreed) + lacks)

    def _agreement(self) -> str:
        """Return the tested directions, save those that the runs reach, but not 30 % later."""
        first = self.parts[0]
        near = first.unresolved & (first.tested | (first.expected.time <= self.end))
        met = [(one, one.awaited & ~one.unresolved) for one in self.parts]
        compared = [f"{one.event.noun} of direction {_named(which)}" for one, which in met if which.any()]
        none = "No difference of the laws shows" if self.theory == "sample" else "No tested direction leaves its band"
        save = f", save in direction {_named(near)}, predicted near the end of the runs" if near.any() else ""
        return (
            f"{none} up to time {self.end:.3g} (global p = {self.p_value:.2g}), and an error of "
            f"{100 * VISIBLE_ERROR:.0f} % would have been seen in the {' and the '.join(compared)}{save}."
        )

    def _later(self) -> Iterator[str]:
        """Yield the sentences on directions that are predicted never or after the runs: counted ones, and others."""
        for one in self.parts:
            time = one.expected.time
            beyond, counted = ~one.tested & ~(time <= self.end), np.zeros(time.size, dtype=bool)
            counted[[each.direction for each in one.counts if np.isfinite(each.p)]] = True
            first = np.min(time, initial=np.inf, where=beyond & np.isfinite(time))
            after = f", the first at {first:.3g}" if np.isfinite(first) else ""
            if (beyond & counted).any():
                which = f"{one.what} {_named(beyond & counted)}"
                yield f"Only counted, since predicted never or beyond the horizon{after}: {which}."
            if (beyond & ~counted).any():
                yield f"Not tested, since no time is predicted for it: {one.what} {_named(beyond & ~counted)}."

    def evidence(self, problem: Problem) -> Evidence:
        """Return the evidence of the tests."""
        path, first, sound = "Path: not compared.", self.parts[0], sound_runs(self.simulation)
        if self.path:
            worst = min(self.path, key=lambda test: test.p)
            farthest = f"of {len(self.path)} quantities the {worst.what} is farthest off, p = {worst.p:.2g}."
            path = f"Path, part of the verdict: {farthest}"
        lost = int(np.sum(~sound_runs(self.prediction))) if self.theory == "sample" else None
        return Evidence(
            problem=problem,
            prediction=self.prediction,
            simulations={"/simulation": self.simulation},
            rate=self.rate,
            theory=self.theory,
            usable=int(np.sum(sound)),
            blown_up=int(np.sum(~sound)),
            sentences=self.sentences(),
            values=time_variables(self.prediction, self.simulation, self.theory, self.parts, self.loss, self.p_value)
            | {"path_p_value": path_p_value(self.path) if self.path else np.nan},
            labels={"coords": {name: self.simulation[name].values for name in ("seed", "time")}},
            attributes={
                "tested_directions": int(first.tested.sum()),
                **_loss_attributes(self.loss, self.rate, first.event),
                "path_statement": path,
                "prediction_blown_up_count": lost,
            },
        )


def _loss_attributes(loss: LossBand | None, rate: float, event: Event) -> dict[str, Any]:
    """Return the counts and the sentence on the loss."""
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


def _doubtful(one: EventTests) -> str:
    """Return which directions theory puts beyond its end, or the runs', and runs have; empty if there is none."""
    had = [each for each in one.counts if each.having]
    ended = [f"{each.direction + 1} ({each.having} of {each.runs} runs)" for each in had if np.isnan(each.time)]
    beyond = f"The prediction ended before the runs, without {one.event.noun} of direction {', '.join(ended)}."
    few = ", too few to refute theory, too many to agree with it."
    found = [each.sentence(few) for each in had if np.isfinite(each.p) and not each.told]
    return " ".join([beyond] * bool(ended) + found)


def _gaps(one: EventTests) -> dict[str, list[int]]:
    """Return the awaited directions that are not known to agree, by the sentence on them."""
    found: dict[str, list[int]] = {}
    event, what = one.event, one.what
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
            words = f"An error of {100 * VISIBLE_ERROR:.0f} % could have gone unseen in {what} {{}}: {MORE_WORK}."
        else:
            continue
        found.setdefault(words, []).append(p)
    return found


def _named(directions: NDArray[np.bool_]) -> str:
    return _numbered(np.flatnonzero(directions).tolist())


def _numbered(directions: list[int]) -> str:
    return ", ".join(str(p + 1) for p in directions)


def against_theory(problem: Problem, prediction: xr.Dataset, simulation: xr.Dataset, rate: float) -> Evidence:
    """Test the predicted times of every direction, of emergence and where theory knows them of learning."""
    noise_of_step, end = noise_rate(simulation), float(simulation.attrs["end_time"])
    emergence = expectation(problem, prediction, noise_of_step)
    expected = {event_of(simulation): emergence}
    if has_learned_times(problem, prediction, simulation):
        expected[LEARNING] = learned_expectation(problem, prediction, noise_of_step, emergence, end)
    counts = {e: count_tests(problem, prediction, simulation, e, x, noise_of_step) for e, x in expected.items()}
    # When theory puts every direction, inf beyond the runs, NaN where it is not tested: known before any run.
    due = [
        np.where(
            [one is not None and np.isfinite(one.p) for one in counts[event]],
            np.inf,
            np.where(np.isfinite(each.high) | ~np.isinf(each.low), each.time, np.nan),
        )
        for event, each in expected.items()
    ]
    shares = dict(zip(expected, np.split(shares_of_rate(np.concatenate(due), end), len(expected)), strict=True))
    noise, level = noise_of_runs(problem, simulation), (1.0 - PATH_SHARE) * rate
    parts = [
        EventTests(
            event,
            each,
            _tests_of_times(simulation, event, each, counts[event], level * shares[event], noise),
            each.time * (1.0 + VISIBLE_ERROR) <= end,
            tuple(one for one in counts[event] if one is not None),
        )
        for event, each in expected.items()
    ]
    by_time = min(combined_p_value(one.p_values, shares[one.event]) for one in parts) / (1.0 - PATH_SHARE)
    path = path_tests(prediction, simulation, emergence, noise)
    by_path = path_p_value(path) / PATH_SHARE
    return TimesTests(
        prediction=prediction,
        simulation=simulation,
        rate=rate,
        theory="finite step" if has_step(prediction) else "flow",
        p_value=min(1.0, by_time, by_path),
        parts=parts,
        loss=loss_against_theory(prediction, simulation, emergence.time, emergence_ratio(simulation, emergence.time)),
        path=path,
        by_path=by_path < by_time,
    ).evidence(problem)


def _tests_of_times(
    simulation: xr.Dataset,
    event: Event,
    expected: Expectation,
    counts: list[CountTest | None],
    levels: Array,
    noise: Array,
) -> list[TimeTest | None]:
    """Test every direction that theory puts within the runs, or near their end, against its one predicted time."""
    measured, end = of_sound_runs(simulation, event.variable), float(simulation.attrs["end_time"])
    tests: list[TimeTest | None] = [None] * expected.time.size
    for p in np.flatnonzero(np.isfinite(expected.time) & (end > 0)).tolist():
        band = float(expected.low[p]), float(expected.high[p])
        if counts[p] is not None or np.isinf(band).all():
            continue
        # A direction that is out at step 0 has no ratio to speak of; the clip keeps its logarithm finite.
        logs = np.log(np.maximum(measured[:, p] / expected.time[p], 1e-12))
        log_horizon = float(np.log(end / expected.time[p]))
        explained = noise[:, p] if expected.isolated[p] else None
        test = assess_direction(logs, log_horizon, *band, float(levels[p]), explained)
        tests[p] = None if test is None or test.early is None is test.late else test
    return tests


def count_tests(
    problem: Problem, prediction: xr.Dataset, simulation: xr.Dataset, event: Event, expected: Expectation, rate: float
) -> list[CountTest | None]:
    """Return by direction the test of the number of runs that have it, None where theory puts it within the runs.

    Nothing is counted of too few runs, of a direction that is out at the start, and of learned times that theory has
    without a scatter at most 30 % beyond the runs. `rate` is learning rate over batch size.
    """
    end = float(simulation.attrs["end_time"])
    measured = of_sound_runs(simulation, event.variable)
    runs, found = measured.shape[0], list[CountTest | None]([None] * measured.shape[1])
    if runs < FEWEST_RUNS or not end > 0.0:
        return found
    having = np.count_nonzero(np.isfinite(measured), axis=0)
    times, edges = _times_beyond(prediction, event, end), np.where(np.isfinite(expected.low), expected.low, -LEAST_EDGE)
    with np.errstate(invalid="ignore"):
        due = ~(expected.time * np.exp(edges) <= end)
    due &= (~np.isnan(times) | _is_integrated(prediction)) & (times != 0.0)
    if event is LEARNING:
        due &= np.isfinite(expected.low) | ~(times <= end * (1.0 + VISIBLE_ERROR))
    for p in np.flatnonzero(due & (~np.isnan(times) | (having > 0))).tolist():
        time, low, scatter, n = float(times[p]), float(expected.low[p]), float(expected.scatter[p]), int(having[p])
        test = CountTest(p, event, time, n, runs)
        if not np.isnan(time):
            told, share = bool(np.isfinite([time, low, scatter]).all()), 0.5
            if told:
                far = max(low - float(np.log(end / time)), 0.0) / max(scatter, 1e-12)
                share = float(np.clip(1.0 / (1.0 + far**2), LEAST_SHARE, 0.5))
            elif n:
                moved, needed = reach_of_noise(problem, rate, p, end)
                test = test._replace(moved=moved, needed=needed)
            chance = float(special.bdtrc(n - 1, runs, share)) if n else 1.0
            test = test._replace(share=share, told=told, p=chance, scatter=np.nan if told else scatter)
        found[p] = test
    return found


def _times_beyond(prediction: xr.Dataset, event: Event, end: float) -> Array:
    """Return the predicted times (P,): inf for never, NaN where the prediction ended before the runs or has no formula.

    Where it ended with the runs or after them, the time of the pair alone is taken, beyond the end.
    """
    time = np.asarray(prediction[event.variable].values, dtype=np.float64)
    pairs = prediction.get(f"predicted_{event.variable}")
    alone = np.full(time.size, np.inf) if pairs is None else np.asarray(pairs.values, dtype=np.float64)
    if _is_integrated(prediction):
        reached = prediction.attrs["stop_reason"] == "steady_state"
        if not reached and float(prediction.attrs["end_time"]) < end * (1.0 - 1e-9):
            return time
        alone = np.maximum(np.where(np.isnan(alone), np.inf, alone), end)
    return np.where(np.isnan(time), alone, time)


def _is_integrated(prediction: xr.Dataset) -> bool:
    """Return whether times are those of an integration up to an end, and not of a formula."""
    return "time" in prediction.coords and "stop_reason" in prediction.attrs


def reach_of_noise(problem: Problem, rate: float, p: int, end: float) -> tuple[float, float]:
    """Return by how much noise moves an overlap with direction p until `end`, and how much is enough; NaN if unknown.

    Enough is the least distance of a neuron without a direction from the overlaps at which a pair alone emerges by
    then.
    """
    from dynamics import theory
    from dynamics.equations.transit import transit_time
    from dynamics.theory.step_noise import SearchNoise

    unknown = (np.nan, np.nan)
    if not decouples(problem) or problem.inputs is not None:
        return unknown
    pairs = theory.predict(problem)
    if theory.escape_bias(problem, rate, pairs).notes:
        return unknown
    a, overlap = problem.teacher.coefficients, problem.start().teacher_overlap[:, p]
    matched = np.delete(pairs.matched_neuron, p)[np.isfinite(np.delete(pairs.predicted_emergence_time, p))]
    free = np.setdiff1d(np.arange(problem.width), matched)
    if free.size == 0:
        return unknown
    overlap = overlap[free] if problem.information_exponent % 2 else np.abs(overlap[free])
    emerged = np.sqrt(EMERGENCE_LEVEL)
    grid = np.linspace(0.0, emerged, _OVERLAPS)[1:]
    from_there = transit_time(problem.activation.coefficients, grid, emerged) / a[p]
    needed = float(np.min(grid[from_there <= end], initial=emerged) - overlap.max())
    learned = np.where(np.isfinite(pairs.predicted_learned_time), pairs.predicted_learned_time, end)
    left = np.minimum(learned / end, 1.0) * a**2
    left[p] = a[p] ** 2
    noise = SearchNoise(problem, total=float(left.sum()))
    _, _, diffusion = noise(overlap.max(keepdims=True), a[p : p + 1])
    return min(float(np.sqrt(rate * diffusion[0] * end)), problem.dimension**-0.5), needed


def against_sample(problem: Problem, prediction: xr.Dataset, simulation: xr.Dataset, rate: float) -> Evidence:
    """Test whether two samples of runs have one law: their times of emergence, and their losses."""
    theirs, ours = of_sound_runs(prediction, "emergence_time"), of_sound_runs(simulation, "emergence_time")
    horizon = min(float(dataset.attrs["end_time"]) for dataset in (prediction, simulation))
    first, second = cut_at(theirs, horizon), cut_at(ours, horizon)
    both = np.concatenate([first, second])
    tested = np.flatnonzero(np.isfinite(both).any(axis=0)).tolist()
    scores = np.array([log_rank_scores(both[:, p], horizon) for p in tested]).reshape(len(tested), -1).T
    chances = permutation_test(scores, np.arange(both.shape[0]) >= first.shape[0])
    loss = loss_against_sample(prediction, simulation, both)
    of_loss = [] if loss is None or np.isnan(loss.p) else [loss.p]
    # Times and loss are two families of tests that share the rate of false alarms evenly.
    level = rate / ((1 + len(of_loss)) * max(len(tested), 1))
    tests: list[TimeTest | None] = [None] * ours.shape[1]
    for p, chance in zip(tested, chances.each.tolist(), strict=True):
        tests[p] = assess_samples(first[:, p], second[:, p], horizon, chance, level)
    awaited = np.array([test is not None for test in tests])
    families = [chances.together if awaited.any() else 1.0, *of_loss]
    medians = np.array([median_time(sample, float(prediction.attrs["end_time"])) for sample in theirs.T])
    medians = np.where(medians > 0, medians, np.nan)
    expected = Expectation.uniform(medians, delay=0.0, scatter=log_scatter(theirs), low=0.0, high=0.0)
    return TimesTests(
        prediction=prediction,
        simulation=simulation,
        rate=rate,
        theory="sample",
        p_value=min(1.0, len(families) * min(families)),
        parts=[EventTests(event_of(simulation), expected, tests, awaited)],
        loss=loss,
    ).evidence(problem)


def emergence_ratio(simulation: xr.Dataset, time: Array) -> Array:
    """Return T_SGD/T_p, shape (seeds, P), NaN without a time."""
    measured = np.asarray(simulation["emergence_time"].values, dtype=np.float64)
    return np.where(sound_runs(simulation)[:, None], measured, np.nan) / time


def log_scatter(times: Array) -> Array:
    """Return the standard deviation of ln T over the runs, shape (P,), NaN where a run has none."""
    if times.shape[0] < 2:
        return np.full(times.shape[1], np.nan)
    return np.asarray(np.std(np.log(np.maximum(times, 1e-300)), axis=0, ddof=1))


def time_variables(
    prediction: xr.Dataset,
    simulation: xr.Dataset,
    theory: str,
    parts: list[EventTests],
    loss: LossBand | None,
    p_value: float,
) -> dict[str, Any]:
    """Return the variables by direction, and survival curves and losses at the times of the simulation."""
    found, *others = parts
    expected, times = found.expected, simulation["time"].values
    measured = of_sound_runs(simulation, "emergence_time")
    curves = [kaplan_meier(sample, float(simulation.attrs["end_time"]), times) for sample in measured.T]
    if theory == "sample":
        end = float(prediction.attrs["end_time"])
        predicted = [kaplan_meier(s, end, times).value for s in of_sound_runs(prediction, "emergence_time").T]
    else:
        laws = zip(expected.time, expected.lateness, expected.scatter, strict=True)
        predicted = [expected_survival(*law, times) for law in laws]

    def power(side: str) -> Array:
        return np.array([getattr(getattr(test, side, None), "power", np.nan) for test in found.tests])

    learned: dict[str, Array] = {}
    for one in others:
        learned |= {"learned_z_score": one.column("z"), "learned_p_value": one.p_values}
        learned["learned_visible_error"] = one.column("visible")
    values = {
        "emergence_ratio": emergence_ratio(simulation, expected.time),
        "emergence_time": expected.time,
        "expected_delay": expected.delay,
        "expected_lateness": expected.lateness,
        "expected_scatter": expected.scatter,
        "band_low": found.column("low"),
        "band_high": found.column("high"),
        "mean_log_ratio": found.column("mean"),
        "standard_error": found.column("standard_error"),
        "log_scatter": log_scatter(measured),
        "z_score": found.column("z"),
        "direction_p_value": found.p_values,
        **learned,
        "early_power": power("early"),
        "late_power": power("late"),
        "visible_error": found.column("visible"),
        "censored_count": np.sum(simulation["censored"].values[sound_runs(simulation)] != 0, axis=0),
        "p_value": p_value,
        "loss_p_value": np.nan if loss is None else loss.p,
        "path_p_value": np.nan,
        "survival": np.array([curve.value for curve in curves]),
        "survival_low": np.array([curve.low for curve in curves]),
        "survival_high": np.array([curve.high for curve in curves]),
        "predicted_survival": np.array(predicted),
    }
    if loss is None:
        return values
    return values | {
        "mean_loss": loss.mean,
        "loss_standard_error": loss.standard_error,
        "expected_loss": loss.expected,
        "expected_loss_low": loss.low,
        "expected_loss_high": loss.high,
        "loss_compared": loss.compared.astype(np.int8),
        "loss_z": loss.z,
    }
