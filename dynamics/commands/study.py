"""Command lines of studies by name, `python -m PROGRAM NAME`: options, files, exit codes, messages.

A catalogue says which studies there are and who says what their results show. Nothing heavy is imported before the
command line is parsed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamics.commands.end import end_with, store_result, store_table
from dynamics.commands.options import CONFIG, CSV, JSON, NO_PLOT, OVERWRITE, PLOT, QUIET, STYLE, Option
from dynamics.commands.parsing import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Parser,
    UsageError,
    as_typed,
    check_targets,
    chosen_figure,
    chosen_style,
    command_parser,
    completed,
    exit_code_of,
    read_option,
    say,
)
from dynamics.commands.readers import plain, switch
from hermite.text.command_line import flag_suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from dynamics.commands.end import Telling
    from dynamics.commands.prepared import Prepared

#: Options that a file given by --problem answers itself.
_OF_THE_PROBLEM = ("k", "dimension", "start")
FIGURE_DPI = 130

DRY_RUN = Option("dry-run", switch, "print the expected work and time, run nothing")


class StudyCommand(NamedTuple):
    """One study: "module:function" that prepares it, one line for the reader, and an option for each setting."""

    prepares: str
    help: str
    options: tuple[Option, ...]

    def prepare(self, settings: Mapping[str, Any], *, progress: bool | None) -> Prepared:
        """Import the module and return the study, checked; nothing is solved yet."""
        prepared: Prepared = resolve_name(self.prepares)(**settings, progress=progress)
        return prepared


class Catalogue(NamedTuple):
    """The studies of one command, and "module:function" of what a result of them shows, (dataset) -> Findings."""

    prog: str
    description: str
    examples: str
    studies: dict[str, StudyCommand]
    findings: str


def build_parser(catalogue: Catalogue) -> Parser:
    """Return the parser; building it imports nothing heavy."""
    parser = command_parser(catalogue.prog, catalogue.description, catalogue.examples)
    names = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    for name, study in catalogue.studies.items():
        one = names.add_parser(name, help=study.help, description=study.help, allow_abbrev=False)
        one.add_options(options_of(name, study))
    return parser


def options_of(name: str, study: StudyCommand) -> tuple[Option, ...]:
    """Return the options of a study: its settings, and what every study takes."""
    output = Option("output", plain, f"dataset to write [a free name from study-{name}.nc on]", "FILE")
    return (*study.options, CONFIG, output, PLOT, NO_PLOT, STYLE, CSV, OVERWRITE, DRY_RUN, JSON, QUIET)


def run_command(catalogue: Catalogue, arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return exit_code_of(lambda: _study(catalogue, _values(catalogue, arguments)))


def _values(catalogue: Catalogue, arguments: Sequence[str] | None) -> Mapping[str, Any]:
    """Return the parsed arguments by name; of an option of other studies alone, say so."""
    parser = build_parser(catalogue)
    found, unknown = parser.parse_known_args(arguments)
    if unknown:
        flag = unknown[0].partition("=")[0]
        own = [f"--{option.name}" for option in options_of(found.name, catalogue.studies[found.name])]
        hint = flag_suggestion(flag, own)
        known = {name: [f"--{option.name}" for option in study.options] for name, study in catalogue.studies.items()}
        if takers := [name for name, flags in known.items() if flag in flags]:
            msg = f"Option {flag} must be absent for {found.name}, but is given; it is one of {', '.join(takers)}."
            raise UsageError(msg + hint)
        msg = f"unrecognized arguments: {' '.join(unknown)}"
        raise UsageError(f"{msg}.{hint}" if hint else msg)
    return MappingProxyType(vars(found))


def _study(catalogue: Catalogue, values: Mapping[str, Any]) -> int:
    command = catalogue.studies[values["name"]]
    values = completed(values, options_of(values["name"], command))
    settings = _settings(command, values)
    from dynamics.problem import Problem
    from dynamics.runs.storage import StorageError, free_name, load_answer

    output = Path(values["output"]) if values["output"] is not None else free_name(f"study-{values['name']}", ".nc")
    figure = chosen_figure(values, output)
    if not values["dry_run"]:
        check_targets(values, output, figure)
    try:
        if "problem" in settings:
            settings["problem"] = Problem.from_dataset(load_answer(settings["problem"]))
        study = command.prepare(settings, progress=False if values["quiet"] else None)
        work = study.work()
    except (TypeError, ValueError, StorageError) as error:
        raise UsageError(as_typed(error, command.options, path="--problem")) from None
    if not values["quiet"]:
        say(work)
    return EXIT_DONE if values["dry_run"] else _finish(catalogue, study.run(), values, output, figure)


def _finish(
    catalogue: Catalogue, dataset: xr.Dataset, values: Mapping[str, Any], output: Path, figure: Path | None
) -> int:
    """Write and print what was computed; return the exit code."""

    def find() -> Telling:
        found: Telling = resolve_name(catalogue.findings)(dataset)
        return found

    written = end_with(
        partial(store_result, dataset, output, overwrite=values["overwrite"]),
        find,
        figure,
        json=values["json"],
        quiet=values["quiet"],
        overwrite=values["overwrite"],
        dpi=FIGURE_DPI,
        style=chosen_style(values),
        table=partial(store_table, dataset, values["csv"], overwrite=values["overwrite"]),
    )
    if written.output is None:
        return EXIT_FAILED
    if dataset.attrs.get("stop_reason") == "interrupted":
        say(f"The run was interrupted; what was computed is in {written.output}.")
        return EXIT_INTERRUPTED
    return EXIT_FAILED if written.trouble else EXIT_DONE


def _settings(command: StudyCommand, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that were given, read and checked one by one."""
    given = {option: values[option.key] for option in command.options if values[option.key] not in (None, False)}
    for option, text in given.items():
        if option.name in _OF_THE_PROBLEM and values.get("problem") is not None:
            msg = f"Option --{option.name} must be absent when --problem is given, but is {text}."
            raise UsageError(msg)
    return {option.key: read_option(option, text) for option, text in given.items()}
