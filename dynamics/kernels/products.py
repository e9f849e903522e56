"""Products of matrices in compiled code, and a b + c rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dynamics.kernels.cache import is_interpreted
from dynamics.kernels.jit import kernel, matrix
from dynamics.kernels.units import unit
from hermite.arrays import Matrix, Vector


@intrinsic
def _instruction(typing_context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001 (numba gives and counts them)
    """Return a b + c rounded once: one instruction where the processor has it, else the C library's function."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


def _exact(a: float, b: float, c: float) -> float:
    """Return a b + c rounded once, by fractions, for kernels that are run by Python."""
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    return float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


fused_multiply_add = cast("Callable[[float, float, float], float]", _exact if is_interpreted() else _instruction)


# Products of two numbers up to which loops are faster than BLAS, which is slow at transposed matrices of few numbers.
SMALLEST_TRANSPOSED = 4096


@kernel
def product(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None:
    """Write the matrix product of `left` and `right` to `out`."""
    np.dot(left, right, out)


@unit()
def multiply(left: Matrix, right: Matrix, out: Matrix) -> None:
    """Write the matrix product of `left` and `right` to `out`."""
    product(left, right, out)


@unit()
def multiply_transposed(left: Matrix, right: Matrix, out: Matrix) -> None:
    """Write left rightᵀ to `out`: small products by loops, four columns at a time, others by BLAS."""
    if left.size * out.shape[1] > SMALLEST_TRANSPOSED:
        product(left, right.T, out)
        return
    for i in range(out.shape[0]):
        for j in range(0, out.shape[1] - 3, 4):
            a = b = c = d = 0.0
            for k in range(left.shape[1]):
                x = left[i, k]
                a += x * right[j, k]
                b += x * right[j + 1, k]
                c += x * right[j + 2, k]
                d += x * right[j + 3, k]
            out[i, j], out[i, j + 1], out[i, j + 2], out[i, j + 3] = a, b, c, d
        for j in range(out.shape[1] - out.shape[1] % 4, out.shape[1]):
            a = 0.0
            for k in range(left.shape[1]):
                a += left[i, k] * right[j, k]
            out[i, j] = a


# Rows of a block of U Uᵀ; a matrix of less than four blocks is one product.
GRAM_ROWS = 32


@unit()
def write_gram_matrix(U: Matrix, out: Matrix, scratch: Vector) -> None:
    """Write U Uᵀ to `out` (m, m), in blocks of rows left of the diagonal and their transposes.

    `scratch` has at least 32 m numbers.
    """
    m = U.shape[0]
    if m < 4 * GRAM_ROWS:
        multiply_transposed(U, U, out)
        return
    for first in range(0, m, GRAM_ROWS):
        last = min(first + GRAM_ROWS, m)
        block = matrix(scratch, 0, last - first, last)
        multiply_transposed(U[first:last], U[:last], block)
        for i in range(first, last):
            for j in range(last):
                out[i, j] = out[j, i] = block[i - first, j]
