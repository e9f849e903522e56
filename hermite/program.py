"""The common behaviour of commands: their parser, exit codes, one sentence for a mistake, and one place to print.

Imports nothing heavy, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from hermite.text.messages import refuse, require, suggestion

STDERR = 2
#: The one console command, of which every module with a command line is a part.
PROGRAM = "feature-emergence"
#: Module -> the command that the user typed, where that is not `python -m MODULE`.
TYPED: dict[str, str] = {}

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130
#: With fewer open files, workers do not start, or libraries do not load.
LEAST_FILES = 64
#: Folders of Linux and macOS in which no file can be made.
NOWHERE = ("/proc", "/dev/fd")


class UsageError(Exception):
    """A mistake of the user, in one sentence."""


class OutputError(Exception):
    """Failure to write to stdout; the message has no full stop."""


class VersionTold(Exception):
    """The version was printed, and nothing else was asked."""


class _Version(argparse.Action):
    """A flag that prints the version and ends parsing, so that required arguments may be absent."""

    def __call__(self, *_arguments: object) -> NoReturn:
        from hermite.version import PROGRAM

        tell(PROGRAM)
        raise VersionTold


class _Short(argparse.Action):
    """A flag that prints a text, its `const`, and ends the command."""

    def __call__(self, parser: argparse.ArgumentParser, *_arguments: object) -> NoReturn:
        sys.stdout.write(str(self.const))
        parser.exit()


class PlainParser(argparse.ArgumentParser):
    """An argument parser that raises its errors, and takes values such as -1,0.5."""

    def __init__(self, **settings: Any) -> None:
        self._flags: dict[str, argparse.Action] = {}
        self._has_commands = False
        super().__init__(**settings)

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        """Add an argument, and note its flags."""
        return self.note(super().add_argument(*names, **settings))

    def note(self, action: argparse.Action) -> argparse.Action:
        """Return an argument after its flags were noted; arguments that a group has added are noted by it too."""
        self._flags |= dict.fromkeys(action.option_strings, action)
        return action

    def add_subparsers(self, **settings: Any) -> Any:
        """Add commands; the parser of a command reads the words after its name."""
        self._has_commands = True
        return super().add_subparsers(**settings)

    def parse_known_args(  # type: ignore[override]  # generic overloads of the base class
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Read the arguments; refuse `--option=--`, which the base class takes for an empty list of values."""
        words = sys.argv[1:] if args is None else list(args)
        for word in words:
            if word.startswith("--") and word.endswith("=--"):
                self.error(f"argument {word.removesuffix('=--')}: expected one argument")
        return super().parse_known_args(words if self._has_commands else self._with_values(words), namespace)

    def _with_values(self, words: Sequence[str]) -> list[str]:
        """Return words so that the base class reads a word as a value if it begins with a minus and is no flag.

        It is the value of the option before it, `--option=value`, or else an argument, behind a last `--`.
        """
        end = words.index("--") if "--" in words else len(words)
        read: list[str] = []
        arguments = list(words[end + 1 :])
        for word in words[:end]:
            before = self._flags.get(read[-1]) if read else None
            # A word of letters alone may be a flag that does not exist.
            is_value = word[1:] != "" and not word[1:].isalpha()
            if not word.startswith("-") or word.startswith("--") or word in self._flags:
                read.append(word)
            elif before is not None and (before.nargs is None or (before.nargs == "?" and is_value)):
                read[-1] = f"{read[-1]}={word}"
            elif is_value:
                arguments.append(word)
            else:
                read.append(word)
        return [*read, "--", *arguments] if arguments or end < len(words) else read

    def error(self, message: str) -> NoReturn:
        """Raise the parser's message, with the flag or the choice that was meant where one was misspelt."""
        hint = ""
        if flag := re.search(r"unrecognized arguments: ([^\s=]+)", message):
            hint = flag_suggestion(flag[1], self._flags)
        elif choice := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message):
            hint = suggestion(choice[1], re.findall(r"[^\s',]+", choice[2]))
        raise UsageError(f"{message}.{hint}" if hint else message)


Kind = TypeVar("Kind", bound=PlainParser)


def command_parser(module: str, description: str, epilog: str, kind: type[Kind], short_help: str = "") -> Kind:
    """Return a parser of the command of a module, which has the flags `-h`, `--help` and `--version` alone.

    `-h` prints `short_help` where that is given, and else what `--help` prints.
    """
    parser = kind(
        prog=TYPED.get(module, f"python -m {module}"),
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=not short_help,
    )
    if short_help:
        help_text = short_help.replace(f"python -m {module}", parser.prog)
        told_by = {
            "action": _Short,
            "nargs": 0,
            "const": help_text,
            "dest": argparse.SUPPRESS,
            "default": argparse.SUPPRESS,
        }
        parser.add_argument("-h", **told_by, help="print the five most common questions")
        parser.add_argument("--help", action="help", help="show this message and exit")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    return parser


def require_usage(condition: object, sentence: str) -> None:
    """Raise UsageError with a sentence unless a condition holds."""
    require(condition, sentence, UsageError)


def flag_suggestion(flag: str, flags: Iterable[str]) -> str:
    """Return " Did you mean …?" with the flag nearest to a typed one, without regard to dashes; "" if none is near."""
    hint = suggestion(flag.lstrip("-"), [name.removeprefix("--") for name in flags if name.startswith("--")])
    return hint.replace("'", "'--", 1)


def run_program(main: Callable[[], int], prepare: Callable[[], None] = lambda: None) -> NoReturn:
    """Run a command as a program, after `prepare` if it has a process of its own, and end with its exit code.

    A process of a host that runs the module, such as a notebook by `%run -m`, stays as it is.
    """
    if _is_own_process():
        _leave_removed_directory(sys.argv[1:])
        if (code := exit_code_of(_check_files_open)) != EXIT_DONE:
            sys.exit(code)
        _fill_streams()
        warnings.showwarning = _show_warning
        prepare()
    sys.exit(main())


def _fill_streams() -> None:
    """Open the null device where a standard stream is closed, or a file of results would take its number and text."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(number, True)
    os.close(number)


def _is_own_process() -> bool:
    """Return whether the interpreter was started for the module that it runs, or for the console command."""
    specification = vars(sys.modules["__main__"]).get("__spec__")
    module = None if specification is None else specification.name.removesuffix(".__main__")
    # A folder of a path may have the name of the program, too: only the last part counts.
    return any(word == module or Path(word).stem == PROGRAM for word in sys.orig_argv)


def exit_code_of(command: Callable[[], int], interrupted: str = "interrupted before anything was computed") -> int:
    """Run a command and return its exit code; errors of usage or output and an interruption become codes of their own.

    Their messages are written to stderr; that of an interruption is `interrupted`.
    """
    try:
        return command()
    except VersionTold:
        return EXIT_DONE
    except UsageError as error:
        say(f"error: {error}")
        return EXIT_USAGE
    except OutputError as error:
        say(f"error: {error}.")
        return EXIT_FAILED
    except KeyboardInterrupt:
        say(interrupted)
        return EXIT_INTERRUPTED


def _show_warning(message: Warning | str, *_where: object, **_how: object) -> None:
    """Write a warning that no command has caught in one line."""
    say(f"warning: {message}")


def _check_files_open() -> int:
    """Raise UsageError if too few files can be open for a command."""
    with suppress(ModuleNotFoundError):  # on Windows
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        is_enough = limit == resource.RLIM_INFINITY or limit >= LEAST_FILES
        require_usage(is_enough, f"The limit of open files (ulimit -n) must be at least {LEAST_FILES}, but is {limit}.")
    return EXIT_DONE


def _leave_removed_directory(words: Iterable[str]) -> None:
    """Change from a deleted current directory to the first folder of `NOWHERE`, if a word names a whole path."""
    if not any(Path(word.partition("=")[2] or word).is_absolute() for word in words):
        return
    try:
        Path.cwd()
    except OSError:
        for folder in NOWHERE:
            with suppress(OSError):
                os.chdir(folder)
                return


def say(text: str) -> None:
    """Write a line to stderr, unless that is closed."""
    with suppress(AttributeError, OSError, ValueError):
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
        refuse(f"stdout must take the result, but does not ({error.strerror})", OutputError)
