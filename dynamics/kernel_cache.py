"""Where generated source files live on disk, and how one is written and imported safely.

Knows files alone; neither what they hold nor how it is compiled.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

CACHE_VARIABLE = "FEATURE_EMERGENCE_CACHE"

#: Who may write everything anyway.
_ROOT = 0
#: Seconds after which a copy of the process is taken to hang; the slowest file takes ten.
PATIENCE = 300.0
_fallback: list[Path] = []


def cache_directory() -> Path:
    """Return the directory of generated files, created if absent, for this user alone.

    What lies there is executed: a directory that others own or can write to is refused.

    Returns
    -------
    Path
        ``$FEATURE_EMERGENCE_CACHE`` if set, else the per-user cache directory; a temporary directory, with one
        warning, when neither can be written or trusted.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        directory = Path(chosen)
    else:
        from platformdirs import user_cache_dir

        directory = Path(user_cache_dir("feature-emergence"))
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = _distrust(directory)
        if reason is None and not os.access(directory, os.W_OK | os.X_OK):
            reason = "cannot be written"
    except OSError:
        reason = "cannot be written"
    return directory if reason is None else _fallback_directory(directory, reason)


def _distrust(path: Path) -> str | None:
    """Return why a file or directory may hold code that others wrote, or None."""
    if not hasattr(os, "getuid"):
        return None
    status = path.stat()
    if status.st_uid not in (os.getuid(), _ROOT):
        return "belongs to another user"
    return "can be written by others" if status.st_mode & 0o022 else None


def _fallback_directory(refused: Path, reason: str) -> Path:
    if not _fallback:
        _fallback.append(Path(tempfile.mkdtemp(prefix="feature-emergence-")))
        msg = (
            f"The cache directory {refused} {reason}, so compiled code is kept in {_fallback[0]} and will be "
            f"compiled again by the next process; set {CACHE_VARIABLE} to a directory that you alone can write to."
        )
        warnings.warn(msg, RuntimeWarning, stacklevel=5)
    return _fallback[0]


def write_once(path: Path, text: str) -> Path:
    """Write a file named by its content, through a temporary name; leave an intact one as it is."""
    content = text.encode()
    # A file of the same name but other content was cut short or tampered with: it is never executed.
    if path.exists() and _distrust(path) is None and path.read_bytes() == content:
        return path
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".partial")
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    Path(temporary).replace(path)
    return path


def import_file(path: Path, name: str) -> ModuleType:
    """Return the module of a generated file, imported once per process.

    Raises
    ------
    ImportError
        If the file cannot be imported, or others can write it.
    """
    reason = _distrust(path)
    if reason is not None:
        msg = f"The generated file {path} {reason}, so it is not imported."
        raise ImportError(msg)
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        msg = f"The generated file {path} cannot be imported."
        raise ImportError(msg)
    module = importlib.util.module_from_spec(specification)
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    # Numba looks functions up by module name when it restores them.
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def in_another_process(work: Callable[[], object]) -> Iterator[None]:
    """Do work that leaves its results in files in a copy of this process, beside the body, and wait for its end.

    On Linux; elsewhere, and if it fails, nothing is done. A copy starts in milliseconds, since everything is imported
    already. It has none of the other threads: should it wait for one of them, it is ended.
    """
    if sys.platform != "linux":
        yield
        return
    with warnings.catch_warnings():
        # Python warns of copies of processes with threads, which the work above does not need.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    try:
        yield
        patience = time.monotonic() + PATIENCE
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > patience:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.005)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


@contextmanager
def compiled_by_one(path: Path) -> Iterator[None]:
    """Wait until no other process compiles a generated file; what it compiled is then in the cache.

    Processes that start together would each compile it otherwise, and take twice as long.
    """
    try:
        from fcntl import LOCK_EX, flock
    except ImportError:  # no such locks on Windows
        yield
        return
    with path.with_suffix(".lock").open("w", encoding="ascii") as lock:
        flock(lock, LOCK_EX)
        yield
