"""a b + c rounded once, which kernels call to compute the rounding errors of products."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

from numba import types
from numba.extending import intrinsic

from dynamics.kernels.cache import is_interpreted


@intrinsic
def _instruction(typing_context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001 (numba gives and counts them)
    """One instruction where the processor has it; the C library's function elsewhere, with the same bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


def _exact(a: float, b: float, c: float) -> float:
    """Return a b + c rounded once, by fractions, for kernels that are run by Python."""
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    return float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


fused_multiply_add = cast("Callable[[float, float, float], float]", _exact if is_interpreted() else _instruction)
