"""Command line: `python -m sgd_check.run prediction.nc`.

Parses first, imports after. The library is in `sgd_check.simulation` and `sgd_check.comparison`; nothing imports this.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamics.command_line import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Parser,
    UsageError,
    chosen_figure,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LONG_RUN_SECONDS = 660
LONG_RUN_ADVICE = (
    "This is a long run: fewer directions (--directions), fewer steps (--steps), a larger learning rate "
    "(--learning-rate) or a narrower problem is faster; --max-runtime bounds it."
)

EXAMPLES = """\
examples:
  python -m sgd_check.run prediction.nc
      32 runs at a safe learning rate; writes prediction-sgd.nc and prediction-sgd.png
  python -m sgd_check.run prediction.nc --seeds 64 --learning-rate 1e-5 --output check.nc --json

stdout holds the result, stderr everything else. The verdict is part of the result: a disagreement is no failure.
exit codes: 0 done, 1 the run failed or every run blew up (what was computed is kept and named), 2 usage,
130 interrupted (what was computed is kept and named)
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; building it imports nothing heavy."""
    parser = Parser(
        prog="python -m sgd_check.run",
        description="Check a predicted learning course against online SGD on sampled data.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("prediction", metavar="FILE", help="dataset written by `python -m dynamics.solve`")
    add(
        "--engine",
        default="projected",
        metavar="NAME",
        help="how to simulate: projected (exact in law, its cost does not depend on d) or torch (in R^d) [projected]",
    )
    add("--seeds", type=_number(int), default=32, metavar="N", help="number of runs [32]")
    add(
        "--learning-rate",
        type=_number(float),
        metavar="ETA",
        help="step size [up to a tenth of the limit of stability, so that a 30 percent error shows]",
    )
    add("--steps", type=_number(int), metavar="N", help="SGD steps [up to 2.5 times the last checked emergence]")
    add(
        "--directions",
        type=_number(int),
        metavar="N",
        help="choose learning rate and steps for the first N directions to emerge [as many as ten minutes allow]",
    )
    add("--batch-size", type=_number(int), default=1, metavar="B", help="samples per step [1]")
    add("--device", default="auto", metavar="NAME", help="auto, cpu or, for torch, cuda [auto]")
    add("--dtype", default="auto", metavar="NAME", help="float32 (torch alone) or float64 [auto: the engine's own]")
    add("--max-runtime", type=_number(float), metavar="SECONDS", help="wall-clock budget of the simulation")
    add("--false-alarm-rate", type=_rate, default=0.01, metavar="RATE", help="of the verdict [0.01]")
    add("--output", metavar="FILE", help="dataset tree to write [beside the prediction, ending in -sgd.nc]")
    add("--plot", metavar="FILE", help="figure to write [beside the output, ending in .png]")
    add("--no-plot", action="store_true", help="write no figure")
    add("--overwrite", action="store_true", help="replace existing files")
    add("--json", action="store_true", help="print the result as one JSON object")
    add("--quiet", action="store_true", help="print nothing but errors")
    return parser


def _number(kind: Callable[[float], float]) -> Callable[[str], Any]:
    """Return a reader of positive numbers; 1e6 is an integer too."""

    def read(text: str) -> Any:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (0 < value < float("inf")) or kind(value) != value:
            what = "integer" if kind is int else "number"
            msg = f"must be a positive {what}, but is {text!r}"
            raise argparse.ArgumentTypeError(msg)
        return kind(value)

    return read


def _rate(text: str) -> float:
    """Read a probability."""
    value: float = _number(float)(text)
    if not value < 1:
        msg = f"must lie between 0 and 1, but is {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return value


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
    course, seconds = _chosen_course(parsed, prediction)
    if not parsed.quiet:
        _say(course.describe())
        _say(f"About {_duration(seconds)} for {course.steps} steps of {parsed.seeds} runs.")
        if seconds > LONG_RUN_SECONDS:
            _say(LONG_RUN_ADVICE)
        elif course.checked < course.emerging:
            _say(f"More directions would take over ten minutes; --directions {course.emerging} checks all.")
    return _simulate(parsed, prediction, course, output, figure)


def _chosen_course(parsed: argparse.Namespace, prediction: Any) -> tuple[Any, float]:
    """Return what to simulate and about how many seconds it takes."""
    from sgd_check.defaults import affordable_course, choose_course, measured_seconds_per_step
    from sgd_check.engines import EngineOptions, make_engine

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
    per_step = measured_seconds_per_step(engine)
    if parsed.directions is None:
        course = affordable_course(prediction, per_step, **options)
    else:
        course = choose_course(prediction, **options, directions=parsed.directions)
    return course, per_step * course.steps


def _simulate(parsed: argparse.Namespace, prediction: Any, course: Any, output: Path, figure: Path | None) -> int:
    """Simulate, compare, write, print; return the exit code."""
    import warnings

    from sgd_check import compare, simulate

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
        tree = compare(prediction, simulation, false_alarm_rate=parsed.false_alarm_rate)
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
