"""The larger and the smaller of two numbers, as one instruction.

Numba compiles `max` and `min` as functions of their own for each kind of arguments in each process, 20 to 40 ms each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba.core import types
from numba.extending import intrinsic

from dynamics.compiler.compilation import compiler_is_off

# Numba publishes no types.
Untyped = Any
Number = TypeVar("Number", int, float)


def _chosen(a: Untyped, b: Untyped, comparison: str) -> Untyped:
    """Type and lower ``b if b > a else a``, or with another comparison, as Python does where one is not a number."""
    kind = types.float64 if isinstance(a, types.Float) or isinstance(b, types.Float) else types.int64

    def generate(context: Untyped, builder: Untyped, signature: Untyped, numbers: Untyped) -> Untyped:
        del context, signature
        first, second = numbers
        compare = builder.fcmp_ordered if kind is types.float64 else builder.icmp_signed
        return builder.select(compare(comparison, second, first), second, first)

    return kind(kind, kind), generate


@intrinsic
def _larger(typing_context: Untyped, a: Untyped, b: Untyped) -> Untyped:
    del typing_context
    return _chosen(a, b, ">")


@intrinsic
def _smaller(typing_context: Untyped, a: Untyped, b: Untyped) -> Untyped:
    del typing_context
    return _chosen(a, b, "<")


#: ``larger(a, b)``: what `max` returns of two numbers.
larger = cast("Callable[[Number, Number], Number]", max if compiler_is_off() else _larger)
#: ``smaller(a, b)``: what `min` returns of two numbers.
smaller = cast("Callable[[Number, Number], Number]", min if compiler_is_off() else _smaller)
