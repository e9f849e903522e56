"""Datasets to netCDF files and back: compressed, never over an existing file unless asked.

What the files hold is written down in docs/files.md. Nothing that is read from a file is executed or unpickled.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.checks import check_switch
from dynamics.runs.dataset import SCHEMA_VERSION
from dynamics.runs.structure import check_structure
from dynamics.runs.whole_files import StorageError, as_path, check_target, free_name, names_directory, write_file
from hermite.text.messages import shown

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    import xarray as xr

    from dynamics.runs.whole_files import Write

__all__ = ["StorageError", "check_target", "free_name", "load", "names_directory", "save"]

#: Group of a file that says how to go on with the run.
CHECKPOINT = "checkpoint"
#: The first of the groups.
ROOT = "/"
COMPRESSION = {"zlib": True, "complevel": 1, "shuffle": True}
#: Bytes above which a variable is stored in pieces, without those that hold nothing at its end; bytes of a piece.
LARGE_BYTES, CHUNK_BYTES = 2**20, 2**20
#: Held while netCDF works, which takes one thread at a time in a process.
ONE_THREAD = threading.RLock()


def save(result: object, path: str | os.PathLike[str], *, overwrite: bool = False, compress: bool = True) -> Path:
    """Write a dataset, or a tree of them, to netCDF: first to a temporary name, then moved into place.

    Parameters
    ----------
    result : Dataset or DataTree
    path : path
        File to write, usually ending in .nc.
    overwrite : bool, default False
        Replace an existing file.
    compress : bool, default True
        Compress it, which takes most of the time. The file of a run that goes on is written again soon.

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
    check_switch("compress", compress)
    target = check_target(path, overwrite=overwrite)
    if target.suffix.lower() == ".csv":
        msg = f"Argument `path` must not end in .csv, as `to_table(result).to_csv` writes, but is {shown(str(target))}."
        raise StorageError(msg)
    write_file(target, netcdf_writer(result, compress=compress), replaces=overwrite)
    return target


def netcdf_writer(result: xr.Dataset | xr.DataTree, *, compress: bool = True) -> Write:
    """Return what fills a file with a dataset or a tree of them."""
    import xarray as xr

    tree = result if isinstance(result, xr.DataTree) else xr.DataTree(result)

    def write(path: Path) -> None:
        with ONE_THREAD:
            _write(tree, path, COMPRESSION if compress else {})

    return write


def _write(tree: xr.DataTree, path: Path, compression: Mapping[str, Any]) -> None:
    """Write all groups; the rows of large variables at times that were not reached take neither place nor time."""
    import netCDF4
    import xarray as xr

    root = tree.path.rstrip("/")
    datasets = {node.path.removeprefix(root) or ROOT: node.to_dataset(inherit=False) for node in tree.subtree}
    early = {
        group: [name for name, variable in dataset.variables.items() if _ends_early(variable)]
        for group, dataset in datasets.items()
    }
    others = {group: dataset.drop_vars(early[group]) for group, dataset in datasets.items()}
    encoding = {group: _encoding(dataset, compression) for group, dataset in others.items()}
    if len(others) > 1:
        xr.DataTree.from_dict(others).to_netcdf(path, engine="netcdf4", encoding=encoding)
    else:
        others[ROOT].to_netcdf(path, engine="netcdf4", encoding=encoding[ROOT])
    if any(early.values()):
        with netCDF4.Dataset(path, "a") as file:
            for group, names in early.items():
                place = file if group == ROOT else file[group]
                for name in names:
                    _write_reached(place, str(name), datasets[group][name], compression)


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
        with ONE_THREAD:
            check_structure(source)
        with ONE_THREAD, xr.open_datatree(source, engine="netcdf4") as opened:
            loaded = (opened if checkpoint else opened.drop_nodes(CHECKPOINT, errors="ignore")).load()
    except StorageError:
        raise
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


def _encoding(dataset: xr.Dataset, compression: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return how the numbers are stored: in pieces if there are many, since the library writes a whole array twice."""
    return {
        str(name): {**compression, **({"chunksizes": _piece(variable)} if variable.nbytes > LARGE_BYTES else {})}
        for name, variable in dataset.variables.items()
        if variable.ndim and np.issubdtype(variable.dtype, np.number)
    }


def _piece(variable: xr.Variable | xr.DataArray) -> tuple[int, ...]:
    """Return the shape of a piece: rows of the first axis or, where one is large, a part of it, and so on."""
    piece, bytes_of_row = list(variable.shape), variable.nbytes
    for axis, length in enumerate(variable.shape):
        bytes_of_row //= length
        piece[axis] = min(max(CHUNK_BYTES // bytes_of_row, 1), length)
        if piece[axis] > 1:
            break
    return tuple(piece)


def _ends_early(variable: xr.Variable) -> bool:
    """Return whether a variable is large and holds nothing at the last of its times."""
    large = variable.ndim > 0 and variable.dtype == np.float64 and variable.nbytes > LARGE_BYTES
    return large and bool(np.isnan(variable[-1].to_numpy()).all())


def _write_reached(group: Any, name: str, variable: xr.DataArray, compression: Mapping[str, Any]) -> None:
    """Write a variable up to the last piece that holds a number; the rest reads as NaN and has no place in the file."""
    values = variable.to_numpy()
    piece = _piece(variable)
    rows = piece[0]
    pieces = range(0, len(values), rows)
    # Whole pieces, so that of the last one that holds a number all is written.
    reached = next(
        (min(at + rows, len(values)) for at in reversed(pieces) if not np.isnan(values[at : at + rows]).all()), 0
    )
    for dim, length in variable.sizes.items():
        if dim not in group.dimensions:
            group.createDimension(dim, length)
    stored = group.createVariable(name, values.dtype, variable.dims, fill_value=np.nan, chunksizes=piece, **compression)
    stored.setncatts(variable.attrs)
    stored[:reached] = values[:reached]
