"""Command line: `python -m sgd_check.run prediction.nc`, a check of a prediction by simulated SGD."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamics.commands import (
    UsageError,
    as_typed,
    check_names_a_file,
    check_targets,
    chosen_figure,
    duration,
    exit_code_of,
    say,
)
from hermite.text.command_line import run_program
from hermite.text.messages import shown
from sgd_check.run.options import read_arguments
from sgd_check.run.run_files import (
    file_of_runs,
    finish_check,
    options_of_runs,
    refusal_of,
    remove_ended_runs,
    reopened_runs,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from dynamics.runs import RunFile
    from sgd_check.verdicts.check import CheckPlan

LONG_RUN_SECONDS = 660
LONG_RUN_ADVICE = (
    "This is a long run: fewer directions (--directions), fewer steps (--steps), a larger learning rate "
    "(--learning-rate) or a narrower problem is faster; --max-runtime bounds it."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return exit_code_of(lambda: _check(read_arguments(arguments)), interrupted="interrupted")


def _check(given: Mapping[str, Any]) -> int:
    source = Path(given["prediction"])
    check_names_a_file("Argument FILE", source)
    output = Path(given["output"]) if given["output"] is not None else source.with_name(f"{source.stem}-sgd.nc")
    figure = chosen_figure(given, output)
    begun = reopened_runs(given) if given["resume"] else None
    asked = given if begun is None else {**given, **options_of_runs(begun), "overwrite": True}
    prediction = _read_prediction(source)
    check_targets(asked, output, figure)
    if prediction.attrs.get("answer") == "mean-field":
        from sgd_check.run.mean_field import check_mean_field

        if begun is not None:
            msg = f"Option --resume must be absent for a mean field, but is {shown(given['resume'])}."
            raise UsageError(msg)
        return check_mean_field(asked, prediction, output, figure)
    settings = _completed(asked, prediction)
    plan, seconds = _plan(settings, prediction)
    file = file_of_runs(settings, plan.problem, output, begun)
    if not settings["quiet"]:
        _announce(plan, seconds, settings["seeds"])
    try:
        return _simulate(settings, prediction, plan, file, output, figure)
    except KeyboardInterrupt:
        if file.unfinished:
            remove_ended_runs(file, settings)
        raise


def _read_prediction(source: Path) -> xr.Dataset:
    """Return the prediction of a file; refuse files that are no prediction."""
    from dynamics.runs import StorageError, load_answer
    from sgd_check.verdicts.alignment import check_prediction, with_emergence

    try:
        prediction = with_emergence(load_answer(source))
        if prediction.attrs.get("answer") != "mean-field":
            check_prediction(prediction)
    except (TypeError, ValueError, StorageError) as error:
        raise UsageError(as_typed(error, (), path="FILE", prediction="FILE")) from None
    return prediction


def _completed(asked: Mapping[str, Any], prediction: xr.Dataset) -> Mapping[str, Any]:
    """Return the settings with learning rate and batch size of a prediction that carries them, else with defaults."""
    from dynamics.problem import Problem
    from sgd_check.engines import engine_of
    from sgd_check.verdicts.check import DEFAULT_SEEDS, step_of

    if asked["widths"] is not None:
        msg = "Option --widths must be absent for a prediction that is no mean field, but is given."
        raise UsageError(msg)
    step = step_of(prediction)
    carried = {} if step is None else dict(zip(("learning_rate", "batch_size"), step, strict=True))
    if carried and asked["theory"] == "flow":
        msg = "Option --theory must not be flow for a prediction of finite steps, but is."
        raise UsageError(msg)
    for key, value in carried.items():
        if asked[key] not in (None, value):
            name = "--" + key.replace("_", "-")
            msg = f"Option {name} must be that of the prediction, {value:g}, but is {asked[key]}."
            raise UsageError(msg)
    engine = asked["engine"] if asked["engine"] not in (None, "auto") else engine_of(Problem.from_dataset(prediction))
    defaults = {"seeds": DEFAULT_SEEDS, "batch_size": 1}
    return {**asked, **{key: asked[key] or default for key, default in defaults.items()}, **carried, "engine": engine}


def _announce(plan: CheckPlan, seconds: float | None, seeds: int) -> None:
    """Describe the simulation, about how long it takes, and options that make it faster or check more."""
    say(plan.describe())
    if seconds is None:
        say(f"{plan.steps} steps of {seeds} runs, in spans; --max-runtime bounds the time.")
    else:
        say(f"About {duration(seconds)} for {plan.steps} steps of {seeds} runs.")
    if seconds is not None and seconds > LONG_RUN_SECONDS:
        say(LONG_RUN_ADVICE)
    elif plan.beyond:
        say(plan.costs("--t-max"))
    elif plan.checked < plan.emerging:
        say(f"More directions would take over ten minutes; --directions {plan.emerging} checks all.")


def _tested(settings: Mapping[str, Any], prediction: xr.Dataset, plan: CheckPlan) -> xr.Dataset:
    """Return the prediction to test: the given one, or the finite-step equation at the learning rate of the runs."""
    from sgd_check.verdicts.check import NoFiniteStepError, prediction_to_test

    try:
        return prediction_to_test(
            prediction,
            plan,
            settings["batch_size"],
            theory=settings["theory"],
            progress=False if settings["quiet"] else None,
            say=(lambda _: None) if settings["quiet"] else say,
            given="the file",
            option="--theory finite-step",
        )
    except NoFiniteStepError as error:
        raise UsageError(str(error)) from None


def _plan(settings: Mapping[str, Any], prediction: xr.Dataset) -> tuple[CheckPlan, float | None]:
    """Return what to simulate and about how many seconds it takes, None for an engine whose cost is not in steps."""
    from sgd_check.engines import EngineOptions
    from sgd_check.verdicts.check import plan_check

    names = ("directions", "theory", "learning_rate", "steps", "t_max", "false_alarm_rate")
    choice = {name: settings[name] for name in names}
    options = EngineOptions(
        seeds=tuple(range(settings["seeds"])), **{name: settings[name] for name in ("batch_size", "device", "dtype")}
    )
    # This refuses what cannot be run; an error after it is a fault of the program, not of its usage.
    try:
        return plan_check(prediction, settings["engine"], options, **choice)
    except (ValueError, ImportError) as error:
        raise UsageError(refusal_of(error, settings["engine"])) from None


def _simulate(
    settings: Mapping[str, Any],
    prediction: xr.Dataset,
    plan: CheckPlan,
    file: RunFile,
    output: Path,
    figure: Path | None,
) -> int:
    """Simulate, compare, write, print; return the exit code."""
    import warnings

    from sgd_check.verdicts.check import carry_out

    def announce(steps: int) -> None:
        if not settings["quiet"]:
            say(f"Then {steps} steps at half of the learning rate, so that the effect of the step size is known.")

    tested = _tested(settings, prediction, plan)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: None if settings["quiet"] else say(f"warning: {message}")
        names = ("false_alarm_rate", "max_runtime", "seeds", "engine", "batch_size", "device", "dtype")
        tree, ended = carry_out(
            plan,
            prediction,
            tested,
            checkpoint=file,
            announce=announce,
            option="--t-max",
            progress=False if settings["quiet"] else None,
            **{name: settings[name] for name in names},
        )
        return finish_check(tree, output, figure, settings, ended, file)


if __name__ == "__main__":
    run_program(main)
