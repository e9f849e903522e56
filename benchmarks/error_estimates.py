"""How often reported errors cover the true ones: `python -m benchmarks.error_estimates [--count 300] [--first 0] …`.

Writes `benchmarks/error_estimates.json` and prints the table that docs/solvers.md sums up. Random problems of at most
eight neurons and directions are solved by every method that is affordable at several tolerances, with their estimates
of error. The truth is a run at rtol 1e-12 ("explicit") or, where that takes too long, 1e-11 ("bdf"); a second one
says how far it can be trusted. An error is covered if it is at most the reported one and three times what the two
references differ by. Every saved time after the start counts once, and every time of an event that all runs saw.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dynamics
from benchmarks.random_problems import event_times, plain
from dynamics.equations.overlaps import OverlapSystem
from dynamics.theory.prediction import PAIRS, default_times, predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

#: One series per kernel: k = 1 … 6, even, odd and of no parity.
LINKS: tuple[str | dict[int, float], ...] = (
    "he3",
    "he4",
    {3: 0.7, 4: 0.7},
    {4: 0.8, 6: 0.6},
    {3: 0.6, 5: 0.8},
    "he6",
    {2: 0.3, 4: 0.9},
    {1: 0.5, 2: 0.5, 3: 0.7},
)
METHODS = ("explicit", "bdf", "stiff")
RTOLS = (1e-4, 1e-6, 1e-8)
#: Stability-limited steps up to which the explicit method is affordable, and seconds that a run may take.
EXPLICIT_STEPS, LIMIT = 3e4, 60.0
#: What the references differ by, times this, is not held against an estimate.
TRUSTED = 3.0
#: Share of rtol, relatively, below which an error does not count for how far estimates exceed errors.
NEGLIGIBLE = 0.03
#: Problems below this number were looked at when the constants of `dynamics.runs.loop` were chosen.
CALIBRATED = 150
KINDS = ("loss", "events")
TARGET = Path(__file__).with_suffix(".json")


def random_problem(index: int) -> dynamics.Problem:
    """Return problem number `index`, of at most eight neurons and directions."""
    rng = np.random.default_rng([20261122, index])

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    directions, width = (int(rng.integers(1, 9)) for _ in range(2))
    return dynamics.Problem(
        activation=LINKS[index % len(LINKS)],
        teacher=dynamics.Teacher.power_law(directions, beta=float(rng.uniform(0.0, 2.0))),
        width=width,
        dimension=int(log_uniform(max(directions, 4), 1024)),
        initial_norm=log_uniform(1e-4, 0.5),
        seed=index,
    )


def solve(problem: dynamics.Problem, times: dynamics.SaveAt, method: str, rtol: float, **options: Any) -> xr.Dataset:
    """Return the flow, however it ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return dynamics.solve_overlaps(
            problem, save_at=times, keep="summary", method=method, rtol=rtol, progress=False, max_runtime=LIMIT,
            on_failure="return", **options,
        )  # fmt: skip


def held(found: Array, reported: Array, truths: list[Array], least: Array) -> dict[str, Any]:
    """Return how many errors are covered, of how many, and reported over true ones where these are above `least`."""
    error, doubt = np.abs(found - truths[0]), TRUSTED * np.abs(truths[0] - truths[1])
    known = np.isfinite(error + doubt) & ~np.isnan(reported)
    counts = known & (error > np.maximum(least, doubt))
    covered = int(np.sum(error[known] <= reported[known] + doubt[known]))
    excess = reported[counts] / error[counts]
    return {"covered": covered, "of": int(known.sum()), "excess": float(np.median(excess)) if counts.any() else None}


def measure(index: int, methods: Sequence[str] = METHODS) -> dict[str, Any]:
    """Return what the estimates of some methods for problem number `index` cover, JSON-ready."""
    problem = random_problem(index)
    prediction = predict(problem)
    times = default_times(problem, prediction if prediction.theory == PAIRS else None)
    steps = OverlapSystem(problem).stiffness() * float(times.times[-1]) / 6.0
    tight = ("explicit", 1e-12, 1e-14) if steps < EXPLICIT_STEPS else ("bdf", 1e-11, 1e-13)
    beside = ("bdf", 1e-11, 1e-13) if steps < EXPLICIT_STEPS else ("bdf", 1e-10, 1e-12)
    references = [solve(problem, times, m, rtol, atol=atol, error_estimate=False) for m, rtol, atol in (tight, beside)]
    record: dict[str, Any] = {"index": index, "link": str(LINKS[index % len(LINKS)]), "runs": {}}
    if any(one.attrs["stop_reason"] != "reached_end" for one in references):
        return record
    late = times.times > 0.0
    for method in methods:
        if method == ("explicit" if steps >= EXPLICIT_STEPS else "stiff" if problem.information_exponent < 3 else None):
            continue
        for rtol in RTOLS:
            flow = solve(problem, times, method, rtol)
            loss, found = flow.loss.values[late], event_times(flow)
            error = np.concatenate([flow[f"{name}_error"].values for name in ("emergence_time", "learned_time")])
            record["runs"][f"{method} {rtol:g}"] = {
                "loss": held(
                    loss,
                    flow.loss_error.values[late],
                    [one.loss.values[late] for one in references],
                    NEGLIGIBLE * rtol * loss,
                ),
                "events": held(found, error, [event_times(one) for one in references], NEGLIGIBLE * rtol * found),
            }
    return record


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return coverage over all problems by method, tolerance and kind, and reported over true errors."""
    names = [f"{method} {rtol:g}" for method in METHODS for rtol in RTOLS]
    result: dict[str, Any] = {"problems": len(records), "without a reference": sum(not one["runs"] for one in records)}
    for name in names:
        runs = [one["runs"][name] for one in records if name in one["runs"]]
        result[name] = {"runs": len(runs)}
        for kind in KINDS if runs else ():
            parts = [run[kind] for run in runs if run[kind]["of"]]
            covered, count = (sum(part[key] for part in parts) for key in ("covered", "of"))
            excess = [part["excess"] for part in parts if part["excess"] is not None]
            result[name][kind] = {
                "covered": covered / max(count, 1),
                "of": count,
                "runs wholly covered": float(np.mean([part["covered"] == part["of"] for part in parts])),
                "median excess": float(np.median(excess)) if excess else None,
            }
    return result


def table(totals: dict[str, Any]) -> str:
    """Return coverage in per cent as a table in Markdown."""
    lines = ["| method | rtol | runs | losses covered | runs wholly | times covered | excess |", "|---" * 7 + "|"]
    for name in (name for name in totals if " " in name and isinstance(totals[name], dict)):
        run, (method, rtol) = totals[name], name.split()
        if run["runs"]:
            loss, events = run["loss"], run["events"]
            excess = ("–" if one["median excess"] is None else f"{one['median excess']:.0f}" for one in (loss, events))
            lines.append(
                f"| `{method}` | {rtol} | {run['runs']} | {100 * loss['covered']:.1f} % of {loss['of']} | "
                f"{100 * loss['runs wholly covered']:.0f} % | {100 * events['covered']:.1f} % of {events['of']} | "
                f"{', '.join(excess)} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure a range of problems and write what was found after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.error_estimates", description="Coverage of estimates")
    parser.add_argument("--count", type=int, default=300, help="number of problems (default: 300)")
    parser.add_argument("--first", type=int, default=0, help="index of the first (default: 0)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, help="methods to measure")
    parser.add_argument("--output", type=Path, default=TARGET, help="file to write")
    options = parser.parse_args()
    records: list[dict[str, Any]] = []
    for index in range(options.first, options.first + options.count):
        records.append(measure(index, options.methods))
        print(index, records[-1]["link"], flush=True)
        fresh = [one for one in records if one["index"] >= CALIBRATED]
        found = {"all": summary(records), "not used for the calibration": summary(fresh)}
        text = json.dumps(plain(found), indent=1, allow_nan=False)
        options.output.write_text(text + "\n", encoding="utf-8")
    print(table(summary(records)))
    print(f"Without the problems below {CALIBRATED}, on which the constants were chosen:")
    print(table(summary(fresh)))


if __name__ == "__main__":
    main()
