"""Decorators for compiled functions, and functions that methods receive as arguments.

`kernel` is `numba.njit` with the options of this program, for functions that compiled code calls. `entry` is the same
for functions that Python calls: Numba keeps their machine code on disk (`dynamics.kernels.cache`). `callback` compiles
a kernel for one signature into a value that an entry takes as an argument, such as the right-hand side of a system for
a method: so a method is compiled once per machine, not once per system.

A function may return no array that it makes a view of (`dynamics.kernels.views`) beyond the life of the viewed array.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.extending import typeof_impl

from dynamics.kernels.cache import Cached, is_interpreted

Function = TypeVar("Function", bound=Callable[..., Any])

#: Sums may be reordered and fused; not-a-number and infinity keep their meaning, since steppers test for them.
FASTMATH = frozenset({"reassoc", "contract", "arcp", "nsz"})
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": set(FASTMATH), "nogil": True}

_lock = threading.RLock()


def kernel(function: Function) -> Function:
    """Compile a function that compiled functions call."""
    return cast("Function", numba.njit(**OPTIONS)(function))


def inlined_kernel(function: Function) -> Function:
    """Compile a function into its callers, however long, so that their loops treat several numbers at once."""
    return cast("Function", numba.njit(forceinline=True, **OPTIONS)(function))


def pasted_kernel(function: Function) -> Function:
    """Compile a function that one other calls as a part of it; Numba compiles other kernels by themselves too."""
    return cast("Function", numba.njit(inline="always", **OPTIONS)(function))


def exact_kernel(function: Function) -> Function:
    """Compile a function whose sums are neither reordered nor fused, so that it can compute its own rounding."""
    return cast("Function", numba.njit(**(OPTIONS | {"fastmath": False}))(function))


def entry(function: Function) -> Function:
    """Compile a function that Python calls, at its first call for each combination of types, and keep it on disk."""
    if is_interpreted():
        return function
    return cast("Function", Cached(function, lambda cache: numba.njit(cache=cache, **OPTIONS)(function)))


class Callback(types.WrapperAddressProtocol):
    """A kernel compiled for one signature, which compiled functions take as an argument and call.

    Attributes
    ----------
    compiled : object
        What `numba.cfunc` returns.
    """

    def __init__(self, compiled: Any, signature: Any) -> None:
        self.compiled = compiled
        self._address, self._signature = compiled.address, signature
        self.type = types.FunctionType(signature)

    def __wrapper_address__(self) -> int:
        """Return the address of the machine code, for Numba."""
        return int(self._address)

    def signature(self) -> Any:
        """Return the signature, for Numba."""
        return self._signature


@typeof_impl.register(Callback)
def _type_of_callback(value: Callback, _context: Any) -> Any:
    return value.type


def callback(function: Callable[..., None], signature: Any) -> Any:
    """Return a kernel as an argument of entries, compiled once per process or loaded from disk.

    Parameters
    ----------
    function : callable
        A `kernel`, or any function that `numba.njit` returned.
    signature : numba signature
        Such as ``types.void(types.float64, types.float64[::1])``.

    Returns
    -------
    Callback
        The function itself where ``NUMBA_DISABLE_JIT`` leaves all functions to Python.
    """
    if is_interpreted():
        return function
    with _lock:
        return _compiled(function, signature)


@functools.cache
def _compiled(function: Any, signature: Any) -> Callback:
    options = {name: value for name, value in OPTIONS.items() if name != "nogil"}
    source = function.py_func
    made = Cached(source, lambda cache: numba.cfunc(signature, cache=cache, **options)(source))
    return Callback(made.function, signature)
