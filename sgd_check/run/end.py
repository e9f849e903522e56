"""What the commands of a check do alike: files and figure, exit codes, durations, messages.

Imports nothing heavy; knows neither engines nor comparisons.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from dynamics.commands import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, store_result, write_results

if TYPE_CHECKING:
    from pathlib import Path

    from dynamics.commands import Written

FIGURE_DPI = 150


def write(tree: Any, output: Path, figure: Path | None, *, overwrite: bool) -> Written:
    """Write dataset and figure, each wherever that is possible, and say what went wrong."""
    from sgd_check import plot_comparison

    store = partial(store_result, tree, output, overwrite=overwrite)
    written = write_results(store, figure, lambda: plot_comparison(tree), overwrite=overwrite, dpi=FIGURE_DPI)
    for trouble in written.troubles:
        say(f"error: {trouble}")
    return written


def exit_code(stop_reason: str, output: Path) -> int:
    """Return the exit code of a run that ended so, and say what was kept if it ended early."""
    if stop_reason == "interrupted":
        say(f"The run was interrupted; what was computed is in {output}.")
        return EXIT_INTERRUPTED
    if stop_reason == "blown_up":
        say(f"Every run blew up, so try a smaller learning rate; what was computed is in {output}.")
        return EXIT_FAILED
    if stop_reason == "max_runtime":
        say(f"The wall-clock budget ran out; what was computed is in {output}.")
    return EXIT_DONE


def duration(seconds: float) -> str:
    """Return a time as text."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def sentence(error: BaseException, engine: str) -> str:
    """Return one sentence for an error that the user can mend."""
    if isinstance(error, ImportError) and engine == "torch":
        return f"Engine torch must have PyTorch installed, but {error}; install it with pip install torch."
    return str(error)


def say(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(text + "\n")
