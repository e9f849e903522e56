"""Files of commands that check: the result and its figure, and a separate file of runs that have not ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dynamics.commands import UsageError, as_typed, end_with, retyped, say
from dynamics.commands.options import Values
from hermite.program import require_usage
from hermite.text.messages import shown
from sgd_check.run.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from dynamics.report import Findings
    from dynamics.runs import RunFile


def finish_check(
    tree: xr.DataTree,
    output: Path,
    figure: Path | None,
    settings: Mapping[str, object],
    stop_reason: str,
    file: RunFile | None = None,
    command: str = "sgd_check.run",
) -> int:
    """Write tree and figure, print the comparison, remove the file of runs that have ended; return the exit code."""

    def find(tree: xr.DataTree) -> Findings | None:
        from sgd_check.report.findings import comparison_findings

        return comparison_findings(tree) if "comparison" in tree.children else None

    written = end_with(tree, find, output, figure, settings, dpi=150)
    code = written.exit_code(stop_reason)
    if file is not None and written.output is not None:
        remove_ended_runs(file, settings, command)
    return code


def refusal_of(error: BaseException, engine: str) -> str:
    """Return the sentence of an error in arguments, in words of the command line."""
    if isinstance(error, ModuleNotFoundError) and engine == "torch":
        return f"Engine torch must have PyTorch installed, but {error}; install it with pip install torch."
    return as_typed(error, OPTIONS, prediction="FILE")


#: Options of `sgd_check.run` that the file of the runs holds, so that they must not be given with --resume.
STORED_OPTIONS = ("engine", "learning_rate", "steps", "seeds", "batch_size", "device", "dtype")
#: Values of options that were not given.
ABSENT = (None, "auto")
#: Options of a command that it is to be given again, where they differ from the default.
REPEATED = ("output", "plot", "style", "csv", "theory", "directions", "false_alarm_rate")


def reopened_runs(options: Values, stored: Sequence[str] = STORED_OPTIONS) -> RunFile:
    """Return the file of runs to resume; refuse options that contradict it, and files that hold no such runs."""
    from dynamics.runs import StorageError, reopened

    for name in stored:
        require_usage(
            options[name] in ABSENT, f"Option --{name.replace('_', '-')} must be absent beside --resume, but is given."
        )
    try:
        file = reopened(options["resume"], every=options["checkpoint_every"], keeps_result=False)
    except StorageError as error:
        raise UsageError(as_typed(error, (), path="--resume")) from None
    begun = file.begun
    require_usage(
        begun is not None and begun.answer == "simulation" and begun.settings["learning_rate"] != "schedule",
        f"Option --resume must name a file that this command left, but is {shown(options['resume'])}.",
    )
    return file


def file_of_runs(settings: Values, problem: object, output: Path, begun: RunFile | None) -> RunFile:
    """Return the file that keeps the runs of a problem until they end: the one to resume, or a new one."""
    from dynamics.runs import RunFile, StorageError

    if begun is not None and begun.begun is not None:
        require_usage(
            begun.begun.problem == problem,
            f"Option --resume must name runs of this prediction, but {settings['resume']!r} holds those of another.",
        )
        return begun
    path, overwrite = output.with_name(f"{output.stem}-runs.nc"), settings["overwrite"]
    require_usage(
        overwrite or not path.exists(),
        f"File {str(path)!r} must not exist: it holds runs that have not ended, for --resume or --overwrite.",
    )
    try:
        return RunFile(path, settings["checkpoint_every"], overwrite=overwrite, keeps_result=False)
    except StorageError as error:
        raise UsageError(as_typed(error, (), path="--output")) from None


def remove_ended_runs(file: RunFile, settings: Values, command: str = "sgd_check.run") -> None:
    """Remove the file of runs that have ended; print the command that resumes runs that have not."""
    if not file.unfinished:
        file.remove()
        return
    words = ("python", "-m", command, settings["prediction"], "--resume", str(file.target))
    say(f"Go on with: {retyped(words, settings, REPEATED, ('no_plot', 'json', 'quiet', 'no_progress'))}")
