"""Datasets to netCDF files and back: compressed, never over an existing file unless asked.

What the files hold is written down in docs/files.md. Nothing that is read from a file is executed or unpickled.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.dataset import SCHEMA_VERSION
from dynamics.whole_files import StorageError, as_path, check_target, free_name, names_directory, write_file
from hermite.messages import shown

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import xarray as xr

    from dynamics.whole_files import Write

__all__ = [
    "CHECKPOINT",
    "ONE_THREAD",
    "StorageError",
    "check_target",
    "free_name",
    "load",
    "load_answer",
    "load_tree",
    "names_directory",
    "netcdf_writer",
    "save",
]

#: Group of a file that says how to go on with the run.
CHECKPOINT = "checkpoint"
#: Compressed data become at most about 1030 times as large; what claims more than this was not written by us.
LARGEST_EXPANSION, SMALL_BYTES = 2000, 10_000_000
COMPRESSION = {"zlib": True, "complevel": 1, "shuffle": True}
#: The library of the files takes one thread at a time in a process.
ONE_THREAD = threading.RLock()


def save(result: object, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a dataset, or a tree of them, to netCDF: first to a temporary name, then moved into place.

    Parameters
    ----------
    result : Dataset or DataTree
    path : path
        File to write, usually ending in .nc.
    overwrite : bool, default False
        Replace an existing file.

    Returns
    -------
    Path

    Raises
    ------
    TypeError
        If `result` is neither.
    StorageError
        If the file exists and `overwrite` is false, or it cannot be written.
    """
    import xarray as xr

    if not isinstance(result, (xr.Dataset, xr.DataTree)):
        msg = f"Argument `result` must be a Dataset or DataTree, but is {type(result).__name__}."
        raise TypeError(msg)
    target = check_target(path, overwrite=overwrite)
    write_file(target, netcdf_writer(result), replaces=overwrite)
    return target


def netcdf_writer(result: xr.Dataset | xr.DataTree) -> Write:
    """Return what fills a file with a dataset or a tree of them."""
    import xarray as xr

    def write(path: Path) -> None:
        with ONE_THREAD:
            if isinstance(result, xr.DataTree):
                groups = {node.path: _encoding(node.to_dataset(inherit=False)) for node in result.subtree}
                result.to_netcdf(path, engine="netcdf4", encoding=groups)
            else:
                result.to_netcdf(path, engine="netcdf4", encoding=_encoding(result))

    return write


def load(path: str | os.PathLike[str]) -> Any:
    """Read back what `save` wrote, wholly into memory, without the checkpoint of a run that has not ended.

    Returns
    -------
    Dataset or DataTree
        DataTree if the file has groups.

    Raises
    ------
    StorageError
        If there is no such file, or it is not a whole netCDF file of this program, or of a newer version of it.
    """
    tree = load_tree(path, checkpoint=False)
    return tree if tree.children else tree.to_dataset()


def load_answer(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read the answer at the root of a file, without the groups that somebody has added; raises as `load` does."""
    return load_tree(path, checkpoint=False).to_dataset()


def load_tree(path: str | os.PathLike[str], *, checkpoint: bool = True) -> xr.DataTree:
    """Read all groups of a file, among them "checkpoint" if asked for and there; raises as `load` does."""
    import xarray as xr

    source = as_path(path)
    if not _is_file(source):
        msg = f"Argument `path` must name an existing file, but is {shown(str(source))}."
        raise StorageError(msg)
    try:
        with ONE_THREAD, xr.open_datatree(source, engine="netcdf4") as opened:
            tree = opened if checkpoint else opened.drop_nodes(CHECKPOINT, errors="ignore")
            claimed = sum(node.to_dataset(inherit=False).nbytes for node in tree.subtree)
            if claimed > SMALL_BYTES + LARGEST_EXPANSION * source.stat().st_size:
                msg = f"{claimed} bytes of data"
                raise ValueError(msg)
            loaded = tree.load()
    except Exception as error:  # a damaged file makes the libraries raise almost anything
        msg = f"File {str(source)!r} must be a readable netCDF file, but is not ({type(error).__name__})."
        raise StorageError(msg) from error
    _check_schema(source, loaded)
    return loaded


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _check_schema(source: Path, tree: xr.DataTree) -> None:
    """Refuse what another program, or a newer version of this one, has written."""
    answers = [tree, *(node for name, node in tree.children.items() if name != CHECKPOINT)]
    version = next((node.attrs["schema_version"] for node in answers if "schema_version" in node.attrs), None)
    if version is None:
        msg = f"File {str(source)!r} must have been written by this program, but has no schema_version."
        raise StorageError(msg)
    if not isinstance(version, (int, np.integer)) or version < 1:
        msg = f"File {str(source)!r} must have a positive integer as schema_version, but has {shown(version)}."
        raise StorageError(msg)
    if version > SCHEMA_VERSION:
        msg = (
            f"File {str(source)!r} must have a schema_version of at most {SCHEMA_VERSION}, but has {version}: "
            "a newer version of this program wrote it."
        )
        raise StorageError(msg)


def _encoding(dataset: xr.Dataset) -> dict[str, dict[str, Any]]:
    return {
        str(name): dict(COMPRESSION)
        for name, variable in dataset.variables.items()
        if variable.ndim and np.issubdtype(variable.dtype, np.number)
    }
