"""Command line: `python -m sgd_check.study NAME`, the studies of the step size.

Parses first, imports after. The library is in `sgd_check.studies`; nothing imports this.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamics.command_line import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Parser,
    UsageError,
    chosen_figure,
)
from dynamics.options import Option, integer, natural_number, plain, positive, positive_integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

LONG_RUN_SECONDS = 660

EXAMPLES = """\
examples:
  python -m sgd_check.study sample-complexity
      steps to escape for d = 32 to 1024, k = 3 and 4, sixteen runs each; about ten minutes on two cores
  python -m sgd_check.study sample-complexity --k 4 --dimensions 32,64,128
      the same in seconds
  python -m sgd_check.study step-size --dimension 32 --json

`python -m sgd_check.study NAME --help` lists the options of a study. stdout holds the result, stderr everything else.
exit codes: 0 done, 1 the run failed (what was computed is kept and named), 2 usage, 130 interrupted (what was computed
is kept and named)
"""


def integers(text: str) -> tuple[int, ...]:
    """Read integers separated by commas."""
    return tuple(integer(part) for part in text.split(","))


def numbers(text: str) -> tuple[float, ...]:
    """Read positive numbers separated by commas."""
    return tuple(positive(part) for part in text.split(","))


class StudyCommand(NamedTuple):
    """One study: its module, one line for the reader, and options as (name of the argument, option)."""

    module: str
    help: str
    options: tuple[tuple[str, Option], ...]


_SEEDS = (
    ("seeds", Option("seeds", positive_integer, None, "runs of each point, at least 2 [12 to 32, by study]", "N")),
    ("seed", Option("seed", natural_number, None, "first seed of the samples [0]", "SEED")),
)
_START = (
    "start",
    Option("start", positive, None, "squared overlap of a neuron at the start, times d [4]", "S"),
)

STUDIES = {
    "sample-complexity": StudyCommand(
        "sgd_check.studies.complexity",
        "steps to escape against the dimension at a step size ~ d^(-k/2)",
        (
            ("information_exponents", Option("k", integers, None, "information exponents, at least 3 [3,4]", "K,K")),
            ("dimensions", Option("dimensions", integers, None, "[32,64,128,256,512,1024]", "D,D,...")),
            ("rate", Option("rate", positive, None, "step size in units of d^(-k/2) [0.1]", "C")),
            _START,
            *_SEEDS,
        ),
    ),
    "unstable-discretisation": StudyCommand(
        "sgd_check.studies.discretisation",
        "loss against samples at a step size tuned to the last wanted direction",
        (
            ("information_exponent", Option("k", positive_integer, None, "information exponent, at least 3 [4]", "K")),
            ("beta", Option("beta", positive, None, "decay of the teacher's coefficients, above 1/2 [1]", "BETA")),
            ("directions", Option("directions", positive_integer, None, "directions and neurons of SGD [16]", "P")),
            ("dimension", Option("dimension", positive_integer, None, "dimension of SGD [48]", "D")),
            ("targets", Option("targets", integers, None, "numbers of wanted directions [up to six to P^0.75]", "P,P")),
            ("rate", Option("rate", positive, None, "step size in units of the last wanted a_p d^(-k/2) [0.5]", "C")),
            _START,
            ("initial_norm", Option("initial-norm", positive, None, "norm of the starting weights of SGD [0.1]", "S0")),
            *_SEEDS,
            ("large_directions", Option("large-directions", positive_integer, None, "P of theory alone [4096]", "P")),
            ("large_dimension", Option("large-dimension", positive_integer, None, "d of theory alone [16384]", "D")),
        ),
    ),
    "step-size": StudyCommand(
        "sgd_check.studies.step_sizes",
        "emergence and blow-up against the step size, for one problem",
        (
            ("problem", Option("problem", plain, None, "dataset whose problem is studied, instead of --k", "FILE")),
            ("information_exponent", Option("k", positive_integer, None, "information exponent, at least 3 [4]", "K")),
            ("dimension", Option("dimension", positive_integer, None, "[64]", "D")),
            _START,
            ("learning_rates", Option("learning-rates", numbers, None, "[13, 1/16 to 16 times the limit]", "ETA,ETA")),
            *_SEEDS,
        ),
    ),
}
# The problem in a file says these itself.
_OF_THE_PROBLEM = ("k", "dimension", "start")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; building it imports nothing heavy."""
    parser = Parser(
        prog="python -m sgd_check.study",
        description="Study what the step size of SGD does, beside theory.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    for name, study in STUDIES.items():
        one = names.add_parser(name, help=study.help, description=study.help, allow_abbrev=False)
        for _, option in study.options:
            one.add_argument(f"--{option.name}", metavar=option.metavar, help=option.help)
        add = one.add_argument
        add("--output", metavar="FILE", help=f"dataset to write [a free name from study-{name}.nc on]")
        add("--plot", metavar="FILE", help="figure to write [beside the dataset, ending in .png]")
        add("--no-plot", action="store_true", help="write no figure")
        add("--overwrite", action="store_true", help="replace existing files")
        add("--dry-run", action="store_true", help="print the expected steps and time, run nothing")
        add("--json", action="store_true", help="print the result as one JSON object")
        add("--quiet", action="store_true", help="print nothing but errors")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        return _study(build_parser().parse_args(arguments))
    except UsageError as error:
        _say(f"error: {error}")
        return EXIT_USAGE
    except KeyboardInterrupt:
        _say("interrupted before anything was computed")
        return EXIT_INTERRUPTED


def _study(parsed: argparse.Namespace) -> int:
    settings = _settings(parsed)
    from dynamics.storage import StorageError, check_target, free_name

    command = STUDIES[parsed.name]
    output = Path(parsed.output) if parsed.output else free_name(f"study-{parsed.name}", ".nc")
    figure = chosen_figure(parsed.plot, output, no_plot=parsed.no_plot, json=parsed.json, quiet=parsed.quiet)
    try:
        for path in (output, figure):
            if path is not None and not parsed.dry_run:
                check_target(path, overwrite=parsed.overwrite)
        if isinstance(settings.get("problem"), str):
            settings["problem"] = _stored_problem(settings["problem"])
        study = import_module(command.module).prepare(**settings)
    except (TypeError, ValueError, StorageError) as error:
        raise UsageError(str(error)) from None
    if not parsed.quiet:
        seconds = study.expected_seconds()
        _say(f"About {_duration(seconds)} for {study.steps:.2g} steps of all runs together.")
        if seconds > LONG_RUN_SECONDS:
            _say("This is a long run: fewer or smaller dimensions, fewer seeds or a larger step size is faster.")
    if parsed.dry_run:
        return EXIT_DONE
    return _finish(study.run(progress=False if parsed.quiet else None), parsed, output, figure)


def _finish(dataset: xr.Dataset, parsed: argparse.Namespace, output: Path, figure: Path | None) -> int:
    """Write and print what was computed; return the exit code."""
    from dynamics.storage import StorageError, save
    from sgd_check.studies.figures import plot_study
    from sgd_check.studies.tables import as_json, as_text

    try:
        save(dataset, output, overwrite=parsed.overwrite)
    except StorageError as error:
        _say(f"error: {error}")
        return EXIT_FAILED
    if figure is not None:
        try:
            plot_study(dataset).savefig(figure, dpi=130)
        except OSError as error:
            _say(f"error: Figure {str(figure)!r} could not be written: {error}; the dataset is in {output}.")
            return EXIT_FAILED
    if not parsed.quiet:
        sys.stdout.write((as_json if parsed.json else as_text)(dataset, output, figure) + "\n")
    if dataset.attrs["stop_reason"] == "interrupted":
        _say(f"The run was interrupted; what was computed is in {output}.")
        return EXIT_INTERRUPTED
    return EXIT_DONE


def _settings(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of the study that were given, read and checked one by one."""
    found: dict[str, Any] = {}
    for argument, option in STUDIES[parsed.name].options:
        text = getattr(parsed, option.name.replace("-", "_"))
        if text is None:
            continue
        if option.name in _OF_THE_PROBLEM and getattr(parsed, "problem", None) is not None:
            msg = f"Option --{option.name} must be absent when --problem is given, but is {text}."
            raise UsageError(msg)
        try:
            found[argument] = option.read(text)
        except ValueError as error:
            msg = f"Option --{option.name} {error}."
            raise UsageError(msg) from None
    return found


def _stored_problem(path: str) -> Any:
    from dynamics.problem import Problem
    from dynamics.storage import load

    return Problem.from_dataset(load(path))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
