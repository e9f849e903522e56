"""The common behaviour of command lines: parsing by the table of options, exit codes, one sentence for a mistake.

At the end the result is written with its figure and table, and the user is told. Nothing heavy is imported before there
is a result, so that `--help` answers at once.
"""

from __future__ import annotations

import re
import shlex
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamics.commands.options import GROUPS, OPTIONS, STYLE, Option, Values, plain, switch
from dynamics.commands.program import exit_code_of, folded
from hermite import program
from hermite.program import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    OutputError,
    PlainParser,
    UsageError,
    require_usage,
    say,
    tell,
)
from hermite.text.messages import not_a_choice, refuse, renamed, shown, suggestion

if TYPE_CHECKING:
    from dynamics.report.findings import Findings


#: Names that commands take from here.
__all__ = ["EXIT_DONE", "EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_USAGE", "OutputError", "UsageError", "exit_code_of",
           "folded", "require_usage", "say", "tell"]  # fmt: skip
#: Bytes of a file of options; the longest sensible one has a thousandth.
MOST_TOML_BYTES = 10**6

#: Values of options that need not be typed again.
DEFAULTS = {"style": "screen", "theory": "auto", "false_alarm_rate": 0.01}
FIGURE_SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".jpeg")


class Parser(PlainParser):
    """A parser of command lines that takes `Option`s."""

    def add_options(self, options: Iterable[Option]) -> None:
        """Add a flag for each option under the heading of its group; its value is text, None by default."""
        ordered = sorted(options, key=lambda option: GROUPS.index(option.group))
        for heading, members in groupby(ordered, key=attrgetter("group")):
            group = self.add_argument_group(heading)
            for option in members:
                kind: dict[str, Any] = {"metavar": option.metavar}
                if option.read is switch:
                    kind = {"action": "store_true"}
                elif option.bare is not None:
                    kind |= {"nargs": "?", "const": option.bare}
                flag = f"--{option.name}"
                self.note(group.add_argument(flag, dest=option.key, help=option.explanation, **kind))

    def values(self, arguments: Sequence[str] | None = None) -> Mapping[str, object]:
        """Return the parsed arguments by name, read-only."""
        return MappingProxyType(vars(self.parse_args(arguments)))


def command_parser(
    module: str,
    description: str,
    epilog: str,
    options: Sequence[Option] = (),
    argument: tuple[str, str, str] | None = None,
    short_help: str = "",
) -> Parser:
    """Return the parser of the command of a module, with options and an argument: its name, metavar and help.

    `-h` prints `short_help` if there is one, and `--help` all options.
    """
    parser = program.command_parser(module, description, epilog, Parser, short_help)
    if argument is not None:
        name, metavar, explanation = argument
        parser.add_argument(name, metavar=metavar, help=explanation)
    if options:
        parser.usage = " ".join(["%(prog)s [options]", *(() if argument is None else argument[1:2])])
    parser.add_options(options)
    return parser


def read_option(option: Option, text: Any) -> Any:
    """Return the value of an option, or raise UsageError with the condition that it breaks."""
    try:
        value = option.read(text)
    except ValueError as error:
        msg = f"Option --{option.name} {error}"
        raise UsageError(msg if msg.endswith("?") else f"{msg}.") from None
    if option.choices and value not in option.choices:
        raise UsageError(not_a_choice(f"Option --{option.name}", value, option.choices, quoted=False))
    return value


def value_of(option: Option, values: Mapping[str, object]) -> Any:
    """Return the value of an option among parsed values, or its default, None where it has none."""
    text = option.default if values[option.key] in (None, False) else values[option.key]
    return None if text is None else read_option(option, text)


def as_typed(error: BaseException | str, options: Iterable[Option] = OPTIONS, **names: str) -> str:
    """Return a message with arguments of functions replaced by their flags, or by `names`."""
    flags = {option.key: f"--{option.name}" for option in options}
    sentence = renamed(str(error), flags | names).replace("Argument `problem`", "The problem")
    if sentence.startswith("Option"):
        sentence = re.sub(r"\b(be|is) None\b", r"\1 absent", sentence)
    return re.sub(r"\b(\w+)='([\w-]+)'", lambda word: _typed(word, flags), sentence)


def _typed(word: re.Match[str], flags: Mapping[str, str]) -> str:
    """Return an argument and its value as typed on the command line, or unchanged if it is no option."""
    return f"{flags[word[1]]} {word[2]}" if word[1] in flags else word[0]


def check_targets(values: Values, output: Path | None, figure: Path | None) -> None:
    """Raise UsageError where the dataset, the figure or the table may not be written."""
    from dynamics.runs.storage import StorageError, check_target

    csv = Path(values["csv"]) if values.get("csv") is not None else None
    for flag, path in (("--output", output), ("--plot", figure), ("--csv", csv)):
        require_usage(
            str(path) != "-", f"Option {flag} must name a file, but is '-': standard output takes --json alone."
        )
        try:
            if path is not None:
                check_target(path, overwrite=values["overwrite"])
        except StorageError as error:
            raise UsageError(as_typed(error, (), path=flag)) from None


def shown_progress(values: Mapping[str, object]) -> bool | None:
    """Return `progress` of a call of the library as --quiet and --no-progress ask for it."""
    return False if values["quiet"] or values["no_progress"] else None


@contextmanager
def noticed_compilation(values: Values, answer: str = "", *, has_optimizer: bool = False) -> Iterator[None]:
    """Print on stderr what the body compiles, with the expected seconds of an answer; nothing for --quiet."""
    from dynamics.runs.compiling import expected_compilation, noticed_compilation

    expected = expected_compilation(answer, has_optimizer=has_optimizer)
    with noticed_compilation(shown_progress(values), expected, says=not values["quiet"]):
        yield


def refuse_both(values: Mapping[str, object], first: str, second: str) -> None:
    """Raise UsageError if two options that exclude each other are both given."""
    require_usage(
        not values[first.replace("-", "_")] or not values[second.replace("-", "_")],
        f"Options --{first} and --{second} must not be given together, but are.",
    )


def read_toml(path: str, argument: str) -> dict[str, Any]:
    """Return the tables of a TOML file, which an option or argument names, such as "Option --config".

    It must be a plain file of at most a megabyte: a pipe or a device may have no end, or no writer.
    """
    try:
        cause = "it is no plain file" if Path(path).exists() else "No such file or directory"
        require_usage(
            Path(path).is_file(), f"{argument} must name a readable file, but {shown(path)} is not ({cause})."
        )
        with Path(path).open("rb") as stream:
            content = stream.read(MOST_TOML_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        cause = getattr(error, "strerror", str(error))
        refuse(f"{argument} must name a readable file, but {shown(path)} is not ({cause}).", error=UsageError)
    require_usage(
        len(content) <= MOST_TOML_BYTES,
        f"{argument} must name a file of at most {MOST_TOML_BYTES} bytes, but {shown(path)} has more.",
    )
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # of these are TOMLDecodeError and UnicodeDecodeError
        refuse(f"{argument} must name a TOML file, but {shown(path)} is not ({shown(str(error))}).", error=UsageError)


def completed(values: Values, options: Sequence[Option]) -> Values:
    """Return parsed values; options without a flag take their value from the file of --config, as text."""
    if values["config"] is None:
        return values
    names = {option.name: option for option in options if option.name != "config"}
    stored = read_toml(values["config"], "Option --config")
    for name in stored:
        flag = name.replace("_", "-")
        require_usage(
            flag in names,
            f"File {values['config']!r} must hold options of this command only, but has {name!r}."
            f"{suggestion(flag, names)}",
        )
    completed = dict(values)
    for name, value in stored.items():
        option = names[name.replace("_", "-")]
        if completed[option.key] not in (None, False):
            continue
        if option.read is switch:
            require_usage(
                isinstance(value, bool),
                f"Option --{option.name} must be true or false in a file, but is {shown(value)}.",
            )
            completed[option.key] = value
            continue
        # A list would be the name of a file with commas.
        is_single = not isinstance(value, list) or option.read is not plain
        require_usage(is_single, f"Option --{option.name} must be text in a file, but is {shown(value)}.")
        try:
            completed[option.key] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        except RecursionError:  # of tables within tables without an end
            refuse(f"Option --{option.name} must be a value in a file, but is {shown(value)}.", error=UsageError)
    return MappingProxyType(completed)


def check_names_a_file(argument: str, path: Path) -> None:
    """Refuse a path without a last part, such as `.` or `/`; `argument` is its subject, such as "Option --csv"."""
    require_usage(path.name, f"{argument} must name a file, but is {shown(str(path))}.")


def check_csv(values: Values, *results: Path | None) -> None:
    """Refuse a table without a name, or under the name of another file that is written."""
    if values["csv"] is None:
        return
    check_names_a_file("Option --csv", Path(values["csv"]))
    require_usage(
        Path(values["csv"]) not in results,
        f"Option --csv must name a file of its own, but {shown(values['csv'])} is that of another result.",
    )


def chosen_style(values: Mapping[str, object]) -> str:
    """Return the look of the figure; refuse one that does not exist."""
    return str(read_option(STYLE, values["style"] or STYLE.default))


def chosen_output(values: Values, stem: str) -> Path:
    """Return the file of the result: that of --output, else `stem`.nc, numbered if that exists and must stay."""
    from dynamics.runs.storage import free_name

    output = values["output"]
    return free_name(stem, ".nc", replaces=values["overwrite"]) if output is None else Path(output)


def chosen_figure(values: Values, output: Path) -> Path | None:
    """Return the file of the figure, None for --no-plot; refuse contradictory flags."""
    refuse_both(values, "plot", "no-plot")
    refuse_both(values, "json", "quiet")
    check_names_a_file("Option --output", output)
    name = str(output)
    require_usage(
        output.suffix.lower() != ".csv",
        f"Option --output must not end in .csv, which --csv writes, but is {shown(name)}.",
    )
    chosen_style(values)
    figure = None if values["no_plot"] else Path(values["plot"] or output.with_suffix(".png"))
    if figure is not None:
        require_usage(
            figure.suffix.lower() in FIGURE_SUFFIXES,
            f"Option --plot must end in one of {', '.join(FIGURE_SUFFIXES)}, but is {str(figure)!r}.",
        )
    require_usage(figure != output, f"Options --output and --plot must name different files, but both are {name!r}.")
    check_csv(values, output, figure)
    return figure


def retyped(words: Sequence[str], values: Mapping[str, object], options: Iterable[str], flags: Iterable[str]) -> str:
    """Return a command of these words, with the options and flags that differ from their defaults."""
    typed = list(words)
    for name in options:
        if values.get(name) and values[name] != DEFAULTS.get(name):
            typed += [f"--{name.replace('_', '-')}", str(values[name])]
    return shlex.join([*typed, *(f"--{name.replace('_', '-')}" for name in flags if values[name])])


class Written(NamedTuple):
    """The file of the result, or None; whether an output failed; whether the command was interrupted."""

    output: Path | None
    trouble: bool
    interrupted: bool = False

    def exit_code(self, stop_reason: object) -> int:
        """Return the exit code of a command whose runs stopped for a reason; print the file after an early stop."""
        if self.output is None:
            return EXIT_FAILED
        from dynamics.runs.result import StopReason

        failed = any(reason == stop_reason and reason.failed for reason in StopReason)
        code, early = STOPPED.get(stop_reason, (EXIT_FAILED if failed else EXIT_DONE, ""))
        if early:
            say(f"{early}; what was computed is in {self.output}.")
        return self.code_after(code)

    def code_after(self, code: int) -> int:
        """Return the final exit code of a command: `code`, unless it was interrupted or had trouble with files."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        return (code or EXIT_FAILED) if self.trouble else code


#: Reason -> exit code and why the result is not whole.
STOPPED: dict[object, tuple[int, str]] = {
    "interrupted": (EXIT_INTERRUPTED, "The run was interrupted"),
    "blown_up": (EXIT_FAILED, "Every run blew up, so try a smaller learning rate"),
    "max_runtime": (EXIT_DONE, "The wall-clock budget ran out"),
}
FIGURE_DPI = 130


@contextmanager
def caught_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Catch warnings for users, without those of libraries for programmers and of the versions that NumPy accepts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", "numpy.* size changed", RuntimeWarning)
        yield caught


def store_table(result: Any, values: Values) -> tuple[dict[str, str | None], str]:
    """Write the table of a result to the file of --csv, if any; return the file by key, and any error in words."""
    if values["csv"] is None:
        return {}, ""
    from dynamics.runs.storage import to_table, write_somewhere

    fill = partial(to_table(result).to_csv, index=False)
    listed, trouble = _attempt(write_somewhere, Path(values["csv"]), fill, replaces=values["overwrite"])
    return {"csv": None if listed is None else str(listed)}, trouble


def end_with(
    result: Any,
    find: Callable[[Any], Findings | None],
    output: Path,
    figure: Path | None,
    values: Values,
    *,
    store: Callable[[], tuple[Path, str]] | None = None,
    figure_key: str = "plot",
    dpi: int = FIGURE_DPI,
) -> Written:
    """Write result, figure and table, each wherever that is possible, and print the findings.

    `find` returns the findings of a result, None if they are not known. No figure is drawn if its file is None.
    `values` are the options of the command; `figure_key` is the key of the figure in the object of --json. `store`
    writes the result, by default to `output`; it returns the file, and the reason if that is another one.
    """
    from concurrent.futures import ThreadPoolExecutor

    from dynamics.runs.storage import netcdf_writer, write_somewhere

    replaces = values["overwrite"]
    store = store or partial(write_somewhere, output, netcdf_writer(result), replaces=replaces)
    with ThreadPoolExecutor(1) as writer:  # the file is compressed while the figure is drawn
        stored = writer.submit(_attempt, store)
        findings, figure_file, undrawn, interrupted = None, None, "", False
        try:
            findings = find(result) if figure is not None or not values["quiet"] else None
            if figure is not None and findings is not None and findings.overview is not None:
                figure_file, undrawn = _drawn(findings, figure, chosen_style(values), dpi, replaces=replaces)
        except KeyboardInterrupt:
            interrupted, findings = True, None
    written, trouble = stored.result()
    tables, unlisted = store_table(result, values)
    unprinted = ""
    if written is not None and findings is not None and not values["quiet"]:
        files = {"output": str(written), figure_key: None if figure_file is None else str(figure_file), **tables}
        try:
            tell(findings.as_json(files) if values["json"] else folded(as_typed(findings.as_text(files))))
        except OutputError as error:
            unprinted = f"{error}; it is in {shown(str(written))}."
    for sentence in filter(None, (trouble, undrawn, unlisted, unprinted)):
        say(f"error: {sentence}")
    if interrupted and written is not None:
        say_where(written)
    return Written(written, bool(trouble or undrawn or unlisted or unprinted), interrupted)


def say_where(result: Path) -> None:
    """Print that a command was interrupted before it showed its result, and the command that shows it."""
    command = shlex.join(["python", "-m", "dynamics.report", str(result)])
    say(f"Interrupted while the result was summed up; it is in {result}, and this shows it: {command}")


def _drawn(findings: Findings, figure: Path, style: str, dpi: int, *, replaces: bool) -> tuple[Path | None, str]:
    """Draw the figure of findings; return its file, or None, and the error as a sentence."""
    from dynamics.runs.storage import write_somewhere

    try:
        form: dict[str, Any] = {"format": figure.suffix[1:].lower(), "dpi": dpi if style == "screen" else None}
        save = partial(findings.drawn(style).savefig, **form)
    except (ImportError, ValueError) as error:  # matplotlib does not load, such as with a wrong MPLBACKEND
        return None, f"The figure could not be drawn: {error}"
    return _attempt(write_somewhere, figure, save, replaces=replaces)


def _attempt(write: Callable[..., tuple[Path, str]], *arguments: Any, **options: Any) -> tuple[Path | None, str]:
    """Return the result of writing a file, its path and a sentence; the path is None if it could not be written."""
    from dynamics.runs.storage import StorageError

    try:
        return write(*arguments, **options)
    except StorageError as error:
        return None, str(error)
