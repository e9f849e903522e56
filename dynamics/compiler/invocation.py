"""The call of a function by its machine address from compiled code, which connects a method with a system.

With Numba's compiler switched off an address is the Python function itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dynamics.compiler.compilation import compiler_is_off

# Numba and llvmlite publish no types.
Untyped = Any


def _typed_invoke(typing_context: Untyped, address: Untyped, arguments: Untyped) -> Untyped:
    """Type and lower ``invoke(address, (a, b, …))``; the callee is a Numba callback without result.

    Numba's callbacks take each argument in the same representation that compiled code holds it in, an array as a
    structure by value; so the values are passed on as they are.
    """
    del typing_context

    def generate(context: Untyped, builder: Untyped, signature: Untyped, values: Untyped) -> Untyped:
        del signature
        pointer, packed = values
        elements = cgutils.unpack_tuple(builder, packed)  # type: ignore[no-untyped-call]
        kind = ir.FunctionType(ir.VoidType(), [element.type for element in elements])
        builder.call(builder.inttoptr(pointer, kind.as_pointer()), elements)
        return context.get_dummy_value()

    return types.void(address, arguments), generate


def _interpreted_invoke(function: Untyped, arguments: tuple[Untyped, ...]) -> None:
    function(*arguments)


invoke = cast(
    "Callable[[Any, tuple[Any, ...]], None]",
    _interpreted_invoke if compiler_is_off() else intrinsic(_typed_invoke),
)
