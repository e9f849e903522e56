"""Views of flat work space, and products of matrices; executed before the kernels that use them."""

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.arrays import Real
from dynamics.compiler.compilation import counting_kernel
from dynamics.compiler.views import matrix

__all__ = ["matrix", "product"]


@counting_kernel
def product(left: NDArray[Real], right: NDArray[Real], out: NDArray[Real]) -> None:
    """Set out = left right, all contiguous matrices, by BLAS; `numpy.dot` returns `out`, which `@kernel` may not."""
    np.dot(left, right, out)
