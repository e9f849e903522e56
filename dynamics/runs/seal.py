"""The seal of a netCDF file: a line behind its last byte with the checksum of all bytes before it.

HDF5 ignores what follows its content, so that any program reads a sealed file, and one that changes the file drops the
line. A changed bit anywhere shows: also in attributes, texts and structure, which filters of variables do not cover.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import BinaryIO

_LINE = "\nfeature-emergence checksum crc32 {:08x} of {:016d} bytes\n"
_SEAL = re.compile(rb"\nfeature-emergence checksum crc32 ([0-9a-f]{8}) of ([0-9]{16}) bytes\n")
#: Bytes of the line, and of a part of the content that is read at once.
SEAL_BYTES, _PART_BYTES = len(_LINE.format(0, 0)), 1 << 20


def seal(path: Path) -> None:
    """Append the seal to a file."""
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(0)
        line = _LINE.format(_checksum(file, size), size)
        file.seek(size)
        file.write(line.encode())


def is_changed(path: Path) -> bool:
    """Return whether a file has a seal and other content than was sealed; OSError is raised if it cannot be read."""
    with path.open("rb") as file:
        size = file.seek(0, 2) - SEAL_BYTES
        if size < 0:
            return False
        file.seek(size)
        line = _SEAL.fullmatch(file.read())
        if line is None:
            return False
        file.seek(0)
        return (_checksum(file, size), size) != (int(line[1], 16), int(line[2]))


def _checksum(file: BinaryIO, size: int) -> int:
    """Return the checksum of the next `size` bytes of a file."""
    checksum = 0
    while size > 0 and (part := file.read(min(size, _PART_BYTES))):
        checksum, size = zlib.crc32(part, checksum), size - len(part)
    return checksum
