"""`python -m sgd_check.run --inputs-from FILE`: measure rows, run SGD on them and on Gaussian inputs, and compare."""

from __future__ import annotations

from pathlib import Path

import xarray as xr

from dynamics.commands import UsageError, as_typed, duration, say, shown_progress
from dynamics.commands.options import Values
from dynamics.problem import Problem
from dynamics.problem.rows import Rows
from hermite.program import require_usage
from hermite.text.messages import shown
from sgd_check.engines.registry import EngineOptions, make_engine
from sgd_check.run.options import OPTIONS
from sgd_check.run.run_files import finish_check, refusal_of
from sgd_check.simulations.simulation import REUSING
from sgd_check.verdicts.check import measured_seconds_per_step
from sgd_check.verdicts.inputs import DEFAULT_SEEDS, InputsPlan, carry_out_inputs, plan_inputs

#: Words of the command for the arguments of functions that refuse.
WORDS = {"source": "--inputs-from", "inputs_from": "--inputs-from", "problem": "FILE", "inputs": "FILE"}


def check_rows(settings: Values, prediction: xr.Dataset, output: Path, figure: Path | None) -> int:
    """Measure rows, print what they say, run, write tree and figure, and print the verdict; return the exit code."""
    for name, absent in (
        ("engine", (None, "auto", REUSING)),
        ("theory", ("auto",)),
        ("t_max", (None,)),
        ("widths", (None,)),
    ):
        require_usage(
            settings[name] in absent,
            f"Option --{name.replace('_', '-')} must be absent beside --inputs-from, but is {shown(settings[name])}.",
        )
    seeds, batch = settings["seeds"] or DEFAULT_SEEDS, settings["batch_size"] or 1
    try:
        plan = _plan(settings, prediction, batch)
        options = EngineOptions(
            seeds=tuple(range(seeds)), batch_size=batch, device=settings["device"], dtype=settings["dtype"],
            rows=plan.rows,
        )  # fmt: skip
        seconds = 2.0 * plan.steps * measured_seconds_per_step(make_engine(REUSING, plan.problem, options))
    except (TypeError, ValueError, ImportError) as error:
        if isinstance(error, ModuleNotFoundError):
            raise UsageError(refusal_of(error, REUSING)) from None
        raise UsageError(as_typed(error, OPTIONS, prediction="FILE", **WORDS)) from None
    if not settings["quiet"]:
        for line in (*plan.measured.lines(), plan.describe()):
            say(line)
        say(f"About {duration(seconds)} for {seeds} runs of each kind.")
    shared = {"seeds": seeds, "batch_size": batch, "device": settings["device"], "dtype": settings["dtype"]}
    shared["progress"] = shown_progress(settings)
    tree = carry_out_inputs(plan, settings["false_alarm_rate"], shared, settings["max_runtime"])
    return finish_check(tree, output, figure, settings, str(tree["comparison"].attrs["stop_reason"]))


def _plan(settings: Values, prediction: xr.Dataset, batch: int) -> InputsPlan:
    """Return the plan of the runs that the options and a prediction ask for."""
    rows = Rows(
        settings["inputs_from"],
        resample=not settings["rows_once"],
        components=settings["components"],
        placement=settings["placement"] or "random",
    )
    return plan_inputs(
        Problem.from_dataset(prediction),
        rows,
        learning_rate=settings["learning_rate"],
        steps=settings["steps"],
        directions=settings["directions"],
        batch_size=batch,
    )
