"""What every command of the program does alike: exit codes, and one sentence for a mistake in the arguments.

Imports nothing heavy, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

FIGURE_SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".jpeg")


class UsageError(Exception):
    """What the user must change, in one sentence."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise the parser's message."""
        raise UsageError(message)


def check_figure_name(path: str) -> str:
    """Return the path of a figure, whose suffix must name a format.

    Raises
    ------
    UsageError
        If the suffix is none that can be drawn.
    """
    if not path.lower().endswith(FIGURE_SUFFIXES):
        msg = f"Option --plot must end in one of {', '.join(FIGURE_SUFFIXES)}, but is {path!r}."
        raise UsageError(msg)
    return path
