"""Datasets to netCDF files (docs/files.md) and back, and to tables of rows and columns for programs without netCDF.

Files are written whole or not at all, never over a file that must stay. Nothing that is read is executed or unpickled.
netCDF follows every link, makes an object of every group and trusts every shape, so that a small file can take all
memory, read other files, or end the process: so `check_structure` refuses what this program has not written.
"""

from __future__ import annotations

import glob
import io
import math
import mmap
import os
import struct
import tempfile
import threading
import time as clock
import uuid
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.checks import check_switch, check_type
from dynamics.runs.dataset import SCHEMA_VERSION
from dynamics.runs.file_systems import LOCKING, cause_of, copy_mode, flush, give_name, lock_error, tell_refusal
from dynamics.runs.seal import is_changed, seal
from dynamics.runs.storable import check_tree
from dynamics.threads import in_worker
from hermite.text.messages import cut, refuse, require, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    import h5py
    import netCDF4
    import pandas as pd
    import xarray as xr

    Write = Callable[[Path], object]

#: Ending of the temporary name under which a file is written.
PARTIAL = ".partial"


class StorageError(OSError):
    """A file could not be written or is not one of ours.

    Examples
    --------
    >>> try:
    ...     load("no-such-file.nc")
    ... except StorageError as error:
    ...     print(error)
    Argument `path` must name an existing file, but is 'no-such-file.nc'.
    """


def check_target(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Return the path if a result can be written there, else raise StorageError; nothing is left behind.

    The folder must exist and take a file. Nothing may exist at the path, except a file if `overwrite`. It is called
    before any work starts.
    """
    check_switch("overwrite", overwrite)
    target = as_path(path)
    name = shown(str(target))
    try:
        str(target).encode()
        if os.sep == "/" and "\\" in str(target.absolute()):
            refuse(
                f"Argument `path` must not hold a backslash, which netCDF takes for a slash, but is {name}.",
                error=StorageError,
            )
        if os.sep == "\\" and ":" in target.name:
            refuse(
                f"Argument `path` must not hold a colon, behind which Windows hides what is written, but is {name}.",
                error=StorageError,
            )
        if not target.parent.is_dir():
            refuse(f"Argument `path` must lie in an existing directory, but is {name}.", error=StorageError)
        if _is_taken(target, replaces=overwrite):
            if target.is_file():
                refuse(
                    f"Argument `path` must not name an existing file (allow it with overwrite), but is {name}.",
                    error=StorageError,
                )
            if not target.exists():
                refuse(f"Argument `path` must not name a link to nothing, but is {name}.", error=StorageError)
            refuse(f"Argument `path` must not name a directory or device, but is {name}.", error=StorageError)
        _temporary(_place(target)).unlink()
        with suppress(FileNotFoundError):
            target.lstat()  # which a name that is too long fails
    except StorageError:
        raise
    except UnicodeEncodeError:
        refuse(f"Argument `path` must be a name in UTF-8, as netCDF asks, but is {name}.", error=StorageError)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        refuse(
            f"Argument `path` must name a file that can be written, but {name} cannot ({cause_of(error)}).",
            error=StorageError,
        )
    return target


def as_path(path: Any) -> Path:
    """Return the name of a file as a path; raise TypeError for any other type."""
    check_type("path", path, (str, os.PathLike), "a path")
    return Path(path)


def write_file(target: Path, write: Write, *, replaces: bool) -> None:
    """Write a file: `write` fills a temporary file in the same folder, which is flushed and then renamed to the target.

    A file of that name may go if `replaces`; the new one has its mode. A symbolic link to a file stays: the file goes.
    If it is impossible, StorageError is raised and `target` is as it was.
    """

    def written() -> None:
        """Write the file under a temporary name, and give it its own."""
        place = _place(target)
        temporary = _temporary(place)
        try:
            _fill(temporary, write)
            require(not _is_taken(target, replaces=replaces), "something else has that name now", error=OSError)
            copy_mode(place, temporary)
            give_name(temporary, place, replaces=replaces)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    try:
        # KeyboardInterrupt inside of the libraries could leave one of their locks taken: the next file would hang.
        in_worker(written)
    except (OSError, RuntimeError) as error:  # netCDF raises both
        cause = OSError(*error.args)  # without the temporary name
        refuse(f"File {str(target)!r} could not be written: {cause}.", error=StorageError, cause=error)


def write_somewhere(target: Path, write: Write, *, replaces: bool) -> tuple[Path, str]:
    """Write a file as `write_file` does; return its path, and "" or one sentence that says why it is not the target.

    If the target cannot be written, the file gets a free name in its folder, the current or a temporary directory.
    """
    try:
        write_file(target, write, replaces=replaces)
    except StorageError as error:
        for folder in (str(target.parent), "", None):
            with suppress(OSError):
                stem = str(Path(tempfile.gettempdir() if folder is None else folder) / target.stem)
                substitute = free_name(stem, target.suffix)
                write_file(substitute, write, replaces=False)
                return substitute, f"{error} What was to be in it is in {str(substitute)!r}."
        raise
    return target, ""


def free_name(stem: str, suffix: str, *, replaces: bool = False) -> Path:
    """Return `stem + suffix`, numbered -2, -3, … if files of that name, or figures, exist and none may be replaced."""
    candidate, number = Path(stem + suffix), 1
    while not replaces and (candidate.exists() or candidate.with_suffix(".png").exists()):
        number += 1
        candidate = Path(f"{stem}-{number}{suffix}")
    return candidate


def fingerprint(path: Path) -> tuple[int, ...] | None:
    """Return numbers that distinguish a file from later files of the same name, None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def remove_torn(target: Path, idle: float = 0.0) -> None:
    """Remove temporary files of a target that killed processes have left, if they are unchanged for `idle` seconds."""
    place = _place(target)
    for torn in place.parent.glob(f"{glob.escape(_hidden(place))}*{PARTIAL}"):
        with suppress(OSError):
            if not idle or clock.time() - torn.stat().st_mtime > idle:
                torn.unlink()


def _is_taken(target: Path, *, replaces: bool) -> bool:
    """Return whether something that must stay has the name: anything but a file that may be replaced."""
    return os.path.lexists(target) and not (replaces and target.is_file())


def _hidden(target: Path) -> str:
    """Return how temporary names of a target begin; a long name is cut, since names have at most 255 bytes."""
    if len(target.name) <= 50:
        return f".{target.name}."
    return f".{target.name[:50]}-{zlib.crc32(os.fsencode(target.name)):08x}."


def _place(target: Path) -> Path:
    """Return the path of the file of a name; for a symbolic link to a file, the path of that file."""
    return target.resolve() if target.is_symlink() and target.is_file() else target


def _temporary(target: Path) -> Path:
    """Make an empty file in the folder of the target, and return its path; the content is first written to it."""
    path = target.with_name(f"{_hidden(target)}{uuid.uuid4().hex[:12]}{PARTIAL}")
    path.open("xb").close()
    return path


def _fill(temporary: Path, write: Write) -> None:
    """Write a file at a temporary path, and its content to the disk."""
    write(temporary)
    flush(temporary)


#: A comparison of many widths has some twenty groups, in four levels; an answer has some fifty variables.
MOST_GROUPS, MOST_LEVELS, MOST_MEMBERS = 500, 16, 5000
#: Compressed data become at most about 1030 times as large; what claims more than this was not written by us.
LARGEST_EXPANSION, SMALL_BYTES = 2000, 10_000_000
#: How a heap of lists and texts begins, its own size behind that; how an object in it does: index, then its size.
_HEAP_BEGINS, _HEAP, _OBJECT = b"GCOL\x01\x00\x00\x00", struct.Struct("<8xQ"), struct.Struct("<H6xQ")


def check_structure(path: Path, content: bytes | None = None) -> None:
    """Raise StorageError for a file that netCDF must not read, and the errors of h5py for a damaged one.

    `content` is given where HDF5 cannot open the file itself.
    """
    import h5py

    def address(group: h5py.Group) -> int:
        """Return the place of a group in the file."""
        return int(h5py.h5o.get_info(group.id).addr)

    _check_heaps(path)
    with h5py.File(path if content is None else io.BytesIO(content), "r") as file:
        groups: list[h5py.Group] = [file]
        addresses, members, claimed, size = {address(file)}, 0, 0, path.stat().st_size
        while groups:
            group = groups.pop()
            members += len(group)
            require(
                len(addresses) <= MOST_GROUPS and members <= MOST_MEMBERS and group.name.count("/") <= MOST_LEVELS,
                f"File {str(path)!r} must have at most {MOST_GROUPS} groups, in {MOST_LEVELS} levels, and "
                f"{MOST_MEMBERS} members, as those of this program do, but {shown(group.name)} exceeds that.",
                error=StorageError,
            )
            for name in group:
                require(
                    isinstance(group.get(name, getlink=True), h5py.HardLink),
                    f"File {str(path)!r} must hold what it names, as those of this program do, but {shown(name)} is a "
                    "link elsewhere.",
                    error=StorageError,
                )
                member = group[name]
                if isinstance(member, h5py.Group):
                    require(
                        address(member) not in addresses,
                        f"File {str(path)!r} must name each group once, as those of this program do, but "
                        f"{shown(name)} is one that has another name.",
                        error=StorageError,
                    )
                    addresses.add(address(member))
                    groups.append(member)
                else:
                    claimed += _claimed(path, name, member)
        require(
            claimed <= SMALL_BYTES + LARGEST_EXPANSION * size,
            f"File {str(path)!r} must hold what it claims, as those of this program do, but {claimed} bytes are more "
            f"than {size} can be.",
            error=StorageError,
        )


def _check_heaps(path: Path) -> None:
    """Raise StorageError for a damaged file whose global heap HDF5 would read without end.

    A heap is a list of objects, each with its size, from which HDF5 computes where the next one begins. Sizes that
    lead no further are refused.
    """
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(_HEAP_BEGINS)
        while start >= 0:
            place, end = start + _HEAP.size, len(content)
            if place <= end:
                end = min(end, start + _HEAP.unpack_from(content, start)[0])
            while place + _OBJECT.size <= end:
                index, size = _OBJECT.unpack_from(content, place)
                # Of free space the size is that of all of it, of an object that of its content.
                length = size if index == 0 else (_OBJECT.size + size + 7) // 8 * 8
                require(
                    _OBJECT.size <= length < 2**64,
                    f"File {str(path)!r} must have lists that end, as those of this program do, but one of them does "
                    "not.",
                    error=StorageError,
                )
                place += length
            start = content.find(_HEAP_BEGINS, start + 1)


def _claimed(path: Path, name: str, member: h5py.Dataset | h5py.Datatype) -> int:
    """Return the number of bytes that reading the variable `member` takes.

    StorageError is raised unless it holds real numbers or texts, within this file, and is as long as its dimensions.
    """
    import h5py

    sizes = {h5py.h5t.INTEGER: (1, 2, 4, 8), h5py.h5t.FLOAT: (4, 8)}
    is_plain = False
    if isinstance(member, h5py.Dataset):
        stored = member.id.get_type()
        kind = stored.get_class()
        is_plain = kind == h5py.h5t.STRING or stored.get_size() in sizes.get(kind, ())
    require(
        is_plain,
        f"File {str(path)!r} must hold real numbers of at most 64 bits and texts, as those of this program do, but "
        f"{shown(name)} is something else.",
        error=StorageError,
    )
    creation = member.id.get_create_plist()
    require(
        not creation.get_external_count() and creation.get_layout() != h5py.h5d.VIRTUAL,
        f"File {str(path)!r} must hold its own numbers, as those of this program do, but those of {shown(name)} are in "
        "another file.",
        error=StorageError,
    )
    for axis, length in enumerate(member.shape):
        require(
            all(scale.shape == (length,) for scale in member.dims[axis].values()),
            f"File {str(path)!r} must have variables as long as their dims, as those of this program do, but "
            f"{shown(name)} is not.",
            error=StorageError,
        )
    # HDF5 reads a whole piece, even for a few of its numbers.
    return int(math.prod(map(max, member.shape, member.chunks or member.shape)) * member.dtype.itemsize)


#: Group of a file that says how to go on with the run.
CHECKPOINT = "checkpoint"
#: The first of the groups.
ROOT = "/"
COMPRESSION = {"zlib": True, "complevel": 1, "shuffle": True, "fletcher32": True}
#: Bytes above which a variable is stored in pieces, and of a piece; with which a file in memory begins.
LARGE_BYTES, MEMORY_BYTES = 2**20, 2**16
#: Held while netCDF works, which takes one thread at a time in a process.
ONE_THREAD = threading.RLock()


def save(
    result: xr.Dataset | xr.DataTree, path: str | os.PathLike[str], *, overwrite: bool = False, compress: bool = True
) -> Path:
    """Write a dataset, or a tree of them, to netCDF, whole or not at all.

    Parameters
    ----------
    result : Dataset or DataTree
    path : path
        File to write, usually ending in .nc.
    overwrite : bool, default False
        Replace an existing file.
    compress : bool, default True
        Compress it, which takes most of the time.

    Returns
    -------
    Path

    Raises
    ------
    TypeError
        If `result` is neither, or has something that a file would lose or `load` would read as something else: complex
        numbers, units with "since", names that netCDF refuses or keeps for itself, attributes that are no text and no
        numbers. A list of one number or text in an attribute is read as that number or text.
    StorageError
        If the file exists and `overwrite` is false, it cannot be written, or `result` has no `schema_version`, by which
        `load` knows files of this program.

    Examples
    --------
    >>> import tempfile
    >>> from dynamics import Problem, Teacher, predict_emergence
    >>> problem = Problem(activation="he4", teacher=Teacher([0.8, 0.6]), width=2, dimension=64)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save(predict_emergence(problem), f"{folder}/answer.nc")
    ...     path.name, load(path).attrs["answer"]
    ('answer.nc', 'prediction')
    """
    import xarray as xr

    require(
        isinstance(result, (xr.Dataset, xr.DataTree)),
        f"Argument `result` must be a Dataset or DataTree, but is {type(result).__name__}.",
        error=TypeError,
    )
    check_switch("compress", compress)
    check_tree(result)
    version = _schema_version(result if isinstance(result, xr.DataTree) else xr.DataTree(result))
    require(
        isinstance(version, (int, np.integer)) and 0 < version <= SCHEMA_VERSION,
        f"Argument `result` must have a schema_version from 1 to {SCHEMA_VERSION}, so that `load` reads it, but has "
        f"{'none' if version is None else shown(version)}.",
        error=StorageError,
    )
    target = check_target(path, overwrite=overwrite)
    require(
        target.suffix.lower() != ".csv",
        f"Argument `path` must not end in .csv, as `to_table(result).to_csv` writes, but is {shown(str(target))}.",
        error=StorageError,
    )
    try:
        write_file(target, netcdf_writer(result, compress=compress), replaces=overwrite)
    except StorageError:
        raise
    except Exception as error:  # the libraries raise errors of many types for values that they do not store
        refuse(f"Argument `result` must be what netCDF stores, but is not: {error}.", error=TypeError, cause=error)
    return target


def netcdf_writer(result: xr.Dataset | xr.DataTree, *, compress: bool = True) -> Write:
    """Return a function that writes a dataset or a tree to a path."""
    import xarray as xr

    tree = result if isinstance(result, xr.DataTree) else xr.DataTree(result)
    return partial(_write, tree, COMPRESSION if compress else {})


def _write(tree: xr.DataTree, compression: Mapping[str, object], path: Path) -> None:
    """Write all groups of the tree to a netCDF file at `path`.

    Variables of numbers get the encoding `compression`. Those above `LARGE_BYTES` are written one by one, each only up
    to the last piece that holds a number.
    """
    from xarray.backends import NetCDF4DataStore

    as_store: Any = NetCDF4DataStore
    root = tree.path.rstrip("/")
    datasets = {node.path.removeprefix(root) or ROOT: node.to_dataset(inherit=False) for node in tree.subtree}
    large = [
        (group, str(name))
        for group, dataset in datasets.items()
        for name, variable in dataset.data_vars.items()
        if variable.dtype == np.float64 and variable.nbytes > LARGE_BYTES
    ]
    small = {
        group: dataset.drop_vars([name for place, name in large if place == group])
        for group, dataset in datasets.items()
    }
    encoding = {
        group: {
            str(name): compression
            for name, variable in dataset.variables.items()
            if variable.ndim and np.issubdtype(variable.dtype, np.number)
        }
        for group, dataset in small.items()
    }

    def fill(file: netCDF4.Dataset) -> None:
        """Write all groups to an open file."""
        for group, dataset in small.items():
            dataset.dump_to_store(as_store(file, None if group == ROOT else group, mode="w"), encoding=encoding[group])
        for group, name in large:
            _write_reached(file if group == ROOT else file[group], name, datasets[group][name], compression)

    write_netcdf(path, fill)


def write_netcdf(path: Path, fill: Callable[[netCDF4.Dataset], None]) -> None:
    """Write a netCDF file with `fill`, in memory first where netCDF cannot write to the file system, and seal it."""
    import netCDF4

    with ONE_THREAD:
        try:
            with netCDF4.Dataset(path, "w") as file:
                fill(file)
        except StorageError:
            raise
        except (OSError, RuntimeError) as error:
            _check_space(path)
            refusal = lock_error(path)
            file = netCDF4.Dataset(path.name, "w", memory=MEMORY_BYTES)
            fill(file)
            content = file.close()
            path.unlink()  # the library may hold the file that it could not write
            path.write_bytes(content)
            folder = shown(str(path.parent))
            if refusal is None:
                tell_refusal(
                    "what netCDF asks of it",
                    f"The file system of {folder} refuses what netCDF asks of it ({cause_of(OSError(*error.args))}), "
                    "so files are put together in memory.",
                )
            else:
                tell_refusal(
                    "locks",
                    f"The file system of {folder} refuses locks ({cause_of(refusal)}), so files are put together in "
                    f"memory; {LOCKING}=FALSE in the environment avoids that.",
                )
        seal(path)


def _check_space(path: Path) -> None:
    """Raise OSError with the cause where a disk is full, which netCDF reports as a missing permission or otherwise."""
    with path.open("ab") as probe:
        probe.write(bytes(1 << 20))
        probe.flush()
        flush(path)


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

    Examples
    --------
    >>> import tempfile
    >>> from dynamics import Problem, Teacher, predict_emergence
    >>> answer = predict_emergence(Problem(activation="he4", teacher=Teacher([0.8, 0.6]), width=2, dimension=64))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load(save(answer, f"{folder}/answer.nc"))
    >>> again.identical(answer)
    True
    """
    tree = load_tree(path, checkpoint=False)
    return tree if tree.children else tree.to_dataset()


def load_answer(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read the answer at the root of a file, without the groups that somebody has added; raises as `load` does."""
    return load_tree(path, checkpoint=False).to_dataset()


def load_tree(path: str | os.PathLike[str], *, checkpoint: bool = True) -> xr.DataTree:
    """Return all groups of a file as a tree in memory, with the group "checkpoint", if there is one, if `checkpoint`.

    StorageError is raised as by `load`: for files that do not exist, are damaged, or were written by another program
    or a newer version.
    """
    source, is_file = as_path(path), False
    with suppress(OSError):  # a name that is too long
        is_file = source.is_file()
    require(is_file, f"Argument `path` must name an existing file, but is {shown(str(source))}.", error=StorageError)
    try:
        content = _content(source)
        _check_seal(source)
        with ONE_THREAD:
            check_structure(source, content)
            loaded = _loaded(source, content, checkpoint=checkpoint)
    except StorageError:
        raise
    except Exception as error:  # the libraries raise errors of many types for a damaged file
        cause = cut(cause_of(error) if isinstance(error, OSError) else type(error).__name__)
        refuse(
            f"File {str(source)!r} must be a readable netCDF file, but is not ({cause}).",
            error=StorageError,
            cause=error,
        )
    version = _schema_version(loaded)
    require(
        version is not None,
        f"File {str(source)!r} must have been written by this program, but has no schema_version.",
        error=StorageError,
    )
    require(
        isinstance(version, (int, np.integer)) and version > 0,
        f"File {str(source)!r} must have a positive integer as schema_version, but has {shown(version)}.",
        error=StorageError,
    )
    require(
        version <= SCHEMA_VERSION,
        f"File {str(source)!r} must have a schema_version of at most {SCHEMA_VERSION}, but has {version}: a newer "
        "version of this program wrote it.",
        error=StorageError,
    )
    return loaded


def opened(path: Path) -> xr.Dataset:
    """Return the dataset of a file; values are read when they are used, where the file system allows that."""
    import xarray as xr

    if lock_error(path):
        return load_answer(path)
    _check_seal(path)
    return xr.open_dataset(path, engine="netcdf4")


def _check_seal(path: Path) -> None:
    """Raise StorageError for a file that has changed since it was written."""
    require(
        not is_changed(path),
        f"File {str(path)!r} must hold what was written to it, but has changed since: it is damaged.",
        error=StorageError,
    )


def _content(path: Path) -> bytes | None:
    """Return the bytes of a file where HDF5 cannot lock it, None where it can; refuse one that is being written."""
    refusal = lock_error(path)
    if isinstance(refusal, BlockingIOError):
        refuse(
            f"File {str(path)!r} must not be open for writing, but is, here or in another process; {LOCKING}=FALSE in "
            "the environment has it read as it is.",
            error=StorageError,
        )
    return None if refusal is None else path.read_bytes()


def _loaded(path: Path, content: bytes | None, *, checkpoint: bool) -> xr.DataTree:
    """Return all groups of a file, or of its content, in memory."""
    import netCDF4
    import xarray as xr

    as_store: Any = xr.backends.NetCDF4DataStore
    # A name that begins with a bracket is read as constraints on an address.
    with netCDF4.Dataset(path.absolute()) if content is None else netCDF4.Dataset(path.name, memory=content) as file:
        waiting, parts = [(ROOT, file)], {}
        while waiting:
            name, group = waiting.pop()
            parts[name] = xr.open_dataset(as_store(file, None if name == ROOT else name, mode="r")).load()
            below = [(f"{name.rstrip('/')}/{child}", subgroup) for child, subgroup in group.groups.items()]
            waiting += reversed([pair for pair in below if checkpoint or pair[0] != f"/{CHECKPOINT}"])
        return xr.DataTree.from_dict(parts)


def _schema_version(tree: xr.DataTree) -> Any:
    """Return the schema version of a tree, that of its first group that has it; None without."""
    answers = [tree, *(node for name, node in tree.children.items() if name != CHECKPOINT)]
    return next((node.attrs["schema_version"] for node in answers if "schema_version" in node.attrs), None)


def _piece(variable: xr.Variable | xr.DataArray) -> tuple[int, ...]:
    """Return the shape of a piece: some rows of the first axis or, if a row is large, a part of one row, and so on."""
    piece, bytes_of_row = list(variable.shape), variable.nbytes
    for axis, length in enumerate(variable.shape):
        bytes_of_row //= length
        piece[axis] = min(max(LARGE_BYTES // bytes_of_row, 1), length)
        if piece[axis] > 1:
            break
    return tuple(piece)


def _write_reached(group: Any, name: str, variable: xr.DataArray, compression: Mapping[str, object]) -> None:
    """Write a variable in pieces, since the library writes a whole array twice, to the last that holds a number.

    The rest reads as NaN, and takes neither place nor time.
    """
    values, piece = variable.to_numpy(), _piece(variable)
    # Whole pieces, so that of the last one that holds a number all is written.
    ends = range(piece[0], len(values) + piece[0], piece[0])
    reached = next((end for end in reversed(ends) if not np.isnan(values[end - piece[0] : end]).all()), 0)
    for dim, length in variable.sizes.items():
        if dim not in group.dimensions:
            group.createDimension(dim, length)
    stored = group.createVariable(name, values.dtype, variable.dims, fill_value=np.nan, chunksizes=piece, **compression)
    stored.setncatts(variable.attrs)
    stored[:reached] = values[:reached]


#: Group of a tree that judges the others.
JUDGE = "comparison"
#: Measured times, of which an answer's table tells unless it is asked for another.
_TIMES = ("emergence_time", "aligned_time", "learned_time")
#: Answer -> the variable for each value of which its table has a row, where there are no times.
_CURVES = {"kernel": "test_error"}

#: Attributes of an answer on how it was computed, which are variables of a sweep where they differ between points.
BOOKKEEPING = {
    "answer", "git_commit", "method", "rtol", "atol", "device", "fallback", "field_precision", "stop_message",
    "solve_seconds", "tracker_seconds", "compile_seconds", "wall_seconds", "steps_accepted", "steps_rejected",
    "steps_limited_by_stability", "rhs_evaluations", "divisions",
}  # fmt: skip


def parts_of(result: xr.Dataset | xr.DataTree) -> dict[str, xr.Dataset]:
    """Return the datasets of a result by the path of their group, "/" for one that is all."""
    import xarray as xr

    if isinstance(result, xr.Dataset):
        return {"/": result}
    datasets = {node.path: node.to_dataset(inherit=False) for node in result.subtree}
    return {path: dataset for path, dataset in datasets.items() if dataset.variables or dataset.attrs}


def main_part(result: xr.Dataset | xr.DataTree) -> xr.Dataset:
    """Return the main dataset of a result: the comparison of a tree, else its first group."""
    import xarray as xr

    parts = parts_of(result)
    return parts.get(f"/{JUDGE}", next(iter(parts.values()), xr.Dataset()))


def to_table(
    answer: xr.Dataset | xr.DataTree, *, per: str | Sequence[str] | None = None, bookkeeping: bool = False
) -> pd.DataFrame:
    """Return an answer of any kind as a tidy table: one row per direction, time or whatever `per` names.

    Parameters
    ----------
    answer : Dataset or DataTree
        Any answer of this program. Of a tree it is the group `comparison`, or else the first; ``tree["simulation"]`` is
        another.
    per : str or sequence of str, optional
        Dimensions of the answer; a row belongs to one value of each. By default those of the measured times
        (`emergence_time`, or else `aligned_time` or `learned_time`), such as one row per direction, in sweeps per point
        and direction; without measured times those that most variables have. An empty sequence asks for one row, of the
        values without dimensions.
    bookkeeping : bool, default False
        Of a sweep, also return columns on how points were computed: method, tolerances, counts, seconds, commit.

    Returns
    -------
    DataFrame
        First a column for each dimension: its coordinate, or else the index from 0. Then every variable that depends on
        `per` alone; one that depends on a part of it is repeated. Numbers are not rounded, and dimensionless but for
        seconds of a clock; a time that was not reached is NaN, one that is predicted never is infinite.
        ``attrs["long_name"]`` says what each column is.

    Raises
    ------
    TypeError, ValueError
        If the answer or `bookkeeping` is of another type, or the answer lacks a dimension.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([0.8, 0.6]), width=2, dimension=64)
    >>> answer = dynamics.predict_emergence(problem, save_at=dynamics.SaveAt.at([1.0, 10.0]))
    >>> dynamics.to_table(answer)[["direction", "teacher_coefficient"]]
       direction  teacher_coefficient
    0          1                  0.8
    1          2                  0.6
    >>> list(dynamics.to_table(answer, per="time").columns)
    ['time', 'loss']
    """
    import pandas as pd
    import xarray as xr

    require(
        isinstance(answer, (xr.Dataset, xr.DataTree)),
        f"Argument `answer` must be a Dataset or DataTree, but is {type(answer).__name__}.",
        error=TypeError,
    )
    check_switch("bookkeeping", bookkeeping)
    dataset = main_part(answer)
    rows = _natural_rows(dataset) if per is None else _checked_rows(per, dataset)
    if dataset.attrs.get("answer") == "sweep" and not bookkeeping:
        dataset = dataset.drop_vars(BOOKKEEPING.intersection(dataset.data_vars))
    dataset = dataset.drop_vars(
        name
        for name, variable in dataset.variables.items()
        if not set(variable.dims) <= set(rows) or (rows and not variable.dims and name not in dataset.coords)
    )
    if rows:
        table = dataset.drop_dims(set(dataset.sizes) - set(rows)).to_dataframe(dim_order=list(rows)).reset_index()
    else:
        table = pd.DataFrame([{name: variable.values[()] for name, variable in dataset.variables.items()}])
    table.attrs["long_name"] = {
        name: dataset[name].attrs.get("long_name", "") for name in table.columns if name in dataset.variables
    }
    return table


def _natural_rows(dataset: xr.Dataset) -> tuple[Hashable, ...]:
    """Return the dims by which a table has rows if none are asked for: those of measured times, else the commonest."""
    of_answer = _CURVES.get(str(dataset.attrs.get("answer", "")))
    measured = next((name for name in (of_answer, *_TIMES) if name in dataset), None)
    if measured is not None:
        return dataset[measured].dims
    counts = Counter(variable.dims for variable in dataset.data_vars.values() if variable.dims)
    return max(counts, key=counts.__getitem__, default=())


def _checked_rows(per: object, dataset: xr.Dataset) -> tuple[str, ...]:
    """Return `per`, the name of a dimension or a sequence of names, as a tuple.

    TypeError is raised for other types, and ValueError for names that the dataset has not or that occur twice.
    """
    if not isinstance(per, Sequence) or not all(isinstance(name, str) for name in per):
        refuse(f"Argument `per` must be a dimension or a sequence of them, but is {shown(per)}.", error=TypeError)
    names = (per,) if isinstance(per, str) else tuple(per)
    dimensions = ", ".join(map(str, dataset.sizes)) or "of which there are none"
    for name in names:
        require(
            name in dataset.sizes,
            f"Argument `per` must name dimensions of the answer, {dimensions}, but has {shown(name)}.",
        )
    require(len(set(names)) == len(names), f"Argument `per` must name each dimension once, but is {shown(per)}.")
    return names
