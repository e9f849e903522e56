"""The end of commands that have a result: it is written with its figure and table, and the user is told.

Nothing heavy is imported before there is a result.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dynamics.commands.parsing import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, OutputError, chosen_style, say, tell
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from matplotlib.figure import Figure


class Findings(Protocol):
    """`dynamics.report.Findings`, as commands use it."""

    @property
    def overview(self) -> Callable[[], Figure] | None:
        """() -> the figure, if there is one."""

    def drawn(self, style: str) -> Figure:
        """Return the figure in a style."""

    def as_text(self, files: Mapping[str, str | None]) -> str:
        """Return lines for a reader, the files that were written among them."""

    def as_json(self, files: Mapping[str, str | None]) -> str:
        """Return one JSON object, the files that were written among its values."""


class Written(NamedTuple):
    """The file of the result, None if there is none, and whether something could not be written or printed."""

    output: Path | None
    trouble: bool

    def exit_code(self, stop_reason: object, subject: str = "The run was") -> int:
        """Return the exit code of a command whose runs stopped for a reason; say where they are if it was early."""
        if self.output is None:
            return EXIT_FAILED
        code, early = STOPPED.get(stop_reason, (EXIT_DONE, ""))
        if early:
            say(f"{early.format(subject)}; what was computed is in {self.output}.")
        return (code or EXIT_FAILED) if self.trouble else code


#: Reason -> exit code and why the result is not whole.
STOPPED: dict[object, tuple[int, str]] = {
    "interrupted": (EXIT_INTERRUPTED, "{} interrupted"),
    "blown_up": (EXIT_FAILED, "Every run blew up, so try a smaller learning rate"),
    "max_runtime": (EXIT_DONE, "The wall-clock budget ran out"),
}
FIGURE_DPI = 130


@contextmanager
def caught_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Catch what users are warned of, but not what libraries tell programmers, nor of versions that NumPy waives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", "numpy.* size changed", RuntimeWarning)
        yield caught


def store_table(result: Any, values: Mapping[str, Any]) -> tuple[dict[str, str | None], str]:
    """Write the table of a result to the file that --csv names, if any; return the file by key, and what went wrong."""
    if values["csv"] is None:
        return {}, ""
    from dynamics.runs.storage import write_somewhere
    from dynamics.runs.tables import csv_writer

    write = partial(write_somewhere, Path(values["csv"]), csv_writer(result), replaces=values["overwrite"])
    listed, trouble = _attempt(write)
    return {"csv": None if listed is None else str(listed)}, trouble


def end_with(
    result: Any,
    find: Callable[[Any], Findings | None],
    output: Path,
    figure: Path | None,
    values: Mapping[str, Any],
    *,
    store: Callable[[], tuple[Path, str]] | None = None,
    figure_key: str = "plot",
    dpi: int = FIGURE_DPI,
) -> Written:
    """Write result, figure and table, each wherever that is possible, and print the findings.

    Parameters
    ----------
    result : Dataset or DataTree
    find : callable
        Result -> its findings, None if they are not known; called only if something is to be drawn or printed.
    output, figure : Path
        Files; no figure is drawn if its file is None.
    values : mapping
        Options of the command: `json` prints one JSON object, `quiet` nothing; `overwrite`, `csv` and `style`.
    store : callable, optional
        () -> the file that was written, and why it is not `output`. By default the result is written there.
    figure_key : str
        Key of the figure's file in the JSON object.
    dpi : int
    """
    from concurrent.futures import ThreadPoolExecutor

    from dynamics.runs.storage import netcdf_writer, write_somewhere

    replaces = values["overwrite"]
    store = store or (lambda: write_somewhere(output, netcdf_writer(result), replaces=replaces))
    with ThreadPoolExecutor(1) as writer:  # the file is compressed while the figure is drawn
        stored = writer.submit(_attempt, store)
        found = find(result) if figure is not None or not values["quiet"] else None
        drawn, refused = None, ""
        if figure is not None and found is not None and found.overview is not None:
            style = chosen_style(values)
            try:
                save = partial(found.drawn(style).savefig, **figure_options(figure, style, dpi))
            except (ImportError, ValueError) as error:  # matplotlib does not load, such as with a wrong MPLBACKEND
                refused = f"The figure could not be drawn: {error}"
            else:
                drawn, refused = _attempt(partial(write_somewhere, figure, save, replaces=replaces))
    written, trouble = stored.result()
    tables, unlisted = store_table(result, values)
    unheard = ""
    if written is not None and found is not None and not values["quiet"]:
        files = {"output": str(written), figure_key: None if drawn is None else str(drawn), **tables}
        try:
            tell(found.as_json(files) if values["json"] else found.as_text(files))
        except OutputError as error:
            unheard = f"{error}; it is in {shown(str(written))}."
    for sentence in filter(None, (trouble, refused, unlisted, unheard)):
        say(f"error: {sentence}")
    return Written(written, bool(trouble or refused or unlisted or unheard))


def figure_options(figure: Path, style: str, dpi: int) -> dict[str, Any]:
    """Return arguments of `savefig`: the format of the file, and `dpi` unless the style has its own."""
    return {"format": figure.suffix[1:].lower(), "dpi": dpi if style == "screen" else None}


def _attempt(write: Callable[[], tuple[Path, str]]) -> tuple[Path | None, str]:
    from dynamics.runs.storage import StorageError

    try:
        return write()
    except StorageError as error:
        return None, str(error)
