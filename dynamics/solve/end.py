"""The end of `python -m dynamics.solve`: it says what was computed, where it is, and how to go on.

Imports nothing heavy before a run has been made.
"""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from dynamics.commands.end import caught_warnings, end_with, store_table
from dynamics.commands.parsing import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, chosen_style, say
from dynamics.threads.cores import find_blas
from hermite.text.signals import stop_if_heard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import xarray as xr

    from dynamics.commands.end import Telling
    from dynamics.runs.run_file import RunFile

#: Flags of the command that a resumed run has too.
KEPT_FLAGS = ("no_plot", "json", "quiet", "no_progress")
FIGURE_DPI = 130


def solve_and_report(
    solve: Callable[[], xr.Dataset],
    file: RunFile,
    figure: Path | None,
    given: Mapping[str, Any],
    find: Callable[[xr.Dataset], Telling | None],
) -> int:
    """Solve, write dataset and figure, print what `find` says that the answer shows; return the exit code."""
    find_blas()
    # While compiled code runs, the interpreter is free to load what is needed at the end. The thread is joined here.
    # Where a library does not load, `end_with` says so: the answer is not lost for it.
    with ThreadPoolExecutor(1) as beside:
        beside.submit(_load_libraries, drawing=figure is not None)
        stop_if_heard()
        dataset, code = _compute(solve, file, given)
    overwrite = bool(given["overwrite"] or given["resume"])
    written = end_with(
        lambda: _store(dataset, file),
        lambda: find(dataset),
        figure,
        json=given["json"],
        quiet=given["quiet"],
        overwrite=overwrite,
        dpi=FIGURE_DPI,
        style=chosen_style(given),
        figure_key="figure",
        table=lambda: store_table(dataset, given["csv"], overwrite=overwrite),
    )
    return (code or EXIT_FAILED) if written.trouble else code


def _load_libraries(*, drawing: bool) -> None:
    """Load what is needed when an answer is there; with `drawing` also what draws its figure."""
    import netCDF4  # noqa: F401
    import xarray as xr

    xr.Dataset({"any": 0.0})  # the first one looks for what else it could hold
    if drawing:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401


def _compute(solve: Callable[[], xr.Dataset], file: RunFile, given: Mapping[str, Any]) -> tuple[xr.Dataset, int]:
    """Return the answer and the exit code; a run that failed or was interrupted gives what it computed."""
    from dynamics.runs.result import SolveError, SolveInterrupted

    code, end = EXIT_DONE, "The run is not finished."
    with caught_warnings() as caught:
        try:
            dataset = solve()
        except (SolveError, SolveInterrupted) as error:
            dataset, end = error.dataset, f"{error} What was computed is in {file.target}."
            code = EXIT_FAILED if isinstance(error, SolveError) else EXIT_INTERRUPTED
    if file.unfinished:
        end = f"{end} Go on with: {_command(file, given)}"
    if code != EXIT_DONE or file.unfinished:
        say(end)
    if not given["quiet"]:
        for entry in caught:
            if str(entry.message) != file.trouble:  # an error, which is told in the end
                say(f"warning: {entry.message}")
    return dataset, code


def _command(file: RunFile, given: Mapping[str, Any]) -> str:
    """Return the command that goes on with a run, with the flags that say how to show it."""
    words = ["python", "-m", "dynamics.solve", "--resume", str(file.target)]
    words += ["--plot", given["plot"]] if given["plot"] else []
    words += ["--style", given["style"]] if given["style"] else []
    words += ["--csv", given["csv"]] if given["csv"] else []
    words += [f"--{flag.replace('_', '-')}" for flag in KEPT_FLAGS if given[flag]]
    return shlex.join(words)


def _store(dataset: xr.Dataset, file: RunFile) -> tuple[Path, str]:
    if not file.unfinished:  # a run that can go on is in its file already
        file.store(dataset)
    return file.target, file.trouble
