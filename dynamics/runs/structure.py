"""What a file is made of, looked at before netCDF reads it: links, groups, types, shapes and sizes.

netCDF follows every link, makes an object of every group and trusts every shape, so that a small file can take all
memory, read other files, or end the process. What is refused here was not written by this program.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, NoReturn

from dynamics.runs.whole_files import StorageError
from hermite.text.messages import shown

if TYPE_CHECKING:
    from pathlib import Path

    import h5py

#: A comparison of many widths has some twenty groups, in four levels; an answer has some fifty variables.
MOST_GROUPS, MOST_LEVELS, MOST_MEMBERS = 500, 16, 5000
#: Compressed data become at most about 1030 times as large; what claims more than this was not written by us.
LARGEST_EXPANSION, SMALL_BYTES = 2000, 10_000_000
#: How a heap of lists and texts begins, its own size behind that; how an object in it does: index, then its size.
_HEAP_BEGINS, _HEAP, _OBJECT = b"GCOL\x01\x00\x00\x00", struct.Struct("<8xQ"), struct.Struct("<H6xQ")


def check_structure(path: Path) -> None:
    """Raise StorageError for a file that netCDF must not read, and what h5py raises for one that is damaged."""
    import h5py

    _check_heaps(path)
    with h5py.File(path, "r") as file:
        groups: list[h5py.Group] = [file]
        seen, members, claimed = {_address(file)}, 0, 0
        while groups:
            group = groups.pop()
            members += len(group)
            if len(seen) > MOST_GROUPS or members > MOST_MEMBERS or group.name.count("/") > MOST_LEVELS:
                need = f"have at most {MOST_GROUPS} groups, in {MOST_LEVELS} levels, and {MOST_MEMBERS} members"
                _refuse(path, need, f"{shown(group.name)} exceeds that")
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    _refuse(path, "hold what it names", f"{shown(name)} is a link elsewhere")
                member = group[name]
                if isinstance(member, h5py.Group):
                    if _address(member) in seen:
                        _refuse(path, "name each group once", f"{shown(name)} is one that has another name")
                    seen.add(_address(member))
                    groups.append(member)
                else:
                    claimed += _claimed(path, name, member)
        if claimed > SMALL_BYTES + LARGEST_EXPANSION * path.stat().st_size:
            _refuse(path, "hold what it claims", f"{claimed} bytes are more than {path.stat().st_size} can be")


def _check_heaps(path: Path) -> None:
    """Refuse a file with a heap in which HDF5 would go from an object to the next for ever."""
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(_HEAP_BEGINS)
        while start >= 0:
            at, end = start + _HEAP.size, len(content)
            if at <= end:
                end = min(end, start + _HEAP.unpack_from(content, start)[0])
            while at + _OBJECT.size <= end:
                index, size = _OBJECT.unpack_from(content, at)
                # Of free space the size is that of all of it, of an object that of its content.
                length = size if index == 0 else (_OBJECT.size + size + 7) // 8 * 8
                if length < _OBJECT.size or length >= 2**64:
                    _refuse(path, "have lists that end", "one of them does not")
                at += length
            start = content.find(_HEAP_BEGINS, start + 1)


def _claimed(path: Path, name: str, member: h5py.Dataset | h5py.Datatype) -> int:
    """Return the bytes that reading a variable takes; refuse what is no array of numbers or texts in this file."""
    import h5py

    if not isinstance(member, h5py.Dataset) or not _is_plain(member.id.get_type()):
        _refuse(path, "hold real numbers of at most 64 bits and texts", f"{shown(name)} is something else")
    creation = member.id.get_create_plist()
    if creation.get_external_count() or creation.get_layout() == h5py.h5d.VIRTUAL:
        _refuse(path, "hold its own numbers", f"those of {shown(name)} are in another file")
    for axis, length in enumerate(member.shape):
        for scale in member.dims[axis].values():
            if scale.shape != (length,):
                _refuse(path, "have variables as long as their dims", f"{shown(name)} is not")
    piece = member.chunks or ()  # read whole, however little of it is asked for
    size = 1
    for axis, length in enumerate(member.shape):
        size *= max(length, piece[axis] if piece else 0)
    return int(size * member.dtype.itemsize)


def _is_plain(stored: h5py.h5t.TypeID) -> bool:
    """Return whether netCDF has the type."""
    import h5py

    sizes = {h5py.h5t.INTEGER: (1, 2, 4, 8), h5py.h5t.FLOAT: (4, 8)}
    kind = stored.get_class()
    return bool(kind == h5py.h5t.STRING or stored.get_size() in sizes.get(kind, ()))


def _address(group: h5py.Group) -> int:
    import h5py

    return int(h5py.h5o.get_info(group.id).addr)


def _refuse(path: Path, need: str, found: str) -> NoReturn:
    msg = f"File {str(path)!r} must {need}, as those of this program do, but {found}."
    raise StorageError(msg)
