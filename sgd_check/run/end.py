"""How a check of a flow and one of a mean field end: files and figure, what is printed, exit codes, messages."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dynamics.commands import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    as_typed,
    end_with,
    say,
    store_result,
    store_table,
)
from sgd_check.run.options import OPTIONS
from sgd_check.run.resume import end_of_runs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dynamics.report import Findings
    from dynamics.runs import RunFile

FIGURE_DPI = 150


def end(
    tree: Any,
    output: Path,
    figure: Path | None,
    settings: Mapping[str, Any],
    stop_reason: str,
    file: RunFile | None = None,
) -> int:
    """Write tree and figure, print what was compared, end the file of the runs if any; return the exit code."""

    def find() -> Findings | None:
        from sgd_check.report.findings import comparison_findings

        return comparison_findings(tree) if "comparison" in tree.children else None

    told = {name: settings[name] for name in ("json", "quiet", "overwrite")}
    store = partial(store_result, tree, output, overwrite=settings["overwrite"])
    table = partial(store_table, tree, settings["csv"], overwrite=settings["overwrite"])
    written = end_with(store, find, figure, **told, dpi=FIGURE_DPI, style=settings["style"], table=table)
    if written.output is None:
        return EXIT_FAILED
    code = _exit_code(stop_reason, written.output)
    if file is not None:
        end_of_runs(file, settings)
    return (code or EXIT_FAILED) if written.trouble else code


def _exit_code(stop_reason: str, output: Path) -> int:
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


def sentence(error: BaseException, engine: str) -> str:
    """Return one sentence for an error that the user can mend."""
    if isinstance(error, ModuleNotFoundError) and engine == "torch":
        return f"Engine torch must have PyTorch installed, but {error}; install it with pip install torch."
    return as_typed(error, OPTIONS, prediction="FILE")
