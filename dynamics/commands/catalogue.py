"""Studies by name: functions with one signature for calls and command lines, and `python -m PROGRAM NAME`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, Protocol, TypeVar

from dynamics.commands import options as table
from dynamics.commands import parsing
from dynamics.commands.options import GROUPS, Option, Values, plain, switch
from dynamics.commands.parsing import EXIT_DONE, EXIT_FAILED, UsageError, require_usage
from hermite.program import flag_suggestion
from hermite.text.messages import require

if TYPE_CHECKING:
    import xarray as xr

P = ParamSpec("P")
#: Arguments and errors of every study, for the documentation of each.
OF_EVERY_STUDY = """\
Other Parameters
----------------
progress : bool, optional
    Show a bar on stderr; by default if it is a terminal or a notebook.

Raises
------
TypeError, ValueError
    One sentence: what must hold, what was given.
SolveInterrupted
    If Ctrl-C was pressed: it holds the part that was computed. KeyboardInterrupt is raised if there is none."""


class Prepared(Protocol):
    """A study whose settings are checked and of which nothing is solved yet."""

    def work(self) -> str:
        """Return the work and the time, in a line or two."""

    def run(self) -> xr.Dataset:
        """Solve it; after an interruption, return the part that was computed."""


def study_function(prepare: Callable[P, Prepared]) -> Callable[P, xr.Dataset]:
    """Return a function that prepares and runs a study: its callers get the dataset of the study, not the study.

    `prepare` checks the arguments and returns the prepared study, which has solved nothing yet; it stays the attribute
    `prepare` of the result, for commands that show the expected work first. The result has its docstring, whose section
    "Returns" therefore describes the dataset. After an interruption it raises `SolveInterrupted`, which holds the part
    that was computed.
    """

    @wraps(prepare)
    def prepare_and_run(*args: P.args, **kwargs: P.kwargs) -> xr.Dataset:
        from dynamics.runs.result import uninterrupted

        return uninterrupted(prepare(*args, **kwargs).run())

    shown = inspect.signature(prepare).replace(return_annotation="xr.Dataset")
    vars(prepare_and_run).update(prepare=prepare, __signature__=shown)
    description, *examples = re.split(r"\n\n(?=Examples\n---)", inspect.getdoc(prepare) or "")
    prepare_and_run.__doc__ = "\n\n".join([description, OF_EVERY_STUDY, *examples])
    return prepare_and_run


def duration(seconds: float) -> str:
    """Return seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


#: Options that a file given by --problem answers itself.
_OF_THE_PROBLEM = ("k", "dimension", "start")
#: Functions of the room above that check the file of a page, and write it.
CHECKS_PAGE, WRITES_PAGE = "dynamics.report.page:check_page", "dynamics.report.page:write_report"
DRY_RUN = Option("dry-run", switch, "print the expected work and time, run nothing", group="running")


#: Arguments of several studies, as in `studies_of`; other settings of a problem have the words of `dynamics.solve`.
_SHARED = """
  k:information_exponent | K | information exponent, at least 3
  beta | | decay of the teacher's coefficients
  directions | P | number of directions P
  dimension | D | input dimension d
  dimensions | D,D,... | input dimensions d, increasing
  widths | M,M,... | widths, increasing
  starts | N | random starts of each problem | answer
  seed | | seed of the first random start
  workers | N | processes, each on one thread [one per core] | running
"""


class StudyCommand(NamedTuple):
    """One study: "module:function" that prepares it, one line for the reader, and the words of its arguments."""

    prepares: str
    help: str
    #: Argument of the function -> its option, without its type and default.
    words: Mapping[str, Option]
    #: Argument without a flag, "" if all have one.
    argument: str = ""

    @property
    def options(self) -> tuple[Option, ...]:
        """An option for each argument of the function, with its type and default."""
        arguments = table.arguments_of(self.prepares)
        named = [name for name in arguments if name not in ("progress", self.argument)]
        typed = {name: self.words[name]._replace(read=arguments[name].read) for name in named}
        return tuple(table.with_default(option, arguments[name]) for name, option in typed.items())

    def prepare(self, settings: Mapping[str, object], *, progress: bool | None) -> Prepared:
        """Import the module and return the prepared study."""
        function = resolve_name(self.prepares)
        for name, parameter in inspect.signature(function).parameters.items():
            is_given = name in settings or parameter.default is not parameter.empty
            require(is_given, f"Argument `{name}` must be given, but is absent.")
        prepared: Prepared = function(**settings, progress=progress)
        return prepared


Kind = TypeVar("Kind", bound=StudyCommand)


def studies_of(text: str, kind: type[Kind]) -> dict[str, Kind]:
    '''Return the studies of a table by name.

    A study has a line "name | module:function | words", and below it an indented line for each argument that has words
    of its own, "flag:argument | METAVAR=default | words | heading"; a line that begins with more blanks continues the
    one above. Lines above the first study hold for all studies. A line may lack the argument if it is named as its
    flag, the placeholder, a default that is that of the function, and the heading "problem". An argument without a
    flag has the heading "argument".

    >>> text = """law | package.module:function | a law
    ...   width:widths | M,M,...=8,16 | widths, increasing | answer"""
    >>> option = studies_of(text, StudyCommand)["law"].words["widths"]
    >>> option.name, option.metavar, option.default, option.explanation
    ('width', 'M,M,...', '8,16', 'widths, increasing [8,16]')
    '''
    studies, shared = dict[str, Kind](), {option.key: option for option in table.PROBLEM_OPTIONS}
    lines = re.sub(r"\n {4,}", " ", _SHARED + text).splitlines()
    words, last = shared, ""
    for line in filter(str.strip, lines):
        columns = [column.strip() for column in re.split(r" \|(?= )", line)]
        if not line.startswith(" "):
            (last, prepares, about), words = columns, dict(shared)
            studies[last] = kind(prepares, about, words)
            continue
        flag, _, argument = columns[0].partition(":")
        metavar, _, default = columns[1].partition("=")
        heading = columns[3] if len(columns) > 3 else "problem"
        if heading == "argument":
            studies[last], heading = studies[last]._replace(argument=flag), "problem"
        option = Option(flag, plain, columns[2], metavar or None, default or None, argument=argument)
        words[option.key] = option._replace(group=GROUPS[GROUPS.index(heading)])
    return studies


class Catalogue(NamedTuple):
    """The studies of one command, and "module:function" of dataset -> its findings."""

    prog: str
    description: str
    examples: str
    studies: Mapping[str, StudyCommand]
    findings: str


#: End of the help of every command that has studies.
_END = """
`python -m {command} NAME --help` lists the options of one. stdout holds the result, stderr everything else.
exit codes: 0 done, 1 the run failed or its answer is not where it was to be (what was computed is kept and named), 2
usage, 130 interrupted (what was computed is kept and named)
"""


def build_parser(catalogue: Catalogue) -> parsing.Parser:
    """Return the parser; building it imports nothing heavy."""
    end = catalogue.examples + _END.format(command=catalogue.prog)
    parser = parsing.command_parser(catalogue.prog, catalogue.description, end)
    names = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    for name, study in catalogue.studies.items():
        argument = study.words.get(study.argument)
        usage = " ".join([parser.prog, name, "[options]", *([] if argument is None else [str(argument.metavar)])])
        subparser = names.add_parser(name, usage=usage, help=study.help, description=study.help, allow_abbrev=False)
        if argument is not None:
            subparser.add_argument(argument.key, metavar=argument.metavar, help=argument.help)
        subparser.add_options(options_of(name, study))
    return parser


def options_of(name: str, study: StudyCommand) -> tuple[Option, ...]:
    """Return the options of a study: its settings, and what every study takes."""
    output = Option("output", plain, f"dataset to write [a free name from study-{name}.nc on]", "FILE", group="output")
    return (*study.options, table.CONFIG, output, *table.FIGURES, table.PAGE, table.OVERWRITE, DRY_RUN, *table.SHOWN)


def run_command(catalogue: Catalogue, arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return parsing.exit_code_of(lambda: _study(catalogue, _values(catalogue, arguments)))


def _values(catalogue: Catalogue, arguments: Sequence[str] | None) -> Mapping[str, object]:
    """Return the parsed arguments by name; raise UsageError for an option that only other studies take."""
    values, unknown = build_parser(catalogue).parse_known_args(arguments)
    if unknown:
        flag, study = unknown[0].partition("=")[0], catalogue.studies[values.name]
        hint = flag_suggestion(flag, [f"--{option.name}" for option in options_of(values.name, study)])
        flags_by_study = {
            name: [f"--{option.name}" for option in study.options] for name, study in catalogue.studies.items()
        }
        takers = ", ".join(name for name, flags in flags_by_study.items() if flag in flags)
        require_usage(
            not takers,
            f"Option {flag} must be absent for {values.name}, but is given; it is one of {takers}.{hint}",
        )
        msg = f"unrecognized arguments: {' '.join(unknown)}"
        raise UsageError(f"{msg}.{hint}" if hint else msg)
    return MappingProxyType(vars(values))


def _study(catalogue: Catalogue, values: Mapping[str, object]) -> int:
    """Run a study from the command line, with a notice of compilation; return the exit code."""
    with parsing.noticed_compilation(values):
        return _named_study(catalogue, values)


def _named_study(catalogue: Catalogue, values: Values) -> int:
    """Run the study that the command line names, with its checked options; return the exit code."""
    name, command = values["name"], catalogue.studies[values["name"]]
    values = parsing.completed(values, options_of(name, command))
    typed = {option: values[option.key] for option in command.options if values[option.key] not in (None, False)}
    for option, text in typed.items():
        require_usage(
            option.name not in _OF_THE_PROBLEM or values.get("problem") is None,
            f"Option --{option.name} must be absent when --problem is given, but is {text}.",
        )
    settings = {option.key: parsing.read_option(option, text) for option, text in typed.items()}
    if command.argument:
        settings[command.argument] = values[command.argument]
    from dynamics.problem import Problem
    from dynamics.runs.storage import StorageError, load_answer

    output = parsing.chosen_output(values, f"study-{name}")
    figure = parsing.chosen_figure(values, output)
    if not values["dry_run"]:
        parsing.check_targets(values, output, figure)
    _check_page(values, output, figure)
    try:
        if "problem" in settings:
            settings["problem"] = Problem.from_dataset(load_answer(settings["problem"]))
        with parsing.caught_warnings() as caught:
            study = command.prepare(settings, progress=parsing.shown_progress(values))
            work = study.work()
    except (TypeError, ValueError, StorageError) as error:
        raise UsageError(parsing.as_typed(error, command.options, path="--problem")) from None
    if not values["quiet"]:
        for entry in caught:
            parsing.say(f"warning: {parsing.as_typed(str(entry.message), command.options)}")
        parsing.say(work)
    if values["dry_run"]:
        return EXIT_DONE
    try:
        dataset = study.run()
    except ValueError as error:
        raise UsageError(parsing.as_typed(error, command.options)) from None
    written = parsing.end_with(dataset, resolve_name(catalogue.findings), output, figure, values)
    code = written.exit_code(dataset.attrs.get("stop_reason"))
    if values["page"] is not None and not written.interrupted:
        try:
            page = resolve_name(WRITES_PAGE)(dataset, values["page"], overwrite=values["overwrite"])
        except StorageError as error:
            parsing.say(f"error: {error}")
            return code or EXIT_FAILED
        if not values["quiet"]:
            parsing.say(f"page: {page}")
    return code


def _check_page(values: Values, *others: Path | None) -> None:
    """Raise UsageError where the page may not be written, or would be written over another result."""
    from dynamics.runs.storage import StorageError

    if values["page"] is None:
        return
    page = Path(values["page"])
    parsing.check_names_a_file("Option --page", page)
    require_usage(
        page not in others, f"Option --page must name a file of its own, but {str(page)!r} is that of another result."
    )
    if not values["dry_run"]:
        try:
            resolve_name(CHECKS_PAGE)(page, overwrite=values["overwrite"])
        except StorageError as error:
            raise UsageError(parsing.as_typed(error, (), path="--page")) from None
