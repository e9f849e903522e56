"""Decorators for compiled functions, functions that methods receive as arguments, and views of flat arrays.

A method receives the right-hand side of a system as a `callback`, and so is compiled once per machine, not once per
system. Views are parts of flat arrays as arrays. A slice counts a reference to its array, an operation of some twenty
cycles that no other processor may disturb, and steps take parts of small arrays all the time. Views count none, so each
must be used only while the array that it is a part of is kept elsewhere: in compiled code, that a caller passed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic, overload, register_jitable, typeof_impl
from numpy.typing import NDArray

from dynamics.kernels.cache import MAKING, Cached, is_interpreted
from dynamics.kernels.options import BARE, OPTIONS, Function, Untyped
from dynamics.kernels.units import addressed, prepare, unit_of


def kernel(function: Function) -> Function:
    """Compile a function that compiled functions call; a call from Python ends the process."""
    return cast("Function", numba.njit(**OPTIONS, **BARE)(function))


def inlined_kernel(function: Function) -> Function:
    """Compile a function into its callers, however long, so that their loops treat several numbers at once."""
    return cast("Function", numba.njit(forceinline=True, **OPTIONS, **BARE)(function))


def pasted_kernel(function: Function) -> Function:
    """Compile a function as a part of those that call it; Numba compiles other kernels by themselves too."""
    return cast("Function", numba.njit(inline="always", **OPTIONS)(function))


def exact_kernel(function: Function) -> Function:
    """Compile a function whose sums are neither reordered nor fused, so that it can compute its own rounding."""
    return cast("Function", numba.njit(**OPTIONS | BARE | {"fastmath": False})(function))


def entry(function: Function) -> Function:
    """Compile a function that Python calls, at its first call for each combination of types, and keep it on disk."""
    if is_interpreted():
        return function

    def made(cache: bool) -> Untyped:
        """Return the function as Numba compiles it, after all units that it calls."""
        prepare(function)
        return numba.njit(cache=cache, **OPTIONS)(function)

    return cast("Function", Cached(function, made))


class CompiledCallback(types.WrapperAddressProtocol):
    """A kernel that `numba.cfunc` compiled for one signature; compiled functions take it as an argument and call it."""

    def __init__(self, compiled: Untyped, signature: Untyped) -> None:
        self.compiled, self._signature, self.type = compiled, signature, types.FunctionType(signature)

    def __wrapper_address__(self) -> int:
        """Return the address of the machine code, for Numba."""
        return int(self.compiled.address)

    def signature(self) -> Untyped:
        """Return the signature, for Numba."""
        return self._signature


@typeof_impl.register(CompiledCallback)
def _type_of_callback(value: CompiledCallback, _context: Untyped) -> Untyped:
    """Return Numba's type of a callback."""
    return value.type


def callback(function: Callable[..., None], signature: Untyped) -> Untyped:
    """Return a kernel as an argument of entries, compiled once per process or loaded from disk.

    `signature` is such as ``types.void(types.float64, types.float64[::1])``. Returns the function itself where
    ``NUMBA_DISABLE_JIT`` leaves all functions to Python, and else a `CompiledCallback`.
    """
    if is_interpreted():
        return function
    with MAKING:
        return _compiled(function, signature)


@functools.cache
def _compiled(function: Untyped, signature: Untyped) -> CompiledCallback:
    """Return the callback of a kernel for a signature, made once per process."""
    made = unit_of(function)
    return CompiledCallback(addressed(function.py_func, signature) if made is None else made.make(), signature)


Number = TypeVar("Number", bound=np.generic)


@intrinsic
def _pointer(typing_context: Untyped, array: Untyped, address: Untyped) -> Untyped:
    """Return an address as a pointer to numbers of the type of an array."""
    del typing_context, address
    kind: Untyped = types.CPointer(array.dtype)  # type: ignore[no-untyped-call]

    def generate(context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped) -> Untyped:
        return builder.inttoptr(arguments[1], context.get_value_type(signature.return_type))

    return kind(array, types.uintp), generate


def _view(flat: NDArray[Number], start: int, shape: int | tuple[int, ...]) -> NDArray[Number]:
    """Return numbers of a contiguous array from `start` on in a shape; compiled code counts no reference."""
    return flat.reshape(-1)[start : start + int(np.prod(shape))].reshape(shape)


@overload(_view, strict=False, jit_options=cast("Untyped", BARE))
def _compiled_view(flat: Untyped, start: Untyped, shape: Untyped) -> Untyped:
    """Return the function that Numba compiles for `_view`."""
    del start, shape
    size = flat.dtype.bitwidth // 8

    def view(flat: Untyped, start: Untyped, shape: Untyped) -> Untyped:
        address = flat.ctypes.data + size * start
        return carray(_pointer(flat, address), shape)  # type: ignore[call-arg]

    del flat
    return view


# Compiled code calls these, and Python runs them as they are.


@register_jitable(**BARE)
def vector(flat: NDArray[Number], start: int, count: int) -> NDArray[Number]:
    """Return `count` numbers of a contiguous flat array from `start` on."""
    return _view(flat, start, count)


@register_jitable(**BARE)
def row_part(whole: NDArray[Number], row: int, start: int, count: int) -> NDArray[Number]:
    """Return `count` numbers of a row of a contiguous matrix from column `start` on."""
    return _view(whole, row * whole.shape[1] + start, count)


@register_jitable(**BARE)
def matrix(flat: NDArray[Number], start: int, rows: int, columns: int) -> NDArray[Number]:
    """Return rows · columns numbers of a contiguous flat array from `start` on, as a matrix."""
    return _view(flat, start, (rows, columns))


@register_jitable(**BARE)
def cube(flat: NDArray[Number], start: int, layers: int, rows: int, columns: int) -> NDArray[Number]:
    """Return layers · rows · columns numbers of a contiguous flat array from `start` on, as so many matrices."""
    return _view(flat, start, (layers, rows, columns))


@register_jitable(**BARE)
def unowned(array: NDArray[Number]) -> NDArray[Number]:
    """Return a contiguous array as one without an owner, so that slices of it count no references."""
    return _view(array, 0, array.shape)
