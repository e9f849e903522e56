"""The directory of generated source files and of what was compiled from them, and how both are kept safe.

What lies in the cache is executed. So a file is used only if nobody else can have written it, and if it is, byte for
byte, what this program wrote.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import importlib.util
import os
import shutil
import stat
import sys
import tempfile
import warnings
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import NoReturn

CACHE_VARIABLE = "FEATURE_EMERGENCE_CACHE"
#: Where Numba keeps what it compiles, beside the source.
COMPILED = "__pycache__"

#: User who may write everything anyway.
_ROOT = 0
#: Directories that this process does not use, with what it uses instead: None if it keeps compiled code in memory.
_fallback: dict[Path, Path | None] = {}


def cache_directory() -> Path | None:
    """Return the directory of generated files, created if absent: ``$FEATURE_EMERGENCE_CACHE`` or the user's cache.

    What lies there is executed: a directory that others own or can write to is refused, and a temporary one taken
    instead, with one warning. None if that cannot be written either.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if not chosen:
        from platformdirs import user_cache_dir

        chosen = user_cache_dir("feature-emergence")
    # A link is followed once, here, so that what is examined is what is used.
    directory: Path | None = Path(os.path.realpath(chosen))
    while directory is not None:
        if directory not in _fallback:
            reason = _refusal(directory)
            if reason is None:
                return directory
            leave_aside(directory, reason)
        directory = _fallback[directory]
    return None


def leave_aside(directory: Path, reason: str | OSError) -> None:
    """Keep compiled code elsewhere than in this directory from now on, in this process, and warn of it."""
    instead = None
    if directory not in _fallback.values():
        with suppress(OSError):
            instead = Path(tempfile.mkdtemp(prefix="feature-emergence-"))
            atexit.register(shutil.rmtree, instead, ignore_errors=True)
    _fallback[directory] = instead
    if isinstance(reason, OSError):
        reason = f"cannot be used ({reason.strerror or reason})"
    msg = (
        f"The cache directory {directory} {reason}, so compiled code is kept in {instead or 'memory alone'} and will "
        f"be compiled again by the next process; set {CACHE_VARIABLE} to a directory that you alone can write to."
    )
    warnings.warn(msg, RuntimeWarning, stacklevel=5)


def _refusal(directory: Path) -> str | None:
    """Return why a directory, made if absent, cannot hold code that is executed, or None."""
    try:
        for folder in (directory, directory / COMPILED):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            reason = _distrust(folder)
            if reason is not None:
                return reason if folder == directory else f"has a folder {COMPILED} that {reason}"
            if not os.access(folder, os.W_OK | os.X_OK):
                return "cannot be written"
        for above in directory.parents:
            # Another user who can rename the directory can put another in its place; where the sticky bit is set, as in
            # /tmp, only its owner can. Groups may write: many systems give each user one of their own.
            if hasattr(os, "getuid") and above.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
                return f"lies in {above}, which everybody can write to"
    except OSError:
        return "cannot be written"
    return None


def _distrust(path: Path) -> str | None:
    """Return why a file or directory may hold code that others wrote, or None."""
    if not hasattr(os, "getuid"):
        return None
    status = path.lstat()
    if status.st_uid not in (os.getuid(), _ROOT):
        return "belongs to another user"
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return "is neither a file nor a directory"
    return "can be written by others" if status.st_mode & 0o022 else None


def _read(path: Path) -> bytes | None:
    """Return what a file holds, or None if it is absent or no file, cannot be read, or others may have written it."""
    with suppress(OSError):
        if _distrust(path) is None:
            return path.read_bytes()
    return None


def _replace(path: Path, content: bytes) -> None:
    """Write a file through a temporary name, so that it is whole or absent."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".partial")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_once(path: Path, text: str) -> Path:
    """Write a file named by its content; leave an intact one as it is."""
    content = text.encode()
    # A file of the same name but other content was cut short or tampered with: it is never executed.
    if _read(path) != content:
        _replace(path, content)
    return path


def compiled_files(path: Path, name: str = "*") -> list[Path]:
    """Return the files with what was compiled from a generated file, or from its function of some name."""
    return sorted((path.parent / COMPILED).glob(f"{path.stem}.{name}.nb[ic]"))


def _sums(path: Path) -> bytes | None:
    """Return the checksums of what was compiled from a file, as `sha256sum` writes them; None if one is distrusted."""
    lines = []
    for entry in compiled_files(path):
        content = _read(entry)
        if content is None:
            return None
        lines.append(f"{hashlib.sha256(content).hexdigest()}  {COMPILED}/{entry.name}\n")
    return "".join(lines).encode()


def seal(path: Path) -> None:
    """Note the checksums of what has just been compiled from a generated file, once it is complete."""
    for entry in compiled_files(path):
        entry.chmod(0o600)
    sums = _sums(path)
    if sums is not None:
        _replace(path.with_suffix(".sha256"), sums)


def is_sealed(path: Path) -> bool:
    """Return whether what was compiled from a generated file is on disk, and as it was written.

    What a power cut or a full disk has damaged is found here: to unpickle it and to run its code could do anything.
    """
    sums = _sums(path)
    return sums is not None and _read(path.with_suffix(".sha256")) == sums


def discard_compiled(path: Path) -> None:
    """Remove what was compiled from a generated file, and what was left behind when that was interrupted."""
    for entry in (path.parent / COMPILED).glob(f"{path.stem}.*"):
        entry.unlink(missing_ok=True)


class _SourceAlone(SourceFileLoader):
    """Run a source, never bytecode stored for it, which may be damaged: to compile it again takes milliseconds."""

    def path_stats(self, path: str) -> NoReturn:
        """Raise OSError, which means that there is no bytecode."""
        raise OSError(errno.ENOTSUP, "no bytecode is stored", path)


def import_file(path: Path, name: str) -> ModuleType:
    """Return the module of a generated file, imported once per process; raise ImportError if others can write it."""
    reason = _distrust(path)
    if reason is not None:
        msg = f"The generated file {path} {reason}, so it is not imported."
        raise ImportError(msg)
    loader = _SourceAlone(name, str(path))
    specification = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert specification is not None  # as it would be without a loader
    module = importlib.util.module_from_spec(specification)
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    # Numba looks functions up by module name when it restores them.
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
