"""A command as a program: its signals, its machine code and figures, the memory of its libraries, and its exit code.

Imports nothing heavy, so that `--help` answers at once.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from dynamics.signals import heard, listen
from hermite import program
from hermite.program import EXIT_DONE, EXIT_INTERRUPTED, UsageError, require_usage, say
from hermite.text.messages import refuse

#: Packages that xarray and Numba load because they are installed, a third of the time of a short command.
LOADED_BY_CHANCE = ("dask", "coverage")
#: With less, libraries end the process, or wait for memory without end, while they are loaded.
LEAST_ADDRESS_SPACE = 950 << 20
#: New objects after which garbage is looked for; by default, which is 700, that takes a tenth of a short command.
GARBAGE_OBJECTS = 100_000
#: Directory of machine code that a user chooses for commands; it becomes ``NUMBA_CACHE_DIR``.
CACHE_VARIABLE = "FEATURE_EMERGENCE_CACHE"
#: Lines are not broken to fewer columns, nor where they hold what stands between cells of a table.
FEWEST_COLUMNS, BETWEEN_CELLS = 40, "  "


def run_program(main: Callable[[], int], *, light: bool = True) -> NoReturn:
    """Run a command as a program, and end with its exit code.

    A process of a host that runs the module, such as a notebook by `%run -m`, stays as it is. With `light`, libraries
    that xarray and Numba load where they are installed, and that the command does not use, count as not installed.
    """
    program.run_program(main, partial(_prepare, light=light))


def _prepare(*, light: bool) -> None:
    """Listen to signals, and set where machine code and figures go."""
    listen()
    os.environ["MPLBACKEND"] = "agg"  # figures go to files, whatever windows the parent process has
    if CACHE_VARIABLE in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = os.path.realpath(os.environ[CACHE_VARIABLE])
    if light:
        for name in LOADED_BY_CHANCE:
            sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # as the import system has it
    gc.set_threshold(GARBAGE_OBJECTS)
    atexit.register(gc.freeze)


def exit_code_of(command: Callable[[], int], interrupted: str = "interrupted before anything was computed") -> int:
    """Return the exit code of a command; a mistake of the user, or an interruption, is written to stderr."""

    def run_checked() -> int:
        """Run the command if its libraries can be imported."""
        _check_libraries_load()
        return command()

    code = program.exit_code_of(run_checked, interrupted)
    if code == EXIT_DONE and heard():
        say("A signal came while the command was ending; what it wrote is whole.")
        return EXIT_INTERRUPTED
    return code


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
