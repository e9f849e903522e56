"""Command line: `python -m sgd_check.run prediction.nc`.

Parses first, imports after. Options are in `sgd_check.run_options`, the library in `sgd_check.simulation` and
`sgd_check.comparison`; nothing imports this.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamics.command_line import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, UsageError, chosen_figure
from sgd_check.run_options import build_parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

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
        _say(f"error: {error}")
        return EXIT_USAGE
    except KeyboardInterrupt:
        _say("interrupted before anything was computed")
        return EXIT_INTERRUPTED


def _check(parsed: argparse.Namespace) -> int:
    from dynamics.storage import StorageError, check_target, load

    source = Path(parsed.prediction)
    output = Path(parsed.output) if parsed.output else source.with_name(f"{source.stem}-sgd.nc")
    figure = chosen_figure(parsed.plot, output, no_plot=parsed.no_plot, json=parsed.json, quiet=parsed.quiet)
    try:
        prediction = load(source)
        for path in (output, figure):
            if path is not None:
                check_target(path, overwrite=parsed.overwrite)
    except StorageError as error:
        raise UsageError(str(error)) from None
    _adopt_step(parsed, prediction)
    course, seconds = _chosen_course(parsed, prediction)
    if not parsed.quiet:
        _say(course.describe())
        if seconds is None:
            _say(f"{course.steps} steps of {parsed.seeds} runs, in spans; --max-runtime bounds the time.")
        else:
            _say(f"About {_duration(seconds)} for {course.steps} steps of {parsed.seeds} runs.")
        if seconds is not None and seconds > LONG_RUN_SECONDS:
            _say(LONG_RUN_ADVICE)
        elif course.checked < course.emerging:
            _say(f"More directions would take over ten minutes; --directions {course.emerging} checks all.")
    return _simulate(parsed, prediction, course, output, figure)


def _adopt_step(parsed: argparse.Namespace, prediction: Any) -> None:
    """Take learning rate and batch size of a prediction that carries them; refuse options that contradict it."""
    from sgd_check.finite_step import step_of

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
    from sgd_check.finite_step import LONGEST_SECONDS, NoFiniteStepError, misfit, solve_finite_step, step_of

    if parsed.theory == "flow" or step_of(prediction) is not None:
        return prediction
    try:
        solution = solve_finite_step(
            course, parsed.batch_size, progress=False if parsed.quiet else None, max_runtime=LONGEST_SECONDS
        )
    except NoFiniteStepError as error:
        if parsed.theory == "finite-step":
            raise UsageError(str(error)) from None
        if not parsed.quiet:
            _say(f"The times in the file are tested, without the finite-step equation: {error}")
        return prediction
    worst = misfit(prediction, solution) if parsed.theory == "auto" else None
    if worst is not None:
        if not parsed.quiet:
            _say(
                f"The finite-step equation has another time than the file for direction {worst + 1}, so the file is "
                "tested; --theory finite-step tests the equation."
            )
        return prediction
    return solution


def _chosen_course(parsed: argparse.Namespace, prediction: Any) -> tuple[Any, float | None]:
    """Return what to simulate and about how many seconds it takes, None for an engine whose cost is not in steps."""
    from sgd_check.defaults import affordable_course, choose_course, measured_seconds_per_step
    from sgd_check.engines import EngineOptions, SpanEngine, make_engine

    options = {
        "learning_rate": parsed.learning_rate,
        "steps": parsed.steps,
        "batch_size": parsed.batch_size,
        "seeds": parsed.seeds,
        "false_alarm_rate": parsed.false_alarm_rate,
    }
    engine_options = EngineOptions(
        seeds=tuple(range(parsed.seeds)), batch_size=parsed.batch_size, device=parsed.device, dtype=parsed.dtype
    )
    # These two refuse what cannot be run; an error after them is a fault of the program, not of its usage.
    try:
        problem = choose_course(prediction, **options, directions=1).problem
        engine = make_engine(parsed.engine, problem, engine_options)
    except (ValueError, ImportError) as error:
        raise UsageError(_sentence(error, parsed.engine)) from None
    if isinstance(engine, SpanEngine):
        return choose_course(prediction, **options, directions=parsed.directions), None
    per_step = measured_seconds_per_step(engine)
    if parsed.directions is None:
        course = affordable_course(prediction, per_step, **options)
    else:
        course = choose_course(prediction, **options, directions=parsed.directions)
    return course, per_step * course.steps


def _simulate(parsed: argparse.Namespace, prediction: Any, course: Any, output: Path, figure: Path | None) -> int:
    """Simulate, compare, write, print; return the exit code."""
    import warnings

    import xarray as xr

    from sgd_check import compare, simulate

    tested = _tested(parsed, prediction, course)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: None if parsed.quiet else _say(f"warning: {message}")
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
        )
        tree = compare(tested, simulation, false_alarm_rate=parsed.false_alarm_rate)
    if tested is not prediction:
        tree["given"] = xr.DataTree(prediction)
    failure = _write(tree, output, figure, overwrite=parsed.overwrite)
    if failure is not None:
        _say(f"error: {failure}")
        return EXIT_FAILED
    if not parsed.quiet:
        from sgd_check.table import as_json, as_text

        sys.stdout.write((as_json if parsed.json else as_text)(tree, output, figure) + "\n")
    return _exit_code(simulation.attrs["stop_reason"], output)


def _write(tree: Any, output: Path, figure: Path | None, *, overwrite: bool) -> str | None:
    """Write dataset and figure; return what went wrong, in one sentence."""
    from dynamics.storage import StorageError, save
    from sgd_check import plot_comparison

    try:
        save(tree, output, overwrite=overwrite)
    except StorageError as error:
        return str(error)
    if figure is not None:
        drawn = plot_comparison(tree)
        try:
            drawn.savefig(figure, dpi=150)
        except OSError as error:
            return f"Figure {str(figure)!r} could not be written: {error}; the dataset is in {output}."
    return None


def _exit_code(stop_reason: str, output: Path) -> int:
    if stop_reason == "interrupted":
        _say(f"The run was interrupted; what was computed is in {output}.")
        return EXIT_INTERRUPTED
    if stop_reason == "blown_up":
        _say(f"Every run blew up, so try a smaller learning rate; what was computed is in {output}.")
        return EXIT_FAILED
    if stop_reason == "max_runtime":
        _say(f"The wall-clock budget ran out; what was computed is in {output}.")
    return EXIT_DONE


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _sentence(error: BaseException, engine: str) -> str:
    if isinstance(error, ImportError) and engine == "torch":
        return f"Engine torch must have PyTorch installed, but {error}; install it with pip install torch."
    return str(error)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
