"""What every command line does alike: exit codes, one sentence for a mistake, one place to print.

Imports nothing heavy, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


class UsageError(Exception):
    """What the user must change, in one sentence."""


class OutputError(Exception):
    """Why stdout takes nothing, in the rest of a sentence."""


class PlainParser(argparse.ArgumentParser):
    """An argument parser that raises instead of printing its usage and exiting."""

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
        if not misspelt:
            raise UsageError(message)
        from hermite.activations import suggestion

        hint = suggestion(words.split()[0].partition("=")[0], list(self._option_string_actions))
        raise UsageError(f"{message}.{hint}" if hint else message)


def exit_code_of(command: Callable[[], int], interrupted: str = "interrupted before anything was computed") -> int:
    """Return the exit code of a command; say on stderr what the user must change, or that it was interrupted."""
    try:
        _check_directory()
        return command()
    except UsageError as error:
        say(f"error: {error}")
        return EXIT_USAGE
    except OutputError as error:
        say(f"error: {error}.")
        return EXIT_FAILED
    except KeyboardInterrupt:
        say(interrupted)
        return EXIT_INTERRUPTED


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
