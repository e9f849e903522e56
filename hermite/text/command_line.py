"""The common behaviour of command lines: exit codes, one sentence for a mistake, one place to print, ends by signals.

Imports nothing heavy, so that `--help` answers at once.

The first signal that ends a command is noted, and the command ends where it can do so in good order. Handlers in Python
never run while the main thread is in compiled code, so a watchdog thread reads the pipe that `signal.set_wakeup_fd`
fills at once. It ends the process if no code looks at the note for `ANSWER_SECONDS`, or at a second signal. No handler
raises an exception: one that is raised inside an import can be dropped and leave the import lock taken.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import time as clock
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from hermite.text.messages import refuse, require, suggestion

#: The signals of Ctrl-C, of a scheduler or `kill`, and of a terminal that is closed.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
#: Seconds in which a command must look at a signal before its process is ended.
ANSWER_SECONDS = 10.0
#: Seconds in which several signals count as one: a shell and its terminal both send SIGHUP.
SAME_SECONDS = 0.25
EXIT_INTERRUPTED = 130
STDERR = 2
#: Lines are not broken to fewer columns, nor where they hold what stands between cells of a table.
FEWEST_COLUMNS, BETWEEN_CELLS = 40, "  "


@dataclass
class _Note:
    """Whether a signal came, whether code asked for it since, and whether signals are listened to."""

    heard: bool = False
    answered: bool = False
    listening: bool = False


_note = _Note()


def listen() -> None:
    """Note the first signal until the process ends; call it in the main thread of a command.

    A signal that the process has inherited as ignored, as with `nohup`, stays ignored.
    """
    if _note.listening:
        return
    _note.listening = True
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    threading.Thread(target=_watch, args=(reader,), name="signals", daemon=True).start()
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _assign)
    # atexit calls functions in reverse order: these come last, and signals are ignored after them.
    for number in SIGNALS:
        atexit.register(signal.signal, number, signal.SIG_IGN)


def heard() -> bool:
    """Return whether a signal asks this command to end; who asks promises to end it. False outside of commands."""
    _note.answered |= _note.heard
    return _note.heard


def stop_if_heard() -> None:
    """Raise KeyboardInterrupt if a signal asks this command to end."""
    if heard():
        raise KeyboardInterrupt


def _assign(_number: int, _frame: object) -> None:
    _note.heard = True


def _watch(reader: int) -> None:
    """Wait for a signal, and end the process if no code looks at it in time or another one follows."""
    _await_signal(reader)
    _note.heard, first = True, clock.monotonic()
    deadline = threading.Timer(ANSWER_SECONDS, _end_unanswered)
    deadline.daemon = True
    deadline.start()
    while True:
        _await_signal(reader)
        if clock.monotonic() - first > SAME_SECONDS:
            _end_process("a second signal came")


def _await_signal(reader: int) -> None:
    while os.read(reader, 1)[0] not in SIGNALS:
        pass


def _end_unanswered() -> None:
    if not _note.answered:
        _end_process(f"the command did not answer a signal for {ANSWER_SECONDS:g} seconds")


def _end_process(reason: str) -> NoReturn:
    with suppress(OSError):  # stderr may be closed
        os.write(STDERR, f"Ended at once: {reason}. Files keep what was last written.\n".encode())
    os._exit(EXIT_INTERRUPTED)


#: The one console command, of which every module with a command line is a part.
PROGRAM = "feature-emergence"
#: Module -> the command that the user typed, where that is not `python -m MODULE`.
TYPED: dict[str, str] = {}

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
#: Packages that xarray and Numba load because they are installed, a third of the time of a short command.
LOADED_BY_CHANCE = ("dask", "coverage")
#: With less, libraries end the process, or wait for memory without end, while they are loaded.
LEAST_ADDRESS_SPACE = 950 << 20
#: With fewer open files, workers do not start, or libraries do not load.
LEAST_FILES = 64
#: A folder of Linux in which no file can be made.
NOWHERE = "/proc"
#: New objects after which garbage is looked for; by default, which is 700, that takes a tenth of a short command.
GARBAGE_OBJECTS = 100_000
#: Directory of machine code that a user chooses for commands; it becomes ``NUMBA_CACHE_DIR``.
CACHE_VARIABLE = "FEATURE_EMERGENCE_CACHE"


class UsageError(Exception):
    """A mistake of the user, in one sentence."""


class OutputError(Exception):
    """Failure to write to stdout; the message has no full stop."""


class VersionTold(Exception):
    """The version was printed, and nothing else was asked."""


class _Version(argparse.Action):
    """A flag that prints the version and ends parsing, so that required arguments may be absent."""

    def __call__(self, *_arguments: Any) -> NoReturn:
        from hermite.version import PROGRAM

        tell(PROGRAM)
        raise VersionTold


class _Short(argparse.Action):
    """A flag that prints a text, its `const`, and ends the command."""

    def __call__(self, parser: argparse.ArgumentParser, *_arguments: Any) -> NoReturn:
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


def run_program(main: Callable[[], int], *, light: bool = True) -> NoReturn:
    """Run a command as a program, and end with its exit code.

    A process of a host that runs the module, such as a notebook by `%run -m`, stays as it is. With `light`, libraries
    that xarray and Numba load where they are installed, and that the command does not use, count as not installed.
    """
    if _is_own_process():
        _leave_removed_directory(sys.argv[1:])
        if (code := exit_code_of(_check_files_open)) != EXIT_DONE:
            sys.exit(code)
        _fill_streams()
        listen()
        warnings.showwarning = _show_warning
        os.environ["MPLBACKEND"] = "agg"  # figures go to files, whatever windows the parent process has
        if CACHE_VARIABLE in os.environ:
            os.environ["NUMBA_CACHE_DIR"] = os.path.realpath(os.environ[CACHE_VARIABLE])
        if light:
            for name in LOADED_BY_CHANCE:
                sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # as the import system has it
        gc.set_threshold(GARBAGE_OBJECTS)
        atexit.register(gc.freeze)
    sys.exit(main())


def _fill_streams() -> None:
    """Open the null device where a standard stream is closed, or a file of results would take its number and text."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(number, True)
    os.close(number)


def _is_own_process() -> bool:
    """Return whether the interpreter was started for the module that it runs, or for the console command."""
    specification = getattr(sys.modules["__main__"], "__spec__", None)
    module = None if specification is None else specification.name.removesuffix(".__main__")
    # A folder of a path may have the name of the program, too: only the last part counts.
    return any(word == module or Path(word).stem == PROGRAM for word in sys.orig_argv)


def exit_code_of(command: Callable[[], int], interrupted: str = "interrupted before anything was computed") -> int:
    """Return the exit code of a command; a mistake of the user, or an interruption, is written to stderr."""
    try:
        _check_libraries_load()
        code = command()
    except VersionTold:
        code = EXIT_DONE
    except UsageError as error:
        say(f"error: {error}")
        return EXIT_USAGE
    except OutputError as error:
        say(f"error: {error}.")
        return EXIT_FAILED
    except KeyboardInterrupt:
        say(interrupted)
        return EXIT_INTERRUPTED
    if code == EXIT_DONE and heard():
        say("A signal came while the command was ending; what it wrote is whole.")
        return EXIT_INTERRUPTED
    return code


def _show_warning(message: Warning | str, *_where: Any, **_how: Any) -> None:
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
    """Change from a current directory that was deleted to `NOWHERE`, if a word names a file by its whole path."""
    if not any(Path(word.partition("=")[2] or word).is_absolute() for word in words):
        return
    try:
        Path.cwd()
    except OSError:
        with suppress(OSError):
            os.chdir(NOWHERE)


def _check_libraries_load() -> None:
    """Raise UsageError if libraries cannot be imported."""
    try:
        Path.cwd()
    except OSError as error:
        refuse(
            f"The current directory must exist, or --output have its whole path, but does not ({error.strerror}).",
            UsageError,
        )
    with suppress(ModuleNotFoundError):  # on Windows
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        is_enough = limit == resource.RLIM_INFINITY or limit >= LEAST_ADDRESS_SPACE
        require_usage(
            is_enough,
            f"The limit of a process's address space (ulimit -v) must be at least {LEAST_ADDRESS_SPACE >> 20} MiB, "
            f"which the program's libraries take, but is {limit >> 20} MiB.",
        )


def say(text: str) -> None:
    """Write a line to stderr, unless that is closed."""
    if (write := getattr(sys.stderr, "write", None)) is not None:
        with suppress(OSError, ValueError):
            write(text + "\n")


def folded(text: str) -> str:
    """Return a text for stdout: on a terminal, lines that are too long are broken between words, but no table rows."""
    if not getattr(sys.stdout, "isatty", bool)():
        return text
    columns = max(shutil.get_terminal_size().columns, FEWEST_COLUMNS)
    return "\n".join(
        textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False)
        if len(line) > columns and BETWEEN_CELLS not in line
        else line
        for line in text.split("\n")
    )


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
