"""Random problems against a referee: `python -m benchmarks.random_problems [--count 200] [--first 0] [--limit 60]`.

Writes `benchmarks/random_problems.json` and prints a paragraph. Every problem is solved by "stiff" at several
tolerances, by "bdf" and "explicit" at one, and by a referee at rtol 1e-10, which a second one checks where they
disagree.

What is asked of a run at tolerance rtol: all saved losses within 10 rtol max(1, κ) of the referee, in units of the
largest of 1 and the loss at the start, and all times of emergence and of learning within 10 rtol max(1, κ), relatively.
κ is the condition number of that loss or time: how far it moves, per unit, when the referee starts from weights moved
by `NUDGE` in units of 1/√d; the larger of two random moves. A quantity with 10 rtol κ > `LINEAR` is beyond what the
tolerance can decide: it is counted as undecided and not judged.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dynamics
from dynamics.equations.overlaps import OverlapSystem
from dynamics.problem.start import overlaps_from_weights
from dynamics.theory.prediction import default_times, predict

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

#: One series per kernel, since each is compiled once; k = 3 … 8, even, odd and of no parity.
LINKS: tuple[str | dict[int, float], ...] = (
    *(f"he{k}" for k in range(3, 9)),
    {3: 0.7, 4: 0.7},
    {4: 0.8, 6: 0.6},
    {3: 0.6, 5: 0.8},
    {4: 0.3, 5: 0.9},
    {3: 0.1, 4: 0.7, 8: 0.7},
    {5: 0.8, 8: 0.6},
    {6: 0.6, 7: 0.8},
)
MOST_NEURONS = 48
RTOLS = (1e-5, 1e-6, 1e-7)
#: Tolerance at which "bdf" and "explicit" are measured beside "stiff".
COMMON_RTOL = 1e-6
REFEREE_RTOL, NUDGE, LINEAR, ALLOWED = 1e-10, 1e-8, 0.1, 10.0
#: Errors per condition number that the referee resolves; share of rtol below which nobody asks for an estimate.
RESOLVED, NEGLIGIBLE = 10.0 * REFEREE_RTOL, 0.01
#: Stability-limited steps up to which the explicit method is affordable.
EXPLICIT_STEPS = 3e4
EVENTS = ("emergence_time", "learned_time")
SHARES = ("loss_over_rtol", "events_over_rtol", "loss_over_rtol_condition", "events_over_rtol_condition")
TARGET = Path(__file__).with_suffix(".json")


def random_problem(index: int) -> dynamics.Problem:
    """Return problem number `index`: log-uniform sizes, dimension and initial norm, one of the links."""
    rng = np.random.default_rng([20250417, index])

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    directions = int(log_uniform(2, 25))
    width = min(max(round(directions * log_uniform(0.5, 4.0)), 1), MOST_NEURONS)
    beta = float(rng.uniform(0.0, 2.0)) if rng.random() > 0.125 else 0.0
    return dynamics.Problem(
        activation=LINKS[index % len(LINKS)],
        teacher=dynamics.Teacher.power_law(directions, beta=beta),
        width=width,
        dimension=int(log_uniform(directions, 4096)),
        initial_norm=log_uniform(1e-6, 0.5),
        seed=index,
    )


def nudged(problem: dynamics.Problem, number: int) -> dynamics.Problem:
    """Return the problem started from weights moved by a relative `NUDGE` in units of 1/√d, at random."""
    weights = problem.reduced_weights()
    move = np.random.default_rng([problem.seed, number]).standard_normal(weights.shape)
    length = problem.initial_norm * NUDGE / np.sqrt(problem.dimension)
    return dynamics.Problem(
        activation=problem.activation,
        teacher=problem.teacher,
        width=problem.width,
        dimension=problem.dimension,
        initial_overlaps=tuple(overlaps_from_weights(weights + length * move, problem.teacher)),
    )


class Case:
    """One problem with its referee, and the judgement of other runs.

    Parameters
    ----------
    problem : Problem
        With a random start.
    limit : float
        Seconds that one run may take.
    """

    def __init__(self, problem: dynamics.Problem, limit: float = 60.0) -> None:
        self.problem = problem
        self.schedule = default_times(self.problem, predict(self.problem))
        self.limit = limit
        self.stability_steps = OverlapSystem(self.problem).stiffness() * float(self.schedule.times[-1]) / 6.0
        self.reference = self.referee("bdf")
        self.loss_condition, self.event_condition = self._conditions()

    def solve(self, method: str, rtol: float, problem: dynamics.Problem | None = None, **options: Any) -> xr.Dataset:
        """Return the flow, however it ended."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return dynamics.solve_overlaps(
                self.problem if problem is None else problem, save_at=self.schedule, keep="summary", method=method,
                rtol=rtol, progress=False, error_estimate=False, max_runtime=self.limit, on_failure="return", **options,
            )  # fmt: skip

    def referee(self, method: str, problem: dynamics.Problem | None = None) -> xr.Dataset:
        """Return the flow at the tolerance of a referee."""
        return self.solve(method, REFEREE_RTOL, problem, atol=1e-12)

    def _conditions(self) -> tuple[float, Array]:
        """Return the condition numbers of the loss and of the events; inf where an event comes or goes."""
        loss, events = 0.0, np.ones(2 * self.problem.num_directions)
        for number in range(2):
            moved = self.referee("bdf", nudged(self.problem, number))
            loss = max(loss, float(np.max(self.loss_errors(moved))) / NUDGE)
            events = np.maximum(events, self.event_errors(moved) / NUDGE)
        return max(loss, 1.0), events

    def loss_errors(self, flow: xr.Dataset) -> Array:
        """Return the error of each saved loss; inf where there is none."""
        error = np.abs(flow.loss.values - self.reference.loss.values) / max(1.0, float(self.reference.loss[0]))
        return np.where(np.isfinite(error), error, np.inf)

    def event_errors(self, flow: xr.Dataset) -> Array:
        """Return the relative error of each event time; inf where only one of the two flows saw it."""
        found, expected = event_times(flow), event_times(self.reference)
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.where(found == expected, 0.0, np.abs(found / expected - 1.0))
        neither = np.isnan(found) & np.isnan(expected)
        return np.where(neither, 0.0, np.where(np.isnan(error), np.inf, error))

    def judge(self, flow: xr.Dataset, rtol: float) -> dict[str, Any]:
        """Return the errors of a run in units of rtol and of what is allowed, and whether it passes."""
        loss, events = float(np.max(self.loss_errors(flow))), self.event_errors(flow)
        decided = ALLOWED * rtol * self.event_condition <= LINEAR
        # An event after which the run ends sooner than its own uncertainty may be missed.
        end = float(self.schedule.times[-1])
        at_the_end = event_times(self.reference) * (1.0 + ALLOWED * rtol * self.event_condition) >= end
        decided &= ~at_the_end
        event_share = float(np.max(events[decided] / self.event_condition[decided], initial=0.0)) / rtol
        loss_decided = ALLOWED * rtol * self.loss_condition <= LINEAR
        loss_share = loss / self.loss_condition / rtol if loss_decided else 0.0
        ended = str(flow.attrs["stop_reason"])
        finite = bool(np.isfinite(flow.loss.values).all())
        return {
            "passes": ended == "reached_end" and finite and max(event_share, loss_share) <= ALLOWED,
            "ended": ended,
            "fallback": flow.attrs.get("fallback"),
            "seconds": round(float(flow.attrs["solve_seconds"]), 3),
            "steps": int(flow.attrs.get("steps_accepted", 0)) + int(flow.attrs.get("steps_rejected", 0)),
            "loss_over_rtol": loss / rtol,
            "events_over_rtol": float(np.max(events[decided], initial=0.0)) / rtol,
            "loss_over_rtol_condition": loss_share,
            "events_over_rtol_condition": event_share,
            "undecided_events": int(np.sum(~decided)),
            "undecided_loss": not loss_decided,
        }


def event_times(flow: xr.Dataset) -> Array:
    """Return the times of emergence, then of learning."""
    return np.concatenate([flow[name].values for name in EVENTS])


def estimate_ratios(case: Case, flow: xr.Dataset, looser: xr.Dataset, rtol: float) -> dict[str, list[float]]:
    """Return true errors over estimated ones: the largest of the loss, those of decided events.

    Errors that the referee itself may have and those below `NEGLIGIBLE` rtol are left out.
    """
    from dynamics.runs.loop import event_errors, loss_errors

    error, scale = case.loss_errors(flow), max(1.0, float(case.reference.loss[0]))
    reported = loss_errors(flow.loss.values, looser.loss.values, flow.time.values, rtol) / scale
    events = case.event_errors(flow)
    estimate = event_errors(event_times(flow), event_times(looser), rtol) / event_times(case.reference)
    decided = (ALLOWED * rtol * case.event_condition <= LINEAR) & np.isfinite(estimate)
    decided &= events > np.maximum(RESOLVED * case.event_condition, NEGLIGIBLE * rtol)
    loss_resolved = max(RESOLVED * case.loss_condition, NEGLIGIBLE * rtol) < float(error.max()) < np.inf
    return {
        "loss": [float(error.max() / reported.max())] if loss_resolved else [],
        "events": [float(r) for r in events[decided] / estimate[decided]],
    }


def measure(index: int, rtols: tuple[float, ...] = RTOLS, limit: float = 60.0) -> dict[str, Any]:
    """Return everything about problem number `index`, JSON-ready."""
    began = time.perf_counter()
    problem = random_problem(index)
    case = Case(problem, limit)
    flows = {rtol: case.solve("stiff", rtol) for rtol in (10.0 * max(rtols), *rtols)}
    runs = {f"stiff {rtol:g}": case.judge(flows[rtol], rtol) for rtol in rtols}
    runs[f"bdf {COMMON_RTOL:g}"] = case.judge(case.solve("bdf", COMMON_RTOL), COMMON_RTOL)
    if case.stability_steps < EXPLICIT_STEPS:
        runs[f"explicit {COMMON_RTOL:g}"] = case.judge(case.solve("explicit", COMMON_RTOL), COMMON_RTOL)
    record: dict[str, Any] = {
        "index": index,
        "link": str(LINKS[index % len(LINKS)]),
        "beta": problem.teacher.beta,
        "P": problem.num_directions,
        "m": problem.width,
        "d": problem.dimension,
        "initial_norm": problem.initial_norm,
        "last_time": float(case.schedule.times[-1]),
        "emerged": int(np.isfinite(case.reference.emergence_time.values).sum()),
        "referee_ended": str(case.reference.attrs["stop_reason"]),
        "referee_seconds": round(float(case.reference.attrs["solve_seconds"]), 3),
        "loss_condition": case.loss_condition,
        "largest_event_condition": float(np.max(case.event_condition)),
        "runs": runs,
        "estimates": {
            f"{rtol:g}": estimate_ratios(case, flows[rtol], flows[looser], rtol)
            for looser, rtol in zip((10.0 * max(rtols), *rtols), rtols, strict=False)
        },
    }
    if not all(run["passes"] for run in runs.values()):
        second = "explicit" if case.stability_steps < EXPLICIT_STEPS else "sundials"
        record["second_referee"] = {"method": second, **case.judge(case.referee(second), min(rtols) / 100.0)}
    record["seconds"] = round(time.perf_counter() - began, 2)
    return record


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return counts and quantiles over all problems."""

    def quantiles(values: list[float]) -> dict[str, float]:
        return {f"{q:g} %": float(f"{np.percentile(values, q):.3g}") for q in (10, 50, 90, 99, 100)} if values else {}

    result: dict[str, Any] = {"problems": len(records)}
    records = [record for record in records if record["referee_ended"] == "reached_end"]
    result["without an answer of the referee"] = result["problems"] - len(records)
    for name in dict.fromkeys(name for record in records for name in record["runs"]):
        runs = [record["runs"][name] for record in records if name in record["runs"]]
        result[name] = {
            "runs": len(runs),
            "passed": sum(run["passes"] for run in runs),
            "reached the end": sum(run["ended"] == "reached_end" for run in runs),
            "fell back": sum(run["fallback"] is not None for run in runs),
            "undecided events": sum(run["undecided_events"] for run in runs),
            "undecided losses": sum(run["undecided_loss"] for run in runs),
            "seconds": quantiles([run["seconds"] for run in runs]),
            **{part: quantiles([run[part] for run in runs]) for part in SHARES},
        }
    for part in ("loss", "events"):
        ratios = [r for record in records for each in record["estimates"].values() for r in each[part]]
        result[f"true error of {part} / estimate"] = {
            "within the estimate": round(float(np.mean(np.array(ratios) <= 1.0)), 4),
            **quantiles(ratios),
        }
    return result


def paragraph(totals: dict[str, Any]) -> str:
    """Return what a reader wants to know."""
    text = [
        f"{totals['problems']} random problems against a referee at rtol {REFEREE_RTOL:g}, "
        f"which did not finish {totals['without an answer of the referee']} of them."
    ]
    for name, run in totals.items():
        if isinstance(run, dict) and "runs" in run:
            loss, events = run["loss_over_rtol_condition"], run["events_over_rtol_condition"]
            text.append(
                f"'{name}': {run['passed']} of {run['runs']} agree within ten tolerances, {run['fell back']} "
                f"fell back; error / (rtol κ) of the loss {loss['50 %']:g} (median), {loss['100 %']:g} (largest), "
                f"of times {events['50 %']:g}, {events['100 %']:g}; {run['undecided events']} times undecided."
            )
    for part in ("loss", "events"):
        ratio = totals[f"true error of {part} / estimate"]
        text.append(
            f"True error of {part} within its estimate in {100 * ratio['within the estimate']:.1f} %; "
            f"ratio {ratio['50 %']:g} (median), {ratio['99 %']:g} (99 %)."
        )
    return " ".join(text)


def plain(value: Any) -> Any:
    """Return what JSON can hold: numbers with four digits, nothing for what is not finite."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if np.isfinite(value) else None
    return value


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_problems", description="Random problems, judged")
    parser.add_argument("--count", type=int, default=200, help="number of problems (default: 200)")
    parser.add_argument("--first", type=int, default=0, help="index of the first (default: 0)")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that one run may take (default: 60)")
    parser.add_argument("--output", type=Path, default=TARGET, help="file to write")
    options = parser.parse_args()
    records: list[dict[str, Any]] = []
    for index in range(options.first, options.first + options.count):
        records.append(measure(index, limit=options.limit))
        record = records[-1]
        failed = [name for name, run in record["runs"].items() if not run["passes"]]
        note = f"failed: {', '.join(failed)}" if failed else ""
        print(f"{index:4d} {record['seconds']:6.1f} s  {record['link']}  {note}", flush=True)
        totals = summary(records)
        text = json.dumps(plain({"summary": totals, "problems": records}), indent=1, allow_nan=False)
        options.output.write_text(text + "\n", encoding="utf-8")
    print(paragraph(totals))


if __name__ == "__main__":
    main()
