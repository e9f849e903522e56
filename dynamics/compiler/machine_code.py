"""Which functions Numba compiles, with which options, and how they come from the cache; loads Numba."""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Self, cast

import numba
from numba.core.caching import CacheImpl, FunctionCache, InTreeCacheLocator
from numba.core.ccallback import CFunc
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.core.sigutils import normalize_signature

from dynamics.compiler.compiling_processes import compiled_by_one, signs_of_life, tell_once
from dynamics.compiler.inner_functions import ENTRY
from dynamics.compiler.interpreter import uncollected, with_room
from dynamics.compiler.kernel_cache import compiled_files, discard_compiled, import_file, is_sealed, seal

#: Part of every file name: raise it when the options below change, because Numba's cache does not see them.
OPTIONS_VERSION = 6
#: Sums may be reordered and fused; not-a-number and infinity keep their meaning, since steppers test for them.
FASTMATH = frozenset({"reassoc", "contract", "arcp", "nsz"})

_MODULE_PREFIX = "_feature_emergence_"
#: What Numba says of a function that must count references to arrays, but does not.
_SIGNS_OF_OWNERS = ("NRT required", "Only accept returning of array")


class _BesideTheSource(InTreeCacheLocator):
    """Numba's cache for generated files: beside their source, whatever the environment says."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Self | None:
        return cls(py_func, py_file) if py_func.__module__.startswith(_MODULE_PREFIX) else None

    def ensure_cache_path(self) -> None:
        """Do nothing: the directory is there, and if it has vanished, writing a file shows it."""

    def get_source_stamp(self) -> str:
        """Return the name of a generated file, which is a digest of its content."""
        return Path(self._py_file).name


CacheImpl._locator_classes.insert(0, _BesideTheSource)


class _StoredCode(FunctionCache):
    """Numba's cache, which reads machine code without loading all that Numba compiles with, a quarter of a second."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the stored code of a signature, None if there is none; what it calls at run time is made ready."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


@functools.cache
def compiler_and_processor() -> str:
    """Return what machine code depends on beside its source: options, Numba, Python and the processor."""
    processor = cpu_target.target_context.codegen().magic_tuple()
    return f"{OPTIONS_VERSION} {numba.__version__} {platform.python_version()} {processor}"


def load_compiler() -> None:
    """Let Numba import and register what it compiles with, a tenth of a second that copies of the process share."""
    with uncollected(), _without_loading_blas():
        cpu_target.typing_context.refresh()
        cpu_target.target_context.refresh()


@contextmanager
def _without_loading_blas() -> Iterator[None]:
    """Let Numba believe in the body that SciPy's BLAS is loaded.

    It loads it to see whether it is there, with all of `scipy.linalg`, which takes as long as everything else that it
    loads. Compiled code looks for the functions of BLAS when it first calls one.
    """
    name = "scipy.linalg.cython_blas"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        del sys.modules[name]


def is_cached(path: Path, exports: Mapping[str, str]) -> bool:
    """Return whether the cache holds the entry points and the exports of a generated file, undamaged."""
    return is_sealed(path) and all(compiled_files(path, f"{name}-*") for name in exports)


def fill_by_one(path: Path, exports: Mapping[str, str]) -> bool:
    """Let one process compile what the cache lacks of a generated file; return whether it lacked nothing."""
    if is_cached(path, exports):
        return True
    with compiled_by_one(path):
        if is_cached(path, exports):
            return True
        load_compiler()
        _fill(path, exports)
    return False


def _fill(path: Path, exports: Mapping[str, str]) -> None:
    tell_once()
    with signs_of_life(path):
        if not is_sealed(path):
            discard_compiled(path)
        with_room(lambda: functions_of(path, exports))
        seal(path)


def functions_of(path: Path, exports: Mapping[str, str]) -> tuple[ModuleType, dict[str, Any], bool]:
    """Import a generated file; return it, and its entry points and exports as `machine_code` does."""
    namespace = import_file(path, _MODULE_PREFIX + path.stem.removeprefix("kernels_"))
    return namespace, *machine_code(namespace, exports, keep=True)


def machine_code(namespace: ModuleType, exports: Mapping[str, str], *, keep: bool) -> tuple[dict[str, Any], bool]:
    """Compile entry points and exports of a namespace, or load them; return the exports, and if all were loaded.

    With `keep` they are loaded from the cache if it has them, and kept there if not.
    """
    functions: dict[str, Any] = {}
    try:
        hits = _compile_entries(namespace, keep=keep)
        for name, signature in exports.items():
            functions[name] = _callback(defined(namespace, name), signature, keep=keep)
            hits.append(bool(functions[name].cache_hits))
    except NumbaError as error:
        if any(sign in str(error) for sign in _SIGNS_OF_OWNERS):
            error.add_note(
                "A function that allocates arrays, returns them or calls `numpy.dot` must be a `counting_kernel`."
            )
        raise
    return functions, all(hits)


def _callback(kernel: Any, signature: str, *, keep: bool) -> Any:
    """Compile or load a function that compiled code calls by its address."""
    types = normalize_signature(signature)  # type: ignore[no-untyped-call]
    function = getattr(kernel, "py_func", kernel)
    counts = getattr(kernel, "targetoptions", {}).get("_nrt", True)
    options = {"error_model": "numpy", "fastmath": set(FASTMATH), "_nrt": counts}
    callback: Any = CFunc(function, types, locals={}, options=options, **ENTRY)
    if keep:
        callback._cache = _StoredCode(function)  # type: ignore[no-untyped-call]
    callback.compile()
    return callback


def _compile_entries(namespace: ModuleType, *, keep: bool) -> list[bool]:
    """Compile or load the entry points of a namespace; return which came from the cache."""
    hits = []
    for value in list(vars(namespace).values()):
        signature = getattr(value, "entry_signature", None)
        if signature is not None and getattr(value, "__module__", None) == namespace.__name__:
            if not value.signatures:
                if keep:
                    value._cache = _StoredCode(value.py_func)  # type: ignore[no-untyped-call]
                value.compile(signature)
                value.disable_compile()
            hits.append(bool(value.stats.cache_hits))
    return hits


def defined(namespace: ModuleType, name: str) -> Callable[..., Any]:
    """Return an exported function; raise ValueError if there is none of that name."""
    if not hasattr(namespace, name):
        msg = f"Argument `pieces` must define the function `{name}`, but has none of that name."
        raise ValueError(msg)
    return cast("Callable[..., Any]", getattr(namespace, name))
