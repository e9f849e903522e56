"""Parts of flat arrays as arrays, without copies.

A slice counts a reference to its array, an operation of some twenty cycles that no other processor may disturb, and
steps take parts of small arrays all the time. These views count none, so each must be used only while the array that
it is a part of is kept elsewhere: in compiled code, that a caller passed.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

# Numba publishes no types.
Untyped = Any
Number = TypeVar("Number", bound=np.generic)


@intrinsic
def _pointer(typing_context: Untyped, array: Untyped, address: Untyped) -> Untyped:
    """Return an address as a pointer to numbers of the type of an array."""
    del typing_context, address
    kind: Untyped = types.CPointer(array.dtype)  # type: ignore[no-untyped-call]

    def generate(context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped) -> Untyped:
        return builder.inttoptr(arguments[1], context.get_value_type(signature.return_type))

    return kind(array, types.uintp), generate


def vector(flat: NDArray[Number], start: int, count: int) -> NDArray[Number]:
    """Return `count` numbers of a contiguous flat array from `start` on."""
    return flat[start : start + count]


def row_part(whole: NDArray[Number], row: int, start: int, count: int) -> NDArray[Number]:
    """Return `count` numbers of a row of a contiguous matrix from column `start` on."""
    return whole[row, start : start + count]


def matrix(flat: NDArray[Number], start: int, rows: int, columns: int) -> NDArray[Number]:
    """Return rows · columns numbers of a contiguous flat array from `start` on, as a matrix."""
    return flat[start : start + rows * columns].reshape(rows, columns)


def cube(flat: NDArray[Number], start: int, layers: int, rows: int, columns: int) -> NDArray[Number]:
    """Return layers · rows · columns numbers of a contiguous flat array from `start` on, as so many matrices."""
    return flat[start : start + layers * rows * columns].reshape(layers, rows, columns)


def unowned(array: NDArray[Number]) -> NDArray[Number]:
    """Return a contiguous array as one without an owner, so that slices of it count no references."""
    return array


def _view(flat: Untyped, start: Untyped, shape: Untyped) -> Untyped:
    """Stand for the view of a flat array that compiled code makes."""
    raise NotImplementedError


@overload(_view, strict=False)
def _compiled_view(flat: Untyped, start: Untyped, shape: Untyped) -> Untyped:
    del start, shape
    size = flat.dtype.bitwidth // 8

    def view(flat: Untyped, start: Untyped, shape: Untyped) -> Untyped:
        address = flat.ctypes.data + size * start
        return carray(_pointer(flat, address), shape)  # type: ignore[call-arg]

    del flat
    return view


@overload(unowned, strict=False)
def _compiled_unowned(array: Untyped) -> Untyped:
    del array
    return lambda array: _view(array, 0, array.shape)


@overload(vector, strict=False)
def _compiled_vector(flat: Untyped, start: Untyped, count: Untyped) -> Untyped:
    del flat, start, count

    def view(flat: Untyped, start: Untyped, count: Untyped) -> Untyped:
        return _view(flat, start, count)

    return view


@overload(row_part, strict=False)
def _compiled_row_part(whole: Untyped, row: Untyped, start: Untyped, count: Untyped) -> Untyped:
    del whole, row, start, count
    return lambda whole, row, start, count: _view(whole, row * whole.shape[1] + start, count)


@overload(matrix, strict=False)
def _compiled_matrix(flat: Untyped, start: Untyped, rows: Untyped, columns: Untyped) -> Untyped:
    del flat, start, rows, columns
    return lambda flat, start, rows, columns: _view(flat, start, (rows, columns))


@overload(cube, strict=False)
def _compiled_cube(flat: Untyped, start: Untyped, layers: Untyped, rows: Untyped, columns: Untyped) -> Untyped:
    del flat, start, layers, rows, columns
    return lambda flat, start, layers, rows, columns: _view(flat, start, (layers, rows, columns))
