"""`python -m sgd_check.run` for the file of a mean field: choose widths, steps and times, simulate, compare, write."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import xarray as xr

from dynamics.commands import UsageError, duration, say, shown_progress
from dynamics.commands.options import Values
from dynamics.equations import make_particle_system
from dynamics.laws.chaos import coupled_tracers
from dynamics.problem import Problem, SaveAt
from dynamics.runs import also_interrupted
from dynamics.solve import solve_mean_field
from hermite.arrays import Array
from hermite.program import require_usage
from sgd_check import compare, simulate
from sgd_check.engines.registry import EngineOptions, make_engine
from sgd_check.run.run_files import finish_check, refusal_of
from sgd_check.verdicts.check import measured_seconds_per_step
from sgd_check.verdicts.mean_field import check_field

ENGINE: Final = "torch"
WIDTHS, RUNS, REPLICAS = (16, 32, 64), 64, 2
#: Learning rate times g'(1), half of the rate at which an aligned neuron relaxes.
STEP_SHARE = 0.08
#: Samples per neuron, learning rate and E σ'² = g'(1): the noise is then of one size at all widths.
SAMPLES_PER_NEURON = 500.0
#: Compared times, over so many decades, up to a little after the loss has fallen to its last level.
TIMES, DECADES, BEYOND = 24, 2.0, 1.02
#: Mean fields with m E(f − f')² below this are one.
SAME_FIELD = 0.01
LONG_RUN_SECONDS = 300
BURST_STEPS = 5


class WidthsPlan(NamedTuple):
    """A plan of simulations: a problem of each width, the steps, and the saved times of the mean field to look at."""

    problem: Problem
    widths: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    starts: tuple[int, ...]
    learning_rate: float
    steps: int
    times: Array


def check_mean_field(settings: Values, prediction: xr.Dataset, output: Path, figure: Path | None) -> int:
    """Simulate networks of several widths, compare them with the mean field, write and print; return the exit code."""
    try:
        plan = _make_plan(settings, prediction)
        # A burst of two runs of each width measures the speed, and raises an error if runs are not possible.
        options = EngineOptions(seeds=tuple(range(REPLICAS)), device=settings["device"], dtype=settings["dtype"])
        per_step = 0.0
        for width, size in zip(plan.widths, plan.batch_sizes, strict=True):
            engine = make_engine(ENGINE, replace(plan.problem, width=width), replace(options, batch_size=size))
            per_step += measured_seconds_per_step(engine, BURST_STEPS) / REPLICAS
    except (ValueError, ImportError) as error:
        raise UsageError(refusal_of(error, ENGINE)) from None
    seconds = per_step * plan.steps * len(plan.starts)
    if not settings["quiet"]:
        sizes = ", ".join(f"{m} ({b})" for m, b in zip(plan.widths, plan.batch_sizes, strict=True))
        say(
            f"Learning rate {plan.learning_rate:.4g}, {plan.steps} steps, widths (and batch sizes) {sizes}, "
            f"{len(plan.starts)} runs of each, {REPLICAS} of each start."
        )
        say(f"About {duration(seconds)}.")
        if seconds > LONG_RUN_SECONDS:
            say("Fewer steps (--steps), runs (--seeds) or samples (--batch-size), or smaller --widths, are faster.")
    simulations, reason = list[xr.Dataset](), ""
    try:
        simulations.extend(_simulations(plan, settings))
        reason = str(simulations[-1].attrs["stop_reason"])
        tested = _with_tracers(plan, prediction, quiet=settings["quiet"])
        tree = compare(tested, simulations, false_alarm_rate=settings["false_alarm_rate"])
    except (ValueError, KeyboardInterrupt) as error:
        cause = str(error)
        if isinstance(error, KeyboardInterrupt) and simulations:
            reason, cause = "interrupted", "a signal came."
        # Only runs that ended early have nothing to compare: too few widths, or no time that all of them reached.
        elif reason in ("", "reached_end"):
            raise
        say(f"Nothing could be compared: {cause}")
        branches = {f"/simulation/width_{runs.sizes['neuron']}": runs for runs in simulations}
        tree, figure = xr.DataTree.from_dict({"/prediction": prediction, **branches}), None
    return finish_check(tree, output, figure, settings, reason)


def _make_plan(settings: Values, prediction: xr.Dataset) -> WidthsPlan:
    """Return the plan of the runs; UsageError or ValueError for options that do not fit a mean field."""
    require_usage(
        settings["engine"] in (None, ENGINE),
        f"Option --engine must be {ENGINE} for a mean field, but is {settings['engine']}.",
    )
    for name, absent in (("theory", "auto"), ("directions", None)):
        require_usage(settings[name] == absent, f"Option --{name} must be absent for a mean field, but is given.")
    rate = settings["learning_rate"]
    require_usage(
        not isinstance(rate, str), f"Option --learning-rate must be a number for a mean field, but is {rate}."
    )
    runs = settings["seeds"] or RUNS
    require_usage(
        runs % REPLICAS == 0 and runs >= 2 * REPLICAS,
        f"Option --seeds must be an even number of at least {2 * REPLICAS} for a mean field, but is {runs}.",
    )
    check_field(prediction)
    asked = replace(Problem.from_dataset(prediction), width=1)
    widths = settings["widths"] or WIDTHS
    slope = float(asked.activation.kernel_derivative(1.0))
    rate = rate or STEP_SHARE / slope
    sizes = [settings["batch_size"] or int(np.ceil(SAMPLES_PER_NEURON * rate * slope * m)) for m in widths]
    times = np.asarray(prediction["time"].values)[np.isfinite(prediction["loss"].values)]
    levels = prediction["loss_level_time"].values
    end = min(BEYOND * float(levels[-1]), float(times[-1])) if np.isfinite(levels[-1]) else float(times[-1])
    steps = settings["steps"] or int(np.ceil(end / rate))
    chosen = _chosen_times(times, levels[np.isfinite(levels)], rate, rate * steps)
    starts = tuple(run // REPLICAS for run in range(runs))
    return WidthsPlan(asked, widths, tuple(sizes), starts, rate, steps, chosen)


def _chosen_times(times: Array, levels: Array, rate: float, end: float) -> Array:
    """Return saved times of the mean field, about even in their logarithm, and those nearest to the levels."""
    near = np.flatnonzero((times >= max(rate, 10.0**-DECADES * end)) & (times <= end))
    require_usage(
        near.size,
        f"Option --steps must reach a saved time of the file, {times[-1]:.4g} at the latest, but ends at {end:.4g}.",
    )
    wanted = np.geomspace(times[near[0]], times[near[-1]], TIMES)
    picks = [int(near[np.abs(times[near] - time).argmin()]) for time in (*wanted, *levels[levels <= end])]
    picked: Array = times[sorted(set(picks))]
    return picked[np.diff(np.rint(picked / rate), prepend=0.0) > 0.0]


def _simulations(plan: WidthsPlan, settings: Values) -> Iterator[xr.Dataset]:
    """Yield the runs of each width, the narrowest first, until some end early."""
    started, budget = clock.perf_counter(), settings["max_runtime"]
    for width, size in zip(plan.widths, plan.batch_sizes, strict=True):
        run = partial(
            simulate,
            replace(plan.problem, width=width),
            learning_rate=plan.learning_rate,
            steps=plan.steps,
            seeds=len(plan.starts),
            engine=ENGINE,
            save_at=SaveAt.at([0.0, *plan.times]),
            batch_size=size,
            device=settings["device"],
            dtype=settings["dtype"],
            starts=plan.starts,
            progress=shown_progress(settings),
            max_runtime=None if budget is None else max(budget - (clock.perf_counter() - started), 1e-3),
        )
        runs = also_interrupted(run)
        yield runs
        if runs.attrs["stop_reason"] != "reached_end":
            return


def _with_tracers(plan: WidthsPlan, prediction: xr.Dataset, *, quiet: bool) -> xr.Dataset:
    """Return the mean field solved again with the neurons of the runs as tracers, or the given one if they differ."""
    attrs: dict[str, Any] = prediction.attrs
    again = solve_mean_field(
        plan.problem,
        particles=int(attrs["particles"]),
        quadrature=attrs["quadrature"],
        tracers=coupled_tracers(plan.problem, plan.widths[-1], sorted(set(plan.starts))),
        save_at=SaveAt.at([0.0, *plan.times]),
        keep="summary",
        method=attrs["method"],
        rtol=float(attrs["rtol"]),
        atol=float(attrs["atol"]),
        progress=False,
    )
    gap = again["law_moment"].values[1:] - prediction["law_moment"].sel(time=plan.times).values
    weights = make_particle_system(plan.problem, np.zeros((1, plan.problem.teacher.span))).coefficients
    if plan.widths[-1] * float(np.max(gap**2 @ weights)) <= SAME_FIELD:
        return again
    if not quiet:
        say("The file has another mean field than its problem, so the file is tested, without following neurons.")
    return prediction
