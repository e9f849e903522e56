"""Datasets to netCDF files and back: atomic, compressed, never over an existing file unless asked.

What the files hold is written down in docs/files.md. Nothing that is read from a file is executed or unpickled.
"""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.checks import check_switch
from dynamics.dataset import SCHEMA_VERSION
from hermite.messages import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    import xarray as xr

__all__ = [
    "CHECKPOINT",
    "ONE_THREAD",
    "StorageError",
    "check_target",
    "free_name",
    "load",
    "load_tree",
    "names_directory",
    "save",
    "whole_file",
]

#: Group of a file that says how to go on with the run.
CHECKPOINT = "checkpoint"
#: Ending of the temporary name under which a file is written.
PARTIAL = ".partial"
#: Compressed data become at most about 1030 times as large; what claims more than this was not written by us.
LARGEST_EXPANSION, SMALL_BYTES = 2000, 10_000_000
COMPRESSION = {"zlib": True, "complevel": 1, "shuffle": True}
#: The library of the files takes one thread at a time in a process.
ONE_THREAD = threading.RLock()


class StorageError(OSError):
    """A file could not be written or is not one of ours."""


def check_target(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Return the path if it may be written, before any work starts.

    Raises
    ------
    StorageError
        If the file exists and `overwrite` is false, or its directory does not exist or cannot be written.
    """
    check_switch("overwrite", overwrite)
    target = _as_path(path)
    if os.sep == "/" and "\\" in str(target.absolute()):
        msg = f"Argument `path` must not hold a backslash, which netCDF takes for a slash, but is {shown(str(target))}."
        raise StorageError(msg)
    try:
        if not target.parent.is_dir():
            msg = f"Argument `path` must lie in an existing directory, but is {shown(str(target))}."
            raise StorageError(msg)
        unsuitable = target.exists() and not target.is_file()
        if unsuitable or (target.exists() and not overwrite):
            what = "a directory or device" if unsuitable else "an existing file (allow it with overwrite)"
            msg = f"Argument `path` must not name {what}, but is {shown(str(target))}."
            raise StorageError(msg)
        _temporary(target).unlink()
    except StorageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        msg = (
            f"Argument `path` must name a file that can be written, but {shown(str(target))} cannot "
            f"({getattr(error, 'strerror', None) or error})."
        )
        raise StorageError(msg) from None
    return target


def _as_path(path: object) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        msg = f"Argument `path` must be a path, but is {shown(path)}."
        raise TypeError(msg)
    return Path(path)


def _temporary(target: Path) -> Path:
    """Make an empty file beside the target, under whose name the target is written."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=PARTIAL)
    os.close(handle)
    return Path(name)


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
    with whole_file(target) as temporary, ONE_THREAD:
        if isinstance(result, xr.DataTree):
            groups = {node.path: _encoding(node.to_dataset(inherit=False)) for node in result.subtree}
            result.to_netcdf(temporary, engine="netcdf4", encoding=groups)
        else:
            result.to_netcdf(temporary, engine="netcdf4", encoding=_encoding(result))
    return target


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Give a temporary file to write; what it holds in the end is flushed to the disk and moved to `target`.

    Raises
    ------
    StorageError
        If it cannot be written; then `target` is as it was.
    """
    temporary = _temporary(target)
    try:
        yield temporary
        _flush(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except (OSError, RuntimeError) as error:  # netCDF4 reports a full disk as either
        msg = f"File {str(target)!r} could not be written: {error}."
        raise StorageError(msg) from error
    finally:
        temporary.unlink(missing_ok=True)


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


def load_tree(path: str | os.PathLike[str], *, checkpoint: bool = True) -> xr.DataTree:
    """Read all groups of a file, among them "checkpoint" if asked for and there; raises as `load` does."""
    import xarray as xr

    source = _as_path(path)
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


def names_directory(path: object) -> bool:
    """Return whether this is the path of a directory."""
    try:
        return isinstance(path, (str, os.PathLike)) and Path(path).is_dir()
    except OSError:  # a name that is too long
        return False


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


def _flush(path: Path) -> None:
    """Have a file on the disk before it takes the place of another."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


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
