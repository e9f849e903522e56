"""Turn source pieces into compiled functions that later runs load from disk.

Responsible for: joining pieces of source into one file named by its content, importing it, and compiling its entry
points and its callbacks through Numba's on-disk cache.  Must not know what the pieces compute.

A compiled function that receives another compiled function as an argument never hits Numba's on-disk cache, and one
that calls another by name is compiled anew for each of them.  So a method receives the machine addresses of the
system's functions instead (see `dynamics.integrators.invocation`): a method is compiled once per machine, a system
once per text.  A piece is executed in the middle of a file and therefore must not contain ``from __future__``.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dynamics.kernel_cache import cache_directory, compiled_by_one, import_file, in_another_process, write_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = [
    "CompiledModule",
    "Piece",
    "compiler_is_off",
    "compiling_beside",
    "entry",
    "kernel",
    "load",
    "read_piece",
]

Function = TypeVar("Function", bound="Callable[..., Any]")

# Part of every file name: raise it when the options below change, because Numba's cache does not see them.
OPTIONS_VERSION = 2
# Sums may be reordered and fused; not-a-number and infinity keep their meaning, since steppers test for them.
FASTMATH = frozenset({"reassoc", "contract", "arcp", "nsz"})

_memo: dict[str, CompiledModule] = {}
_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class Piece:
    """Hold one piece of source text.

    Parameters
    ----------
    origin : str
        File the text was read from, or a label for generated text.
    text : str
        Python source, without ``from __future__`` imports.

    Examples
    --------
    >>> Piece("generated", "answer = 42").origin
    'generated'
    """

    origin: str
    text: str


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """Hold an executed namespace with what it cost to obtain it.

    Parameters
    ----------
    namespace : module
        Module in which all pieces were executed.
    compile_seconds : float
        Wall-clock seconds spent importing the file and compiling or loading its entry points.
    from_cache : bool
        Whether every entry point came from Numba's on-disk cache.
    path : Path or None
        Generated file; None when the compiler is switched off.
    functions : mapping
        Compiled callback of each exported name, whose ``address`` compiled code can call; the Python function itself
        when the compiler is switched off.
    """

    namespace: ModuleType
    compile_seconds: float
    from_cache: bool
    path: Path | None
    functions: Mapping[str, Any] = field(default_factory=dict)


def read_piece(path: str | Path) -> Piece:
    """Read a source file as a piece.

    Parameters
    ----------
    path : str or Path
        Python file.

    Returns
    -------
    Piece
        Its text, with the file as origin.
    """
    return Piece(str(path), Path(path).read_text(encoding="utf-8"))


def compiler_is_off() -> bool:
    """Return whether ``NUMBA_DISABLE_JIT`` leaves all functions to Python.

    Returns
    -------
    bool
        True if nothing is compiled.
    """
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def kernel(function: Function) -> Function:
    """Compile an inner function, callable from other compiled functions only.

    The wrapper that Python would need is left out, which saves a sixth of the compile time; calling the function
    from Python crashes.

    Parameters
    ----------
    function : callable
        Function of numbers and arrays.

    Returns
    -------
    callable
        Compiled function, with the declared type of `function`.
    """
    from numba import njit

    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast("Function", njit(error_model="numpy", fastmath=set(FASTMATH), **options)(function))


def entry(signature: str) -> Callable[[Function], Function]:
    """Mark a function as an entry point, compiled by `load` for exactly one signature.

    Parameters
    ----------
    signature : str
        Numba signature, for example ``"f8(f8[::1])"``.

    Returns
    -------
    callable
        Decorator.  The decorated function releases the interpreter lock and is cached on disk.
    """

    def decorate(function: Function) -> Function:
        from numba import njit

        options: dict[str, Any] = {"no_cfunc_wrapper": True}
        dispatcher = njit(cache=True, nogil=True, error_model="numpy", fastmath=set(FASTMATH), **options)(function)
        if not compiler_is_off():
            dispatcher.entry_signature = signature
        return cast("Function", dispatcher)

    return decorate


def load(pieces: Sequence[Piece], exports: Mapping[str, str] | None = None) -> CompiledModule:
    """Execute pieces in one namespace; compile the entry points they define and the exported functions.

    Parameters
    ----------
    pieces : sequence of Piece
        Source pieces in order of execution; later pieces may use the names of earlier ones.
    exports : mapping of str to str, optional
        Numba signature of each function that compiled code elsewhere will call by its address.

    Returns
    -------
    CompiledModule
        The same object for the same arguments within one process.

    Raises
    ------
    ValueError
        If the pieces do not define an exported function.

    Notes
    -----
    The file name is a digest of the text and of the versions of Numba and Python, so that a file once written is
    never changed.  With ``NUMBA_DISABLE_JIT=1`` nothing is written and every piece keeps its own file name, so that
    coverage and tracebacks point to the real source.

    Examples
    --------
    >>> text = '''
    ... from dynamics.compilation import entry
    ... @entry("f8(f8)")
    ... def double(x):
    ...     return 2 * x
    ... '''
    >>> float(load([Piece("example", text)]).namespace.double(21.0))
    42.0
    """
    exports = exports or {}
    text, digest = _content(pieces)
    key = _key(digest, exports)
    with _lock:
        if key not in _memo:
            make = _interpret if compiler_is_off() else _compile
            _memo[key] = make(pieces, exports, text, digest)
        return _memo[key]


@contextmanager
def compiling_beside(pieces: Sequence[Piece]) -> Iterator[None]:
    """Compile pieces without exports in a copy of this process while the body runs, unless the cache has them already.

    Numba compiles one function at a time in a process, so the first run of a program uses one core; a second process
    that fills the same cache uses another. Elsewhere than on Linux, or if it fails, `load` compiles as usual.

    Parameters
    ----------
    pieces : sequence of Piece
        What `load(pieces)` will be asked for after the body.
    """
    text, digest = _content(pieces)
    with ExitStack() as beside:
        # No other thread compiles while the process is copied, so that the copy finds no lock taken.
        with _lock:
            if not compiler_is_off() and _key(digest, {}) not in _memo:
                path = write_once(cache_directory() / f"kernels_{digest}.py", text)
                if not _is_cached(path, text, {}):
                    _load_compiler()
                    beside.enter_context(in_another_process(lambda: _fill_cache(path, digest)))
        yield


def _fill_cache(path: Path, digest: str) -> None:
    with compiled_by_one(path):
        _functions_of(path, digest, {})


def _key(digest: str, exports: Mapping[str, str]) -> str:
    return f"{digest} {sorted(exports.items())}"


def _content(pieces: Sequence[Piece]) -> tuple[str, str]:
    """Return the joined text of pieces and the digest that names its file, without loading the compiler."""
    text = "\n".join(f"# --- {Path(piece.origin).name}\n{piece.text}" for piece in pieces)
    versions = f"{OPTIONS_VERSION} {_numba_version()} {platform.python_version()} {compiler_is_off()}"
    return text, hashlib.sha256(f"{versions}\n{text}".encode()).hexdigest()[:32]


@functools.cache
def _numba_version() -> str:
    """Return the version of Numba, not importing it for that: finding it takes half a millisecond."""
    return metadata.version("numba")


def _interpret(pieces: Sequence[Piece], exports: Mapping[str, str], text: str, digest: str) -> CompiledModule:
    del text
    # Coverage attributes lines to a package by the name of the module that runs them.
    namespace = ModuleType(f"dynamics.interpreted_{digest}")
    for piece in pieces:
        exec(compile(piece.text, piece.origin, "exec"), namespace.__dict__)  # noqa: S102 (rendered here)
    return CompiledModule(namespace, 0.0, False, None, {name: _defined(namespace, name) for name in exports})


def _compile(pieces: Sequence[Piece], exports: Mapping[str, str], text: str, digest: str) -> CompiledModule:
    del pieces
    path = write_once(cache_directory() / f"kernels_{digest}.py", text)
    start = time.perf_counter()
    with compiled_by_one(path):
        cached = _is_cached(path, text, exports)
        if not cached:
            _load_compiler()
            # Code that this process has just compiled and the same code read from the cache call different copies of
            # inner functions, which differ in the order of sums. All processes are to compute the same bits.
            with in_another_process(lambda: _functions_of(path, digest, exports)):
                pass
        namespace, functions, hits = _functions_of(path, digest, exports)
    return CompiledModule(namespace, time.perf_counter() - start, cached and all(hits), path, functions)


def _is_cached(path: Path, text: str, exports: Mapping[str, str]) -> bool:
    wanted = text.count("\n@entry(") + len(exports)
    return len(list((path.parent / "__pycache__").glob(f"{path.stem}.*.nbi"))) >= wanted


def _load_compiler() -> None:
    """Let Numba import and register what it compiles with, a third of a second that copies of the process share."""
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def _functions_of(path: Path, digest: str, exports: Mapping[str, str]) -> tuple[ModuleType, dict[str, Any], list[bool]]:
    """Import a generated file, compile its entry points and exports; return these, and which came from the cache."""
    from numba import cfunc

    namespace = import_file(path, f"_feature_emergence_{digest}")
    functions, hits = {}, _compile_entries(namespace)
    for name, signature in exports.items():
        function = _defined(namespace, name)
        decorate = cfunc(signature, cache=True, error_model="numpy", fastmath=set(FASTMATH))
        functions[name] = decorate(getattr(function, "py_func", function))
        hits.append(bool(functions[name].cache_hits))
    return namespace, functions, hits


def _compile_entries(namespace: ModuleType) -> list[bool]:
    """Compile or load the entry points of a namespace; return which came from the cache."""
    hits = []
    for value in list(vars(namespace).values()):
        signature = getattr(value, "entry_signature", None)
        if signature is not None and getattr(value, "__module__", None) == namespace.__name__:
            if not value.signatures:
                value.compile(signature)
                value.disable_compile()
            hits.append(bool(value.stats.cache_hits))
    return hits


def _defined(namespace: ModuleType, name: str) -> Callable[..., Any]:
    if not hasattr(namespace, name):
        msg = f"Argument `pieces` must define the function `{name}`, but has none of that name."
        raise ValueError(msg)
    return cast("Callable[..., Any]", getattr(namespace, name))
