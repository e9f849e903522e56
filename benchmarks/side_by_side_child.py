"""What `benchmarks.side_by_side` times, by public names alone: each tree runs this file in a process of its own.

`python -P side_by_side_child.py PART [--large]` prints one JSON object per case, with its seconds, dimensionless work
done in them and, of flows, the number of evaluations of the right-hand side. The first call of a case is not timed: it
compiles, or loads what was compiled.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import dynamics
import sgd_check

if TYPE_CHECKING:
    import xarray as xr

DIMENSION = 1024
SIZES = (8, 16, 32, 64, 128)
STIFF_SIZE, LARGE_SIZE = 256, 1024
#: Tolerance of the flows, and that of the stiff ones from 128 neurons on.
RTOL, LARGE_RTOL = 1e-5, 1e-4
#: Ends of the flows of each method in units of d P: that of "stiff" is where most directions are learned.
ENDS = {"explicit": 0.002, "bdf": 0.02, "stiff": 6.0}
#: Step of gradient descent, dimensionless, and the number of its steps.
RATE, DESCENT_STEPS = 0.05, 4000
MANY, MANY_SIZE = 1000, 8
PARTICLES = 4096
#: Short calls are repeated until so many seconds are spent, and the shortest counts.
REPEAT_SECONDS, MOST_REPEATS = 0.5, 20

#: What a case returns: units of work, and evaluations where they are known.
Run = Callable[[], tuple[float, int | None]]


def problem(size: int, dimension: int = DIMENSION, seed: int = 0, **fields: Any) -> dynamics.Problem:
    """Return the problem of all flows: h_4, a_p ~ 1/p, m = P = `size`."""
    teacher = dynamics.Teacher.power_law(size, beta=1.0)
    given = {"activation": "he4", "width": size, "initial_norm": 1e-3**0.5, "seed": seed, **fields}
    return dynamics.Problem(teacher=teacher, dimension=dimension, **given)


def flow(asked: dynamics.Problem, method: str, end: float, rtol: float = RTOL) -> xr.Dataset:
    return dynamics.solve_overlaps(
        asked,
        method=method,
        rtol=rtol,
        atol=0.01 * rtol,
        learning_rate=RATE if method == "gradient-descent" else None,
        save_at=dynamics.SaveAt.geometric(1e-3 * end, end, 20),
        keep="summary",
        error_estimate=False,
        progress=False,
    )


def solved(asked: dynamics.Problem, method: str, end: float, rtol: float = RTOL) -> tuple[float, int | None]:
    found = flow(asked, method, end, rtol)
    return 1.0, int(found.attrs["rhs_evaluations"])


def field() -> Iterator[tuple[str, Run]]:
    """One evaluation of the overlap field: a run of the explicit method over its evaluations."""
    for size in SIZES:
        asked = problem(size)

        def evaluated(asked: dynamics.Problem = asked) -> tuple[float, int | None]:
            found = flow(asked, "explicit", ENDS["explicit"] * DIMENSION * asked.width)
            evaluations = int(found.attrs["rhs_evaluations"])
            return float(evaluations), evaluations

        yield f"evaluation, m = P = {size}", evaluated


def flows(large: bool) -> Iterator[tuple[str, Run]]:
    """Whole calls, by method and size."""
    more = {"stiff": (STIFF_SIZE, *([LARGE_SIZE] if large else []))}
    for method in (*ENDS, "gradient-descent"):
        for size in (*SIZES, *more.get(method, ())):
            dimension = max(DIMENSION, 2 * size)
            end = RATE * DESCENT_STEPS if method == "gradient-descent" else ENDS[method] * dimension * size
            rtol = LARGE_RTOL if method == "stiff" and size >= 128 else RTOL
            yield f"{method}, m = P = {size}", partial(solved, problem(size, dimension), method, end, rtol)


def steps(asked: dynamics.Problem, count: int, **settings: Any) -> tuple[float, int | None]:
    rate = 0.01 * dynamics.learning_rate_limit(asked) if asked.objective == "squared" else 1e-5
    save_at = dynamics.SaveAt.at([0.0, rate * count])
    sgd_check.simulate(asked, learning_rate=rate, steps=count, seeds=1, save_at=save_at, progress=False, **settings)
    return float(count), None


def sgd(_large: bool) -> Iterator[tuple[str, Run]]:
    """A step of one run."""
    one = dynamics.Problem(
        activation="he3",
        teacher=dynamics.Teacher([1.0]),
        width=1,
        dimension=DIMENSION,
        student="spherical",
        objective="correlation",
        initial_overlaps=([[DIMENSION**-0.5]], [[1.0]], [1.0]),
    )
    inputs = dynamics.Inputs([2.0, 0.5], [DIMENSION // 4, DIMENSION - DIMENSION // 4])
    frame = problem(16, activation="he2", student="stiefel", initial_norm=None)
    yield "projected step, m = P = 8", partial(steps, problem(8), 200_000, engine="projected")
    yield "projected step, m = P = 32", partial(steps, problem(32), 20_000, engine="projected")
    yield "scalar step", partial(steps, one, 2_000_000, engine="scalar")
    yield "class step, m = P = 8", partial(steps, problem(8, inputs=inputs), 100_000, engine="projected")
    yield "stiefel step, m = P = 16", partial(steps, frame, 20_000, engine="projected")


def mean_field(_large: bool) -> Iterator[tuple[str, Run]]:
    """The flow of many particles for one direction."""
    asked = dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher([1.0]), width=1, dimension=64, student="spherical"
    )

    def run() -> tuple[float, int | None]:
        found = dynamics.solve_mean_field(asked, particles=PARTICLES, rtol=1e-6, keep="summary", progress=False)
        return 1.0, int(found.attrs["rhs_evaluations"])

    yield f"mean field, {PARTICLES} particles", run


def many(_large: bool) -> Iterator[tuple[str, Run]]:
    """Many small flows in one process, each from a start of its own."""
    asked = [problem(MANY_SIZE, seed=seed) for seed in range(MANY)]

    def run() -> tuple[float, int | None]:
        return float(MANY), sum(solved(each, "auto", 6.0 * DIMENSION * MANY_SIZE)[1] or 0 for each in asked)

    yield f"one of {MANY} flows, m = P = {MANY_SIZE}", run


PARTS: dict[str, Callable[[bool], Iterator[tuple[str, Run]]]] = {
    "field": lambda _large: field(),
    "flows": flows,
    "sgd": sgd,
    "mean-field": mean_field,
    "many": many,
}


def measure(run: Run) -> dict[str, float | int | None]:
    """Return the least seconds and processor seconds per unit of work, and evaluations, of warm calls."""
    run()
    seconds, of_processor, spent, repeats = float("inf"), float("inf"), 0.0, 0
    while repeats < MOST_REPEATS and (repeats == 0 or spent < REPEAT_SECONDS):
        began, used = time.perf_counter(), time.process_time()
        work, evaluations = run()
        took = time.perf_counter() - began
        seconds, of_processor = min(seconds, took / work), min(of_processor, (time.process_time() - used) / work)
        spent, repeats = spent + took, repeats + 1
    return {"seconds": seconds, "processor_seconds": of_processor, "evaluations": evaluations}


def main(part: str, large: bool) -> None:
    warnings.simplefilter("ignore")
    for name, run in PARTS[part](large):
        print(json.dumps({"case": name, **measure(run)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], "--large" in sys.argv[2:])
