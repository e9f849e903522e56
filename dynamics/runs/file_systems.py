"""Whole files where a file system refuses calls that it need not have: locks, modes, flushes, links and renames."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from hermite.renames import is_in_use, rename
from hermite.text.messages import shown, warn

#: Errors of a flush that say that the content is not on the disk; any other one says that the call is refused.
LOST = (errno.EIO, errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
#: Environment variable that tells HDF5 to open files without a lock, and its values that do so.
LOCKING, UNLOCKED = "HDF5_USE_FILE_LOCKING", ("FALSE", "0")

#: Calls that were refused, and of which a warning has told.
_told: set[str] = set()


def lock_error(path: Path) -> OSError | None:
    """Return the error with which HDF5 cannot lock a file for reading, None if it can or does not try.

    It is a BlockingIOError if the file is open for writing elsewhere.
    """
    if os.name != "posix" or os.environ.get(LOCKING) in UNLOCKED:
        return None
    import fcntl

    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error
    return None


def flush(path: Path) -> None:
    """Make sure that the content of a file is on the disk, or warn once that the file system cannot do so.

    Errors by which content was lost, `LOST`, are raised.
    """
    with path.open("r+b") as file:  # Windows flushes files alone that are open for writing
        try:
            os.fsync(file.fileno())
        except OSError as error:
            if error.errno in LOST:
                raise
            tell_refusal(
                "fsync",
                f"The file system of {shown(str(path.parent))} refuses fsync ({cause_of(error)}), so a power failure "
                "may lose what was just written.",
            )


def copy_mode(source: Path, target: Path) -> None:
    """Give a file the mode of another one, if that exists."""
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(source.stat().st_mode)
        if mode != stat.S_IMODE(target.stat().st_mode):
            try:
                target.chmod(mode)
            except OSError as error:
                tell_refusal(
                    "chmod",
                    f"The file system of {shown(str(target.parent))} refuses chmod ({cause_of(error)}), so replaced "
                    "files may get another mode.",
                )


def give_name(temporary: Path, target: Path, *, replaces: bool) -> None:
    """Rename a complete file to its target, or copy it where renaming fails; raise OSError if both fail.

    Where the name is taken and `replaces` is false, FileExistsError is raised. On Windows a file that another program
    has open stays as it is, and OSError is raised: a copy would change what that program reads.
    """
    if not replaces:
        # Unlike a test and a move, a link fails where the name is taken meanwhile. Some file systems have none.
        with suppress(OSError):
            os.link(temporary, target)
            return
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "something else has that name now")
    try:
        rename(temporary, target)
    except OSError as refusal:
        if is_in_use(refusal):
            raise OSError(refusal.errno, "another program has the file open, or it is read-only") from refusal
        _copy(temporary, target, replaces=replaces)
        tell_refusal(
            "rename",
            f"The file system of {shown(str(target.parent))} refuses rename ({cause_of(refusal)}), so files are "
            "copied, and a killed process may leave a part of one.",
        )


def _copy(source: Path, target: Path, *, replaces: bool) -> None:
    """Copy a file to a name, and to the disk; FileExistsError if the name is taken and `replaces` is false."""
    with source.open("rb") as content, target.open("wb" if replaces else "xb") as copy:
        try:
            shutil.copyfileobj(content, copy)
            copy.flush()
        except OSError:
            if not replaces:
                target.unlink()
            raise
    flush(target)


def cause_of(error: Exception) -> str:
    """Return the cause of an error, of one of the operating system in its words."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def tell_refusal(call: str, sentence: str) -> None:
    """Warn that a file system refuses a call, once per call in a process."""
    if call in _told:
        return
    _told.add(call)
    with suppress(RuntimeWarning):  # a filter that makes errors of warnings loses no file
        warn(sentence, category=RuntimeWarning)
