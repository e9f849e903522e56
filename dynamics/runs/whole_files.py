"""Files that are written whole or not at all, and never over a file that must stay.

Every file that a run leaves goes through `write_file`, or, where nobody could ask again, through `write_somewhere`.
"""

from __future__ import annotations

import glob
import os
import tempfile
import time as clock
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dynamics.problem.checks import check_switch
from dynamics.threads.stopping import in_worker
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    #: Fills a file of the given name.
    Write = Callable[[Path], object]

#: Ending of the temporary name under which a file is written.
PARTIAL = ".partial"
#: Bytes by which a disk is tested for being full.
PROBE_BYTES = 1 << 20


class StorageError(OSError):
    """A file could not be written or is not one of ours."""


def check_target(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Return the path if it may be written, before any work starts.

    StorageError is raised if the file exists and `overwrite` is false, or its directory does not exist or cannot be
    written.
    """
    check_switch("overwrite", overwrite)
    target = as_path(path)
    try:
        str(target).encode()
    except UnicodeEncodeError:
        msg = f"Argument `path` must be a name in UTF-8, as netCDF asks, but is {shown(str(target))}."
        raise StorageError(msg) from None
    try:
        if os.sep == "/" and "\\" in str(target.absolute()):
            name = shown(str(target))
            msg = f"Argument `path` must not hold a backslash, which netCDF takes for a slash, but is {name}."
            raise StorageError(msg)
        if not target.parent.is_dir():
            msg = f"Argument `path` must lie in an existing directory, but is {shown(str(target))}."
            raise StorageError(msg)
        if _is_taken(target, replaces=overwrite):
            what = "an existing file (allow it with overwrite)" if target.is_file() else "a directory or device"
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


def as_path(path: object) -> Path:
    """Return a name of a file as a path; TypeError is raised for what is no name."""
    if not isinstance(path, (str, os.PathLike)):
        msg = f"Argument `path` must be a path, but is {shown(path)}."
        raise TypeError(msg)
    return Path(path)


def write_file(target: Path, write: Write, *, replaces: bool) -> None:
    """Have `write` fill a temporary file beside the target, flush it to the disk, and give it the target's name.

    A file of that name may go if `replaces`. If it is impossible, StorageError is raised and `target` is as it was.
    """

    def written() -> None:
        temporary = _temporary(target)
        try:
            _fill(temporary, write)
            _place(temporary, target, replaces=replaces)
        finally:
            temporary.unlink(missing_ok=True)

    try:
        # KeyboardInterrupt inside of the libraries could leave one of their locks taken: the next file would hang.
        in_worker(written)
    except OSError as error:
        cause = OSError(*error.args)  # without the temporary name
        msg = f"File {str(target)!r} could not be written: {cause}."
        raise StorageError(msg) from error


def write_somewhere(target: Path, write: Write, *, replaces: bool) -> tuple[Path, str]:
    """Write a file as `write_file` does, or, where that is impossible, under the first free name elsewhere.

    That is one beside the target, in the current directory, or in the one for temporary files: an answer that took
    hours must not be lost because a disk is full, or because something else has taken its name. Return where the file
    is, and one sentence that says why and where if that is not the target, else "". If no place takes it, StorageError
    is raised for the target.
    """
    try:
        write_file(target, write, replaces=replaces)
    except StorageError as error:
        for folder in (str(target.parent), "", None):
            with suppress(OSError):
                stem = str(Path(tempfile.gettempdir() if folder is None else folder) / target.stem)
                other = free_name(stem, target.suffix)
                write_file(other, write, replaces=False)
                return other, f"{error} What was to be in it is in {str(other)!r}."
        raise
    return target, ""


def free_name(stem: str, suffix: str) -> Path:
    """Return `stem + suffix` in the current directory, numbered -2, -3, … if files of that name exist."""
    candidate, number = Path(stem + suffix), 1
    while candidate.exists() or candidate.with_suffix(".png").exists():
        number += 1
        candidate = Path(f"{stem}-{number}{suffix}")
    return candidate


def fingerprint(path: Path) -> tuple[int, ...] | None:
    """Return numbers that tell a file from any other that takes its name later, None if there is no file."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def remove_torn(target: Path, idle: float = 0.0) -> None:
    """Remove temporary files of a target that killed processes have left, if they are unchanged for `idle` seconds."""
    for torn in target.parent.glob(f".{glob.escape(target.name)}.*{PARTIAL}"):
        with suppress(OSError):
            if not idle or clock.time() - torn.stat().st_mtime > idle:
                torn.unlink()


def names_directory(path: object) -> bool:
    """Return whether this is the path of a directory."""
    try:
        return isinstance(path, (str, os.PathLike)) and Path(path).is_dir()
    except OSError:  # a name that is too long
        return False


def _is_taken(target: Path, *, replaces: bool) -> bool:
    """Return whether something that must stay has the name: anything but a file that may be replaced."""
    return os.path.lexists(target) and not (replaces and target.is_file())


def _temporary(target: Path) -> Path:
    """Make an empty file beside the target, under whose name the target is written."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=PARTIAL)
    os.close(handle)
    return Path(name)


def _fill(temporary: Path, write: Write) -> None:
    try:
        write(temporary)
    except (OSError, RuntimeError) as error:
        # netCDF4 reports a full disk as a missing permission or a RuntimeError; a plain write names the real cause.
        with temporary.open("ab") as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
        raise OSError(*error.args) from error
    with temporary.open("rb") as stream:
        os.fsync(stream.fileno())
    temporary.chmod(0o666 & ~_umask())


def _place(temporary: Path, target: Path, *, replaces: bool) -> None:
    """Give a file its name, unless something that must not be replaced has taken the name meanwhile."""
    if not replaces:
        # A link fails where the name is taken: nothing can come between, as between a test and a move. Some file
        # systems have none.
        with suppress(OSError):
            os.link(temporary, target)
            return
    if _is_taken(target, replaces=replaces):
        msg = "something else has that name now"
        raise OSError(msg)
    temporary.replace(target)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
