"""Parts of flat arrays, without an owner: each lives as long as the array that a kernel was given.

Compiled code counts the references to an array, by an operation of twenty cycles that no other processor may disturb,
and steps make parts of arrays all the time: at m = P = 8 counting took half of the compiled time. So kernels do not
count (see `dynamics.compiler.compilation.kernel`), and one may return these parts to another, but no array that has an
owner. They are also compiled in half the time of a slice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import NDArray

from dynamics.compiler.compilation import compiler_is_off

# Numba publishes no types.
Untyped = Any
Number = TypeVar("Number", bound=np.generic)


def _part(context: Untyped, builder: Untyped, kind: Untyped, whole: tuple[Untyped, Untyped], place: Untyped) -> Untyped:
    """Lower the part of a flat array of a given type whose first number, and shape, is `place`."""
    source = make_array(whole[0])(context, builder, whole[1])  # type: ignore[no-untyped-call]
    part = make_array(kind)(context, builder)  # type: ignore[no-untyped-call]
    first, *shape = place
    size = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
    strides = [size]
    for count in shape[:0:-1]:
        strides.insert(0, builder.mul(count, strides[0]))
    data = builder.gep(source.data, [first])
    populate_array(part, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)  # type: ignore[no-untyped-call]
    return part._getvalue()


@intrinsic
def _vector(typing_context: Untyped, flat: Untyped, start: Untyped, count: Untyped) -> Untyped:
    del typing_context, start, count
    kind = types.Array(flat.dtype, 1, "C")

    def generate(context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped) -> Untyped:
        return _part(context, builder, kind, (signature.args[0], arguments[0]), arguments[1:])

    return kind(flat, types.intp, types.intp), generate


@intrinsic
def _row_part(typing_context: Untyped, whole: Untyped, row: Untyped, start: Untyped, count: Untyped) -> Untyped:
    del typing_context, row, start, count
    kind = types.Array(whole.dtype, 1, "C")

    def generate(context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped) -> Untyped:
        source, row, start, count = arguments
        columns = cgutils.unpack_tuple(builder, make_array(whole)(context, builder, source).shape)[1]  # type: ignore[no-untyped-call]
        first = builder.add(builder.mul(row, columns), start)
        return _part(context, builder, kind, (signature.args[0], source), (first, count))

    return kind(whole, types.intp, types.intp, types.intp), generate


@intrinsic
def _matrix(typing_context: Untyped, flat: Untyped, start: Untyped, rows: Untyped, columns: Untyped) -> Untyped:
    del typing_context, start, rows, columns
    kind = types.Array(flat.dtype, 2, "C")

    def generate(context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped) -> Untyped:
        return _part(context, builder, kind, (signature.args[0], arguments[0]), arguments[1:])

    return kind(flat, types.intp, types.intp, types.intp), generate


@intrinsic
def _cube(
    typing_context: Untyped, flat: Untyped, start: Untyped, layers: Untyped, rows: Untyped, columns: Untyped
) -> Untyped:
    del typing_context, start, layers, rows, columns
    kind = types.Array(flat.dtype, 3, "C")

    def generate(context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped) -> Untyped:
        return _part(context, builder, kind, (signature.args[0], arguments[0]), arguments[1:])

    return kind(flat, types.intp, types.intp, types.intp, types.intp), generate


def _interpreted_vector(flat: NDArray[Number], start: int, count: int) -> NDArray[Number]:
    return flat[start : start + count]


def _interpreted_row_part(whole: NDArray[Number], row: int, start: int, count: int) -> NDArray[Number]:
    return whole[row, start : start + count]


def _interpreted_matrix(flat: NDArray[Number], start: int, rows: int, columns: int) -> NDArray[Number]:
    return flat[start : start + rows * columns].reshape(rows, columns)


def _interpreted_cube(flat: NDArray[Number], start: int, layers: int, rows: int, columns: int) -> NDArray[Number]:
    return flat[start : start + layers * rows * columns].reshape(layers, rows, columns)


#: ``vector(flat, start, count)``: part of a contiguous flat array.
vector = cast(
    "Callable[[NDArray[Number], int, int], NDArray[Number]]",
    _interpreted_vector if compiler_is_off() else _vector,
)
#: ``row_part(whole, row, start, count)``: part of a row of a contiguous matrix.
row_part = cast(
    "Callable[[NDArray[Number], int, int, int], NDArray[Number]]",
    _interpreted_row_part if compiler_is_off() else _row_part,
)
#: ``matrix(flat, start, rows, columns)``: part of a contiguous flat array as a matrix.
matrix = cast(
    "Callable[[NDArray[Number], int, int, int], NDArray[Number]]",
    _interpreted_matrix if compiler_is_off() else _matrix,
)
#: ``cube(flat, start, layers, rows, columns)``: part of a contiguous flat array as so many matrices.
cube = cast(
    "Callable[[NDArray[Number], int, int, int, int], NDArray[Number]]",
    _interpreted_cube if compiler_is_off() else _cube,
)
