"""The end of commands that have a result: it is written with its figure, here or elsewhere, and the user is told.

Imports nothing heavy before a result is there.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dynamics.commands.parsing import OutputError, say, tell
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import xarray as xr
    from matplotlib.figure import Figure


class Telling(Protocol):
    """What a result shows, as a command tells it: `dynamics.report.Findings`."""

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
    """Where the result is, None if nowhere, and whether something went wrong on the way."""

    output: Path | None
    trouble: bool


@contextmanager
def caught_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Catch what users are warned of, but not what libraries tell programmers, nor of versions that NumPy waives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", "numpy.* size changed", RuntimeWarning)
        yield caught


def store_result(result: xr.Dataset | xr.DataTree, output: Path, *, overwrite: bool) -> tuple[Path, str]:
    """Write a dataset, or a tree of them; see `write_somewhere`."""
    from dynamics.runs.storage import netcdf_writer, write_somewhere

    return write_somewhere(output, netcdf_writer(result), replaces=overwrite)


def store_table(
    result: xr.Dataset | xr.DataTree, csv: str | None, *, overwrite: bool
) -> tuple[dict[str, str | None], str]:
    """Write the table of a result to the file that --csv names, if any; return the file by key, and what went wrong."""
    from dynamics.runs.storage import write_somewhere
    from dynamics.runs.tables import csv_writer

    if csv is None:
        return {}, ""
    listed, trouble = _attempt(partial(write_somewhere, Path(csv), csv_writer(result), replaces=overwrite))
    return {"csv": None if listed is None else str(listed)}, trouble


def end_with(
    store: Callable[[], tuple[Path, str]],
    find: Callable[[], Telling | None],
    figure: Path | None,
    *,
    json: bool,
    quiet: bool,
    overwrite: bool,
    dpi: int,
    style: str = "screen",
    figure_key: str = "plot",
    table: Callable[[], tuple[Mapping[str, str | None], str]] = lambda: ({}, ""),
) -> Written:
    """Write result and figure, each wherever that is possible, and print what the result shows.

    `store` writes the result and returns, as `write_somewhere` does, where it is and why not where it was to be. `find`
    returns what the result shows, None if that is not known; it is called only if something is to be drawn or printed.
    No figure is made if `figure`, its file, is None; `overwrite` lets it replace one. `json` prints one JSON object,
    in which the figure's file is called `figure_key`, instead of text, and `quiet` nothing. `style` is the figure's.
    `table` writes tables, and returns their files by key and what went wrong.
    """
    from concurrent.futures import ThreadPoolExecutor

    from dynamics.runs.storage import write_somewhere

    with ThreadPoolExecutor(1) as writer:  # the file is compressed while the figure is drawn
        stored = writer.submit(_attempt, store)
        found = find() if figure is not None or not quiet else None
        drawn, refused = None, ""
        if figure is not None and found is not None and found.overview is not None:
            try:
                save = partial(found.drawn(style).savefig, **figure_options(figure, style, dpi))
            except (ImportError, ValueError) as error:  # matplotlib does not load, such as with a wrong MPLBACKEND
                refused = f"The figure could not be drawn: {error}"
            else:
                drawn, refused = _attempt(partial(write_somewhere, figure, save, replaces=overwrite))
    output, trouble = stored.result()
    tables, unlisted = table()
    unheard = ""
    if output is not None and found is not None and not quiet:
        files = {"output": str(output), figure_key: None if drawn is None else str(drawn), **tables}
        try:
            tell(found.as_json(files) if json else found.as_text(files))
        except OutputError as error:
            unheard = f"{error}; it is in {shown(str(output))}."
    for sentence in filter(None, (trouble, refused, unlisted, unheard)):
        say(f"error: {sentence}")
    return Written(output, bool(trouble or refused or unlisted or unheard))


def figure_options(figure: Path, style: str, dpi: int) -> dict[str, Any]:
    """Return how a figure is saved: in the format of its file, and with `dpi` or what its style has in its place."""
    return {"format": figure.suffix[1:].lower(), "dpi": dpi if style == "screen" else None}


def _attempt(write: Callable[[], tuple[Path, str]]) -> tuple[Path | None, str]:
    from dynamics.runs.storage import StorageError

    try:
        return write()
    except StorageError as error:
        return None, str(error)
