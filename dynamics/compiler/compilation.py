"""Pieces of source joined into one file named by its content, compiled, and loaded from disk by later runs.

A compiled function that receives another compiled function as an argument never hits Numba's on-disk cache, and one
that calls another by name is compiled anew for each of them.  So a method receives the machine addresses of the
system's functions instead (see `dynamics.compiler.invocation`): a method is compiled once per machine, a system
once per text.  A piece is executed in the middle of a file and therefore must not contain ``from __future__``.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, TypeVar, cast

from dynamics.compiler.interpreter import uncollected
from dynamics.compiler.kernel_cache import cache_directory, leave_aside, write_once
from hermite.text.signals import stop_if_heard

Function = TypeVar("Function", bound="Callable[..., Any]")

_memo: dict[tuple[Any, ...], CompiledModule] = {}
_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of Python source, without ``from __future__`` imports, and where it comes from.

    Examples
    --------
    >>> Piece("generated", "answer = 42").origin
    'generated'
    """

    #: File the text was read from, or a label of generated text.
    origin: str
    text: str


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """An executed namespace and what it cost to obtain it."""

    namespace: ModuleType
    compile_seconds: float
    from_cache: bool
    #: Generated file; None when the compiler is switched off, or there is no directory that can be written.
    path: Path | None
    #: Compiled callback of each exported name, whose ``address`` compiled code can call; the Python function itself
    #: when the compiler is switched off.
    functions: Mapping[str, Any] = field(default_factory=dict)


#: Pieces, and the Numba signatures of the functions that compiled code elsewhere will call by their addresses.
Source: TypeAlias = tuple[Sequence[Piece], Mapping[str, str]]


def read_piece(path: str | Path) -> Piece:
    """Return the text of a Python file as a piece."""
    return Piece(str(path), Path(path).read_text(encoding="utf-8"))


@lru_cache
def kernel_pieces(*modules: str) -> tuple[Piece, ...]:
    """Return the source of modules of kernels, by their dotted names, without importing these modules."""
    found = [(name, find_spec(name)) for name in modules]
    return tuple(read_piece(spec.origin) for _, spec in found if spec is not None and spec.origin is not None)


def compiler_is_off() -> bool:
    """Return whether ``NUMBA_DISABLE_JIT`` leaves all functions to Python."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def kernel(function: Function) -> Function:
    """Compile an inner function, which compiled functions alone can call.

    The wrapper that Python would need is left out, and machine code of its own (see `inner_functions`); calling the
    function from Python crashes. It counts no references to arrays (see `dynamics.compiler.views`) and can therefore
    neither allocate nor return any.
    """
    return cast("Function", _inner(function))


def inlined_kernel(function: Function) -> Function:
    """Compile an inner function into its callers, however long, whose loops can then do several numbers at once."""
    return cast("Function", _inner(function, forceinline=True))


def counting_kernel(function: Function) -> Function:
    """Compile an inner function that counts references to arrays.

    One must that allocates or returns arrays, or calls what Numba writes with arrays of its own: `numpy.dot`,
    `numpy.max`, the copy of one part of an array to another. To a `kernel` it must return none but those of
    `dynamics.compiler.views`: what it allocates would never be freed.
    """
    return cast("Function", _inner(function, counts=True))


def exact_kernel(function: Function) -> Function:
    """Compile an inner function whose sums are neither reordered nor fused, so that it can compute its own rounding."""
    return cast("Function", _inner(function, exact=True))


def entry(signature: str) -> Callable[[Function], Function]:
    """Mark a function as an entry point, which `load` compiles for one Numba signature such as ``"f8(f8[::1])"``.

    It releases the interpreter lock.
    """

    def decorate(function: Function) -> Function:
        from dynamics.compiler.inner_functions import ENTRY

        dispatcher = _jitted(function, nogil=True, no_cfunc_wrapper=True, **ENTRY)
        if not compiler_is_off():
            dispatcher.entry_signature = signature
        return cast("Function", dispatcher)

    return decorate


def _inner(function: Callable[..., Any], *, counts: bool = False, **options: Any) -> Any:
    from dynamics.compiler.inner_functions import INNER

    return _jitted(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=counts, **INNER, **options)


def _jitted(function: Callable[..., Any], *, exact: bool = False, **options: Any) -> Any:
    from numba import njit

    from dynamics.compiler.machine_code import FASTMATH

    return njit(error_model="numpy", fastmath=False if exact else set(FASTMATH), **options)(function)


def load(pieces: Sequence[Piece], exports: Mapping[str, str] | None = None) -> CompiledModule:
    """Execute pieces, in this order, in one namespace; compile the entry points they define and the exported functions.

    `exports` holds the Numba signature of each function that compiled code elsewhere will call by its address. Within
    one process the same arguments return the same object. Raises ValueError if no piece defines an exported function.

    The file name is a digest of the text, the versions of Numba and Python, and the processor, so that a file once
    written is never changed.  With ``NUMBA_DISABLE_JIT=1`` nothing is written and every piece keeps its own file name,
    so that coverage and tracebacks point to the real source.  Without any directory that can be written, functions are
    compiled in memory; the last bits of what they compute may differ.

    Examples
    --------
    >>> text = '''
    ... from dynamics.compiler.compilation import entry
    ... @entry("f8(f8)")
    ... def double(x):
    ...     return 2 * x
    ... '''
    >>> float(load([Piece("example", text)]).namespace.double(21.0))
    42.0
    """
    exports = exports or {}
    _, digest = _content(pieces)
    key = _key(digest, exports)
    with _lock:
        if key not in _memo:
            stop_if_heard()
            make = _interpret if compiler_is_off() else _compile
            _memo[key] = make(pieces, exports, digest)
        return _memo[key]


def _written(directory: Path, pieces: Sequence[Piece]) -> Path:
    """Return the generated file of pieces, written unless it is there."""
    text, digest = _content(pieces)
    return write_once(directory / f"kernels_{digest}.py", text)


def _key(digest: str, exports: Mapping[str, str]) -> tuple[Any, ...]:
    return digest, *exports.items()


def _content(pieces: Sequence[Piece]) -> tuple[str, str]:
    """Return the joined text of pieces and the digest that names its file."""
    return _named(tuple(pieces), "none" if compiler_is_off() else _compiler())


@lru_cache
def _compiler() -> str:
    with uncollected():  # Numba is loaded
        from dynamics.compiler.machine_code import compiler_and_processor

    return compiler_and_processor()


@lru_cache(maxsize=64)
def _named(pieces: tuple[Piece, ...], compiler: str) -> tuple[str, str]:
    # Kept, since each of a thousand small runs asks for it four times.
    text = "\n".join(f"# --- {Path(piece.origin).name}\n{piece.text}" for piece in pieces)
    return text, hashlib.sha256(f"{compiler}\n{text}".encode()).hexdigest()[:32]


def _interpret(pieces: Sequence[Piece], exports: Mapping[str, str], digest: str) -> CompiledModule:
    from dynamics.compiler.machine_code import defined

    namespace = _execute(pieces, digest)
    return CompiledModule(namespace, 0.0, False, None, {name: defined(namespace, name) for name in exports})


def _execute(pieces: Sequence[Piece], digest: str) -> ModuleType:
    # Coverage attributes lines to a package by the name of the module that runs them.
    namespace = ModuleType(f"dynamics.interpreted_{digest}")
    for piece in pieces:
        exec(compile(piece.text, piece.origin, "exec"), namespace.__dict__)  # noqa: S102 (rendered here)
    return namespace


def _compile(pieces: Sequence[Piece], exports: Mapping[str, str], digest: str) -> CompiledModule:
    from dynamics.compiler.machine_code import fill_by_one, functions_of, machine_code

    start = time.perf_counter()
    while (directory := cache_directory()) is not None:
        try:
            path = _written(directory, pieces)
            cached = fill_by_one(path, exports)
            namespace, functions, loaded = functions_of(path, exports)
            return CompiledModule(namespace, time.perf_counter() - start, cached and loaded, path, functions)
        except OSError as error:
            leave_aside(directory, error)
    namespace = _execute(pieces, digest)
    functions, _ = machine_code(namespace, exports, keep=False)
    return CompiledModule(namespace, time.perf_counter() - start, False, None, functions)
