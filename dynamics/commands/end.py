"""How commands end that have an answer: dataset and figure are written, or left elsewhere, and the user is told.

Imports nothing heavy before an answer is there; knows neither what it says nor how it is drawn.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import xarray as xr
    from matplotlib.figure import Figure

__all__ = ["Written", "store_result", "write_results"]


class Written(NamedTuple):
    """Where dataset and figure are, None if nowhere, and what went wrong on the way, one sentence each."""

    output: Path | None
    figure: Path | None
    troubles: tuple[str, ...]


def store_result(result: xr.Dataset | xr.DataTree, output: Path, *, overwrite: bool) -> tuple[Path, str]:
    """Write a dataset, or a tree of them; see `write_somewhere`."""
    from dynamics.runs.storage import netcdf_writer
    from dynamics.runs.whole_files import write_somewhere

    return write_somewhere(output, netcdf_writer(result), replaces=overwrite)


def write_results(
    store: Callable[[], tuple[Path, str]], figure: Path | None, draw: Callable[[], Figure], *, overwrite: bool, dpi: int
) -> Written:
    """Write dataset and figure, each wherever that is possible.

    Parameters
    ----------
    store : callable
        () -> where the dataset is, and why not where it was to be, as `write_somewhere` says it.
    figure : Path, optional
        File of the figure; None if there is to be none.
    draw : callable
        () -> Figure.
    overwrite : bool
        Whether a file may be replaced by the figure.
    dpi : int
        Dots per inch of the figure.
    """
    from concurrent.futures import ThreadPoolExecutor

    from dynamics.runs.whole_files import write_somewhere

    with ThreadPoolExecutor(1) as writer:  # the file is compressed while the figure is drawn
        stored = writer.submit(_attempt, store)
        drawn, refused = None, ""
        if figure is not None:
            save = partial(draw().savefig, format=figure.suffix[1:].lower(), dpi=dpi)
            drawn, refused = _attempt(partial(write_somewhere, figure, save, replaces=overwrite))
    output, trouble = stored.result()
    return Written(output, drawn, tuple(sentence for sentence in (trouble, refused) if sentence))


def _attempt(write: Callable[[], tuple[Path, str]]) -> tuple[Path | None, str]:
    from dynamics.runs.whole_files import StorageError

    try:
        return write()
    except StorageError as error:
        return None, str(error)
