"""Command line: `python -m sgd_check.run prediction.nc`.

Parses first, imports after. Options are in `sgd_check.run.options`, the library in `sgd_check.runs.simulation` and
`sgd_check.verdicts.comparison`; nothing imports this.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamics.commands import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    UsageError,
    check_names_a_file,
    chosen_figure,
    duration,
)
from hermite.text.messages import shown
from sgd_check.run.end import exit_code, say, sentence, write
from sgd_check.run.options import build_parser
from sgd_check.run.resume import adopt_runs, end_of_runs, file_of_runs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from dynamics.runs import RunFile

LONG_RUN_SECONDS = 660
LONG_RUN_ADVICE = (
    "This is a long run: fewer directions (--directions), fewer steps (--steps), a larger learning rate "
    "(--learning-rate) or a narrower problem is faster; --max-runtime bounds it."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        parsed = build_parser().parse_args(arguments)
        return _check(parsed)
    except UsageError as error:
        say(f"error: {error}")
        return EXIT_USAGE
    except KeyboardInterrupt:
        say("interrupted before anything was computed")
        return EXIT_INTERRUPTED


def _check(parsed: argparse.Namespace) -> int:
    from dynamics.runs import StorageError, check_target, load_answer
    from sgd_check.verdicts.alignment import check_prediction

    source = Path(parsed.prediction)
    check_names_a_file("Argument FILE", source)
    output = Path(parsed.output) if parsed.output is not None else source.with_name(f"{source.stem}-sgd.nc")
    figure = chosen_figure(parsed.plot, output, no_plot=parsed.no_plot, json=parsed.json, quiet=parsed.quiet)
    begun = adopt_runs(parsed) if parsed.resume else None
    try:
        prediction = load_answer(source)
        for path in (output, figure):
            if path is not None:
                check_target(path, overwrite=parsed.overwrite)
    except StorageError as error:
        raise UsageError(str(error)) from None
    if prediction.attrs.get("answer") == "mean-field":
        from sgd_check.run.mean_field import check_mean_field

        if begun is not None:
            msg = f"Option --resume must be absent for a mean field, but is {shown(parsed.resume)}."
            raise UsageError(msg)
        return check_mean_field(parsed, prediction, output, figure)
    try:
        check_prediction(prediction)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    _adopt_defaults(parsed, prediction)
    course, seconds = _chosen_course(parsed, prediction)
    file = file_of_runs(parsed, course.problem, output, begun)
    if not parsed.quiet:
        say(course.describe())
        if seconds is None:
            say(f"{course.steps} steps of {parsed.seeds} runs, in spans; --max-runtime bounds the time.")
        else:
            say(f"About {duration(seconds)} for {course.steps} steps of {parsed.seeds} runs.")
        if seconds is not None and seconds > LONG_RUN_SECONDS:
            say(LONG_RUN_ADVICE)
        elif course.checked < course.emerging:
            say(f"More directions would take over ten minutes; --directions {course.emerging} checks all.")
    return _simulate(parsed, prediction, course, file, output, figure)


def _adopt_defaults(parsed: argparse.Namespace, prediction: Any) -> None:
    """Take learning rate and batch size of a prediction that carries them, else defaults; refuse contradictions."""
    from sgd_check.engines import DEFAULT_ENGINE
    from sgd_check.verdicts.defaults import DEFAULT_SEEDS
    from sgd_check.verdicts.finite_step import step_of

    if parsed.widths is not None:
        msg = "Option --widths must be absent for a prediction that is no mean field, but is given."
        raise UsageError(msg)
    parsed.engine = parsed.engine or DEFAULT_ENGINE
    parsed.seeds = parsed.seeds or DEFAULT_SEEDS
    step = step_of(prediction)
    if step is not None:
        if parsed.theory == "flow":
            msg = "Option --theory must not be flow for a prediction of finite steps, but is."
            raise UsageError(msg)
        for option, carried in zip(("learning_rate", "batch_size"), step, strict=True):
            if getattr(parsed, option) not in (None, carried):
                name = "--" + option.replace("_", "-")
                msg = f"Option {name} must be that of the prediction, {carried:g}, but is {getattr(parsed, option):g}."
                raise UsageError(msg)
        parsed.learning_rate, parsed.batch_size = step
    parsed.batch_size = parsed.batch_size or 1


def _tested(parsed: argparse.Namespace, prediction: Any, course: Any) -> Any:
    """Return the prediction to test: the given one, or the finite-step equation at the learning rate of the runs."""
    from sgd_check.verdicts.finite_step import NoFiniteStepError, prediction_to_test

    try:
        return prediction_to_test(
            prediction,
            course,
            parsed.batch_size,
            theory=parsed.theory,
            progress=False if parsed.quiet else None,
            say=(lambda _: None) if parsed.quiet else say,
            given="the file",
            option="--theory finite-step",
        )
    except NoFiniteStepError as error:
        raise UsageError(str(error)) from None


def _chosen_course(parsed: argparse.Namespace, prediction: Any) -> tuple[Any, float | None]:
    """Return what to simulate and about how many seconds it takes, None for an engine whose cost is not in steps."""
    from sgd_check.engines import EngineOptions
    from sgd_check.verdicts.defaults import choose_and_time, engine_for

    names = ("learning_rate", "steps", "false_alarm_rate")
    choice = {name: getattr(parsed, name) for name in names}
    options = EngineOptions(
        seeds=tuple(range(parsed.seeds)), batch_size=parsed.batch_size, device=parsed.device, dtype=parsed.dtype
    )
    # This refuses what cannot be run; an error after it is a fault of the program, not of its usage.
    try:
        engine = engine_for(prediction, parsed.engine, options, **choice)
    except (ValueError, ImportError) as error:
        raise UsageError(sentence(error, parsed.engine)) from None
    return choose_and_time(prediction, engine, options, directions=parsed.directions, **choice)


def _simulate(
    parsed: argparse.Namespace, prediction: Any, course: Any, file: RunFile, output: Path, figure: Path | None
) -> int:
    """Simulate, compare, write, print; return the exit code."""
    import warnings

    import xarray as xr

    from sgd_check import compare, simulate

    tested = _tested(parsed, prediction, course)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: None if parsed.quiet else say(f"warning: {message}")
        simulation = simulate(
            course.problem,
            learning_rate=course.learning_rate,
            steps=course.steps,
            seeds=parsed.seeds,
            engine=parsed.engine,
            batch_size=parsed.batch_size,
            device=parsed.device,
            dtype=parsed.dtype,
            progress=False if parsed.quiet else None,
            max_runtime=parsed.max_runtime,
            checkpoint=file,
        )
        tree = compare(tested, simulation, false_alarm_rate=parsed.false_alarm_rate)
    if tested is not prediction:
        tree["given"] = xr.DataTree(prediction)
    written = write(tree, output, figure, parsed)
    if written.output is None:
        return EXIT_FAILED
    code = exit_code(simulation.attrs["stop_reason"], written.output)
    end_of_runs(file, parsed)
    return (code or EXIT_FAILED) if written.trouble else code


if __name__ == "__main__":
    sys.exit(main())
