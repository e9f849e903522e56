"""Datasets to netCDF files and back: atomic, compressed, never over an existing file unless asked."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

COMPRESSION = {"zlib": True, "complevel": 1, "shuffle": True}


class StorageError(OSError):
    """A file could not be written or is not one of ours."""


def check_target(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Return the path if it may be written, before any work starts.

    Raises
    ------
    StorageError
        If the file exists and `overwrite` is false, or its directory does not exist or cannot be written.
    """
    target = Path(path)
    if not target.parent.is_dir():
        msg = f"Argument `path` must lie in an existing directory, but is {str(target)!r}."
        raise StorageError(msg)
    unsuitable = target.exists() and not target.is_file()
    if unsuitable or (target.exists() and not overwrite):
        what = "a directory or device" if unsuitable else "an existing file (allow it with overwrite)"
        msg = f"Argument `path` must not name {what}, but is {str(target)!r}."
        raise StorageError(msg)
    try:
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        msg = (
            f"Argument `path` must lie in a directory that can be written, but {str(target)!r} does not "
            f"({error.strerror})."
        )
        raise StorageError(msg) from None
    return target


def free_name(stem: str, suffix: str) -> Path:
    """Return `stem + suffix` in the current directory, numbered -2, -3, … if files of that name exist."""
    candidate, number = Path(stem + suffix), 1
    while candidate.exists() or candidate.with_suffix(".png").exists():
        number += 1
        candidate = Path(f"{stem}-{number}{suffix}")
    return candidate


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
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".partial")
    os.close(handle)
    temporary = Path(name)
    try:
        if isinstance(result, xr.DataTree):
            groups = {node.path: _encoding(node.to_dataset()) for node in result.subtree}
            result.to_netcdf(temporary, engine="netcdf4", encoding=groups)
        else:
            result.to_netcdf(temporary, engine="netcdf4", encoding=_encoding(result))
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except (OSError, RuntimeError) as error:  # netCDF4 reports a full disk as either
        msg = f"File {str(target)!r} could not be written: {error}."
        raise StorageError(msg) from error
    finally:
        temporary.unlink(missing_ok=True)
    return target


def load(path: str | os.PathLike[str]) -> Any:
    """Read back what `save` wrote, wholly into memory.

    Returns
    -------
    Dataset or DataTree
        DataTree if the file has groups.

    Raises
    ------
    StorageError
        If there is no such file, or it is not a netCDF file of this program.
    """
    import xarray as xr

    source = Path(path)
    if not source.is_file():
        msg = f"Argument `path` must name an existing file, but is {str(source)!r}."
        raise StorageError(msg)
    try:
        with xr.open_datatree(source, engine="netcdf4") as tree:
            loaded = tree.load()
    except (OSError, ValueError, RuntimeError) as error:
        msg = f"File {str(source)!r} must be a readable netCDF file, but is not ({type(error).__name__})."
        raise StorageError(msg) from error
    result = loaded if loaded.children else loaded.to_dataset()
    root = next(iter(loaded.children.values())) if loaded.children else loaded
    if "schema_version" not in root.attrs:
        msg = f"File {str(source)!r} must have been written by this program, but has no schema_version."
        raise StorageError(msg)
    return result


def _encoding(dataset: xr.Dataset) -> dict[str, dict[str, Any]]:
    return {
        str(name): dict(COMPRESSION)
        for name, variable in dataset.variables.items()
        if variable.ndim and np.issubdtype(variable.dtype, np.number)
    }


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
