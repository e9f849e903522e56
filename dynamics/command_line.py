"""What every command of the program does alike: exit codes, and one sentence for a mistake in the arguments.

Imports nothing heavy, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dynamics.options import Option

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

FIGURE_SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".jpeg")


class UsageError(Exception):
    """What the user must change, in one sentence."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise the parser's message."""
        raise UsageError(message)


def read_option(option: Option, text: str) -> Any:
    """Return the value of an option, or raise UsageError with what must hold."""
    try:
        value = option.read(text)
    except ValueError as error:
        msg = f"Option --{option.name} {error}."
        raise UsageError(msg) from None
    if option.choices and value not in option.choices:
        msg = f"Option --{option.name} must be one of {', '.join(option.choices)}, but is {value!r}."
        raise UsageError(msg)
    return value


def chosen_figure(plot: str | None, output: Path, *, no_plot: bool, json: bool, quiet: bool) -> Path | None:
    """Return where the figure goes, beside the dataset if not said, or None; refuse flags that contradict each other.

    Raises
    ------
    UsageError
        If the suffix names no format, the figure would overwrite the dataset, or two flags exclude each other.
    """
    for one, other, both in (("--plot", "--no-plot", plot and no_plot), ("--json", "--quiet", json and quiet)):
        if both:
            msg = f"Options {one} and {other} must not be given together, but are."
            raise UsageError(msg)
    if no_plot:
        return None
    figure = output.with_suffix(".png") if plot is None else Path(plot)
    if figure.suffix.lower() not in FIGURE_SUFFIXES:
        msg = f"Option --plot must end in one of {', '.join(FIGURE_SUFFIXES)}, but is {str(figure)!r}."
        raise UsageError(msg)
    if figure == output:
        msg = f"Options --output and --plot must name different files, but both are {str(output)!r}."
        raise UsageError(msg)
    return figure
