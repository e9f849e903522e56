"""Views of flat work space, and products of matrices; executed before the kernels that use them."""

from dynamics.compiler.arrays import Integers, Matrix
from dynamics.compiler.compilation import kernel
from dynamics.compiler.products import product
from dynamics.compiler.stopping import STOP
from dynamics.compiler.views import cube, matrix

__all__ = ["cube", "is_stopped", "matrix", "product", "product_until"]

# Products of two numbers in one call of BLAS, between two looks whether the step is still wanted.
LARGEST_PRODUCT = 1e9


@kernel
def is_stopped(sizes: Integers) -> bool:
    """Return whether the step is given up, so that what a function of the system writes does not matter any more."""
    return bool(sizes[sizes.size - 1] == STOP)


@kernel
def product_until(left: Matrix, right: Matrix, out: Matrix, sizes: Integers) -> None:
    """Set out = left right by blocks of rows; write no more once the step is given up."""
    rows = max(int(LARGEST_PRODUCT / (left.shape[1] * out.shape[1] + 1)), 1)
    for first in range(0, out.shape[0], rows):
        if is_stopped(sizes):
            return
        last = min(first + rows, out.shape[0])
        product(left[first:last], right, out[first:last])
