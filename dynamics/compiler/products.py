"""Products of matrices in compiled code, by the BLAS that Numba calls for `numpy.dot`.

Numba compiles `numpy.dot` anew for each kind of matrices in each file, with checks of its arguments in functions of
their own: a fifth of the time that the system of a flow took to compile. Here the call alone is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from numba.np.linalg import call_xxgemm
from numpy.typing import NDArray

from dynamics.compiler.compilation import compiler_is_off

# Numba publishes no types.
Untyped = Any
Real = TypeVar("Real", bound=np.floating[Any])


@intrinsic
def _product(typing_context: Untyped, left: Untyped, right: Untyped, out: Untyped) -> Untyped:
    del typing_context
    contiguous = all(kind.ndim == 2 and kind.layout in "CF" for kind in (left, right))
    if not contiguous or out.ndim != 2 or out.layout != "C" or not left.dtype == right.dtype == out.dtype:
        return None

    def generate(context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped) -> Untyped:
        factors: list[Untyped] = []
        for kind, value in zip(signature.args, arguments, strict=True):
            array = make_array(kind)(context, builder, value)  # type: ignore[no-untyped-call]
            factors += [kind, cgutils.unpack_tuple(builder, array.shape), array.data]  # type: ignore[no-untyped-call]
        result = array
        sizes = [*factors[1], *factors[7]]
        empty = cgutils.false_bit  # BLAS wants numbers in each matrix
        for size in sizes:
            empty = builder.or_(empty, builder.icmp_signed("==", size, size.type(0)))
        with builder.if_else(empty, likely=False) as (nothing, something):
            with nothing:
                length = builder.mul(result.itemsize, result.nitems)
                cgutils.memset(builder, result.data, length, 0)  # type: ignore[no-untyped-call]
            with something:
                call_xxgemm(context, builder, *factors)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(left, right, out), generate


def _interpreted(left: NDArray[Real], right: NDArray[Real], out: NDArray[Real]) -> None:
    np.dot(left, right, out)


#: ``product(left, right, out)``: set out = left right, all contiguous matrices of one precision, `out` by rows.
product = cast(
    "Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]", _interpreted if compiler_is_off() else _product
)
