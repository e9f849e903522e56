"""Numba's cache on disk, kept true and readable.

Numba compiles anew when the file of a function changes, and misses changes of the functions that it calls in other
files. So a list of the files that a module imports, at any depth within the three packages, lies beside its machine
code, with their sizes and times; where one of them has changed, the machine code of the module is removed before it is
used. Of a user's own functions nothing is removed unless it cannot be read, and one that calls compiled functions of
other files is kept in memory alone.
"""

from __future__ import annotations

import ast
import functools
import glob
import inspect
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import TypeVar

import numba
from numba.extending import is_jitted

from dynamics.kernels.options import AnyFunction, Untyped
from hermite.renames import rename
from hermite.text.messages import refuse

Result = TypeVar("Result")

PACKAGES = ("hermite", "dynamics", "sgd_check")
#: The folder that the packages are in.
ROOT = Path(__file__).parents[2]

#: Held while a function is made, of this module or of those that use it: one lock, since functions make others.
MAKING = threading.RLock()
#: Lists of sources that have been compared with the files that this process runs.
_checked: set[Path] = set()
#: Why functions are kept in memory, once that has been said.
_told: list[str] = []


#: Whether Numba, as this module is loaded, leaves functions to Python.
_config: Untyped = numba.config  # whose attributes have no types
_INTERPRETED = bool(_config.DISABLE_JIT)


def is_interpreted() -> bool:
    """Return whether ``NUMBA_DISABLE_JIT`` or ``numba.config.DISABLE_JIT`` leaves all functions to Python.

    RuntimeError is raised where that has changed since kernels were loaded: compiled ones cannot call those of Python.
    """
    now = bool(_config.DISABLE_JIT)
    if now != _INTERPRETED:
        refuse(
            "`numba.config.DISABLE_JIT` must be set before dynamics is used and stay as it is, but was "
            f"{_INTERPRETED} at first and is {now}.",
            error=RuntimeError,
        )
    return now


def sources(path: Path) -> list[Path]:
    """Return a source file and those of the packages that it imports, at any depth, but not for type checkers alone."""
    found, waiting = set(), [path]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported_by(path)
    return sorted(found)


@functools.cache
def _imported_by(path: Path) -> list[Path]:
    """Return the source files of the packages that one of them imports."""
    waiting: list[ast.AST] = [ast.parse(path.read_bytes())]
    names = []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)
    places = [ROOT.joinpath(*name.split(".")) for name in names if name.partition(".")[0] in PACKAGES]
    files = [each for place in places for each in (place.with_suffix(".py"), place / "__init__.py")]
    return [each for each in files if each.is_file()]


@functools.cache
def _state(path: str) -> str:
    """Return a line with the path, size and time of a file; of a file that is gone without the latter two."""
    try:
        status = Path(path).stat()
    except OSError:
        return path
    return f"{path}\t{status.st_size}\t{status.st_mtime_ns}"


def _drop_if_stale(directory: Path, source: Path) -> None:
    """Remove machine code of a module from a directory of Numba's where a source has changed, and list the sources."""
    note = directory / f"{source.stem}.sources"
    if note in _checked:
        return
    listed = note.read_text(encoding="utf-8", errors="replace").splitlines() if note.is_file() else []
    if not listed or any(_state(line.partition("\t")[0]) != line for line in listed):
        _clear(directory, f"{source.stem}.")
        temporary = directory / f"{note.name}.{os.getpid()}"
        temporary.write_text("\n".join(_state(str(path)) for path in sources(source)), encoding="utf-8")
        rename(temporary, note)
    _checked.add(note)


def _warn_of_memory(reason: str) -> None:
    """Warn, once per process, that functions are compiled again by the next one."""
    if _told:
        return
    _told.append(reason)
    warnings.warn(
        f"Compiled code is kept in memory alone, so the next process compiles it again: {reason}. Set NUMBA_CACHE_DIR "
        "to a directory that can be written.",
        category=RuntimeWarning,
        stacklevel=4,
    )


class Cached:
    """A compiled function whose machine code is on disk where that can be read and written, and in memory otherwise.

    `decorate` takes the option ``cache``, and returns what `numba.njit` or `numba.cfunc` makes of the Python function
    `source`. Files that Numba cannot read, such as files that a power cut has shortened, are removed and written again.
    """

    def __init__(self, source: AnyFunction, decorate: Callable[..., AnyFunction]) -> None:
        functools.update_wrapper(self, source)
        self.py_func, self._decorate = source, decorate
        self._function: AnyFunction | None = None

    @property
    def function(self) -> AnyFunction:
        """The function as Numba returns it, made at first use."""
        return self._used(lambda function: function)

    def __call__(self, *arguments: object) -> Untyped:
        """Return what the function returns."""
        return self._used(lambda function: function(*arguments))

    def _used(self, use: Callable[[AnyFunction], Result]) -> Result:
        """Return use(function), with the compiled function on disk, or in memory if that fails twice.

        After the first failure the files of the function are removed.
        """
        if self._function is None:
            is_interpreted()
        for removed in (False, True):
            try:
                if self._function is None or removed:
                    with MAKING:
                        if self._function is None or removed:
                            self._function = self._decorated(removed)
                return use(self._function)
            except numba.NumbaError:
                raise
            except Exception as error:
                # Kernels raise nothing, so that Numba could not read or write its files.
                reason = f"{type(error).__name__}: {error}"
        _warn_of_memory(reason)
        self._function = self._decorate(cache=False)
        return use(self._function)

    def _decorated(self, removed: bool) -> AnyFunction:
        """Return the compiled function, kept on disk where possible; with `removed` its files are removed before."""
        is_typed = self.py_func.__code__.co_filename.startswith("<")
        is_ours = self.py_func.__module__.partition(".")[0] in PACKAGES and not is_typed
        try:
            if not is_ours and _calls_other_files(self.py_func):
                return self._decorate(cache=False)
            place: Untyped = numba.njit(cache=True)(self.py_func).stats.cache_path
            directory, source = Path(place), Path(inspect.getfile(self.py_func))
            if is_ours:
                _drop_if_stale(directory, source)
            if removed:
                _clear(directory, f"{source.stem}.{self.py_func.__qualname__}-".replace("<", "").replace(">", ""))
        except (OSError, RuntimeError) as error:  # Numba has no place to write to, as for what is typed in a terminal
            if is_ours:
                _warn_of_memory(str(error))
            return self._decorate(cache=False)
        return self._decorate(cache=True)


def _clear(directory: Path, beginning: str) -> None:
    """Remove the files of machine code in a directory whose names start with `beginning`."""
    for path in directory.glob(f"{glob.escape(beginning)}*.nb[ic]"):
        path.unlink(missing_ok=True)


def _calls_other_files(function: AnyFunction) -> bool:
    """Return whether a function calls compiled functions of other files, whose changes Numba misses, at any depth."""
    file, seen, waiting = inspect.getfile(function), set(), [function]
    while waiting:
        found = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        if inspect.getfile(found) != file:
            return True
        waiting += [each.py_func for each in named_in(found) if is_jitted(each)]
    return False


def named_in(function: AnyFunction) -> list[Untyped]:
    """Return the objects that the names in a function stand for, and those in modules that it names."""
    names = _names(function.__code__)
    own = [function.__globals__[name] for name in names if name in function.__globals__]
    own += [cell.cell_contents for cell in function.__closure__ or ()]
    modules = [each for each in own if isinstance(each, ModuleType)]
    return own + [getattr(module, name, None) for module in modules for name in names]


def _names(code: CodeType) -> set[str]:
    """Return all names in the code of a function and of those inside it."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*map(_names, inner))
