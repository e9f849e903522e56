"""How `python -m dynamics.solve` ends: what was computed, where it is, and how to go on.

Imports nothing heavy before a run has been made; knows neither options nor problems.
"""

from __future__ import annotations

import shlex
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from dynamics.command_line import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import xarray as xr

    from dynamics.run_file import RunFile

__all__ = ["solve_and_report"]

#: Flags of the command that a resumed run has too.
KEPT_FLAGS = ("no_plot", "json", "quiet", "no_progress")


def solve_and_report(
    solve: Callable[[], xr.Dataset], file: RunFile, figure: Path | None, parsed: dict[str, Any]
) -> int:
    """Solve, write dataset and figure, print the summary; return the exit code."""
    if figure is not None:
        # Compiled steps release the interpreter, which loads the plotting library meanwhile.
        threading.Thread(target=_load_plotting, daemon=True).start()
    dataset, code = _compute(solve, file, parsed)
    try:
        _write(dataset, file, figure)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    if not parsed["quiet"]:
        from dynamics.tables import as_json, as_text, summarise

        summary = summarise(dataset, file.target, figure)
        print(as_json(summary) if parsed["json"] else as_text(summary))  # noqa: T201
    return code


def _compute(solve: Callable[[], xr.Dataset], file: RunFile, parsed: dict[str, Any]) -> tuple[xr.Dataset, int]:
    """Return the answer and the exit code; a run that failed or was interrupted gives what it computed."""
    from dynamics.outcome import SolveError, SolveInterrupted

    code, end = EXIT_DONE, "The run is not finished."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            dataset = solve()
        except (SolveError, SolveInterrupted) as error:
            dataset, end = error.dataset, f"{error} What was computed is in {file.target}."
            code = EXIT_FAILED if isinstance(error, SolveError) else EXIT_INTERRUPTED
    if file.unfinished:
        end = f"{end} Go on with: {_command(file, parsed)}"
    if code != EXIT_DONE or file.unfinished:
        print(end, file=sys.stderr)  # noqa: T201
    if not parsed["quiet"]:
        for entry in caught:
            print(f"warning: {entry.message}", file=sys.stderr)  # noqa: T201
    return dataset, code


def _command(file: RunFile, parsed: dict[str, Any]) -> str:
    """Return the command that goes on with a run, with the flags that say how to show it."""
    words = ["python", "-m", "dynamics.solve", "--resume", str(file.target)]
    words += ["--plot", parsed["plot"]] if parsed["plot"] else []
    words += [f"--{flag.replace('_', '-')}" for flag in KEPT_FLAGS if parsed[flag]]
    return shlex.join(words)


def _write(dataset: xr.Dataset, file: RunFile, figure: Path | None) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from dynamics import storage

    with ThreadPoolExecutor(1) as writer:  # the file is compressed while the figure is drawn
        # A run that can go on is in its file already.
        saved = None if file.unfinished else writer.submit(storage.save, dataset, file.target, overwrite=True)
        if figure is not None:
            if dataset.attrs["answer"] == "mean-field":
                from dynamics.plotting_particles import save_particles as save_figure
            else:
                from dynamics.plotting import save_summary as save_figure
            save_figure(dataset, figure)
        if saved is not None:
            saved.result()


def _load_plotting() -> None:
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401
