"""Where generated source files live on disk, and how one is written and imported safely.

Knows files alone; neither what they hold nor how it is compiled.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

CACHE_VARIABLE = "FEATURE_EMERGENCE_CACHE"

_fallback: list[Path] = []


def cache_directory() -> Path:
    """Return the directory of generated files, created if absent.

    Returns
    -------
    Path
        ``$FEATURE_EMERGENCE_CACHE`` if set, else the per-user cache directory; a temporary directory, with one
        warning, when neither can be written.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        directory = Path(chosen)
    else:
        from platformdirs import user_cache_dir

        directory = Path(user_cache_dir("feature-emergence"))
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        writable = os.access(directory, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    return directory if writable else _fallback_directory(directory)


def _fallback_directory(refused: Path) -> Path:
    if not _fallback:
        _fallback.append(Path(tempfile.mkdtemp(prefix="feature-emergence-")))
        msg = (
            f"The cache directory {refused} cannot be written, so compiled code is kept in {_fallback[0]} and will be "
            f"compiled again by the next process; set {CACHE_VARIABLE} to a writable directory."
        )
        warnings.warn(msg, RuntimeWarning, stacklevel=5)
    return _fallback[0]


def write_once(path: Path, text: str) -> Path:
    """Write a file named by its content, through a temporary name; leave an intact one as it is."""
    content = text.encode()
    # A file of the same name but other content was cut short or tampered with: it is never executed.
    if path.exists() and path.read_bytes() == content:
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
        If the file cannot be imported.
    """
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
