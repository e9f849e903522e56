"""What every command line does alike: parsing by the table of options, exit codes, one sentence for a mistake.

Imports nothing heavy, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
import tomllib
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from dynamics.commands.readers import switch
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dynamics.commands.options import Option

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

#: Bytes of a file of options; the longest sensible one has a thousandth.
MOST_TOML_BYTES = 10**6

FIGURE_SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".jpeg")


class UsageError(Exception):
    """What the user must change, in one sentence."""


class OutputError(Exception):
    """Why stdout takes nothing, in the rest of a sentence."""


class VersionAsked(Exception):
    """The command is to print the version of the program, and no more."""


class _Version(argparse.Action):
    """A flag that ends parsing, so that nothing else need be given."""

    def __call__(self, *_arguments: Any) -> NoReturn:
        raise VersionAsked


class Parser(argparse.ArgumentParser):
    """An argument parser that takes options of the table, and raises instead of printing its usage and exiting."""

    def add_options(self, options: Iterable[Option]) -> None:
        """Add a flag for each option; its text is not read yet, and None where it is not given."""
        for option in options:
            kind: dict[str, Any] = {"metavar": option.metavar}
            if option.read is switch:
                kind = {"action": "store_true"}
            elif option.bare is not None:
                kind |= {"nargs": "?", "const": option.bare}
            self.add_argument(f"--{option.name}", dest=option.key, help=option.explanation, **kind)

    def values(self, arguments: Sequence[str] | None = None) -> Mapping[str, Any]:
        """Return the parsed arguments by name, read-only."""
        return MappingProxyType(vars(self.parse_args(arguments)))

    def parse_known_args(  # type: ignore[override]  # generic overloads of the base class
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Read the arguments; refuse `--option=--`, which the base class takes for an empty list of values."""
        given = sys.argv[1:] if args is None else list(args)
        for word in given:
            if word.startswith("--") and word.endswith("=--"):
                self.error(f"argument {word.removesuffix('=--')}: expected one argument")
        return super().parse_known_args(given, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise the parser's message, with the flag that was meant where one was misspelt."""
        _, misspelt, words = message.partition("unrecognized arguments: ")
        hint = _suggestion(words.split()[0].partition("=")[0], self._option_string_actions) if misspelt else ""
        raise UsageError(f"{message}.{hint}" if hint else message)


def _suggestion(word: str, choices: Iterable[str]) -> str:
    from hermite.activations import suggestion

    return suggestion(word, list(choices))


def command_parser(module: str, description: str, epilog: str) -> Parser:
    """Return the parser of `python -m MODULE`, still without arguments but `--help` and `--version`."""
    parser = Parser(
        prog=f"python -m {module}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    return parser


def exit_code_of(command: Callable[[], int], interrupted: str = "interrupted before anything was computed") -> int:
    """Return the exit code of a command; say on stderr what the user must change, or that it was interrupted."""
    try:
        with _ended_by_signals():
            _check_directory()
            return _done(command)
    except UsageError as error:
        say(f"error: {error}")
        return EXIT_USAGE
    except OutputError as error:
        say(f"error: {error}.")
        return EXIT_FAILED
    except KeyboardInterrupt:
        say(interrupted)
        return EXIT_INTERRUPTED


def _done(command: Callable[[], int]) -> int:
    """Return the exit code of a command, which may be asked for the version instead."""
    try:
        return command()
    except VersionAsked:
        from hermite.version import PROGRAM

        tell(PROGRAM)
        return EXIT_DONE


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have a scheduler, or a terminal that is closed, end a command as Ctrl-C does, where nobody said otherwise."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    heard = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        heard = []
    for number in heard:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def _check_directory() -> None:
    """Refuse a current directory that has been removed, beside which libraries cannot even be imported."""
    try:
        Path.cwd()
    except OSError as error:
        msg = f"The current directory must exist, but does not ({error.strerror})."
        raise UsageError(msg) from None


def say(text: str) -> None:
    """Write a line to stderr, if anybody listens."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(text + "\n")


def tell(text: str) -> None:
    """Write a line to stdout, with escapes for what its encoding lacks; raise OutputError if it takes nothing."""
    try:
        if sys.stdout is None:  # closed before the program began
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stdout.flush()
    except OSError as error:
        sys.stdout = None  # or the interpreter would try again at its end
        msg = f"stdout must take the result, but does not ({error.strerror})"
        raise OutputError(msg) from None


def read_option(option: Option, text: Any) -> Any:
    """Return the value of an option, or raise UsageError with what must hold."""
    try:
        value = option.read(text)
    except ValueError as error:
        msg = f"Option --{option.name} {error}."
        raise UsageError(msg) from None
    if option.choices and value not in option.choices:
        msg = f"Option --{option.name} must be one of {', '.join(option.choices)}, but is {shown(value)}."
        raise UsageError(msg + _suggestion(str(value), option.choices))
    return value


def refuse_both(values: Mapping[str, Any], one: str, other: str) -> None:
    """Raise UsageError if two options that exclude each other are both given."""
    if values[one.replace("-", "_")] and values[other.replace("-", "_")]:
        msg = f"Options --{one} and --{other} must not be given together, but are."
        raise UsageError(msg)


def read_toml(path: str, what: str) -> dict[str, Any]:
    """Return the tables of a TOML file, which an option or argument names.

    It must be a plain file of at most a megabyte: what has no end, or no writer, would be read for ever.
    """
    try:
        if not Path(path).is_file():
            why = "it is no plain file" if Path(path).exists() else "No such file or directory"
            msg = f"{what} must name a readable file, but {shown(path)} is not ({why})."
            raise UsageError(msg)
        with Path(path).open("rb") as stream:
            content = stream.read(MOST_TOML_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        msg = f"{what} must name a readable file, but {shown(path)} is not ({getattr(error, 'strerror', error)})."
        raise UsageError(msg) from None
    if len(content) > MOST_TOML_BYTES:
        msg = f"{what} must name a file of at most {MOST_TOML_BYTES} bytes, but {shown(path)} has more."
        raise UsageError(msg)
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # of these are TOMLDecodeError and UnicodeDecodeError
        msg = f"{what} must name a TOML file, but {shown(path)} is not ({shown(str(error))})."
        raise UsageError(msg) from None


def check_names_a_file(what: str, path: Path) -> None:
    """Refuse a path without a last part, such as `.` or `/`, beside which nothing can be named."""
    if not path.name:
        msg = f"{what} must name a file, but is {shown(str(path))}."
        raise UsageError(msg)


def chosen_figure(values: Mapping[str, Any], output: Path) -> Path | None:
    """Return where the figure goes, by default beside the dataset, or None; refuse flags that contradict each other."""
    refuse_both(values, "plot", "no-plot")
    refuse_both(values, "json", "quiet")
    check_names_a_file("Option --output", output)
    if values["no_plot"]:
        return None
    figure = Path(values["plot"]) if values["plot"] else output.with_suffix(".png")
    if figure.suffix.lower() not in FIGURE_SUFFIXES:
        msg = f"Option --plot must end in one of {', '.join(FIGURE_SUFFIXES)}, but is {str(figure)!r}."
        raise UsageError(msg)
    if figure == output:
        msg = f"Options --output and --plot must name different files, but both are {str(output)!r}."
        raise UsageError(msg)
    return figure
