"""Command lines of studies by name, `python -m PROGRAM NAME`: options, files, exit codes, messages.

A catalogue says which studies there are and who says what their results show. Nothing heavy is imported before the
command line is parsed.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamics.commands.end import end_with, store_result
from dynamics.commands.options import Option, integer, positive
from dynamics.commands.parsing import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Parser,
    UsageError,
    chosen_figure,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.commands.end import Telling

__all__ = ["Catalogue", "StudyCommand", "build_parser", "integers", "numbers", "run_command", "switch"]

# The problem in a file says these itself.
_OF_THE_PROBLEM = ("k", "dimension", "start")
FIGURE_DPI = 130


def integers(text: str) -> tuple[int, ...]:
    """Read integers separated by commas."""
    return tuple(integer(part) for part in text.split(","))


def numbers(text: str) -> tuple[float, ...]:
    """Read positive numbers separated by commas."""
    return tuple(positive(part) for part in text.split(","))


def switch(_: str) -> bool:
    """Mark an option that takes no value."""
    return True


class StudyCommand(NamedTuple):
    """One study: its module, one line for the reader, and options as (name of the argument, option).

    The module has `prepare(**arguments)`, which checks and raises before any work and returns an object with
    `work()`, what will be done in one line or two, and `run(progress=…)`, the dataset.
    """

    module: str
    help: str
    options: tuple[tuple[str, Option], ...]


class Catalogue(NamedTuple):
    """The studies of one command, and "module:function" of what a result of them shows, (dataset) -> Findings."""

    prog: str
    description: str
    examples: str
    studies: dict[str, StudyCommand]
    findings: str


def build_parser(catalogue: Catalogue) -> argparse.ArgumentParser:
    """Return the parser; building it imports nothing heavy."""
    parser = Parser(
        prog=f"python -m {catalogue.prog}",
        description=catalogue.description,
        epilog=catalogue.examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    for name, study in catalogue.studies.items():
        one = names.add_parser(name, help=study.help, description=study.help, allow_abbrev=False)
        for _, option in study.options:
            if option.read is switch:
                one.add_argument(f"--{option.name}", action="store_const", const="yes", help=option.help)
            else:
                one.add_argument(f"--{option.name}", metavar=option.metavar, help=option.help)
        add = one.add_argument
        add("--output", metavar="FILE", help=f"dataset to write [a free name from study-{name}.nc on]")
        add("--plot", metavar="FILE", help="figure to write [beside the dataset, ending in .png]")
        add("--no-plot", action="store_true", help="write no figure")
        add("--overwrite", action="store_true", help="replace existing files")
        add("--dry-run", action="store_true", help="print the expected work and time, run nothing")
        add("--json", action="store_true", help="print the result as one JSON object")
        add("--quiet", action="store_true", help="print nothing but errors")
    return parser


def run_command(catalogue: Catalogue, arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        return _study(catalogue, build_parser(catalogue).parse_args(arguments))
    except UsageError as error:
        _say(f"error: {error}")
        return EXIT_USAGE
    except KeyboardInterrupt:
        _say("interrupted before anything was computed")
        return EXIT_INTERRUPTED


def duration(seconds: float) -> str:
    """Return seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _study(catalogue: Catalogue, parsed: argparse.Namespace) -> int:
    command = catalogue.studies[parsed.name]
    settings = _settings(command, parsed)
    from dynamics.runs.storage import StorageError, check_target, free_name

    output = Path(parsed.output) if parsed.output is not None else free_name(f"study-{parsed.name}", ".nc")
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
        _say(study.work())
    if parsed.dry_run:
        return EXIT_DONE
    dataset = study.run(progress=False if parsed.quiet else None)
    return _finish(catalogue, dataset, parsed, output, figure)


def _finish(
    catalogue: Catalogue, dataset: xr.Dataset, parsed: argparse.Namespace, output: Path, figure: Path | None
) -> int:
    """Write and print what was computed; return the exit code."""

    def find() -> Telling:
        module, _, function = catalogue.findings.partition(":")
        found: Telling = getattr(import_module(module), function)(dataset)
        return found

    written = end_with(
        partial(store_result, dataset, output, overwrite=parsed.overwrite),
        find,
        figure,
        json=parsed.json,
        quiet=parsed.quiet,
        overwrite=parsed.overwrite,
        dpi=FIGURE_DPI,
    )
    if written.output is None:
        return EXIT_FAILED
    if dataset.attrs["stop_reason"] == "interrupted":
        _say(f"The run was interrupted; what was computed is in {written.output}.")
        return EXIT_INTERRUPTED
    return EXIT_FAILED if written.trouble else EXIT_DONE


def _settings(command: StudyCommand, parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of the study that were given, read and checked one by one."""
    found: dict[str, Any] = {}
    for argument, option in command.options:
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
    from dynamics.runs.storage import load_answer

    return Problem.from_dataset(load_answer(path))


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
