"""Command line: `python -m sgd_check.run prediction.nc`, a check of a prediction by simulated SGD.

Options of `python -m dynamics.solve` behind `--` make the prediction first.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dynamics.commands import (
    JSON,
    NO_PLOT,
    NO_PROGRESS,
    OVERWRITE,
    QUIET,
    UsageError,
    as_typed,
    check_names_a_file,
    check_targets,
    chosen_figure,
    duration,
    exit_code_of,
    noticed_compilation,
    say,
    shown_progress,
)
from dynamics.commands.options import Values
from dynamics.commands.program import run_program
from hermite.program import require_usage
from hermite.text.messages import shown
from sgd_check.run.options import read_arguments
from sgd_check.run.run_files import (
    STORED_OPTIONS,
    file_of_runs,
    finish_check,
    refusal_of,
    remove_ended_runs,
    reopened_runs,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from dynamics.runs import RunFile
    from sgd_check.verdicts.check import CheckPlan

UNBEGUN = "interrupted before a step of the runs was taken; the same command begins them"
LONG_RUN_SECONDS = 660
#: Options of runs on rows, the first of which asks for them.
OF_ROWS = ("inputs_from", "rows_once", "components", "placement")
LONG_RUN_ADVICE = (
    "This is a long run: fewer directions (--directions), fewer steps (--steps), a larger learning rate "
    "(--learning-rate) or a narrower problem is faster; --max-runtime bounds it."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    end = words.index("--") if "--" in words else len(words)
    return exit_code_of(lambda: _check(read_arguments(words[:end]), words[end + 1 :]), interrupted=UNBEGUN)


def _check(options: Values, question: Sequence[str]) -> int:
    """Solve the question first, if its words are given, then check the prediction; return the exit code."""
    source = Path(options["prediction"])
    check_names_a_file("Argument FILE", source)
    output = Path(options["output"]) if options["output"] is not None else source.with_name(f"{source.stem}-sgd.nc")
    figure = chosen_figure(options, output)
    if question:
        from dynamics.solve.__main__ import main as solve

        require_usage(not options["resume"], "Option --resume must be absent when options follow --, but is given.")
        check_targets(options, output, figure)
        shared = [
            f"--{option.name}" for option in (NO_PLOT, OVERWRITE, JSON, QUIET, NO_PROGRESS) if options[option.key]
        ]
        code = solve([*question, *shared, "--output", str(source)])
        if code or "--dry-run" in question:
            return code
    begun = reopened_runs(options) if options["resume"] else None
    asked = options
    if begun is not None and begun.begun is not None:
        stored = begun.begun.settings
        asked = {**options, **{name: stored[name] for name in STORED_OPTIONS}, "overwrite": True}
        asked["seeds"] = len(stored["seeds"])
    with noticed_compilation(options):
        return _check_prediction(asked, _read_prediction(source), begun, output, figure)


def _check_prediction(
    asked: Mapping[str, object], prediction: xr.Dataset, begun: RunFile | None, output: Path, figure: Path | None
) -> int:
    """Check a prediction, or the rest of the runs that had begun; return the exit code."""
    check_targets(asked, output, figure)
    if prediction.attrs.get("answer") == "mean-field":
        from sgd_check.run.mean_field import check_mean_field

        require_usage(
            begun is None, f"Option --resume must be absent for a mean field, but is {shown(asked['resume'])}."
        )
        for name in OF_ROWS:
            require_usage(
                not asked[name], f"Option --{name.replace('_', '-')} must be absent for a mean field, but is given."
            )
        return check_mean_field(asked, prediction, output, figure)
    if asked["inputs_from"] is not None:
        from sgd_check.run.inputs import check_rows

        require_usage(
            begun is None, f"Option --resume must be absent beside --inputs-from, but is {shown(asked['resume'])}."
        )
        return check_rows(asked, prediction, output, figure)
    for name in OF_ROWS[1:]:
        require_usage(
            not asked[name], f"Option --{name.replace('_', '-')} must be absent without --inputs-from, but is given."
        )
    return _simulate(_completed(asked, prediction), prediction, begun, output, figure)


def _simulate(
    settings: Values, prediction: xr.Dataset, begun: RunFile | None, output: Path, figure: Path | None
) -> int:
    """Plan, tell the plan, simulate, compare and write; return the exit code."""
    import math
    import warnings

    from dynamics.problem import Problem
    from sgd_check.engines import EngineOptions
    from sgd_check.verdicts.check import CheckPlan, NoFiniteStepError, carry_out, plan_check

    def tell(line: str) -> None:
        if not settings["quiet"]:
            say(line)

    engine, progress, directions = settings["engine"], shown_progress(settings), settings["directions"]
    options = EngineOptions(
        seeds=tuple(range(settings["seeds"])),
        batch_size=settings["batch_size"],
        training_samples=settings.get("training_samples"),
        reshuffle=settings.get("reshuffle", True),
        device=settings["device"],
        dtype=settings["dtype"],
        optimizer=settings["optimizer"],
    )
    plan_for = partial(
        plan_check,
        prediction,
        engine,
        options,
        theory=settings["theory"],
        learning_rate=settings["learning_rate"],
        steps=settings["steps"],
        t_max=settings["t_max"],
        false_alarm_rate=settings["false_alarm_rate"],
        progress=progress,
    )
    # This refuses what cannot be run; an error after it is a fault of the program, not of its usage.
    try:
        if options.training_samples is not None:
            problem = Problem.from_dataset(prediction)
            plan = CheckPlan(problem, settings["learning_rate"], settings["steps"], math.inf, 0, 0)
            seconds = None
        else:
            plan, seconds = plan_for(directions=directions)
            wanted = _wanted_directions(prediction)
            is_free = directions is None and settings["t_max"] is None and settings["steps"] is None
            if is_free and plan.checked < wanted:
                longer, cost = plan_for(directions=wanted)
                price = "" if cost is None else f", which takes about {duration(cost)}"
                if cost is not None and cost <= LONG_RUN_SECONDS:
                    plan, seconds = longer, cost
                elif cost is not None and longer.checked > plan.checked:
                    tell(f"The directions whose steps FILE holds need --directions {wanted}{price}.")
    except (ValueError, ImportError) as error:
        raise UsageError(refusal_of(error, engine)) from None
    file = file_of_runs(settings, plan.problem, output, begun)
    for line in _described(plan, seconds, settings):
        tell(line)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: tell(f"warning: {message}")
            tree, ended = carry_out(
                plan,
                prediction,
                engine,
                options,
                say=tell,
                words=("the file", "--theory finite-step", "--t-max"),
                checkpoint=file,
                announce=tell,
                progress=progress,
                theory=settings["theory"],
                false_alarm_rate=settings["false_alarm_rate"],
                max_runtime=settings["max_runtime"],
            )
            return finish_check(tree, output, figure, settings, ended, file)
    except NoFiniteStepError as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        if file.unfinished:
            remove_ended_runs(file, settings)
        raise


def _wanted_directions(prediction: xr.Dataset) -> int:
    """Return the number of directions that emerge up to the last one with counted steps in a prediction; 0 for none."""
    from dynamics.solve.learning_steps import steps_of

    times = prediction["emergence_time"].values if "emergence_time" in prediction else None
    counted = [step.direction - 1 for step in steps_of(prediction)]
    return 0 if times is None or not counted else int((times <= times[counted].max()).sum())


def _described(plan: CheckPlan, seconds: float | None, settings: Mapping[str, object]) -> list[str]:
    """Return lines on the simulation, the time that it takes, and options that make it faster or check more."""
    seeds = settings["seeds"]
    lines = [plan.describe(), f"{plan.steps} steps of {seeds} runs; --max-runtime bounds the time."]
    if seconds is not None:
        lines[1] = f"About {duration(seconds)} for {plan.steps} steps of {seeds} runs."
    if seconds is not None and seconds > LONG_RUN_SECONDS:
        return [*lines, LONG_RUN_ADVICE]
    if plan.beyond:
        return [*lines, plan.costs("--t-max")]
    if plan.checked == plan.emerging or settings["directions"] is not None:
        return lines
    if settings["t_max"] is not None:
        return [
            *lines,
            f"Not all directions emerge by then; --directions {plan.emerging} instead of --t-max checks all.",
        ]
    return [*lines, f"More directions would take over ten minutes; --directions {plan.emerging} checks all."]


def _read_prediction(source: Path) -> xr.Dataset:
    """Return the prediction of a file; UsageError if there is none that can be checked."""
    from dynamics.runs import StorageError, load_answer
    from dynamics.solve.reused_data import ANSWER as REUSED
    from sgd_check.verdicts.verdict import check_prediction, with_emergence

    try:
        prediction = with_emergence(load_answer(source))
        if prediction.attrs.get("answer") not in ("mean-field", REUSED):
            check_prediction(prediction)
    except (TypeError, ValueError, StorageError) as error:
        raise UsageError(as_typed(error, (), path="FILE", prediction="FILE")) from None
    return prediction


def _completed(asked: Mapping[str, object], prediction: xr.Dataset) -> Mapping[str, object]:
    """Return the settings with learning rate and batch size of a prediction that carries them, else with defaults."""
    from dynamics.problem import Problem
    from dynamics.solve.reused_data import ANSWER as REUSED
    from sgd_check.engines import engine_of
    from sgd_check.simulations.simulation import REUSING
    from sgd_check.verdicts.check import DEFAULT_SEEDS
    from sgd_check.verdicts.reused_data import runs_of
    from sgd_check.verdicts.verdict import has_step, optimizer_of

    require_usage(
        asked["widths"] is None,
        "Option --widths must be absent for a prediction that is no mean field, but is given.",
    )
    varying = prediction.attrs.get("schedule")
    require_usage(
        varying is None,
        f"Argument FILE must hold a prediction of one learning rate, but holds one of {varying}, with which "
        "`sgd_check.compare` compares runs.",
    )
    again = prediction.attrs.get("answer") == REUSED
    try:
        carried = (
            runs_of(prediction)
            if again
            else {name: prediction.attrs[name] for name in ("learning_rate", "batch_size") if has_step(prediction)}
        )
    except ValueError as error:
        raise UsageError(as_typed(error, (), prediction="FILE")) from None
    carried |= {"steps": asked["steps"] or carried["steps"]} if again else {}
    for key in ("directions", "t_max") if again else ():
        require_usage(
            asked[key] is None,
            f"Option --{key.replace('_', '-')} must be absent for samples that are used again, but is given.",
        )
    optimizer = optimizer_of(prediction)
    require_usage(
        not carried or asked["theory"] != "flow",
        "Option --theory must not be flow for a prediction of finite steps, but is.",
    )
    for key, value in carried.items():
        require_usage(
            asked.get(key) in (None, value),
            f"Option --{key.replace('_', '-')} must be that of the prediction, {value:g}, but is {asked.get(key)}.",
        )
    fitting = REUSING if again else engine_of(Problem.from_dataset(prediction), optimizer)
    engine = asked["engine"] if asked["engine"] not in (None, "auto") else fitting
    require_usage(
        not again or engine == REUSING,
        f"Option --engine must be {REUSING} or auto for samples that are used again, but is {engine}.",
    )
    carried |= {"optimizer": optimizer}
    defaults = {"seeds": asked["seeds"] or DEFAULT_SEEDS, "batch_size": asked["batch_size"] or 1}
    return {**asked, **defaults, **carried, "engine": engine}


if __name__ == "__main__":
    run_program(main)
